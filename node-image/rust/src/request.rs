//! What a request for a trial must be. The conductor's document was checked more strictly. These checks keep
//! any request from making a node panic or run out of memory.

use perfrun_contract::{
    matrix::{Stack, TcpCongestion},
    node::{Side, TrialLabels, TrialRequest},
    parameters::{ensure, is_time},
};
use perfrun_stack as stack;

/// Most identities of a node: its peers, times their connections in flight.
const HOSTS_MAX: u64 = 16_384;

/// Longest label of a metric, in bytes.
const LABEL_MAX: usize = 512;

/// Checks a request, and returns its stack. The error says what must be true of the request.
pub(crate) fn check(request: &TrialRequest) -> Result<Stack, String> {
    let stack = stack::named(&request.stack).ok_or_else(|| {
        format!(
            "stack must be one of those that /v1/info lists, not {:?}: this node does not speak it",
            request.stack.chars().take(LABEL_MAX).collect::<String>()
        )
    })?;
    ensure(is_time(request.timeout_seconds), || {
        "timeoutSeconds must be more than 0 and at most a year".into()
    })?;
    request.parameters.check()?;
    let name = request.settings.tcp_congestion.as_ref();
    ensure(
        name.is_none_or(|name| name.0.len() <= TcpCongestion::LONGEST),
        || {
            format!(
                "settings.tcpCongestion must have at most {} bytes",
                TcpCongestion::LONGEST
            )
        },
    )?;
    let TrialLabels { cell, network } = &request.labels;
    ensure(cell.len().max(network.len()) <= LABEL_MAX, || {
        format!("labels must have at most {LABEL_MAX} bytes")
    })?;
    if let Side::Source { peers, .. } = &request.side {
        ensure((1..=HOSTS_MAX).contains(&u64::from(*peers)), || {
            format!("peers must be 1 to {HOSTS_MAX}, not {peers}")
        })?;
    }
    if let Side::Client { servers, .. } = &request.side {
        ensure(!servers.is_empty(), || {
            "servers must have at least one address to dial".into()
        })?;
    }
    if let Side::Client { peers, .. } | Side::Both { peers } = request.side {
        let hosts = request.parameters.hosts(peers);
        ensure((1..=HOSTS_MAX).contains(&hosts), || {
            format!("peers, times inFlight or connections, must be 1 to {HOSTS_MAX}, not {hosts}")
        })?;
        ensure(peers == 1 || !request.parameters.has_own_peers(), || {
            "peers must be 1 in an echo: each of its connections is a peer".into()
        })?;
    }
    let is_both = matches!(request.side, Side::Both { .. });
    let is_in_process = request.parameters.is_in_process_on(request.transport);
    ensure(is_both == is_in_process, || {
        format!(
            "side must be both for peers of one process, which memory and mode serial have, and for no others: \
             this is {} on {}",
            request.parameters, request.transport
        )
    })?;
    Ok(stack)
}

#[cfg(test)]
mod tests {
    use perfrun_contract::{
        matrix::{Identity, Negotiation, Protocol, Stack, StackSettings, Transport},
        parameters::{Amount, Bandwidth, Echo, Handshakes, Messages, Pace, Parameters, Ping, Substreams},
        quantity::ByteSize,
        workload::{Direction, MessageMode, OpenMode},
    };

    use super::*;

    fn request(parameters: Parameters) -> TrialRequest {
        TrialRequest {
            stack: Stack::Raw.to_string(),
            settings: StackSettings::default(),
            transport: Transport::Tcp,
            parameters,
            side: Side::Client {
                servers: vec!["/ip4/127.0.0.1/tcp/1".into()],
                peers: 1,
                clocks: vec![],
            },
            timeout_seconds: 1.0,
            labels: TrialLabels::default(),
        }
    }

    fn bandwidth(
        protocol: Protocol,
        direction: Direction,
        amount: Amount,
        streams: u32,
        chunk: u64,
    ) -> Parameters {
        Parameters::Bandwidth(Bandwidth {
            streams,
            chunk_bytes: ByteSize(chunk),
            ..Bandwidth::new(protocol, direction, amount)
        })
    }

    fn echo() -> Echo {
        Echo {
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
        }
    }

    fn messages() -> Messages {
        Messages {
            mode: MessageMode::Stream,
            message_bytes: ByteSize(1 << 20),
            amount: Amount::Count(1),
            window: 64,
            rate: Some(1),
            priority: false,
            receivers: 1,
        }
    }

    fn substreams(count: u32, rate: Option<u32>) -> Parameters {
        Parameters::Substreams(Substreams {
            count,
            mode: OpenMode::Paced,
            rate,
            negotiation: Negotiation::V1,
        })
    }

    #[test]
    fn valid_requests_are_accepted() {
        let right = [
            bandwidth(Protocol::Perf, Direction::Upload, Amount::Seconds(0.2), 1, 1),
            bandwidth(
                Protocol::Litep2pPerf,
                Direction::Both,
                Amount::Count(0),
                4096,
                16 << 20,
            ),
            substreams(4096, Some(1)),
            Parameters::Handshakes(Handshakes {
                amount: Amount::Count(1),
                in_flight: 256,
            }),
            Parameters::Ping(Ping {
                count: 1,
                interval_seconds: 0.0,
            }),
            Parameters::Echo(echo()),
            Parameters::Messages(messages()),
        ];
        for parameters in right {
            assert_eq!(check(&request(parameters)), Ok(Stack::Raw));
        }
    }

