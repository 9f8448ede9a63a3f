//! The `PerfRun` custom resource.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Affinity, LocalObjectReference, ResourceRequirements, Toleration, TopologySpreadConstraint,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{CustomResource, KubeSchema, core::Duration};
use perfrun_contract::{
    account::Settings,
    matrix::{Stack, StackName, Transport},
    network::NONE,
    plan::Order,
    run::{Limits, Phase},
    summary::SummaryRow,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    network::{self, Network},
    rule,
    structural::{structural, terse},
    workload::Workload,
};

/// One benchmark: which stacks, over which transports, under which workload, how often.
#[derive(Clone, CustomResource, Debug, Deserialize, KubeSchema, PartialEq, Serialize)]
#[kube(
    group = "perfrun.io",
    version = "v1alpha1",
    kind = "PerfRun",
    plural = "perfruns",
    shortname = "pr",
    category = "all",
    namespaced,
    cel,
    doc = "A benchmark of peer-to-peer networking stacks: the nodes it needs, what they do, and what came out.",
    status = "PerfRunStatus",
    derive = "PartialEq",
    validation = Rule::new("self.metadata.name.matches('^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$')").message("metadata.name must be 1 to 63 lower-case letters, digits and '-', and begin and end with a letter or digit"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Trials", type_ = "string", json_path = ".status.trials.progress"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[x_kube(validation = Rule::new("self.workload == oldSelf.workload && self.matrix == oldSelf.matrix && self.stacks == oldSelf.stacks && self.networks == oldSelf.networks && self.iterations == oldSelf.iterations && self.warmup == oldSelf.warmup && self.order == oldSelf.order && self.topology == oldSelf.topology && self.template == oldSelf.template && self.timeouts == oldSelf.timeouts").message("cannot change except suspend, cancel and cleanup: create a new PerfRun"))]
#[x_kube(validation = Rule::new("(self.matrix.clients + self.matrix.servers + self.matrix.include.map(c, c.client) + self.matrix.include.map(c, c.server) + self.matrix.exclude.filter(c, has(c.client)).map(c, c.client) + self.matrix.exclude.filter(c, has(c.server)).map(c, c.server)).all(n, n in ['libp2p', 'litep2p', 'raw'] || self.stacks.exists(s, s.name == n))").message("must name only stacks that are built in (libp2p, litep2p, raw) or listed in spec.stacks").field_path(".matrix"))]
#[x_kube(validation = network::known())]
#[x_kube(validation = Rule::new("!has(self.workload.echo) || self.topology.peersPerClient == 1").message("must be 1 with workload.echo: its connections are peers of their own, loads says how many").field_path(".topology.peersPerClient"))]
#[x_kube(validation = Rule::new("!self.topology.hostNetwork || (self.matrix.networks.all(n, n == 'none') && self.matrix.include.all(c, !has(c.network) || c.network == 'none'))").message("must be false when matrix.networks impairs links: the Kubernetes node itself would be impaired").field_path(".topology.hostNetwork"))]
#[schemars(transform = structural)]
#[serde(rename_all = "camelCase")]
pub struct PerfRunSpec {
    /// What to measure.
    pub workload: Workload,
    /// Which stacks, transports and networks to measure it on.
    #[serde(default)]
    pub matrix: Matrix,
    /// Named variants of stacks, to compare two versions or settings of one stack in a run.
    #[serde(default)]
    #[schemars(length(max = 16))]
    #[x_kube(validation = Rule::new("self.all(s, self.exists_one(t, t.name == s.name))").message("must each have a name of their own"))]
    pub stacks: Vec<StackVariant>,
    /// Named conditions of the links between nodes, beside the presets that `matrix.networks` lists.
    #[serde(default)]
    #[schemars(length(max = 32))]
    #[x_kube(validation = Rule::new("self.all(n, self.exists_one(m, m.name == n.name))").message("must each have a name of their own"))]
    pub networks: Vec<Network>,
    /// Measured repetitions of every cell of the matrix.
    #[serde(default = "default_iterations")]
    #[x_kube(validation = rule::integer(1, 1000))]
    pub iterations: u32,
    /// Repetitions of every cell before the measured ones. They are recorded, marked, and left out of all statistics.
    #[serde(default = "default_warmup")]
    #[x_kube(validation = rule::integer(0, 100))]
    pub warmup: u32,
    /// Running order: `interleaved` runs one iteration of every cell, then the next, so that drift of the machine hits
    /// all cells alike; `sequential` finishes one cell before the next.
    #[serde(default)]
    pub order: Order,
    /// How many nodes there are and where they run.
    #[serde(default)]
    pub topology: Topology,
    /// What the pods of each role are given. No effect on local runs.
    #[serde(default)]
    pub template: Template,
    /// How long things may take.
    #[serde(default)]
    #[schemars(extend("default" = {}))]
    pub timeouts: Timeouts,
    /// What is removed after the run, and when. No effect on local runs, which remove everything but the results.
    #[serde(default)]
    pub cleanup: Cleanup,
    /// Hold the run before it starts.
    #[serde(default)]
    pub suspend: bool,
    /// Stop the run; what was measured until then is kept.
    #[serde(default)]
    pub cancel: bool,
}

impl PerfRunSpec {
    /// The numbers of nodes and repetitions.
    pub fn settings(&self) -> Settings {
        Settings {
            servers: self.topology.servers,
            clients: self.topology.clients,
            peers_per_client: self.topology.peers_per_client,
            iterations: self.iterations,
            warmup: self.warmup,
            order: self.order,
        }
    }
}

/// The cross product of client stacks, server stacks, transports and networks, refined by `include` and `exclude`.
#[derive(Clone, Debug, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Matrix {
    /// Stacks that dial: `libp2p`, `litep2p`, `raw`, or names from `stacks`.
    #[serde(default = "default_stacks")]
    #[schemars(length(max = 16))]
    #[x_kube(validation = rule::not_empty("stack"))]
    pub clients: Vec<StackName>,
    /// Stacks that listen: `libp2p`, `litep2p`, `raw`, or names from `stacks`.
    #[serde(default = "default_stacks")]
    #[schemars(length(max = 16))]
    #[x_kube(validation = rule::not_empty("stack"))]
    pub servers: Vec<StackName>,
    /// Transports: `tcp` (TCP, Noise, yamux), `tcp-tls` (TCP, TLS 1.3, yamux), `quic-v1`, `ws`
    /// (WebSocket over TCP, Noise, yamux), `webrtc-direct` (WebRTC data channels), `memory` (channels within one process,
    /// Noise, yamux: each client node is its own server). What a pair of stacks cannot do is skipped, with the reason.
    #[serde(default = "default_transports")]
    #[schemars(length(max = 8))]
    #[x_kube(validation = rule::not_empty("transport"))]
    pub transports: Vec<Transport>,
    /// Conditions of the links between servers and clients: names from `networks`, or presets. `none` leaves links as they
    /// are; `lan`, `wan`, `transatlantic`, `transpacific`, `dsl`, `mobile4g`, `mobile3g`, `leo` and `satellite` are like
    /// what they are named after; `lat10` and `loss1` are the published benchmark's. docs/reference/networks.md has their
    /// figures. Only traffic between the run's nodes is impaired.
    #[serde(default = "default_networks")]
    #[schemars(length(max = 32))]
    #[x_kube(validation = rule::not_empty("network"))]
    pub networks: Vec<String>,
    /// Combinations to add to the cross product.
    #[serde(default)]
    #[schemars(length(max = 64))]
    pub include: Vec<Combination>,
    /// Combinations to leave out: each entry removes every cell that matches all of its fields.
    #[serde(default)]
    #[schemars(length(max = 64))]
    pub exclude: Vec<Selector>,
    /// Also do the same over plain TCP and plain QUIC, once per kind of transport and network: what the link and the
    /// kernel give at best. Substreams have no such baseline.
    #[serde(default = "default_true")]
    pub raw_baseline: bool,
}

