//! Whole records from whole facts.

use perfrun_contract::{
    matrix::{Identity, Protocol, Stack},
    metric::Metric,
    node::{Failure, Measured, Plateau, Resources, UdpBuffers},
    parameters::{Amount, Bandwidth, Echo, Pace, Parameters},
    quantity::ByteSize,
    workload::Direction,
};
use perfrun_test_kit::records;

use super::*;

#[test]
fn a_completed_trial_has_metrics_and_no_flags() {
    let record = record(facts(&cell(1), observations([server(900), client(900)])));
    assert_eq!(record.failure, None);
    assert_eq!(record.flags, []);
    assert_eq!(record.metrics[&Metric::UploadSeconds], 2.0);
    assert_eq!(record.nodes.len(), 2);
    assert_eq!((record.at_seconds, record.overhead_seconds), (7.0, 0.5));
}

#[test]
fn skew_is_by_the_clock_of_the_conductor_and_lateness_by_those_of_nodes() {
    let cell = cell(2);
    let mut facts = facts(
        &cell,
        observations([
            server(900),
            started("client-0", 1_004_000_000),
            started("client-1", 60_000_000),
        ]),
    );
    facts.requested_starts = BTreeMap::from([
        ("client-0".into(), 1_000_000_000),
        ("client-1".into(), 59_000_000),
    ]);
    facts.offsets = BTreeMap::from([
        (
            "client-0".into(),
            Offset {
                nanoseconds: 1_000_000_000,
                uncertainty: 80_000,
            },
        ),
        (
            "client-1".into(),
            Offset {
                nanoseconds: 59_000_000,
                uncertainty: 90_000,
            },
        ),
    ]);
    let record = record(facts);
    assert_eq!(record.start_skew_seconds, Some(0.003));
    assert_eq!(record.clock_uncertainty_seconds, Some(0.000_09));
    assert_eq!(record.start_lateness_seconds, Some(0.004));
    assert_eq!(record.flags, []);
}

#[test]
fn conditions_that_limit_trust_in_a_trial_are_flagged() {
    let mut late = started("client-0", 21_000_001);
    late.2.measured.failures = 3;
    late.2.measured.resources.throttled_seconds = Some(0.02);
    let cell = cell(1);
    let mut facts = facts(&cell, observations([server(900), late]));
    facts.requested_starts = BTreeMap::from([("client-0".into(), 1_000_000)]);
    facts.after_loss = true;
    facts.debug_build = true;
    let all = [
        Flag::LateStart,
        Flag::Throttled,
        Flag::Retried,
        Flag::PartialFailures,
        Flag::DebugBuild,
    ];
    assert_eq!(record(facts).flags, all);
}

#[test]
fn udp_buffers_below_what_the_stack_wants_are_flagged() {
    let wanted = 7 << 20;
    for (receive, send, flags) in [
        (wanted, wanted, &[][..]),
        (wanted - 1, wanted, &[Flag::UdpBuffersLimited]),
        (wanted, wanted - 1, &[Flag::UdpBuffersLimited]),
    ] {
        let cell = cell(1);
        let mut client = client(0);
        client.2.measured.udp_buffers = Some(UdpBuffers {
            wanted_bytes: wanted,
            receive_bytes: receive,
            send_bytes: send,
        });
        assert_eq!(
            record(facts(&cell, observations([server(0), client]))).flags,
            flags
        );
    }
}

#[test]
fn delays_of_less_than_a_hundredth_of_a_trial_are_not_flagged() {
    for (seconds, late_nanoseconds, throttled, flags) in [
        (2.0, 20_000_000, 0.019_999, &[][..]),
        (2.0, 20_000_001, 0.02, &[Flag::LateStart, Flag::Throttled]),
        // A short trial may start as late as a busy machine makes it.
        (0.1, 5_000_000, 0.0, &[]),
        (0.1, 5_000_001, 0.001, &[Flag::LateStart, Flag::Throttled]),
        (0.0, 0, 0.0, &[]),
    ] {
        let mut client = started("client-0", 1_000_000 + late_nanoseconds);
        client.2.measured.seconds = seconds;
        client.2.measured.resources.throttled_seconds = Some(throttled);
        let cell = cell(1);
        let mut facts = facts(&cell, observations([server(900), client]));
        facts.requested_starts = BTreeMap::from([("client-0".into(), 1_000_000)]);
        assert_eq!(record(facts).flags, flags, "{late_nanoseconds} ns of {seconds} s");
    }
}

