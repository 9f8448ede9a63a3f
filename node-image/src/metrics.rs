//! Prometheus metrics of the node. Labels are bounded: enums and the name of the run, never a peer.

use std::sync::{Arc, Mutex};

use perfrun_api::{
    histogram::Recorder,
    matrix::{Stack, Transport},
    node::{Distribution, Reason},
    plan::Role,
};
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric, text},
    metrics::{
        MetricType,
        counter::{ConstCounter, Counter},
        family::Family,
        gauge::{ConstGauge, Gauge},
        histogram::{Histogram, exponential_buckets},
    },
    registry::{Registry, Unit},
};

use crate::{process::Usage, stack::StackMetrics};

/// Everything the node exports.
pub struct Metrics {
    registry: Mutex<Registry>,
    families: Families,
    stacks: Arc<StackMetrics>,
}

#[derive(Clone, Debug, Eq, Hash, PartialEq, EncodeLabelSet)]
struct Labels {
    stack: &'static str,
    transport: &'static str,
}

#[derive(Clone, Debug, Eq, Hash, PartialEq, EncodeLabelSet)]
struct ByteLabels {
    stack: &'static str,
    transport: &'static str,
    direction: &'static str,
}

#[derive(Clone, Debug, Eq, Hash, PartialEq, EncodeLabelSet)]
struct PhaseLabels {
    stack: &'static str,
    transport: &'static str,
    phase: &'static str,
}

#[derive(Clone, Debug, Eq, Hash, PartialEq, EncodeLabelSet)]
struct TrialLabels {
    stack: &'static str,
    transport: &'static str,
    outcome: &'static str,
}

type Histograms<L> = Family<L, Histogram, fn() -> Histogram>;

#[derive(Clone)]
struct Families {
    bytes: Family<ByteLabels, Counter>,
    connections: Family<Labels, Counter>,
    streams: Family<Labels, Counter>,
    failures: Family<Labels, Counter>,
    trials: Family<TrialLabels, Counter>,
    running: Gauge,
    handshake: Histograms<PhaseLabels>,
    open: Histograms<Labels>,
    round_trip: Histograms<Labels>,
}

/// 10 µs to 40 s, each bucket twice the last.
fn latency_histogram() -> Histogram {
    Histogram::new(exponential_buckets(10e-6, 2.0, 23))
}

impl Metrics {
    /// Metrics that all carry `run` and `role`.
    pub fn new(run: String, role: Role) -> Self {
        let labels = [
            ("run".into(), run.into()),
            ("role".into(), role.to_string().into()),
        ];
        let mut registry = Registry::with_prefix_and_labels("perfrun", labels.into_iter());
        let families = Families {
            bytes: Family::default(),
            connections: Family::default(),
            streams: Family::default(),
            failures: Family::default(),
            trials: Family::default(),
            running: Gauge::default(),
            handshake: Family::new_with_constructor(latency_histogram),
            open: Family::new_with_constructor(latency_histogram),
            round_trip: Family::new_with_constructor(latency_histogram),
        };
        let f = &families;
        registry.register_with_unit(
            "payload",
            "Payload handed to or taken from a stack",
            Unit::Bytes,
            f.bytes.clone(),
        );
        registry.register("connections", "Connections established", f.connections.clone());
        registry.register("streams", "Streams opened", f.streams.clone());
        registry.register(
            "operation_failures",
            "Opens, handshakes and round trips that failed",
            f.failures.clone(),
        );
        registry.register(
            "trials",
            "Trials ended, by outcome: completed, or the reason of the failure",
            f.trials.clone(),
        );
        registry.register("trials_running", "Trials that have not ended", f.running.clone());
        let seconds = Unit::Seconds;
        registry.register_with_unit(
            "handshake",
            "Dial until the phase was over",
            seconds.clone(),
            f.handshake.clone(),
        );
        registry.register_with_unit(
            "substream_open",
            "Request until a substream was open",
            seconds.clone(),
            f.open.clone(),
        );
        registry.register_with_unit(
            "round_trip",
            "Application round trip",
            seconds,
            f.round_trip.clone(),
        );
        registry.register_collector(Box::new(ProcessCollector));
        let stacks = Arc::new(StackMetrics::new(&mut registry));
        Self {
            registry: Mutex::new(registry),
            families,
            stacks,
        }
    }

    /// What stacks register with.
    pub fn stacks(&self) -> Arc<StackMetrics> {
        self.stacks.clone()
    }

    /// The metrics of one trial.
    pub fn trial(&self, stack: Stack, transport: Transport) -> TrialMetrics {
        self.families.running.inc();
        TrialMetrics(Some(Labelled {
            stack: name(stack),
            transport: name(transport),
            families: self.families.clone(),
        }))
    }

