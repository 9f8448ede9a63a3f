//! Every workload on every stack and transport, measured to the end.

use std::{fs, thread};

use perfrun_api::results::Results;
use perfrun_contract::{
    distribution::Distribution,
    matrix::Transport,
    metric::Metric,
    node::Measured,
    parameters::{Amount, Bandwidth, Parameters, RelayStress, Substreams},
    plan::Cell,
    record::{Flag, TrialRecord},
    role::Role,
    run::RunState,
    workload::{Direction, MessageMode},
};
use serde_json::{Value, json};

use crate::{
    document::{self, Document},
    perfrun::{Mode, Scratch, results},
};
use perfrun_test_kit::{Need, skip};

#[test]
fn every_byte_of_every_transfer_arrives() {
    let sizes = [1, 65_537, 1 << 20];
    let document = document::run("transfers").default_stacks().with(
        "workload",
        json!({ "bandwidth": { "sizes": sizes, "directions": ["upload", "download", "both"] } }),
    );
    for results in in_all_modes(&document) {
        // {libp2p, litep2p}² and raw on tcp and on quic, libp2p with itself on tcp-tls; 3 sizes, 3
        // directions.
        assert_eq!(results.plan.cells.len(), 11 * 9);
        for (cell, record) in records(&results) {
            assert_exact(cell, record);
        }
    }
}

#[test]
fn split_cpus_are_divided_between_roles() {
    let all = thread::available_parallelism().unwrap().get();
    if all < 2 {
        return skip(Need::Cpus, "all", "this process may use one CPU");
    }
    let document = document::run("split").with("topology", json!({ "cpus": "split" }));
    for results in in_all_modes(&document) {
        let [client, server] = [Role::Client, Role::Server].map(|role| {
            let mut nodes = results.plan.nodes.iter();
            let node = nodes.find(|node| node.role == role).unwrap();
            results.environment.nodes[&node.name].cpus as usize
        });
        assert_eq!((server, client), (all / 2, all - all / 2));
    }
}

#[test]
fn the_published_protocol_moves_every_byte_too() {
    let document = document::run("published").default_stacks().with(
        "workload",
        json!({ "bandwidth": { "sizes": [100_000], "protocol": "litep2p-perf", "streams": [1, 3], "chunkBytes": "1Ki" } }),
    );
    for results in in_all_modes(&document) {
        assert_eq!(results.plan.cells.len(), 11 * 4);
        for (cell, record) in records(&results) {
            assert_exact(cell, record);
        }
    }
}

#[test]
fn transfers_with_a_duration_end_without_a_request() {
    let document = document::run("timed")
        .default_stacks()
        .with("workload", json!({ "bandwidth": { "duration": "500ms" } }));
    for results in in_all_modes(&document) {
        let mut moved = 0;
        for (cell, record) in records(&results) {
            let (client, server) = ends(record);
            moved += client.bytes_sent + client.bytes_received;
            match direction(cell) {
                Direction::Upload => assert_eq!(client.bytes_sent, server.bytes_received, "{}", cell.id),
                // What was in flight when the client had enough is lost.
                _ => assert!(client.bytes_received <= server.bytes_sent, "{}", cell.id),
            }
            assert!(client.seconds >= 0.5, "{}: {}", cell.id, client.seconds);
        }
        // Not each of them, if the machine is busy: a stream may take longer to open.
        assert!(moved > 0);
    }
}

#[test]
fn all_substreams_are_opened() {
    let document = document::run("substreams")
        .default_stacks()
        .with("workload", json!({ "substreams": { "counts": [1, 64] } }));
    for results in in_all_modes(&document) {
        assert!(
            results
                .plan
                .cells
                .iter()
                .any(|cell| cell.transport == Transport::TcpTls)
        );
        for (cell, record) in records(&results) {
            let Parameters::Substreams(Substreams { count, .. }) = cell.parameters else {
                panic!("{cell:?}")
            };
            assert_eq!(
                samples(record, Distribution::Open),
                u64::from(count),
                "{}",
                cell.id
            );
        }
    }
}

#[test]
fn all_handshakes_are_made() {
    let document = document::run("handshakes").default_stacks().with(
        "workload",
        json!({ "handshakes": { "count": 4, "inFlight": [1, 2] } }),
    );
    for results in in_all_modes(&document) {
        for (cell, record) in records(&results) {
            assert_eq!(
                samples(record, Distribution::HandshakeFirstByte),
                4,
                "{}",
                cell.id
            );
        }
    }
}

