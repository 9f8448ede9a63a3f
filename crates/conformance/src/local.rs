//! Nodes as processes of this machine, on loopback, with an address each.

use std::{fs, net::SocketAddr, path::PathBuf, time::Duration};

use async_trait::async_trait;
use error_reporter::Report;
use perfrun_local::{Launcher, LocalIsolation, LocalNetwork, NodeCommand, NodeProcess, network, process};
use thiserror::Error;

use crate::nodes::{NodeStarter, Participant, RunningNode};

/// Why no process can be started.
#[derive(Debug, Error)]
pub enum Error {
    /// There is no place for a node.
    #[error(transparent)]
    Network(#[from] network::Error),
    /// There is no thread for the launcher.
    #[error(transparent)]
    Process(#[from] process::Error),
}

/// A program that runs as a node.
#[derive(Clone, Debug)]
pub struct Program {
    /// The executable file.
    pub path: PathBuf,
    /// Arguments before those of the contract.
    pub args: Vec<String>,
}

/// Starts programs of this machine.
pub struct Local {
    tested: Program,
    reference: Program,
    network: LocalNetwork,
    launcher: Launcher,
}

impl Local {
    /// No process runs yet.
    ///
    /// # Errors
    ///
    /// If there is no place for nodes, or no thread for their launcher.
    pub async fn new(tested: Program, reference: Program) -> Result<Self, Error> {
        Ok(Self {
            tested,
            reference,
            network: LocalNetwork::create(LocalIsolation::Loopback, 3, None).await?,
            launcher: Launcher::start()?,
        })
    }
}

#[async_trait]
impl NodeStarter for Local {
    async fn start(&self, who: Participant) -> Result<Box<dyn RunningNode>, String> {
        let program = match who {
            Participant::Tested | Participant::Second => &self.tested,
            Participant::Reference => &self.reference,
        };
        let slot = &self.network.slots()[who as usize];
        let mut command = NodeCommand::new(who.to_string(), &program.path);
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
        match self.launcher.spawn(command, slot).await {
            Ok(process) => Ok(Box::new(process)),
            Err(error) => Err(Report::new(error).to_string()),
        }
    }
}

#[async_trait]
impl RunningNode for NodeProcess {
    fn control_addr(&self) -> SocketAddr {
        self.control_addr()
    }

    fn token(&self) -> &str {
        self.token().as_str()
    }

    fn ended(&self) -> Option<String> {
        self.try_wait().map(|exit| exit.to_string())
    }

    async fn log_tail(&self) -> String {
        self.log_tail().join("\n")
    }

    fn open_files(&self) -> Option<usize> {
        let files = fs::read_dir(format!("/proc/{}/fd", self.pid()));
        files.map(Iterator::count).ok()
    }

    async fn kill(&self) {
        self.kill().await;
    }

    async fn stop(&self, grace: Duration) -> bool {
        !self.stop(grace).await.killed
    }
}
