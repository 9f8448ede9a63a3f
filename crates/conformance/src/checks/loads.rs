//! What nodes do in checks of workloads, and what they must report of it.

use std::time::Duration;

use perfrun_contract::{
    capabilities::Capabilities,
    distribution::Distribution,
    matrix::{Identity, Negotiation, Protocol},
    node::Measured,
    parameters::{
        Amount, Bandwidth, Echo, Handshakes, Messages, Pace, Parameters, Relay, RelayStress, Substreams,
    },
    quantity::ByteSize,
    workload::{Direction, MessageMode, OpenMode, RelayLimits, RelayPath},
};

use super::{
    counts::{check_ends, check_equal, check_value_count, values},
    negotiations, ping,
};
use crate::trial::TrialOutcomes;

/// Bytes of one write or read call in these trials.
const CHUNK: u64 = 1024;

/// Sizes around a chunk, and one of many chunks.
const SIZES: [u64; 6] = [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 1 << 20];

/// Streams of a transfer over several.
const STREAMS: u32 = 3;

/// Substreams that are opened.
const OPENS: u32 = 5;

/// Bytes of a transfer through a relay.
const BYTES: u64 = 300_001;

/// Messages, and the bytes of one.
pub(super) const MESSAGES: u64 = 200;
pub(super) const MESSAGE_BYTES: u64 = 100;

/// Lines of an echo that a stream may have sent late on a busy machine.
const LATE_LINES_MAX: f64 = 10.0;

/// The outcome of loads without a count that must be reached: they do as much as the machine lets them.
const AS_MUCH_AS_THE_MACHINE_CAN: Result<(), String> = Ok(());

/// What is spoken between two nodes, and what they do.
#[derive(Clone, Debug)]
pub(super) struct Load {
    pub(super) name: String,
    pub(super) parameters: Vec<Parameters>,
}

/// What the node claims to do.
pub(super) fn loads(capabilities: &Capabilities) -> Vec<Load> {
    let mut all = vec![];
    let mut add = |name: &str, parameters: Vec<Parameters>| {
        let workload = parameters.first().map_or("", Parameters::workload);
        if capabilities.workloads.contains(workload) {
            all.push(Load {
                name: name.to_owned(),
                parameters,
            });
        }
    };
    for negotiation in negotiations(capabilities) {
        let lazy = match negotiation {
            Negotiation::V1 => "",
            Negotiation::V1Lazy => ".v1lazy",
        };
        for (name, protocol) in [("perf", Protocol::Perf), ("litep2p-perf", Protocol::Litep2pPerf)] {
            if !capabilities.protocols.contains(protocol.as_ref()) {
                continue;
            }
            let of =
                |direction, amount, streams| bandwidth(protocol, direction, amount, streams, negotiation);
            let mut sized: Vec<_> = SIZES
                .iter()
                .map(|bytes| of(Direction::Both, Amount::Count(*bytes), 1))
                .collect();
            for direction in [Direction::Upload, Direction::Download] {
                sized.push(of(direction, Amount::Count(100_001), STREAMS));
            }
            add(&format!("bandwidth.{name}{lazy}"), sized);
            if protocol == Protocol::Perf {
                let timed = [Direction::Upload, Direction::Download]
                    .map(|direction| of(direction, Amount::Seconds(0.3), 1));
                add(&format!("bandwidth.{name}.timed{lazy}"), timed.into());
            }
        }
        let opens = |mode, rate| {
            Parameters::Substreams(Substreams {
                count: OPENS,
                mode,
                rate,
                negotiation,
            })
        };
        add(
            &format!("substreams.paced{lazy}"),
            vec![opens(OpenMode::Paced, Some(100))],
        );
        add(
            &format!("substreams.burst{lazy}"),
            vec![opens(OpenMode::Burst, None)],
        );
    }
    add(
        "handshakes",
        vec![Parameters::Handshakes(Handshakes {
            amount: Amount::Count(3),
            in_flight: 1,
        })],
    );
    add("ping", vec![ping(20)]);
    add("echo", vec![echo(Pace::Pause(0.05))]);
    add("echo.period", vec![echo(Pace::Period(0.05))]);
    add("messages.serialAck", vec![messages(MessageMode::SerialAck, 1)]);
    add("messages.stream", vec![messages(MessageMode::Stream, 16)]);
    add("relay.direct", vec![transfer(RelayPath::Direct)]);
    all
}

fn bandwidth(
    protocol: Protocol,
    direction: Direction,
    amount: Amount,
    streams: u32,
    negotiation: Negotiation,
) -> Parameters {
    Parameters::Bandwidth(Bandwidth {
        streams,
        chunk_bytes: ByteSize(CHUNK),
        negotiation,
        ..Bandwidth::new(protocol, direction, amount)
    })
}

