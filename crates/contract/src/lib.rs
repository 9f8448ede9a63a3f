//! What a benchmark node and the conductor that drives it agree on. No I/O, and nothing of Kubernetes, which a node need not
//! know.
//!
//! | module | subject |
//! |---|---|
//! | [`node`] | the calls, and what they answer |
//! | [`parameters`] | what a trial does, all defaults filled in |
//! | [`support`] | what stacks cannot do |
//! | [`workload`] | words that a document and a trial's parameters share |
//! | [`matrix`] | stacks, transports, protocols |
//! | [`quantity`] | bytes, shares and bit rates as people write them |
//! | [`histogram`] | distributions that merge exactly |
//! | [`units`] | numbers as people write them |
//! | [`metrics`] | what is exported for Prometheus |

#![warn(missing_docs)]

pub mod histogram;
pub mod matrix;
pub mod metrics;
pub mod node;
pub mod parameters;
pub mod quantity;
pub mod support;
pub mod units;
pub mod workload;
