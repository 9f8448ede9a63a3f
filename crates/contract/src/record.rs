//! What one attempt at a trial leaves behind.

use std::{collections::BTreeMap, fmt};

use perfrun_link::{
    ActiveBackend, Mode,
    probe::{Judgement, Measurement, QuantityFinding, Rate},
    state::{Traffic, Worker},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::{AsRefStr, Display, EnumMessage};

use crate::{
    machine::{BUSY_FOREIGN, BUSY_STEAL},
    metric::Metric,
    newer::{self, NewerName},
    node::{Measured, Reason},
    plan::Trial,
    role::Role,
};

/// What is stored about one attempt at a trial.
#[serde_with_macros::skip_serializing_none]
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TrialRecord {
    /// Which trial of the plan.
    pub trial: Trial,
    /// 0 for the first attempt, 1 for the second: after a node was lost, or after one of a pair of trials
    /// that are compared was disturbed or measured in another session.
    pub attempt: u32,
    /// Why it failed. Absent if it completed.
    pub failure: Option<TrialFailure>,
    /// The metrics, from what both ends measured. Empty if it failed.
    #[serde(
        default,
        deserialize_with = "newer::map",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub metrics: BTreeMap<Metric, f64>,
    /// What limits the trust in it.
    #[serde(
        default,
        deserialize_with = "newer::list",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub flags: Vec<Flag>,
    /// When the trial was begun, in seconds since the start of the run.
    pub at_seconds: f64,
    /// Latest start of a client less the earliest, in seconds, by the conductor's clock.
    pub start_skew_seconds: Option<f64>,
    /// Uncertainty of the clock offsets behind the skew: half of the longest round trip used, in seconds.
    pub clock_uncertainty_seconds: Option<f64>,
    /// The latest start of a client after the requested moment, in seconds.
    pub start_lateness_seconds: Option<f64>,
    /// Time spent on everything but the workload itself: preparing, barrier, collecting, in seconds.
    pub overhead_seconds: f64,
    /// The session of the run that measured it, from 0: each time that a run is resumed begins another.
    #[serde(default)]
    pub session: u32,
    /// What else kept the machines busy while the workload ran; absent if no node could tell.
    pub disturbance: Option<Disturbance>,
    /// The node that stood still for longest; absent if all of them worked all the time, or if their samples
    /// do not show it.
    pub standstill: Option<Standstill>,
    /// The links, as they were set and measured just before; absent if the links stayed as an earlier trial
    /// had left them.
    pub links: Option<LinkCheck>,
    /// How many neighbouring samples of a node were merged into each one, at most, where all of them would
    /// have made the results of the run too large, or the operator had no room for them. The metrics are
    /// computed from all for which it had room.
    pub merged_samples: Option<u32>,
    /// What every node measured. A server in its client's process is `CLIENT.server`; what the process used
    /// is the client's.
    pub nodes: BTreeMap<String, NodeRecord>,
}

impl TrialRecord {
    /// The most important metrics: goodput in both directions, or the one that represents the workload.
    pub fn headlines(&self) -> Vec<(Metric, f64)> {
        let is_goodput = |metric| matches!(metric, Metric::UploadGoodput | Metric::DownloadGoodput);
        let mut found = Metric::HEADLINES
            .into_iter()
            .filter_map(|metric| Some((metric, *self.metrics.get(&metric)?)))
            .peekable();
        match found.peek() {
            Some((metric, _)) if is_goodput(*metric) => {
                found.filter(|(metric, _)| is_goodput(*metric)).collect()
            }
            _ => found.take(1).collect(),
        }
    }

    /// The record without what nodes and links measured: enough for statistics and for resuming.
    pub fn brief(&self) -> Self {
        Self {
            trial: self.trial.clone(),
            failure: self.failure.clone(),
            metrics: self.metrics.clone(),
            flags: self.flags.clone(),
            standstill: self.standstill.clone(),
            links: None,
            nodes: BTreeMap::new(),
            ..*self
        }
    }

    /// Whether something else than its load slowed the trial down, by more than a trial that is compared may
    /// have.
    pub fn is_disturbed(&self) -> bool {
        self.standstill.is_some() || self.disturbance.is_some_and(|found| found.is_too_much())
    }
}

/// A time in which a node did nothing, because its process or its machine was stopped.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Standstill {
    /// The node.
    pub node: String,
    /// How long it stood still, in seconds.
    pub seconds: f64,
}

impl fmt::Display for Standstill {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} stood still for {:.1} s", self.node, self.seconds)
    }
}

