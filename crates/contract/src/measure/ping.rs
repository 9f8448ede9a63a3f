//! Round trips on a stream.

use super::{
    Metrics,
    ends::{Ends, distribution},
};
use crate::{distribution::Distribution, metric::Metric};

/// Times of a round trip.
pub(super) fn metrics(ends: &Ends<'_>) -> Metrics {
    let mut metrics = Metrics::from([(Metric::Failures, ends.failures())]);
    if let Some(trips) = ends.merged(Distribution::RoundTrip) {
        metrics.extend(distribution(
            &trips,
            [
                Metric::RoundTripMean,
                Metric::RoundTripP50,
                Metric::RoundTripP90,
                Metric::RoundTripP99,
                Metric::RoundTripMax,
            ],
        ));
    }
    metrics
}
