//! Messages: rate, goodput, latency and cost.

use super::{
    Metrics, cost,
    ends::{Ends, bytes, longest, max, mean, per_second, quantile, receiver_rate},
};
use crate::{
    node::{Distribution, LEAST_BYTES_FOR_A_RATE, Transfer},
    parameters::Messages,
    record::Metric,
};

/// Rates of what arrived, times of round trips or of one way, and the cost of each message.
pub(super) fn metrics(ends: &Ends<'_>, load: &Messages) -> Metrics {
    let mut metrics = Metrics::from([(Metric::Failures, ends.failures())]);
    let sent: Vec<Transfer> = ends.clients.iter().filter_map(|client| client.upload).collect();
    let arrived = arrivals(ends);
    let messages = bytes(&arrived) as f64 / load.message_bytes.0 as f64;
    // All clients together take as long as the slowest one, from its first message to its last
    // acknowledgement.
    let rate = longest(&sent).and_then(|seconds| per_second(messages, seconds));
    metrics.extend(rate.map(|rate| (Metric::MessagesPerSecond, rate)));
    let goodput = receiver_rate(&arrived, LEAST_BYTES_FOR_A_RATE);
    metrics.extend(goodput.map(|rate| (Metric::UploadGoodput, rate)));
    if messages > 0.0 {
        metrics.insert(Metric::CpuSecondsPerMessage, cost::total_cpu(ends) / messages);
    }
    for (distribution, [mean_of, p50, p90, p99, longest]) in [
        (
            Distribution::RoundTrip,
            [
                Metric::RoundTripMean,
                Metric::RoundTripP50,
                Metric::RoundTripP90,
                Metric::RoundTripP99,
                Metric::RoundTripMax,
            ],
        ),
        (
            Distribution::OneWay,
            [
                Metric::OneWayMean,
                Metric::OneWayP50,
                Metric::OneWayP90,
                Metric::OneWayP99,
                Metric::OneWayMax,
            ],
        ),
    ] {
        if let Some(times) = ends.merged(distribution) {
            metrics.extend([
                (mean_of, mean(&times)),
                (p50, quantile(&times, 0.5)),
                (p90, quantile(&times, 0.9)),
                (p99, quantile(&times, 0.99)),
                (longest, max(&times)),
            ]);
        }
    }
    metrics
}

/// Bytes that arrived.
pub(super) fn payload(ends: &Ends<'_>) -> u64 {
    bytes(&arrivals(ends))
}

fn arrivals(ends: &Ends<'_>) -> Vec<Transfer> {
    ends.servers.iter().filter_map(|server| server.upload).collect()
}
