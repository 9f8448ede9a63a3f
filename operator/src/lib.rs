//! The operator: reconciles the `PerfRun` and `PerfSchedule` objects of a cluster.
//!
//! A pass over one run is a pipeline: observe → decide → apply → publish. Deciding takes values and returns
//! values: no client, no clock, no environment.
//!
//! | module | subject |
//! |---|---|
//! | [`args`] | the command line |
//! | [`operator`] | the process: leadership, watches, graceful end |
//! | `controller` | the driver of a pass over one run |
//! | `observe` | what is known of a run: its pods, its turn, its conductor |
//! | `decide` | what to do now: pure |
//! | `apply` | creates and deletes the objects of a run, and commands its conductor |
//! | `publish` | the one write of the status, and events |
//! | `stage`, `status` | where a run stands, and its conditions, phase and events: pure |
//! | `refusal` | what an error of the API server means for a run: pure |
//! | `watched` | a PerfRun as it is watched, readable or not |
//! | `plans` | plans of runs, each made once |
//! | `build` | the objects of a run: pure |
//! | `names` | names of objects, which fit and do not collide |
//! | [`policy`] | what documents may request: pure |
//! | `turn`, `ledger` | which runs may be active together, and what the watches do not show yet |
//! | `conduct` | a run's conductor as a task of this process, its journal, and its nodes |
//! | `links` | the state of a run's links: pure |
//! | `verdict` | what a run found: pure |
//! | `schedule` | a pass over one schedule, which creates runs: its decision is pure |
//! | `access` | reaches nodes directly, or through the API server |
//! | `token` | tokens of runs |
//! | `clock` | the time of day, which tests replace |
//! | `lease`, `fence` | leadership, and what is not possible without it |
//! | `watch` | objects of some namespaces as one watch |
//! | [`self_test`] | a run that shows whether the installation works |
//! | [`store`] | the program in the pod that keeps results of a run elsewhere than in ConfigMaps |
//! | `admin`, `health`, `metrics` | `/livez`, `/readyz`, `/metrics` |

mod access;
mod admin;
mod apply;
pub mod args;
mod build;
mod clock;
mod conduct;
mod controller;
mod decide;
mod fence;
mod health;
mod lease;
mod ledger;
mod links;
mod metrics;
mod names;
mod observe;
pub mod operator;
mod plans;
pub mod policy;
mod publish;
mod refusal;
mod schedule;
pub mod self_test;
mod stage;
mod status;
pub mod store;
#[cfg(test)]
mod test_server;
mod token;
mod turn;
mod verdict;
mod watch;
mod watched;
