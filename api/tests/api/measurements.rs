//! Metrics computed by hand.

use std::collections::BTreeMap;

use perfrun_api::{
    histogram::{Histogram, recorder},
    measure::{count_mismatch, metrics},
    node::{Distribution, EchoSample, Measured, Plateau, Resources, Sample, Transfer},
    plan::{Cell, Role},
    results::{Metric, NodeRecord},
};

use crate::fixtures::plan;

const MIB: u64 = 1 << 20;
const MILLISECOND: u64 = 1_000_000;

/// The one cell of a workload, with `topology` beside it.
fn cell(workload: &str, topology: &str) -> Cell {
    let mut cells = plan(&format!(
        "workload: {workload}\ntopology: {topology}\n\
         matrix: {{clients: [libp2p], servers: [libp2p], rawBaseline: false}}"
    ))
    .cells;
    assert_eq!(cells.len(), 1);
    cells.remove(0)
}

fn upload(size: &str, timing: &str) -> Cell {
    cell(
        &format!("{{bandwidth: {{sizes: [{size}], directions: [upload], timing: {timing}}}}}"),
        "{}",
    )
}

fn nodes(clients: Vec<Measured>, servers: Vec<Measured>) -> BTreeMap<String, NodeRecord> {
    let of = |role: Role, all: Vec<Measured>| {
        all.into_iter().enumerate().map(move |(i, measured)| {
            (
                format!("{role}-{i}"),
                NodeRecord {
                    role,
                    measured,
                    link: None,
                },
            )
        })
    };
    of(Role::Client, clients)
        .chain(of(Role::Server, servers))
        .collect()
}

/// What a sender times: bytes and seconds.
fn sent(bytes: u64, seconds: f64) -> Option<Transfer> {
    Some(Transfer {
        bytes,
        seconds,
        ..Transfer::default()
    })
}

/// What a receiver times: the first read brings `first` bytes.
fn received(bytes: u64, first: u64, seconds: f64) -> Option<Transfer> {
    Some(Transfer {
        bytes,
        seconds,
        bytes_after_first: Some(bytes - first),
        first_to_last_seconds: Some(seconds),
    })
}

fn histogram(milliseconds: impl IntoIterator<Item = u64>) -> Histogram {
    let mut all = recorder();
    for value in milliseconds {
        all.record(value * MILLISECOND).unwrap();
    }
    Histogram::from(&all)
}

fn cpu(user: f64, system: f64, rss: u64) -> Resources {
    Resources {
        cpu_user_seconds: user,
        cpu_system_seconds: system,
        rss_peak_bytes: rss,
        ..Resources::default()
    }
}

#[track_caller]
fn assert_metrics(found: &BTreeMap<Metric, f64>, expected: &[(Metric, f64)]) {
    let expected: BTreeMap<Metric, f64> = expected.iter().copied().collect();
    assert_eq!(
        found.keys().collect::<Vec<_>>(),
        expected.keys().collect::<Vec<_>>()
    );
    for (metric, value) in expected {
        // Histograms keep three digits.
        let close = (found[&metric] - value).abs() <= value.abs() * 0.001;
        assert!(close, "{metric}: {} instead of {value}", found[&metric]);
    }
}

#[test]
fn a_strict_upload_is_what_the_server_received() {
    let client = Measured {
        bytes_sent: 8 * MIB,
        upload: sent(8 * MIB, 0.9),
        seconds: 1.0,
        resources: cpu(0.5, 0.25, 1000),
        ..Measured::default()
    };
    let server = Measured {
        bytes_received: 8 * MIB,
        upload: received(8 * MIB, MIB, 0.7),
        resources: cpu(0.125, 0.125, 2000),
        ..Measured::default()
    };
    assert_metrics(
        &metrics(&upload("8Mi", "strict"), &nodes(vec![client], vec![server])),
        &[
            (Metric::UploadSeconds, 0.9),
            (Metric::UploadGoodput, 7.0 * MIB as f64 * 8.0 / 0.7),
            (Metric::CpuSecondsPerGiB, 128.0), // one second for 8 MiB
            (Metric::ClientPeakRss, 1000.0),
            (Metric::ServerPeakRss, 2000.0),
        ],
    );
}