#[test]
fn all_pings_come_back() {
    let document = document::run("pings")
        .default_stacks()
        .with("workload", json!({ "ping": { "count": 20 } }))
        .with("warmup", json!(1))
        .with("iterations", json!(2));
    for results in in_all_modes(&document) {
        assert_eq!(results.trials.len(), 11 * 3);
        for (cell, record) in records(&results) {
            assert_eq!(samples(record, Distribution::RoundTrip), 20, "{}", cell.id);
        }
        let row = results.summary.first().unwrap();
        assert_eq!(row.count, 2, "warm-up does not count");
    }
}

#[test]
fn every_message_arrives_on_every_stack() {
    let matrix = json!({
        "transports": ["tcp", "quic-v1"],
        "include": [{ "client": "commonware", "server": "commonware", "transport": "tcp" }],
    });
    let modes = ["serial", "serialAck", "stream"];
    let document = document::run("messages").with("matrix", matrix).with(
        "workload",
        json!({ "messages": { "modes": modes, "sizes": [64, 100_000], "count": 40, "window": 16 } }),
    );
    for results in in_all_modes(&document) {
        // {libp2p, litep2p}² and raw on tcp and on quic, commonware on tcp; in one process, each with itself.
        assert_eq!(results.plan.cells.len(), 2 * (11 + 11 + 7));
        for (cell, record) in records(&results) {
            let (times, distribution) = match assert_messages_arrived(cell, record, 40) {
                MessageMode::Serial => (40, Distribution::OneWay),
                MessageMode::SerialAck => (40, Distribution::RoundTrip),
                // One in a quarter of the window is timed.
                MessageMode::Stream => (10, Distribution::RoundTrip),
                MessageMode::Broadcast => panic!("{}", cell.id),
            };
            assert_eq!(samples(record, distribution), times, "{}", cell.id);
            assert!(record.metrics[&Metric::MessagesPerSecond] > 0.0, "{}", cell.id);
        }
    }
}

/// A variant whose messages pass by litep2p's notification protocol.
fn notified() -> Value {
    json!({ "name": "notified", "stack": "litep2p", "settings": { "messaging": "notifications" } })
}

#[test]
fn every_notification_arrives_in_every_mode() {
    let matrix = json!({
        "clients": ["notified"],
        "servers": ["notified"],
        "transports": ["tcp", "ws", "quic-v1"],
        "rawReference": false,
    });
    let modes = ["serial", "serialAck", "stream", "broadcast"];
    let document = document::run("notifications")
        .with("stacks", json!([notified()]))
        .with("matrix", matrix)
        .with(
            "workload",
            json!({ "messages": { "modes": modes, "sizes": [64, 100_000], "count": 40, "window": 16 } }),
        );
    for results in in_all_modes(&document) {
        assert_eq!(results.plan.cells.len(), 3 * 4 * 2);
        for (cell, record) in records(&results) {
            assert_messages_arrived(cell, record, 40);
        }
    }
}

#[test]
fn a_broadcast_reaches_every_server_on_every_stack() {
    let matrix = json!({
        "clients": ["libp2p", "litep2p"],
        "servers": ["libp2p"],
        "transports": ["tcp", "quic-v1"],
        "include": [
            { "client": "commonware", "server": "commonware", "transport": "tcp" },
            { "client": "gossip", "server": "gossip", "transport": "tcp" },
            { "client": "gossip", "server": "gossip", "transport": "quic-v1" },
            { "client": "notified", "server": "notified", "transport": "tcp" },
        ],
    });
    let gossip = json!({ "name": "gossip", "stack": "libp2p", "settings": { "messaging": "gossipsub" } });
    let document = document::run("broadcast")
        .with("stacks", json!([gossip, notified()]))
        .with("matrix", matrix)
        .with("topology", json!({ "servers": 3, "clients": 2 }))
        .with(
            "workload",
            json!({ "messages": { "modes": ["broadcast"], "sizes": [1024], "count": 50, "rate": 1000 } }),
        );
    for results in in_all_modes(&document) {
        assert_eq!(results.plan.cells.len(), 2 * 3 + 1 + 2 + 1);
        for (cell, record) in records(&results) {
            let metric = |metric| record.metrics.get(&metric).copied();
            // So few messages fill no queue.
            assert_eq!(metric(Metric::DeliveryRatio), Some(1.0), "{}", cell.id);
            assert_eq!(metric(Metric::MessagesLost), Some(0.0), "{}", cell.id);
            assert_eq!(metric(Metric::Refused), Some(0.0), "{}", cell.id);
            let servers = record.nodes.values().filter(|node| node.role == Role::Server);
            for server in servers {
                assert_eq!(server.measured.bytes_received, 2 * 50 * 1024, "{}", cell.id);
                let one_way = &server.measured.histograms[&Distribution::OneWay];
                assert_eq!(one_way.decode().unwrap().len(), 2 * 50, "{}", cell.id);
            }
            // Nodes of one machine share a clock.
            assert_eq!(metric(Metric::OneWayUncertainty), Some(0.0), "{}", cell.id);
            let one_way = metric(Metric::OneWayP50).unwrap();
            assert!((0.0..30.0).contains(&one_way), "{}: {one_way} s", cell.id);
        }
    }
}

