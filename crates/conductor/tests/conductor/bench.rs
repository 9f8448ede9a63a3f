//! A plan over scripted nodes, and everything that a run of it shows.

use std::{
    collections::{BTreeMap, VecDeque},
    io,
    sync::Mutex,
    time::Duration,
};

use async_trait::async_trait;
use perfrun_conductor::{
    AgentClient, Conductor, Durability, Event, NodeHandle, NodeProvider, RecordSink, ReplaceReason, RunEnd,
    RunOptions, client::Epoch,
};
use perfrun_contract::{
    matrix::{IpFamily, NodeProgramKind, Stack},
    parameters::{Parameters, Ping},
    plan::{Cell, Names, Plan, PlannedNode},
    record::TrialRecord,
    role::Role,
    run::RunTimeouts,
};
use perfrun_test_kit::records::{cell, trial};
use tokio_util::sync::CancellationToken;

use crate::{
    agent::{Fault, World},
    node::{Script, ScriptedNode},
};

/// What is run, and on which nodes.
pub(crate) struct Bench {
    pub plan: Plan,
    pub options: RunOptions,
    pub nodes: BTreeMap<String, ScriptedNode>,
    /// Link agents of nodes, and what they do to one another.
    pub agents: BTreeMap<String, AgentClient>,
    pub world: World,
    spare_agent: Option<Fault>,
    pub cancel: CancellationToken,
    /// The sink fails when it has this number of records.
    pub room_for: usize,
    /// What the sink says of each record.
    pub durability: Durability,
    /// What earlier sessions recorded.
    pub already: Vec<TrialRecord>,
    spares: Mutex<BTreeMap<String, VecDeque<Script>>>,
    replaced: Mutex<Vec<ScriptedNode>>,
    events: Mutex<Vec<String>>,
    on_event: Option<OnEvent>,
}