#[test]
fn a_compat_upload_is_what_the_client_timed() {
    let client = Measured {
        upload: sent(8 * MIB, 0.5),
        ..Measured::default()
    };
    let server = Measured {
        upload: received(8 * MIB, MIB, 0.7),
        ..Measured::default()
    };
    let found = metrics(&upload("8Mi", "compat"), &nodes(vec![client], vec![server]));
    assert_eq!(found[&Metric::UploadGoodput], 8.0 * MIB as f64 * 8.0 / 0.5);
    assert_eq!(found[&Metric::UploadSeconds], 0.5);
}

#[test]
fn below_a_mebibyte_there_are_only_times() {
    for (bytes, has_rate) in [(MIB - 1, false), (MIB, true)] {
        let client = Measured {
            upload: sent(bytes, 0.5),
            ..Measured::default()
        };
        let server = Measured {
            upload: received(bytes, 1000, 0.25),
            ..Measured::default()
        };
        let found = metrics(
            &upload(&bytes.to_string(), "strict"),
            &nodes(vec![client], vec![server]),
        );
        assert_eq!(found[&Metric::UploadSeconds], 0.5);
        assert_eq!(found.contains_key(&Metric::UploadGoodput), has_rate, "{bytes}");
        assert_eq!(found.contains_key(&Metric::CpuSecondsPerGiB), has_rate, "{bytes}");
    }
}

#[test]
fn the_published_tools_print_a_rate_for_every_size() {
    let client = Measured {
        upload: sent(1024, 0.001),
        ..Measured::default()
    };
    let server = Measured {
        upload: received(1024, 1024, 0.0),
        ..Measured::default()
    };
    let found = metrics(&upload("1Ki", "compat"), &nodes(vec![client], vec![server]));
    assert_eq!(found[&Metric::UploadGoodput], 1024.0 * 8.0 / 0.001);
}

#[test]
fn a_transfer_that_came_in_one_read_has_no_rate() {
    let client = Measured {
        upload: sent(2 * MIB, 0.001),
        ..Measured::default()
    };
    let server = Measured {
        upload: received(2 * MIB, 2 * MIB, 0.0),
        ..Measured::default()
    };
    let found = metrics(&upload("2Mi", "strict"), &nodes(vec![client], vec![server]));
    assert!(!found.contains_key(&Metric::UploadGoodput));
}

#[test]
fn what_nobody_timed_is_missing_and_not_zero() {
    let found = metrics(
        &upload("8Mi", "strict"),
        &nodes(vec![Measured::default()], vec![Measured::default()]),
    );
    assert_metrics(
        &found,
        &[(Metric::ClientPeakRss, 0.0), (Metric::ServerPeakRss, 0.0)],
    );
}

#[test]
fn a_download_is_what_the_client_received() {
    let cell = cell("{bandwidth: {sizes: [4Mi], directions: [download]}}", "{}");
    let client = Measured {
        download: received(4 * MIB, MIB, 0.3),
        ..Measured::default()
    };
    // What the server timed says when its buffers took it.
    let server = Measured {
        download: sent(4 * MIB, 0.1),
        ..Measured::default()
    };
    let found = metrics(&cell, &nodes(vec![client], vec![server]));
    assert_eq!(found[&Metric::DownloadGoodput], 3.0 * MIB as f64 * 8.0 / 0.3);
    assert_eq!(found[&Metric::DownloadSeconds], 0.3);
    assert!(!found.contains_key(&Metric::UploadSeconds));
}

#[test]
fn both_directions_count_once_each() {
    let cell = cell("{bandwidth: {sizes: [4Mi], directions: [both]}}", "{}");
    let client = Measured {
        upload: sent(4 * MIB, 0.5),
        download: received(4 * MIB, 0, 0.25),
        seconds: 0.8,
        histograms: BTreeMap::from([(Distribution::HandshakeEstablished, histogram([200]))]),
        resources: cpu(1.0, 0.0, 5),
        ..Measured::default()
    };
    let server = Measured {
        upload: received(4 * MIB, 0, 0.4),
        ..Measured::default()
    };
    assert_metrics(
        &metrics(&cell, &nodes(vec![client], vec![server])),
        &[
            (Metric::UploadSeconds, 0.5),
            (Metric::UploadGoodput, 4.0 * MIB as f64 * 8.0 / 0.4),
            (Metric::DownloadSeconds, 0.25),
            (Metric::DownloadGoodput, 4.0 * MIB as f64 * 8.0 / 0.25),
            (Metric::CpuSecondsPerGiB, 128.0),
            (Metric::ConnectSeconds, 0.2),
            (Metric::TotalSeconds, 1.0),
            (Metric::ClientPeakRss, 5.0),
            (Metric::ServerPeakRss, 0.0),
        ],
    );
}

