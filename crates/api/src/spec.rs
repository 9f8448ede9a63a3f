//! The `PerfRun` custom resource.
#![expect(
    unreachable_pub,
    reason = "KubeSchema derives from a copy of each type, which no one else reaches"
)]

mod rules;

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Affinity, LocalObjectReference, ResourceRequirements, Toleration, TopologySpreadConstraint,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{CustomResource, KubeSchema, core::Duration};
use perfrun_contract::{
    account::Settings,
    capabilities::Capabilities,
    compare::{Comparison, Verdict},
    matrix::{IpFamily, Stack, StackName, StackSettings, Transport},
    network::NONE,
    newer,
    plan::{Cpus, Order, Renew},
    quantity::Percent,
    run::{Limits, Phase},
    summary::SummaryRow,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub(crate) use self::rules::{no_reserved_key, resource_name};
use crate::{
    compare::{self, Compare, Expect},
    network::Network,
    rule,
    store::{ResultsSettings, Store},
    structural::{structural, terse},
    workload::Workload,
};

/// The longest name of a run: it is the value of a label of its pods.
const NAME_MAX: usize = 63;

/// One benchmark: its stacks, transports and networks, its workload, and the number of iterations.
#[derive(Clone, CustomResource, Debug, Deserialize, KubeSchema, PartialEq, Serialize)]
#[kube(
    group = "perfrun.io",
    version = "v1alpha1",
    kind = "PerfRun",
    plural = "perfruns",
    shortname = "pfr",
    category = "perf",
    namespaced,
    cel,
    doc = "A benchmark of peer-to-peer networking stacks: its nodes, their workload, and the results.",
    status = "PerfRunStatus",
    derive = "PartialEq",
    validation = resource_name(NAME_MAX),
    printcolumn(
        name = "Phase",
        type_ = "string",
        json_path = ".status.phase",
        description = "State of the run. Succeeded says that everything was measured, and nothing about the verdict."
    ),
    printcolumn(
        name = "Verdict",
        type_ = "string",
        json_path = ".status.verdict",
        description = "Whether what the run expects holds: Pass, Fail or Inconclusive. Empty if it expects nothing."
    ),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = ".status.reason",
        description = "Why the run is in its phase; of a run that succeeded, why its verdict is not Pass."
    ),
    printcolumn(
        name = "Trials",
        type_ = "string",
        json_path = ".status.trials.progress",
        description = "Trials that ended, and all that are needed."
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp",
        description = "Time since the run was created."
    ),
    printcolumn(
        name = "Workload",
        type_ = "string",
        json_path = ".status.workload",
        description = "What the run measures.",
        priority = 1
    ),
    printcolumn(
        name = "Duration",
        type_ = "string",
        json_path = ".status.duration",
        description = "How long trials were in progress. Empty until the run has ended.",
        priority = 1
    ),
    printcolumn(
        name = "Ended",
        type_ = "date",
        json_path = ".status.completionTime",
        description = "Time since the run ended.",
        priority = 1
    )
)]
#[x_kube(validation = rules::immutable())]
#[x_kube(validation = rules::known_stacks())]
#[x_kube(validation = rules::known_networks())]
#[x_kube(validation = rules::echo_sets_peers())]
#[x_kube(validation = rules::host_network_unimpaired())]
#[x_kube(validation = compare::of_listed_variants())]
#[x_kube(validation = compare::once_each())]
#[x_kube(validation = compare::candidates_are_added())]
#[x_kube(validation = compare::interleaved())]
#[x_kube(validation = compare::looks_are_of_comparisons())]
#[x_kube(validation = compare::looks_end_after_they_begin())]
#[x_kube(validation = compare::precision_needs_looks())]
#[x_kube(validation = compare::regressions_have_a_baseline())]
#[schemars(transform = structural)]
#[serde(rename_all = "camelCase")]
pub struct PerfRunSpec {
    /// What to measure.
    pub workload: Workload,
    /// Which stacks, transports and networks to measure it on.
    #[serde(default)]
    pub matrix: Matrix,
    /// Named variants of stacks, to compare two stacks, or two versions or settings of one, in a run.
    #[serde(default)]
    #[schemars(length(max = 16))]
    #[x_kube(validation = rule::unique_names())]
    pub stacks: Vec<StackVariant>,
    /// Named conditions of the links between nodes, besides the presets that `matrix.networks` lists.
    #[serde(default)]
    #[schemars(length(max = 32))]
    #[x_kube(validation = rule::unique_names())]
    pub networks: Vec<Network>,
    /// Measured iterations of each cell of the matrix; with `maxIterations` the smallest number of them.
    #[serde(default = "default_iterations")]
    #[x_kube(validation = rule::integer(1, 1000))]
    pub iterations: u32,
    /// The largest number of measured iterations of each cell, for runs that compare. perfrun checks the
    /// comparisons after `iterations`, then each time that their number has doubled, and at the end. It stops
    /// measuring those that an interim check settles. All checks share the 5 % of error, so more of them do
    /// not make a false finding more likely. Default: one check, after `iterations`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = rule::integer(1, 1000))]
    pub max_iterations: Option<u32>,
    /// An interim check settles a comparison, whatever it found, once half of the interval of each of its
    /// ratios is at most this wide, for example `3%`. Default: a comparison is settled once what `expect`
    /// says of it passed or failed or, without `expect`, once it is better, worse or the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = rule::percent())]
    pub target_interval: Option<Percent>,
    /// Iterations of each cell before the measured ones. They are recorded, marked, and excluded from all
    /// statistics.
    #[serde(default = "default_warmup")]
    #[x_kube(validation = rule::integer(0, 100))]
    pub warmup: u32,
    /// Order of the trials. `interleaved` runs one iteration of each cell, in random order, then the next, so
    /// that drift of the machine affects all cells alike. `sequential` completes one cell before the next.
    #[serde(default)]
    pub order: Order,
    /// Seed of the random order of trials, to repeat a run in the same order. Default: a new one for each
    /// run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    // Kubernetes has no unsigned format, and the signed one of this size has half of the numbers.
    #[schemars(with = "Option<i64>")]
    #[x_kube(validation = rule::integer(0, u32::MAX))]
    pub seed: Option<u32>,
    /// Variants to compare, of one stack or of two: which is faster, at what cost, and is the difference
    /// real? Trials of a candidate and of its baseline run right after each other, in random order; the trial
    /// of a control may be between them. At least 10 iterations are needed to say anything, and 20
    /// to 40 to find differences of 5 to 10 %.
    #[serde(default)]
    #[schemars(length(max = 4))]
    pub compare: Vec<Compare>,
    /// What is expected of the results. The verdict of the run is `Pass` if all of it is proved to hold,
    /// `Fail` if some of it does not hold, and `Inconclusive` if the trials do not tell.
    #[serde(default)]
    #[schemars(length(max = 32))]
    pub expect: Vec<Expect>,
    /// When nodes are started again. `never`: only if they are lost. `iteration`: before each iteration of
    /// all cells, so that no comparison depends on one process. Default: `iteration` with `compare`, else
    /// `never`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub renew: Option<Renew>,
    /// Number of nodes, and where they run.
    #[serde(default)]
    pub topology: Topology,
    /// Settings of the pods of each role. No effect on local runs.
    #[serde(default)]
    pub template: Template,
    /// Timeouts.
    #[serde(default)]
    #[schemars(extend("default" = {}))]
    pub timeouts: Timeouts,
    /// What to delete after the run, and when. No effect on local runs, which keep only the results.
    #[serde(default)]
    pub cleanup: Cleanup,
    /// Where complete results are kept. No effect on local runs, which keep them in a folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub results: Option<ResultsSettings>,
    /// Hold the run until this is false again. No effect once the run has started.
    #[serde(default)]
    pub suspend: bool,
    /// Stop the run, and keep what has been measured so far.
    #[serde(default)]
    pub cancel: bool,
}

