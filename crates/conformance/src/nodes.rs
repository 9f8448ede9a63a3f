//! The nodes that checks talk to: the node under test, and a reference node of perfrun.

use std::{mem, net::SocketAddr, sync::Arc, time::Duration};

use async_trait::async_trait;
use perfrun_conductor::{NodeClient, client};
use perfrun_contract::node::Info;
use strum::Display;
use thiserror::Error;
use tokio::time::{Instant, sleep, timeout};

/// How long a node may take until it answers its first call.
const START_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a node may take to exit after SIGTERM.
pub(crate) const EXIT_TIMEOUT: Duration = Duration::from_secs(6);

/// Why the suite cannot run.
#[derive(Debug, Error)]
pub enum Error {
    /// A node cannot be started.
    #[error("failed to start {who}: {why}")]
    Start {
        /// Which node.
        who: Participant,
        /// From its starter.
        why: String,
    },
    /// A node exited.
    #[error("{who} ended before it was ready: {why}")]
    Ended {
        /// Which node.
        who: Participant,
        /// Its exit status, and the end of its log.
        why: String,
    },
    /// A node answers with an error.
    #[error("{who} answered GET /v1/info with an error: {why}")]
    Refused {
        /// Which node.
        who: Participant,
        /// The error.
        why: String,
    },
    /// A node does not answer.
    #[error("{who} did not answer GET /v1/info within {START_TIMEOUT:?}: {why}")]
    Silent {
        /// Which node.
        who: Participant,
        /// The error of the last call, and the end of its log.
        why: String,
    },
}

/// Which node.
#[derive(Clone, Copy, Debug, Display, Eq, PartialEq)]
pub enum Participant {
    /// The node under test.
    #[strum(to_string = "the node")]
    Tested,
    /// A second instance of the node under test.
    #[strum(to_string = "the second node")]
    Second,
    /// perfrun's own node.
    #[strum(to_string = "the reference")]
    Reference,
}

/// Starts nodes, which reach each other at the address on which they listen.
#[async_trait]
pub trait NodeStarter: Send + Sync {
    /// Starts a node. The error says why it does not run, and what to do.
    async fn start(&self, who: Participant) -> Result<Box<dyn RunningNode>, String>;
}

/// A node that was started. Dropping it may end it.
#[async_trait]
pub trait RunningNode: Send + Sync {
    /// Where this machine reaches its control port.
    fn control_addr(&self) -> SocketAddr;

    /// The token that its control port requires.
    fn token(&self) -> &str;

    /// How it ended. `None` while it runs.
    fn ended(&self) -> Option<String>;

    /// The last lines of its log.
    async fn log_tail(&self) -> String;

    /// How many files it has open. `None` where they cannot be counted.
    fn open_files(&self) -> Option<usize>;

    /// Ends it immediately, and waits until it has ended.
    async fn kill(&self);

    /// Sends SIGTERM, and waits until it has ended. Returns whether it did so within `grace`, before it was
    /// killed.
    async fn stop(&self, grace: Duration) -> bool;
}

/// A running node.
pub(crate) struct Node {
    pub(crate) running: Box<dyn RunningNode>,
    pub(crate) client: NodeClient,
    pub(crate) info: Info,
}

/// The nodes of a suite.
pub struct TestNodes {
    starter: Arc<dyn NodeStarter>,
    /// Kept from check to check, until a check ends it.
    kept: [Option<Node>; 3],
    remarks: Vec<String>,
}

impl TestNodes {
    /// No node runs yet.
    pub fn new(starter: Arc<dyn NodeStarter>) -> Self {
        Self {
            starter,
            kept: [None, None, None],
            remarks: vec![],
        }
    }

    /// Starts all nodes, and returns what the node under test says of itself.
    pub(crate) async fn start_all(&mut self) -> Result<Info, Error> {
        let [tested, ..] = self
            .several([Participant::Tested, Participant::Second, Participant::Reference])
            .await?;
        Ok(tested.info.clone())
    }

    /// The node, which is started if it does not run.
    pub(crate) async fn node(&mut self, who: Participant) -> Result<&Node, Error> {
        let index = who as usize;
        if self.kept[index]
            .as_ref()
            .is_none_or(|node| node.running.ended().is_some())
        {
            self.kept[index] = Some(self.start(who).await?);
        }
        Ok(self.kept[index].as_ref().expect("it was just started"))
    }

    /// Several nodes at the same time.
    pub(crate) async fn several<const N: usize>(
        &mut self,
        all: [Participant; N],
    ) -> Result<[&Node; N], Error> {
        for who in all {
            self.node(who).await?;
        }
        Ok(all.map(|who| self.kept[who as usize].as_ref().expect("it was just started")))
    }

    /// Takes a node out: the check may end it, and the next check gets another.
    pub(crate) async fn take(&mut self, who: Participant) -> Result<Node, Error> {
        self.node(who).await?;
        Ok(self.kept[who as usize].take().expect("it was just started"))
    }

    /// Adds to what the report says below a check that passed.
    pub(crate) fn remark(&mut self, text: String) {
        self.remarks.push(text);
    }

    /// The remarks of the check that has ended.
    pub(crate) fn take_remarks(&mut self) -> Vec<String> {
        mem::take(&mut self.remarks)
    }

    /// Ends nodes that do not answer.
    pub(crate) async fn clean(&mut self) {
        for kept in &mut self.kept {
            let Some(node) = kept else { continue };
            let answers = timeout(Duration::from_secs(2), node.client.clock()).await;
            if !matches!(answers, Ok(Ok(_))) {
                node.running.kill().await;
                *kept = None;
            }
        }
    }

    async fn start(&self, who: Participant) -> Result<Node, Error> {
        let started = self.starter.start(who).await;
        let running = started.map_err(|why| Error::Start { who, why })?;
        let base = format!("http://{}", running.control_addr());
        let silent = |why: String| Error::Silent { who, why };
        let client = NodeClient::new(&base, running.token());
        let client = client.map_err(|error| silent(error.to_string()))?;
        let deadline = Instant::now() + START_TIMEOUT;
        loop {
            let answer = timeout(START_TIMEOUT, client.info()).await;
            let why = match (answer, running.ended()) {
                (Ok(Ok(info)), _) => {
                    return Ok(Node {
                        running,
                        client,
                        info,
                    });
                }
                (Err(_) | Ok(Err(client::Error::Unreachable(_))), None) => "no answer",
                (_, Some(why)) => return Err(Error::Ended { who, why }),
                (Ok(Err(error)), None) => {
                    let why = error.describe();
                    return Err(Error::Refused { who, why });
                }
            };
            if Instant::now() > deadline {
                let log = running.log_tail().await;
                let log = match log.as_str() {
                    "" => "its log is empty".to_owned(),
                    log => format!("the end of its log: {log}"),
                };
                return Err(silent(format!("{why}; {log}")));
            }
            sleep(Duration::from_millis(20)).await;
        }
    }
}
