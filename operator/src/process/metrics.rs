//! The metrics of the operator and of its runs.

mod runs;
mod schedules;

use std::time::Duration;

use kube::runtime::reflector::Store;
use perfrun_contract::metrics::operator;
use perfrun_metrics::register;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{
        counter::Counter,
        family::Family,
        gauge::Gauge,
        histogram::{Histogram, exponential_buckets},
    },
    registry::Registry,
};

use self::{
    runs::{Runs, WatchedObjects},
    schedules::Schedules,
};
use crate::api::watched::WatchedSchedule;

pub(crate) struct Metrics {
    registry: Registry,
    reconciles: Counter,
    errors: Family<ErrorLabels, Counter>,
    duration: Histogram,
    leader: Gauge,
    results: Counter,
    runs: Runs,
    schedules: Schedules,
}

/// The labels of errors.
#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct ErrorLabels {
    category: &'static str,
}

impl Metrics {
    pub(crate) fn new() -> Self {
        let mut registry = Registry::default();
        let (reconciles, errors) = (Counter::default(), Family::default());
        register(&mut registry, &operator::RECONCILES, reconciles.clone());
        register(&mut registry, &operator::ERRORS, errors.clone());
        // Buckets from 0.5 ms to 8 s.
        let duration = Histogram::new(exponential_buckets(0.0005, 2.0, 15));
        register(&mut registry, &operator::DURATION, duration.clone());
        let leader = Gauge::default();
        register(&mut registry, &operator::LEADER, leader.clone());
        let results = Counter::default();
        register(&mut registry, &operator::RESULTS, results.clone());
        let runs = Runs::default();
        registry.register_collector(Box::new(runs.clone()));
        let schedules = Schedules::default();
        registry.register_collector(Box::new(schedules.clone()));
        Self {
            registry,
            reconciles,
            errors,
            duration,
            leader,
            results,
            runs,
            schedules,
        }
    }

    /// Counts a reconciliation.
    pub(crate) fn count_reconciliation(&self, took: Duration) {
        self.reconciles.inc();
        self.duration.observe(took.as_secs_f64());
    }

    /// Counts an error of a reconciliation. The category comes from a bounded set.
    pub(crate) fn count_error(&self, category: &'static str) {
        self.errors.get_or_create(&ErrorLabels { category }).inc();
    }

    /// Sets whether this operator leads.
    pub(crate) fn set_leading(&self, leads: bool) {
        self.leader.set(leads.into());
    }

    /// Counts bytes of results that were kept.
    pub(crate) fn count_kept_bytes(&self, bytes: usize) {
        self.results.inc_by(bytes as u64);
    }

    /// Sets the runs to export, with their pods. `None` when this operator does not lead.
    pub(crate) fn export_runs(&self, objects: Option<WatchedObjects>) {
        self.runs.export(objects);
    }

    /// Notes that all runs to export, and their pods, have been listed.
    pub(crate) fn note_listed(&self) {
        self.runs.note_listed();
    }

    /// Sets the schedules to export. `None` when this operator does not lead.
    pub(crate) fn export_schedules(&self, schedules: Option<Store<WatchedSchedule>>) {
        self.schedules.export(schedules);
    }

    /// All metrics, in the OpenMetrics text format.
    pub(crate) fn encode(&self) -> String {
        perfrun_metrics::encode(&self.registry)
    }
}