impl PerfRunSpec {
    /// The largest number of measured iterations of each cell.
    pub fn most_iterations(&self) -> u32 {
        self.max_iterations.unwrap_or(self.iterations)
    }

    /// Where complete results are kept. `None` for ConfigMaps.
    pub fn store(&self) -> Option<&Store> {
        self.results.as_ref()?.store.as_ref()
    }

    /// The numbers of nodes and iterations.
    pub fn settings(&self) -> Settings {
        Settings {
            servers: self.topology.servers,
            clients: self.topology.clients,
            peers_per_client: self.topology.peers_per_client,
            iterations: self.iterations,
            max_iterations: self.max_iterations,
            warmup: self.warmup,
            order: self.order,
        }
    }
}

/// The cross product of client stacks, server stacks, transports, networks and IP families, refined by
/// `include` and `exclude`.
#[derive(Clone, Debug, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Matrix {
    /// Stacks that dial: `libp2p`, `litep2p`, `go-libp2p`, `commonware`, `raw`, or names from `stacks`.
    #[serde(default = "default_stacks")]
    #[schemars(length(max = 16))]
    #[x_kube(validation = rule::not_empty("stack"))]
    pub clients: Vec<StackName>,
    /// Stacks that listen: `libp2p`, `litep2p`, `go-libp2p`, `commonware`, `raw`, or names from `stacks`.
    #[serde(default = "default_stacks")]
    #[schemars(length(max = 16))]
    #[x_kube(validation = rule::not_empty("stack"))]
    pub servers: Vec<StackName>,
    /// Transports: `tcp` (TCP, Noise, yamux), `tcp-tls` (TCP, TLS 1.3, yamux), `quic-v1`, `ws` (WebSocket
    /// over TCP, Noise, yamux), `webrtc-direct` (WebRTC data channels), `webtransport` (HTTP/3 over QUIC,
    /// Noise; go-libp2p only), `memory` (channels within one process, Noise, yamux; each client node is its
    /// own server). Combinations that a pair of stacks does
    /// not support are skipped, with the reason.
    #[serde(default = "default_transports")]
    #[schemars(length(max = 8))]
    #[x_kube(validation = rule::not_empty("transport"))]
    pub transports: Vec<Transport>,
    /// Conditions of the links between servers and clients: names from `networks`, or presets. `none` leaves
    /// links unchanged. `lan`, `wan`, `transatlantic`, `transpacific`, `dsl`, `mobile4g`, `mobile3g`, `leo`
    /// and `satellite` resemble what they are named after. `lat10` and `loss1` are those of the published
    /// benchmark. docs/reference/networks.md lists their figures. Only traffic between the nodes of the run
    /// is impaired.
    #[serde(default = "default_networks")]
    #[schemars(length(max = 32))]
    #[x_kube(validation = rule::not_empty("network"))]
    pub networks: Vec<String>,
    /// IP families of the addresses at which nodes reach each other: `IPv4`, `IPv6` or both. Each has nodes
    /// of its own. On a cluster, pods need an address of each.
    #[serde(default = "default_ip_families")]
    #[schemars(length(max = 2))]
    #[x_kube(validation = rule::not_empty("IP family"))]
    pub ip_families: Vec<IpFamily>,
    /// Combinations to add to the cross product.
    #[serde(default)]
    #[schemars(length(max = 64))]
    pub include: Vec<Combination>,
    /// Combinations to remove: each entry removes every cell that matches all of its fields.
    #[serde(default)]
    #[schemars(length(max = 64))]
    pub exclude: Vec<Selector>,
    /// Also measure plain TCP and plain QUIC, once per kind of transport, network and IP family: the best
    /// that the link and the kernel can do. Substreams have no such baseline.
    #[serde(default = "default_true")]
    pub raw_reference: bool,
}

