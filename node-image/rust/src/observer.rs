//! Observes what a trial counts and what it costs.

use std::sync::Arc;

use parking_lot::Mutex;
use perfrun_contract::{
    histogram::Recorder,
    node::{Resources, Sample},
};
use perfrun_stack::UsedCongestion;

use crate::{
    metrics::TrialMetrics,
    process,
    process::Usage,
    sampler::{Reading, Sampled, Sampler, Sampling},
    wire::Counters,
};

/// The observer of one trial.
pub(crate) struct Observer {
    pub(crate) counters: Arc<Counters>,
    /// The trial's Prometheus metrics.
    pub(crate) metrics: TrialMetrics,
    /// The congestion control of the trial's connections.
    pub(crate) congestion: UsedCongestion,
    /// Whether the kernel has reset the peak of earlier trials.
    peak_is_ours: bool,
    sampling: Sampling,
    watch: Mutex<Watch>,
}

enum Watch {
    /// The usage when the workload began, and its sampler.
    Running(Usage, Sampler),
    Finished(Box<Observations>),
}

/// What an observer measured of a trial. Bytes that a stream counts after it was cut off are in none of the
/// parts, so that totals, samples and metrics always agree.
#[derive(Clone)]
pub(crate) struct Observations {
    /// The last reading of the counters.
    pub(crate) totals: Reading,
    /// The usage while the workload ran.
    pub(crate) resources: Resources,
    /// The intervals of the workload.
    pub(crate) samples: Vec<Sample>,
    /// Round trips of an echo. `None` for other workloads.
    pub(crate) round_trips: Option<Recorder>,
}

impl Observer {
    /// Resets what earlier trials left behind and starts to observe.
    pub(crate) fn new(metrics: TrialMetrics, sampling: Sampling) -> Self {
        let peak_is_ours = process::reset_peak();
        let counters = Arc::<Counters>::default();
        let sampler = Sampler::start(
            Reading::now(&counters),
            counters.clone(),
            metrics.clone(),
            sampling,
        );
        let watch = Mutex::new(Watch::Running(Usage::now(), sampler));
        Self {
            counters,
            metrics,
            congestion: UsedCongestion::default(),
            peak_is_ours,
            sampling,
            watch,
        }
    }

    /// Marks the beginning of the workload: earlier usage is not charged to it.
    pub(crate) fn begin(&self) {
        let mut watch = self.watch.lock();
        if let Watch::Running(usage, sampler) = &mut *watch {
            // The old sampler passes its last reading on to the metrics, and the new one continues from
            // there.
            let reading = sampler.finish(&self.counters).last;
            *sampler = Sampler::start(
                reading,
                self.counters.clone(),
                self.metrics.clone(),
                self.sampling,
            );
            *usage = Usage::now();
        }
    }

    /// The observations until the first call, which marks the end of the workload.
    pub(crate) fn finish(&self) -> Observations {
        let mut watch = self.watch.lock();
        let observations = match &*watch {
            Watch::Finished(observations) => return Observations::clone(observations),
            Watch::Running(start, sampler) => {
                let end = Usage::now();
                let Sampled {
                    last: totals,
                    samples,
                    rss_peak,
                    allocated_peak,
                    round_trips,
                } = sampler.finish(&self.counters);
                let rss_peak = process::peak().filter(|_| self.peak_is_ours).unwrap_or(rss_peak);
                Observations {
                    totals,
                    resources: end.since(start, rss_peak, allocated_peak),
                    samples,
                    round_trips,
                }
            }
        };
        *watch = Watch::Finished(Box::new(observations.clone()));
        observations
    }
}
