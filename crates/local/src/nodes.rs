//! The nodes of a plan as processes of this machine, each with a link agent if the plan impairs links.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs::{File, OpenOptions},
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use backon::{ConstantBuilder, Retryable};
use futures::future::{join_all, try_join_all};
use perfrun_conductor::{
    AgentClient, NodeClient, NodeHandle, NodeProvider, ReplaceReason,
    client::{self, BoxError, Requester, direct},
};
use perfrun_contract::{
    metrics::LOCAL,
    node::variables,
    plan::{Cpus, Plan, PlannedNode},
    role::Role,
};
use rustix::thread::CpuSet;
use thiserror::Error;
use tokio::{sync::Mutex, time::timeout};

use crate::{
    Exit, Launcher, LocalIsolation, LocalNetwork, NodeCommand, NodeProcess, Slot, cpus, digest::Digests,
    network, open_files, process,
};

/// How long a node may take to exit after SIGTERM.
const GRACE_TIMEOUT: Duration = Duration::from_secs(5);

/// How long it may take to notice that a process has exited.
const EXIT_NOTICE_TIMEOUT: Duration = Duration::from_millis(500);

/// The pause between two attempts to reach a node that is starting.
const READY_PAUSE: Duration = Duration::from_millis(20);

/// The field of a document that limits how long a node may take to become ready.
pub const PROVISION_LIMIT: &str = "timeouts.provision";

