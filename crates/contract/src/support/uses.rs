//! Ways to use workloads, of which a stack may lack one and have another.

use crate::{
    matrix::{Identity, Negotiation, Protocol},
    parameters::{
        Amount, Bandwidth, Echo, Handshakes, Messages, Pace, Parameters, Ping, Relay, RelayStress, Substreams,
    },
    quantity::ByteSize,
    workload::{Direction, MessageMode, OpenMode, RelayLimits, RelayPath, Timing},
};

/// A way to use a workload: its name, and its parameters for a number of streams.
pub type Use = (&'static str, fn(u32) -> Parameters);

/// The ways to use workloads that stacks support or do not.
pub const USES: [Use; 15] = [
    ("`bandwidth`, perf", |streams| {
        bandwidth(Protocol::Perf, Amount::Count(1), streams)
    }),
    ("`bandwidth`, perf, download for a `duration`", |streams| {
        bandwidth(Protocol::Perf, Amount::Seconds(1.0), streams)
    }),
    ("`bandwidth`, litep2p-perf", |streams| {
        bandwidth(Protocol::Litep2pPerf, Amount::Count(1), streams)
    }),
    ("`substreams`, burst", |count| {
        substreams(count, OpenMode::Burst, Negotiation::V1)
    }),
    ("`substreams`, paced", |count| {
        substreams(count, OpenMode::Paced, Negotiation::V1)
    }),
    ("`substreams`, v1lazy", |count| {
        substreams(count, OpenMode::Burst, Negotiation::V1Lazy)
    }),
    ("`handshakes`", |_| {
        Parameters::Handshakes(Handshakes {
            amount: Amount::Count(1),
            in_flight: 1,
        })
    }),
    ("`ping`", |_| {
        Parameters::Ping(Ping {
            count: 1,
            interval_seconds: 0.0,
        })
    }),
    ("`echo`", |streams| echo(1, streams, Identity::Ed25519)),
    ("`echo`, 100 connections", |streams| {
        echo(100, streams, Identity::Ed25519)
    }),
    ("`echo`, rsa2048", |streams| echo(1, streams, Identity::Rsa2048)),
    ("`relay`, direct", |_| relay(RelayPath::Direct)),
    ("`relay`, relayed", |_| relay(RelayPath::Relayed)),
    ("`relayStress`", |_| {
        Parameters::RelayStress(RelayStress {
            sinks: 1,
            sources: 1,
            start_interval_seconds: 1.0,
            ramp_seconds: 0.0,
            plateau_seconds: 60.0,
            bytes: 1,
            chunk_bytes: ByteSize(1),
            limits: RelayLimits::default(),
        })
    }),
    ("`messages`", |_| {
        Parameters::Messages(Messages {
            mode: MessageMode::SerialAck,
            message_bytes: ByteSize(64),
            amount: Amount::Count(1),
            window: 1,
            rate: None,
            priority: false,
            receivers: 1,
        })
    }),
];

fn echo(connections: u32, streams_per_connection: u32, identity: Identity) -> Parameters {
    Parameters::Echo(Echo {
        connections,
        streams_per_connection,
        connection_interval_seconds: 1.0,
        stream_interval_seconds: 0.1,
        message_bytes: ByteSize(1024),
        pace: Pace::Pause(0.5),
        deadline_seconds: 5.0,
        duration_seconds: 300.0,
        identity,
        sample_interval_seconds: 1.0,
    })
}

fn relay(path: RelayPath) -> Parameters {
    Parameters::Relay(Relay {
        path,
        bytes: 1,
        chunk_bytes: ByteSize(1),
        pings: 0,
        limits: RelayLimits::default(),
    })
}

fn bandwidth(protocol: Protocol, amount: Amount, streams: u32) -> Parameters {
    Parameters::Bandwidth(Bandwidth {
        protocol,
        direction: Direction::Download,
        amount,
        streams,
        chunk_bytes: ByteSize(1),
        timing: Timing::Strict,
        negotiation: Negotiation::V1,
    })
}

fn substreams(count: u32, mode: OpenMode, negotiation: Negotiation) -> Parameters {
    Parameters::Substreams(Substreams {
        count,
        mode,
        rate: (mode == OpenMode::Paced).then_some(1),
        negotiation,
    })
}