/// One combination of the matrix.
#[derive(Clone, Debug, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Combination {
    /// The stack that dials.
    pub client: StackName,
    /// The stack that listens.
    pub server: StackName,
    /// The transport.
    pub transport: Transport,
    /// The network. Default: each of `matrix.networks`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub network: Option<String>,
    /// The IP family. Default: each of `matrix.ipFamilies`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ip_family: Option<IpFamily>,
}

/// Selects cells of the matrix. A field that is not set matches all of them.
#[derive(Clone, Debug, Deserialize, KubeSchema, PartialEq, Serialize)]
#[x_kube(validation = rules::selects_something())]
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
    /// The IP family.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ip_family: Option<IpFamily>,
}

/// A named variant of a stack, from another image or with other settings.
#[derive(Clone, Debug, Deserialize, KubeSchema, PartialEq, Serialize)]
#[x_kube(validation = rules::cups_of_commonware())]
#[x_kube(validation = rules::messaging_of_its_stack())]
#[x_kube(validation = rules::tcp_congestion_by_its_name())]
#[x_kube(validation = rules::yamux_window())]
#[x_kube(validation = rules::capabilities_of_external())]
#[serde(rename_all = "camelCase")]
pub struct StackVariant {
    /// The name for `matrix` and the results.
    #[schemars(length(max = 63))]
    #[x_kube(validation = rules::variant_name())]
    pub name: String,
    /// The stack that this is a variant of.
    pub stack: Stack,
    /// Container image with another build of the node, or with another node, for pods of a cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024))]
    pub image: Option<String>,
    /// The node's program and its first arguments, for local runs. `perfrun run --node NAME=PATH` replaces
    /// it. Relative paths start in the folder that `perfrun` runs in.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), inner(length(max = 4096)))]
    pub command: Vec<String>,
    /// Environment variables of the node.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 64))]
    #[x_kube(validation = rules::no_reserved_variable())]
    #[x_kube(validation = rules::variable_names())]
    pub env: BTreeMap<String, String>,
    /// Settings of the stack.
    #[serde(default, skip_serializing_if = "StackSettings::is_default")]
    pub settings: StackSettings,
    /// What the stack can do, for `stack: external`: `perfrun describe` prints it. Cells that need more are
    /// skipped, with the reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capabilities: Option<Capabilities>,
}

