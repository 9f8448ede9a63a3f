//! The page of the workloads that each pair of stacks supports.

use perfrun_contract::{
    limits::STREAMS_MAX,
    matrix::{Identity, Negotiation, Protocol, Stack, Transport},
    parameters::{Amount, Echo, Messages, Parameters},
    quantity::ByteSize,
    support::unsupported,
    workload::{Direction, MessageMode, OpenMode, RelayLimits, RelayPath, Timing},
};
use strum::IntoEnumIterator;

/// A way to use a workload: its name, and its parameters for a number of streams.
type Use = (&'static str, fn(u32) -> Parameters);

const USES: [Use; 15] = [
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
    ("`handshakes`", |_| Parameters::Handshakes {
        amount: Amount::Count(1),
        in_flight: 1,
    }),
    ("`ping`", |_| Parameters::Ping {
        count: 1,
        interval_seconds: 0.0,
    }),
    ("`echo`", |streams| echo(1, streams, Identity::Ed25519)),
    ("`echo`, 100 connections", |streams| {
        echo(100, streams, Identity::Ed25519)
    }),
    ("`echo`, rsa2048", |streams| echo(1, streams, Identity::Rsa2048)),
    ("`relay`, direct", |_| relay(RelayPath::Direct)),
    ("`relay`, relayed", |_| relay(RelayPath::Relayed)),
    ("`relayStress`", |_| Parameters::RelayStress {
        sinks: 1,
        sources: 1,
        start_interval_seconds: 1.0,
        ramp_seconds: 0.0,
        plateau_seconds: 60.0,
        bytes: 1,
        chunk_bytes: ByteSize(1),
        limits: RelayLimits::default(),
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
        pause_seconds: 0.5,
        deadline_seconds: 5.0,
        duration_seconds: 300.0,
        identity,
        sample_interval_seconds: 1.0,
    })
}

/// Every pair on every transport, with the reasons for what is unsupported.
pub(super) fn page() -> String {
    let mut reasons = vec![];
    let mut rows = String::new();
    for transport in Transport::iter() {
        for (client, server) in pairs() {
            rows += &format!("| `{transport}` | {client} → {server} |");
            for (_, parameters) in USES {
                let answer = answer(&mut reasons, |streams| {
                    unsupported(client, server, transport, &parameters(streams))
                });
                rows += &format!(" {answer} |");
            }
            rows.push('\n');
        }
    }
    let names = USES.map(|(name, _)| name).join(" | ");
    let rule = "---|".repeat(USES.len());
    let notes: String = (1..)
        .zip(&reasons)
        .map(|(number, reason)| format!("{number}. {reason}\n"))
        .collect();
    format!(
        "# What each pair of stacks supports\n\n\
         Generated from the planner's table by `cargo xtask crds`.\n\n\
         Pairs are client → server. *yes*: measured as requested. *up to 100*: the number of open streams on\n\
         one connection above which a cell is skipped. *–*: always skipped. Numbers refer to the reasons\n\
         below, which `perfrun plan` and reports also give. `raw` is the baseline. The baseline of `tcp-tls`\n\
         and `ws` is raw on `tcp`, that of `webrtc-direct` is raw on `quic-v1`. `memory` has no baseline.\n\n\
         | transport | pair | {names} |\n|---|---|{rule}\n{rows}\n\
         ## Reasons\n\n{notes}"
    )
}

/// The pairs that can run something.
fn pairs() -> Vec<(Stack, Stack)> {
    let all = Stack::iter().flat_map(|client| Stack::iter().map(move |server| (client, server)));
    let can_run = |(client, server): &(Stack, Stack)| {
        let is_possible = |transport, parameters: Parameters| {
            unsupported(*client, *server, transport, &parameters).is_none()
        };
        Transport::iter().any(|transport| USES.iter().any(|(_, of)| is_possible(transport, of(1))))
    };
    all.filter(can_run).collect()
}

/// Whether one stream is possible, and if so, how many are.
fn answer(reasons: &mut Vec<String>, unsupported: impl Fn(u32) -> Option<String>) -> String {
    let mut note = |reason: String| {
        let position = reasons.iter().position(|noted| *noted == reason);
        1 + position.unwrap_or_else(|| {
            reasons.push(reason);
            reasons.len() - 1
        })
    };
    if let Some(reason) = unsupported(1) {
        return format!("– ({})", note(reason));
    }
    let first_refused = (2..=STREAMS_MAX).find_map(|streams| Some((streams, unsupported(streams)?)));
    match first_refused {
        Some((streams, reason)) => format!("up to {} ({})", streams - 1, note(reason)),
        None => "yes".to_owned(),
    }
}

fn relay(path: RelayPath) -> Parameters {
    Parameters::Relay {
        path,
        bytes: 1,
        chunk_bytes: ByteSize(1),
        pings: 0,
        limits: RelayLimits::default(),
    }
}

fn bandwidth(protocol: Protocol, amount: Amount, streams: u32) -> Parameters {
    Parameters::Bandwidth {
        protocol,
        direction: Direction::Download,
        amount,
        streams,
        chunk_bytes: ByteSize(1),
        timing: Timing::Strict,
        negotiation: Negotiation::V1,
    }
}

fn substreams(count: u32, mode: OpenMode, negotiation: Negotiation) -> Parameters {
    Parameters::Substreams {
        count,
        mode,
        rate: (mode == OpenMode::Paced).then_some(1),
        negotiation,
    }
}
