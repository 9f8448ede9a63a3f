//! The operator: reconciles the `PerfRun` and `PerfSchedule` objects of a cluster.
//!
//! A pass over one run is a pipeline: observe → decide → apply → publish. Deciding takes values and returns
//! values: no client, no clock, no environment.
//!
//! | module | subject |
//! |---|---|
//! | [`args`] | the command line |
//! | [`process`] | the process: leadership, watches, metrics, graceful end |
//! | `api` | calls, objects, events and statuses of the API server |
//! | `run` | a pass over one run, stage by stage, and the turns of runs |
//! | `build` | the objects of a run: pure |
//! | `conduct` | a run's conductor as a task of this process, its journal, and its nodes |
//! | `schedule` | a pass over one schedule, which creates runs: its decision is pure |
//! | `services` | what passes and conductors share |
//! | `access` | reaches nodes directly, or through the API server |
//! | `names`, `token` | names of objects, which fit and do not collide, and tokens of runs |
//! | [`policy`] | what documents may request: pure |
//! | [`self_test`] | a run that shows whether the installation works |
//! | [`store`] | the program in the pod that keeps results of a run elsewhere than in ConfigMaps |
//!
//! The stages of a pass do not import its driver, `conduct` knows no stage that changes objects, and `api`
//! imports no other wing.

mod access;
mod api;
pub mod args;
mod build;
mod conduct;
mod names;
pub mod policy;
pub mod process;
mod run;
mod schedule;
pub mod self_test;
mod services;
pub mod store;
#[cfg(test)]
mod test_server;
mod token;
