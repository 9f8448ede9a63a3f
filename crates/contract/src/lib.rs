//! What the programs of perfrun agree on: what a node can be requested to do, and what a run leaves behind.
//! No I/O, and nothing of Kubernetes.
//!
//! | module | subject |
//! |---|---|
//! | [`plan`] | what a run does: nodes, cells, trials |
//! | [`parameters`] | what a trial does, all defaults filled in |
//! | [`network`] | what links do to packets |
//! | [`matrix`] | stacks, transports, protocols |
//! | [`workload`] | words that a document and a trial's parameters share |
//! | [`support`] | what stacks cannot do |
//! | [`capabilities`] | what a stack in a node program can do, as the program says |
//! | [`role`] | what a node does in a run |
//! | [`node`] | the calls to a node, and their answers |
//! | [`distribution`] | the distributions that nodes measure |
//! | [`machine`] | CPU time of a whole machine, its limits and mitigations |
//! | [`metric`] | the quantities that a trial measures, and which value of each is better |
//! | [`record`] | what a trial leaves behind |
//! | [`measure`] | from what both ends measured to a trial's metrics |
//! | [`summary`] | statistics over trials |
//! | [`compare`] | what a run compares, what is expected of it, what was found |
//! | [`run`] | a whole run: its state, what ends it, what it runs on |
//! | [`tally`] | which attempt of a trial counts, and how a run ended |
//! | [`reported_run`] | what a report needs of a run |
//! | [`profile`] | where the CPU time of nodes went |
//! | [`newer`] | names that a newer version has added |
//! | [`histogram`] | distributions that merge exactly |
//! | [`quantity`] | bytes, shares and bit rates as people write them |
//! | [`limits`] | bounds that documents, requests and stacks have in common |
//! | [`units`] | numbers as people read them |
//! | [`text`] | untrusted text without control characters |
//! | [`metrics`] | what is exported for Prometheus |

#![warn(missing_docs)]

pub mod capabilities;
pub mod compare;
pub mod distribution;
pub mod histogram;
pub mod limits;
pub mod machine;
pub mod matrix;
pub mod measure;
pub mod metric;
pub mod metrics;
pub mod network;
pub mod newer;
pub mod node;
pub mod parameters;
pub mod plan;
pub mod profile;
pub mod quantity;
pub mod record;
pub mod reported_run;
pub mod role;
pub mod run;
pub mod summary;
pub mod support;
pub mod tally;
pub mod text;
pub mod units;
pub mod workload;
