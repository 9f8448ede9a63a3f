//! The nodes of a plan as processes of this machine.

use std::{
    collections::BTreeMap,
    ffi::OsString,
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
use perfrun_conductor::export::LOCAL;
use perfrun_conductor::{AgentClient, Contact, NodeClient, Nodes, client::Error};
use perfrun_local::{Isolation, Launcher, Network, NodeCommand, NodeProcess, Slot};
use rustix::fs::Access;
use tokio::{
    sync::Mutex,
    time::{sleep, timeout},
};

use crate::{args, run::exporter::Exporter, ui::Ui};

/// How long a node may take to end by itself.
const GRACE: Duration = Duration::from_secs(5);

/// Between two questions whether a node that starts is there.
const READY_PAUSE: Duration = Duration::from_millis(20);

/// Running nodes; dropping them ends them.
pub struct LocalNodes<'a> {
    // In the order of their end: processes before the network that they are in.
    processes: Mutex<BTreeMap<String, Processes>>,
    nodes: Vec<Program>,
    links: Option<LinkAgents>,
    /// Of the run: a label of the nodes' metrics.
    run: &'a str,
    logs: PathBuf,
    /// How long a node may take to be ready.
    limit: Duration,
    launcher: Launcher,
    network: Network,
    exporter: &'a Exporter,
    ui: &'a Ui,
}

/// A node, and who impairs its links.
struct Processes {
    node: NodeProcess,
    agent: Option<NodeProcess>,
}

/// All that a run's processes are started from.
#[derive(Clone, Debug)]
pub struct Programs {
    nodes: Vec<Program>,
    links: Option<LinkAgents>,
}

/// What it takes to impair links.
#[derive(Clone, Debug)]
struct LinkAgents {
    /// The program that does it.
    path: PathBuf,
    /// The windows that TCP needs on such links, in bytes.
    tcp_window_bytes: u64,
}

/// What the plan needs to impair links; nothing, if it impairs none.
fn link_agents(
    plan: &Plan,
    isolation: Isolation,
    given: &[NodeProgram],
) -> anyhow::Result<Option<LinkAgents>> {
    let Some(tcp_window_bytes) = plan.tcp_window_bytes() else {
        return Ok(None);
    };
    ensure!(
        isolation == Isolation::Namespaces,
        "matrix.networks impairs links, and on the loopback interface that all nodes share there are none: run it \
         without --loopback, or with networks: [none]"
    );
    Ok(Some(LinkAgents {
        path: program(given, None)?,
        tcp_window_bytes,
    }))
}

/// What it takes to start a node, once or again.
#[derive(Clone, Debug)]
struct Program {
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

/// The programs of a plan.
pub fn programs(
    plan: &Plan,
    spec: &PerfRunSpec,
    isolation: Isolation,
    given: &[NodeProgram],
) -> anyhow::Result<Programs> {
    let nodes = plan
        .nodes
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
        .collect::<anyhow::Result<_>>()?;
    let links = link_agents(plan, isolation, given)?;
    Ok(Programs { nodes, links })
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
        programs: Programs,
        run: &'a str,
        limit: Duration,
        isolation: Isolation,
        logs: PathBuf,
        exporter: &'a Exporter,
        ui: &'a Ui,
    ) -> anyhow::Result<Self> {
        let Programs { nodes, links } = programs;
        let window = links.as_ref().map(|links| links.tcp_window_bytes);
        let network = Network::create(isolation, nodes.len(), window).await?;
        for unset in network.unset() {
            tracing::info!("{unset}");
        }
        let this = Self {
            processes: Mutex::default(),
            nodes,
            links,
            run,
            logs,
            limit,
            launcher: Launcher::start()?,
            network,
            exporter,
            ui,
        };
        for index in 0..this.nodes.len() {
            let processes = this.spawn(index).await?;
            this.keep(processes).await?;
        }
        Ok(this)
    }

    /// Waits until all nodes answer. The error tells of the first that ended instead, with its last words.
    pub async fn ready(&self) -> anyhow::Result<BTreeMap<String, Contact>> {
        let processes = self.processes.lock().await;
        let ready = try_join_all(processes.values().map(|processes| self.are_ready(processes))).await?;
        Ok(processes.keys().cloned().zip(ready).collect())
    }

    /// Where node number `index` of the plan is.
    pub fn slot(&self, index: usize) -> Option<&Slot> {
        self.network.slot(index)
    }

    /// The process of a node, for looking at it from outside.
    pub async fn pid(&self, name: &str) -> Option<u32> {
        let processes = self.processes.lock().await;
        processes.get(name).map(|processes| processes.node.pid())
    }

    /// Ends all nodes, gracefully if they can.
    pub async fn stop(&self) {
        let processes = std::mem::take(&mut *self.processes.lock().await);
        // Nodes first: what they still send is to be impaired.
        join_all(processes.values().map(|processes| processes.node.stop(GRACE))).await;
        let agents = processes
            .values()
            .filter_map(|processes| processes.agent.as_ref());
        join_all(agents.map(|agent| agent.stop(GRACE))).await;
    }

