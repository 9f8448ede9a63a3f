//! Parameters of cells: protocol, duration, streams and name.

use std::time::Duration;

use perfrun_contract::{
    matrix::{Identity, Negotiation, Protocol},
    parameters::{Amount, Bandwidth, Echo, Handshakes, Messages, Pace, Parameters, Ping, Substreams},
    quantity::ByteSize,
    workload::{Direction, MessageMode, OpenMode, Timing},
};

use crate::fixtures::plan;

fn of(workload: &str) -> Parameters {
    plan(&format!(
        "workload: {workload}\nmatrix: {{clients: [libp2p], servers: [libp2p], rawReference: false}}"
    ))
    .cells
    .remove(0)
    .parameters
}

#[test]
fn parameters_have_all_fields_of_the_document() {
    assert_eq!(
        of(
            "{bandwidth: {protocol: litep2p-perf, sizes: [64Ki], directions: [both], timing: compat, chunkBytes: 1Ki}}"
        ),
        Parameters::Bandwidth(Bandwidth {
            protocol: Protocol::Litep2pPerf,
            direction: Direction::Both,
            amount: Amount::Count(65536),
            streams: 1,
            chunk_bytes: ByteSize(1024),
            timing: Timing::Compat,
            negotiation: Negotiation::V1,
        })
    );
    assert_eq!(
        of("{substreams: {counts: [32], mode: paced, rate: 64, negotiation: v1lazy}}"),
        Parameters::Substreams(Substreams {
            count: 32,
            mode: OpenMode::Paced,
            rate: Some(64),
            negotiation: Negotiation::V1Lazy,
        })
    );
    assert_eq!(
        of("{handshakes: {count: 9, inFlight: [3]}}"),
        Parameters::Handshakes(Handshakes {
            amount: Amount::Count(9),
            in_flight: 3
        })
    );
    assert_eq!(
        of("{ping: {count: 5, interval: 20ms}}"),
        Parameters::Ping(Ping {
            count: 5,
            interval_seconds: 0.02
        })
    );
    let defaults = Echo {
        connections: 10,
        streams_per_connection: 1000,
        connection_interval_seconds: 1.0,
        stream_interval_seconds: 0.1,
        message_bytes: ByteSize(1024),
        pace: Pace::Pause(0.5),
        deadline_seconds: 5.0,
        duration_seconds: 300.0,
        identity: Identity::Ed25519,
        sample_interval_seconds: 1.0,
    };
    assert_eq!(
        of("{echo: {loads: [{preset: scenario-1}]}}"),
        Parameters::Echo(defaults)
    );
}

#[test]
fn messages_have_the_window_of_their_mode() {
    let messages = |mode, window| {
        Parameters::Messages(Messages {
            mode,
            message_bytes: ByteSize(64),
            amount: Amount::Count(9),
            window,
            rate: None,
            priority: false,
            receivers: 1,
        })
    };
    for (workload, parameters) in [
        (
            "{messages: {modes: [stream], window: 8, count: 9}}",
            messages(MessageMode::Stream, 8),
        ),
        (
            "{messages: {modes: [stream], count: 9}}",
            messages(MessageMode::Stream, 64),
        ),
        // One message at a time, whatever the window of the other mode.
        (
            "{messages: {modes: [serial], window: 8, count: 9}}",
            messages(MessageMode::Serial, 1),
        ),
        (
            "{messages: {window: 8, count: 9}}",
            messages(MessageMode::SerialAck, 1),
        ),
    ] {
        assert_eq!(of(workload), parameters, "{workload}");
    }
}

#[test]
fn published_echo_loads_have_the_published_ramp_and_rate() {
    for (preset, streams, ramp, rate) in [
        ("scenario-1", 10_000, 108.9, 20_000.0),
        ("scenario-2", 10_000, 108.9, 20_000.0),
        ("published-effective", 1295, 29.8, 2590.0),
    ] {
        let Parameters::Echo(load) = of(&format!("{{echo: {{loads: [{{preset: {preset}}}]}}}}")) else {
            panic!("{preset}")
        };
        assert_eq!(load.streams(), streams, "{preset}");
        assert!(
            (load.ramp_seconds() - ramp).abs() < 1e-9,
            "{preset}: {}",
            load.ramp_seconds()
        );
        assert_eq!(load.nominal_rate(), rate, "{preset}");
    }
}

