//! The contract between the conductor and a benchmark node: HTTP/1.1 and JSON on the node's control port.
//!
//! | call | meaning |
//! |---|---|
//! | `GET /v1/info` | [`Info`] |
//! | `GET /v1/clock` | [`Clock`] |
//! | `PUT /v1/trials/{id}` | prepare [`TrialRequest`]: 201, 200 when it is known with the same request, 409 with another, 423 while another trial runs |
//! | `PUT /v1/trials/{id}/start` | [`Start`]: when a ready client begins; idempotent |
//! | `PUT /v1/trials/{id}/finish` | a server has nothing more to expect: it closes and reports; idempotent |
//! | `GET /v1/trials/{id}?wait=SECONDS&after=STATE` | [`TrialStatus`]; waits up to `wait` until the state is later than `after` |
//! | `DELETE /v1/trials/{id}` | cancel if running, forget if finished |
//! | `PUT /v1/renew` | the program restarts, in its process: 204, 423 while a trial runs, 409 while an outcome was not collected; optional |
//!
//! Links are impaired by a process of its own in the node's network namespace, the link agent, which has a
//! control port of its own and these calls:
//!
//! | call | meaning |
//! |---|---|
//! | `GET /v1/link` | [`LinkStatus`] |
//! | `PUT /v1/link` | impair [`LinkRequest`]: 204, 501 if that is not available here; a repetition with equal values resets the counters, starts the random decisions of its seed, and changes nothing else |
//! | `PUT /v1/link/probe` | measure the link to another agent, [`ProbeRequest`]: 200 with a `Measurement`; 423 while another measurement is in progress |
//!
//! All of these need `Authorization: Bearer TOKEN`, or `X-Perfrun-Token: TOKEN` where something between the
//! two keeps the first header for itself; one of them with the right token suffices. `/healthz`, `/readyz`
//! and `/metrics` need neither. Errors are [`Problem`]s: 400 for a body, a query or a header that the node
//! refuses, 401 without the token, 404 for an unknown path or trial, 405 for another method, 412 for a
//! smaller epoch. A node that is stopping answers 503, and one that has 1024 ended trials 507. A body has at
//! most 4 MiB, and a node accepts at least 256 connections.
//!
//! After `finish`, a server waits for the ends of its streams: perfrun's nodes wait up to 2 s for the next
//! one, and up to 10 s for all of them. A link may lose the end of a stream. So a stream on which nothing
//! else is due does not fail the trial: the server counts it in `failures`, and in `errors` as `Timeout`. A
//! stream on which anything else is due fails the trial as `Timeout`.
//!
//! Conductors that take over from one another have the same token, and may exist at the same time. Each sends
//! its epoch with every call that needs the token: `X-Perfrun-Epoch: NUMBER`, from 0 to 2⁶³ − 1, larger than
//! that of all conductors before it. Without the header the epoch is 0. A node remembers the largest one, and
//! answers 412 to calls with a smaller one, before it looks at anything else but the token.
//!
//! Callers read at most 8 MiB of a [`TrialStatus`], 4 MiB of `/metrics`, 1 MiB of an agent's answer and 16
//! KiB of any other. They refuse a status or an [`Info`] beyond the [`bounds`], and cut the messages of
//! failures after 1000 characters.

pub mod bounds;
mod reason;
mod sample;
pub mod variables;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::{AsRefStr, Display};

pub use self::{
    reason::Reason,
    sample::{EchoSample, Sample},
};
use crate::{
    capabilities::Capabilities,
    distribution::Distribution,
    histogram::Histogram,
    machine::MachineTime,
    matrix::{StackSettings, Transport},
    newer,
    parameters::Parameters,
};
use perfrun_link::{Backend, LinkState, OutgoingLinks, probe};

/// The version of this contract. A change that an older conductor or node would misread raises it, and both
/// refuse another one. Fields that may be absent are added without a new version.
pub const CONTRACT: u32 = 1;

