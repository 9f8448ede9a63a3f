//! New connections: how long their phases take, and how many there are per second.

use super::{
    Metrics,
    ends::{Ends, per_second, quantile},
};
use crate::{node::Distribution, record::Metric};

/// Times of the phases of a handshake, and the rate of connections.
pub(super) fn metrics(ends: &Ends<'_>) -> Metrics {
    let mut metrics = Metrics::from([(Metric::Failures, ends.failures())]);
    let transport = ends.merged(Distribution::HandshakeTransport);
    metrics.extend(transport.map(|phase| (Metric::HandshakeTransportP50, quantile(&phase, 0.5))));
    if let Some(phase) = ends.merged(Distribution::HandshakeEstablished) {
        metrics.insert(Metric::HandshakeEstablishedP50, quantile(&phase, 0.5));
        metrics.insert(Metric::HandshakeEstablishedP99, quantile(&phase, 0.99));
    }
    if let Some(phase) = ends.merged(Distribution::HandshakeFirstByte) {
        metrics.insert(Metric::HandshakeFirstByteP50, quantile(&phase, 0.5));
        metrics.insert(Metric::HandshakeFirstByteP99, quantile(&phase, 0.99));
        let rate = per_second(phase.len() as f64, ends.slowest());
        metrics.extend(rate.map(|rate| (Metric::HandshakesPerSecond, rate)));
    }
    metrics
}