#[test]
fn an_echo_pauses_or_has_a_period() {
    for (set, pace) in [
        ("", Pace::Pause(0.5)),
        (", pause: 250ms", Pace::Pause(0.25)),
        (", period: 250ms", Pace::Period(0.25)),
    ] {
        let parameters = of(&format!("{{echo: {{loads: [{{preset: scenario-1}}]{set}}}}}"));
        assert_eq!(parameters.pace(), Some(pace), "{set}");
    }
}

#[test]
fn each_workload_has_its_protocol() {
    for (workload, protocol) in [
        ("{bandwidth: {sizes: [1]}}", "/perf/1.0.0"),
        (
            "{bandwidth: {sizes: [1], protocol: litep2p-perf}}",
            "/litep2p-perf/1.0.0",
        ),
        ("{substreams: {}}", "/litep2p-perf/1.0.0"),
        ("{handshakes: {count: 1}}", "/ipfs/ping/1.0.0"),
        ("{ping: {}}", "/ipfs/ping/1.0.0"),
        ("{echo: {loads: [{preset: scenario-2}]}}", "/echo/1.0.0"),
        ("{messages: {count: 1}}", "/perfrun/messages/1.0.0"),
    ] {
        assert_eq!(of(workload).protocol().as_ref(), protocol, "{workload}");
    }
}

#[test]
fn a_trial_may_last_longer_by_the_time_that_is_requested() {
    for (workload, milliseconds) in [
        ("{bandwidth: {sizes: [1Gi]}}", 0),
        ("{bandwidth: {duration: 20s}}", 20_000),
        ("{substreams: {counts: [256]}}", 0),
        ("{substreams: {counts: [256], mode: paced, rate: 64}}", 4000),
        ("{handshakes: {count: 100}}", 0),
        ("{handshakes: {duration: 1500ms}}", 1500),
        ("{ping: {count: 1000}}", 0),
        ("{ping: {count: 1000, interval: 10ms}}", 10_000),
        ("{echo: {loads: [{preset: scenario-2}]}}", 300_000),
        ("{messages: {count: 1000}}", 0),
        ("{messages: {duration: 1500ms}}", 1500),
    ] {
        assert_eq!(
            of(workload).duration(),
            Duration::from_millis(milliseconds),
            "{workload}"
        );
    }
}

#[test]
fn parameters_with_impossible_times_have_a_bounded_duration() {
    for seconds in [-1.0, f64::NEG_INFINITY] {
        let parameters = Parameters::Handshakes(Handshakes {
            amount: Amount::Seconds(seconds),
            in_flight: 1,
        });
        assert_eq!(parameters.duration(), Duration::ZERO);
    }
    for seconds in [1e300, f64::INFINITY, f64::NAN] {
        let parameters = Parameters::Ping(Ping {
            count: 1,
            interval_seconds: seconds,
        });
        // The duration is added to a timeout, which must not overflow.
        assert!(
            parameters.duration() + Duration::from_secs(u64::from(u32::MAX)) > Duration::from_secs(1_000_000)
        );
    }
    let parameters = Parameters::Substreams(Substreams {
        count: 1,
        mode: OpenMode::Paced,
        rate: Some(0),
        negotiation: Negotiation::V1,
    });
    assert!(parameters.duration() > Duration::from_secs(1_000_000));
}

#[test]
fn parameters_count_their_streams_and_have_a_short_name() {
    for (workload, streams, name) in [
        ("{bandwidth: {sizes: [1500]}}", 1, "upload-1500"),
        (
            "{bandwidth: {duration: 300ms, streams: [8], directions: [download]}}",
            8,
            "download-0.3s-x8",
        ),
        ("{substreams: {counts: [64]}}", 64, "open-64"),
        ("{messages: {sizes: [1Ki], count: 1}}", 1, "serialAck-1Ki"),
        (
            "{handshakes: {duration: 2s, inFlight: [10]}}",
            1,
            "handshakes-2s-x10",
        ),
        ("{ping: {count: 7}}", 1, "ping-7"),
        (
            "{echo: {loads: [{connections: 3, streamsPerConnection: 40}]}}",
            40,
            "echo-3x40",
        ),
        (
            "{echo: {loads: [{connections: 3, streamsPerConnection: 40}], period: 1s, identity: rsa2048}}",
            40,
            "echo-3x40-rsa2048-period",
        ),
    ] {
        let parameters = of(workload);
        assert_eq!(
            (parameters.streams(), parameters.to_string().as_str()),
            (streams, name)
        );
    }
}
