//! Prometheus metrics of the node, as [`perfrun_contract::metrics`] describes them. Labels have values of the
//! plan, and never name a peer.

pub(crate) mod process;

use std::{borrow::Cow, sync::Arc};

use parking_lot::Mutex;
use perfrun_contract::{
    distribution::Distribution,
    histogram::Recorder,
    matrix::{Stack, Transport},
    metrics::node,
    node::{Reason, TrialLabels},
    role::Role,
};
use perfrun_metrics::{Scrapes, encode_samples, register};
use perfrun_stack::StackMetrics;
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeLabelSet},
    metrics::{
        counter::Counter,
        family::Family,
        gauge::Gauge,
        histogram::{Histogram, exponential_buckets},
    },
    registry::Registry,
};

use self::process::ProcessCollector;
use crate::{args::MetricsArgs, wire::Counts};

/// All metrics of the node.
pub(crate) struct Metrics {
    pub(crate) scrapes: Arc<Scrapes>,
    registry: Mutex<Registry>,
    families: Families,
    stacks: Arc<StackMetrics>,
}

#[derive(Clone, Debug, Eq, Hash, PartialEq, EncodeLabelSet)]
struct Labels {
    stack: &'static str,
    transport: &'static str,
    network: Arc<str>,
}

#[derive(Clone, Debug, Eq, Hash, PartialEq, EncodeLabelSet)]
struct ByteLabels {
    #[prometheus(flatten)]
    of: Labels,
    direction: &'static str,
}

#[derive(Clone, Debug, Eq, Hash, PartialEq, EncodeLabelSet)]
struct PhaseLabels {
    #[prometheus(flatten)]
    of: Labels,
    phase: &'static str,
}

#[derive(Clone, Debug, Eq, Hash, PartialEq, EncodeLabelSet)]
struct TrialOutcome {
    #[prometheus(flatten)]
    of: Labels,
    outcome: &'static str,
}

#[derive(Clone, Debug, Eq, Hash, PartialEq, EncodeLabelSet)]
struct RefusedLabels {
    #[prometheus(flatten)]
    of: Labels,
    what: &'static str,
    status: &'static str,
}

type Histograms<L> = Family<L, Histogram, fn() -> Histogram>;

#[derive(Clone)]
struct Families {
    bytes: Family<ByteLabels, Counter>,
    connections: Family<Labels, Counter>,
    streams: Family<Labels, Counter>,
    operations: Family<Labels, Counter>,
    failures: Family<Labels, Counter>,
    echoing: Family<Labels, Gauge>,
    trials: Family<TrialOutcome, Counter>,
    cell: LastCell,
    scrapes: Arc<Scrapes>,
    handshake: Histograms<PhaseLabels>,
    open: Histograms<Labels>,
    round_trip: Histograms<Labels>,
    transfer: Histograms<Labels>,
    circuits: Family<Labels, Gauge>,
    refused: Family<RefusedLabels, Counter>,
}

/// The cell of the last trial. `None` before the first.
#[derive(Clone, Debug, Default)]
struct LastCell(Arc<Mutex<Option<Last>>>);

#[derive(Clone, Debug)]
struct Last {
    cell: Arc<str>,
    of: Labels,
    in_progress: bool,
}

/// Buckets from 10 µs to 40 s, each twice the one before.
fn latency_histogram() -> Histogram {
    Histogram::new(exponential_buckets(10e-6, 2.0, 23))
}

/// Buckets from 1 ms to an hour, each twice the one before.
fn transfer_histogram() -> Histogram {
    Histogram::new(exponential_buckets(1e-3, 2.0, 23))
}

/// A registry that adds the labels of a node to all samples. The process is the node, or its link agent.
pub(crate) fn registry(metrics_args: &MetricsArgs, role: &str) -> Registry {
    Registry::with_labels(labels(metrics_args, role))
}