#[test]
fn all_streams_of_an_echo_are_compared_with_their_pace() {
    let document = document::run("echoes")
        .with("matrix", json!({ "clients": ["libp2p"], "servers": ["litep2p"] }))
        .with(
            "workload",
            json!({ "echo": {
                "loads": [{ "connections": 3, "streamsPerConnection": 5 }],
                "connectionInterval": "20ms", "streamInterval": "10ms", "pause": "50ms", "duration": "8s",
            } }),
        );
    for results in in_all_modes(&document) {
        assert_eq!(results.plan.cells.len(), 2);
        for (cell, record) in records(&results) {
            let (client, server) = ends(record);
            assert_eq!((client.streams, server.streams), (15, 15), "{}", cell.id);
            assert_eq!(client.bytes_sent, server.bytes_received, "{}", cell.id);
            // More cannot be, and how much less says something of the machine of the test.
            let share = record.metrics[&Metric::AchievedShare];
            assert!(share > 0.0 && share < 1.2, "{}: {share}", cell.id);
            assert_eq!(
                record.flags.contains(&Flag::BelowNominal),
                share < 0.95,
                "{}",
                cell.id
            );
        }
    }
}

#[test]
fn an_echo_is_written_in_the_published_columns() {
    let document = document::run("published-echo").with(
        "workload",
        json!({ "echo": {
            "loads": [{ "connections": 1, "streamsPerConnection": 2 }],
            "streamInterval": "10ms", "pause": "50ms", "duration": "8s", "sampleInterval": "1s",
        } }),
    );
    let scratch = Scratch::new();
    scratch.run(Mode::Loopback, &document, &["--quiet"]).expect(0);
    let folder = scratch.only_run();
    let results = results(&folder);
    scratch
        .call(&["report", folder.to_str().unwrap(), "--csv", "published"])
        .expect(0);
    let measured = results
        .trials
        .iter()
        .filter(|record| !record.trial.warmup)
        .count();
    let files = fs::read_dir(scratch.path().join("published")).unwrap();
    let (summaries, files): (Vec<_>, Vec<_>) = files
        .map(|file| file.unwrap().path())
        .partition(|file| file.ends_with("summary.csv"));
    let summary = fs::read_to_string(&summaries[0]).unwrap();
    assert_eq!(summary.lines().count(), 1 + results.summary.len(), "{summary}");
    assert_eq!(files.len(), 2 * measured, "{files:?}");
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        let rows: Vec<Vec<u64>> = text
            .lines()
            .map(|line| line.split(',').map(|field| field.parse().unwrap()).collect())
            .collect();
        assert!(rows.len() >= 3, "{}: {text}", file.display());
        assert!(rows.iter().all(|row| row.len() == 6), "{text}");
        // Time advances, memory is in use, and whole lines went both ways.
        assert!(rows.is_sorted_by(|a, b| a[0] < b[0]), "{text}");
        assert!(rows.iter().all(|row| row[3] > 0), "{text}");
        for column in [4, 5] {
            let bytes: u64 = rows.iter().map(|row| row[column]).sum();
            assert!(bytes > 0 && bytes.is_multiple_of(1024), "{text}");
        }
        assert_eq!(rows.iter().map(|row| row[1]).max(), Some(2), "{text}");
    }
}