/// Number of nodes, and where they run.
#[derive(Clone, Debug, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Topology {
    /// Number of server nodes. Clients are spread evenly over them.
    #[serde(default = "default_nodes")]
    #[x_kube(validation = rule::integer(1, 100))]
    pub servers: u32,
    /// Number of client nodes. They start together.
    #[serde(default = "default_nodes")]
    #[x_kube(validation = rule::integer(1, 100))]
    pub clients: u32,
    /// Number of peers in each client node, each with its own identity and connection. No effect on
    /// `relayStress`, which sets this number itself.
    #[serde(default = "default_nodes")]
    #[x_kube(validation = rule::integer(1, 1000))]
    pub peers_per_client: u32,
    /// The stack of the relay, of workloads with one. By default, the stack that listens. The raw reference
    /// keeps its own proxy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub relay: Option<StackName>,
    /// Where pods run. `SpreadNodes`: servers and clients on different Kubernetes nodes, and a relay on a
    /// third one if possible. `SameNode`: all on one Kubernetes node. `Any`: wherever the scheduler puts
    /// them. No effect on local runs.
    #[serde(default)]
    pub placement: Placement,
    /// Use the network of the Kubernetes node instead of the pod network. No effect on local runs.
    #[serde(default)]
    pub host_network: bool,
    /// The CPUs of nodes. `shared`: each node may use all. `split`: servers, clients and relays have equal
    /// parts of them, and share none. That is another measurement, with less noise: the kernel does not
    /// decide which of them share a CPU. No effect on a cluster, where pods have CPUs of their own if
    /// their template requests whole ones and the kubelet has the CPU manager's policy `static`.
    #[serde(default)]
    pub cpus: Cpus,
    /// Start only when no other run of the operator is active, and let other runs wait: runs that share a CPU
    /// or a link distort each other. No effect on local runs: do not start two at a time.
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
    /// Wherever the scheduler puts them.
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
    /// Relay pods, of workloads with a relay.
    #[serde(default)]
    pub relay: PodSettings,
    /// The container that impairs links, next to the node in each pod of a run with impaired links.
    #[serde(default)]
    pub link: LinkSettings,
}

/// Settings of the container that impairs links. It runs as root with the capability `NET_ADMIN` only, and
/// `MKNOD` unless every network has `backend: kernel`, because a container has no /dev/net/tun.
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LinkSettings {
    /// Compute resources. By default, it requests 100m of CPU and 64 MiB of memory without limits. A CPU
    /// limit delays packets when it is reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(transform = terse)]
    pub resources: Option<ResourceRequirements>,
    /// Add the capability `SYS_NICE`, so that packets leave on time on a busy machine. Results record how
    /// late they were.
    #[serde(default)]
    pub real_time: bool,
}

/// Settings of a pod, as in a Kubernetes pod specification.
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PodSettings {
    /// Compute resources of the node container. By default, it requests 100m of CPU and 64 MiB of memory
    /// without limits: without a request, a busy Kubernetes node would give it almost nothing.
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
    /// Annotations to add to the pod.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 64))]
    #[x_kube(validation = no_reserved_key())]
    pub annotations: BTreeMap<String, String>,
    /// Labels to add to the pod.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 64))]
    #[x_kube(validation = no_reserved_key())]
    pub labels: BTreeMap<String, String>,
    /// Secrets for pulling the image.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = terse)]
    pub image_pull_secrets: Vec<LocalObjectReference>,
    /// Runtime class of the pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtime_class_name: Option<String>,
}

/// Timeouts.
#[derive(Clone, Debug, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Timeouts {
    /// Time until all nodes are ready.
    #[serde(default = "default_provision")]
    #[schemars(length(max = 64), extend("default" = "5m"))]
    #[x_kube(validation = rule::duration("1ms", "24h"))]
    pub provision: Duration,
    /// Time for one trial. The duration of a workload is added to it.
    #[serde(default = "default_trial")]
    #[schemars(length(max = 64), extend("default" = "2m"))]
    #[x_kube(validation = rule::duration("1ms", "24h"))]
    pub trial: Duration,
    /// Time for the whole run, from the start of the first node. Its trials must not be known to take longer.
    #[serde(default = "default_run")]
    #[schemars(length(max = 64), extend("default" = "1h"))]
    #[x_kube(validation = rule::duration("1ms", "168h"))]
    pub run: Duration,
}

