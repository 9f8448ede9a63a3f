//! An attempt at a trial, and the nodes that it is made with.

use std::time::Duration;

use perfrun_contract::{
    node::Info,
    plan::{Cell, Trial},
};

use crate::{
    client::{AgentClient, NodeClient},
    clock::NodeClock,
};

/// A node of the run.
#[derive(Debug)]
pub(crate) struct Node {
    pub client: NodeClient,
    pub agent: Option<AgentClient>,
    pub clock: NodeClock,
    pub info: Info,
    /// The name by which it knows its external stack. `None` for perfrun-node and perfrun-node-go.
    pub external: Option<String>,
}

/// One attempt at a trial.
#[derive(Clone, Debug)]
pub(crate) struct Attempt<'a> {
    /// What the nodes know it by.
    pub id: String,
    pub trial: &'a Trial,
    pub cell: &'a Cell,
    pub attempt: u32,
    /// Whether it was tried before and a node was lost.
    pub after_loss: bool,
    /// The session of the run.
    pub session: u32,
    /// After this time the nodes end the attempt.
    pub timeout: Duration,
    /// What its network adds to a round trip.
    pub round_trip: Duration,
    /// What it lets a connection carry at most, in bit/s, if it has a rate.
    pub rate: Option<f64>,
    /// When it was begun, since the start of the run.
    pub at: Duration,
    /// How often progress is reported.
    pub progress_interval: Duration,
}