#[test]
fn several_receivers_are_as_fast_as_the_slowest_makes_them() {
    let cell = cell(
        "{bandwidth: {sizes: [2Mi], directions: [upload]}}",
        "{clients: 3, servers: 2}",
    );
    let client = |seconds, rss| Measured {
        upload: sent(2 * MIB, seconds),
        resources: cpu(0.5, 0.5, rss),
        ..Measured::default()
    };
    let server = |bytes, seconds| Measured {
        upload: received(bytes, 0, seconds),
        ..Measured::default()
    };
    let found = metrics(
        &cell,
        &nodes(
            vec![client(0.2, 10), client(0.5, 30), client(0.3, 20)],
            vec![server(4 * MIB, 0.25), server(2 * MIB, 0.5)],
        ),
    );
    assert_metrics(
        &found,
        &[
            (Metric::UploadSeconds, 0.5),
            (Metric::UploadGoodput, 6.0 * MIB as f64 * 8.0 / 0.5),
            (Metric::CpuSecondsPerGiB, 3.0 * 1024.0 / 6.0),
            (Metric::ClientPeakRss, 30.0),
            (Metric::ServerPeakRss, 0.0),
        ],
    );
}

#[test]
fn substreams_are_merged_over_clients() {
    let cell = cell("{substreams: {counts: [5]}}", "{clients: 2}");
    let client = |milliseconds: Vec<u64>, failures| Measured {
        histograms: BTreeMap::from([
            (Distribution::Open, histogram(milliseconds.clone())),
            (
                Distribution::OpenCompat,
                histogram(milliseconds.iter().map(|value| value / 2)),
            ),
        ]),
        failures,
        resources: cpu(0.5, 0.0, 1),
        ..Measured::default()
    };
    // The second is slower than all that the first could hold if it were fixed to its own range.
    let clients = vec![
        client(vec![2, 4, 6, 8, 10], 0),
        client(vec![200_000, 200_000, 200_000, 200_000], 1),
    ];
    assert_metrics(
        &metrics(&cell, &nodes(clients, vec![Measured::default()])),
        &[
            (Metric::OpenMean, (0.030 + 800.0) / 9.0),
            (Metric::OpenP50, 0.010),
            (Metric::OpenP90, 200.0),
            (Metric::OpenP99, 200.0),
            (Metric::OpenMax, 200.0),
            (Metric::OpensPerSecond, 9.0 / 200.0),
            (Metric::OpenMeanCompat, (0.015 + 400.0) / 9.0),
            (Metric::Failures, 1.0),
            (Metric::CpuSecondsPerOperation, 1.0 / 9.0), // one second for the nine that were opened
            (Metric::ClientPeakRss, 1.0),
            (Metric::ServerPeakRss, 0.0),
        ],
    );
}

#[test]
fn opening_in_no_time_has_no_rate() {
    let cell = cell("{substreams: {counts: [1]}}", "{}");
    let client = Measured {
        histograms: BTreeMap::from([(Distribution::Open, histogram([0]))]),
        ..Measured::default()
    };
    let found = metrics(&cell, &nodes(vec![client], vec![]));
    assert!(!found.contains_key(&Metric::OpensPerSecond));
    assert!(found.values().all(|value| value.is_finite()));
}

#[test]
fn handshakes_are_counted_over_the_longest_client() {
    let cell = cell("{handshakes: {count: 4}}", "{clients: 2}");
    let client = |seconds| Measured {
        seconds,
        histograms: BTreeMap::from([
            (Distribution::HandshakeTransport, histogram([1, 1, 1, 1])),
            (Distribution::HandshakeEstablished, histogram([5, 5, 5, 5])),
            (Distribution::HandshakeFirstByte, histogram([7, 7, 7, 7])),
        ]),
        resources: cpu(0.25, 0.25, 1),
        ..Measured::default()
    };
    assert_metrics(
        &metrics(
            &cell,
            &nodes(vec![client(0.5), client(2.0)], vec![Measured::default()]),
        ),
        &[
            (Metric::HandshakeTransportP50, 0.001),
            (Metric::HandshakeEstablishedP50, 0.005),
            (Metric::HandshakeEstablishedP99, 0.005),
            (Metric::HandshakeFirstByteP50, 0.007),
            (Metric::HandshakeFirstByteP99, 0.007),
            (Metric::HandshakesPerSecond, 8.0 / 2.0),
            (Metric::CpuSecondsPerOperation, 1.0 / 8.0),
            (Metric::Failures, 0.0),
            (Metric::ClientPeakRss, 1.0),
            (Metric::ServerPeakRss, 0.0),
        ],
    );
}

