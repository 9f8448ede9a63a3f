//! Every workload that the node claims, on every transport, in both roles, by the counts of both ends.

use std::time::Duration;

use futures::FutureExt;
use perfrun_contract::{
    capabilities::Capabilities,
    histogram::Histogram,
    matrix::{Identity, Negotiation, Protocol, Stack, Transport},
    node::{Distribution, Info, Measured, Reason, Role},
    parameters::{Amount, Echo, Messages, Pace, Parameters},
    quantity::ByteSize,
    support::{self, End, Ends},
    workload::{Direction, MessageMode, OpenMode, RelayPath, Timing},
};
use strum::IntoEnumIterator;

use super::{negotiations, ping, relays};
use crate::{
    Check, Unmet,
    bench::{Bench, Who},
    pair::{Ended, Trial},
};

/// Bytes of one write or read call in these trials.
const CHUNK: u64 = 1024;

/// Sizes around a chunk, and one of many chunks.
const SIZES: [u64; 6] = [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 1 << 20];

/// Streams of a transfer over several.
const STREAMS: u32 = 3;

/// Substreams that are opened.
const OPENS: u32 = 5;

/// Lines of an echo that a stream may have sent late on a busy machine.
const LATE_LINES: f64 = 10.0;

/// What is spoken between two nodes, and what they do.
#[derive(Clone, Debug)]
struct Load {
    name: String,
    parameters: Vec<Parameters>,
}

/// A pair of nodes: the client and the server, each with its stack.
#[derive(Clone, Debug)]
struct Pair {
    name: String,
    ends: [(Who, String); 2],
}

pub(super) fn checks(info: &Info) -> Vec<Check> {
    let mut all = vec![];
    for (stack, capabilities) in &info.capabilities {
        for transport in
            Transport::iter().filter(|transport| capabilities.transports.contains_key(transport.as_ref()))
        {
            for pair in pairs(stack, capabilities) {
                all.extend(
                    loads(capabilities)
                        .into_iter()
                        .map(|load| exchange(stack, capabilities, transport, &pair, load)),
                );
            }
            all.extend(in_process(stack, capabilities, transport));
            all.extend(relays::checks(stack, capabilities, transport));
        }
        let known = Transport::iter().map(Into::into).collect::<Vec<&str>>();
        for transport in capabilities
            .transports
            .keys()
            .filter(|name| !known.contains(&name.as_str()))
        {
            all.push(skipped(
                format!("workloads/{stack}.{transport}"),
                "this perfrun does not know the transport",
            ));
        }
    }
    all
}

/// Both peers in one process, of a stack that claims messages.
fn in_process(stack: &str, capabilities: &Capabilities, transport: Transport) -> Option<Check> {
    let parameters = messages(MessageMode::Serial, 1);
    if !capabilities.workloads.contains(parameters.workload()) {
        return None;
    }
    let roles = [Role::Client, Role::Server].map(|role| (Who::Tested, stack, role));
    let reason = match transport.is_in_process() {
        true => None,
        false => lack(stack, capabilities, transport, &roles, &parameters),
    };
    let trial = Trial {
        id: "serial".to_owned(),
        transport,
        parameters,
        stacks: [stack, stack].map(str::to_owned),
    };
    Some(Check {
        name: format!("workloads/{stack}.{transport}.in-process.messages.serial"),
        demand: "one process has both ends, and reports both".to_owned(),
        run: Box::new(move |bench| {
            let (reason, trial) = (reason.clone(), trial.clone());
            async move {
                if let Some(reason) = reason {
                    return Err(Unmet::Skipped(reason));
                }
                let outcome = trial.run_both(bench.node(Who::Tested).await?).await?;
                if let Some(failure) = outcome.failure {
                    return Err(format!("it failed: {}: {}", failure.reason, failure.message).into());
                }
                let served = outcome.served.ok_or_else(|| "served is missing".to_owned())?;
                same(
                    "bytes to the server (measured.bytesSent, served.bytesReceived)",
                    outcome.measured.bytes_sent,
                    served.bytes_received,
                )?;
                same("bytes sent", outcome.measured.bytes_sent, 200 * 100)?;
                Ok(has(&outcome.measured, Distribution::OneWay, 200)?)
            }
            .boxed()
        }),
    })
}