/// What else kept the machines of a trial busy while its workload ran: of each share, that of the machine or
/// node that has the largest. The kernel counts in steps of 0.01 s, so short trials show less of it.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Disturbance {
    /// CPU time that the hypervisor gave to others, as a share of the time of all CPUs.
    pub steal: f64,
    /// CPU time of processes other than nodes and link emulators of the run, as a share of the time of all
    /// CPUs. perfrun itself, which waits in the meantime, is among them.
    pub foreign: f64,
    /// Time for which a control group held a node back, as a share of the workload's time.
    pub throttled: f64,
    /// The latest start of a client after the requested moment, as a share of the workload's time: 0 up to
    /// 5 ms, which is usual.
    pub late: f64,
}

impl Disturbance {
    /// Whether it is more than a trial that is compared may have. The bounds were chosen before any value was
    /// seen, and are the same for baseline and candidate: so leaving such pairs out does not bias a
    /// comparison.
    pub fn is_too_much(&self) -> bool {
        self.steal >= BUSY_STEAL
            || self.foreign >= BUSY_FOREIGN
            || self.throttled >= NOTABLE_SHARE
            || self.late >= NOTABLE_SHARE
    }
}

/// Links that were set and measured.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LinkCheck {
    /// The network that was set.
    pub network: String,
    /// Time it took to set all links, in seconds.
    pub set_seconds: f64,
    /// Time it took to measure them, in seconds.
    pub probe_seconds: f64,
    /// Pairs of nodes; each node is in at least one of them.
    pub legs: Vec<Leg>,
}

/// The links between a client and a server, measured.
#[serde_with_macros::skip_serializing_none]
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Leg {
    /// The client's node.
    pub client: String,
    /// The server's node.
    pub server: String,
    /// Median round trip of the links before anything was impaired, in seconds.
    pub base_round_trip_seconds: f64,
    /// The number of measurements until the link behaved as configured, or was given up.
    pub attempts: u32,
    /// The last of these measurements: round trips, loss each way, and the rate towards the server.
    ///
    /// Where no rate is set, or more than 2 Gbit/s, the rate is what arrived of a burst: 20 ms at 2 Gbit/s or
    /// as fast as the node could send, on one leg of each kind. It is absent where packets overtake one
    /// another.
    pub measured: Measurement,
    /// The rate towards the client, measured likewise.
    pub rate_to_client: Option<Rate>,
    /// Each quantity beside what it should be, from the client's view: there is towards the server.
    pub findings: Vec<QuantityFinding>,
}

impl LinkCheck {
    /// Whether all links are what they were set to be.
    pub fn is_effective(&self) -> bool {
        self.outside().next().is_none()
    }

    /// What is not as it was set to be, and between which nodes.
    pub fn outside(&self) -> impl Iterator<Item = (&Leg, &QuantityFinding)> {
        let findings = self
            .legs
            .iter()
            .flat_map(|leg| leg.findings.iter().map(move |finding| (leg, finding)));
        findings.filter(|(_, finding)| finding.judgement == Judgement::Outside)
    }
}

/// What was done to the packets that a node sent during a trial.
#[serde_with_macros::skip_serializing_none]
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LinkRecord {
    /// The backend that impaired packets.
    pub backend: ActiveBackend,
    /// How packets passed.
    pub mode: Mode,
    /// What was done.
    pub traffic: Vec<Traffic>,
    /// The thread that did it, if the kernel did not do it alone.
    pub worker: Option<Worker>,
}

/// Why a trial failed.
#[serde_with_macros::skip_serializing_none]
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TrialFailure {
    /// The node that failed first. Absent if it was not a node.
    pub node: Option<String>,
    /// For programs.
    #[serde(deserialize_with = "newer::name")]
    pub reason: Reason,
    /// For people.
    pub message: String,
    /// Whether a `Timeout` is of another limit than `timeouts.trial`, such as the `deadline` or the
    /// `duration` of the workload.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub other_limit: bool,
}

impl TrialFailure {
    /// The message without the name of the node before it.
    pub fn message_of_node(&self) -> &str {
        let rest = |node: &str| self.message.strip_prefix(node)?.strip_prefix(": ");
        self.node.as_deref().and_then(rest).unwrap_or(&self.message)
    }
}

/// What one node measured.
#[serde_with_macros::skip_serializing_none]
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeRecord {
    /// The node's role.
    pub role: Role,
    /// Its measurement.
    pub measured: Measured,
    /// What was done to the packets that it sent, on a network.
    pub link: Option<LinkRecord>,
}