/// The second header that may carry the token, in the lower case that HTTP libraries want: the pod proxy of a
/// Kubernetes API server takes `Authorization` for its own caller's and removes it.
pub const TOKEN_HEADER: &str = "x-perfrun-token";

/// The header with the epoch of the conductor that calls, in the lower case that HTTP libraries want.
pub const EPOCH_HEADER: &str = "x-perfrun-epoch";

/// Trials that a node of perfrun holds until the conductor deletes them.
pub const HELD_TRIALS_MAX: usize = 1024;

/// What a node is and what it runs on.
#[serde_with_macros::skip_serializing_none]
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Info {
    /// Version of the node contract that it speaks.
    #[serde(default = "first_contract")]
    pub contract: u32,
    /// Identifies this start of the program; a restart changes the number.
    pub instance: Option<u64>,
    /// Version of the node program.
    pub version: String,
    /// Stacks it speaks, with their versions, e.g. `libp2p` → `0.57.1`.
    #[serde(deserialize_with = "bounds::reading::stacks")]
    pub stacks: BTreeMap<String, String>,
    /// What it can do with each of these stacks.
    #[serde(
        default,
        deserialize_with = "bounds::reading::stacks",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub capabilities: BTreeMap<String, Capabilities>,
    /// Build profile: `release`, or `debug`, whose numbers mean little.
    pub profile: String,
    /// SHA-256 digest of the program, in hexadecimal. A program that starts many nodes gives it in the
    /// variable `PERFRUN_PROGRAM_SHA256`.
    pub program_sha256: Option<String>,
    /// The commit that it was built from, if its builder named one.
    pub commit: Option<String>,
    /// What its builder calls it.
    pub label: Option<String>,
    /// The compiler with its version.
    pub compiler: Option<String>,
    /// Features of CPUs that the compiler used without asking the CPU, for example `avx2,sse2`.
    pub target_features: Option<String>,
    /// What allocates its memory, for example `jemalloc`.
    pub allocator: Option<String>,
    /// The address that trials listen on and dial from.
    pub listen_ip: std::net::IpAddr,
    /// Names the clock that `GET /v1/clock` shows: nodes with the same name share it. Absent if that is
    /// unknown.
    pub clock: Option<String>,
    /// Host name.
    pub host: String,
    /// Names the running kernel (`/proc/sys/kernel/random/boot_id`): nodes with the same name share a
    /// machine, though their host names may differ.
    pub boot_id: Option<String>,
    /// Kernel release.
    pub kernel: String,
    /// CPU model.
    pub cpu: String,
    /// CPUs that the node may use.
    pub cpus: u32,
    /// CPU frequency governor, where the kernel tells.
    pub governor: Option<String>,
    /// The hypervisor that the machine is a guest of; `unknown` if only the CPU says that there is one.
    pub hypervisor: Option<String>,
    /// Whether CPUs share cores (simultaneous multithreading).
    pub smt: Option<bool>,
    /// For which vulnerabilities of the CPU the kernel has mitigations on and off.
    pub mitigations: Option<String>,
    /// MTU of the interface of `listenIp`, in bytes.
    pub mtu_bytes: Option<u32>,
    /// TCP congestion control of new sockets.
    pub congestion_control: Option<String>,
    /// CPUs that the control group grants, if it limits them.
    pub cpu_limit: Option<f64>,
    /// Memory that the control group grants, if it limits it, in bytes.
    pub memory_limit_bytes: Option<u64>,
    /// Largest receive and send buffers that the kernel lets a UDP socket have, in bytes.
    pub socket_buffer_limits_bytes: Option<[u64; 2]>,
    /// Largest receive and send windows of a TCP connection (`net.ipv4.tcp_rmem`, `tcp_wmem`), in bytes.
    pub tcp_window_limits_bytes: Option<[u64; 2]>,
}

/// The contract version of nodes that name none: those of results from before it had a version.
fn first_contract() -> u32 {
    1
}