#[test]
fn half_of_the_smallest_window_passes_in_a_round_trip() {
    let windows = [[8 << 20, 4 << 20], [6 << 20, 8 << 20]];
    let limit = window_limit(windows, Duration::from_millis(50)).unwrap();
    assert!((limit - f64::from(2 << 20) * 8.0 / 0.05).abs() < 1.0, "{limit}");
    assert_eq!(window_limit(windows, Duration::ZERO), None);
    assert_eq!(window_limit([], Duration::from_millis(50)), None);
}

#[test]
fn a_tcp_connection_that_carries_nearly_its_window_is_flagged() {
    for (transport, share, is_limited) in [
        (Transport::Tcp, 0.71, true),
        (Transport::Tcp, 0.69, false),
        (Transport::Ws, 0.71, true),
        (Transport::QuicV1, 0.71, false),
    ] {
        let cell = Cell { transport, ..cell(1) };
        let facts = Facts {
            window_limit: Some(1e9),
            ..facts(&cell, Observations::default())
        };
        let metrics = BTreeMap::from([(Metric::UploadGoodput, share * 1e9)]);
        assert_eq!(
            is_window_limited(&facts, &metrics),
            is_limited,
            "{transport} at {share}"
        );
    }
}

#[test]
fn an_echo_below_its_pace_is_flagged() {
    let load = Echo {
        connections: 1,
        streams_per_connection: 10,
        connection_interval_seconds: 1.0,
        stream_interval_seconds: 0.1,
        message_bytes: ByteSize(1024),
        pace: Pace::Pause(0.5),
        deadline_seconds: 5.0,
        duration_seconds: 12.0,
        identity: Identity::Ed25519,
        sample_interval_seconds: 1.0,
    };
    let cell = Cell {
        parameters: Parameters::Echo(load),
        ..cell(1)
    };
    // Of 200 that are nominal in ten seconds.
    for (round_trips, flags) in [(190, &[][..]), (189, &[Flag::BelowNominal])] {
        let mut client = client(0);
        client.2.measured.plateau = Some(Plateau {
            seconds: 10.0,
            round_trips,
            ..Plateau::default()
        });
        let record = record(facts(&cell, observations([server(0), client])));
        assert_eq!((record.failure, record.flags.as_slice()), (None, flags));
    }
}

#[test]
fn a_failed_trial_keeps_what_was_measured_and_has_no_metrics() {
    let observations = observations([server(400), failing("client-0", Reason::StreamFailed)]);
    let record = record(facts(&cell(1), observations));
    assert_eq!(record.failure, Some(caused_by("client-0", Reason::StreamFailed)));
    assert_eq!(record.metrics, BTreeMap::new());
    assert_eq!(record.nodes["server-0"].measured.bytes_received, 400);
}

#[test]
fn a_dial_that_failed_because_the_server_is_dead_is_the_servers_failure() {
    let mut observations = observations([failing("client-0", Reason::DialFailed)]);
    observations.add_lost("server-0", "connection refused");
    let failure = record(facts(&cell(1), observations)).failure.unwrap();
    assert_eq!(
        (failure.node.as_deref(), failure.reason),
        (Some("server-0"), Reason::NodeLost)
    );
    assert_eq!(failure.message, "server-0 is lost: connection refused");
}

#[test]
fn a_fault_of_a_server_is_the_cause_before_a_failure_of_a_client() {
    let observations = observations([
        failing("client-0", Reason::TooFewBytes),
        failing("server-0", Reason::Internal),
    ]);
    assert_eq!(
        record(facts(&cell(1), observations)).failure,
        Some(caused_by("server-0", Reason::Internal))
    );
}

#[test]
fn of_equal_failures_the_first_by_name_counts_and_never_a_cancellation() {
    let nodes = [
        failing("server-0", Reason::Cancelled),
        failing("client-1", Reason::TooFewBytes),
        failing("client-0", Reason::StreamFailed),
    ];
    let record = record(facts(&cell(2), observations(nodes)));
    assert_eq!(record.failure, Some(caused_by("client-1", Reason::TooFewBytes)));
}

