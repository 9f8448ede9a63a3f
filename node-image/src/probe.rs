//! Watches what a trial counts and what it costs.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use perfrun_api::node::{Resources, Sample};

use crate::{metrics::TrialMetrics, process, process::Usage, sampler::Sampler, wire::Counters};

/// The observer of one trial.
pub struct Probe {
    /// What the trial counts.
    pub counters: Arc<Counters>,
    /// Where it shows in Prometheus.
    pub metrics: TrialMetrics,
    /// Whether the kernel forgot the peak of earlier trials.
    peak_is_ours: bool,
    /// What was used when the workload began, and its sampler; nothing after the end.
    begun: Mutex<Option<(Usage, Sampler)>>,
}

impl Probe {
    /// Cleans up after earlier trials and begins to watch.
    pub fn new(metrics: TrialMetrics) -> Self {
        let peak_is_ours = process::reset_peak();
        let probe = Self { counters: Arc::default(), metrics, peak_is_ours, begun: Mutex::default() };
        probe.begin();
        probe
    }

    /// The workload begins now: what was used until here is not charged to it.
    pub fn begin(&self) {
        let fresh = (Usage::now(), Sampler::start(self.counters.clone(), self.metrics.clone()));
        if let Some((_, sampler)) = self.lock().replace(fresh) {
            // It passes what it has on to the metrics.
            sampler.finish(&self.counters);
        }
    }

    /// The workload ended now: what was used since it began, and what happened in each interval.
    pub fn finish(&self) -> (Resources, Vec<Sample>) {
        let end = Usage::now();
        let Some((start, sampler)) = self.lock().take() else { return Default::default() };
        let (samples, sampled_peak) = sampler.finish(&self.counters);
        let peak = process::peak().filter(|_| self.peak_is_ours).unwrap_or(sampled_peak);
        (end.since(&start, peak), samples)
    }

    fn lock(&self) -> MutexGuard<'_, Option<(Usage, Sampler)>> {
        self.begun.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
