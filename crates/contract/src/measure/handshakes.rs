//! New connections: how long their phases take, and how many there are per second.

use super::{
    Measure, Metrics,
    ends::{Ends, median, percentile, quotient},
};
use crate::{distribution::Distribution, metric::Metric, parameters::Handshakes};

impl Measure for Handshakes {
    /// Times of the phases of a handshake, and the rate of connections.
    fn metrics(&self, ends: &Ends<'_>) -> Metrics {
        let mut metrics = Metrics::from([(Metric::Failures, ends.failures())]);
        let transport = ends.merged(Distribution::HandshakeTransport);
        metrics.extend(transport.map(|phase| (Metric::HandshakeTransportP50, median(&phase))));
        if let Some(phase) = ends.merged(Distribution::HandshakeEstablished) {
            metrics.insert(Metric::HandshakeEstablishedP50, median(&phase));
            metrics.extend(percentile(&phase, 99).map(|time| (Metric::HandshakeEstablishedP99, time)));
        }
        if let Some(phase) = ends.merged(Distribution::HandshakeFirstByte) {
            metrics.insert(Metric::HandshakeFirstByteP50, median(&phase));
            metrics.extend(percentile(&phase, 99).map(|time| (Metric::HandshakeFirstByteP99, time)));
            let rate = quotient(phase.len() as f64, ends.slowest());
            metrics.extend(rate.map(|rate| (Metric::HandshakesPerSecond, rate)));
        }
        metrics
    }

    fn mismatch(&self, ends: &Ends<'_>) -> Option<String> {
        ends.lost_pings()
    }
}
