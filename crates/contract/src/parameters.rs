//! What a trial does, and what its workload needs of nodes. A new workload is a variant of [`Parameters`],
//! with its arms in the methods below.

mod bounds;
mod echo;
mod files;
mod messages;

use std::{fmt, time::Duration};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::IntoStaticStr;

use self::bounds::{LONGEST_SECONDS, chunk, count, duration, ensure, timed};
pub use self::{
    bounds::is_time,
    echo::{Echo, Pace},
    messages::Messages,
};
use crate::{
    distribution::Distribution,
    matrix::{Identity, Negotiation, Protocol},
    quantity::ByteSize,
    workload::{Direction, MessageMode, OpenMode, RelayLimits, RelayPath, Timing},
};

/// What a trial does, with all defaults filled in.
#[serde_with_macros::skip_serializing_none]
#[derive(Clone, Debug, Deserialize, IntoStaticStr, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", tag = "workload")]
#[strum(serialize_all = "camelCase")]
pub enum Parameters {
    /// Bulk transfer.
    #[serde(rename_all = "camelCase")]
    Bandwidth {
        /// The protocol on the streams.
        protocol: Protocol,
        /// The direction of the payload.
        direction: Direction,
        /// How much each stream transfers, or for how long.
        amount: Amount,
        /// Parallel streams of each connection.
        streams: u32,
        /// Bytes of one write or read call.
        chunk_bytes: ByteSize,
        /// When an upload ends.
        timing: Timing,
        /// How the protocol is negotiated.
        negotiation: Negotiation,
    },
    /// Many substreams opened on one connection.
    #[serde(rename_all = "camelCase")]
    Substreams {
        /// Substreams of each connection.
        count: u32,
        /// How they are requested.
        mode: OpenMode,
        /// Requests per second, for [`OpenMode::Paced`].
        rate: Option<u32>,
        /// How the protocol is negotiated.
        negotiation: Negotiation,
    },
    /// New connections.
    #[serde(rename_all = "camelCase")]
    Handshakes {
        /// How many handshakes, or for how long.
        amount: Amount,
        /// Connections being set up at the same time.
        in_flight: u32,
    },
    /// Round trips on one stream.
    #[serde(rename_all = "camelCase")]
    Ping {
        /// Number of round trips.
        count: u32,
        /// Pause between two round trips, in seconds.
        interval_seconds: f64,
    },
    /// One transfer from a source to each sink.
    #[serde(rename_all = "camelCase")]
    Relay {
        /// How the sink reaches the source.
        path: RelayPath,
        /// Bytes of a transfer.
        bytes: u64,
        /// Bytes of one write or read call.
        chunk_bytes: ByteSize,
        /// Round trips to the relay, and to the source, before the transfer.
        pings: u32,
        /// What the relay grants.
        limits: RelayLimits,
    },
    /// Many sinks that fetch repeatedly through one relay.
    #[serde(rename_all = "camelCase")]
    RelayStress {
        /// Sinks of all client nodes.
        sinks: u32,
        /// Sources of all server nodes.
        sources: u32,
        /// Time between the starts of two sinks of a client node, in seconds.
        start_interval_seconds: f64,
        /// Time from the start of the first sink until all have started, in seconds.
        ramp_seconds: f64,
        /// Time for which all sinks then fetch, in seconds.
        plateau_seconds: f64,
        /// Bytes of a transfer.
        bytes: u64,
        /// Bytes of one write or read call.
        chunk_bytes: ByteSize,
        /// What the relay grants.
        limits: RelayLimits,
    },
    /// Paced echo on many streams.
    Echo(Echo),
    /// Messages to one peer.
    Messages(Messages),
}

