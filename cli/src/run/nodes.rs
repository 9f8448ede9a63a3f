//! The nodes of a plan as processes of this machine.

use std::{
    collections::BTreeMap,
    fs::{File, OpenOptions},
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, anyhow, bail, ensure};
use async_trait::async_trait;
use futures::future::{join_all, try_join_all};
use perfrun_api::{
    plan::{Plan, PlannedNode},
    results::NodeProgram,
    spec::PerfRunSpec,
};
use perfrun_conductor::{NodeClient, Nodes, client::Error};
use rustix::fs::Access;
use tokio::{
    sync::Mutex,
    time::{sleep, timeout},
};

use crate::{
    args,
    local::{Isolation, Launcher, Network, NodeCommand, NodeProcess, Slot},
    ui::Ui,
};

/// How long a node may take to end by itself.
const GRACE: Duration = Duration::from_secs(5);

/// Between two questions whether a node that starts is there.
const READY_PAUSE: Duration = Duration::from_millis(20);

/// Running nodes; dropping them ends them.
pub struct LocalNodes<'a> {
    // In the order of their end: processes before the network that they are in.
    processes: Mutex<BTreeMap<String, NodeProcess>>,
    nodes: Vec<Program>,
    /// Of the run: a label of the nodes' metrics.
    run: &'a str,
    logs: PathBuf,
    /// How long a node may take to be ready.
    limit: Duration,
    launcher: Launcher,
    network: Network,
    ui: &'a Ui,
}

/// What it takes to start a node, once or again.
#[derive(Clone, Debug)]
pub struct Program {
    node: PlannedNode,
    path: PathBuf,
    env: BTreeMap<String, String>,
}

/// Programs that were named, as results tell of them. All of them can be executed, as far as one can tell in advance.
pub fn resolve(named: &[args::NodeProgram]) -> anyhow::Result<Vec<NodeProgram>> {
    named
        .iter()
        .map(|program| {
            let path = executable(&program.path)
                .with_context(|| format!("unable to run --node {} as a node", program.path.display()))?;
            let path = path.into_os_string().into_string();
            Ok(NodeProgram {
                variant: program.variant.clone(),
                path: path.map_err(|path| anyhow!("unable to record --node {path:?}: it is not UTF-8"))?,
            })
        })
        .collect()
}

/// The programs of a plan's nodes.
pub fn programs(plan: &Plan, spec: &PerfRunSpec, given: &[NodeProgram]) -> anyhow::Result<Vec<Program>> {
    plan.nodes
        .iter()
        .map(|node| {
            let variant = spec
                .stacks
                .iter()
                .find(|variant| Some(&variant.name) == node.variant.as_ref());
            let name = variant.map(|variant| variant.name.as_str());
            let has_program = given.iter().any(|program| program.variant.as_deref() == name);
            ensure!(
                has_program || variant.is_none_or(|variant| variant.image.is_none()),
                "stack {0} is an image, and a local run takes programs: name one with --node {0}=PATH",
                name.unwrap_or_default()
            );
            Ok(Program {
                node: node.clone(),
                path: program(given, name)?,
                env: variant.map(|variant| variant.env.clone()).unwrap_or_default(),
            })
        })
        .collect()
}

/// The program of a node: for its variant, or for all, or the one beside this program.
fn program(given: &[NodeProgram], variant: Option<&str>) -> anyhow::Result<PathBuf> {
    let named = |name: Option<&str>| given.iter().find(|program| program.variant.as_deref() == name);
    if let Some(program) = named(variant).or_else(|| named(None)) {
        return Ok(program.path.as_str().into());
    }
    let beside = std::env::current_exe()
        .context("failed to find this program")?
        .with_file_name("perfrun-node");
    if !beside.is_file() {
        bail!(
            "there is no {}: build it by `cargo build --release -p perfrun-node`, or name one with --node",
            beside.display()
        );
    }
    Ok(beside)
}

fn executable(path: &Path) -> io::Result<PathBuf> {
    let path = path.canonicalize()?;
    if path.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    rustix::fs::access(&path, Access::EXEC_OK)?;
    Ok(path)
}