fn skipped(name: String, reason: &'static str) -> Check {
    Check {
        name,
        demand: String::new(),
        run: Box::new(move |_| async move { Err(Unmet::Skipped(reason.to_owned())) }.boxed()),
    }
}

/// The stack of perfrun's node that speaks the wire of the node under test.
pub(super) fn reference(capabilities: &Capabilities) -> Option<Stack> {
    Stack::built_in().find(|stack| stack.wire() == Some(&capabilities.wire))
}

/// The node with itself, and in both roles with the stack of perfrun's node that speaks its wire.
fn pairs(stack: &str, capabilities: &Capabilities) -> Vec<Pair> {
    let pair = |name: &str, client: (Who, &str), server: (Who, &str)| Pair {
        name: name.to_owned(),
        ends: [client, server].map(|(who, stack)| (who, stack.to_owned())),
    };
    let mut pairs = vec![pair("with-itself", (Who::Tested, stack), (Who::Second, stack))];
    if let Some(reference) = reference(capabilities) {
        let reference: &str = reference.into();
        pairs.push(pair(
            "as-client",
            (Who::Tested, stack),
            (Who::Reference, reference),
        ));
        pairs.push(pair(
            "as-server",
            (Who::Reference, reference),
            (Who::Tested, stack),
        ));
    }
    pairs
}

/// What the node claims to do.
fn loads(capabilities: &Capabilities) -> Vec<Load> {
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
        let opens = |mode, rate| Parameters::Substreams {
            count: OPENS,
            mode,
            rate,
            negotiation,
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
        vec![Parameters::Handshakes {
            amount: Amount::Count(3),
            in_flight: 1,
        }],
    );
    add("ping", vec![ping(20)]);
    add("echo", vec![echo(Pace::Pause(0.05))]);
    add("echo.period", vec![echo(Pace::Period(0.05))]);
    add("messages.serialAck", vec![messages(MessageMode::SerialAck, 1)]);
    add("messages.stream", vec![messages(MessageMode::Stream, 16)]);
    add("relay.direct", vec![relays::transfer(RelayPath::Direct)]);
    all
}

fn bandwidth(
    protocol: Protocol,
    direction: Direction,
    amount: Amount,
    streams: u32,
    negotiation: Negotiation,
) -> Parameters {
    Parameters::Bandwidth {
        protocol,
        direction,
        amount,
        streams,
        chunk_bytes: ByteSize(CHUNK),
        timing: Timing::Strict,
        negotiation,
    }
}

fn echo(pace: Pace) -> Parameters {
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

fn messages(mode: MessageMode, window: u32) -> Parameters {
    Parameters::Messages(Messages {
        mode,
        message_bytes: ByteSize(100),
        amount: Amount::Count(200),
        window,
        rate: None,
        priority: false,
        receivers: 1,
    })
}

fn exchange(
    stack: &str,
    capabilities: &Capabilities,
    transport: Transport,
    pair: &Pair,
    load: Load,
) -> Check {
    let reason = load
        .parameters
        .iter()
        .find_map(|parameters| unsupported(stack, capabilities, transport, pair, parameters));
    let name = format!("workloads/{stack}.{transport}.{}.{}", pair.name, load.name);
    let pair = pair.clone();
    Check {
        name,
        demand: "both ends complete, and agree on what was exchanged".to_owned(),
        run: Box::new(move |bench| {
            let (reason, pair, load) = (reason.clone(), pair.clone(), load.clone());
            async move {
                match reason {
                    Some(reason) => Err(Unmet::Skipped(reason)),
                    None => run(bench, transport, &pair, &load).await,
                }
            }
            .boxed()
        }),
    }
}

/// Why a plan would skip the trial.
fn unsupported(
    stack: &str,
    capabilities: &Capabilities,
    transport: Transport,
    pair: &Pair,
    parameters: &Parameters,
) -> Option<String> {
    let [(client, of_client), (server, of_server)] = &pair.ends;
    let roles = [
        (*client, of_client.as_str(), Role::Client),
        (*server, of_server.as_str(), Role::Server),
    ];
    lack(stack, capabilities, transport, &roles, parameters)
}

/// Why a plan would skip a trial of these nodes, each with its stack and role.
pub(super) fn lack(
    stack: &str,
    capabilities: &Capabilities,
    transport: Transport,
    roles: &[(Who, &str, Role)],
    parameters: &Parameters,
) -> Option<String> {
    if transport.is_in_process() {
        return Some("peers of one process are not checked with separate ones".to_owned());
    }
    let end = |part: &'static str, role: Role| {
        let (_, name, _) = roles.iter().find(|(.., played)| *played == role)?;
        // By its own name, a node is a built-in stack with the rules that plans have for it.
        let built_in = Stack::built_in().find(|built_in| built_in.as_ref() == *name);
        Some(End {
            name: part,
            stack: built_in.unwrap_or(Stack::External),
            capabilities: built_in.is_none().then_some(capabilities),
        })
    };
    let ends = Ends {
        client: end("the client", Role::Client)?,
        server: end("the server", Role::Server)?,
        relay: end("the relay", Role::Relay),
    };
    // What the node itself claims counts as well, also for a built-in stack.
    roles
        .iter()
        .filter(|(who, ..)| *who != Who::Reference)
        .find_map(|(.., role)| capabilities.lack(stack, *role, transport, parameters))
        .or_else(|| support::unsupported_by_ends(ends, transport, parameters))
}

