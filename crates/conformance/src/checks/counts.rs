//! Whether what both ends of a trial counted is what its workload must do.

use std::time::Duration;

use perfrun_contract::{
    distribution::Distribution,
    histogram::Histogram,
    matrix::Transport,
    node::Measured,
    parameters::{Amount, Bandwidth, Echo, Handshakes, Parameters},
    workload::Direction,
};

use crate::trial::TrialOutcomes;

/// Lines of an echo that a stream may have sent late on a busy machine.
const LATE_LINES_MAX: f64 = 10.0;

/// The outcome of loads without a count that must be reached: they do as much as the machine lets them.
const AS_MUCH_AS_THE_MACHINE_CAN: Result<(), String> = Ok(());

/// Checks that the streams of a server ended with their client. A server counts those that did not, so that
/// ends that a link loses fail no trial, but the link of a check loses nothing.
pub(super) fn check_streams_ended(
    transport: Transport,
    parameters: &Parameters,
    outcomes: &TrialOutcomes,
) -> Result<(), String> {
    // On webrtc-direct, ends get lost when their connection closes. An echo also counts late lines.
    if transport == Transport::WebrtcDirect || parameters.pace().is_some() {
        return Ok(());
    }
    check_equal("failures of the server", outcomes.server.measured.failures, 0)
}

/// Compares what both ends report with each other and with what the workload must do.
pub(super) fn check_counts(parameters: &Parameters, outcomes: &TrialOutcomes) -> Result<(), String> {
    for (side, outcome) in [("client", &outcomes.client), ("server", &outcomes.server)] {
        if let Some(failure) = &outcome.failure {
            return Err(format!(
                "the {side} failed: {}: {}",
                failure.reason, failure.message
            ));
        }
    }
    let (client, server) = (&outcomes.client.measured, &outcomes.server.measured);
    check_equal(
        "bytes to the server (client.bytesSent, server.bytesReceived)",
        client.bytes_sent,
        server.bytes_received,
    )?;
    if !is_cut_off(parameters) {
        check_equal(
            "bytes to the client (server.bytesSent, client.bytesReceived)",
            server.bytes_sent,
            client.bytes_received,
        )?;
    }
    let started = client
        .started_nanoseconds
        .ok_or("a client must report startedNanoseconds")?;
    if started < outcomes.start_at || started > outcomes.start_at + 2_000_000_000 {
        return Err(format!(
            "startedNanoseconds must be the requested start, {}, or shortly after it, not {started}",
            outcomes.start_at
        ));
    }
    if !(client.seconds > 0.0 && client.seconds < 30.0) {
        return Err(format!(
            "seconds must be the duration of the workload, not {}",
            client.seconds
        ));
    }
    for (side, measured) in [("client", client), ("server", server)] {
        check_plausible(side, measured)?;
    }
    check_workload(parameters, client, server)
}

pub(super) fn check_equal(what: &str, one: u64, other: u64) -> Result<(), String> {
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
        Parameters::Bandwidth(Bandwidth {
            amount: Amount::Seconds(_),
            ..
        }) | Parameters::RelayStress(_)
    )
}

fn check_plausible(side: &str, measured: &Measured) -> Result<(), String> {
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
pub(super) fn check_value_count(
    measured: &Measured,
    distribution: Distribution,
    count: u64,
) -> Result<(), String> {
    let found = measured.histograms.get(&distribution).map_or(Ok(0), values)?;
    check_equal(
        &format!("values of the distribution {distribution}"),
        found,
        count,
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
        histogram::recorder,
        node::{Outcome, Plateau},
        parameters::Pace,
        workload::MessageMode,
    };

    use super::{
        super::{
            ping,
            workloads::{echo, messages},
        },
        *,
    };

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
        let outcomes = |failures| TrialOutcomes {
            client: outcome(0),
            server: outcome(failures),
            start_at: 0,
        };
        let of = |transport, parameters, failures| {
            check_streams_ended(transport, &parameters, &outcomes(failures))
        };
        assert_eq!(of(Transport::QuicV1, ping(20), 0), Ok(()));
        let refused = of(Transport::QuicV1, ping(20), 1).unwrap_err();
        assert_eq!(refused, "failures of the server: 1 is not 0");
        assert_eq!(of(Transport::WebrtcDirect, ping(20), 1), Ok(()));
        assert_eq!(of(Transport::QuicV1, echo(Pace::Pause(0.05)), 1), Ok(()));
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
}