pub(super) fn echo(pace: Pace) -> Parameters {
    Parameters::Echo(Echo {
        connections: 2,
        streams_per_connection: 2,
        connection_interval_seconds: 0.01,
        stream_interval_seconds: 0.01,
        message_bytes: ByteSize(64),
        pace,
        deadline_seconds: 2.0,
        duration_seconds: 0.8,
        identity: Identity::Ed25519,
        sample_interval_seconds: 0.1,
    })
}

pub(super) fn messages(mode: MessageMode, window: u32) -> Parameters {
    Parameters::Messages(Messages {
        mode,
        message_bytes: ByteSize(MESSAGE_BYTES),
        amount: Amount::Count(MESSAGES),
        window,
        rate: None,
        priority: false,
        receivers: 1,
    })
}

pub(super) fn transfer(path: RelayPath) -> Parameters {
    Parameters::Relay(Relay {
        path,
        bytes: BYTES,
        chunk_bytes: ByteSize(CHUNK),
        pings: 2,
        limits: RelayLimits::default(),
    })
}

pub(super) fn stress() -> Parameters {
    Parameters::RelayStress(RelayStress {
        sinks: 1,
        sources: 1,
        start_interval_seconds: 0.01,
        ramp_seconds: 0.01,
        // Long enough for a busy machine to set a circuit up, too.
        plateau_seconds: 1.5,
        bytes: BYTES,
        chunk_bytes: ByteSize(CHUNK),
        limits: RelayLimits::default(),
    })
}

/// The load with ten times its duration, for a machine that is too busy for the short one. `None` if it has
/// no duration.
pub(super) fn longer(parameters: &Parameters) -> Option<Parameters> {
    let mut longer = parameters.clone();
    let (Parameters::Echo(Echo {
        duration_seconds: seconds,
        ..
    })
    | Parameters::Bandwidth(Bandwidth {
        amount: Amount::Seconds(seconds),
        ..
    })) = &mut longer
    else {
        return None;
    };
    *seconds *= 10.0;
    Some(longer)
}

/// Compares what both ends report with each other and with what the workload must do.
pub(super) fn check_counts(parameters: &Parameters, outcomes: &TrialOutcomes) -> Result<(), String> {
    check_ends(outcomes, is_cut_off(parameters))?;
    check_workload(parameters, &outcomes.client.measured, &outcomes.server.measured)
}

/// Whether the client ends a transfer that the server would continue.
fn is_cut_off(parameters: &Parameters) -> bool {
    matches!(
        parameters,
        Parameters::Bandwidth(Bandwidth {
            amount: Amount::Seconds(_),
            ..
        }) | Parameters::RelayStress(_)
    )
}

/// What a workload must report.
fn check_workload(parameters: &Parameters, client: &Measured, server: &Measured) -> Result<(), String> {
    let opened = |streams: u64| {
        check_equal("streams of the client", client.streams, streams)?;
        check_equal("streams of the server", server.streams, streams)
    };
    match parameters {
        Parameters::Bandwidth(load) => {
            opened(load.streams.into())?;
            check_transfer(load, client)
        }
        Parameters::Substreams(load) => {
            // A server sees a stream of v1lazy only when it carries bytes, and these carry none.
            check_equal("streams of the client", client.streams, load.count.into())?;
            check_value_count(client, Distribution::Open, load.count.into())
        }
        Parameters::Handshakes(Handshakes {
            amount: Amount::Count(count),
            ..
        }) => {
            check_equal("connections of the client", client.connections, *count)?;
            check_value_count(client, Distribution::HandshakeEstablished, *count)?;
            check_value_count(client, Distribution::HandshakeFirstByte, *count)
        }
        Parameters::Ping(load) => {
            opened(1)?;
            // One round trip precedes those that count.
            check_equal(
                "bytes of the pings",
                client.bytes_sent,
                32 * (u64::from(load.count) + 1),
            )?;
            check_value_count(client, Distribution::RoundTrip, load.count.into())
        }
        Parameters::Echo(load) => {
            opened(load.streams())?;
            check_pace(load, client)
        }
        Parameters::Relay(load) => {
            opened(1)?;
            check_equal("bytes of the transfer", client.bytes_received, load.bytes)?;
            check_value_count(client, Distribution::Transfer, 1)
        }
        Parameters::Messages(load) => {
            opened(1)?;
            match load.amount {
                Amount::Count(count) => {
                    let due = count * load.message_bytes.0;
                    check_equal("bytes of the messages", client.bytes_sent, due)
                }
                Amount::Seconds(_) => AS_MUCH_AS_THE_MACHINE_CAN,
            }
        }
        Parameters::Handshakes(Handshakes {
            amount: Amount::Seconds(_),
            ..
        })
        | Parameters::RelayStress(_) => AS_MUCH_AS_THE_MACHINE_CAN,
    }
}