#[test]
fn pings_have_percentiles() {
    let cell = cell("{ping: {count: 100}}", "{}");
    let client = Measured {
        histograms: BTreeMap::from([(Distribution::RoundTrip, histogram(1..=100))]),
        resources: cpu(1.0, 1.0, 1),
        ..Measured::default()
    };
    assert_metrics(
        &metrics(&cell, &nodes(vec![client], vec![])),
        &[
            (Metric::RoundTripMean, 0.0505),
            (Metric::RoundTripP50, 0.050),
            (Metric::RoundTripP90, 0.090),
            (Metric::RoundTripP99, 0.099),
            (Metric::RoundTripMax, 0.100),
            (Metric::CpuSecondsPerOperation, 0.02),
            (Metric::Failures, 0.0),
            (Metric::ClientPeakRss, 1.0),
        ],
    );
}

#[test]
fn a_recording_that_cannot_be_read_leaves_no_number_behind() {
    let cell = cell("{ping: {}}", "{clients: 2}");
    let client = |recording| Measured {
        histograms: BTreeMap::from([(Distribution::RoundTrip, recording)]),
        ..Measured::default()
    };
    let broken = serde_json::from_str("\"AAAA\"").unwrap();
    let found = metrics(
        &cell,
        &nodes(vec![client(histogram([1])), client(broken)], vec![]),
    );
    assert!(!found.contains_key(&Metric::RoundTripP50));
}

/// What is said of an upload of which the client sent and the server received so much.
fn mismatch(cell: &Cell, sent: u64, received: u64) -> Option<String> {
    let client = Measured {
        bytes_sent: sent,
        ..Measured::default()
    };
    let server = Measured {
        bytes_received: received,
        ..Measured::default()
    };
    count_mismatch(cell, &nodes(vec![client], vec![server]))
}

#[test]
fn sender_and_receiver_must_agree_on_what_was_due() {
    let cell = cell(
        "{bandwidth: {sizes: [10], directions: [upload], streams: [3]}}",
        "{peersPerClient: 2}",
    );
    assert_eq!(mismatch(&cell, 60, 60), None);
    assert_eq!(
        mismatch(&cell, 60, 59).as_deref(),
        Some("upload: 60 bytes were sent, 59 received of 60 due")
    );
    assert_eq!(
        mismatch(&cell, 30, 30).as_deref(),
        Some("upload: 30 bytes were sent, 30 received of 60 due")
    );
    assert_eq!(
        mismatch(&cell, 61, 61).as_deref(),
        Some("upload: 61 bytes were sent, 61 received of 60 due")
    );
}

#[test]
fn counts_are_summed_over_nodes() {
    let cell = cell(
        "{bandwidth: {sizes: [10], directions: [upload]}}",
        "{clients: 3, servers: 2}",
    );
    let client = || Measured {
        bytes_sent: 10,
        ..Measured::default()
    };
    let server = |bytes_received| Measured {
        bytes_received,
        ..Measured::default()
    };
    let clients = || vec![client(), client(), client()];
    assert_eq!(
        count_mismatch(&cell, &nodes(clients(), vec![server(20), server(10)])),
        None
    );
    assert!(count_mismatch(&cell, &nodes(clients(), vec![server(20), server(11)])).is_some());
}

#[test]
fn both_directions_are_compared() {
    let cell = cell("{bandwidth: {sizes: [10], directions: [both]}}", "{}");
    let ends = |up: (u64, u64), down: (u64, u64)| {
        let client = Measured {
            bytes_sent: up.0,
            bytes_received: down.1,
            ..Measured::default()
        };
        let server = Measured {
            bytes_sent: down.0,
            bytes_received: up.1,
            ..Measured::default()
        };
        count_mismatch(&cell, &nodes(vec![client], vec![server]))
    };
    assert_eq!(ends((10, 10), (10, 10)), None);
    assert!(
        ends((10, 9), (10, 10))
            .unwrap()
            .starts_with("upload: 10 bytes were sent, 9 received")
    );
    assert!(
        ends((10, 10), (10, 9))
            .unwrap()
            .starts_with("download: 10 bytes were sent, 9 received")
    );
}

