//! Round trips on a stream.

use super::{
    Measure, Metrics,
    ends::{Ends, distribution},
};
use crate::{distribution::Distribution, metric::Metric, parameters::Ping};

impl Measure for Ping {
    fn metrics(&self, ends: &Ends<'_>) -> Metrics {
        round_trips(ends)
    }

    fn mismatch(&self, ends: &Ends<'_>) -> Option<String> {
        ends.lost_pings()
    }
}

/// Times of a round trip.
pub(super) fn round_trips(ends: &Ends<'_>) -> Metrics {
    let mut metrics = Metrics::from([(Metric::Failures, ends.failures())]);
    if let Some(trips) = ends.merged(Distribution::RoundTrip) {
        metrics.extend(distribution(&trips, Metric::ROUND_TRIP));
    }
    metrics
}