impl Parameters {
    /// The name of the workload, as documents write it.
    pub fn workload(&self) -> &'static str {
        self.into()
    }

    /// The protocol on the streams.
    pub fn protocol(&self) -> Protocol {
        match self {
            Self::Bandwidth { protocol, .. } => *protocol,
            Self::Substreams { .. } => Protocol::Litep2pPerf,
            Self::Handshakes { .. } | Self::Ping { .. } => Protocol::Ping,
            Self::Relay { .. } | Self::RelayStress { .. } => Protocol::TestData,
            Self::Echo(_) => Protocol::Echo,
            Self::Messages(_) => Protocol::Messages,
        }
    }

    /// How the dialler negotiates the protocol.
    pub fn negotiation(&self) -> Negotiation {
        match self {
            Self::Bandwidth { negotiation, .. } | Self::Substreams { negotiation, .. } => *negotiation,
            Self::Handshakes { .. }
            | Self::Ping { .. }
            | Self::Echo(_)
            | Self::Relay { .. }
            | Self::RelayStress { .. }
            | Self::Messages(_) => Negotiation::V1,
        }
    }

    /// The keys of all peers.
    pub fn identity(&self) -> Identity {
        match self {
            Self::Echo(echo) => echo.identity,
            _ => Identity::default(),
        }
    }

    /// Streams that are open at the same time on one connection.
    pub fn streams(&self) -> u32 {
        match self {
            Self::Bandwidth { streams, .. } => *streams,
            Self::Substreams { count, .. } => *count,
            Self::Handshakes { .. } | Self::Ping { .. } | Self::Relay { .. } | Self::Messages(_) => 1,
            // The connection of a source with its relay carries a stream for each of its sinks.
            Self::RelayStress { sinks, sources, .. } => sinks.div_ceil((*sources).max(1)),
            Self::Echo(echo) => echo.streams_per_connection,
        }
    }

    /// Streams that are opened at the same moment on one connection.
    pub fn burst(&self) -> u32 {
        match self {
            Self::Substreams {
                mode: OpenMode::Paced,
                ..
            } => 1,
            Self::Echo(echo) if echo.stream_interval_seconds > 0.0 => 1,
            _ => self.streams(),
        }
    }

    /// When a stream sends its next line. `None` for workloads other than an echo.
    pub fn pace(&self) -> Option<Pace> {
        match self {
            Self::Echo(echo) => Some(echo.pace),
            _ => None,
        }
    }

    /// Checks what a node must not trust. A document is checked more strictly; this keeps any request from
    /// making a node panic or run out of memory. The error says what must be true of the parameters.
    pub fn check(&self) -> Result<(), String> {
        match self {
            Self::Bandwidth {
                protocol,
                direction,
                amount,
                streams,
                chunk_bytes,
                ..
            } => {
                ensure(matches!(protocol, Protocol::Perf | Protocol::Litep2pPerf), || {
                    format!("{} carries no bulk transfer", protocol.as_ref())
                })?;
                count("streams", *streams)?;
                chunk(*chunk_bytes)?;
                if let Amount::Seconds(seconds) = amount {
                    timed(*seconds)?;
                    ensure(*protocol == Protocol::Perf, || {
                        format!(
                            "{} announces its bytes: it cannot run for a time",
                            protocol.as_ref()
                        )
                    })?;
                    ensure(*direction != Direction::Both, || {
                        "a transfer for a time must have one direction".into()
                    })?;
                }
                Ok(())
            }
            Self::Substreams {
                count: substreams,
                rate,
                ..
            } => {
                count("count", *substreams)?;
                ensure(*rate != Some(0), || {
                    "rate must be at least 1 substream per second".into()
                })
            }
            Self::Handshakes {
                amount: Amount::Seconds(seconds),
                ..
            } => timed(*seconds),
            Self::Handshakes { .. } => Ok(()),
            Self::Ping { interval_seconds, .. } => {
                ensure(*interval_seconds == 0.0 || is_time(*interval_seconds), || {
                    "intervalSeconds must be 0 or more, and at most a year".into()
                })
            }
            Self::Relay { chunk_bytes, .. } => chunk(*chunk_bytes),
            Self::RelayStress {
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
                    format!(
                        "a stress test needs a source, and a sink for each source: it has {sources} and {sinks}"
                    )
                })?;
                let times = [start_interval_seconds, plateau_seconds];
                let right = times.into_iter().all(|seconds| is_time(*seconds));
                ensure(right && (0.0..LONGEST_SECONDS).contains(ramp_seconds), || {
                    "times of a stress test must be more than 0 and at most a year".into()
                })
            }
            Self::Echo(load) => load.check(),
            Self::Messages(load) => load.check(),
        }
    }

    /// Whether clients reach servers through a relay.
    pub fn is_relayed(&self) -> bool {
        matches!(
            self,
            Self::Relay {
                path: RelayPath::Relayed,
                ..
            } | Self::RelayStress { .. }
        )
    }

    /// The measuring time that the parameters request, by which a trial may last longer. Zero if they request
    /// none.
    pub fn duration(&self) -> Duration {
        match self {
            Self::Bandwidth { amount, .. } | Self::Handshakes { amount, .. } => {
                amount.duration().unwrap_or_default()
            }
            Self::Substreams {
                count,
                mode: OpenMode::Paced,
                rate: Some(rate),
                ..
            } => duration(f64::from(*count) / f64::from(*rate)),
            Self::Ping {
                count,
                interval_seconds,
            } => duration(f64::from(*count) * interval_seconds),
            Self::RelayStress {
                ramp_seconds,
                plateau_seconds,
                ..
            } => duration(ramp_seconds + plateau_seconds),
            Self::Echo(echo) => duration(echo.duration_seconds),
            Self::Messages(load) => load.duration(),
            Self::Substreams { .. } | Self::Relay { .. } => Duration::ZERO,
        }
    }

    /// The shortest time that a trial can take: [`Self::duration`], without the pause after the last of
    /// several items. Zero if it is not known before the trial.
    pub fn least_time(&self) -> Duration {
        let pause = match self {
            Self::Ping { interval_seconds, .. } => *interval_seconds,
            Self::Substreams { rate: Some(rate), .. } => f64::from(*rate).recip(),
            Self::Messages(Messages {
                amount: Amount::Count(_),
                rate: Some(rate),
                ..
            }) => f64::from(*rate).recip(),
            _ => 0.0,
        };
        self.duration().saturating_sub(duration(pause))
    }

    /// Bytes of one write or read call.
    pub fn chunk_bytes(&self) -> ByteSize {
        match self {
            Self::Bandwidth { chunk_bytes, .. }
            | Self::Relay { chunk_bytes, .. }
            | Self::RelayStress { chunk_bytes, .. } => *chunk_bytes,
            Self::Substreams { .. }
            | Self::Handshakes { .. }
            | Self::Ping { .. }
            | Self::Echo(_)
            | Self::Messages(_) => ByteSize(1024),
        }
    }

    /// Bytes of a transfer that the server alone knows: the client fetches without a size. Zero without such
    /// transfers.
    pub fn served_bytes(&self) -> u64 {
        match self {
            Self::Relay { bytes, .. } | Self::RelayStress { bytes, .. } => *bytes,
            _ => 0,
        }
    }

    /// What the relay grants. Without a relay, the limits are empty.
    pub fn limits(&self) -> RelayLimits {
        match self {
            Self::Relay { limits, .. } | Self::RelayStress { limits, .. } => *limits,
            _ => RelayLimits::default(),
        }
    }

    /// Whether the workload has a path through a relay. [`Self::is_relayed`] says whether this trial takes
    /// it.
    pub fn has_relayed_path(&self) -> bool {
        matches!(self, Self::Relay { .. } | Self::RelayStress { .. })
    }

    /// Whether a client opens its connections before the start. Otherwise, opening them is part of the
    /// workload.
    pub fn connects_before_start(&self) -> bool {
        match self {
            Self::Handshakes { .. } | Self::RelayStress { .. } | Self::Echo(_) => false,
            Self::Bandwidth { .. }
            | Self::Substreams { .. }
            | Self::Ping { .. }
            | Self::Relay { .. }
            | Self::Messages(_) => true,
        }
    }

    /// Whether both peers are in one process, on any transport.
    pub fn is_in_process(&self) -> bool {
        matches!(
            self,
            Self::Messages(Messages {
                mode: MessageMode::Serial,
                ..
            })
        )
    }

    /// Servers that each peer of a client dials: one, or all that a broadcast has.
    pub fn servers_of_peer(&self) -> usize {
        match self {
            Self::Messages(load) => load.receivers as usize,
            _ => 1,
        }
    }

    /// Whether receivers in other processes measure the time of one way.
    pub fn is_stamped(&self) -> bool {
        matches!(self, Self::Messages(load) if load.is_stamped())
    }

    /// Whether connecting is what the workload measures, so that a server's cost of connecting counts.
    pub fn is_about_connecting(&self) -> bool {
        matches!(self, Self::Handshakes { .. })
    }

    /// Whether the workload itself sets the number of peers of a client.
    pub fn has_own_peers(&self) -> bool {
        matches!(self, Self::Echo(_))
    }

    /// Sinks and sources of a stress test. `None` if the topology sets the number of peers.
    pub fn sinks_and_sources(&self) -> Option<(u32, u32)> {
        match self {
            Self::RelayStress { sinks, sources, .. } => Some((*sinks, *sources)),
            _ => None,
        }
    }

    /// The transfer of each peer: its direction, its amount, and its streams. `None` for workloads that are
    /// not measured by their bytes.
    pub fn transfer(&self) -> Option<(Direction, Amount, u32)> {
        match self {
            Self::Bandwidth {
                direction,
                amount,
                streams,
                ..
            } => Some((*direction, *amount, *streams)),
            Self::Relay { bytes, .. } => Some((Direction::Download, Amount::Count(*bytes), 1)),
            // Sinks cut their transfers off at the end.
            Self::RelayStress { .. } => Some((Direction::Download, Amount::Seconds(0.0), 1)),
            // A message may be lost, and the loss is a result.
            Self::Messages(load) if load.mode == MessageMode::Broadcast => None,
            Self::Messages(load) => {
                let bytes = |count: u64| Amount::Count(count.saturating_mul(load.message_bytes.0));
                let amount = match load.amount {
                    Amount::Count(count) => bytes(count),
                    timed @ Amount::Seconds(_) => timed,
                };
                Some((Direction::Upload, amount, 1))
            }
            Self::Substreams { .. } | Self::Handshakes { .. } | Self::Ping { .. } | Self::Echo(_) => None,
        }
    }

    /// The operation that the workload repeats. `None` for workloads that are measured by their bytes.
    pub fn operation(&self) -> Option<Distribution> {
        match self {
            Self::Substreams { .. } => Some(Distribution::Open),
            Self::Handshakes { .. } => Some(Distribution::HandshakeFirstByte),
            Self::Ping { .. } | Self::Echo(_) => Some(Distribution::RoundTrip),
            // Messages have a cost of their own: not each of them is timed.
            Self::Bandwidth { .. } | Self::Relay { .. } | Self::RelayStress { .. } | Self::Messages(_) => {
                None
            }
        }
    }

    /// Whether the end of a trial cuts off transfers in progress. Such a trial continues without servers that
    /// a relay refused.
    pub fn may_be_cut_off(&self) -> bool {
        matches!(self, Self::RelayStress { .. })
    }
}

