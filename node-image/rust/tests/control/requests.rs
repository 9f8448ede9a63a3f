//! The requests of the tests.

use perfrun_contract::{
    matrix::{Identity, Negotiation, Protocol, Stack, StackSettings, Transport},
    node::{Side, TrialLabels, TrialRequest},
    parameters::{Amount, Bandwidth, Echo, Pace, Parameters, Ping, Substreams},
    quantity::ByteSize,
    workload::{Direction, OpenMode},
};

pub(crate) fn server(stack: Stack, transport: Transport, parameters: Parameters) -> TrialRequest {
    TrialRequest {
        stack: stack.to_string(),
        settings: StackSettings::default(),
        transport,
        parameters,
        side: Side::Server,
        timeout_seconds: timeout_seconds(transport),
        labels: labels(),
    }
}

/// On WebRTC libp2p loses a dial after 10 s if the client's tasks wait for a CPU (webrtc-rs issue 821), and
/// dials again: on a busy machine several times in a row.
fn timeout_seconds(transport: Transport) -> f64 {
    match transport {
        Transport::WebrtcDirect => 600.0,
        _ => 80.0,
    }
}

pub(crate) fn dialler(
    stack: Stack,
    transport: Transport,
    parameters: Parameters,
    servers: Vec<String>,
    peers: u32,
) -> TrialRequest {
    let side = Side::Client {
        servers,
        peers,
        clocks: vec![],
    };
    TrialRequest {
        side,
        ..server(stack, transport, parameters)
    }
}

pub(crate) fn both(stack: Stack, transport: Transport, parameters: Parameters, peers: u32) -> TrialRequest {
    TrialRequest {
        side: Side::Both { peers },
        ..server(stack, transport, parameters)
    }
}

/// The labels of the tests' trials in metrics.
fn labels() -> TrialLabels {
    TrialLabels {
        cell: "a-cell".to_owned(),
        network: "a-network".to_owned(),
    }
}

pub(crate) fn bandwidth(
    protocol: Protocol,
    direction: Direction,
    amount: Amount,
    streams: u32,
) -> Parameters {
    Parameters::Bandwidth(Bandwidth {
        streams,
        chunk_bytes: ByteSize(64 << 10),
        ..Bandwidth::new(protocol, direction, amount)
    })
}

pub(crate) fn substreams(count: u32) -> Parameters {
    Parameters::Substreams(Substreams {
        count,
        mode: OpenMode::Burst,
        rate: None,
        negotiation: Negotiation::V1,
    })
}

pub(crate) fn ping(count: u32, interval_seconds: f64) -> Parameters {
    Parameters::Ping(Ping {
        count,
        interval_seconds,
    })
}

/// More pings than any test waits for.
pub(crate) fn endless_ping() -> Parameters {
    ping(10_000_000, 0.01)
}

/// Streams that echo a line of 1 KiB every 50 ms. They are opened within the first tenth of a second.
pub(crate) fn echo(connections: u32, streams_per_connection: u32, duration_seconds: f64) -> Echo {
    Echo {
        connections,
        streams_per_connection,
        connection_interval_seconds: 0.05 / f64::from(connections),
        stream_interval_seconds: 0.05 / f64::from(streams_per_connection),
        message_bytes: ByteSize(1 << 10),
        pace: Pace::Pause(0.05),
        deadline_seconds: 5.0,
        duration_seconds,
        identity: Identity::Ed25519,
        sample_interval_seconds: 0.2,
    }
}
