//! The PerfRun resource, its plan and the results. No I/O.

#![warn(missing_docs)]

pub mod cluster;
pub mod document;
pub mod generated;
pub mod measure;
pub mod network;
pub mod plan;
pub mod results;
pub mod rule;
pub mod spec;
pub mod structural;
pub mod workload;

pub use perfrun_contract::{histogram, matrix, metrics, node, quantity, units};
