//! Prometheus metrics of the node, as [`perfrun_contract::metrics`] describes them. Labels are words of the plan, never a peer.

pub mod process;

use std::{
    borrow::Cow,
    sync::{Arc, Mutex, PoisonError},
};

use perfrun_contract::{
    histogram::Recorder,
    matrix::{Stack, Transport},
    metrics::node,
    node::{Distribution, Reason, Role, TrialLabels},
};
use perfrun_metrics::{Described, Scrapes, encode_samples};
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
use crate::{args::Observed, stack::StackMetrics};

/// Everything the node exports.
pub struct Metrics {
    /// Who has read it.
    pub scrapes: Arc<Scrapes>,
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

/// The cell of the last trial.
#[derive(Clone, Debug, Default)]
struct LastCell(Arc<Mutex<Option<Last>>>);

#[derive(Clone, Debug)]
struct Last {
    cell: Arc<str>,
    of: Labels,
    goes_on: bool,
}

/// 10 µs to 40 s, each bucket twice the last.
fn latency_histogram() -> Histogram {
    Histogram::new(exponential_buckets(10e-6, 2.0, 23))
}

/// 1 ms to an hour, each bucket twice the last.
fn transfer_histogram() -> Histogram {
    Histogram::new(exponential_buckets(1e-3, 2.0, 23))
}

/// A registry whose samples all carry the labels of the node that this process is or belongs to.
pub fn registry(observed: &Observed, role: &str) -> Registry {
    Registry::with_labels(labels(observed, role))
}

fn labels(observed: &Observed, role: &str) -> impl Iterator<Item = (Cow<'static, str>, Cow<'static, str>)> {
    let Observed {
        run_namespace,
        run,
        run_node,
        ..
    } = observed;
    let labels = [
        ("run_namespace", run_namespace.as_str()),
        ("run", run),
        ("run_node", run_node),
        ("role", role),
    ];
    // An empty label is as good as none.
    let labels = labels.map(|(name, value)| (name, value.to_owned()));
    let labels = labels.into_iter().filter(|(_, value)| !value.is_empty());
    labels.map(|(name, value)| (name.into(), value.into()))
}

impl Metrics {
    /// Metrics that all carry the labels of the node.
    pub fn new(observed: &Observed, role: Role) -> Self {
        let mut root = Registry::default();
        // libp2p has a label `role` of its own, and Prometheus refuses a whole page for a label that is there twice.
        let libp2p = root.sub_registry_with_labels(labels(observed, ""));
        let stacks = Arc::new(StackMetrics::new(libp2p.sub_registry_with_prefix("perfrun")));
        let registry = root.sub_registry_with_labels(labels(observed, &role.to_string()));
        let families = Families {
            bytes: Family::default(),
            connections: Family::default(),
            streams: Family::default(),
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
        registry.add(&node::PAYLOAD, f.bytes.clone());
        registry.add(&node::CONNECTIONS, f.connections.clone());
        registry.add(&node::STREAMS, f.streams.clone());
        registry.add(&node::FAILURES, f.failures.clone());
        registry.add(&node::ECHOING, f.echoing.clone());
        registry.add(&node::TRIALS, f.trials.clone());
        registry.register_collector(Box::new(f.cell.clone()));
        registry.add(&node::HANDSHAKE, f.handshake.clone());
        registry.add(&node::OPEN, f.open.clone());
        registry.add(&node::ROUND_TRIP, f.round_trip.clone());
        registry.add(&node::TRANSFER, f.transfer.clone());
        registry.add(&node::CIRCUITS, f.circuits.clone());
        registry.add(&node::REFUSED, f.refused.clone());
        registry.register_collector(Box::new(ProcessCollector));
        Self {
            scrapes: families.scrapes.clone(),
            registry: Mutex::new(root),
            families,
            stacks,
        }
    }

    /// What stacks register with.
    pub fn stacks(&self) -> Arc<StackMetrics> {
        self.stacks.clone()
    }

    /// The metrics of one trial.
    pub fn trial(&self, stack: Stack, transport: Transport, labels: &TrialLabels) -> TrialMetrics {
        let of = Labels {
            stack: name(stack),
            transport: name(transport),
            network: labels.network.as_str().into(),
        };
        self.families.cell.set(&labels.cell, &of);
        // Also where nothing echoes: a panel of no series would look like a fault.
        self.families.echoing.get_or_create(&of).set(0);
        TrialMetrics(Some(Labelled {
            of,
            families: self.families.clone(),
        }))
    }

    /// All metrics in OpenMetrics text.
    pub fn encode(&self) -> String {
        self.scrapes.scraped();
        perfrun_metrics::encode(&self.registry.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl LastCell {
    fn set(&self, cell: &str, of: &Labels) {
        *self.lock() = Some(Last {
            cell: cell.into(),
            of: of.clone(),
            goes_on: true,
        });
    }

    fn ended(&self) {
        if let Some(last) = &mut *self.lock() {
            last.goes_on = false;
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Last>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Collector for LastCell {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let last = self.lock().clone().map(|Last { cell, of, goes_on }| {
            let labels = [
                ("cell", cell.to_string()),
                ("stack", of.stack.to_owned()),
                ("transport", of.transport.to_owned()),
                ("network", of.network.to_string()),
            ];
            (labels, f64::from(u8::from(goes_on)))
        });
        encode_samples(&mut encoder, &node::CELL_RUNNING, last)
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
    of: Labels,
    families: Families,
}

impl TrialMetrics {
    /// Adds what was counted since the last call.
    pub fn add(&self, sent: u64, received: u64, connections: u64, streams: u64, failures: u64) {
        let Some(to) = &self.0 else { return };
        for (direction, bytes) in [("sent", sent), ("received", received)] {
            let labels = ByteLabels {
                of: to.of.clone(),
                direction,
            };
            to.families.bytes.get_or_create(&labels).inc_by(bytes);
        }
        to.families.connections.get_or_create(&to.of).inc_by(connections);
        to.families.streams.get_or_create(&to.of).inc_by(streams);
        to.families.failures.get_or_create(&to.of).inc_by(failures);
    }

    /// Sets how many circuits are up.
    pub fn circuits(&self, count: u64) {
        let Some(to) = &self.0 else { return };
        let circuits = to.families.circuits.get_or_create(&to.of);
        circuits.set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// Counts something that a relay refused.
    pub fn refused(&self, what: &'static str, status: &'static str) {
        let Some(to) = &self.0 else { return };
        let of = to.of.clone();
        let labels = RefusedLabels { of, what, status };
        to.families.refused.get_or_create(&labels).inc();
    }

    /// So many streams echoed in the last interval.
    pub fn echoing(&self, streams: u64) {
        let Some(to) = &self.0 else { return };
        let streams = i64::try_from(streams).unwrap_or(i64::MAX);
        to.families.echoing.get_or_create(&to.of).set(streams);
    }

    /// Adds a trial's distribution.
    pub fn observe(&self, distribution: Distribution, recorder: &Recorder) {
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
            // The same opens by another clock, and what only the record is for.
            Distribution::OpenCompat
            | Distribution::RelayRoundTrip
            | Distribution::FirstByte
            | Distribution::Lateness => return,
            Distribution::RoundTrip => to.families.round_trip.get_or_create(&to.of),
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
        let labels = TrialOutcome {
            of: to.of.clone(),
            outcome,
        };
        to.families.trials.get_or_create(&labels).inc();
        self.echoing(0);
        to.families.cell.ended();
        to.families.scrapes.changed();
    }
}