/// Reacts to what happens.
type OnEvent = Box<dyn Fn(&Event<'_>) + Send + Sync>;

/// The results.
pub(crate) struct Out {
    pub end: RunEnd,
    pub records: Vec<TrialRecord>,
    pub events: Vec<String>,
}

/// One server and one client, and two trials of one cell.
pub(crate) fn bench() -> Bench {
    let mut options = RunOptions::new(RunTimeouts {
        provision: Duration::from_secs(300),
        trial: Duration::from_secs(20),
        run: Duration::from_secs(3600),
    });
    options.run_id = "r".parse().unwrap();
    options.progress_interval = Duration::from_millis(50);
    let bench = Bench {
        plan: plan(&["server-0"], &["client-0"], &[]),
        options,
        nodes: BTreeMap::new(),
        agents: BTreeMap::new(),
        world: World::default(),
        spare_agent: None,
        cancel: CancellationToken::new(),
        room_for: usize::MAX,
        durability: Durability::CrashSafe,
        already: vec![],
        spares: Mutex::default(),
        replaced: Mutex::default(),
        events: Mutex::default(),
        on_event: None,
    };
    bench
        .node("server-0", Script::default())
        .node("client-0", Script::default())
}

impl Bench {
    /// The node of this name does what the script says.
    pub(crate) fn node(mut self, name: &str, script: Script) -> Self {
        self.nodes.insert(name.to_owned(), ScriptedNode::start(script));
        let of = |prefix: &str| -> Vec<&str> {
            self.nodes
                .keys()
                .map(String::as_str)
                .filter(|name| name.starts_with(prefix))
                .collect()
        };
        let parameters = self.plan.cells[0].parameters.clone();
        self.plan = plan(&of("server"), &of("client"), &of("relay"));
        self.plan.cells[0].parameters = parameters;
        for planned in &mut self.plan.nodes {
            let started = self.nodes.get(&planned.name);
            planned.ip_family = started.map_or(IpFamily::IPv4, |node| node.ip.into());
        }
        self
    }

    /// The node of this name has a link agent, at the address that its script says.
    pub(crate) fn agent(mut self, name: &str, fault: Fault) -> Self {
        let ip = self.nodes[name].ip;
        self.agents
            .insert(name.to_owned(), self.world.agent(name, ip, fault));
        self
    }

    /// Nodes in place of others have link agents that do this.
    pub(crate) fn spare_agent(mut self, fault: Fault) -> Self {
        self.spare_agent = Some(fault);
        self
    }

    /// The next node in place of this one does what the script says.
    pub(crate) fn spare(self, name: &str, script: Script) -> Self {
        self.spares
            .lock()
            .unwrap()
            .entry(name.to_owned())
            .or_default()
            .push_back(script);
        self
    }

    pub(crate) fn trial_timeout(mut self, timeout: Duration) -> Self {
        self.options.timeouts.trial = timeout;
        self
    }

    pub(crate) fn on_event(mut self, f: impl Fn(&Event<'_>) + Send + Sync + 'static) -> Self {
        self.on_event = Some(Box::new(f));
        self
    }

    pub(crate) async fn run(&self) -> Out {
        self.run_as(&Epoch::new(0)).await
    }

    /// A run by a conductor of an epoch.
    pub(crate) async fn run_as(&self, epoch: &Epoch) -> Out {
        let nodes = self
            .nodes
            .iter()
            .map(|(name, node)| {
                let handle = NodeHandle {
                    node: node.client(),
                    agent: self.agents.get(name).cloned(),
                };
                (name.clone(), handle.with_epoch(epoch))
            })
            .collect();
        let mut records = Records {
            kept: self.already.clone(),
            room_for: self.already.len().saturating_add(self.room_for),
            durability: self.durability,
        };
        let conductor = Conductor {
            plan: &self.plan,
            options: self.options.clone(),
            sink: &mut records,
            provider: self,
            on_event: &|event: Event<'_>| self.note(event),
            cancel: self.cancel.clone(),
        };
        let end = conductor.run(nodes).await;
        Out {
            end,
            records: records.kept.split_off(self.already.len()),
            events: std::mem::take(&mut *self.events.lock().unwrap()),
        }
    }

    fn note(&self, event: Event<'_>) {
        if let Some(f) = &self.on_event {
            f(&event);
        }
        self.events.lock().unwrap().push(match event {
            Event::RunStarted { trials, ended } => format!("run of {trials}, {ended} ended"),
            Event::TrialStarted { trial, attempt, .. } => format!("{} attempt {attempt}", trial.id),
            Event::LinksChanging { .. } | Event::LinksChecked { .. } | Event::TrialProgress { .. } => return,
            Event::TrialEnded { record } => {
                let failure = record.failure.as_ref().map(|failure| failure.reason.to_string());
                format!("{} {}", record.trial.id, failure.unwrap_or("completed".into()))
            }
            Event::NotNeeded { not_needed } => not_needed.to_string(),
            Event::NodeReplaced { name } => format!("{name} replaced"),
        });
    }
}

#[async_trait]
impl NodeProvider for Bench {
    async fn replace(&self, name: &str, why: ReplaceReason) -> Result<NodeHandle, String> {
        if why == ReplaceReason::Renewed {
            self.events.lock().unwrap().push(format!("{name} renewed"));
        }
        let script = self
            .spares
            .lock()
            .unwrap()
            .get_mut(name)
            .and_then(VecDeque::pop_front);
        let node = ScriptedNode::start(script.ok_or("there is no spare")?);
        let handle = NodeHandle {
            node: node.client(),
            agent: self
                .spare_agent
                .map(|fault| self.world.agent(name, node.ip, fault)),
        };
        self.replaced.lock().unwrap().push(node);
        Ok(handle)
    }

    async fn describe_end(&self, name: &str) -> Option<String> {
        Some(format!("{name} is out of memory"))
    }
}

struct Records {
    kept: Vec<TrialRecord>,
    room_for: usize,
    durability: Durability,
}

#[async_trait]
impl RecordSink for Records {
    async fn record(&mut self, record: &TrialRecord) -> io::Result<Durability> {
        if self.kept.len() == self.room_for {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.kept.push(record.clone());
        Ok(self.durability)
    }

    fn records(&self) -> &[TrialRecord] {
        &self.kept
    }
}

impl Out {
    /// Trials, attempts, and the failing nodes with their reasons.
    pub(crate) fn outline(&self) -> Vec<String> {
        let line = |record: &TrialRecord| {
            let failure = record.failure.as_ref().map_or("completed".to_owned(), |failure| {
                format!(
                    "{} {}",
                    failure.node.as_deref().unwrap_or("nobody"),
                    failure.reason
                )
            });
            format!("{}.a{} {failure}", record.trial.id, record.attempt)
        };
        self.records.iter().map(line).collect()
    }
}

fn plan(servers: &[&str], clients: &[&str], relays: &[&str]) -> Plan {
    let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Names>();
    let nodes = |role, names: &[&str]| -> Vec<PlannedNode> {
        names
            .iter()
            .map(|&name| PlannedNode {
                name: name.to_owned(),
                role,
                variant: None,
                program: NodeProgramKind::Rust,
                ip_family: IpFamily::IPv4,
            })
            .collect()
    };
    let ping = Parameters::Ping(Ping {
        count: 3,
        interval_seconds: 0.0,
    });
    let cell = Cell {
        id: "libp2p.litep2p.tcp.ping-3".into(),
        clients: names(clients),
        servers: names(servers),
        relays: names(relays),
        ..cell(Stack::Libp2p, Stack::Litep2p, ping)
    };
    Plan {
        nodes: [
            nodes(Role::Relay, relays),
            nodes(Role::Server, servers),
            nodes(Role::Client, clients),
        ]
        .concat(),
        cells: vec![cell],
        trials: ["c0.i0", "c0.i1"].map(trial).into(),
        ..Plan::default()
    }
}