/// One combination of the matrix, complete.
#[derive(Clone, Debug, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Combination {
    /// The stack that dials.
    pub client: StackName,
    /// The stack that listens.
    pub server: StackName,
    /// The transport.
    pub transport: Transport,
    /// The network; if not set, each of `matrix.networks`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub network: Option<String>,
}

/// Selects cells of the matrix; a field that is not set matches all.
#[derive(Clone, Debug, Deserialize, KubeSchema, PartialEq, Serialize)]
#[x_kube(validation = Rule::new("has(self.client) || has(self.server) || has(self.transport) || has(self.network)").message("must name a client, a server, a transport or a network"))]
#[serde(rename_all = "camelCase")]
pub struct Selector {
    /// The stack that dials.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<StackName>,
    /// The stack that listens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<StackName>,
    /// The transport.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transport: Option<Transport>,
    /// The network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub network: Option<String>,
}

/// A stack under a name of its own, from another image or with other settings.
#[derive(Clone, Debug, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StackVariant {
    /// The name that `matrix` and the results use.
    #[schemars(length(max = 63))]
    #[x_kube(validation = Rule::new("self.matches('^[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?$') && !(self in ['libp2p', 'litep2p', 'raw'])").message("must be 1 to 40 lower-case letters, digits and '-', begin and end with a letter or digit, and not be built in (libp2p, litep2p, raw)"))]
    pub name: String,
    /// The stack that it is a variant of.
    pub stack: Stack,
    /// Container image with another build of the node. A local run takes the program given by `--node NAME=PATH`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024))]
    pub image: Option<String>,
    /// Environment variables of the node.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 64))]
    pub env: BTreeMap<String, String>,
}

