//! Both ends of a trial, and arithmetic on what they measured.

use std::collections::BTreeMap;

use crate::{
    distribution::Distribution,
    histogram::{Recorder, recorder},
    metric::Metric,
    node::{Measured, Transfer},
    plan::Cell,
    record::NodeRecord,
    role::Role,
};

/// The nodes of a trial by role.
pub(super) struct Ends<'a> {
    pub(super) clients: Vec<&'a Measured>,
    pub(super) servers: Vec<&'a Measured>,
    /// Servers that are processes of their own: those within a client's process share its CPU and memory.
    pub(super) server_processes: Vec<&'a Measured>,
    pub(super) relays: Vec<&'a Measured>,
    /// Peers of all clients.
    pub(super) peers: u64,
}

impl<'a> Ends<'a> {
    pub(super) fn new(cell: &Cell, nodes: &'a BTreeMap<String, NodeRecord>) -> Self {
        let in_role = |role| -> Vec<&Measured> {
            nodes
                .values()
                .filter(|node| node.role == role)
                .map(|node| &node.measured)
                .collect()
        };
        Self {
            clients: in_role(Role::Client),
            servers: in_role(Role::Server),
            server_processes: match cell.has_process(Role::Server) {
                true => in_role(Role::Server),
                false => vec![],
            },
            relays: in_role(Role::Relay),
            peers: cell.peers(),
        }
    }

    /// The nodes that are processes.
    pub(super) fn processes(&self) -> impl Iterator<Item = &'a Measured> {
        let all = self
            .clients
            .iter()
            .chain(&self.server_processes)
            .chain(&self.relays);
        all.copied()
    }

    /// The time of the client that took longest, in seconds.
    pub(super) fn slowest(&self) -> f64 {
        self.clients
            .iter()
            .map(|client| client.seconds)
            .fold(0.0, f64::max)
    }

    /// Failures that clients counted.
    pub(super) fn failures(&self) -> f64 {
        sum(&self.clients, |client| client.failures) as f64
    }

    /// Bytes that clients sent, and that servers received.
    pub(super) fn up(&self) -> (u64, u64) {
        (
            sum(&self.clients, |client| client.bytes_sent),
            sum(&self.servers, |server| server.bytes_received),
        )
    }

    /// Bytes that servers sent, and that clients received.
    pub(super) fn down(&self) -> (u64, u64) {
        (
            sum(&self.servers, |server| server.bytes_sent),
            sum(&self.clients, |client| client.bytes_received),
        )
    }

    /// What is wrong with the bytes of pings, if anything.
    pub(super) fn lost_pings(&self) -> Option<String> {
        // At a server, only ends of streams fail in a trial that continues.
        if self.failures() > 0.0 {
            return None;
        }
        let lost = |what: &str, (sent, received): (u64, u64)| {
            (sent != received).then(|| format!("{what}: {sent} bytes were sent, {received} received"))
        };
        lost("pings", self.up()).or_else(|| lost("answers to pings", self.down()))
    }

    /// The uploads of all clients.
    pub(super) fn uploads(&self) -> Vec<Transfer> {
        self.clients.iter().filter_map(|client| client.upload).collect()
    }

    /// Uploads as the servers saw them.
    pub(super) fn arrivals(&self) -> Vec<Transfer> {
        self.servers.iter().filter_map(|server| server.upload).collect()
    }

    /// The downloads of all clients.
    pub(super) fn downloads(&self) -> Vec<Transfer> {
        self.clients.iter().filter_map(|client| client.download).collect()
    }

    /// The clients' recordings of a distribution as one. See [`merged`].
    pub(super) fn merged(&self, distribution: Distribution) -> Option<Recorder> {
        merged(self.clients.iter().copied(), distribution)
    }
}

/// The nodes' recordings of a distribution as one; `None` if it is empty, or if a recording cannot be read.
/// The node that wrote it is then faulty, and no number is better than one that leaves a node out.
pub fn merged<'a>(
    nodes: impl IntoIterator<Item = &'a Measured>,
    distribution: Distribution,
) -> Option<Recorder> {
    // A decoded recorder covers only the range it was made for; this one covers any.
    let mut all = recorder();
    let recordings = nodes
        .into_iter()
        .filter_map(|node| node.histograms.get(&distribution));
    for recording in recordings {
        all.add(recording.decode().ok()?).ok()?;
    }
    Some(all).filter(|all| !all.is_empty())
}

