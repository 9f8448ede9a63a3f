//! The operator: reconciles the `PerfRun` and `PerfSchedule` objects of a cluster.
//!
//! The reconciliation of a run is a pipeline: observe → decide → apply → publish. Deciding takes values and
//! returns values: no client, no clock, no environment.
//!
//! | module | subject |
//! |---|---|
//! | [`operator`] | leads, starts the controllers, and ends gracefully |
//! | `schedule` | reconciles a schedule, which creates runs: its decision is pure |
//! | `run` | reconciles a run, step by step, and the turns of runs |
//! | `conduct` | a run's conductor as a task of this process, its journal, and its nodes |
//! | `services` | what reconciliations and the conductors of runs share |
//! | `pods` | the pods of a run, as the watch shows them |
//! | `build` | the objects of a run: pure |
//! | [`self_test`] | a run that shows whether the installation works |
//! | [`args`] | the command line |
//! | [`store`] | the program in the pod that keeps results of a run elsewhere than in ConfigMaps |
//! | `process` | the process: leadership, watches, metrics, memory that runs share, the signal to stop |
//! | [`policy`] | what documents may request: pure |
//! | `access` | reaches nodes directly, or through the API server |
//! | `names`, `token` | names of objects, which fit and do not collide, and tokens of runs |
//! | `api` | calls, watched objects, conditions, events and statuses of the API server |
//!
//! Wings import each other in one direction: `operator`, `schedule`, `run` and `conduct` each import only
//! those that stand below them, and `api` imports no other wing. The steps of a reconciliation do not import
//! its driver.

mod access;
mod api;
pub mod args;
mod build;
mod conduct;
mod names;
pub mod operator;
mod pods;
pub mod policy;
mod process;
mod run;
mod schedule;
pub mod self_test;
mod services;
pub mod store;
#[cfg(test)]
mod test_server;
mod token;