impl Info {
    /// Whether two nodes run on one machine: under one kernel, or, if one of them does not name its kernel,
    /// under one host name.
    pub fn shares_machine_with(&self, other: &Self) -> bool {
        match (&self.boot_id, &other.boot_id) {
            (Some(ours), Some(theirs)) => ours == theirs,
            _ => self.host == other.host,
        }
    }

    /// The name by which the node knows the stack of a variant: the stack of that name, or its only one.
    pub fn stack_of_variant(&self, variant: &str) -> Option<&str> {
        if let Some((name, _)) = self.stacks.get_key_value(variant) {
            return Some(name);
        }
        let mut names = self.stacks.keys();
        names
            .next()
            .filter(|_| names.next().is_none())
            .map(String::as_str)
    }
}

/// A reading of the node's monotonic clock.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Clock {
    /// Nanoseconds since an arbitrary moment, comparable only between nodes that share a clock. Never steps.
    pub nanoseconds: u64,
}

/// One node's part in a trial.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TrialRequest {
    /// The stack to speak, by its name in [`Info::stacks`].
    pub stack: String,
    /// Settings of the stack.
    #[serde(default, skip_serializing_if = "StackSettings::is_default")]
    pub settings: StackSettings,
    /// The transport.
    pub transport: Transport,
    /// What to do.
    pub parameters: Parameters,
    /// Listen or dial.
    pub side: Side,
    /// The node ends the trial as failed after this time, in seconds.
    pub timeout_seconds: f64,
    /// What the trial is called in metrics.
    #[serde(default)]
    pub labels: TrialLabels,
}

/// What a trial is called in metrics: words of the plan, which are few.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TrialLabels {
    /// The cell.
    #[serde(default)]
    pub cell: String,
    /// The network that its links are set to be.
    #[serde(default)]
    pub network: String,
}

/// A node's side of a trial.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Side {
    /// Listen until the request to finish.
    Server,
    /// Relay what peers send each other, until the request to finish.
    Relay,
    /// Be reached through a relay, until the request to finish.
    #[serde(rename_all = "camelCase")]
    Source {
        /// The relay's address, as it reported it.
        relay: String,
        /// Peers to run, each with an identity and a reservation of its own. Each reports one address.
        peers: u32,
    },
    /// Dial, wait for the start, run the workload.
    #[serde(rename_all = "camelCase")]
    Client {
        /// Addresses to dial, as the servers reported them. Peer `i` dials entry `i` modulo their number.
        servers: Vec<String>,
        /// Peers to run, each with an identity and a connection of its own.
        peers: u32,
        /// How far each server's clock is ahead of this node's, in nanoseconds, in the order of `servers`.
        /// Empty if that is unknown, or if the workload does not measure the one-way delay.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        clocks: Vec<i64>,
    },
    /// Both server and client, for a transport that joins peers of one process: listen, dial that, wait for
    /// the start, run the workload.
    #[serde(rename_all = "camelCase")]
    Both {
        /// Peers that dial.
        peers: u32,
    },
}

/// When a client begins.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Start {
    /// In the node's own clock (see [`Clock`]).
    pub at_nanoseconds: u64,
}

/// How far a trial is. States are passed in this order.
#[derive(
    AsRefStr, Clone, Copy, Debug, Deserialize, Display, Eq, JsonSchema, Ord, PartialEq, PartialOrd, Serialize,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum TrialState {
    /// A server starts to listen, a client sets up its hosts and, where the workload is not about it,
    /// connections.
    Preparing,
    /// A server accepts connections, a client waits for the start.
    Ready,
    /// A client is running the workload.
    Running,
    /// There is an outcome.
    Finished,
}

/// What is known of a trial.
#[serde_with_macros::skip_serializing_none]
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TrialStatus {
    /// How far it is.
    pub state: TrialState,
    /// Addresses that peers can dial (server).
    #[serde(
        default,
        deserialize_with = "bounds::reading::addresses",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub addresses: Vec<String>,
    /// Payload sent so far, in bytes.
    pub bytes_sent: u64,
    /// Payload received so far, in bytes.
    pub bytes_received: u64,
    /// How it ended.
    pub outcome: Option<Outcome>,
}

