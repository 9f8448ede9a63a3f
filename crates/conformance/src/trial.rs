//! A trial between two nodes, in the order of the contract.

use std::time::Duration;

use perfrun_conductor::client::Error;
use perfrun_contract::{
    matrix::{StackSettings, Transport},
    node::{Outcome, Side, Start, TrialLabels, TrialRequest, TrialState, TrialStatus},
    parameters::Parameters,
};

use crate::nodes::Node;

/// How long a state may take.
const STATE_TIMEOUT: Duration = Duration::from_secs(20);

/// How long before the start a client hears of it.
const LEAD: Duration = Duration::from_millis(20);

/// A trial to run.
#[derive(Clone, Debug)]
pub(crate) struct Trial {
    pub(crate) id: String,
    pub(crate) transport: Transport,
    pub(crate) parameters: Parameters,
    /// The stack of the client, and of the server, by the names that the nodes use.
    pub(crate) stacks: [String; 2],
}

/// The outcomes of a trial at its two ends.
#[derive(Clone, Debug)]
pub(crate) struct TrialOutcomes {
    pub(crate) client: Outcome,
    pub(crate) server: Outcome,
    /// The start that the client was given, in its clock.
    pub(crate) start_at: u64,
}

impl Trial {
    pub(crate) fn request(&self, stack: &str, side: Side) -> TrialRequest {
        TrialRequest {
            stack: stack.to_owned(),
            settings: StackSettings::default(),
            transport: self.transport,
            parameters: self.parameters.clone(),
            side,
            timeout_seconds: 20.0,
            labels: TrialLabels {
                cell: "conformance".to_owned(),
                network: "none".to_owned(),
            },
        }
    }

    /// Lets a server listen, and returns its addresses.
    pub(crate) async fn listen(&self, server: &Node) -> Result<Vec<String>, String> {
        let request = self.request(&self.stacks[1], Side::Server);
        self.listen_as("server", server, request).await
    }

    async fn listen_as(&self, what: &str, node: &Node, request: TrialRequest) -> Result<Vec<String>, String> {
        let status = self.prepare(what, node, &request).await?;
        if status.state != TrialState::Ready || status.addresses.is_empty() {
            return Err(format!(
                "a {what} must become ready and name its addresses within {STATE_TIMEOUT:?}: it is {} with {} addresses",
                status.state,
                status.addresses.len()
            ));
        }
        Ok(status.addresses)
    }

    /// Prepares a side, and waits until it is ready or has failed.
    async fn prepare(&self, what: &str, node: &Node, request: &TrialRequest) -> Result<TrialStatus, String> {
        let prepared = node.client.prepare(&self.id, request).await;
        prepared.map_err(|error| format!("a {what} cannot be prepared: {}", error.describe()))?;
        let status = node
            .client
            .status_after(&self.id, TrialState::Preparing, STATE_TIMEOUT)
            .await;
        let status = status.map_err(|error| error.describe())?;
        match status
            .outcome
            .as_ref()
            .and_then(|outcome| outcome.failure.as_ref())
        {
            Some(failure) => Err(format!(
                "the {what} failed while preparing: {}: {}",
                failure.reason, failure.message
            )),
            None => Ok(status),
        }
    }

    /// Prepares a client, and waits until it is ready.
    pub(crate) async fn dial(&self, client: &Node, servers: Vec<String>) -> Result<(), String> {
        let side = Side::Client {
            servers,
            peers: 1,
            clocks: vec![],
        };
        self.ready("client", client, side).await
    }

    /// Prepares a side that dials, and waits until it is ready.
    async fn ready(&self, what: &str, node: &Node, side: Side) -> Result<(), String> {
        let request = self.request(&self.stacks[0], side);
        let status = self.prepare(what, node, &request).await?;
        match status.state < TrialState::Ready {
            true => Err(format!(
                "a {what} must become ready within {STATE_TIMEOUT:?}: it is {}",
                status.state
            )),
            false => Ok(()),
        }
    }

    /// Starts a client soon, and returns when, in its clock.
    pub(crate) async fn start(&self, client: &Node) -> Result<u64, String> {
        self.start_in(client, LEAD).await
    }

    /// Starts a client after a time, and returns when, in its clock.
    pub(crate) async fn start_in(&self, client: &Node, lead: Duration) -> Result<u64, String> {
        let started = async {
            let at_nanoseconds = client.client.clock().await?.nanoseconds + lead.as_nanos() as u64;
            client.client.start(&self.id, Start { at_nanoseconds }).await?;
            Ok::<_, Error>(at_nanoseconds)
        };
        started
            .await
            .map_err(|error| format!("a client cannot be started: {}", error.describe()))
    }

    /// Waits for the outcome of a side.
    pub(crate) async fn outcome(&self, node: &Node) -> Result<Outcome, String> {
        let status = node
            .client
            .status_after(&self.id, TrialState::Running, STATE_TIMEOUT)
            .await;
        let status = status.map_err(|error| error.describe())?;
        let state = status.state;
        status
            .outcome
            .ok_or_else(|| format!("a trial must have an outcome within {STATE_TIMEOUT:?}: it is {state}"))
    }

    /// Runs the trial through a relay, whose outcome comes second, and lets all nodes forget it.
    pub(crate) async fn run_relayed(
        &self,
        [client, source, relay]: [&Node; 3],
        relay_stack: &str,
    ) -> Result<(TrialOutcomes, Outcome), String> {
        let outcomes = async {
            let through = self
                .listen_as("relay", relay, self.request(relay_stack, Side::Relay))
                .await?;
            let side = Side::Source {
                relay: through[0].clone(),
                peers: 1,
            };
            let addresses = self
                .listen_as("source", source, self.request(&self.stacks[1], side))
                .await?;
            self.dial(client, addresses).await?;
            let start_at = self.start(client).await?;
            let outcomes = TrialOutcomes {
                client: self.outcome(client).await?,
                server: self.finish(source).await?,
                start_at,
            };
            Ok((outcomes, self.finish(relay).await?))
        }
        .await;
        for node in [client, source, relay] {
            forget(node, &self.id).await;
        }
        outcomes
    }

    /// Runs the trial with both peers in one process.
    pub(crate) async fn run_both(&self, node: &Node) -> Result<Outcome, String> {
        let outcome = async {
            self.ready("side both", node, Side::Both { peers: 1 }).await?;
            self.start(node).await?;
            self.outcome(node).await
        }
        .await;
        forget(node, &self.id).await;
        outcome
    }

    /// Lets a listening side end, and returns its outcome.
    async fn finish(&self, node: &Node) -> Result<Outcome, String> {
        let finished = node.client.finish(&self.id).await;
        finished.map_err(|error| error.describe())?;
        self.outcome(node).await
    }

    /// Runs the trial to its end, and lets both nodes forget it.
    pub(crate) async fn run(&self, client: &Node, server: &Node) -> Result<TrialOutcomes, String> {
        let outcomes = async {
            let addresses = self.listen(server).await?;
            self.dial(client, addresses).await?;
            let start_at = self.start(client).await?;
            Ok(TrialOutcomes {
                client: self.outcome(client).await?,
                server: self.finish(server).await?,
                start_at,
            })
        }
        .await;
        for node in [client, server] {
            forget(node, &self.id).await;
        }
        outcomes
    }
}

/// Cancels a trial that is in progress, and forgets it.
pub(crate) async fn forget(node: &Node, id: &str) {
    for _ in 0..2 {
        let _ = node.client.delete(id).await;
        let _ = node
            .client
            .status_after(id, TrialState::Running, Duration::from_secs(3))
            .await;
    }
    let _ = node.client.delete(id).await;
}