async fn run(bench: &mut Bench, transport: Transport, pair: &Pair, load: &Load) -> Result<(), Unmet> {
    let [(client, client_stack), (server, server_stack)] = &pair.ends;
    let [client, server] = bench.nodes([*client, *server]).await?;
    let trial = |id: String, parameters: &Parameters| Trial {
        id,
        transport,
        parameters: parameters.clone(),
        stacks: [client_stack.clone(), server_stack.clone()],
    };
    let mut repeated = vec![];
    for (i, parameters) in load.parameters.iter().enumerate() {
        let mut parameters = parameters.clone();
        let id = format!("{}-{i}", load.name);
        let mut ended = trial(id.clone(), &parameters).run(client, server).await;
        if let (Ok(short), Some(longer)) = (&ended, longer(&parameters))
            && has_timed_out(short)
        {
            repeated.push(format!(
                "{parameters} timed out and was repeated with ten times its duration"
            ));
            parameters = longer;
            ended = trial(id + "-longer", &parameters).run(client, server).await;
        }
        let wrong = ended.and_then(|ended| {
            // A lost dial on webrtc-direct is repeated, and counted (webrtc-rs issue 821).
            if transport != Transport::WebrtcDirect {
                same("failures of the client", ended.client.measured.failures, 0)?;
            }
            streams_ended(transport, &parameters, &ended)?;
            judge(&parameters, &ended)
        });
        wrong.map_err(|why| format!("{parameters} on {transport}: {why}"))?;
    }
    for remark in repeated {
        bench.remark(remark);
    }
    Ok(())
}

fn has_timed_out(ended: &Ended) -> bool {
    (ended.client.failure.as_ref()).is_some_and(|failure| failure.reason == Reason::Timeout)
}

/// The load with ten times its duration, for a machine that is too busy for the short one. `None` if it has
/// no duration.
fn longer(parameters: &Parameters) -> Option<Parameters> {
    let mut longer = parameters.clone();
    let (Parameters::Echo(Echo {
        duration_seconds: seconds,
        ..
    })
    | Parameters::Bandwidth {
        amount: Amount::Seconds(seconds),
        ..
    }) = &mut longer
    else {
        return None;
    };
    *seconds *= 10.0;
    Some(longer)
}

/// Checks that the streams of a server ended with their client. A server counts those that did not, so that
/// ends that a link loses fail no trial, but the link of a check loses nothing.
pub(super) fn streams_ended(
    transport: Transport,
    parameters: &Parameters,
    ended: &Ended,
) -> Result<(), String> {
    // On webrtc-direct, ends get lost when their connection closes. An echo also counts late lines.
    if transport == Transport::WebrtcDirect || matches!(parameters, Parameters::Echo(_)) {
        return Ok(());
    }
    same("failures of the server", ended.server.measured.failures, 0)
}