    async fn are_ready(&self, processes: &Processes) -> anyhow::Result<Contact> {
        let Processes { node, agent } = processes;
        // Any answer will do: the conductor asks again, and knows what to make of it.
        let client = client(node)?;
        let answers = async {
            while let Err(Error::Unreachable(_)) = client.info().await {
                sleep(READY_PAUSE).await;
            }
        };
        self.is_ready(node, answers).await?;
        let Some(process) = agent else {
            return Ok(client.into());
        };
        let agent = agent_client(process)?;
        let answers = async {
            while let Err(Error::Unreachable(_)) = agent.link().await {
                sleep(READY_PAUSE).await;
            }
        };
        self.is_ready(process, answers).await?;
        Ok(Contact {
            node: client,
            agent: Some(agent),
        })
    }

    /// Waits until a process answers.
    async fn is_ready(
        &self,
        process: &NodeProcess,
        answers: impl Future<Output = ()> + Send,
    ) -> anyhow::Result<()> {
        let name = process.name();
        tokio::select! {
            exit = process.exited() => bail!("{name} ended before it was ready: {exit}"),
            answered = timeout(self.limit, answers) => answered.with_context(|| {
                let log: String = process.log_tail().iter().map(|line| format!("\n  {line}")).collect();
                format!("{name} was not ready within timeouts.provision, {:?}; the end of its log:{log}", self.limit)
            }),
        }
    }

    async fn keep(&self, started: Processes) -> anyhow::Result<()> {
        let name = started.node.name().to_owned();
        let contact = Contact {
            node: client(&started.node)?,
            agent: started.agent.as_ref().map(agent_client).transpose()?,
        };
        self.exporter.watch(&name, contact);
        self.processes.lock().await.insert(name, started);
        Ok(())
    }

    /// Starts who impairs the node's links, if there is to be one, and the node.
    async fn spawn(&self, index: usize) -> anyhow::Result<Processes> {
        let agent = self.spawn_agent(index).await?;
        let node = self.spawn_node(index).await?;
        Ok(Processes { node, agent })
    }

    async fn spawn_agent(&self, index: usize) -> anyhow::Result<Option<NodeProcess>> {
        let Some(links) = &self.links else {
            return Ok(None);
        };
        let slot = self.slot_of(index)?;
        let name = format!("{}-link", self.nodes[index].node.name);
        let mut command = NodeCommand::new(&name, &links.path);
        let listen_ip = slot.addresses().v4.to_string();
        command.args = ["link-agent", "--listen-ip", &listen_ip, "--run", self.run]
            .map(Into::into)
            .to_vec();
        command.env = self.labels(index).into();
        command.log = Some(open_log(&self.logs.join(format!("{name}.log")))?);
        Ok(Some(self.launcher.spawn(command, slot).await?))
    }

    /// What tells a node from others in metrics. Not an argument, which nodes of older versions would refuse.
    fn labels(&self, index: usize) -> [(OsString, OsString); 2] {
        let name = &self.nodes[index].node.name;
        [
            ("PERFRUN_RUN_NAMESPACE".into(), LOCAL.into()),
            ("PERFRUN_RUN_NODE".into(), name.into()),
        ]
    }

    fn slot_of(&self, index: usize) -> anyhow::Result<&Slot> {
        let slot = self.network.slot(index);
        slot.context("there is no place for the node in the network")
    }

    async fn spawn_node(&self, index: usize) -> anyhow::Result<NodeProcess> {
        let Program { node, path, env } = &self.nodes[index];
        let slot = self.slot_of(index)?;
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
            .chain(self.labels(index))
            .collect();
        command.log = Some(open_log(&self.logs.join(format!("{}.log", node.name)))?);
        Ok(self.launcher.spawn(command, slot).await?)
    }

    async fn start_again(&self, name: &str) -> anyhow::Result<Contact> {
        let index = self.nodes.iter().position(|program| program.node.name == name);
        let index = index.with_context(|| format!("the plan has no node {name}"))?;
        let lost = self.processes.lock().await.remove(name);
        if let Some(Processes { node, agent }) = lost {
            let mut how = node.kill().await.to_string();
            if let Some(agent) = agent {
                how += &format!("; its link agent: {}", agent.kill().await);
            }
            self.ui.say(&format!("{name} was lost: {how}"));
        }
        let processes = self.spawn(index).await?;
        let contact = self.are_ready(&processes).await?;
        self.keep(processes).await?;
        Ok(contact)
    }
}

fn agent_client(process: &NodeProcess) -> anyhow::Result<AgentClient> {
    let base = format!("http://{}", process.control_addr());
    AgentClient::new(&base, process.token().as_str()).map_err(|error| anyhow!("{error}"))
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
    async fn replace(&self, name: &str) -> Result<Contact, String> {
        self.start_again(name).await.map_err(|error| format!("{error:#}"))
    }
}