/// How many nodes there are and where they run.
#[derive(Clone, Debug, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Topology {
    /// Server nodes. Clients are spread evenly over them.
    #[serde(default = "default_nodes")]
    #[x_kube(validation = rule::integer(1, 100))]
    pub servers: u32,
    /// Client nodes. They start together.
    #[serde(default = "default_nodes")]
    #[x_kube(validation = rule::integer(1, 100))]
    pub clients: u32,
    /// Peers in each client node. Each has an identity and a connection of its own. Not for `relayStress`, which says itself
    /// how many there are.
    #[serde(default = "default_nodes")]
    #[x_kube(validation = rule::integer(1, 1000))]
    pub peers_per_client: u32,
    /// Where pods run: `SpreadNodes`, servers and clients on different Kubernetes nodes, and a relay on a third one if it
    /// can; `SameNode`, all on one; `Any`, wherever the scheduler likes. No effect on local runs.
    #[serde(default)]
    pub placement: Placement,
    /// Use the network of the Kubernetes node instead of the pod network. No effect on local runs.
    #[serde(default)]
    pub host_network: bool,
    /// Wait until no other run of the operator is active, and keep others waiting meanwhile: runs that share a CPU or a
    /// link measure each other. No effect on local runs, which are never concurrent.
    #[serde(default = "default_true")]
    pub exclusive: bool,
}

/// Where pods run.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum Placement {
    /// Servers and clients on different Kubernetes nodes.
    #[default]
    SpreadNodes,
    /// All on one Kubernetes node.
    SameNode,
    /// Wherever the scheduler likes.
    Any,
}

/// Settings of pods, for each role.
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Template {
    /// Server pods.
    #[serde(default)]
    pub server: PodSettings,
    /// Client pods.
    #[serde(default)]
    pub client: PodSettings,
    /// Relay pods, of workloads that have any.
    #[serde(default)]
    pub relay: PodSettings,
    /// The container that impairs links, beside the node in pods of a run that asks for it.
    #[serde(default)]
    pub link: LinkSettings,
}

/// Settings of the container that impairs links. It runs as root without any capability but `NET_ADMIN`, and `MKNOD`
/// unless every network has `backend: kernel`: a container has no /dev/net/tun.
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LinkSettings {
    /// Compute resources. Left out, it requests 100m of CPU and 64 MiB of memory and has no limits. A CPU limit delays
    /// packets when it is reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(transform = terse)]
    pub resources: Option<ResourceRequirements>,
    /// Adds the capability `SYS_NICE`, so that packets leave on time where the machine is busy. Results say how late they
    /// were.
    #[serde(default)]
    pub real_time: bool,
}

/// Settings of a pod, as in a Kubernetes pod specification.
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PodSettings {
    /// Compute resources of the node container. Left out, it requests 100m of CPU and 64 MiB of memory and has no limits:
    /// without a request it would get next to nothing on a busy Kubernetes node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(transform = terse)]
    pub resources: Option<ResourceRequirements>,
    /// Labels that a Kubernetes node must have.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,
    /// Scheduling constraints.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(transform = terse)]
    pub affinity: Option<Affinity>,
    /// Taints that the pod tolerates.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = terse)]
    pub tolerations: Vec<Toleration>,
    /// How the pods spread over topology domains.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = terse)]
    pub topology_spread_constraints: Vec<TopologySpreadConstraint>,
    /// Priority class of the pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority_class_name: Option<String>,
    /// Annotations to add to the pod, but those that begin with `perfrun.io/`, which are the operator's.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 64))]
    #[x_kube(validation = rule::not_reserved())]
    pub annotations: BTreeMap<String, String>,
    /// Labels to add to the pod, but those that begin with `perfrun.io/`, which are the operator's.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 64))]
    #[x_kube(validation = rule::not_reserved())]
    pub labels: BTreeMap<String, String>,
    /// Secrets to pull the image with.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = terse)]
    pub image_pull_secrets: Vec<LocalObjectReference>,
    /// Runtime class of the pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtime_class_name: Option<String>,
}

