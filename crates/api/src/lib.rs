//! The resources PerfRun and PerfSchedule, the plan that a document makes, the results document, and what the
//! operator and the command line agree on about objects of a cluster. No I/O.
//!
//! | module | subject |
//! |---|---|
//! | [`document`] | YAML and JSON as people write them |
//! | [`spec`], [`workload`], [`network`], [`compare`], [`store`] | the resource PerfRun |
//! | [`schedule`] | the resource PerfSchedule |
//! | `rule`, `structural` | the rules and the form of their schemas |
//! | [`planning`] | from a document to its plan |
//! | [`results`] | the results document |
//! | [`cluster`], [`pod`] | a run in a cluster, and the pods of its nodes |
//! | [`bounded`], [`memory_budget`] | reading JSON of others within bounds |
//! | [`exit_status`], [`nearest`], [`generated`] | exit statuses, suggestions for misspelt names, and generated files |

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
