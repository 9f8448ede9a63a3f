//! The loads of a document: every set of parameters that its workload requests.

use std::{hash::Hash, time::Duration};

use perfrun_contract::{
    parameters::{self, Amount, Pace, Parameters},
    quantity::ByteSize,
    workload::MessageMode,
};

use crate::{
    planning::points::distinct,
    spec::Topology,
    workload::{
        Bandwidth, ECHO_PAUSE, Echo, Handshakes, Messages, Ping, Relay, RelayStress, Substreams, Workload,
    },
};

/// Every set of parameters that the workload requests, each once and in the order of the document. The CRD
/// bounds the lists, so that there are at most three thousand sets.
pub(super) fn loads(workload: &Workload, topology: &Topology) -> Vec<Parameters> {
    let Workload {
        bandwidth: bulk,
        substreams: opens,
        handshakes: connections,
        ping: pings,
        relay: transfers,
        relay_stress: stress,
        echo: echoes,
        messages: exchanges,
    } = workload;
    let mut loads = vec![];
    loads.extend(bulk.iter().flat_map(bandwidth));
    loads.extend(opens.iter().flat_map(substreams));
    loads.extend(connections.iter().flat_map(handshakes));
    loads.extend(pings.iter().map(ping));
    loads.extend(transfers.iter().flat_map(relay));
    loads.extend(
        stress
            .iter()
            .flat_map(|stress| relay_stress(stress, topology.clients)),
    );
    loads.extend(echoes.iter().flat_map(echo));
    loads.extend(
        exchanges
            .iter()
            .flat_map(|exchange| messages(exchange, topology.servers)),
    );
    loads
}

fn bandwidth(bandwidth: &Bandwidth) -> Vec<Parameters> {
    let amounts = match bandwidth.duration {
        Some(duration) => vec![Amount::Seconds(seconds(duration))],
        None => each(bandwidth.sizes.iter().map(|size| size.0), Amount::Count),
    };
    let mut loads = vec![];
    for direction in distinct(bandwidth.directions.iter().copied()) {
        for streams in distinct(bandwidth.streams.iter().copied()) {
            loads.extend(amounts.iter().map(|amount| {
                Parameters::Bandwidth(parameters::Bandwidth {
                    protocol: bandwidth.protocol.into(),
                    direction,
                    amount: *amount,
                    streams,
                    chunk_bytes: bandwidth.chunk_bytes,
                    timing: bandwidth.timing,
                    negotiation: bandwidth.negotiation,
                })
            }));
        }
    }
    loads
}

fn substreams(substreams: &Substreams) -> Vec<Parameters> {
    each(substreams.counts.iter().copied(), |count| {
        Parameters::Substreams(parameters::Substreams {
            count,
            mode: substreams.mode,
            rate: substreams.rate,
            negotiation: substreams.negotiation,
        })
    })
}

fn handshakes(handshakes: &Handshakes) -> Vec<Parameters> {
    let amount = amount(handshakes.duration, handshakes.count);
    each(handshakes.in_flight.iter().copied(), |in_flight| {
        Parameters::Handshakes(parameters::Handshakes { amount, in_flight })
    })
}

fn ping(ping: &Ping) -> Parameters {
    Parameters::Ping(parameters::Ping {
        count: ping.count,
        interval_seconds: seconds(ping.interval),
    })
}

fn relay(relay: &Relay) -> Vec<Parameters> {
    let sizes = distinct(relay.sizes.iter().map(|size| size.0));
    let mut loads = vec![];
    for path in distinct(relay.paths.iter().copied()) {
        loads.extend(sizes.iter().map(|bytes| {
            Parameters::Relay(parameters::Relay {
                path,
                bytes: *bytes,
                chunk_bytes: relay.chunk_bytes,
                pings: relay.pings,
                limits: relay.limits,
            })
        }));
    }
    loads
}

/// The levels of a stress test. All sources start with their first sinks, and with the next ones after
/// `sink_interval`. Client nodes share these starts evenly.
fn relay_stress(stress: &RelayStress, clients: u32) -> Vec<Parameters> {
    each(stress.sinks.iter().copied(), |sinks| {
        let sources = sinks.div_ceil(stress.sinks_per_source.max(1));
        let start_interval_seconds =
            seconds(stress.sink_interval) * f64::from(clients) / f64::from(sources.max(1));
        let starts = sinks / clients.max(1);
        Parameters::RelayStress(parameters::RelayStress {
            sinks,
            sources,
            start_interval_seconds,
            ramp_seconds: start_interval_seconds * f64::from(starts.saturating_sub(1)),
            plateau_seconds: seconds(stress.plateau),
            bytes: stress.transfer_bytes.0,
            chunk_bytes: stress.chunk_bytes,
            limits: stress.limits,
        })
    })
}

fn echo(echo: &Echo) -> Vec<Parameters> {
    let pace = match (echo.period, echo.pause) {
        (Some(period), _) => Pace::Period(seconds(period)),
        (None, Some(pause)) => Pace::Pause(seconds(pause)),
        (None, None) => Pace::Pause(ECHO_PAUSE.as_secs_f64()),
    };
    let sizes = echo.loads.iter().map(|load| load.size());
    each(sizes, |(connections, streams_per_connection)| {
        Parameters::Echo(parameters::Echo {
            connections,
            streams_per_connection,
            connection_interval_seconds: seconds(echo.connection_interval),
            stream_interval_seconds: seconds(echo.stream_interval),
            message_bytes: echo.message_bytes,
            pace,
            deadline_seconds: seconds(echo.deadline),
            duration_seconds: seconds(echo.duration),
            identity: echo.identity,
            sample_interval_seconds: seconds(echo.sample_interval),
        })
    })
}

fn messages(messages: &Messages, servers: u32) -> Vec<Parameters> {
    let amount = amount(messages.duration, messages.count);
    let mut loads = vec![];
    for mode in distinct(messages.modes.iter().copied()) {
        loads.extend(each(messages.sizes.iter().map(|size| size.0), |bytes| {
            Parameters::Messages(parameters::Messages {
                mode,
                message_bytes: ByteSize(bytes),
                amount,
                window: match mode {
                    MessageMode::Serial | MessageMode::SerialAck | MessageMode::Broadcast => 1,
                    MessageMode::Stream => messages.window,
                },
                rate: messages.rate,
                priority: messages.priority,
                receivers: match mode {
                    MessageMode::Broadcast => servers,
                    MessageMode::Serial | MessageMode::SerialAck | MessageMode::Stream => 1,
                },
            })
        }));
    }
    loads
}

/// How much a trial does: the rules let a document set either a duration or a count.
fn amount(duration: Option<kube::core::Duration>, count: Option<u32>) -> Amount {
    match duration {
        Some(duration) => Amount::Seconds(seconds(duration)),
        None => Amount::Count(count.unwrap_or(1).into()),
    }
}

/// One item for each distinct value.
fn each<T: Copy + Eq + Hash, U>(values: impl IntoIterator<Item = T>, item: impl FnMut(T) -> U) -> Vec<U> {
    distinct(values).into_iter().map(item).collect()
}

fn seconds(duration: kube::core::Duration) -> f64 {
    Duration::from(duration).as_secs_f64()
}
