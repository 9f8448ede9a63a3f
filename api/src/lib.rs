//! The PerfRun resource, its plan, the node's control contract and the results. No I/O.

pub mod cluster;
pub mod document;
pub mod generated;
pub mod histogram;
pub mod matrix;
pub mod measure;
pub mod metrics;
pub mod network;
pub mod node;
pub mod plan;
pub mod quantity;
pub mod results;
pub mod rule;
pub mod spec;
pub mod structural;
pub mod workload;
