//! What the operator counts, and what it says of runs.

mod runs;

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use kube::runtime::reflector::Store;
use perfrun_contract::metrics::operator;
use perfrun_metrics::Described;
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

use self::runs::Runs;
use crate::controller::Guarded;

/// The operator's metrics.
pub struct Metrics {
    registry: Registry,
    reconciles: Counter,
    errors: Family<ErrorLabels, Counter>,
    duration: Histogram,
    leader: Gauge,
    runs: Runs,
    ready: AtomicBool,
}

/// Labels of failed passes.
#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct ErrorLabels {
    category: &'static str,
}

impl Metrics {
    /// New ones.
    pub fn new() -> Self {
        let mut registry = Registry::default();
        let (reconciles, errors) = (Counter::default(), Family::default());
        registry.add(&operator::RECONCILES, reconciles.clone());
        registry.add(&operator::ERRORS, errors.clone());
        // From 0.5 ms to 8 s.
        let duration = Histogram::new(exponential_buckets(0.0005, 2.0, 15));
        registry.add(&operator::DURATION, duration.clone());
        let leader = Gauge::default();
        registry.add(&operator::LEADER, leader.clone());
        let runs = Runs::default();
        registry.register_collector(Box::new(runs.clone()));
        Self {
            registry,
            reconciles,
            errors,
            duration,
            leader,
            runs,
            ready: AtomicBool::new(false),
        }
    }

    /// A pass has ended, in vain if there is a category of errors.
    pub fn reconciled(&self, took: Duration, failed: Option<&'static str>) {
        self.reconciles.inc();
        self.duration.observe(took.as_secs_f64());
        if let Some(category) = failed {
            self.errors.get_or_create(&ErrorLabels { category }).inc();
        }
    }

    /// Whether this operator acts.
    pub fn lead(&self, leads: bool) {
        self.leader.set(leads.into());
    }

    /// Runs to tell of; none, when it does not act.
    pub fn watch(&self, runs: Option<Store<Guarded>>) {
        self.runs.watch(runs);
    }

    /// The API server has answered.
    pub fn set_ready(&self) {
        self.ready.store(true, Ordering::Relaxed);
    }

    /// Whether the API server has answered.
    pub fn is_ready(&self) -> bool {
        self.ready.load(Ordering::Relaxed)
    }

    /// All of them, in the OpenMetrics text format.
    pub fn encode(&self) -> String {
        perfrun_metrics::encode(&self.registry)
    }
}