/// How a trial ended at one node.
#[serde_with_macros::skip_serializing_none]
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Outcome {
    /// Why it failed. Absent if it completed.
    pub failure: Option<Failure>,
    /// Measurements, until the failure if there was one.
    pub measured: Measured,
    /// What the server half of [`Side::Both`] measured. `measured` has all resources of the process.
    pub served: Option<Measured>,
}

/// Why a trial failed.
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Failure {
    /// For programs and labels.
    pub reason: Reason,
    /// For people.
    pub message: String,
}

/// What one node measured in a trial. Times are of its own monotonic clock.
#[serde_with_macros::skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Measured {
    /// When the workload began, in the node's clock in nanoseconds (client).
    pub started_nanoseconds: Option<u64>,
    /// Payload bytes handed to the stack.
    pub bytes_sent: u64,
    /// Payload bytes taken from the stack.
    pub bytes_received: u64,
    /// Connections established.
    pub connections: u64,
    /// Streams opened or accepted; at a relay, circuits.
    pub streams: u64,
    /// Dials, opens, handshakes, round trips, transfers from a source and lines of an echo that failed in a
    /// trial that continued. At a server also lost ends of streams and refused reservations, at a relay
    /// requests that it refused.
    pub failures: u64,
    /// The failed operations by reason.
    #[serde(
        default,
        deserialize_with = "newer::map",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub errors: BTreeMap<Reason, u64>,
    /// From the start to the end of the workload, in seconds (client).
    pub seconds: f64,
    /// The client-to-server transfer, as this side saw it.
    pub upload: Option<Transfer>,
    /// The server-to-client transfer, as this side saw it.
    pub download: Option<Transfer>,
    /// How often requests were refused, by name of the refusal, e.g. `circuit: CONNECTION_FAILED (203)`. A
    /// relay counts those that it refused, others those that a peer refused.
    #[serde(
        default,
        deserialize_with = "bounds::reading::refused",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub refused: BTreeMap<String, u64>,
    /// Most circuits that were up at the same time (relay).
    #[serde(default, skip_serializing_if = "is_zero")]
    pub most_circuits: u64,
    /// Distributions, in nanoseconds.
    #[serde(
        default,
        deserialize_with = "newer::map",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub histograms: BTreeMap<Distribution, Histogram>,
    /// The part of the workload in which all streams are open, where they are opened one after the other
    /// (client).
    pub plateau: Option<Plateau>,
    /// The smallest buffers of the trial's UDP sockets, where the stack wants a size. Sockets of other stacks
    /// have `net.core.rmem_default` and `wmem_default`.
    pub udp_buffers: Option<UdpBuffers>,
    /// The congestion control of the trial's connections: of TCP, by the name that the kernel has for it; of
    /// QUIC `cubic`, `newReno` or `bbr`.
    pub congestion_control: Option<String>,
    /// What the node used.
    pub resources: Resources,
    /// What happened in each interval.
    #[serde(
        default,
        deserialize_with = "bounds::reading::samples",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub samples: Vec<Sample>,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// Buffers of UDP sockets, as the kernel counts them (`getsockopt` of `SO_RCVBUF` and `SO_SNDBUF`): twice
/// what it grants, because its own records take room.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct UdpBuffers {
    /// The least size of both that the stack wants, in bytes.
    pub wanted_bytes: u64,
    /// The smallest receive buffer, in bytes.
    pub receive_bytes: u64,
    /// The smallest send buffer, in bytes.
    pub send_bytes: u64,
}

impl UdpBuffers {
    /// Whether a socket has a smaller buffer than the stack wants.
    pub fn are_limited(&self) -> bool {
        self.receive_bytes.min(self.send_bytes) < self.wanted_bytes
    }
}

/// The echo while all streams were open.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Plateau {
    /// From the start of the workload until every stream had its first round trip, or had failed, in seconds.
    pub ramp_seconds: f64,
    /// The latest start of a connection or stream after the moment that the ramp has for it, in seconds.
    pub ramp_lateness_seconds: f64,
    /// From then to the end of the workload, in seconds.
    pub seconds: f64,
    /// Round trips completed in it.
    pub round_trips: u64,
}

