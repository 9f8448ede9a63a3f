//! The resources PerfRun and PerfSchedule, the plan that a document makes, the results document, and what the
//! operator and the command line agree on about objects of a cluster. No I/O.

#![warn(missing_docs)]

pub mod bounded;
pub mod cluster;
pub mod compare;
pub mod document;
pub mod exit_status;
pub mod generated;
pub mod memory_budget;
pub mod nearest;
pub mod network;
pub mod planning;
pub mod pod;
pub mod results;
mod rule;
pub mod schedule;
pub mod spec;
pub mod store;
mod structural;
pub mod workload;