/// How long things may take.
#[derive(Clone, Debug, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Timeouts {
    /// Until all nodes are ready.
    #[serde(default = "default_provision")]
    #[schemars(length(max = 64), extend("default" = "5m"))]
    #[x_kube(validation = rule::duration("1ms", "24h"))]
    pub provision: Duration,
    /// One trial. A workload with a duration has that much more.
    #[serde(default = "default_trial")]
    #[schemars(length(max = 64), extend("default" = "2m"))]
    #[x_kube(validation = rule::duration("1ms", "24h"))]
    pub trial: Duration,
    /// The whole run, from the first node's start.
    #[serde(default = "default_run")]
    #[schemars(length(max = 64), extend("default" = "1h"))]
    #[x_kube(validation = rule::duration("1ms", "168h"))]
    pub run: Duration,
}

/// What is removed after the run, and when.
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Cleanup {
    /// Delete the PerfRun so many seconds after it succeeded; never, if not set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = rule::integer(0, i32::MAX as u32))]
    pub ttl_seconds_after_success: Option<u32>,
    /// Delete the PerfRun so many seconds after it failed; never, if not set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = rule::integer(0, i32::MAX as u32))]
    pub ttl_seconds_after_failure: Option<u32>,
    /// Keep the pods of a failed run, to look into them.
    #[serde(default)]
    pub keep_pods_on_failure: bool,
}

/// What became of the run.
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[schemars(transform = structural)]
#[serde(rename_all = "camelCase")]
pub struct PerfRunStatus {
    /// The generation of the spec that this status tells of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Where the run stands, in a word, for people. Programs read `conditions`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,
    /// When the run was first seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_time: Option<Time>,
    /// When the run ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completion_time: Option<Time>,
    /// Trials so far.
    #[serde(default)]
    pub trials: TrialCounts,
    /// One row for every measured quantity of every cell; bounded. The complete data are in `results`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub summary: Vec<SummaryRow>,
    /// Names of the ConfigMaps that hold the complete results, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub results: Vec<String>,
    /// State of the run, for programs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = terse)]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
}

/// Trials of a run by what became of them.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TrialCounts {
    /// All trials of the plan, warm-up included.
    pub total: u32,
    /// Measured.
    pub completed: u32,
    /// Ended by an error.
    pub failed: u32,
    /// Cells of the matrix that cannot be measured.
    pub skipped: u32,
    /// Ended trials of all, e.g. `12/40`.
    pub progress: String,
}

impl Default for Matrix {
    fn default() -> Self {
        Self {
            clients: default_stacks(),
            servers: default_stacks(),
            transports: default_transports(),
            networks: default_networks(),
            include: vec![],
            exclude: vec![],
            raw_baseline: true,
        }
    }
}

impl Default for Topology {
    fn default() -> Self {
        Self {
            servers: 1,
            clients: 1,
            peers_per_client: 1,
            placement: Placement::default(),
            host_network: false,
            exclusive: true,
        }
    }
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            provision: default_provision(),
            trial: default_trial(),
            run: default_run(),
        }
    }
}

impl Timeouts {
    /// The timeouts as plain durations.
    pub fn limits(&self) -> Limits {
        Limits {
            provision: self.provision.into(),
            trial: self.trial.into(),
            run: self.run.into(),
        }
    }
}

fn default_stacks() -> Vec<StackName> {
    ["libp2p", "litep2p"]
        .map(|name| StackName(name.to_owned()))
        .to_vec()
}

fn default_transports() -> Vec<Transport> {
    vec![Transport::Tcp]
}

fn default_networks() -> Vec<String> {
    vec![NONE.to_owned()]
}

fn default_iterations() -> u32 {
    10
}

fn default_warmup() -> u32 {
    1
}

fn default_nodes() -> u32 {
    1
}

fn default_true() -> bool {
    true
}

fn default_provision() -> Duration {
    std::time::Duration::from_secs(5 * 60).into()
}

fn default_trial() -> Duration {
    std::time::Duration::from_secs(2 * 60).into()
}

fn default_run() -> Duration {
    std::time::Duration::from_secs(60 * 60).into()
}