/// Below this, a rate says more about buffers and round trips than about bandwidth: only times are given.
pub const BYTES_FOR_A_RATE_MIN: u64 = 1 << 20;

/// Bytes that went in one direction, over all streams of a node, and how long that took.
#[serde_with_macros::skip_serializing_none]
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Transfer {
    /// Payload bytes that went this way.
    pub bytes: u64,
    /// From the beginning to the end as `timing` defines them, in seconds; at a receiver, from its first read
    /// to its last.
    pub seconds: f64,
    /// Payload bytes after the first read: what `first_to_last_seconds` moved (receiver).
    pub bytes_after_first: Option<u64>,
    /// From the end of the first read to the end of the last, in seconds (receiver).
    pub first_to_last_seconds: Option<f64>,
}

/// What a node used during a trial.
#[serde_with_macros::skip_serializing_none]
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Resources {
    /// CPU time in user mode, in seconds.
    pub cpu_user_seconds: f64,
    /// CPU time in the kernel, in seconds.
    pub cpu_system_seconds: f64,
    /// Resident memory when the trial began, in bytes.
    pub rss_start_bytes: u64,
    /// Most resident memory during the trial, in bytes.
    pub rss_peak_bytes: u64,
    /// Most memory that the program had allocated in any sample of the trial, in bytes: what it requested,
    /// without what the allocator keeps.
    pub allocated_peak_bytes: Option<u64>,
    /// CPU cycles in user mode, where the kernel lets a program count them.
    pub cpu_cycles: Option<u64>,
    /// Context switches because the process waited.
    pub context_switches_voluntary: u64,
    /// Context switches because it was pre-empted.
    pub context_switches_involuntary: u64,
    /// Time for which the control group held the process back, in seconds, where there is a limit.
    pub throttled_seconds: Option<f64>,
    /// TCP segments sent again in the node's network namespace, where the kernel counts them.
    pub tcp_retransmits: Option<u64>,
    /// Bytes that the interfaces of the node's network namespace received, headers included, loopback
    /// excluded.
    pub interface_received_bytes: Option<u64>,
    /// Bytes that these interfaces sent, headers included, loopback excluded.
    pub interface_sent_bytes: Option<u64>,
    /// What all processes of its machine used, the node included.
    pub machine: Option<MachineTime>,
}

/// What a link agent can do, and what it does.
#[serde_with_macros::skip_serializing_none]
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LinkStatus {
    /// Identifies this start of the agent. The number changes when the agent restarts or its emulator fails.
    /// In the meantime packets may have passed or been stopped, and links have to be set and measured again.
    pub instance: u64,
    /// The interface whose packets are impaired.
    pub interface: String,
    /// What is available here.
    pub capabilities: perfrun_link::Abilities,
    /// UDP port, at the node's address, that answers probes.
    pub probe_port: u16,
    /// What is impaired, and how it went. Absent if packets pass as they are.
    pub state: Option<LinkState>,
}

/// The impairment of the packets that a node sends.
#[serde_with_macros::skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LinkRequest {
    /// Which peers are reached over which link; those that are not named, over an unimpaired one.
    pub link: OutgoingLinks,
    /// The backend that impairs packets.
    pub backend: Backend,
    /// Seed of the random decisions: equal packets have the same fate after equal seeds. Random, if absent.
    /// netem before Linux 6.6 ignores it.
    pub seed: Option<u64>,
}

/// Which link to measure, and how.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ProbeRequest {
    /// Where the other agent answers probes.
    pub server: std::net::SocketAddr,
    /// What is sent, and when.
    pub plan: probe::ProbePlan,
}

/// Why a call was refused.
#[serde_with_macros::skip_serializing_none]
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Problem {
    /// What was wrong and what to do.
    pub message: String,
    /// The trial that keeps the node busy (423).
    pub trial: Option<String>,
}
