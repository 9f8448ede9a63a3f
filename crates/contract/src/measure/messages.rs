//! Messages: rate, goodput, latency, losses and cost.

use super::{
    Measure, Metrics, cost,
    ends::{Ends, bytes, distribution, longest, merged, quotient, receiver_rate},
};
use crate::{
    distribution::Distribution,
    metric::Metric,
    node::{BYTES_FOR_A_RATE_MIN, Transfer},
    parameters::Messages,
    workload::MessageMode,
};

impl Measure for Messages {
    /// Rates of what arrived, times of round trips, one-way delays, and the cost of each message.
    fn metrics(&self, ends: &Ends<'_>) -> Metrics {
        let mut metrics = Metrics::from([(Metric::Failures, ends.failures())]);
        let sent = ends.uploads();
        let arrived = ends.arrivals();
        let count = |transfers: &[Transfer]| bytes(transfers) as f64 / self.message_bytes.0 as f64;
        let messages = count(&arrived);
        let sequences = ends.peers * u64::from(self.receivers);
        // All clients together take as long as the slowest one, from its first message to its last
        // acknowledgement.
        let rate = longest(&sent)
            .zip(self.timed(messages, sequences))
            .and_then(|(seconds, timed)| quotient(timed, seconds));
        metrics.extend(rate.map(|rate| (Metric::MessagesPerSecond, rate)));
        let nominal = self.rate.map(|rate| u64::from(rate) * sequences);
        metrics.extend(
            rate.zip(nominal)
                .map(|(rate, nominal)| (Metric::AchievedShare, rate / nominal as f64)),
        );
        let goodput = receiver_rate(&arrived, BYTES_FOR_A_RATE_MIN);
        metrics.extend(goodput.map(|rate| (Metric::UploadGoodput, rate)));
        if messages > 0.0 {
            metrics.insert(Metric::CpuSecondsPerMessage, cost::total_cpu(ends) / messages);
        }
        if self.mode == MessageMode::Broadcast {
            metrics.extend(delivery(ends, count(&sent), messages));
        }
        if let Some(times) = ends.merged(Distribution::RoundTrip) {
            metrics.extend(distribution(&times, Metric::ROUND_TRIP));
        }
        // Receivers measure the one-way delay; in one process, the task that has both ends.
        let nodes = ends.clients.iter().chain(&ends.servers).copied();
        if let Some(times) = merged(nodes, Distribution::OneWay) {
            metrics.extend(distribution(&times, Metric::ONE_WAY));
        }
        metrics
    }

    /// Bytes that arrived.
    fn payload(&self, ends: &Ends<'_>) -> u64 {
        bytes(&ends.arrivals())
    }
}

impl Messages {
    /// The messages that the time from the first to the last of some sequences counts, of those that arrived.
    /// With a rate, nothing precedes the first message of a sequence: counted with the others, it would make
    /// the rate higher than the one that is set. `None` if no message followed a first one.
    fn timed(&self, arrived: f64, sequences: u64) -> Option<f64> {
        let followed = arrived - sequences as f64;
        match self.rate {
            Some(_) if arrived > 0.0 => Some(followed).filter(|followed| *followed > 0.0),
            _ => Some(arrived),
        }
    }
}

/// What arrived of the messages to all receivers, and what did not.
fn delivery(ends: &Ends<'_>, sent: f64, arrived: f64) -> Metrics {
    let refused: u64 = ends
        .clients
        .iter()
        .flat_map(|client| client.refused.values())
        .sum();
    let refused = refused as f64;
    let mut metrics = Metrics::from([
        (Metric::Refused, refused),
        (Metric::MessagesLost, (sent - refused - arrived).max(0.0)),
    ]);
    if sent > 0.0 {
        metrics.insert(Metric::DeliveryRatio, arrived / sent);
    }
    metrics
}
