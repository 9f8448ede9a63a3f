//! What nodes, link agents, operators and `perfrun run --metrics-listen` export for Prometheus: the words of
//! it. Programs register what is described here, and docs/reference/metrics.md is made from it.

/// Declares families of metrics, each with its help, which is its documentation, too. Lists them all.
macro_rules! families {
    ($($name:ident = $family:expr, $help:literal;)*) => {
        $(
            #[doc = $help]
            pub const $name: Family = Family { help: $help, ..$family };
        )*
        /// All of them.
        pub const ALL: &[Family] = &[$($name),*];
    };
}

pub mod run;

use strum::Display;

/// One family of metrics.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Family {
    /// Its name, without the unit and without what OpenMetrics appends to the samples of a kind.
    pub name: &'static str,
    /// Its unit, which is appended to the name.
    pub unit: Option<&'static str>,
    /// What its values are.
    pub kind: FamilyKind,
    /// Its labels, besides those of all that its exporter has.
    pub labels: &'static [&'static str],
    /// What it says, for people.
    pub help: &'static str,
}

/// What values of a family are.
#[derive(Clone, Copy, Debug, Display, Eq, PartialEq)]
#[strum(serialize_all = "lowercase")]
pub enum FamilyKind {
    /// Only grows.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Counts of values by size.
    Histogram,
}

/// Families that one program exports together.
#[derive(Clone, Copy, Debug)]
pub struct Exporter {
    /// Who that is, for people.
    pub who: &'static str,
    /// Labels of all of them.
    pub labels: &'static [&'static str],
    /// The families.
    pub families: &'static [Family],
}

/// What begins every name.
pub const PREFIX: &str = "perfrun_";

impl Family {
    /// What comes after the name of this kind's samples; of a histogram, after those that count all values.
    pub fn suffix(&self) -> &'static str {
        match self.kind {
            FamilyKind::Counter => "_total",
            FamilyKind::Gauge => "",
            FamilyKind::Histogram => "_count",
        }
    }

    /// The name in queries; of a histogram, without `_bucket`, `_sum` or `_count`.
    pub fn full_name(&self) -> String {
        let unit = self.unit.map(|unit| format!("_{unit}")).unwrap_or_default();
        let suffix = match self.kind {
            FamilyKind::Counter => self.suffix(),
            FamilyKind::Gauge | FamilyKind::Histogram => "",
        };
        format!("{PREFIX}{}{unit}{suffix}", self.name)
    }
}

