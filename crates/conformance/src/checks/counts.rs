//! Whether what both ends of a trial counted agrees, and is plausible.

use perfrun_contract::{
    distribution::Distribution, histogram::Histogram, matrix::Transport, node::Measured,
    parameters::Parameters,
};

use crate::trial::TrialOutcomes;

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

/// Compares what both ends report with each other. With `is_cut_off`, the client ended a transfer that the
/// server would have continued.
pub(super) fn check_ends(outcomes: &TrialOutcomes, is_cut_off: bool) -> Result<(), String> {
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
    if !is_cut_off {
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
    Ok(())
}

pub(super) fn check_equal(what: &str, one: u64, other: u64) -> Result<(), String> {
    if one == other {
        Ok(())
    } else {
        Err(format!("{what}: {one} is not {other}"))
    }
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

/// The number of values of a histogram.
pub(super) fn values(histogram: &Histogram) -> Result<u64, String> {
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

#[cfg(test)]
mod tests {
    use perfrun_contract::{node::Outcome, parameters::Pace};

    use super::{
        super::{loads::echo, ping},
        *,
    };

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
}