/// Compares what both ends report with each other and with what the workload must do.
pub(super) fn judge(parameters: &Parameters, ended: &Ended) -> Result<(), String> {
    for (side, outcome) in [("client", &ended.client), ("server", &ended.server)] {
        if let Some(failure) = &outcome.failure {
            return Err(format!(
                "the {side} failed: {}: {}",
                failure.reason, failure.message
            ));
        }
    }
    let (client, server) = (&ended.client.measured, &ended.server.measured);
    same(
        "bytes to the server (client.bytesSent, server.bytesReceived)",
        client.bytes_sent,
        server.bytes_received,
    )?;
    if !is_cut_off(parameters) {
        same(
            "bytes to the client (server.bytesSent, client.bytesReceived)",
            server.bytes_sent,
            client.bytes_received,
        )?;
    }
    let started = client
        .started_nanoseconds
        .ok_or("a client must report startedNanoseconds")?;
    if started < ended.start_at || started > ended.start_at + 2_000_000_000 {
        return Err(format!(
            "startedNanoseconds must be the requested start, {}, or shortly after it, not {started}",
            ended.start_at
        ));
    }
    if !(client.seconds > 0.0 && client.seconds < 30.0) {
        return Err(format!(
            "seconds must be the duration of the workload, not {}",
            client.seconds
        ));
    }
    for (side, measured) in [("client", client), ("server", server)] {
        plausible(side, measured)?;
    }
    expected(parameters, client, server)
}

pub(super) fn same(what: &str, one: u64, other: u64) -> Result<(), String> {
    if one == other {
        Ok(())
    } else {
        Err(format!("{what}: {one} is not {other}"))
    }
}

/// Whether the client ends a transfer that the server would continue.
fn is_cut_off(parameters: &Parameters) -> bool {
    matches!(
        parameters,
        Parameters::Bandwidth {
            amount: Amount::Seconds(_),
            ..
        } | Parameters::RelayStress { .. }
    )
}

fn plausible(side: &str, measured: &Measured) -> Result<(), String> {
    let used = &measured.resources;
    let cpu = used.cpu_user_seconds + used.cpu_system_seconds;
    if !(0.0..600.0).contains(&cpu) {
        return Err(format!("the {side} reports {cpu} s of CPU time"));
    }
    if used.rss_start_bytes == 0 || used.rss_peak_bytes < used.rss_start_bytes {
        return Err(format!(
            "the {side} reports {} bytes of memory at the start and at most {}",
            used.rss_start_bytes, used.rss_peak_bytes
        ));
    }
    for (distribution, histogram) in &measured.histograms {
        values(histogram).map_err(|error| format!("{distribution} of the {side}: {error}"))?;
    }
    Ok(())
}

fn values(histogram: &Histogram) -> Result<u64, String> {
    histogram
        .decode()
        .map(|decoded| decoded.len())
        .map_err(|error| error.to_string())
}

/// Checks the number of values of a distribution.
pub(super) fn has(measured: &Measured, distribution: Distribution, count: u64) -> Result<(), String> {
    let found = measured.histograms.get(&distribution).map_or(Ok(0), values)?;
    same(
        &format!("values of the distribution {distribution}"),
        found,
        count,
    )
}

