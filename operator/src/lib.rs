//! The operator: reconciles `PerfRun` objects of a cluster.
//!
//! A pass over one run is a pipeline (`controller`): observe → validate → decide → build → apply → status. Everything
//! between observing and applying takes values and returns values: no client, no clock, no environment.
//!
//! | module | subject |
//! |---|---|
//! | [`args`] | the command line |
//! | [`operator`] | the process: leadership, controllers, graceful end |
//! | `controller` | one pass over one run, and what wakes it |
//! | `observe` | what is there: pods of a run, as the decision needs them |
//! | `plans` | plans of runs, each made once |
//! | `decide` | what is to be done now: pure |
//! | `status` | conditions, phase and events that follow from a decision: pure |
//! | `build` | the objects of a run: pure |
//! | `names` | names of objects, which fit and do not collide |
//! | `turn` | which runs may be active together: pure |
//! | `conduct` | a run's conductor as a task of this process, its journal, and replacing lost pods |
//! | `access` | reaches nodes directly, or through the API server |
//! | `token` | tokens of runs |
//! | `lease` | leadership |
//! | `watch` | objects of some namespaces as one watch |
//! | [`self_test`] | a run that says whether the installation works |
//! | `admin`, `metrics` | `/livez`, `/readyz`, `/metrics` |

mod access;
mod admin;
pub mod args;
mod build;
mod conduct;
mod controller;
mod decide;
mod lease;
mod links;

mod metrics;
mod names;
mod observe;
pub mod operator;
mod plans;
mod refusal;
pub mod self_test;
mod status;
mod token;
mod turn;
mod watch;