/// A count of all nodes together.
pub(super) fn sum(nodes: &[&Measured], count: fn(&Measured) -> u64) -> u64 {
    nodes.iter().map(|node| count(node)).sum()
}

/// Bytes of all transfers together.
pub(super) fn bytes(transfers: &[Transfer]) -> u64 {
    transfers.iter().map(|transfer| transfer.bytes).sum()
}

/// The bytes after the first read of each receiver, all receivers together. `None` if no receiver counted
/// them.
pub(super) fn after_first(transfers: &[Transfer]) -> Option<u64> {
    transfers
        .iter()
        .filter_map(|transfer| transfer.bytes_after_first)
        .reduce(u64::saturating_add)
}

/// The rate of the receivers in bit/s: the bytes after the first read, over the time since then. `None` below
/// `least` bytes, and if one read brought all of them: a rate over no interval does not exist.
///
/// All receivers together take as long as the slowest one. They start together, and their clocks can be
/// compared no better than the start skew in the record.
pub(super) fn receiver_rate(transfers: &[Transfer], least: u64) -> Option<f64> {
    if bytes(transfers) < least {
        return None;
    }
    let after_first = after_first(transfers).filter(|bytes| *bytes > 0)?;
    let seconds = transfers
        .iter()
        .filter_map(|transfer| transfer.first_to_last_seconds);
    quotient(after_first as f64 * 8.0, seconds.fold(0.0, f64::max))
}

/// The rate that the published tools print, in bit/s.
pub(super) fn sender_rate(transfers: &[Transfer]) -> Option<f64> {
    quotient(bytes(transfers) as f64 * 8.0, longest(transfers)?)
}

/// The duration of the longest transfer, in seconds.
pub(super) fn longest(transfers: &[Transfer]) -> Option<f64> {
    transfers.iter().map(|transfer| transfer.seconds).reduce(f64::max)
}

/// An amount divided by a time or a number. `None` if that is zero: infinity is not a measurement, and JSON
/// cannot hold it.
pub(super) fn quotient(amount: f64, divisor: f64) -> Option<f64> {
    (divisor > 0.0).then(|| amount / divisor)
}

/// Operations that a percentile must leave above it. Of fewer, it depends on one or two of them: the 99th of
/// a hundred operations is next to their longest.
const ABOVE_MIN: u64 = 10;

/// The median in seconds. It needs no least number of operations: it describes the middle of those that
/// exist, and workloads with few operations are reported by their median.
pub(super) fn median(recorder: &Recorder) -> f64 {
    seconds(recorder.value_at_quantile(0.5))
}

/// A percentile above the median, in seconds; `None` of too few operations ([`ABOVE_MIN`]).
pub(super) fn percentile(recorder: &Recorder, percent: u32) -> Option<f64> {
    let above = recorder.len() * u64::from(100 - percent);
    (above >= ABOVE_MIN * 100).then(|| seconds(recorder.value_at_quantile(f64::from(percent) / 100.0)))
}

/// Mean, median, 90th and 99th percentile, and maximum, as these metrics.
pub(super) fn distribution(
    times: &Recorder,
    [mean_of, p50, p90, p99, longest]: [Metric; 5],
) -> impl Iterator<Item = (Metric, f64)> {
    [
        (mean_of, Some(mean(times))),
        (p50, Some(median(times))),
        (p90, percentile(times, 90)),
        (p99, percentile(times, 99)),
        (longest, Some(max(times))),
    ]
    .into_iter()
    .filter_map(|(metric, value)| Some((metric, value?)))
}

/// The mean in seconds.
pub(super) fn mean(recorder: &Recorder) -> f64 {
    recorder.mean() / 1e9
}

/// The maximum in seconds.
pub(super) fn max(recorder: &Recorder) -> f64 {
    seconds(recorder.max())
}

/// Nanoseconds in seconds.
pub(super) fn seconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e9
}