#[test]
fn a_download_that_was_cut_off_may_lose_what_was_under_way() {
    let cell = cell("{bandwidth: {duration: 1s, directions: [download]}}", "{}");
    let ends = |sent, received| {
        let client = Measured {
            bytes_received: received,
            ..Measured::default()
        };
        let server = Measured {
            bytes_sent: sent,
            ..Measured::default()
        };
        count_mismatch(&cell, &nodes(vec![client], vec![server]))
    };
    assert_eq!(ends(100, 100), None);
    assert_eq!(ends(100, 90), None);
    assert_eq!(
        ends(90, 100).as_deref(),
        Some("download: 90 bytes were sent, 100 received")
    );
}

#[test]
fn a_time_in_which_nothing_arrived_is_a_failure() {
    let cell = cell("{bandwidth: {duration: 1s, directions: [upload]}}", "{}");
    assert_eq!(
        mismatch(&cell, 100, 0).as_deref(),
        Some("upload: nothing arrived in the time given, of 100 bytes that were sent")
    );
    assert!(mismatch(&cell, 0, 0).is_some());
}

#[test]
fn a_slow_transfer_by_time_counts_with_its_low_rate() {
    let cell = cell("{bandwidth: {duration: 1s, directions: [upload]}}", "{}");
    let client = Measured {
        upload: sent(3000, 1.0),
        ..Measured::default()
    };
    let server = Measured {
        upload: received(3000, 1000, 1.0),
        ..Measured::default()
    };
    let found = metrics(&cell, &nodes(vec![client], vec![server]));
    assert_eq!(found[&Metric::UploadGoodput], 16_000.0);
}

#[test]
fn an_upload_by_time_loses_nothing() {
    let cell = cell("{bandwidth: {duration: 1s, directions: [upload]}}", "{}");
    assert_eq!(mismatch(&cell, 100, 100), None);
    assert_eq!(
        mismatch(&cell, 100, 90).as_deref(),
        Some("upload: 100 bytes were sent, 90 received")
    );
}

#[test]
fn the_largest_document_does_not_overflow() {
    let cell = cell(
        "{bandwidth: {sizes: [1Pi], directions: [upload], streams: [1024]}}",
        "{clients: 100, peersPerClient: 1000}",
    );
    assert!(mismatch(&cell, 1, 1).is_some());
}

#[test]
fn other_workloads_have_no_counts_to_compare() {
    assert_eq!(mismatch(&cell("{ping: {}}", "{}"), 1, 2), None);
}

fn echo(clients: u32) -> Cell {
    cell(
        "{echo: {loads: [{connections: 5, streamsPerConnection: 10}], duration: 20s}}",
        &format!("{{clients: {clients}}}"),
    )
}

/// A client of fifty streams that echoed on the plateau, from 5 s to 20 s.
fn echoed(round_trips: u64) -> Measured {
    let sample = |at_seconds: f64, echoing_streams: u64| Sample {
        at_seconds,
        interval_seconds: 1.0,
        allocated_bytes: Some(if at_seconds < 6.0 { 1000 } else { 3500 }),
        echo: Some(EchoSample {
            active_streams: if at_seconds < 6.0 { 20 } else { 50 },
            echoing_streams,
            ..EchoSample::default()
        }),
        ..Sample::default()
    };
    Measured {
        bytes_sent: 2 * MIB,
        bytes_received: 2 * MIB,
        histograms: [(Distribution::RoundTrip, histogram([1, 1, 1, 9]))].into(),
        plateau: Some(Plateau {
            ramp_seconds: 5.0,
            ramp_lateness_seconds: 0.25,
            seconds: 15.0,
            round_trips,
        }),
        // The first lies on the ramp in part, the last beyond the end.
        samples: vec![sample(5.5, 3), sample(6.5, 50), sample(7.5, 49), sample(20.5, 2)],
        resources: Resources {
            allocated_peak_bytes: Some(6000),
            cpu_cycles: Some(MIB),
            ..cpu(3.0, 1.1, 7000)
        },
        ..Measured::default()
    }
}

