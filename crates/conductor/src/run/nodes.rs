//! Nodes of a run: connecting to them, and replacing those that are lost or used.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use backon::{ExponentialBuilder, Retryable};
use futures::future::join_all;
use perfrun_contract::{
    plan::{Cell, Plan},
    tally::EndReason,
};
use tokio::time::Instant;

use super::{Session, Stop, suitability};
use crate::{
    attempt::Node,
    client::Error,
    clock::{self, LocalClock, NodeClock},
    links::AgentError,
    progress::Event,
    traits::{NodeHandle, ReplaceReason},
};

/// How often the clock of a new node is read.
const CLOCK_READINGS: usize = 8;

/// The longest pause between two attempts to reach a node that is being started.
const READY_PAUSE: Duration = Duration::from_millis(500);

/// Nodes that a run begins with have been ready before. One that does not answer within this time has been
/// lost since.
const FIRST_ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

impl Session<'_> {
    /// Connects to all nodes. One that does not answer any more is replaced.
    pub(super) async fn connect_nodes(&mut self, nodes: BTreeMap<String, NodeHandle>) -> Result<(), Stop> {
        let mut named = self.conductor.plan.cells.iter().flat_map(Cell::nodes);
        if let Some(missing) = named.find(|name| !nodes.contains_key(*name)) {
            return Err(Stop::Failed(
                EndReason::Internal,
                format!("the plan needs node {missing}, which was not started"),
            ));
        }
        let limit = self
            .conductor
            .options
            .timeouts
            .provision
            .min(FIRST_ANSWER_TIMEOUT);
        let (clock, plan) = (self.clock, self.conductor.plan);
        let connected = join_all(nodes.into_iter().map(|(name, handle)| async move {
            let node = connect(plan, &name, handle, clock, limit).await;
            (name, node)
        }));
        let connected = tokio::select! {
            connected = connected => connected,
            () = self.stop.cancelled() => return Err(Stop::Interrupted),
        };
        let mut lost = BTreeSet::new();
        for (name, node) in connected {
            match node {
                Ok(node) => drop(self.nodes.insert(name, node)),
                Err(ConnectError::Unreachable(why)) => {
                    tracing::warn!(node = name, why, "lost before the first trial");
                    lost.insert(name);
                }
                Err(error) => return Err(error.into()),
            }
        }
        // With the remaining nodes: report what is not available before anything else is tried.
        self.links.connect_agents(&self.nodes).await?;
        match lost.is_empty() {
            true => self.report_nodes(),
            false => self.replace(&lost, ReplaceReason::Lost).await,
        }
    }

    /// Lets the sink keep what the nodes report about themselves.
    fn report_nodes(&mut self) -> Result<(), Stop> {
        let infos = self
            .nodes
            .iter()
            .map(|(name, node)| (name.clone(), node.info.clone()));
        let kept = self.conductor.sink.keep_nodes(infos.collect());
        kept.map_err(|error| Stop::Failed(EndReason::NodeNotReady, error.to_string()))
    }

    pub(super) async fn replace(&mut self, names: &BTreeSet<String>, why: ReplaceReason) -> Result<(), Stop> {
        let limit = self.conductor.options.timeouts.provision;
        let (clock, plan, provider) = (self.clock, self.conductor.plan, self.conductor.provider);
        let replaced = join_all(names.iter().map(|name| async move {
            let handle = provider.replace(name, why).await.map_err(|error| {
                let happened = match why {
                    ReplaceReason::Lost => "was lost and cannot be replaced",
                    ReplaceReason::Renewed => "cannot be started again",
                };
                Stop::Failed(EndReason::NodeLost, format!("{name} {happened}: {error}"))
            })?;
            Ok::<_, Stop>((name, connect(plan, name, handle, clock, limit).await?))
        }));
        let replaced = tokio::select! {
            replaced = replaced => replaced,
            () = self.stop.cancelled() => return Err(Stop::Interrupted),
        };
        let replaced_any = !replaced.is_empty();
        for answer in replaced {
            let (name, node) = answer?;
            self.nodes.insert(name.clone(), node);
            self.links.forget_agent(name);
            if why == ReplaceReason::Lost {
                (self.conductor.on_event)(Event::NodeReplaced { name });
            }
        }
        if replaced_any {
            self.links.connect_agents(&self.nodes).await?;
            self.report_nodes()?;
        }
        Ok(())
    }
}

/// Why a node cannot be used.
enum ConnectError {
    /// It does not answer.
    Unreachable(String),
    /// It answers, but is not a node that the plan was made for.
    Unsuitable(String),
}

impl From<ConnectError> for Stop {
    fn from(error: ConnectError) -> Self {
        let (ConnectError::Unreachable(why) | ConnectError::Unsuitable(why)) = error;
        Self::Failed(EndReason::NodeNotReady, why)
    }
}

impl From<AgentError> for Stop {
    fn from(error: AgentError) -> Self {
        match error {
            AgentError::Unsupported(why) => Self::Failed(EndReason::ImpairmentUnsupported, why),
            AgentError::Unreachable(why) => Self::Failed(EndReason::NodeNotReady, why),
        }
    }
}

/// Waits until a node answers, checks it, and reads its clock.
async fn connect(
    plan: &Plan,
    name: &str,
    handle: NodeHandle,
    clock: LocalClock,
    limit: Duration,
) -> Result<Node, ConnectError> {
    let NodeHandle { node: client, agent } = handle;
    let deadline = Instant::now() + limit;
    let failed = |error: &Error| {
        let why = format!("{name}: {}", error.describe());
        match error {
            Error::Unreachable(_) => ConnectError::Unreachable(why),
            _ => ConnectError::Unsuitable(why),
        }
    };
    let pauses = ExponentialBuilder::default()
        .with_min_delay(Duration::from_millis(20))
        .with_max_delay(READY_PAUSE)
        .without_max_times();
    let mut info = (|| client.info())
        .retry(pauses)
        .when(|error| matches!(error, Error::Unreachable(_)) && Instant::now() < deadline)
        .await
        .map_err(|error| failed(&error))?;
    let external = suitability::check(plan, name, &info).map_err(ConnectError::Unsuitable)?;
    // Not a property of the program or the machine.
    info.instance = None;
    let readings = clock::readings(&client, clock, CLOCK_READINGS)
        .await
        .map_err(|error| failed(&error))?;
    let mut node = Node {
        client,
        agent,
        clock: NodeClock::default(),
        info,
        external,
    };
    readings.into_iter().for_each(|reading| node.clock.add(reading));
    Ok(node)
}