fn labels(
    metrics_args: &MetricsArgs,
    role: &str,
) -> impl Iterator<Item = (Cow<'static, str>, Cow<'static, str>)> {
    let MetricsArgs {
        run_namespace,
        run,
        run_node,
        ..
    } = metrics_args;
    let labels = [
        ("run_namespace", run_namespace.as_str()),
        ("run", run),
        ("run_node", run_node),
        ("role", role),
    ];
    // Prometheus treats an empty label like a missing one.
    let labels = labels.map(|(name, value)| (name, value.to_owned()));
    let labels = labels.into_iter().filter(|(_, value)| !value.is_empty());
    labels.map(|(name, value)| (name.into(), value.into()))
}

impl Metrics {
    /// Registers all metrics, with the labels of the node.
    pub(crate) fn new(metrics_args: &MetricsArgs, role: Role) -> Self {
        let mut root = Registry::default();
        // libp2p has its own label `role`, and Prometheus refuses a page with a duplicate label.
        let libp2p = root.sub_registry_with_labels(labels(metrics_args, ""));
        let stacks = Arc::new(StackMetrics::new(libp2p.sub_registry_with_prefix("perfrun")));
        let registry = root.sub_registry_with_labels(labels(metrics_args, &role.to_string()));
        let families = Families {
            bytes: Family::default(),
            connections: Family::default(),
            streams: Family::default(),
            operations: Family::default(),
            failures: Family::default(),
            echoing: Family::default(),
            trials: Family::default(),
            cell: LastCell::default(),
            scrapes: Arc::default(),
            handshake: Family::new_with_constructor(latency_histogram),
            open: Family::new_with_constructor(latency_histogram),
            round_trip: Family::new_with_constructor(latency_histogram),
            transfer: Family::new_with_constructor(transfer_histogram),
            circuits: Family::default(),
            refused: Family::default(),
        };
        let f = &families;
        register(registry, &node::PAYLOAD, f.bytes.clone());
        register(registry, &node::CONNECTIONS, f.connections.clone());
        register(registry, &node::STREAMS, f.streams.clone());
        register(registry, &node::OPERATIONS, f.operations.clone());
        register(registry, &node::FAILURES, f.failures.clone());
        register(registry, &node::ECHOING, f.echoing.clone());
        register(registry, &node::TRIALS, f.trials.clone());
        registry.register_collector(Box::new(f.cell.clone()));
        register(registry, &node::HANDSHAKE, f.handshake.clone());
        register(registry, &node::OPEN, f.open.clone());
        register(registry, &node::ROUND_TRIP, f.round_trip.clone());
        register(registry, &node::TRANSFER, f.transfer.clone());
        register(registry, &node::CIRCUITS, f.circuits.clone());
        register(registry, &node::REFUSED, f.refused.clone());
        stacks.register(registry);
        registry.register_collector(Box::new(ProcessCollector));
        Self {
            scrapes: families.scrapes.clone(),
            registry: Mutex::new(root),
            families,
            stacks,
        }
    }

    /// Metrics that stacks keep of themselves.
    pub(crate) fn stacks(&self) -> Arc<StackMetrics> {
        self.stacks.clone()
    }

    /// The metrics of one trial.
    pub(crate) fn trial(&self, stack: Stack, transport: Transport, labels: &TrialLabels) -> TrialMetrics {
        let of = Labels {
            stack: name(stack),
            transport: name(transport),
            network: labels.network.as_str().into(),
        };
        self.families.cell.set(&labels.cell, &of);
        // For all workloads: a panel without a series would look like a fault.
        self.families.echoing.get_or_create(&of).set(0);
        TrialMetrics(Some(Labelled {
            of,
            families: self.families.clone(),
        }))
    }

    /// All metrics in OpenMetrics text.
    pub(crate) fn encode(&self) -> String {
        perfrun_metrics::encode(&self.registry.lock())
    }
}

impl LastCell {
    fn set(&self, cell: &str, of: &Labels) {
        *self.0.lock() = Some(Last {
            cell: cell.into(),
            of: of.clone(),
            in_progress: true,
        });
    }

    fn end(&self) {
        if let Some(last) = &mut *self.0.lock() {
            last.in_progress = false;
        }
    }
}

impl Collector for LastCell {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let last = self.0.lock().clone().map(|last| {
            let Last {
                cell,
                of,
                in_progress,
            } = last;
            let labels = [
                ("cell", cell.to_string()),
                ("stack", of.stack.to_owned()),
                ("transport", of.transport.to_owned()),
                ("network", of.network.to_string()),
            ];
            (labels, f64::from(u8::from(in_progress)))
        });
        encode_samples(&mut encoder, &node::CELL_RUNNING, last)
    }
}

