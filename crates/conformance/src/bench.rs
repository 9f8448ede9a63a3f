//! The processes that checks talk to: the node under test, and a reference node of perfrun.

use std::{path::PathBuf, time::Duration};

use perfrun_conductor::{NodeClient, client};
use perfrun_contract::node::Info;
use perfrun_local::{Launcher, LocalIsolation, LocalNetwork, NodeCommand, NodeProcess, network, process};
use thiserror::Error;
use tokio::time::{Instant, sleep, timeout};

/// How long a node may take until it answers its first call.
const START: Duration = Duration::from_secs(10);

/// How long a node may take to exit after SIGTERM.
pub(crate) const EXIT: Duration = Duration::from_secs(6);

/// Why the suite cannot run.
#[derive(Debug, Error)]
pub enum Error {
    /// There is no place for a node.
    #[error(transparent)]
    Network(#[from] network::Error),
    /// A program cannot be executed.
    #[error(transparent)]
    Process(#[from] process::Error),
    /// A node does not answer.
    #[error("{name} did not answer GET /v1/info within {START:?}: {why}")]
    Silent {
        /// Which node.
        name: String,
        /// The error of the last call, and the end of its log.
        why: String,
    },
}

/// A program that runs as a node.
#[derive(Clone, Debug)]
pub struct Program {
    /// The executable file.
    pub path: PathBuf,
    /// Arguments before those of the contract.
    pub args: Vec<String>,
}

/// A running node.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) process: NodeProcess,
    pub(crate) client: NodeClient,
    pub(crate) info: Info,
}

/// The nodes of a suite. All are on loopback, with an address each.
pub struct Bench {
    program: Program,
    reference: Program,
    network: LocalNetwork,
    launcher: Launcher,
    /// Kept from check to check, until a check ends it.
    kept: [Option<Node>; 3],
}

/// Which node.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Who {
    /// The node under test.
    Tested,
    /// A second process of the node under test.
    Second,
    /// perfrun's own node.
    Reference,
}

impl Bench {
    /// No process runs yet.
    ///
    /// # Errors
    ///
    /// If there is no place for nodes, or no thread for their launcher.
    pub async fn new(program: Program, reference: Program) -> Result<Self, Error> {
        Ok(Self {
            program,
            reference,
            network: LocalNetwork::create(LocalIsolation::Loopback, 3, None).await?,
            launcher: Launcher::start()?,
            kept: [None, None, None],
        })
    }

    /// Starts the node under test, and returns what it says of itself.
    pub(crate) async fn meet(&mut self) -> Result<Info, Error> {
        Ok(self.node(Who::Tested).await?.info.clone())
    }

    /// The node, which is started if it does not run.
    pub(crate) async fn node(&mut self, who: Who) -> Result<&Node, Error> {
        let index = who as usize;
        if self.kept[index]
            .as_ref()
            .is_none_or(|node| node.process.try_wait().is_some())
        {
            self.kept[index] = Some(self.start(who).await?);
        }
        Ok(self.kept[index].as_ref().expect("it was just started"))
    }

    /// Several nodes at the same time.
    pub(crate) async fn nodes<const N: usize>(&mut self, all: [Who; N]) -> Result<[&Node; N], Error> {
        for who in all {
            self.node(who).await?;
        }
        Ok(all.map(|who| self.kept[who as usize].as_ref().expect("it was just started")))
    }

    /// Takes a node out: the check may end it, and the next check gets another.
    pub(crate) async fn take(&mut self, who: Who) -> Result<Node, Error> {
        self.node(who).await?;
        Ok(self.kept[who as usize].take().expect("it was just started"))
    }

    /// Ends nodes that are busy or do not answer.
    pub(crate) async fn clean(&mut self) -> Result<(), Error> {
        for kept in &mut self.kept {
            let Some(node) = kept else { continue };
            let answers = timeout(Duration::from_secs(2), node.client.clock()).await;
            if !matches!(answers, Ok(Ok(_))) {
                node.process.kill().await;
                *kept = None;
            }
        }
        Ok(())
    }

    async fn start(&self, who: Who) -> Result<Node, Error> {
        let (name, program) = match who {
            Who::Tested => ("the node", &self.program),
            Who::Second => ("the second node", &self.program),
            Who::Reference => ("the reference", &self.reference),
        };
        let slot = &self.network.slots()[who as usize];
        let mut command = NodeCommand::new(name, &program.path);
        let address = slot.addresses().v4.to_string();
        let call = [
            "control",
            "--listen-ip",
            &address,
            "--role",
            "server",
            "--run",
            "conformance",
        ];
        let args = program.args.iter().map(String::as_str).chain(call);
        command.args = args.map(Into::into).collect();
        let process = self.launcher.spawn(command, slot).await?;
        let base = format!("http://{}", process.control_addr());
        let client = NodeClient::new(&base, process.token().as_str());
        let silent = |why: String| Error::Silent {
            name: name.to_owned(),
            why,
        };
        let client = client.map_err(|error| silent(error.to_string()))?;
        let deadline = Instant::now() + START;
        loop {
            let why = match timeout(START, client.info()).await {
                Ok(Ok(info)) => {
                    return Ok(Node {
                        process,
                        client,
                        info,
                    });
                }
                Ok(Err(client::Error::Unreachable(_))) if process.try_wait().is_none() => {
                    "no answer".to_owned()
                }
                Ok(Err(error)) => match process.try_wait() {
                    Some(exit) => return Err(silent(exit.to_string())),
                    None => return Err(silent(error.describe())),
                },
                Err(_) => "no answer".to_owned(),
            };
            if Instant::now() > deadline {
                return Err(silent(format!(
                    "{why}; the end of its log: {}",
                    process.log_tail().join("\n")
                )));
            }
            sleep(Duration::from_millis(20)).await;
        }
    }
}

impl From<Error> for crate::Unmet {
    fn from(error: Error) -> Self {
        Self::Failed(error.to_string())
    }
}
