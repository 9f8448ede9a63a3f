//! A trial between two nodes, in the order of the contract.

use std::time::Duration;

use perfrun_conductor::client::Error;
use perfrun_contract::{
    matrix::{StackSettings, Transport},
    node::{Outcome, Side, Start, TrialLabels, TrialRequest, TrialState},
    parameters::Parameters,
};

use crate::bench::Node;

/// How long a state may take.
const PATIENCE: Duration = Duration::from_secs(20);

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

/// What both ends report.
#[derive(Clone, Debug)]
pub(crate) struct Ended {
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
        let prepared = server.client.prepare(&self.id, &request).await;
        prepared.map_err(|error| format!("a server cannot be prepared: {}", error.describe()))?;
        let status = server
            .client
            .status_after(&self.id, TrialState::Preparing, PATIENCE)
            .await;
        let status = status.map_err(|error| error.describe())?;
        if let Some(failure) = status.outcome.and_then(|outcome| outcome.failure) {
            return Err(format!(
                "the server failed while preparing: {}: {}",
                failure.reason, failure.message
            ));
        }
        if status.state != TrialState::Ready || status.addresses.is_empty() {
            return Err(format!(
                "a server must become ready and name its addresses within {PATIENCE:?}: it is {} with {} addresses",
                status.state,
                status.addresses.len()
            ));
        }
        Ok(status.addresses)
    }

    /// Prepares a client, and waits until it is ready.
    pub(crate) async fn dial(&self, client: &Node, servers: Vec<String>) -> Result<(), String> {
        let side = Side::Client {
            servers,
            peers: 1,
            clocks: vec![],
        };
        let request = self.request(&self.stacks[0], side);
        let prepared = client.client.prepare(&self.id, &request).await;
        prepared.map_err(|error| format!("a client cannot be prepared: {}", error.describe()))?;
        let status = client
            .client
            .status_after(&self.id, TrialState::Preparing, PATIENCE)
            .await;
        let status = status.map_err(|error| error.describe())?;
        match status.outcome.and_then(|outcome| outcome.failure) {
            Some(failure) => Err(format!(
                "the client failed while preparing: {}: {}",
                failure.reason, failure.message
            )),
            None if status.state < TrialState::Ready => Err(format!(
                "a client must become ready within {PATIENCE:?}: it is {}",
                status.state
            )),
            None => Ok(()),
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
            .status_after(&self.id, TrialState::Running, PATIENCE)
            .await;
        let status = status.map_err(|error| error.describe())?;
        let state = status.state;
        status
            .outcome
            .ok_or_else(|| format!("a trial must have an outcome within {PATIENCE:?}: it is {state}"))
    }

    /// Runs the trial to its end, and lets both nodes forget it.
    pub(crate) async fn run(&self, client: &Node, server: &Node) -> Result<Ended, String> {
        let ended = async {
            let addresses = self.listen(server).await?;
            self.dial(client, addresses).await?;
            let start_at = self.start(client).await?;
            let outcome = self.outcome(client).await?;
            let finished = server.client.finish(&self.id).await;
            finished.map_err(|error| error.describe())?;
            Ok(Ended {
                client: outcome,
                server: self.outcome(server).await?,
                start_at,
            })
        }
        .await;
        for node in [client, server] {
            forget(node, &self.id).await;
        }
        ended
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