/// The name of a value as a label.
fn name<T: Into<&'static str>>(value: T) -> &'static str {
    value.into()
}

/// The metrics of one trial. The default discards everything.
#[derive(Clone, Default)]
pub(crate) struct TrialMetrics(Option<Labelled>);

#[derive(Clone)]
struct Labelled {
    of: Labels,
    families: Families,
}

impl TrialMetrics {
    /// Adds what was counted since the last call.
    pub(crate) fn add(&self, counted: &Counts) {
        let Some(to) = &self.0 else { return };
        for (direction, bytes) in [("sent", counted.sent), ("received", counted.received)] {
            let labels = ByteLabels {
                of: to.of.clone(),
                direction,
            };
            to.families.bytes.get_or_create(&labels).inc_by(bytes);
        }
        to.families
            .connections
            .get_or_create(&to.of)
            .inc_by(counted.connections);
        to.families.streams.get_or_create(&to.of).inc_by(counted.streams);
        to.families
            .operations
            .get_or_create(&to.of)
            .inc_by(counted.operations);
        to.families
            .failures
            .get_or_create(&to.of)
            .inc_by(counted.failures);
    }

    /// Sets the number of open circuits.
    pub(crate) fn set_circuits(&self, count: u64) {
        let Some(to) = &self.0 else { return };
        let circuits = to.families.circuits.get_or_create(&to.of);
        circuits.set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// Counts a refusal by a relay.
    pub(crate) fn count_refusal(&self, what: &'static str, status: &'static str) {
        let Some(to) = &self.0 else { return };
        let of = to.of.clone();
        let labels = RefusedLabels { of, what, status };
        to.families.refused.get_or_create(&labels).inc();
    }

    /// Sets the number of streams that echoed in the last interval.
    pub(crate) fn set_echoing(&self, streams: u64) {
        let Some(to) = &self.0 else { return };
        let streams = i64::try_from(streams).unwrap_or(i64::MAX);
        to.families.echoing.get_or_create(&to.of).set(streams);
    }

    /// Adds a trial's distribution.
    pub(crate) fn observe(&self, distribution: Distribution, recorder: &Recorder) {
        let Some(to) = &self.0 else { return };
        let phase = |phase| PhaseLabels {
            of: to.of.clone(),
            phase,
        };
        let histogram = match distribution {
            Distribution::HandshakeTransport => to.families.handshake.get_or_create(&phase("transport")),
            Distribution::HandshakeEstablished => to.families.handshake.get_or_create(&phase("established")),
            Distribution::HandshakeFirstByte => to.families.handshake.get_or_create(&phase("first_byte")),
            Distribution::RelayConnected => to.families.handshake.get_or_create(&phase("relay")),
            Distribution::Reservation => to.families.handshake.get_or_create(&phase("reservation")),
            Distribution::Transfer => to.families.transfer.get_or_create(&to.of),
            Distribution::Open => to.families.open.get_or_create(&to.of),
            // `OpenCompat` times the opens of `Open` by another clock. The others are for the record only.
            Distribution::OpenCompat
            | Distribution::RelayRoundTrip
            | Distribution::FirstByte
            | Distribution::OneWay
            | Distribution::Lateness
            | Distribution::Newer(_) => return,
            Distribution::RoundTrip => to.families.round_trip.get_or_create(&to.of),
        };
        for value in recorder.iter_recorded() {
            for _ in 0..value.count_at_value() {
                histogram.observe(value.value_iterated_to() as f64 / 1e9);
            }
        }
    }

    /// Counts the trial as ended.
    pub(crate) fn count_end(&self, failure: Option<Reason>) {
        let Some(to) = &self.0 else { return };
        let outcome = failure.map_or("Completed", name);
        let labels = TrialOutcome {
            of: to.of.clone(),
            outcome,
        };
        to.families.trials.get_or_create(&labels).inc();
        self.set_echoing(0);
        to.families.cell.end();
        to.families.scrapes.note_change();
    }
}
