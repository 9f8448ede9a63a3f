//! An attempt at a trial, and the nodes that it is made with.

use std::{fmt, str::FromStr, time::Duration};

use perfrun_contract::{
    node::Info,
    plan::{Cell, Trial},
};

use crate::{
    client::{AgentClient, NodeClient},
    clock::NodeClock,
};

/// Names a run at its nodes. A conductor that resumes the run with the same id finds the trials that an
/// earlier conductor left there, and one with another id never does.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct RunId(String);

impl RunId {
    /// An id that no other run has.
    pub fn random() -> Self {
        Self(format!("{:08x}", rand::random::<u32>()))
    }
}

impl FromStr for RunId {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        if (1..=63).contains(&text.len()) && text.chars().all(allowed) {
            Ok(Self(text.to_owned()))
        } else {
            Err(format!(
                "{text:?} is not the id of a run: use 1 to 63 lower-case letters, digits and '-'"
            ))
        }
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

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
    /// The run of the trial.
    pub run_id: RunId,
    pub trial: &'a Trial,
    pub cell: &'a Cell,
    /// 0 for the first attempt at the trial, 1 for the second.
    pub number: u32,
    /// Whether an earlier attempt has lost a node.
    pub after_loss: bool,
    /// The session of the run.
    pub session: u32,
    /// After this time the nodes end the attempt.
    pub timeout: Duration,
    /// What the network of the cell adds to a round trip.
    pub round_trip: Duration,
    /// The most that the network lets a connection carry, in bit/s. `None` without a rate.
    pub rate: Option<f64>,
    /// When the attempt began, since the start of the run.
    pub at: Duration,
    /// How often progress is reported.
    pub progress_interval: Duration,
}

impl Attempt<'_> {
    /// The id by which nodes know the attempt.
    pub(crate) fn id(&self) -> String {
        format!("{}-{}.a{}", self.run_id, self.trial.id, self.number)
    }

    /// Whether nodes know an attempt of the same run by this id.
    pub(crate) fn is_of_same_run(&self, id: &str) -> bool {
        let rest = id.strip_prefix(self.run_id.0.as_str());
        rest.is_some_and(|rest| rest.starts_with('-'))
    }
}
