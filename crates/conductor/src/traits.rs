//! What a run needs from the program that conducts it: a keeper of records, and a provider of nodes.

use std::{collections::BTreeMap, io, iter};

use async_trait::async_trait;
use perfrun_contract::{compare::NotNeeded, node::Info, record::TrialRecord};

use crate::client::{AgentClient, AnswerBudget, Caller, Epoch, NodeClient};

/// Keeps the records of a run.
#[async_trait]
pub trait RecordSink: Send {
    /// Keeps a record. The next trial begins when this returns. An error ends the run.
    async fn record(&mut self, record: &TrialRecord) -> io::Result<Durability>;

    /// What was recorded, also by earlier sessions of this run. A trial with a record here is run again only
    /// as a second attempt: after the loss of a node, or with its pair if one of the two was disturbed or
    /// they are of two sessions.
    fn records(&self) -> &[TrialRecord];

    /// Keeps what all nodes report about themselves, before the next of them is measured. An error ends the
    /// run.
    fn keep_nodes(&mut self, _nodes: BTreeMap<String, Info>) -> io::Result<()> {
        Ok(())
    }

    /// Notes the trials that the run does not need: all that are left out so far.
    fn leave_out(&mut self, _not_needed: NotNeeded) {}
}

/// What a record that is kept survives.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Durability {
    /// The record and all before it survive a crash of this process: nodes may forget these trials.
    CrashSafe,
    /// The record is lost with this process: nodes keep the trial until a later record is crash-safe.
    InMemory,
}

/// Starts nodes in place of lost or used ones.
#[async_trait]
pub trait NodeProvider: Send + Sync {
    /// Ends what is left of a node, and starts another under its name. The error says why there is none.
    async fn replace(&self, name: &str, why: ReplaceReason) -> Result<NodeHandle, String>;

    /// How a node that does not answer has ended, for people. `None` if it runs, or if nobody knows.
    async fn describe_end(&self, name: &str) -> Option<String>;
}

/// Why a node is replaced.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ReplaceReason {
    /// It does not answer any more.
    Lost,
    /// The plan requests new nodes in each iteration.
    Renewed,
}

/// The clients with which the conductor calls a node and its link agent.
#[derive(Clone, Debug)]
pub struct NodeHandle {
    /// The node.
    pub node: NodeClient,
    /// Its link agent, in runs that impair links.
    pub agent: Option<AgentClient>,
}

impl NodeHandle {
    /// Calls as a conductor of this epoch. Calls without one are of epoch 0.
    #[must_use]
    pub fn with_epoch(mut self, epoch: &Epoch) -> Self {
        self.callers()
            .for_each(|caller| caller.epoch = Some(epoch.clone()));
        self
    }

    /// Reads answers where there is room for them.
    #[must_use]
    pub fn with_answer_budget(mut self, answer_budget: &AnswerBudget) -> Self {
        self.callers()
            .for_each(|caller| caller.answer_budget = answer_budget.clone());
        self
    }

    fn callers(&mut self) -> impl Iterator<Item = &mut Caller> {
        let agent = self.agent.as_mut().map(|agent| &mut agent.0);
        iter::once(&mut self.node.0).chain(agent)
    }
}

impl From<NodeClient> for NodeHandle {
    fn from(node: NodeClient) -> Self {
        Self { node, agent: None }
    }
}