    /// All metrics in OpenMetrics text.
    pub fn encode(&self) -> String {
        let mut out = String::new();
        let registry = self
            .registry
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        text::encode(&mut out, &registry).expect("writing to memory cannot fail");
        out
    }
}

/// The static name behind an enum's label.
fn name<T: Into<&'static str>>(value: T) -> &'static str {
    value.into()
}

/// Where one trial's counts go; by default nowhere.
#[derive(Clone, Default)]
pub struct TrialMetrics(Option<Labelled>);

#[derive(Clone)]
struct Labelled {
    stack: &'static str,
    transport: &'static str,
    families: Families,
}

impl Labelled {
    fn labels(&self) -> Labels {
        Labels {
            stack: self.stack,
            transport: self.transport,
        }
    }
}

impl TrialMetrics {
    /// Adds what was counted since the last call.
    pub fn add(&self, sent: u64, received: u64, connections: u64, streams: u64, failures: u64) {
        let Some(to) = &self.0 else { return };
        for (direction, bytes) in [("sent", sent), ("received", received)] {
            let labels = ByteLabels {
                stack: to.stack,
                transport: to.transport,
                direction,
            };
            to.families.bytes.get_or_create(&labels).inc_by(bytes);
        }
        to.families
            .connections
            .get_or_create(&to.labels())
            .inc_by(connections);
        to.families.streams.get_or_create(&to.labels()).inc_by(streams);
        to.families.failures.get_or_create(&to.labels()).inc_by(failures);
    }

    /// Adds a trial's distribution.
    pub fn observe(&self, distribution: Distribution, recorder: &Recorder) {
        let Some(to) = &self.0 else { return };
        let phase = |phase| PhaseLabels {
            stack: to.stack,
            transport: to.transport,
            phase,
        };
        let histogram = match distribution {
            Distribution::HandshakeTransport => to.families.handshake.get_or_create(&phase("transport")),
            Distribution::HandshakeEstablished => to.families.handshake.get_or_create(&phase("established")),
            Distribution::HandshakeFirstByte => to.families.handshake.get_or_create(&phase("first_byte")),
            Distribution::Open => to.families.open.get_or_create(&to.labels()),
            // The same opens by another clock.
            Distribution::OpenCompat => return,
            Distribution::RoundTrip => to.families.round_trip.get_or_create(&to.labels()),
        };
        for value in recorder.iter_recorded() {
            for _ in 0..value.count_at_value() {
                histogram.observe(value.value_iterated_to() as f64 / 1e9);
            }
        }
    }

    /// Counts the trial as ended.
    pub fn ended(&self, failure: Option<Reason>) {
        let Some(to) = &self.0 else { return };
        let outcome = failure.map_or("Completed", name);
        let labels = TrialLabels {
            stack: to.stack,
            transport: to.transport,
            outcome,
        };
        to.families.trials.get_or_create(&labels).inc();
        to.families.running.dec();
    }
}

/// What the process uses, read when scraped.
#[derive(Debug)]
struct ProcessCollector;

impl Collector for ProcessCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let usage = Usage::now();
        let cpu = encoder.encode_descriptor(
            "process_cpu",
            "CPU time of the node's process",
            Some(&Unit::Seconds),
            MetricType::Counter,
        )?;
        encode_modes(
            cpu,
            usage
                .cpu_modes()
                .map(|(mode, seconds)| ("mode", mode, ConstCounter::new(seconds))),
        )?;
        let switches = encoder.encode_descriptor(
            "process_context_switches",
            "Context switches of the node's process",
            None,
            MetricType::Counter,
        )?;
        encode_modes(
            switches,
            usage
                .context_switches()
                .map(|(kind, count)| ("kind", kind, ConstCounter::new(count))),
        )?;
        let memory = ConstGauge::new(usage.rss() as i64);
        memory.encode(encoder.encode_descriptor(
            "process_resident_memory",
            "Resident memory of the node's process",
            Some(&Unit::Bytes),
            MetricType::Gauge,
        )?)?;
        if let Some(seconds) = usage.throttled() {
            ConstCounter::new(seconds).encode(encoder.encode_descriptor(
                "cgroup_throttled",
                "Time for which the control group held the node back",
                Some(&Unit::Seconds),
                MetricType::Counter,
            )?)?;
        }
        if let Some(segments) = usage.retransmits() {
            ConstCounter::new(segments).encode(encoder.encode_descriptor(
                "tcp_retransmitted_segments",
                "TCP segments sent again in the node's network namespace",
                None,
                MetricType::Counter,
            )?)?;
        }
        Ok(())
    }
}

fn encode_modes<M: EncodeMetric, const N: usize>(
    mut encoder: prometheus_client::encoding::MetricEncoder<'_>,
    values: [(&str, &str, M); N],
) -> Result<(), std::fmt::Error> {
    values
        .into_iter()
        .try_for_each(|(label, value, metric)| metric.encode(encoder.encode_family(&[(label, value)])?))
}
