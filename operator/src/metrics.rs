//! What the operator counts.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use kube::runtime::reflector::Store;
use perfrun_api::spec::Phase;
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric, text::encode},
    metrics::{
        counter::Counter,
        family::Family,
        gauge::{ConstGauge, Gauge},
        histogram::{Histogram, exponential_buckets},
    },
    registry::{Registry, Unit},
};

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

/// Runs by phase, counted when they are asked for.
#[derive(Clone, Default)]
struct Runs(Arc<Mutex<Option<Store<Guarded>>>>);

impl Metrics {
    /// New ones.
    pub fn new() -> Self {
        let mut registry = Registry::with_prefix("perfrun_operator");
        let reconciles = Counter::default();
        registry.register("reconciles", "Passes over a PerfRun", reconciles.clone());
        let errors = Family::default();
        registry.register(
            "reconcile_errors",
            "Passes that failed, by what failed",
            errors.clone(),
        );
        // From 0.5 ms to 8 s.
        let duration = Histogram::new(exponential_buckets(0.0005, 2.0, 15));
        let help = "Duration of a pass over a PerfRun";
        registry.register_with_unit("reconcile_duration", help, Unit::Seconds, duration.clone());
        let leader = Gauge::default();
        registry.register(
            "leader",
            "Whether this operator acts (1), or waits to (0)",
            leader.clone(),
        );
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

    /// Runs to count; none, when it does not act.
    pub fn watch(&self, runs: Option<Store<Guarded>>) {
        *self.runs.0.lock().unwrap_or_else(PoisonError::into_inner) = runs;
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
        let mut text = String::new();
        encode(&mut text, &self.registry).expect("a string takes all that is written to it");
        text
    }
}

impl fmt::Debug for Runs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Runs").finish_non_exhaustive()
    }
}

impl Collector for Runs {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let phases = [
            Phase::Pending,
            Phase::Provisioning,
            Phase::Running,
            Phase::Succeeded,
            Phase::Failed,
            Phase::Cancelled,
        ];
        let mut counts: BTreeMap<&str, i64> = phases.iter().map(|phase| (phase.as_ref(), 0)).collect();
        for run in self
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .iter()
            .flat_map(Store::state)
        {
            let phase = run.0.as_ref().ok().and_then(|run| run.status.as_ref()?.phase);
            *counts.entry(phases[0].as_ref()).or_default() += i64::from(phase.is_none());
            if let Some(count) = phase.and_then(|phase| counts.get_mut(phase.as_ref())) {
                *count += 1;
            }
        }
        let gauge = ConstGauge::new(0i64);
        let mut family = encoder.encode_descriptor("runs", "PerfRuns by phase", None, gauge.metric_type())?;
        for (phase, count) in counts {
            ConstGauge::new(count).encode(family.encode_family(&[("phase", phase)])?)?;
        }
        Ok(())
    }
}
