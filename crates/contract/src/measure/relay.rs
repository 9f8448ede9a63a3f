//! A transfer through a relay: its times and rate, and what the relay does for it.

use super::{
    Measure, Metrics, cost,
    ends::{Ends, bytes, longest, max, median, quotient, receiver_rate, sum},
};
use crate::{distribution::Distribution, metric::Metric, node::BYTES_FOR_A_RATE_MIN, parameters::Relay};

impl Measure for Relay {
    /// Times and rate of the transfer, and of the steps before it.
    fn metrics(&self, ends: &Ends<'_>) -> Metrics {
        let downloads = ends.downloads();
        let mut metrics = relays(ends, self.payload(ends));
        metrics.extend(longest(&downloads).map(|seconds| (Metric::DownloadSeconds, seconds)));
        let goodput = receiver_rate(&downloads, BYTES_FOR_A_RATE_MIN);
        metrics.extend(goodput.map(|rate| (Metric::DownloadGoodput, rate)));
        for (distribution, metric) in [
            (Distribution::RelayConnected, Metric::RelayConnectSeconds),
            (Distribution::HandshakeEstablished, Metric::ConnectSeconds),
            (Distribution::Open, Metric::OpenP50),
            (Distribution::FirstByte, Metric::FirstByteP50),
            (Distribution::RelayRoundTrip, Metric::RelayRoundTripP50),
            (Distribution::RoundTrip, Metric::RoundTripP50),
        ] {
            let recorded = ends.merged(distribution);
            metrics.extend(recorded.map(|all| (metric, median(&all))));
        }
        if !ends.relays.is_empty() {
            // A relay is idle before and after the transfer.
            let cores = quotient(cost::cpu(&ends.relays), longest(&downloads).unwrap_or_default());
            metrics.extend(cores.map(|cores| (Metric::RelayCpu, cores)));
        }
        metrics
    }

    /// Bytes that sinks received.
    fn payload(&self, ends: &Ends<'_>) -> u64 {
        bytes(&ends.downloads())
    }
}

/// Circuits, reservations and costs of the relays for this payload; empty without a relay.
pub(super) fn relays(ends: &Ends<'_>, payload: u64) -> Metrics {
    if ends.relays.is_empty() {
        return Metrics::new();
    }
    let refused = ends.relays.iter().flat_map(|relay| relay.refused.values());
    let mut metrics = Metrics::from([
        (
            Metric::Circuits,
            sum(&ends.relays, |relay| relay.most_circuits) as f64,
        ),
        (Metric::Refused, refused.sum::<u64>() as f64),
    ]);
    let reservations = ends
        .servers
        .iter()
        .filter_map(|server| server.histograms.get(&Distribution::Reservation));
    let longest = reservations
        .filter_map(|recording| Some(max(&recording.decode().ok()?)))
        .reduce(f64::max);
    metrics.extend(longest.map(|seconds| (Metric::ReservationSeconds, seconds)));
    metrics.extend(cost::of_relays(ends, payload));
    metrics
}