#[test]
fn an_echo_is_held_against_one_line_for_each_pause_and_stream() {
    // 50 streams, every 0.5 s, for 15 s: 1500.
    let clients = vec![echoed(1500), echoed(1350)];
    let server = Measured {
        resources: cpu(1.0, 0.0, 9000),
        ..Measured::default()
    };
    assert_metrics(
        &metrics(&echo(2), &nodes(clients, vec![server])),
        &[
            (Metric::RoundTripMean, 0.003),
            (Metric::RoundTripP50, 0.001),
            (Metric::RoundTripP90, 0.009),
            (Metric::RoundTripP99, 0.009),
            (Metric::RoundTripMax, 0.009),
            (Metric::RoundTripsPerSecond, 190.0),
            (Metric::AchievedShare, 0.95),
            (Metric::EchoingStreams, 98.0),
            (Metric::RampSeconds, 5.0),
            (Metric::RampLateness, 0.25),
            (Metric::Failures, 0.0),
            (Metric::CpuSecondsPerGiB, 9.2 * 128.0), // of 8 MiB
            (Metric::CpuSecondsPerOperation, 9.2 / 8.0),
            (Metric::ClientCpuCores, 0.2),
            (Metric::ClientPeakRss, 7000.0),
            (Metric::ServerPeakRss, 9000.0),
            (Metric::ClientPeakAllocated, 6000.0),
            (Metric::ClientAllocatedPerStream, 50.0),
        ],
    );
}

#[test]
fn a_client_without_a_plateau_leaves_no_share() {
    let none = Measured {
        plateau: None,
        ..echoed(0)
    };
    let found = metrics(
        &echo(2),
        &nodes(vec![echoed(1500), none], vec![Measured::default()]),
    );
    assert!(!found.contains_key(&Metric::AchievedShare), "{found:?}");
    assert!(!found.contains_key(&Metric::EchoingStreams), "{found:?}");
}

#[test]
fn cycles_are_those_of_all_nodes_or_none() {
    let server = |cpu_cycles| Measured {
        resources: Resources {
            cpu_cycles,
            ..Resources::default()
        },
        ..Measured::default()
    };
    let found = |cycles| metrics(&echo(1), &nodes(vec![echoed(1500)], vec![server(cycles)]));
    // 2 Mi cycles for 4 MiB.
    assert_eq!(found(Some(MIB))[&Metric::CpuCyclesPerByte], 0.5);
    assert_eq!(found(None).get(&Metric::CpuCyclesPerByte), None);
}

#[test]
fn every_byte_that_was_sent_comes_back() {
    let server = |bytes_received, bytes_sent| Measured {
        bytes_received,
        bytes_sent,
        ..Measured::default()
    };
    let mismatch = |server| count_mismatch(&echo(1), &nodes(vec![echoed(1)], vec![server]));
    assert_eq!(mismatch(server(2 * MIB, 2 * MIB)), None);
    let words = mismatch(server(2 * MIB, 2 * MIB - 1)).expect("a byte is missing");
    assert!(words.contains("sent 2097151 back"), "{words}");
    // A stream that failed may have lost some.
    let failed = Measured {
        failures: 1,
        ..server(2 * MIB, 0)
    };
    assert_eq!(mismatch(failed), None);
}

fn with_relay(
    clients: Vec<Measured>,
    servers: Vec<Measured>,
    relay: Measured,
) -> BTreeMap<String, NodeRecord> {
    let mut nodes = nodes(clients, servers);
    let record = NodeRecord {
        role: Role::Relay,
        measured: relay,
        link: None,
    };
    nodes.insert("relay-0".to_owned(), record);
    nodes
}

const GIB: u64 = 1 << 30;