/// Why the nodes of a plan do not run.
#[derive(Debug, Error)]
pub enum Error {
    /// The kernel does not report the path of this program.
    #[error("failed to find the path of this program")]
    FindFolder(#[source] io::Error),
    /// There is no `perfrun-node` beside this program.
    #[error(
        "there is no {}: build it by `cargo build --release -p perfrun-node`, or name one with {option}",
        .file.display()
    )]
    FindNode {
        /// Where it should be.
        file: PathBuf,
        /// The option of the command line that names another.
        option: &'static str,
    },
    /// There is no `perfrun-node-go` beside this program.
    #[error(
        "there is no {}, which go-libp2p needs: build it by `cargo xtask go --release`, which needs Go",
        .0.display()
    )]
    FindGoNode(PathBuf),
    /// Nodes cannot have the CPUs that they need.
    #[error(transparent)]
    Cpus(#[from] cpus::Error),
    /// The network between the nodes could not be created.
    #[error(transparent)]
    LocalNetwork(#[from] network::Error),
    /// The launcher or a process could not be started.
    #[error(transparent)]
    Process(#[from] process::Error),
    /// The log file of a process could not be opened.
    #[error("failed to open {}", .file.display())]
    OpenLog {
        /// The log file.
        file: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// The HTTP client for a control port could not be created.
    #[error("failed to create a client for {name}")]
    MakeClient {
        /// The name of the process.
        name: String,
        /// The error of the HTTP client.
        source: BoxError,
    },
    /// A process exited before it was ready.
    #[error("{name} ended before it was ready: {exit}")]
    EndedEarly {
        /// The name of the process.
        name: String,
        /// How the process exited.
        exit: Exit,
    },
    /// A process does not answer in time.
    #[error("{name} was not ready within {PROVISION_LIMIT}, {limit:?}{log}")]
    NotReady {
        /// The name of the process.
        name: String,
        /// How long the process may take.
        limit: Duration,
        /// The end of the log, in words.
        log: String,
    },
    /// The plan has no node of this name.
    #[error("the plan has no node {0}")]
    UnknownNode(String),
}

/// A change of the processes of a run.
#[derive(Clone, Debug)]
pub enum NodeEvent<'a> {
    /// A node was started, possibly in place of a lost one. It may not be ready yet.
    Started {
        /// The name of the node.
        name: &'a str,
        /// How to reach the node.
        handle: NodeHandle,
    },
    /// A node was lost, and the rest of its processes have been killed.
    Lost {
        /// The name of the node.
        name: &'a str,
        /// How its processes ended, for people.
        reason: String,
    },
}

/// The program of each node of a plan, and that of the link agents.
#[derive(Clone, Debug)]
pub struct Programs {
    nodes: Vec<(PlannedNode, Program)>,
    agents: Option<LinkAgents>,
}

/// A program that can run as a node.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Program {
    /// The executable file.
    pub path: PathBuf,
    /// Arguments before those of the contract.
    pub args: Vec<String>,
    /// Environment variables, set in addition to those of this process.
    pub env: BTreeMap<String, String>,
}

/// How the link agents of a run are started.
#[derive(Clone, Debug)]
struct LinkAgents {
    path: PathBuf,
    /// The TCP windows that the impaired links need, in bytes.
    tcp_window_bytes: u64,
}

impl Program {
    /// The `perfrun-node` in the folder of the running program. The error says that `option` names another.
    pub fn beside_this_one(option: &'static str) -> Result<PathBuf, Error> {
        beside_this_one("perfrun-node")?.map_err(|file| Error::FindNode { file, option })
    }

    /// The `perfrun-node-go` in the folder of the running program.
    pub fn go_beside_this_one() -> Result<PathBuf, Error> {
        beside_this_one("perfrun-node-go")?.map_err(Error::FindGoNode)
    }

    /// The digest of what runs as a node. A program with arguments may start another one.
    async fn digest(&self, known: &Digests) -> Option<String> {
        match self.args.is_empty() {
            true => known.of(&self.path).await,
            false => None,
        }
    }
}

/// The file of this name in the folder of the running program, or the path at which there is none.
fn beside_this_one(name: &str) -> Result<Result<PathBuf, PathBuf>, Error> {
    let program = std::env::current_exe().map_err(Error::FindFolder)?;
    let file = program.with_file_name(name);
    Ok(if file.is_file() { Ok(file) } else { Err(file) })
}

impl Programs {
    /// Finds a program for each node of the plan with `find`. `None` stands for link agents.
    pub fn of<E>(plan: &Plan, find: impl Fn(Option<&PlannedNode>) -> Result<Program, E>) -> Result<Self, E> {
        let nodes = plan
            .nodes
            .iter()
            .map(|node| Ok((node.clone(), find(Some(node))?)))
            .collect::<Result<_, E>>()?;
        let agents = plan
            .tcp_window_bytes()
            .map(|tcp_window_bytes| {
                Ok(LinkAgents {
                    path: find(None)?.path,
                    tcp_window_bytes,
                })
            })
            .transpose()?;
        Ok(Self { nodes, agents })
    }

    /// The SHA-256 digests of programs, in hexadecimal, by the names of their nodes. A script, or a program
    /// with arguments, has none: it may start another one.
    pub async fn digests(&self) -> BTreeMap<&str, String> {
        let known = Digests::default();
        let mut digests = BTreeMap::new();
        for (node, program) in &self.nodes {
            digests.extend(
                program
                    .digest(&known)
                    .await
                    .map(|digest| (node.name.as_str(), digest)),
            );
        }
        digests
    }

    /// Raises this process's limit of open files to what starting them takes, if it is lower.
    ///
    /// # Errors
    ///
    /// If the system does not allow as many.
    pub fn allow_files(&self) -> Result<(), open_files::TooFewFiles> {
        let processes = if self.agents.is_some() { 2 } else { 1 };
        open_files::raise_limit(processes * self.nodes.len())
    }
}

/// How to start the nodes of a run.
#[derive(Debug)]
pub struct NodeSettings {
    /// The name of the run, a label of the nodes' metrics.
    pub run: String,
    /// The programs to start.
    pub programs: Programs,
    /// What separates the nodes from each other.
    pub isolation: LocalIsolation,
    /// Which CPUs the nodes may use.
    pub cpus: Cpus,
    /// How long a node may take to become ready.
    pub provision_timeout: Duration,
    /// The folder for the nodes' logs.
    pub logs: PathBuf,
}

/// The running nodes of a plan. Dropping them kills them.
pub struct LocalNodes<'a> {
    digests: Digests,
    // In the order in which they are dropped: processes before the network that they are in.
    processes: Mutex<BTreeMap<String, Processes>>,
    settings: NodeSettings,
    /// The CPUs of each role that has some of its own.
    cpus: BTreeMap<Role, CpuSet>,
    launcher: Launcher,
    network: LocalNetwork,
    watch: Box<dyn Fn(NodeEvent<'_>) + Send + Sync + 'a>,
}

/// A node and its link agent.
struct Processes {
    node: NodeProcess,
    agent: Option<NodeProcess>,
}

impl Processes {
    fn handle(&self) -> Result<NodeHandle, Error> {
        let agent = self.agent.as_ref().map(connect).transpose()?;
        Ok(NodeHandle {
            node: NodeClient::over(connect(&self.node)?),
            agent: agent.map(AgentClient::over),
        })
    }
}

impl<'a> LocalNodes<'a> {
    /// Starts the nodes of a run. They are not ready yet.
    pub async fn start(
        settings: NodeSettings,
        watch: impl Fn(NodeEvent<'_>) + Send + Sync + 'a,
    ) -> Result<Self, Error> {
        let Programs { nodes, agents } = &settings.programs;
        let window = agents.as_ref().map(|agents| agents.tcp_window_bytes);
        let count = nodes.len();
        let planned: Vec<PlannedNode> = nodes.iter().map(|(node, _)| node.clone()).collect();
        let cpus = cpus::of_roles(settings.cpus, &planned)?;
        let network = LocalNetwork::create(settings.isolation, count, window).await?;
        for setting in network.rejected_settings() {
            tracing::info!("{setting}");
        }
        let this = Self {
            digests: Digests::default(),
            processes: Mutex::default(),
            settings,
            cpus,
            launcher: Launcher::start()?,
            network,
            watch: Box::new(watch),
        };
        for index in 0..count {
            let processes = this.spawn(index).await?;
            this.keep(processes).await?;
        }
        Ok(this)
    }

    /// Waits until all nodes answer. If a node exits instead, the error contains the end of its log.
    ///
    /// The conductor then makes the same call again: nodes that it connects to may have been ready for a long
    /// time, or lost since. Only the parent of a process sees that it exits before it answers.
    pub async fn wait_until_ready(&self) -> Result<BTreeMap<String, NodeHandle>, Error> {
        let processes = self.processes.lock().await;
        let ready = try_join_all(
            processes
                .values()
                .map(|processes| self.handle_when_ready(processes)),
        );
        Ok(processes.keys().cloned().zip(ready.await?).collect())
    }

    /// The place in the network of the plan's node number `index`.
    pub fn slot(&self, index: usize) -> Option<&Slot> {
        self.network.slot(index)
    }

    /// The process id of a node, for observing it from outside.
    pub async fn pid(&self, name: &str) -> Option<u32> {
        let processes = self.processes.lock().await;
        processes.get(name).map(|processes| processes.node.pid())
    }

    /// Stops all nodes: SIGTERM first, SIGKILL for those that do not exit in time.
    pub async fn stop(&self) {
        let processes = std::mem::take(&mut *self.processes.lock().await);
        // Nodes first: what they still send must be impaired.
        join_all(
            processes
                .values()
                .map(|processes| processes.node.stop(GRACE_TIMEOUT)),
        )
        .await;
        let agents = processes
            .values()
            .filter_map(|processes| processes.agent.as_ref());
        join_all(agents.map(|agent| agent.stop(GRACE_TIMEOUT))).await;
    }

    async fn handle_when_ready(&self, processes: &Processes) -> Result<NodeHandle, Error> {
        let handle = processes.handle()?;
        // Any answer will do: the conductor repeats the call and checks what it returns.
        self.until_reachable(&processes.node, || handle.node.info())
            .await?;
        if let (Some(process), Some(agent)) = (&processes.agent, &handle.agent) {
            self.until_reachable(process, || agent.link()).await?;
        }
        Ok(handle)
    }

    /// Repeats a call until the process answers.
    async fn until_reachable<T, C>(&self, process: &NodeProcess, call: impl Fn() -> C) -> Result<(), Error>
    where
        C: Future<Output = Result<T, client::Error>>,
    {
        let pauses = ConstantBuilder::default()
            .with_delay(READY_PAUSE)
            .without_max_times();
        let answer = call
            .retry(pauses)
            .when(|error| matches!(error, client::Error::Unreachable(_)));
        let limit = self.settings.provision_timeout;
        let name = || process.name().to_owned();
        tokio::select! {
            exit = process.exited() => Err(Error::EndedEarly { name: name(), exit }),
            answer = timeout(limit, answer) => answer.map(drop).map_err(|_| Error::NotReady {
                name: name(),
                limit,
                log: process.log_text(),
            }),
        }
    }

    async fn keep(&self, started: Processes) -> Result<(), Error> {
        let name = started.node.name().to_owned();
        let handle = started.handle()?;
        (self.watch)(NodeEvent::Started { name: &name, handle });
        self.processes.lock().await.insert(name, started);
        Ok(())
    }

    /// Starts the link agent of a node, if the plan impairs links, and the node.
    async fn spawn(&self, index: usize) -> Result<Processes, Error> {
        let agent = match &self.settings.programs.agents {
            Some(agents) => Some(self.spawn_agent(agents, index).await?),
            None => None,
        };
        let node = self.spawn_node(index).await?;
        Ok(Processes { node, agent })
    }

    async fn spawn_agent(&self, agents: &LinkAgents, index: usize) -> Result<NodeProcess, Error> {
        let (node, _) = &self.settings.programs.nodes[index];
        let slot = &self.network.slots()[index];
        let mut command = NodeCommand::new(format!("{}-link", node.name), &agents.path);
        let listen_ip = slot.addresses().of(node.ip_family)?.to_string();
        command.args = [
            "link-agent",
            "--listen-ip",
            &listen_ip,
            "--run",
            &self.settings.run,
        ]
        .map(Into::into)
        .to_vec();
        command.env = labels(node).into();
        self.launch(command, slot).await
    }

    async fn spawn_node(&self, index: usize) -> Result<NodeProcess, Error> {
        let (node, program) = &self.settings.programs.nodes[index];
        let Program { path, args, env } = program;
        let digest = program.digest(&self.digests).await;
        let slot = &self.network.slots()[index];
        let mut command = NodeCommand::new(&node.name, path);
        let listen_ip = slot.addresses().of(node.ip_family)?.to_string();
        let role = node.role.to_string();
        let call = [
            "control",
            "--listen-ip",
            &listen_ip,
            "--role",
            &role,
            "--run",
            &self.settings.run,
        ];
        let args = args.iter().map(String::as_str).chain(call);
        command.args = args.map(Into::into).collect();
        command.env = env
            .iter()
            .map(|(name, value)| (name.into(), value.into()))
            .chain(labels(node))
            .chain(digest.map(|digest| (variables::PROGRAM_SHA256.into(), digest.into())))
            .collect();
        command.cpus = self.cpus.get(&node.role).copied();
        self.launch(command, slot).await
    }

    /// Starts a process that logs to a file of its name.
    async fn launch(&self, mut command: NodeCommand, slot: &Slot) -> Result<NodeProcess, Error> {
        let log = self.settings.logs.join(format!("{}.log", command.name));
        command.log = Some(open_log(&log)?);
        Ok(self.launcher.spawn(command, slot).await?)
    }

    async fn restart(&self, name: &str, why: ReplaceReason) -> Result<NodeHandle, Error> {
        let nodes = &self.settings.programs.nodes;
        let index = nodes.iter().position(|(node, _)| node.name == name);
        let index = index.ok_or_else(|| Error::UnknownNode(name.to_owned()))?;
        let lost = self.processes.lock().await.remove(name);
        if let Some(Processes { node, agent }) = lost {
            let mut reason = node.kill().await.to_string();
            if let Some(agent) = agent {
                reason += &format!("; its link agent: {}", agent.kill().await);
            }
            if why == ReplaceReason::Lost {
                (self.watch)(NodeEvent::Lost { name, reason });
            }
        }
        let processes = self.spawn(index).await?;
        let handle = self.handle_when_ready(&processes).await?;
        self.keep(processes).await?;
        Ok(handle)
    }
}

#[async_trait]
impl NodeProvider for LocalNodes<'_> {
    async fn describe_end(&self, name: &str) -> Option<String> {
        let processes = self.processes.lock().await;
        let exited = processes.get(name)?.node.exited();
        Some(timeout(EXIT_NOTICE_TIMEOUT, exited).await.ok()?.status_text())
    }

    async fn replace(&self, name: &str, why: ReplaceReason) -> Result<NodeHandle, String> {
        let restarted = self.restart(name, why).await;
        restarted.map_err(|error| format!("{:#}", anyhow::Error::from(error)))
    }
}

/// What distinguishes a node from others in metrics. Not arguments, which nodes of older versions would
/// refuse.
fn labels(node: &PlannedNode) -> [(OsString, OsString); 2] {
    [
        (variables::RUN_NAMESPACE.into(), LOCAL.into()),
        (variables::RUN_NODE.into(), node.name.clone().into()),
    ]
}

fn connect(process: &NodeProcess) -> Result<Arc<dyn Requester>, Error> {
    let base = format!("http://{}", process.control_addr());
    direct(&base, process.token().as_str()).map_err(|source| Error::MakeClient {
        name: process.name().to_owned(),
        source,
    })
}

fn open_log(file: &Path) -> Result<File, Error> {
    let opened = OpenOptions::new().create(true).append(true).open(file);
    opened.map_err(|source| Error::OpenLog {
        file: file.to_owned(),
        source,
    })
}