/// What to delete after the run, and when.
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Cleanup {
    /// Delete the PerfRun this number of seconds after it succeeded. Default: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = rule::integer(0, i32::MAX as u32))]
    pub ttl_seconds_after_success: Option<u32>,
    /// Delete the PerfRun this number of seconds after it failed. Default: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = rule::integer(0, i32::MAX as u32))]
    pub ttl_seconds_after_failure: Option<u32>,
    /// Keep the pods of a failed run for inspection.
    #[serde(default)]
    pub keep_pods_on_failure: bool,
}

/// State of the run, and its results.
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[schemars(transform = structural)]
#[serde(rename_all = "camelCase")]
pub struct PerfRunStatus {
    /// Generation of the spec that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// State of the run in one word, for people. Programs read `conditions`.
    #[serde(
        default,
        deserialize_with = "newer::optional",
        skip_serializing_if = "Option::is_none"
    )]
    pub phase: Option<Phase>,
    /// Why the run is in this phase, in one word, for people: the reason of the condition that says most. Of
    /// a run that succeeded, whose verdict is not `Pass`, the reason of the verdict.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Name of the workload, e.g. `ping`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workload: Option<String>,
    /// When the operator first saw the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_time: Option<Time>,
    /// When the run ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completion_time: Option<Time>,
    /// How long trials were in progress, for people, e.g. `3m5s`. Absent until the run has ended, and if no
    /// trial was started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration: Option<String>,
    /// Number of trials, by state.
    #[serde(default)]
    pub trials: TrialCounts,
    /// One row for each measured quantity of each cell, up to a limit. `results` holds the complete data.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub summary: Vec<SummaryRow>,
    /// Whether what the run expects holds: `Pass`, `Fail` or `Inconclusive`. Absent if it expects nothing,
    /// and until it has ended.
    #[serde(
        default,
        deserialize_with = "newer::optional",
        skip_serializing_if = "Option::is_none"
    )]
    pub verdict: Option<Verdict>,
    /// What was found in the metrics of compared cells, up to a limit. `results` holds the complete data.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub comparisons: Vec<Comparison>,
    /// Names of the ConfigMaps that hold the complete results, in order; with `spec.results.store`, of the
    /// objects or files in `store`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub results: Vec<String>,
    /// Where `results` are. Absent if they are ConfigMaps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store: Option<Stored>,
    /// What the next version says beside the phase.
    #[cfg(next)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// State of the run, for programs. The types are `Accepted`, `Provisioned`, `Running`, `LinksVerified`,
    /// `Verdict`, `SamplesMerged`, `ContainersInjected` and `Complete`. What each of their reasons means is
    /// in docs/reference/conditions.md of perfrun.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = terse)]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
}

/// Where the complete results of a run are.
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Stored {
    /// The folder: its URL, or its path and the claim.
    pub location: String,
    /// Image of the program that reads it. `perfrun get results` starts a pod of it.
    pub image: String,
    /// Names of the Secrets for pulling the image, in the namespace of the run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pull_secrets: Vec<String>,
}

/// Number of trials of a run, by state.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TrialCounts {
    /// All trials of the plan, including warm-up.
    pub total: u32,
    /// Completed trials.
    pub completed: u32,
    /// Failed trials.
    pub failed: u32,
    /// Cells of the matrix that cannot be measured.
    pub skipped: u32,
    /// Trials that are not needed, because an interim check had already settled their comparison. See
    /// `spec.maxIterations`.
    #[serde(default)]
    pub not_needed: u32,
    /// Ended trials and all trials that are needed, e.g. `12/40`.
    pub progress: String,
}

impl Default for Matrix {
    fn default() -> Self {
        Self {
            clients: default_stacks(),
            servers: default_stacks(),
            transports: default_transports(),
            networks: default_networks(),
            ip_families: default_ip_families(),
            include: vec![],
            exclude: vec![],
            raw_reference: true,
        }
    }
}

impl Default for Topology {
    fn default() -> Self {
        Self {
            relay: None,
            servers: 1,
            clients: 1,
            peers_per_client: 1,
            placement: Placement::default(),
            host_network: false,
            cpus: Cpus::default(),
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

fn default_ip_families() -> Vec<IpFamily> {
    vec![IpFamily::default()]
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