/// What a workload must report.
fn expected(parameters: &Parameters, client: &Measured, server: &Measured) -> Result<(), String> {
    let opened = |streams: u64| {
        same("streams of the client", client.streams, streams)?;
        same("streams of the server", server.streams, streams)
    };
    match parameters {
        Parameters::Bandwidth {
            direction,
            amount,
            streams,
            ..
        } => {
            opened(u64::from(*streams))?;
            let (up, down) = (*direction != Direction::Download, *direction != Direction::Upload);
            for (name, is_due, transfer, bytes) in [
                ("upload", up, client.upload, client.bytes_sent),
                ("download", down, client.download, client.bytes_received),
            ] {
                if let (Amount::Count(each), true) = (amount, is_due) {
                    same(
                        &format!("payload of the {name}"),
                        bytes,
                        each * u64::from(*streams),
                    )?;
                }
                match transfer {
                    None if is_due => return Err(format!("the client must report its {name}")),
                    Some(transfer) if is_due => {
                        same(&format!("{name}.bytes"), transfer.bytes, bytes)?;
                        if bytes > 0 && transfer.seconds <= 0.0 {
                            return Err(format!("{name}.seconds is {}", transfer.seconds));
                        }
                    }
                    _ => {}
                }
            }
            if let Amount::Seconds(seconds) = amount {
                let least = Duration::from_secs_f64(*seconds);
                if Duration::from_secs_f64(client.seconds) < least
                    || client.bytes_sent + client.bytes_received == 0
                {
                    return Err(format!("a transfer of {least:?} took {} s", client.seconds));
                }
            }
            Ok(())
        }
        Parameters::Substreams { count, .. } => {
            // A server sees a stream of v1lazy only when it carries bytes, and these carry none.
            same("streams of the client", client.streams, u64::from(*count))?;
            has(client, Distribution::Open, u64::from(*count))
        }
        Parameters::Handshakes {
            amount: Amount::Count(count),
            ..
        } => {
            same("connections of the client", client.connections, *count)?;
            has(client, Distribution::HandshakeEstablished, *count)?;
            has(client, Distribution::HandshakeFirstByte, *count)
        }
        Parameters::Ping { count, .. } => {
            opened(1)?;
            // One round trip precedes those that count.
            same(
                "bytes of the pings",
                client.bytes_sent,
                32 * (u64::from(*count) + 1),
            )?;
            has(client, Distribution::RoundTrip, u64::from(*count))
        }
        Parameters::Echo(load) => {
            opened(load.streams())?;
            paced(load, client)
        }
        Parameters::Relay { bytes, .. } => {
            opened(1)?;
            same("bytes of the transfer", client.bytes_received, *bytes)?;
            has(client, Distribution::Transfer, 1)
        }
        _ => Ok(()),
    }
}

/// Checks that an echo is not faster than its pace, and that it reports its round trips. A busy machine may
/// make it slower.
fn paced(load: &Echo, client: &Measured) -> Result<(), String> {
    let plateau = client.plateau.ok_or("the client must report its plateau")?;
    if plateau.round_trips == 0 {
        return Err("no round trip was made on the plateau".to_owned());
    }
    // With a period, lines that are late at the start of the plateau follow each other without a wait.
    let most = load.nominal_rate() * plateau.seconds + LATE_LINES * load.streams() as f64;
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
        histogram::recorder,
        node::{Outcome, Plateau},
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
    fn a_server_whose_streams_do_not_end_is_refused() {
        let outcome = |failures| Outcome {
            failure: None,
            measured: Measured {
                failures,
                ..Measured::default()
            },
            served: None,
        };
        let ended = |failures| Ended {
            client: outcome(0),
            server: outcome(failures),
            start_at: 0,
        };
        let of = |transport, parameters, failures| streams_ended(transport, &parameters, &ended(failures));
        assert_eq!(of(Transport::QuicV1, ping(20), 0), Ok(()));
        let refused = of(Transport::QuicV1, ping(20), 1).unwrap_err();
        assert_eq!(refused, "failures of the server: 1 is not 0");
        assert_eq!(of(Transport::WebrtcDirect, ping(20), 1), Ok(()));
        assert_eq!(of(Transport::QuicV1, echo(Pace::Pause(0.05)), 1), Ok(()));
    }

    #[test]
    fn only_a_load_with_a_duration_can_last_longer() {
        let Some(Parameters::Echo(load)) = longer(&echo(Pace::Pause(0.05))) else {
            panic!("an echo has a duration");
        };
        assert!((load.duration_seconds - 8.0).abs() < 1e-9, "{load:?}");
        assert_eq!(longer(&ping(20)), None);
    }

    #[test]
    fn an_echo_without_waits_is_refused_with_a_pause_and_with_a_period() {
        for pace in [Pace::Pause(0.05), Pace::Period(0.05)] {
            let Parameters::Echo(load) = echo(pace) else {
                panic!("an echo");
            };
            // 56 at 80 in a second, and ten late lines on each of four streams are at most 96.
            assert_eq!(paced(&load, &echoed(90)), Ok(()));
            // Each of the four streams sends its line again as soon as it has the answer.
            let refused = paced(&load, &echoed(4 * 700)).unwrap_err();
            assert!(refused.contains("more than the pace"), "{refused}");
            assert!(paced(&load, &echoed(0)).is_err());
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
        let refused = paced(&load, &client).unwrap_err();
        assert_eq!(refused, "the distribution roundTrip must have values");
    }
}