#[test]
fn a_relayed_transfer_says_what_each_step_took_and_what_the_relay_used() {
    let cell = cell(&format!("{{relay: {{sizes: [{GIB}], paths: [relayed]}}}}"), "{}");
    let client = Measured {
        bytes_received: GIB,
        download: received(GIB, GIB / 2, 2.0),
        histograms: BTreeMap::from([
            (Distribution::RelayConnected, histogram([5])),
            (Distribution::HandshakeEstablished, histogram([20])),
            (Distribution::Open, histogram([3])),
            (Distribution::FirstByte, histogram([7])),
            (Distribution::RelayRoundTrip, histogram([1, 2, 3])),
            (Distribution::RoundTrip, histogram([4, 5, 6])),
        ]),
        resources: cpu(1.0, 0.0, 10),
        ..Measured::default()
    };
    let source = Measured {
        bytes_sent: GIB,
        histograms: BTreeMap::from([(Distribution::Reservation, histogram([9]))]),
        resources: cpu(1.0, 0.0, 20),
        ..Measured::default()
    };
    let relay = Measured {
        most_circuits: 1,
        refused: BTreeMap::from([("circuit: NO_RESERVATION (204)".to_owned(), 2)]),
        resources: Resources {
            interface_received_bytes: Some(GIB + 10),
            interface_sent_bytes: Some(GIB),
            ..cpu(1.0, 0.5, 30)
        },
        ..Measured::default()
    };
    let nodes = with_relay(vec![client], vec![source], relay);
    assert_eq!(count_mismatch(&cell, &nodes), None);
    assert_metrics(
        &metrics(&cell, &nodes),
        &[
            (Metric::DownloadSeconds, 2.0),
            (Metric::DownloadGoodput, (GIB / 2) as f64 * 8.0 / 2.0),
            (Metric::RelayConnectSeconds, 0.005),
            (Metric::ConnectSeconds, 0.02),
            (Metric::OpenP50, 0.003),
            (Metric::FirstByteP50, 0.007),
            (Metric::RelayRoundTripP50, 0.002),
            (Metric::RoundTripP50, 0.005),
            (Metric::ReservationSeconds, 0.009),
            (Metric::CpuSecondsPerGiB, 3.5),
            (Metric::RelayCpuSecondsPerGiB, 1.5),
            (Metric::RelayCpu, 0.75),
            (Metric::RelayBytesPerByte, 2.0),
            (Metric::Circuits, 1.0),
            (Metric::Refused, 2.0),
            (Metric::ClientPeakRss, 10.0),
            (Metric::ServerPeakRss, 20.0),
            (Metric::RelayPeakRss, 30.0),
        ],
    );
}

#[test]
fn a_transfer_of_which_some_is_missing_is_a_mismatch() {
    let cell = cell("{relay: {sizes: [10], paths: [direct]}}", "{}");
    let client = Measured {
        bytes_received: 9,
        ..Measured::default()
    };
    let source = Measured {
        bytes_sent: 10,
        ..Measured::default()
    };
    let said = count_mismatch(&cell, &nodes(vec![client], vec![source])).unwrap();
    assert_eq!(said, "download: 10 bytes were sent, 9 received of 10 due");
}

#[test]
fn what_a_relay_carries_under_stress_is_that_of_the_plateau() {
    let cell = cell(
        "{relayStress: {sinks: [4], sinksPerSource: 4, sinkInterval: 1s, plateau: 2s}}",
        "{}",
    );
    // Three seconds of ramp, two of plateau.
    let samples = |bytes: [u64; 5], cpu: [f64; 5]| {
        let each = bytes.into_iter().zip(cpu).enumerate();
        each.map(|(i, (bytes_received, cpu_seconds))| Sample {
            at_seconds: i as f64 + 1.0,
            interval_seconds: 1.0,
            bytes_received,
            operations: 1,
            cpu_seconds,
            ..Sample::default()
        })
        .collect()
    };
    let client = Measured {
        bytes_received: 4 * MIB,
        samples: samples([1, 1, 1, 2 * MIB, MIB], [0.0; 5]),
        histograms: BTreeMap::from([(Distribution::Lateness, histogram([1, 8]))]),
        ..Measured::default()
    };
    let relay = Measured {
        samples: samples([0; 5], [0.1, 0.1, 0.1, 0.9, 0.7]),
        ..Measured::default()
    };
    let server = Measured {
        bytes_sent: 5 * MIB,
        ..Measured::default()
    };
    let nodes = with_relay(vec![client], vec![server], relay);
    assert_eq!(
        count_mismatch(&cell, &nodes),
        None,
        "what was cut off is no mismatch"
    );
    let found = metrics(&cell, &nodes);
    for (metric, value) in [
        (Metric::DownloadGoodput, 1.5 * MIB as f64 * 8.0),
        (Metric::TransfersPerSecond, 1.0),
        (Metric::RelayCpu, 0.8),
        (Metric::RampLateness, 0.008),
    ] {
        let is = found[&metric];
        assert!((is - value).abs() <= value * 0.001, "{metric}: {is}");
    }
}