const fn counter(name: &'static str, labels: &'static [&'static str]) -> Family {
    Family {
        name,
        unit: None,
        kind: FamilyKind::Counter,
        labels,
        help: "",
    }
}

const fn gauge(name: &'static str, labels: &'static [&'static str]) -> Family {
    Family {
        kind: FamilyKind::Gauge,
        ..counter(name, labels)
    }
}

const fn histogram(name: &'static str, labels: &'static [&'static str]) -> Family {
    Family {
        unit: Some("seconds"),
        kind: FamilyKind::Histogram,
        ..counter(name, labels)
    }
}

impl Family {
    const fn in_unit(self, unit: &'static str) -> Self {
        Self {
            unit: Some(unit),
            ..self
        }
    }
}

/// What a node does in trials.
pub mod node {
    use super::{Family, counter, gauge, histogram};

    families! {
        PAYLOAD = counter("payload", &["stack", "transport", "network", "direction"]).in_unit("bytes"),
            "Payload handed to the stack (direction=sent) or taken from it (received)";
        CONNECTIONS = counter("connections", &["stack", "transport", "network"]),
            "Connections established";
        STREAMS = counter("streams", &["stack", "transport", "network"]),
            "Streams opened or accepted; at a relay, circuits";
        OPERATIONS = counter("operations", &["stack", "transport", "network"]),
            "Opens, handshakes, round trips, transfers from a source and messages that clients completed, and \
             lines of an echo that servers returned";
        FAILURES = counter("operation_failures", &["stack", "transport", "network"]),
            "Dials, opens, handshakes, round trips, transfers from a source and lines of an echo that failed in \
             a trial that continued; at a server also lost ends of streams and refused reservations, at a relay \
             requests that it refused";
        ECHOING = gauge("echoing_streams", &["stack", "transport", "network"]),
            "Streams that completed a round trip in the last sample interval of an echo; 0 between trials";
        TRIALS = counter("trials", &["stack", "transport", "network", "outcome"]),
            "Trials ended, by outcome: Completed, or the reason of the failure";
        CELL_RUNNING = gauge("cell_running", &["cell", "stack", "transport", "network"]),
            "1 for the cell of the trial in progress, 0 for the cell of the last one";
        HANDSHAKE = histogram("handshake", &["stack", "transport", "network", "phase"]),
            "Time from the dial to the end of the phase: transport (connected), relay (connected with the \
             relay), established (secured and multiplexed) or first_byte (a byte came back). Phase reservation, \
             of a source: time from the connection with its relay until the relay granted the reservation. Added \
             when a trial ends";
        OPEN = histogram("substream_open", &["stack", "transport", "network"]),
            "Request until a substream was open, in a burst from before the first request; added when a trial \
             ends";
        ROUND_TRIP = histogram("round_trip", &["stack", "transport", "network"]),
            "Application round trip; added when a trial ends";
        TRANSFER = histogram("transfer", &["stack", "transport", "network"]),
            "Stream open until all of a transfer from a source was read; added when a trial ends";
        CIRCUITS = gauge("relay_circuits", &["stack", "transport", "network"]),
            "Circuits that are up at a relay";
        REFUSED = counter("relay_refused", &["stack", "transport", "network", "what", "status"]),
            "Reservations and circuits (what) that a relay refused, by the status it gave";
    }
}

/// What the process of a node or a link agent uses.
pub mod process {
    use super::{Family, counter, gauge};

    families! {
        CPU = counter("process_cpu", &["mode"]).in_unit("seconds"),
            "CPU time of the process, mode=user or system";
        SWITCHES = counter("process_context_switches", &["kind"]),
            "Context switches of the process, voluntary (it waited) or involuntary (it was pre-empted)";
        MEMORY = gauge("process_resident_memory", &[]).in_unit("bytes"),
            "Resident memory of the process";
        ALLOCATED = gauge("process_allocated_memory", &[]).in_unit("bytes"),
            "Memory that the process has allocated and not freed (in Go: objects of the heap that no collection \
             has freed). It includes pages that were never written, which are not resident, and leaves out what \
             the allocator keeps, which may be";
        THROTTLED = counter("cgroup_throttled", &[]).in_unit("seconds"),
            "Time for which the control group held the process back; absent where the kernel does not report it";
        RETRANSMITS = counter("tcp_retransmitted_segments", &[]),
            "TCP segments sent again in the network namespace of the process";
        INTERFACE = counter("interface", &["direction"]).in_unit("bytes"),
            "Bytes that the interfaces of the network namespace of the process sent or received (direction), \
             headers and all, without loopback and the device of a link's emulator";
    }
}

/// What a link agent is configured to do, does, and measured.
pub mod link {
    use super::{Family, counter, gauge};

    families! {
        PACKETS = counter("link_packets", &["fate"]),
            "Packets on impaired links, by what happened to them. They arrived at the link or left it (copies \
             included). They were lost, duplicated, corrupted or reordered as configured, dropped because the \
             link was full (over_limit), or lost because the emulator was too slow (overflowed). The kernel's \
             netem only tells which left it: all others count as lost";
        IMPAIRED = gauge("link_impaired", &[]),
            "Whether packets to peers are impaired (1)";
        CONFIGURED_DELAY = gauge("link_configured_delay", &[]).in_unit("seconds"),
            "Configured delay of the first route, one way";
        CONFIGURED_LOSS = gauge("link_configured_loss", &[]).in_unit("ratio"),
            "Configured share of sent packets to drop on the first route";
        CONFIGURED_RATE = gauge("link_configured_rate", &[]).in_unit("bits_per_second"),
            "Configured rate of the first route; 0 means no limit";
        LATENESS = gauge("link_lateness_p99", &[]).in_unit("seconds"),
            "How much after their time one of a hundred packets left, since the link was last set or its counters \
             were reset";
        MEASURED_ROUND_TRIP = gauge("link_measured_round_trip", &["quantile"]).in_unit("seconds"),
            "Round trip to another agent when the link was last measured";
        MEASURED_LOSS = gauge("link_measured_loss", &["direction"]).in_unit("ratio"),
            "Share of datagrams lost when the link was last measured";
    }
}

/// What commonware counts itself, summed over peers.
pub mod commonware {
    use super::{Family, counter};

    families! {
        SENT = counter("commonware_messages_sent", &[]),
            "Messages that commonware wrote to its connections, acknowledgements and greetings included; added when \
             a trial ends";
        RECEIVED = counter("commonware_messages_received", &[]),
            "Messages that commonware read from its connections, acknowledgements and greetings included; added when \
             a trial ends";
        RATE_LIMITED = counter("commonware_messages_rate_limited", &[]),
            "Messages that commonware's quota held back, which fails their trial; added when a trial ends";
        CONNECTIONS = counter("commonware_connections", &["direction"]),
            "TCP connections that commonware accepted (direction=inbound) or dialled (outbound); added when a trial \
             ends";
        REFUSED = counter("commonware_handshakes_refused", &[]),
            "Connections that commonware closed before their handshake: too many, or of an unknown peer; added when \
             a trial ends";
    }
}

/// What schedules of runs have done.
pub mod schedule {
    use super::{Family, gauge};

    families! {
        LAST_DUE = gauge("schedule_last_due_timestamp", &[]).in_unit("seconds"),
            "The moment for which the schedule created its last run, in Unix time";
        LAST_SUCCESS = gauge("schedule_last_success_timestamp", &[]).in_unit("seconds"),
            "The end of the last run of the schedule that succeeded and whose verdict is not Fail, in Unix time";
        SUCCESS_DUE = gauge("schedule_success_due_timestamp", &[]).in_unit("seconds"),
            "When the first run is due after the last success, or after the schedule was created if none has \
             succeeded, in Unix time; absent while the schedule is suspended";
        SUSPENDED = gauge("schedule_suspended", &[]),
            "Whether the schedule is suspended (1), or creates runs (0)";
        LAST_RUN = gauge("schedule_last_run_info", &["phase", "verdict"]),
            "Always 1: phase of the last run that has ended (Succeeded, Failed, Cancelled), and whether what it \
             expects holds (Pass, Fail, Inconclusive); the verdict is empty if nothing is expected";
    }
}

/// What an operator does.
pub mod operator {
    use super::{Family, counter, gauge, histogram};

    families! {
        RECONCILES = counter("operator_reconciles", &[]),
            "Reconciles of a PerfRun";
        ERRORS = counter("operator_reconcile_errors", &["category"]),
            "Reconciles and watches that failed, by what failed";
        DURATION = histogram("operator_reconcile_duration", &[]),
            "Duration of a reconcile of a PerfRun";
        LEADER = gauge("operator_leader", &[]),
            "Whether this operator acts (1), or waits to (0)";
        RUNS = gauge("operator_runs", &["phase"]),
            "PerfRuns by phase; only the operator that acts knows";
        LEFT_OUT = gauge("operator_runs_without_results", &[]),
            "Runs whose results are not exported, because those of later runs are many";
        ORPHANED_PODS = gauge("operator_orphaned_pods", &[]),
            "Pods of runs that no longer exist; they end at their deadline";
        RESULTS = counter("operator_results_kept", &[]).in_unit("bytes"),
            "Bytes of compressed results that this operator has kept, in ConfigMaps and in stores";
    }
}

/// Labels of all that nodes and link agents export.
pub const NODE_LABELS: &[&str] = &["run_namespace", "run", "run_node", "role"];

/// Labels of all metrics of runs.
pub const RUN_LABELS: &[&str] = &["run_namespace", "run"];

/// The `run_namespace` of a run that is on no cluster.
pub const LOCAL: &str = "local";

/// Labels of all metrics of schedules.
pub const SCHEDULE_LABELS: &[&str] = &["run_namespace", "schedule"];

/// Everything that is exported, by who does.
pub const EXPORTERS: &[Exporter] = &[
    Exporter {
        who: "Nodes, while trials are in progress",
        labels: NODE_LABELS,
        families: node::ALL,
    },
    Exporter {
        who: "Nodes, of messages on commonware",
        labels: NODE_LABELS,
        families: commonware::ALL,
    },
    Exporter {
        who: "Nodes and link agents, of their processes",
        labels: NODE_LABELS,
        families: process::ALL,
    },
    Exporter {
        who: "Link agents",
        labels: NODE_LABELS,
        families: link::ALL,
    },
    Exporter {
        who: "The operator that acts, and `perfrun run --metrics-listen`, of runs and their results",
        labels: RUN_LABELS,
        families: run::ALL,
    },
    Exporter {
        who: "The operator that acts, of schedules",
        labels: SCHEDULE_LABELS,
        families: schedule::ALL,
    },
    Exporter {
        who: "Operators, of themselves",
        labels: &[],
        families: operator::ALL,
    },
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_of_metrics_are_unique_and_contain_their_unit_once() {
        let mut names = BTreeSet::new();
        for family in EXPORTERS.iter().flat_map(|exporter| exporter.families) {
            assert!(names.insert(family.name), "{} is there twice", family.name);
            let ends_in_a_unit = ["_bytes", "_seconds", "_ratio", "_total"];
            assert!(
                ends_in_a_unit.iter().all(|unit| !family.name.ends_with(unit)),
                "{}: the unit is appended",
                family.name
            );
            assert!(
                !family.help.ends_with('.'),
                "{}: registries append it",
                family.name
            );
        }
        assert_eq!(node::PAYLOAD.full_name(), "perfrun_payload_bytes_total");
        assert_eq!(node::HANDSHAKE.full_name(), "perfrun_handshake_seconds");
    }

    #[test]
    fn no_label_is_one_that_prometheus_gives_to_targets() {
        // Prometheus would call it exported_NAME, and dashboards would have to know both names.
        let reserved = [
            "instance",
            "job",
            "namespace",
            "pod",
            "node",
            "container",
            "service",
            "endpoint",
            "cluster",
        ];
        for exporter in EXPORTERS {
            for label in exporter
                .families
                .iter()
                .flat_map(|family| family.labels)
                .chain(exporter.labels)
            {
                assert!(!reserved.contains(label), "{label}");
            }
        }
    }
}
