//! From what was observed of a trial to its record. Pure.

mod disturbance;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use perfrun_contract::{
    matrix::Transport,
    measure,
    metric::Metric,
    node::{Outcome, Reason},
    plan::{Cell, Trial},
    record::{ACHIEVED_MIN, Flag, LATE_START_SECONDS, NOTABLE_SHARE, NodeRecord, TrialFailure, TrialRecord},
    role::Role,
};

pub(crate) use self::disturbance::add_disturbance;
use crate::{attempt::Attempt, clock::Offset};

/// What the nodes of a trial showed, in the order in which it was noticed.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Observations {
    /// What each node measured.
    pub nodes: BTreeMap<String, NodeRecord>,
    /// What went wrong, first things first.
    pub failures: Vec<TrialFailure>,
    /// Nodes that cannot be used any more.
    pub lost: BTreeSet<String>,
}

impl Observations {
    /// Adds how the trial ended at a node.
    pub(crate) fn add_outcome(&mut self, name: &str, role: Role, outcome: Outcome) {
        let of_role = |role, measured| NodeRecord {
            role,
            measured,
            link: None,
        };
        self.nodes
            .insert(name.to_owned(), of_role(role, outcome.measured));
        if let Some(served) = outcome.served {
            self.nodes
                .insert(format!("{name}.server"), of_role(Role::Server, served));
        }
        if let Some(failure) = outcome.failure {
            // A node that is being stopped cannot run another trial.
            if failure.reason == Reason::Stopped {
                self.lost.insert(name.to_owned());
            }
            self.add_failure(Some(name), failure.reason, failure.message);
        }
    }

    /// Adds a node that is lost.
    pub(crate) fn add_lost(&mut self, name: &str, why: &str) {
        self.lost.insert(name.to_owned());
        self.add_failure(Some(name), Reason::NodeLost, format!("{name} is lost: {why}"));
    }

    /// Adds what went wrong.
    pub(crate) fn add_failure(&mut self, name: Option<&str>, reason: Reason, message: String) {
        self.failures.push(TrialFailure {
            node: name.map(str::to_owned),
            reason,
            message,
            other_limit: false,
        });
    }

    /// Notes that the time of the trial is not up: timeouts until now are of other limits.
    pub(crate) fn note_time_left(&mut self) {
        for failure in &mut self.failures {
            failure.other_limit |= failure.reason == Reason::Timeout;
        }
    }

    /// The failure that the others follow from: of the likeliest causes, the first that was noticed.
    fn cause(&self) -> Option<&TrialFailure> {
        self.failures
            .iter()
            .min_by_key(|failure| failure.reason.remoteness())
    }
}

/// All that a record is made of.
#[derive(Clone, Debug)]
pub(crate) struct Facts<'a> {
    pub trial: &'a Trial,
    pub cell: &'a Cell,
    pub attempt: u32,
    /// Whether it was tried before and a node was lost.
    pub after_loss: bool,
    /// The session of the run.
    pub session: u32,
    pub observations: Observations,
    /// The start requested of each client, in its own clock. Empty if an earlier session requested it.
    pub requested_starts: BTreeMap<String, u64>,
    /// Offsets of the clients' clocks.
    pub offsets: BTreeMap<String, Offset>,
    /// How far the clocks of servers and clients may be apart, in seconds, where receivers compare them.
    pub server_clock_uncertainty: Option<f64>,
    /// Whether a node is a debug build.
    pub debug_build: bool,
    /// The most that the kernel lets a connection between these nodes carry, in bit/s.
    pub window_limit: Option<f64>,
    /// When the trial was begun, since the start of the run.
    pub at: Duration,
    /// How long it took, all in all.
    pub took: Duration,
}

impl<'a> Facts<'a> {
    /// The observations of a trial that failed before any node knew it.
    pub(crate) fn without_nodes(attempt: &Attempt<'a>, failure: TrialFailure) -> Self {
        Self {
            trial: attempt.trial,
            cell: attempt.cell,
            attempt: attempt.number,
            after_loss: attempt.after_loss,
            session: attempt.session,
            observations: Observations {
                failures: vec![failure],
                ..Observations::default()
            },
            requested_starts: BTreeMap::new(),
            offsets: BTreeMap::new(),
            server_clock_uncertainty: None,
            debug_build: false,
            window_limit: None,
            at: attempt.at,
            took: Duration::ZERO,
        }
    }
}

/// The most that one connection carries with the smallest of these windows, in bit/s: half of the window in
/// each round trip. The other half is not payload (`net.ipv4.tcp_adv_win_scale` is 1; a send buffer counts
/// headers and padding, too). `None` without a window, and if the round trip is 0.
pub(crate) fn window_limit(windows: impl IntoIterator<Item = [u64; 2]>, round_trip: Duration) -> Option<f64> {
    let smallest = windows.into_iter().flatten().min()?;
    (round_trip > Duration::ZERO).then(|| smallest as f64 / 2.0 * 8.0 / round_trip.as_secs_f64())
}

