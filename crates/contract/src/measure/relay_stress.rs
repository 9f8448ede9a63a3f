//! Sinks that fetch through a relay repeatedly: rates on the plateau, when all of them fetch.

use std::ops::Range;

use super::{
    Measure, Metrics,
    ends::{Ends, max, median, percentile, quotient, sum},
    relay,
};
use crate::{
    distribution::Distribution,
    metric::Metric,
    node::{Measured, Sample},
    parameters::RelayStress,
};

impl Measure for RelayStress {
    /// Rates on the plateau, and times of the transfers.
    fn metrics(&self, ends: &Ends<'_>) -> Metrics {
        let plateau = self.ramp_seconds..self.ramp_seconds + self.plateau_seconds;
        let mut metrics = relay::relays(ends, self.payload(ends));
        metrics.insert(Metric::Failures, ends.failures());
        let rate = |nodes: &[&Measured], value: fn(&Sample) -> f64| {
            let of_node = |node: &&Measured| rate_on(&plateau, &node.samples, value);
            nodes.iter().filter_map(of_node).reduce(|a, b| a + b)
        };
        let goodput = rate(&ends.clients, |sample| sample.bytes_received as f64 * 8.0);
        metrics.extend(goodput.map(|rate| (Metric::DownloadGoodput, rate)));
        let transfers = rate(&ends.clients, |sample| sample.operations as f64);
        metrics.extend(transfers.map(|rate| (Metric::TransfersPerSecond, rate)));
        let cores = rate(&ends.relays, |sample| sample.cpu_seconds);
        metrics.extend(cores.map(|cores| (Metric::RelayCpu, cores)));
        if let Some(transfers) = ends.merged(Distribution::Transfer) {
            metrics.insert(Metric::TransferP50, median(&transfers));
            metrics.extend(percentile(&transfers, 99).map(|time| (Metric::TransferP99, time)));
            metrics.insert(Metric::TransferMax, max(&transfers));
        }
        let connect = ends.merged(Distribution::HandshakeEstablished);
        metrics.extend(connect.map(|connect| (Metric::ConnectSeconds, median(&connect))));
        let late = ends.merged(Distribution::Lateness);
        metrics.extend(late.map(|late| (Metric::RampLateness, max(&late))));
        metrics
    }

    /// Bytes that sinks received.
    fn payload(&self, ends: &Ends<'_>) -> u64 {
        sum(&ends.clients, |client| client.bytes_received)
    }
}

/// The rate of a value in the samples whose middle is on the plateau.
fn rate_on(plateau: &Range<f64>, samples: &[Sample], value: fn(&Sample) -> f64) -> Option<f64> {
    let on_plateau = samples
        .iter()
        .filter(|sample| plateau.contains(&(sample.at_seconds - sample.interval_seconds / 2.0)));
    let (sum, seconds) = on_plateau.fold((0.0, 0.0), |(sum, seconds), sample| {
        (sum + value(sample), seconds + sample.interval_seconds)
    });
    quotient(sum, seconds)
}
