//! What a trial's request must be to make sense. The conductor's document was checked more strictly; this keeps a node
//! from a panic, or from memory it does not have, whoever asks.

use std::time::Duration;

use perfrun_api::{
    matrix::Protocol,
    node::{Side, TrialLabels, TrialRequest},
    plan::{Amount, Parameters},
    quantity::ByteSize,
    workload::Direction,
};

/// Largest write or read.
const LARGEST_CHUNK: u64 = 16 << 20;
/// Streams of a connection.
const MOST_STREAMS: u32 = 4096;
/// Identities of a node: its peers, times their connections in flight.
const MOST_HOSTS: u64 = 16_384;
/// A label of metrics.
const LONGEST_LABEL: usize = 512;
/// A year, in seconds: more is a mistake, and far beyond it lies what a clock can hold.
const LONGEST: f64 = 366.0 * 86_400.0;

/// What is wrong with a request, and what would be right.
pub fn check(request: &TrialRequest) -> Result<(), String> {
    ensure(positive(request.timeout_seconds), || {
        "timeoutSeconds is a number above 0, and at most a year".into()
    })?;
    parameters(&request.parameters)?;
    let TrialLabels { cell, network } = &request.labels;
    ensure(cell.len().max(network.len()) <= LONGEST_LABEL, || {
        format!("labels have at most {LONGEST_LABEL} bytes")
    })?;
    if let Side::Source { peers, .. } = &request.side {
        ensure((1..=MOST_HOSTS).contains(&u64::from(*peers)), || {
            format!("peers is from 1 to {MOST_HOSTS}: it is {peers}")
        })?;
    }
    if let Side::Client { peers, servers } = &request.side {
        let in_flight = match request.parameters {
            Parameters::Handshakes { in_flight, .. } => in_flight,
            _ => 1,
        };
        let hosts = u64::from(*peers) * u64::from(in_flight);
        ensure((1..=MOST_HOSTS).contains(&hosts), || {
            format!("peers, times inFlight, is from 1 to {MOST_HOSTS}: it is {hosts}")
        })?;
        ensure(!servers.is_empty(), || {
            "servers names at least one address to dial".into()
        })?;
    }
    Ok(())
}

fn parameters(parameters: &Parameters) -> Result<(), String> {
    match parameters {
        Parameters::Bandwidth {
            protocol,
            direction,
            amount,
            streams,
            chunk_bytes,
            ..
        } => {
            ensure(!matches!(protocol, Protocol::Ping | Protocol::TestData), || {
                format!("{} carries no bulk transfer", protocol.as_ref())
            })?;
            count("streams", *streams)?;
            chunk(*chunk_bytes)?;
            if let Amount::Seconds(seconds) = amount {
                duration(*seconds)?;
                ensure(*protocol == Protocol::Perf, || {
                    format!(
                        "{} announces its bytes: it cannot run for a time",
                        protocol.as_ref()
                    )
                })?;
                ensure(*direction != Direction::Both, || {
                    "a time-bounded transfer goes one way".into()
                })?;
            }
            Ok(())
        }
        Parameters::Substreams {
            count: substreams,
            rate,
            ..
        } => {
            count("count", *substreams)?;
            ensure(*rate != Some(0), || {
                "rate is at least 1 substream per second".into()
            })
        }
        Parameters::Handshakes {
            amount: Amount::Seconds(seconds),
            ..
        } => duration(*seconds),
        Parameters::Handshakes { .. } => Ok(()),
        Parameters::Ping { interval_seconds, .. } => {
            ensure(*interval_seconds == 0.0 || positive(*interval_seconds), || {
                "intervalSeconds is 0 or more, and at most a year".into()
            })
        }
        Parameters::Relay { chunk_bytes, .. } => chunk(*chunk_bytes),
        Parameters::RelayStress {
            sinks,
            sources,
            start_interval_seconds,
            ramp_seconds,
            plateau_seconds,
            chunk_bytes,
            ..
        } => {
            chunk(*chunk_bytes)?;
            ensure(*sources > 0 && sinks >= sources, || {
                format!("there is a source, and a sink for each: there are {sources} and {sinks}")
            })?;
            let times = [start_interval_seconds, plateau_seconds];
            let right = times.into_iter().all(|seconds| positive(*seconds));
            ensure(right && (0.0..LONGEST).contains(ramp_seconds), || {
                "times of a stress test are numbers above 0, and at most a year".into()
            })
        }
    }
}