/// What a transfer must report.
fn check_transfer(load: &Bandwidth, client: &Measured) -> Result<(), String> {
    let Bandwidth {
        direction,
        amount,
        streams,
        ..
    } = load;
    let (up, down) = (*direction != Direction::Download, *direction != Direction::Upload);
    for (name, is_due, transfer, bytes) in [
        ("upload", up, client.upload, client.bytes_sent),
        ("download", down, client.download, client.bytes_received),
    ] {
        if let (Amount::Count(each), true) = (amount, is_due) {
            check_equal(
                &format!("payload of the {name}"),
                bytes,
                each * u64::from(*streams),
            )?;
        }
        match transfer {
            None if is_due => return Err(format!("the client must report its {name}")),
            Some(transfer) if is_due => {
                check_equal(&format!("{name}.bytes"), transfer.bytes, bytes)?;
                if bytes > 0 && transfer.seconds <= 0.0 {
                    return Err(format!("{name}.seconds is {}", transfer.seconds));
                }
            }
            _ => {}
        }
    }
    if let Amount::Seconds(seconds) = amount {
        let least = Duration::from_secs_f64(*seconds);
        if Duration::from_secs_f64(client.seconds) < least {
            return Err(format!("a transfer of {least:?} took {} s", client.seconds));
        }
        if client.bytes_sent + client.bytes_received == 0 {
            return Err(format!("a transfer of {least:?} had no byte"));
        }
    }
    Ok(())
}

/// Checks that an echo is not faster than its pace, and that it reports its round trips. A busy machine may
/// make it slower.
fn check_pace(load: &Echo, client: &Measured) -> Result<(), String> {
    let plateau = client.plateau.ok_or("the client must report its plateau")?;
    if plateau.round_trips == 0 {
        return Err("no round trip was made on the plateau".to_owned());
    }
    // With a period, lines that are late at the start of the plateau follow each other without a wait.
    let most = load.nominal_rate() * plateau.seconds + LATE_LINES_MAX * load.streams() as f64;
    if plateau.round_trips as f64 > most {
        return Err(format!(
            "{} round trips in {} s are more than the pace of the streams allows: {most:.0}",
            plateau.round_trips, plateau.seconds
        ));
    }
    let name = Distribution::RoundTrip;
    match client.histograms.get(&name).map_or(Ok(0), values)? {
        0 => Err(format!("the distribution {name} must have values")),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use perfrun_contract::{
        histogram::{Histogram, recorder},
        node::Plateau,
    };

    use super::*;

    /// A client that made round trips of 1 ms on a plateau of 0.7 s.
    fn echoed(round_trips: u64) -> Measured {
        let mut times = recorder();
        times.record_n(1_000_000, round_trips).unwrap();
        Measured {
            plateau: Some(Plateau {
                seconds: 0.7,
                round_trips,
                ..Plateau::default()
            }),
            histograms: [(Distribution::RoundTrip, Histogram::from(&times))].into(),
            ..Measured::default()
        }
    }

    #[test]
    fn messages_of_other_bytes_than_the_load_has_are_refused() {
        let load = messages(MessageMode::Stream, 16);
        let sent = |bytes_sent| Measured {
            streams: 1,
            bytes_sent,
            ..Measured::default()
        };
        let of = |bytes| check_workload(&load, &sent(bytes), &sent(0));
        assert_eq!(of(200 * 100), Ok(()));
        assert_eq!(
            of(199 * 100).unwrap_err(),
            "bytes of the messages: 19900 is not 20000"
        );
    }

    #[test]
    fn an_echo_without_waits_is_refused_with_a_pause_and_with_a_period() {
        for pace in [Pace::Pause(0.05), Pace::Period(0.05)] {
            let Parameters::Echo(load) = echo(pace) else {
                panic!("an echo");
            };
            // 56 at 80 in a second, and ten late lines on each of four streams are at most 96.
            assert_eq!(check_pace(&load, &echoed(90)), Ok(()));
            // Each of the four streams sends its line again as soon as it has the answer.
            let refused = check_pace(&load, &echoed(4 * 700)).unwrap_err();
            assert!(refused.contains("more than the pace"), "{refused}");
            assert!(check_pace(&load, &echoed(0)).is_err());
        }
    }

    #[test]
    fn an_echo_without_times_of_its_round_trips_is_refused() {
        let Parameters::Echo(load) = echo(Pace::Period(0.05)) else {
            panic!("an echo");
        };
        let client = Measured {
            histograms: BTreeMap::new(),
            ..echoed(50)
        };
        let refused = check_pace(&load, &client).unwrap_err();
        assert_eq!(refused, "the distribution roundTrip must have values");
    }

    #[test]
    fn only_a_load_with_a_duration_can_last_longer() {
        let Some(Parameters::Echo(load)) = longer(&echo(Pace::Pause(0.05))) else {
            panic!("an echo has a duration");
        };
        assert!((load.duration_seconds - 8.0).abs() < 1e-9, "{load:?}");
        assert_eq!(longer(&ping(20)), None);
    }
}
