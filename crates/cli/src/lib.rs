//! The parts of the `perfrun` command.

pub mod args;
pub mod ci;
#[cfg_attr(not(feature = "cluster"), path = "without_cluster.rs")]
pub mod cluster;
pub mod compare;
pub mod conformance;
pub mod describe;
mod documents;
mod executable;
mod exit_status;
pub mod history;
mod junit;
pub mod link;
pub mod output;
pub mod page;
pub mod plan;
mod printing;
pub mod profile;
pub mod report;
pub mod results_folder;
pub mod run;
mod signals;
pub mod ui;
pub mod validate;
mod words;