/// Makes the record.
pub(crate) fn record(facts: Facts<'_>) -> TrialRecord {
    let failure = failure(facts.cell, &facts.observations);
    let starts = Starts::new(&facts);
    let longest = facts
        .observations
        .nodes
        .values()
        .map(|node| node.measured.seconds)
        .fold(0.0, f64::max);
    let mut metrics = match failure {
        None => measure::metrics(facts.cell, &facts.observations.nodes),
        Some(_) => BTreeMap::new(),
    };
    if metrics.contains_key(&Metric::OneWayP50) {
        let uncertainty = facts.server_clock_uncertainty;
        metrics.extend(uncertainty.map(|seconds| (Metric::OneWayUncertainty, seconds)));
    }
    TrialRecord {
        trial: facts.trial.clone(),
        attempt: facts.attempt,
        flags: flags(&facts, &starts, failure.is_none(), &metrics),
        metrics,
        failure,
        at_seconds: facts.at.as_secs_f64(),
        start_skew_seconds: starts.skew,
        clock_uncertainty_seconds: starts.uncertainty,
        start_lateness_seconds: starts.lateness,
        // A result that an earlier session left on the nodes was measured before this one began: nothing is
        // left then.
        overhead_seconds: (facts.took.as_secs_f64() - longest).max(0.0),
        session: facts.session,
        disturbance: None,
        standstill: None,
        links: None,
        merged_samples: None,
        nodes: facts.observations.nodes,
    }
}

/// Why the trial failed, if it did.
fn failure(cell: &Cell, observations: &Observations) -> Option<TrialFailure> {
    if let Some(cause) = observations.cause() {
        return Some(cause.clone());
    }
    let failed = |node: Option<&String>, reason, message| TrialFailure {
        node: node.cloned(),
        reason,
        message,
        other_limit: false,
    };
    if let Some(name) = cell.nodes().find(|name| !observations.nodes.contains_key(*name)) {
        return Some(failed(
            Some(name),
            Reason::Internal,
            format!("{name} reported nothing"),
        ));
    }
    let mismatch = measure::count_mismatch(cell, &observations.nodes)?;
    Some(failed(None, Reason::CountMismatch, mismatch))
}

/// How far apart and how late the clients started, in seconds.
#[derive(Debug, PartialEq)]
struct Starts {
    /// Between the first and the last.
    skew: Option<f64>,
    /// By how much the skew may be wrong, because clocks of nodes are compared over the network.
    uncertainty: Option<f64>,
    /// Of the latest one.
    lateness: Option<f64>,
}

impl Starts {
    fn new(facts: &Facts<'_>) -> Self {
        let started: Vec<(&String, u64)> = facts
            .observations
            .nodes
            .iter()
            .filter_map(|(name, node)| Some((name, node.measured.started_nanoseconds?)))
            .collect();
        let placed: Vec<(i64, i64)> = started
            .iter()
            .filter_map(|(name, at)| facts.offsets.get(*name).map(|o| (o.to_local(*at), o.uncertainty)))
            .collect();
        let times = || placed.iter().map(|(at, _)| *at);
        let lateness = started.iter().filter_map(|(name, at)| {
            let requested = facts.requested_starts.get(*name)?;
            Some((i128::from(*at) - i128::from(*requested)) as f64 / 1e9)
        });
        Self {
            skew: times()
                .max()
                .zip(times().min())
                .map(|(last, first)| last.saturating_sub(first) as f64 / 1e9),
            uncertainty: placed
                .iter()
                .map(|(_, uncertainty)| *uncertainty)
                .max()
                .map(|ns| ns as f64 / 1e9),
            lateness: lateness.reduce(f64::max),
        }
    }
}

fn flags(facts: &Facts<'_>, starts: &Starts, completed: bool, metrics: &BTreeMap<Metric, f64>) -> Vec<Flag> {
    let any = |what: fn(&NodeRecord) -> bool| facts.observations.nodes.values().any(what);
    let most = |time: fn(&NodeRecord) -> f64| facts.observations.nodes.values().map(time).fold(0.0, f64::max);
    let seconds = most(|node| node.measured.seconds);
    let throttled = most(|node| node.measured.resources.throttled_seconds.unwrap_or(0.0));
    [
        (
            Flag::LateStart,
            starts
                .lateness
                .is_some_and(|late| late > LATE_START_SECONDS && late > NOTABLE_SHARE * seconds),
        ),
        (
            Flag::Throttled,
            throttled > 0.0 && throttled >= NOTABLE_SHARE * seconds,
        ),
        (Flag::Retried, facts.after_loss),
        (
            Flag::PartialFailures,
            completed && any(|node| node.measured.failures > 0),
        ),
        (Flag::DebugBuild, facts.debug_build),
        (
            Flag::BelowNominal,
            metrics
                .get(&Metric::AchievedShare)
                .is_some_and(|share| *share < ACHIEVED_MIN),
        ),
        (Flag::WindowLimited, is_window_limited(facts, metrics)),
        (
            Flag::UdpBuffersLimited,
            any(|node| {
                node.measured
                    .udp_buffers
                    .is_some_and(|buffers| buffers.are_limited())
            }),
        ),
    ]
    .into_iter()
    .filter_map(|(flag, holds)| holds.then_some(flag))
    .collect()
}

/// A connection that carries this share of what its window allows, or more, may have been limited by the
/// window.
const WINDOW_LIMITED_SHARE: f64 = 0.7;

fn is_window_limited(facts: &Facts<'_>, metrics: &BTreeMap<Metric, f64>) -> bool {
    let connections = facts.cell.peers() as f64;
    let Some(limit) = facts
        .window_limit
        .filter(|_| facts.cell.transport.raw() == Transport::Tcp)
    else {
        return false;
    };
    [Metric::UploadGoodput, Metric::DownloadGoodput]
        .iter()
        .filter_map(|metric| metrics.get(metric))
        .any(|rate| *rate > WINDOW_LIMITED_SHARE * limit * connections)
}
