//! Metrics of echoes.

use perfrun_contract::{
    distribution::Distribution,
    measure::{count_mismatch, metrics},
    metric::Metric,
    node::{EchoSample, Measured, Plateau, Resources, Sample},
    plan::Cell,
};

use super::{MIB, assert_metrics, cell, cpu, histogram, nodes};

fn echo(clients: u32) -> Cell {
    cell(
        "{echo: {loads: [{connections: 5, streamsPerConnection: 10}], duration: 20s}}",
        &format!("{{clients: {clients}}}"),
    )
}

/// A client with fifty streams that echoed on the plateau, from 5 s to 20 s.
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
        // The first sample is partly on the ramp, the last one after the end.
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
fn an_echo_is_compared_with_one_line_for_each_pause_and_stream() {
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
    // A failed stream may have lost bytes.
    let failed = Measured {
        failures: 1,
        ..server(2 * MIB, 0)
    };
    assert_eq!(mismatch(failed), None);
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