/// The parameters in short, e.g. `upload-64Mi`, as the last part of a cell's id.
impl fmt::Display for Parameters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bandwidth {
                direction,
                amount,
                streams,
                ..
            } => {
                write!(f, "{direction}-{}", amount.of_bytes())?;
                if *streams > 1 {
                    write!(f, "-x{streams}")
                } else {
                    Ok(())
                }
            }
            Self::Substreams { count, .. } => write!(f, "open-{count}"),
            Self::Handshakes { amount, in_flight } => {
                write!(f, "handshakes-{}", amount.of_items())?;
                if *in_flight > 1 {
                    write!(f, "-x{in_flight}")
                } else {
                    Ok(())
                }
            }
            Self::Ping { count, .. } => write!(f, "ping-{count}"),
            Self::Relay { path, bytes, .. } => write!(f, "{path}-{}", ByteSize(*bytes)),
            Self::RelayStress { sinks, .. } => write!(f, "sinks-{sinks}"),
            Self::Messages(load) => write!(f, "{}-{}", load.mode, load.message_bytes),
            Self::Echo(echo) => {
                write!(f, "echo-{}x{}", echo.connections, echo.streams_per_connection)?;
                match echo.identity {
                    Identity::Ed25519 => {}
                    other => write!(f, "-{other}")?,
                }
                match echo.pace {
                    Pace::Pause(_) => Ok(()),
                    Pace::Period(_) => f.write_str("-period"),
                }
            }
        }
    }
}

/// How much of something, or for how long.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Amount {
    /// A number of bytes on each stream, or of connections.
    Count(u64),
    /// A time, in seconds.
    Seconds(f64),
}

impl Amount {
    /// The time. `None` if the amount is a number.
    pub fn duration(self) -> Option<Duration> {
        match self {
            Self::Count(_) => None,
            Self::Seconds(seconds) => Some(duration(seconds)),
        }
    }

    /// The amount with its unit if it counts bytes.
    pub fn of_bytes(self) -> String {
        match self {
            Self::Count(bytes) => ByteSize(bytes).to_string(),
            Self::Seconds(seconds) => format!("{seconds}s"),
        }
    }

    /// The amount with its unit if it counts anything but bytes.
    pub fn of_items(self) -> String {
        match self {
            Self::Count(count) => count.to_string(),
            Self::Seconds(seconds) => format!("{seconds}s"),
        }
    }
}
