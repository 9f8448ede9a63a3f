//! Metrics of transfers through a relay, and of stress tests.

use std::collections::BTreeMap;

use perfrun_contract::{
    distribution::Distribution,
    measure::{count_mismatch, metrics},
    metric::Metric,
    node::{Measured, Resources, Sample},
    record::NodeRecord,
    role::Role,
};

use super::{MIB, assert_metrics, cell, cpu, histogram, nodes, received};

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
fn a_relayed_transfer_has_the_time_of_each_step_and_the_use_of_the_relay() {
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
fn rates_of_a_relay_under_stress_are_those_of_the_plateau() {
    let cell = cell(
        "{relayStress: {sinks: [4], sinksPerSource: 4, sinkInterval: 1s, plateau: 2s}}",
        "{}",
    );
    // Three seconds of ramp, two seconds of plateau.
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