#[test]
fn a_client_is_its_own_server_on_the_memory_transport() {
    let document = document::run("in-process")
        .with(
            "matrix",
            json!({ "clients": ["libp2p"], "servers": ["libp2p"], "transports": ["memory"] }),
        )
        .with(
            "workload",
            json!({ "bandwidth": { "sizes": [1_000_001], "streams": [3], "directions": ["upload", "download", "both"] } }),
        );
    for results in in_all_modes(&document) {
        assert_eq!(results.plan.cells.len(), 3, "and no raw reference");
        for (cell, record) in records(&results) {
            assert_exact(cell, record);
            assert_eq!(record.nodes.len(), 2, "of one process");
            let metrics = &record.metrics;
            assert!(metrics[&Metric::ClientPeakRss] > 0.0, "{}", cell.id);
            assert!(!metrics.contains_key(&Metric::ServerPeakRss), "{}", cell.id);
        }
    }
}

#[test]
fn stacks_meet_on_their_other_transports() {
    let document = document::run("other-transports")
        .with(
            "matrix",
            json!({
                "clients": ["libp2p", "litep2p"],
                "servers": ["libp2p", "litep2p"],
                "transports": ["ws", "webrtc-direct", "memory"],
                "rawReference": false,
            }),
        )
        .with("workload", json!({ "ping": { "count": 5 } }));
    for results in in_all_modes(&document) {
        assert_eq!(results.plan.cells.len(), 4 + 2 + 1, "ws, webrtc-direct, memory");
        for (cell, record) in records(&results) {
            assert!(record.metrics[&Metric::RoundTripP50] > 0.0, "{}", cell.id);
        }
    }
}

#[test]
fn many_clients_share_many_servers() {
    let document = document::run("many")
        .with("workload", json!({ "bandwidth": { "sizes": ["64Ki"] } }))
        .with(
            "topology",
            json!({ "servers": 2, "clients": 3, "peersPerClient": 2 }),
        );
    for results in in_all_modes(&document) {
        for (cell, record) in records(&results) {
            assert_eq!(record.nodes.len(), 5);
            let of = |role, bytes: fn(&Measured) -> u64| {
                let nodes = record.nodes.values().filter(|node| node.role == role);
                nodes.map(|node| bytes(&node.measured)).sum::<u64>()
            };
            let (sent, received) = match direction(cell) {
                Direction::Upload => (
                    of(Role::Client, |m| m.bytes_sent),
                    of(Role::Server, |m| m.bytes_received),
                ),
                _ => (
                    of(Role::Server, |m| m.bytes_sent),
                    of(Role::Client, |m| m.bytes_received),
                ),
            };
            assert_eq!([sent, received], [6 << 16, 6 << 16], "{}", cell.id);
        }
    }
}

#[test]
fn transfers_go_through_a_relay_and_without_one() {
    let document = document::run("relayed").default_stacks().with(
        "workload",
        json!({ "relay": { "sizes": [1_000_000], "pings": 2 } }),
    );
    for results in in_all_modes(&document) {
        let relayed = |cell: &Cell| !cell.relays.is_empty();
        let cells = &results.plan.cells;
        assert!(cells.iter().any(|cell| relayed(cell) && cell.is_raw()));
        assert!(cells.iter().any(|cell| relayed(cell) && !cell.is_raw()));
        let why = &results
            .plan
            .skipped
            .iter()
            .find(|cell| cell.id.contains("relayed"));
        assert_eq!(why.unwrap().reason, "litep2p has no circuit relay");
        for (cell, record) in records(&results) {
            let (client, server) = ends(record);
            assert_eq!(
                (server.bytes_sent, client.bytes_received),
                (1_000_000, 1_000_000),
                "{}",
                cell.id
            );
            assert_eq!(
                record.nodes.len(),
                if relayed(cell) { 3 } else { 2 },
                "{}",
                cell.id
            );
            assert_eq!(record.metrics.contains_key(&Metric::RelayPeakRss), relayed(cell));
        }
    }
}