    /// Checks that these are refused, with these words.
    fn are_refused(wrong: impl IntoIterator<Item = (Parameters, &'static str)>) {
        for (parameters, words) in wrong {
            let refusal = check(&request(parameters.clone())).expect_err("an invalid request");
            assert!(refusal.contains(words), "{parameters:?}: {refusal}");
        }
    }

    #[test]
    fn parameters_that_would_panic_or_never_end_are_refused_with_a_reason() {
        let (both, up, perf) = (Direction::Both, Direction::Upload, Protocol::Perf);
        are_refused([
            (
                bandwidth(Protocol::Ping, up, Amount::Count(1), 1, 1),
                "no bulk transfer",
            ),
            (
                bandwidth(Protocol::Litep2pPerf, up, Amount::Seconds(1.0), 1, 1),
                "cannot run for a time",
            ),
            (bandwidth(perf, both, Amount::Seconds(1.0), 1, 1), "one direction"),
            (bandwidth(perf, up, Amount::Seconds(-1.0), 1, 1), "more than 0"),
            (bandwidth(perf, up, Amount::Seconds(1e300), 1, 1), "a year"),
            (bandwidth(perf, up, Amount::Count(1), 0, 1), "streams must be 1"),
            (bandwidth(perf, up, Amount::Count(1), 1, 0), "chunkBytes"),
            (bandwidth(perf, up, Amount::Count(1), 1, u64::MAX), "chunkBytes"),
            (substreams(0, None), "count must be 1"),
            (substreams(u32::MAX, None), "count must be 1"),
            (substreams(1, Some(0)), "rate"),
            (
                Parameters::Handshakes(Handshakes {
                    amount: Amount::Seconds(0.0),
                    in_flight: 1,
                }),
                "more than 0",
            ),
            (
                Parameters::Handshakes(Handshakes {
                    amount: Amount::Count(1),
                    in_flight: 0,
                }),
                "inFlight",
            ),
            (
                Parameters::Handshakes(Handshakes {
                    amount: Amount::Count(1),
                    in_flight: u32::MAX,
                }),
                "inFlight",
            ),
            (
                Parameters::Ping(Ping {
                    count: 1,
                    interval_seconds: -0.1,
                }),
                "intervalSeconds",
            ),
        ]);
    }

    #[test]
    fn echoes_that_would_panic_or_never_end_are_refused_with_a_reason() {
        let wrong_echo = |change: fn(&mut Echo)| {
            let mut load = echo();
            change(&mut load);
            Parameters::Echo(load)
        };
        are_refused([
            (wrong_echo(|load| load.connections = 0), "connections must be 1"),
            (
                wrong_echo(|load| load.streams_per_connection = u32::MAX),
                "streamsPerConnection must be 1",
            ),
            (wrong_echo(|load| load.message_bytes.0 = 1), "messageBytes"),
            (wrong_echo(|load| load.message_bytes.0 = u64::MAX), "messageBytes"),
            (
                wrong_echo(|load| load.pace = Pace::Pause(f64::NAN)),
                "pauseSeconds must be more than 0",
            ),
            (
                wrong_echo(|load| load.pace = Pace::Period(0.9e-9)),
                "periodSeconds must be more than 0",
            ),
            (
                wrong_echo(|load| load.pace = Pace::Period(5.0)),
                "periodSeconds must be less than deadlineSeconds",
            ),
            (
                wrong_echo(|load| load.duration_seconds = 1e300),
                "durationSeconds",
            ),
            (
                wrong_echo(|load| load.stream_interval_seconds = -1.0),
                "streamIntervalSeconds",
            ),
            (
                wrong_echo(|load| load.connection_interval_seconds = 1e18),
                "connectionIntervalSeconds",
            ),
            (
                wrong_echo(|load| load.sample_interval_seconds = 0.0),
                "sampleIntervalSeconds",
            ),
        ]);
    }

    #[test]
    fn messages_that_would_panic_or_never_end_are_refused_with_a_reason() {
        let wrong_messages = |change: fn(&mut Messages)| {
            let mut load = messages();
            change(&mut load);
            Parameters::Messages(load)
        };
        are_refused([
            (
                wrong_messages(|load| load.message_bytes.0 = 7),
                "messageBytes must be 8 to 1Mi",
            ),
            (
                wrong_messages(|load| load.message_bytes.0 += 1),
                "messageBytes must be 8 to 1Mi",
            ),
            (wrong_messages(|load| load.window = 0), "window must be 1 to 4096"),
            (
                wrong_messages(|load| load.window = 65),
                "more than 64Mi in flight",
            ),
            (
                wrong_messages(|load| load.mode = MessageMode::SerialAck),
                "window must be 1 in mode",
            ),
            (wrong_messages(|load| load.rate = Some(0)), "rate must be 1"),
            (
                wrong_messages(|load| load.receivers = 2),
                "receivers must be 1 in mode",
            ),
        ]);
    }

    #[test]
    fn sides_that_do_not_fit_the_transport_are_refused_with_a_reason() {
        for (transport, side) in [
            (Transport::Memory, Side::Server),
            (Transport::Tcp, Side::Both { peers: 1 }),
        ] {
            let request = TrialRequest {
                transport,
                side,
                ..request(Parameters::Echo(echo()))
            };
            let refusal = check(&request).expect_err("an invalid request");
            assert!(
                refusal.contains("side must be both for peers of one process"),
                "{refusal}"
            );
        }
    }

    #[test]
    fn timeouts_that_would_panic_or_never_end_are_refused() {
        for timeout_seconds in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e300] {
            let ping = Parameters::Ping(Ping {
                count: 1,
                interval_seconds: 0.0,
            });
            assert!(
                check(&TrialRequest {
                    timeout_seconds,
                    ..request(ping)
                })
                .is_err(),
                "{timeout_seconds}"
            );
        }
    }
}