#[test]
fn a_node_that_is_stopped_is_lost() {
    let observations = observations([failing("server-0", Reason::Stopped)]);
    assert_eq!(observations.lost, BTreeSet::from(["server-0".to_owned()]));
}

#[test]
fn ends_that_counted_differently_fail_the_trial() {
    let failure = record(facts(&cell(1), observations([server(899), client(900)])))
        .failure
        .unwrap();
    assert_eq!((failure.node, failure.reason), (None, Reason::CountMismatch));
    assert_eq!(
        failure.message,
        "upload: 900 bytes were sent, 899 received of 900 due"
    );
}

#[test]
fn a_node_without_a_result_fails_the_trial() {
    let failure = record(facts(&cell(2), observations([server(900), client(900)])))
        .failure
        .unwrap();
    assert_eq!(
        (failure.node.as_deref(), failure.reason),
        (Some("client-1"), Reason::Internal)
    );
}

#[test]
fn a_result_of_an_earlier_session_has_no_overhead_and_no_lateness() {
    let cell = cell(1);
    let mut facts = facts(&cell, observations([server(900), started("client-0", 17)]));
    facts.took = Duration::from_millis(3);
    let record = record(facts);
    assert_eq!(
        (record.overhead_seconds, record.start_lateness_seconds),
        (0.0, None)
    );
}

type Party = (&'static str, Role, NodeRecord, Option<Reason>);

fn observations<const N: usize>(parties: [Party; N]) -> Observations {
    let mut observations = Observations::default();
    for (name, role, record, reason) in parties {
        let failure = reason.map(|reason| Failure {
            reason,
            message: format!("{name}: {reason}"),
        });
        observations.add_outcome(
            name,
            role,
            Outcome {
                failure,
                measured: record.measured,
                served: None,
            },
        );
    }
    observations
}

fn server(received: u64) -> Party {
    let measured = Measured {
        bytes_received: received,
        ..Measured::default()
    };
    (
        "server-0",
        Role::Server,
        NodeRecord {
            role: Role::Server,
            measured,
            link: None,
        },
        None,
    )
}

fn client(sent: u64) -> Party {
    let upload = Some(perfrun_contract::node::Transfer {
        bytes: sent,
        seconds: 2.0,
        ..Default::default()
    });
    let measured = Measured {
        bytes_sent: sent,
        seconds: 2.0,
        upload,
        ..Measured::default()
    };
    (
        "client-0",
        Role::Client,
        NodeRecord {
            role: Role::Client,
            measured,
            link: None,
        },
        None,
    )
}

fn started(name: &'static str, at: u64) -> Party {
    let sent = if name == "client-0" { 900 } else { 0 };
    let mut client = client(sent);
    client.0 = name;
    client.2.measured.started_nanoseconds = Some(at);
    client.2.measured.resources = Resources::default();
    client
}

fn failing(name: &'static str, reason: Reason) -> Party {
    let role = if name.starts_with("server") {
        Role::Server
    } else {
        Role::Client
    };
    (
        name,
        role,
        NodeRecord {
            role,
            measured: Measured::default(),
            link: None,
        },
        Some(reason),
    )
}

fn caused_by(name: &str, reason: Reason) -> TrialFailure {
    TrialFailure {
        node: Some(name.to_owned()),
        reason,
        message: format!("{name}: {reason}"),
        other_limit: false,
    }
}

/// 900 bytes up, by `clients` clients.
fn cell(clients: u64) -> Cell {
    let upload = Parameters::Bandwidth(Bandwidth::new(
        Protocol::Perf,
        Direction::Upload,
        Amount::Count(900 / clients),
    ));
    Cell {
        clients: (0..clients).map(|i| format!("client-{i}")).collect(),
        ..records::cell(Stack::Litep2p, Stack::Libp2p, upload)
    }
}

fn facts(cell: &Cell, observations: Observations) -> Facts<'_> {
    static TRIAL: Trial = Trial {
        id: String::new(),
        cell: 0,
        iteration: 0,
        warmup: false,
    };
    Facts {
        trial: &TRIAL,
        cell,
        attempt: 0,
        after_loss: false,
        session: 0,
        observations,
        requested_starts: BTreeMap::new(),
        offsets: BTreeMap::new(),
        server_clock_uncertainty: None,
        debug_build: false,
        window_limit: None,
        at: Duration::from_secs(7),
        took: Duration::from_millis(2500),
    }
}