#[test]
fn a_relay_is_stressed_level_by_level() {
    let stress = json!({
        "sinks": [4, 8], "sinksPerSource": 4, "sinkInterval": "20ms", "plateau": "3s", "transferBytes": "100k"
    });
    let document = document::run("stressed")
        .with("workload", json!({ "relayStress": stress }))
        .with("matrix", json!({ "clients": ["libp2p"], "servers": ["libp2p"] }))
        .with("topology", json!({ "clients": 2 }));
    for results in in_all_modes(&document) {
        assert_eq!(results.plan.cells.len(), 4, "libp2p, and raw");
        for (cell, record) in records(&results) {
            let Parameters::RelayStress(RelayStress { sinks, .. }) = cell.parameters else {
                panic!("{cell:?}")
            };
            assert!(
                record.metrics[&Metric::Circuits] >= f64::from(sinks),
                "{}",
                cell.id
            );
            assert!(record.metrics[&Metric::DownloadGoodput] > 0.0, "{}", cell.id);
            assert!(record.metrics[&Metric::RelayCpu] > 0.0, "{}", cell.id);
            let relay = record
                .nodes
                .values()
                .find(|node| node.role == Role::Relay)
                .unwrap();
            let samples = &relay.measured.samples;
            let carried: u64 = samples.iter().filter_map(|s| s.interface_sent_bytes).sum();
            // On loopback there may be no interface to look at; and the two are not read in the same moment.
            if let Some(all) = relay.measured.resources.interface_sent_bytes {
                let (carried, all) = (carried as f64, all as f64);
                let alike = 0.9 * all..=1.1 * all + 1e5;
                assert!(alike.contains(&carried), "{}: {carried} of {all}", cell.id);
            }
        }
    }
}

/// Runs a document in each mode, and expects that every trial completes.
pub(crate) fn in_all_modes(document: &Document) -> impl Iterator<Item = Results> {
    Mode::available().map(|mode| {
        let scratch = Scratch::new();
        let ended = scratch.run(mode, document, &["--quiet"]).expect(0);
        assert_eq!(ended.stderr, "", "nothing to complain of");
        let folder = scratch.only_run();
        let results = results(&folder);
        assert_eq!((results.state, &results.reason), (RunState::Complete, &None));
        assert_eq!(results.trials.len(), results.plan.trials.len());
        for (cell, record) in records(&results) {
            assert_eq!(record.failure, None, "{}", cell.id);
            assert_eq!(record.attempt, 0, "{}", cell.id);
        }
        let report = fs::read_to_string(folder.join("report.md")).unwrap();
        assert!(report.starts_with(&format!("# {}", results.name)), "{report}");
        let samples = fs::read_to_string(folder.join("samples.csv")).unwrap();
        assert!(samples.lines().count() > 1, "{samples}");
        results
    })
}

pub(crate) fn records(results: &Results) -> impl Iterator<Item = (&Cell, &TrialRecord)> {
    let cell = |record: &TrialRecord| &results.plan.cells[record.trial.cell];
    results.trials.iter().map(move |record| (cell(record), record))
}

/// What the only client and the only server measured.
fn ends(record: &TrialRecord) -> (&Measured, &Measured) {
    let of = |role| {
        let mut nodes = record.nodes.values().filter(move |node| node.role == role);
        let node = nodes.next().unwrap();
        assert!(nodes.next().is_none());
        &node.measured
    };
    (of(Role::Client), of(Role::Server))
}

/// Checks that this number of messages has arrived. Returns how they were sent.
fn assert_messages_arrived(cell: &Cell, record: &TrialRecord, count: u64) -> MessageMode {
    let Parameters::Messages(load) = cell.parameters else {
        panic!("{cell:?}")
    };
    let due = count * load.message_bytes.0;
    let (client, server) = ends(record);
    assert_eq!(
        (client.bytes_sent, server.bytes_received),
        (due, due),
        "{}",
        cell.id
    );
    load.mode
}

fn samples(record: &TrialRecord, distribution: Distribution) -> u64 {
    let (client, _) = ends(record);
    client.histograms[&distribution].decode().unwrap().len()
}

fn direction(cell: &Cell) -> Direction {
    let Parameters::Bandwidth(Bandwidth { direction, .. }) = &cell.parameters else {
        panic!("{cell:?}")
    };
    *direction
}

/// Expects that both ends counted exactly the requested bytes in each direction.
fn assert_exact(cell: &Cell, record: &TrialRecord) {
    let Parameters::Bandwidth(Bandwidth {
        amount: Amount::Count(size),
        streams,
        ..
    }) = &cell.parameters
    else {
        panic!("{cell:?}")
    };
    let due = size * u64::from(*streams);
    let (up, down) = match direction(cell) {
        Direction::Upload => (due, 0),
        Direction::Download => (0, due),
        Direction::Both => (due, due),
    };
    let (client, server) = ends(record);
    assert_eq!(
        [
            client.bytes_sent,
            server.bytes_received,
            server.bytes_sent,
            client.bytes_received
        ],
        [up, up, down, down],
        "{}",
        cell.id
    );
}
