//! Drives a plan over running nodes: wait until they are there, then for each trial prepare all sides, start
//! the clients together, collect from both ends, hand the record over, next.
//!
//! Owns the order of calls, the clock offsets, and what a trial's record says. It does not know how nodes are
//! started ([`NodeProvider`] replaces one), how records are kept ([`RecordSink`]), or how a node is reached
//! ([`client::Requester`]). State lives in the nodes and in what the sink persisted: a node receives the
//! request to forget a trial only after its record was persisted, so a conductor that comes back with the
//! same [`RunId`] loses nothing.
//!
//! | module | subject |
//! |---|---|
//! | `attempt` | one attempt at a trial, what nodes know it by, and its nodes |
//! | [`client`] | the calls of the node contract over HTTP |
//! | `clock` | offsets between nodes' clocks and the conductor's |
//! | `trial` | one trial: the order of calls, and what is done when one fails |
//! | `record` | from what was observed to a record: pure |
//! | `links` | setting and measuring the links that trials run over |
//! | `run` | all trials, lost nodes, resuming, limits |
//! | `traits` | what a run needs from the program that conducts it |
//! | `progress` | what can be watched |

#![warn(missing_docs)]

mod attempt;
pub mod client;
mod clock;
#[doc(hidden)]
pub mod fuzzing;
mod links;
mod progress;
mod record;
mod run;
mod traits;
mod trial;

pub use attempt::RunId;
pub use client::{AgentClient, NodeClient};
pub use progress::{Event, OnEvent};
pub use run::{ATTEMPTS, Conductor, RunEnd, RunOptions};
pub use traits::{Durability, NodeHandle, NodeProvider, RecordSink, ReplaceReason};
