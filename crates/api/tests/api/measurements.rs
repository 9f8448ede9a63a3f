//! Metrics computed by hand.

mod counts;
mod echo;
mod relay;

use std::collections::BTreeMap;

use perfrun_contract::{
    distribution::Distribution,
    histogram::{Histogram, recorder},
    measure::{count_mismatch, metrics},
    metric::Metric,
    node::{Measured, Resources, Transfer},
    plan::Cell,
    record::NodeRecord,
    role::Role,
};

use crate::fixtures::plan;

const MIB: u64 = 1 << 20;
const MILLISECOND: u64 = 1_000_000;

/// The only cell of a workload with a topology.
fn cell(workload: &str, topology: &str) -> Cell {
    let mut cells = plan(&format!(
        "workload: {workload}\ntopology: {topology}\n\
         matrix: {{clients: [libp2p], servers: [libp2p], rawReference: false}}"
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

/// A transfer timed by its sender.
fn sent(bytes: u64, seconds: f64) -> Option<Transfer> {
    Some(Transfer {
        bytes,
        seconds,
        ..Transfer::default()
    })
}

/// A transfer timed by its receiver, whose first read returns `first` bytes.
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
        // Histograms keep three significant digits.
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
fn an_infinite_rate_is_omitted_because_json_cannot_hold_it() {
    let client = Measured {
        upload: sent(8 * MIB, f64::from_bits(1)),
        ..Measured::default()
    };
    let server = Measured {
        upload: received(8 * MIB, MIB, f64::from_bits(1)),
        ..Measured::default()
    };
    for timing in ["strict", "compat"] {
        let found = metrics(
            &upload("8Mi", timing),
            &nodes(vec![client.clone()], vec![server.clone()]),
        );
        assert!(found.values().all(|value| value.is_finite()), "{found:?}");
        assert!(!found.contains_key(&Metric::UploadGoodput), "{timing}");
        assert!(found.contains_key(&Metric::UploadSeconds), "{timing}");
    }
}

#[test]
fn a_transfer_without_times_has_no_rates_rather_than_zero() {
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
    // The server's time ends when its buffers have accepted the bytes.
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
    // The second value is outside the range of the first histogram.
    let clients = vec![
        client(vec![2, 4, 6, 8, 10], 0),
        client(vec![200_000, 200_000, 200_000, 200_000], 1),
    ];
    assert_metrics(
        &metrics(&cell, &nodes(clients, vec![Measured::default()])),
        &[
            (Metric::OpenMean, (0.030 + 800.0) / 9.0),
            (Metric::OpenP50, 0.010),
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
            (Metric::HandshakeFirstByteP50, 0.007),
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
    let cell = cell("{ping: {count: 1000}}", "{}");
    let client = Measured {
        histograms: BTreeMap::from([(Distribution::RoundTrip, histogram(1..=1000))]),
        resources: cpu(1.0, 1.0, 1),
        ..Measured::default()
    };
    assert_metrics(
        &metrics(&cell, &nodes(vec![client], vec![])),
        &[
            (Metric::RoundTripMean, 0.5005),
            (Metric::RoundTripP50, 0.500),
            (Metric::RoundTripP90, 0.900),
            (Metric::RoundTripP99, 0.990),
            (Metric::RoundTripMax, 1.000),
            (Metric::CpuSecondsPerOperation, 0.002),
            (Metric::Failures, 0.0),
            (Metric::ClientPeakRss, 1.0),
        ],
    );
}

#[test]
fn a_percentile_leaves_ten_operations_above_it() {
    for (count, has_p90, has_p99) in [
        (99, false, false),
        (100, true, false),
        (999, true, false),
        (1000, true, true),
    ] {
        let cell = cell(&format!("{{ping: {{count: {count}}}}}"), "{}");
        let client = Measured {
            histograms: BTreeMap::from([(Distribution::RoundTrip, histogram(1..=count))]),
            ..Measured::default()
        };
        let found = metrics(&cell, &nodes(vec![client], vec![]));
        let has = |metric| found.contains_key(&metric);
        assert_eq!(
            (has(Metric::RoundTripP90), has(Metric::RoundTripP99)),
            (has_p90, has_p99),
            "{count}"
        );
        assert!(has(Metric::RoundTripP50) && has(Metric::RoundTripMax), "{count}");
    }
}

#[test]
fn messages_are_counted_where_they_arrive() {
    let cell = cell(
        "{messages: {modes: [stream], sizes: [1Mi], count: 8}}",
        "{clients: 2}",
    );
    let client = |seconds, milliseconds: [u64; 2]| Measured {
        upload: sent(8 * MIB, seconds),
        histograms: BTreeMap::from([(Distribution::RoundTrip, histogram(milliseconds))]),
        resources: cpu(0.5, 0.25, 1),
        ..Measured::default()
    };
    let server = Measured {
        upload: received(16 * MIB, MIB, 0.3),
        resources: cpu(0.25, 0.25, 2),
        ..Measured::default()
    };
    let clients = vec![client(0.5, [10, 20]), client(0.25, [30, 40])];
    assert_metrics(
        &metrics(&cell, &nodes(clients, vec![server])),
        &[
            // All messages until the slowest client has its last acknowledgement.
            (Metric::MessagesPerSecond, 16.0 / 0.5),
            (Metric::UploadGoodput, 15.0 * MIB as f64 * 8.0 / 0.3),
            (Metric::CpuSecondsPerMessage, 2.0 / 16.0),
            (Metric::CpuSecondsPerGiB, 2.0 * 1024.0 / 16.0),
            (Metric::RoundTripMean, 0.025),
            (Metric::RoundTripP50, 0.020),
            (Metric::RoundTripMax, 0.040),
            (Metric::Failures, 0.0),
            (Metric::ClientPeakRss, 1.0),
            (Metric::ServerPeakRss, 2.0),
        ],
    );
}

#[test]
fn serial_messages_have_times_of_one_way_and_the_cost_of_one_process() {
    let cell = cell("{messages: {modes: [serial], sizes: [64], count: 100}}", "{}");
    let client = Measured {
        upload: sent(6400, 0.5),
        histograms: BTreeMap::from([(Distribution::OneWay, histogram(1..=100))]),
        resources: cpu(0.5, 0.5, 1),
        ..Measured::default()
    };
    // The server is in the client's process: what it reports of that process is counted there.
    let server = Measured {
        upload: received(6400, 64, 0.4),
        resources: cpu(0.5, 0.5, 1),
        ..Measured::default()
    };
    assert_metrics(
        &metrics(&cell, &nodes(vec![client], vec![server])),
        &[
            (Metric::MessagesPerSecond, 200.0),
            (Metric::CpuSecondsPerMessage, 0.01),
            (Metric::OneWayMean, 0.0505),
            (Metric::OneWayP50, 0.050),
            (Metric::OneWayP90, 0.090),
            (Metric::OneWayMax, 0.100),
            (Metric::Failures, 0.0),
            (Metric::ClientPeakRss, 1.0),
        ],
    );
}

#[test]
fn messages_of_a_rate_are_not_faster_than_it() {
    let rates = |topology: &str, messages: u64, seconds: f64| {
        let cell = cell(
            "{messages: {modes: [stream], sizes: [64], rate: 3, duration: 1s}}",
            topology,
        );
        let client = Measured {
            upload: sent(64 * messages, seconds),
            ..Measured::default()
        };
        let server = Measured {
            upload: received(64 * messages, 64 * messages.min(1), seconds),
            ..Measured::default()
        };
        let found = metrics(&cell, &nodes(vec![client], vec![server]));
        [Metric::MessagesPerSecond, Metric::AchievedShare].map(|metric| found.get(&metric).copied())
    };
    // Four messages have three intervals.
    assert_eq!(rates("{}", 4, 1.0), [Some(3.0), Some(1.0)]);
    assert_eq!(rates("{}", 4, 2.0), [Some(1.5), Some(0.5)]);
    assert_eq!(rates("{}", 1, 0.5), [None, None]);
    assert_eq!(rates("{}", 0, 0.5), [Some(0.0), Some(0.0)]);
    // Each peer has a first message.
    assert_eq!(rates("{peersPerClient: 2}", 8, 1.0), [Some(6.0), Some(1.0)]);
}

#[test]
fn messages_that_did_not_arrive_have_no_rate() {
    let cell = cell("{messages: {modes: [stream], sizes: [64], duration: 1s}}", "{}");
    let found = metrics(
        &cell,
        &nodes(vec![Measured::default()], vec![Measured::default()]),
    );
    assert_metrics(
        &found,
        &[
            (Metric::Failures, 0.0),
            (Metric::ClientPeakRss, 0.0),
            (Metric::ServerPeakRss, 0.0),
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
