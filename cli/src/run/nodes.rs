//! The nodes of a plan as processes of this machine.

use std::{
    collections::BTreeMap,
    fs::{File, OpenOptions},
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, ensure};
use async_trait::async_trait;
use futures::future::join_all;
use perfrun_api::{
    plan::{Plan, PlannedNode},
    spec::PerfRunSpec,
};
use perfrun_conductor::{NodeClient, Nodes};
use tokio::sync::Mutex;

use super::program;
use crate::{
    args::NodeProgram,
    local::{Isolation, Launcher, Network, NodeCommand, NodeProcess, Slot},
};

/// How long a node may take to end by itself.
const GRACE: Duration = Duration::from_secs(5);

/// Running nodes; dropping them ends them.
pub struct LocalNodes {
    // In the order of their end: processes before the network that they are in.
    processes: Mutex<BTreeMap<String, NodeProcess>>,
    nodes: Vec<Planned>,
    launcher: Launcher,
    network: Network,
}

/// What it takes to start a node, once or again.
struct Planned {
    node: PlannedNode,
    run: String,
    program: PathBuf,
    env: BTreeMap<String, String>,
    log: PathBuf,
}

impl LocalNodes {
    /// Starts the nodes of a plan.
    pub async fn start(
        plan: &Plan,
        spec: &PerfRunSpec,
        run: &str,
        programs: &[NodeProgram],
        isolation: Isolation,
        logs: &Path,
    ) -> anyhow::Result<Self> {
        let planned = |node: &PlannedNode| -> anyhow::Result<Planned> {
            let variant = spec
                .stacks
                .iter()
                .find(|variant| Some(&variant.name) == node.variant.as_ref());
            let name = variant.map(|variant| variant.name.as_str());
            let has_program = programs.iter().any(|program| program.variant.as_deref() == name);
            ensure!(
                has_program || variant.is_none_or(|variant| variant.image.is_none()),
                "stack {0} is an image, and a local run takes programs: name one with --node {0}=PATH",
                name.unwrap_or_default()
            );
            Ok(Planned {
                node: node.clone(),
                run: run.to_owned(),
                program: program(programs, name)?,
                env: variant.map(|variant| variant.env.clone()).unwrap_or_default(),
                log: logs.join(format!("{}.log", node.name)),
            })
        };
        let nodes = plan
            .nodes
            .iter()
            .map(planned)
            .collect::<anyhow::Result<Vec<_>>>()?;
        let network = Network::create(isolation, nodes.len()).await?;
        for unset in network.unset() {
            tracing::info!("{unset}");
        }
        let launcher = Launcher::start()?;
        let this = Self {
            processes: Mutex::default(),
            nodes,
            launcher,
            network,
        };
        for index in 0..this.nodes.len() {
            this.spawn(index).await?;
        }
        Ok(this)
    }

    /// Clients of all nodes.
    pub async fn clients(&self) -> anyhow::Result<BTreeMap<String, NodeClient>> {
        let processes = self.processes.lock().await;
        processes
            .iter()
            .map(|(name, process)| Ok((name.clone(), client(process)?)))
            .collect()
    }

    /// Where node number `index` of the plan is.
    pub fn slot(&self, index: usize) -> Option<&Slot> {
        self.network.slot(index)
    }

    /// The process of a node, for looking at it from outside.
    pub async fn pid(&self, name: &str) -> Option<u32> {
        self.processes.lock().await.get(name).map(NodeProcess::pid)
    }

    /// Ends all nodes, gracefully if they can.
    pub async fn stop(&self) {
        let processes = std::mem::take(&mut *self.processes.lock().await);
        join_all(processes.values().map(|process| process.stop(GRACE))).await;
    }

    async fn spawn(&self, index: usize) -> anyhow::Result<NodeClient> {
        let planned = &self.nodes[index];
        let slot = self
            .network
            .slot(index)
            .context("there is no place for the node in the network")?;
        let mut command = NodeCommand::new(&planned.node.name, &planned.program);
        let listen_ip = slot.addresses().v4.to_string();
        let role = planned.node.role.to_string();
        command.args = [
            "control",
            "--listen-ip",
            &listen_ip,
            "--role",
            &role,
            "--run",
            &planned.run,
        ]
        .map(Into::into)
        .to_vec();
        command.env = planned
            .env
            .iter()
            .map(|(name, value)| (name.into(), value.into()))
            .collect();
        command.log = Some(open_log(&planned.log)?);
        let process = self.launcher.spawn(command, slot).await?;
        let client = client(&process)?;
        self.processes
            .lock()
            .await
            .insert(planned.node.name.clone(), process);
        Ok(client)
    }
}

fn client(process: &NodeProcess) -> anyhow::Result<NodeClient> {
    let base = format!("http://{}", process.control_addr());
    NodeClient::new(&base, process.token().as_str()).map_err(|error| anyhow::anyhow!("{error}"))
}

fn open_log(path: &Path) -> anyhow::Result<File> {
    let opened = OpenOptions::new().create(true).append(true).open(path);
    opened.with_context(|| format!("failed to open {}", path.display()))
}

#[async_trait]
impl Nodes for LocalNodes {
    async fn replace(&self, name: &str) -> Result<NodeClient, String> {
        let index = self.nodes.iter().position(|planned| planned.node.name == name);
        let index = index.ok_or_else(|| format!("the plan has no node {name}"))?;
        let lost = self.processes.lock().await.remove(name);
        if let Some(lost) = lost {
            tracing::warn!("{name}: {}", lost.kill().await);
        }
        self.spawn(index).await.map_err(|error| format!("{error:#}"))
    }
}
