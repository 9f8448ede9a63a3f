//! Streams that echo at a pace: round trips, and how much of the nominal rate the plateau achieves.

use super::{
    Measure, Metrics,
    ends::{Ends, quotient},
    ping,
};
use crate::{
    metric::Metric,
    node::{Measured, Plateau},
    parameters::Echo,
};

impl Measure for Echo {
    /// Times of a round trip, and rates on the plateau. The nominal rate is one line per pause or period and
    /// stream, as if a round trip took no time.
    fn metrics(&self, ends: &Ends<'_>) -> Metrics {
        let mut metrics = ping::round_trips(ends);
        let plateaus: Vec<Plateau> = ends.clients.iter().filter_map(|client| client.plateau).collect();
        let longest = |time: fn(&Plateau) -> f64| plateaus.iter().map(time).reduce(f64::max);
        metrics.extend(longest(|plateau| plateau.ramp_seconds).map(|seconds| (Metric::RampSeconds, seconds)));
        let lateness = longest(|plateau| plateau.ramp_lateness_seconds);
        metrics.extend(lateness.map(|seconds| (Metric::RampLateness, seconds)));
        // Without one of the clients, the share would be that of fewer streams than requested.
        let rates: Option<Vec<f64>> = ends
            .clients
            .iter()
            .map(|client| {
                let plateau = client.plateau?;
                quotient(plateau.round_trips as f64, plateau.seconds)
            })
            .collect();
        if let Some(achieved) = rates.map(|rates| rates.iter().sum::<f64>()) {
            let nominal = self.nominal_rate() * ends.clients.len() as f64;
            metrics.insert(Metric::RoundTripsPerSecond, achieved);
            metrics.extend(quotient(achieved, nominal).map(|share| (Metric::AchievedShare, share)));
        }
        let fewest: Option<Vec<u64>> = ends.clients.iter().map(|client| fewest_echoing(client)).collect();
        metrics.extend(fewest.map(|all| (Metric::EchoingStreams, all.iter().sum::<u64>() as f64)));
        metrics
    }

    fn mismatch(&self, ends: &Ends<'_>) -> Option<String> {
        // It is unknown how much a stream had sent when it failed.
        let mut nodes = ends.clients.iter().chain(&ends.servers);
        if nodes.any(|node| node.failures > 0) {
            return None;
        }
        let ((sent, received), (returned, echoed)) = (ends.up(), ends.down());
        let equal = [received, returned, echoed].iter().all(|bytes| *bytes == sent);
        (!equal).then(|| {
            format!(
                "echo: clients sent {sent} bytes, servers received {received} and sent {returned} back, of which \
                 clients received {echoed}"
            )
        })
    }
}

/// The fewest streams that echoed in a sample that is on the plateau as a whole.
fn fewest_echoing(client: &Measured) -> Option<u64> {
    let plateau = client.plateau?;
    let (begin, end) = (plateau.ramp_seconds, plateau.ramp_seconds + plateau.seconds);
    let whole = client
        .samples
        .iter()
        .filter(|sample| sample.at_seconds - sample.interval_seconds >= begin && sample.at_seconds <= end);
    whole
        .filter_map(|sample| Some(sample.echo?.echoing_streams))
        .min()
}