fn chunk(bytes: ByteSize) -> Result<(), String> {
    ensure((1..=LARGEST_CHUNK).contains(&bytes.0), || {
        "chunkBytes is from 1 to 16Mi".into()
    })
}

fn count(name: &str, value: u32) -> Result<(), String> {
    ensure((1..=MOST_STREAMS).contains(&value), || {
        format!("{name} is from 1 to {MOST_STREAMS}: it is {value}")
    })
}

fn duration(seconds: f64) -> Result<(), String> {
    ensure(positive(seconds), || {
        "amount.seconds is a number above 0, and at most a year".into()
    })
}

/// Whether it is a time that [`Duration`] and the clock can hold.
fn positive(seconds: f64) -> bool {
    seconds > 0.0 && seconds <= LONGEST && Duration::try_from_secs_f64(seconds).is_ok()
}

fn ensure(right: bool, message: impl FnOnce() -> String) -> Result<(), String> {
    if right { Ok(()) } else { Err(message()) }
}

#[cfg(test)]
mod tests {
    use perfrun_api::{
        matrix::{Negotiation, Stack, Transport},
        workload::{OpenMode, Timing},
    };

    use super::*;

    fn request(parameters: Parameters) -> TrialRequest {
        TrialRequest {
            stack: Stack::Raw,
            transport: Transport::Tcp,
            parameters,
            side: Side::Client {
                servers: vec!["/ip4/127.0.0.1/tcp/1".into()],
                peers: 1,
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
        Parameters::Bandwidth {
            protocol,
            direction,
            amount,
            streams,
            chunk_bytes: ByteSize(chunk),
            timing: Timing::Strict,
            negotiation: Negotiation::V1,
        }
    }

    fn substreams(count: u32, rate: Option<u32>) -> Parameters {
        Parameters::Substreams {
            count,
            mode: OpenMode::Paced,
            rate,
            negotiation: Negotiation::V1,
        }
    }

    #[test]
    fn what_makes_sense_is_taken() {
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
            Parameters::Handshakes {
                amount: Amount::Count(1),
                in_flight: 256,
            },
            Parameters::Ping {
                count: 1,
                interval_seconds: 0.0,
            },
        ];
        for parameters in right {
            assert_eq!(check(&request(parameters)), Ok(()));
        }
    }

    #[test]
    fn what_would_panic_or_never_end_is_refused_with_a_reason() {
        let (both, up, perf) = (Direction::Both, Direction::Upload, Protocol::Perf);
        let wrong = [
            (
                bandwidth(Protocol::Ping, up, Amount::Count(1), 1, 1),
                "no bulk transfer",
            ),
            (
                bandwidth(Protocol::Litep2pPerf, up, Amount::Seconds(1.0), 1, 1),
                "cannot run for a time",
            ),
            (bandwidth(perf, both, Amount::Seconds(1.0), 1, 1), "one way"),
            (bandwidth(perf, up, Amount::Seconds(-1.0), 1, 1), "above 0"),
            (bandwidth(perf, up, Amount::Seconds(1e300), 1, 1), "a year"),
            (bandwidth(perf, up, Amount::Count(1), 0, 1), "streams is from 1"),
            (bandwidth(perf, up, Amount::Count(1), 1, 0), "chunkBytes"),
            (bandwidth(perf, up, Amount::Count(1), 1, u64::MAX), "chunkBytes"),
            (substreams(0, None), "count is from 1"),
            (substreams(u32::MAX, None), "count is from 1"),
            (substreams(1, Some(0)), "rate"),
            (
                Parameters::Handshakes {
                    amount: Amount::Seconds(0.0),
                    in_flight: 1,
                },
                "above 0",
            ),
            (
                Parameters::Handshakes {
                    amount: Amount::Count(1),
                    in_flight: 0,
                },
                "inFlight",
            ),
            (
                Parameters::Handshakes {
                    amount: Amount::Count(1),
                    in_flight: u32::MAX,
                },
                "inFlight",
            ),
            (
                Parameters::Ping {
                    count: 1,
                    interval_seconds: -0.1,
                },
                "intervalSeconds",
            ),
        ];
        for (parameters, words) in wrong {
            let refusal = check(&request(parameters.clone())).expect_err("it makes no sense");
            assert!(refusal.contains(words), "{parameters:?}: {refusal}");
        }
        for timeout_seconds in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e300] {
            let ping = Parameters::Ping {
                count: 1,
                interval_seconds: 0.0,
            };
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
