//! Opening substreams: how long each takes, and how many open per second.

use super::{
    Measure, Metrics,
    ends::{Ends, distribution, max, mean, quotient},
};
use crate::{distribution::Distribution, metric::Metric, parameters::Substreams, workload::OpenMode};

impl Measure for Substreams {
    /// Times to open a substream, and the rate at which they open.
    fn metrics(&self, ends: &Ends<'_>) -> Metrics {
        let mut metrics = Metrics::from([(Metric::Failures, ends.failures())]);
        if let Some(open) = ends.merged(Distribution::Open) {
            metrics.extend(distribution(&open, Metric::OPEN));
            let seconds = match self.mode {
                OpenMode::Burst => max(&open),
                // Each substream is timed from its own request, so that the longest time is not the time of
                // all of them.
                OpenMode::Paced => ends.slowest(),
            };
            let rate = quotient(open.len() as f64, seconds);
            metrics.extend(rate.map(|rate| (Metric::OpensPerSecond, rate)));
        }
        let compat = ends.merged(Distribution::OpenCompat);
        metrics.extend(compat.map(|open| (Metric::OpenMeanCompat, mean(&open))));
        metrics
    }
}