impl<'a> LocalNodes<'a> {
    /// Starts the nodes of a run. They are not ready yet.
    pub async fn start(
        nodes: Vec<Program>,
        run: &'a str,
        limit: Duration,
        isolation: Isolation,
        logs: PathBuf,
        ui: &'a Ui,
    ) -> anyhow::Result<Self> {
        let network = Network::create(isolation, nodes.len()).await?;
        for unset in network.unset() {
            tracing::info!("{unset}");
        }
        let this = Self {
            processes: Mutex::default(),
            nodes,
            run,
            logs,
            limit,
            launcher: Launcher::start()?,
            network,
            ui,
        };
        for index in 0..this.nodes.len() {
            let process = this.spawn(index).await?;
            this.keep(process).await;
        }
        Ok(this)
    }

    /// Waits until all nodes answer. The error tells of the first that ended instead, with its last words.
    pub async fn ready(&self) -> anyhow::Result<BTreeMap<String, NodeClient>> {
        let processes = self.processes.lock().await;
        let ready = try_join_all(processes.values().map(|process| self.is_ready(process))).await?;
        Ok(processes.keys().cloned().zip(ready).collect())
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

    async fn is_ready(&self, process: &NodeProcess) -> anyhow::Result<NodeClient> {
        let client = client(process)?;
        let answers = async {
            // Any answer will do: the conductor asks again, and knows what to make of it.
            while let Err(Error::Unreachable(_)) = client.info().await {
                sleep(READY_PAUSE).await;
            }
        };
        let name = process.name();
        tokio::select! {
            exit = process.exited() => bail!("{name} ended before it was ready: {exit}"),
            answered = timeout(self.limit, answers) => answered.with_context(|| {
                let log: String = process.log_tail().iter().map(|line| format!("\n  {line}")).collect();
                format!("{name} was not ready within timeouts.provision, {:?}; the end of its log:{log}", self.limit)
            })?,
        }
        Ok(client)
    }

    async fn keep(&self, process: NodeProcess) {
        let mut processes = self.processes.lock().await;
        processes.insert(process.name().to_owned(), process);
    }

    async fn spawn(&self, index: usize) -> anyhow::Result<NodeProcess> {
        let Program { node, path, env } = &self.nodes[index];
        let slot = self
            .network
            .slot(index)
            .context("there is no place for the node in the network")?;
        let mut command = NodeCommand::new(&node.name, path);
        let listen_ip = slot.addresses().v4.to_string();
        let role = node.role.to_string();
        command.args = [
            "control",
            "--listen-ip",
            &listen_ip,
            "--role",
            &role,
            "--run",
            self.run,
        ]
        .map(Into::into)
        .to_vec();
        command.env = env
            .iter()
            .map(|(name, value)| (name.into(), value.into()))
            .collect();
        command.log = Some(open_log(&self.logs.join(format!("{}.log", node.name)))?);
        Ok(self.launcher.spawn(command, slot).await?)
    }

    async fn start_again(&self, name: &str) -> anyhow::Result<NodeClient> {
        let index = self.nodes.iter().position(|program| program.node.name == name);
        let index = index.with_context(|| format!("the plan has no node {name}"))?;
        let lost = self.processes.lock().await.remove(name);
        if let Some(lost) = lost {
            self.ui.say(&format!("{name} was lost: {}", lost.kill().await));
        }
        let process = self.spawn(index).await?;
        let client = self.is_ready(&process).await?;
        self.keep(process).await;
        Ok(client)
    }
}

fn client(process: &NodeProcess) -> anyhow::Result<NodeClient> {
    let base = format!("http://{}", process.control_addr());
    NodeClient::new(&base, process.token().as_str()).map_err(|error| anyhow!("{error}"))
}

fn open_log(path: &Path) -> anyhow::Result<File> {
    let opened = OpenOptions::new().create(true).append(true).open(path);
    opened.with_context(|| format!("failed to open {}", path.display()))
}

#[async_trait]
impl Nodes for LocalNodes<'_> {
    async fn replace(&self, name: &str) -> Result<NodeClient, String> {
        self.start_again(name).await.map_err(|error| format!("{error:#}"))
    }
}
