//! Round trips on a stream.

use super::{
    Metrics,
    ends::{Ends, max, mean, quantile},
};
use crate::{node::Distribution, record::Metric};

/// Times of a round trip.
pub(super) fn metrics(ends: &Ends<'_>) -> Metrics {
    let mut metrics = Metrics::from([(Metric::Failures, ends.failures())]);
    if let Some(trips) = ends.merged(Distribution::RoundTrip) {
        metrics.extend([
            (Metric::RoundTripMean, mean(&trips)),
            (Metric::RoundTripP50, quantile(&trips, 0.5)),
            (Metric::RoundTripP90, quantile(&trips, 0.9)),
            (Metric::RoundTripP99, quantile(&trips, 0.99)),
            (Metric::RoundTripMax, max(&trips)),
        ]);
    }
    metrics
}
