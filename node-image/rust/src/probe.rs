//! Watches what a trial counts and what it costs.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use perfrun_contract::{
    histogram::Recorder,
    node::{Resources, Sample},
};

use crate::{
    metrics::TrialMetrics,
    process,
    process::Usage,
    sampler::{Reading, Sampled, Sampler, Sampling},
    wire::Counters,
};

/// The observer of one trial.
pub struct Probe {
    /// What the trial counts.
    pub counters: Arc<Counters>,
    /// Where it shows in Prometheus.
    pub metrics: TrialMetrics,
    /// Whether the kernel forgot the peak of earlier trials.
    peak_is_ours: bool,
    sampling: Sampling,
    watch: Mutex<Watch>,
}

enum Watch {
    /// What was used when the workload began, and its sampler.
    Running(Usage, Sampler),
    Finished(Box<Seen>),
}

/// What a probe saw of a trial. Bytes counted later, by a stream that was just cut off, are in none of its parts, so
/// that totals, samples and metrics always agree.
#[derive(Clone)]
pub struct Seen {
    /// What was counted.
    pub totals: Reading,
    /// What was used while the workload ran.
    pub resources: Resources,
    /// What happened in each interval of it.
    pub samples: Vec<Sample>,
    /// Round trips of an echo.
    pub round_trips: Option<Recorder>,
}

impl Probe {
    /// Cleans up after earlier trials and begins to watch.
    pub fn new(metrics: TrialMetrics, sampling: Sampling) -> Self {
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
            peak_is_ours,
            sampling,
            watch,
        }
    }

    /// The workload begins now: what was used until here is not charged to it.
    pub fn begin(&self) {
        let mut watch = self.lock();
        if let Watch::Running(usage, sampler) = &mut *watch {
            // The one passes on to the metrics what it has, the other continues from there.
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

    /// The workload ended with the first call; what was seen until then.
    pub fn finish(&self) -> Seen {
        let mut watch = self.lock();
        let seen = match &*watch {
            Watch::Finished(seen) => return Seen::clone(seen),
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
                Seen {
                    totals,
                    resources: end.since(start, rss_peak, allocated_peak),
                    samples,
                    round_trips,
                }
            }
        };
        *watch = Watch::Finished(Box::new(seen.clone()));
        seen
    }

    fn lock(&self) -> MutexGuard<'_, Watch> {
        self.watch.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