/// What limits the trust in a trial.
// docs/reference/flags.md is generated from the documentation of the variants, which is for users, and from
// their messages, which say what to do.
#[derive(
    AsRefStr,
    Clone,
    Copy,
    Debug,
    Deserialize,
    Display,
    EnumMessage,
    Eq,
    Hash,
    JsonSchema,
    Ord,
    PartialEq,
    PartialOrd,
)]
pub enum Flag {
    /// A client started later than the common moment by more than 5 ms and more than 1 % of the trial's time.
    #[strum(message = "use fewer nodes, or a quieter machine")]
    LateStart,
    /// A control group held a node back for at least 1 % of the trial's time.
    #[strum(message = "raise the CPU limit; the rate is the limit's")]
    Throttled,
    /// Measured in the second attempt, after a node was lost.
    #[strum(message = "find out why the node was lost")]
    Retried,
    /// Some operations of the trial failed; the numbers are of the others. On `webrtc-direct` also: a dial
    /// was lost and tried again. `Timeout` at a server is the end of a stream that a link or a busy machine
    /// lost: all bytes of that stream were exchanged, and the numbers include it. In an echo this is so only
    /// if no client counts a failure. If nothing but ends was lost, the footnote says so.
    #[strum(
        message = "look at the column *Client failures* and the table *Failed operations* first. For dials \
                   on `webrtc-direct` and for ends of streams the table says of how many"
    )]
    PartialFailures,
    /// A node was not built with `--release`.
    #[strum(message = "build with `--release`")]
    DebugBuild,
    /// Packets left an impaired link late: one of a hundred by more than 0.5 ms or 5 % of the shortest delay,
    /// whichever is more. The table *Lateness* has the figures.
    #[strum(message = "use a quieter machine, or give the emulator a core")]
    ImpairmentLate,
    /// An impaired link lost packets that it was not configured to lose.
    #[strum(message = "lower the rate, or give the emulator a core")]
    ImpairmentDrops,
    /// Streams of an echo had less than 95 % of the round trips that their `pause` or `period` allows, or
    /// messages less than 95 % of their `rate`.
    #[strum(message = "use a smaller load, or more CPUs")]
    BelowNominal,
    /// The kernel's TCP window, and neither the stack nor the link, may have been the limit: half of the
    /// largest window is payload, and the measured rate is at least 0.7 of that in each round trip.
    #[strum(
        message = "raise `net.ipv4.tcp_rmem` and `tcp_wmem`; local runs do so automatically, and so do \
                   pods from Kubernetes 1.32 on"
    )]
    WindowLimited,
    /// Other processes used 10 % of a machine's CPUs, its hypervisor gave 5 % of their time to others, or a
    /// node was held back or started late by 1 % of the workload's time. Or a node stood still for more than
    /// 1 s, because its process or its machine was stopped: then the footnote names it.
    #[strum(message = "find out what else runs there; `perfrun run --wait-quiet 60s` waits for it")]
    Disturbed,
    /// The kernel let a node's UDP sockets have smaller buffers than its stack wants (`udpBuffers` of the
    /// node in results.json), so that bursts may be lost. Only `go-libp2p` wants a size, 7 MiB for QUIC.
    #[strum(message = "raise `net.core.rmem_max` and `wmem_max` to 7500000")]
    UdpBuffersLimited,
    /// A flag of a newer version, which this version carries.
    #[schemars(skip)]
    #[serde(skip_deserializing)]
    #[strum(transparent)]
    Newer(NewerName),
}

newer::carry!(Flag);

impl Flag {
    /// All flags of this version.
    pub const ALL: [Self; 11] = [
        Self::LateStart,
        Self::Throttled,
        Self::Retried,
        Self::PartialFailures,
        Self::DebugBuild,
        Self::ImpairmentLate,
        Self::ImpairmentDrops,
        Self::BelowNominal,
        Self::WindowLimited,
        Self::Disturbed,
        Self::UdpBuffersLimited,
    ];
}

/// A start that is late by no more than this is not flagged, in seconds: a busy machine may take that long to
/// wake a node, which is more than [`NOTABLE_SHARE`] of a short trial.
pub const LATE_START_SECONDS: f64 = 0.005;

/// What took less than this share of a trial's time changed its numbers by less than they resolve, and is not
/// flagged.
pub const NOTABLE_SHARE: f64 = 0.01;

/// A smaller share of the nominal rate is flagged.
pub const ACHIEVED_MIN: f64 = 0.95;

/// What [`Flag::WindowLimited`] means, in a sentence.
pub const WINDOW_LIMITED: &str =
    "the kernel's TCP window, and neither the stack nor the link, may have been the limit";
