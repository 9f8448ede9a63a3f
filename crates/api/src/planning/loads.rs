//! What a workload does: every set of parameters that it asks for.

use std::time::Duration;

use perfrun_contract::parameters::{Amount, Echo, Parameters};

use crate::{
    planning::points::distinct,
    workload::{RelayStress, Workload},
};

/// Every set of parameters that the workload asks for, each once and in the order of the document. The lengths of the lists,
/// which the CRD bounds, allow three thousand.
pub(super) fn loads(workload: &Workload, clients: u32) -> Vec<Parameters> {
    let mut all = vec![];
    if let Some(bandwidth) = &workload.bandwidth {
        let amounts = match bandwidth.duration {
            Some(duration) => vec![Amount::Seconds(seconds(duration))],
            None => distinct(bandwidth.sizes.iter().map(|size| size.0))
                .into_iter()
                .map(Amount::Count)
                .collect(),
        };
        for direction in distinct(bandwidth.directions.iter().copied()) {
            for streams in distinct(bandwidth.streams.iter().copied()) {
                all.extend(amounts.iter().map(|amount| Parameters::Bandwidth {
                    protocol: bandwidth.protocol.into(),
                    direction,
                    amount: *amount,
                    streams,
                    chunk_bytes: bandwidth.chunk_bytes,
                    timing: bandwidth.timing,
                    negotiation: bandwidth.negotiation,
                }));
            }
        }
    }
    if let Some(substreams) = &workload.substreams {
        let counts = distinct(substreams.counts.iter().copied());
        all.extend(counts.into_iter().map(|count| Parameters::Substreams {
            count,
            mode: substreams.mode,
            rate: substreams.rate,
            negotiation: substreams.negotiation,
        }));
    }
    if let Some(handshakes) = &workload.handshakes {
        let amount = match (handshakes.duration, handshakes.count) {
            (Some(duration), _) => Amount::Seconds(seconds(duration)),
            (None, count) => Amount::Count(count.unwrap_or(1).into()),
        };
        let in_flight = distinct(handshakes.in_flight.iter().copied());
        all.extend(
            in_flight
                .into_iter()
                .map(|in_flight| Parameters::Handshakes { amount, in_flight }),
        );
    }
    if let Some(ping) = &workload.ping {
        all.push(Parameters::Ping {
            count: ping.count,
            interval_seconds: seconds(ping.interval),
        });
    }
    if let Some(relay) = &workload.relay {
        let sizes = distinct(relay.sizes.iter().map(|size| size.0));
        for path in distinct(relay.paths.iter().copied()) {
            all.extend(sizes.iter().map(|bytes| Parameters::Relay {
                path,
                bytes: *bytes,
                chunk_bytes: relay.chunk_bytes,
                pings: relay.pings,
                limits: relay.limits,
            }));
        }
    }
    if let Some(stress) = &workload.relay_stress {
        let sinks = distinct(stress.sinks.iter().copied());
        all.extend(
            sinks
                .into_iter()
                .map(|sinks| stress_level(stress, sinks, clients)),
        );
    }
    if let Some(echo) = &workload.echo {
        let sizes = distinct(echo.loads.iter().map(|load| load.size()));
        all.extend(sizes.into_iter().map(|(connections, streams_per_connection)| {
            Parameters::Echo(Echo {
                connections,
                streams_per_connection,
                connection_interval_seconds: seconds(echo.connection_interval),
                stream_interval_seconds: seconds(echo.stream_interval),
                message_bytes: echo.message_bytes,
                pause_seconds: seconds(echo.pause),
                deadline_seconds: seconds(echo.deadline),
                duration_seconds: seconds(echo.duration),
                identity: echo.identity,
                sample_interval_seconds: seconds(echo.sample_interval),
            })
        }));
    }
    all
}

/// All sources begin with their first sinks, and with the next after `sink_interval`; client nodes share that evenly.
fn stress_level(stress: &RelayStress, sinks: u32, clients: u32) -> Parameters {
    let sources = sinks.div_ceil(stress.sinks_per_source.max(1));
    let start_interval_seconds =
        seconds(stress.sink_interval) * f64::from(clients) / f64::from(sources.max(1));
    let starts = sinks / clients.max(1);
    Parameters::RelayStress {
        sinks,
        sources,
        start_interval_seconds,
        ramp_seconds: start_interval_seconds * f64::from(starts.saturating_sub(1)),
        plateau_seconds: seconds(stress.plateau),
        bytes: stress.transfer_bytes.0,
        chunk_bytes: stress.chunk_bytes,
        limits: stress.limits,
    }
}

fn seconds(duration: kube::core::Duration) -> f64 {
    Duration::from(duration).as_secs_f64()
}
