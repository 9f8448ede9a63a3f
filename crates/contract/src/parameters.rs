//! What a trial does.

use std::{fmt, time::Duration};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    matrix::{Identity, Negotiation, Protocol},
    quantity::ByteSize,
    workload::{Direction, OpenMode, RelayLimits, RelayPath, Timing},
};

/// What a trial does, all defaults filled in.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", tag = "workload")]
pub enum Parameters {
    /// Bulk transfer.
    #[serde(rename_all = "camelCase")]
    Bandwidth {
        /// The protocol on the streams.
        protocol: Protocol,
        /// Which way bytes go.
        direction: Direction,
        /// How much is transferred.
        amount: Amount,
        /// Parallel streams.
        streams: u32,
        /// Bytes of one write or read call.
        chunk_bytes: ByteSize,
        /// When an upload ends.
        timing: Timing,
        /// How the protocol is negotiated.
        negotiation: Negotiation,
    },
    /// Opening of many substreams.
    #[serde(rename_all = "camelCase")]
    Substreams {
        /// Substreams to open.
        count: u32,
        /// How they are requested.
        mode: OpenMode,
        /// Requests per second, for [`OpenMode::Paced`].
        #[serde(default, skip_serializing_if = "Option::is_none")]
        rate: Option<u32>,
        /// How the protocol is negotiated.
        negotiation: Negotiation,
    },
    /// New connections.
    #[serde(rename_all = "camelCase")]
    Handshakes {
        /// How many, or for how long.
        amount: Amount,
        /// Connections being set up at the same time.
        in_flight: u32,
    },
    /// Round trips on one stream.
    #[serde(rename_all = "camelCase")]
    Ping {
        /// Round trips.
        count: u32,
        /// Pause between two, in seconds.
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
    /// Many sinks that fetch through one relay, over and over.
    #[serde(rename_all = "camelCase")]
    RelayStress {
        /// Sinks of all client nodes.
        sinks: u32,
        /// Sources of all server nodes.
        sources: u32,
        /// A client node begins another of its sinks every so many seconds.
        start_interval_seconds: f64,
        /// From the first start until all sinks have begun, in seconds.
        ramp_seconds: f64,
        /// How long they fetch from then on, in seconds.
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
}

/// Paced echo on many streams.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Echo {
    /// Connections of each client.
    pub connections: u32,
    /// Streams of each connection.
    pub streams_per_connection: u32,
    /// From the start of one connection to the start of the next, in seconds.
    pub connection_interval_seconds: f64,
    /// From the start of one stream to the start of the next on a connection, in seconds.
    pub stream_interval_seconds: f64,
    /// Bytes of a line, its end included.
    pub message_bytes: ByteSize,
    /// Pause after each round trip, in seconds.
    pub pause_seconds: f64,
    /// Longest time of a round trip, in seconds.
    pub deadline_seconds: f64,
    /// All of it, the ramp included, in seconds.
    pub duration_seconds: f64,
    /// The keys of all peers.
    #[serde(default)]
    pub identity: Identity,
    /// From one sample to the next, in seconds.
    pub sample_interval_seconds: f64,
}

impl Echo {
    /// Streams of all connections of a client.
    pub fn streams(&self) -> u64 {
        u64::from(self.connections) * u64::from(self.streams_per_connection)
    }

    /// From the start to that of the last stream, if nothing takes any time, in seconds.
    pub fn ramp_seconds(&self) -> f64 {
        let gaps = |count: u32| f64::from(count.saturating_sub(1));
        gaps(self.connections) * self.connection_interval_seconds
            + gaps(self.streams_per_connection) * self.stream_interval_seconds
    }

    /// Round trips per second of a client all of whose streams echo, if a round trip takes no time.
    pub fn nominal_rate(&self) -> f64 {
        self.streams() as f64 / self.pause_seconds
    }
}

impl Parameters {
    /// What is spoken on the streams.
    pub fn protocol(&self) -> Protocol {
        match self {
            Self::Bandwidth { protocol, .. } => *protocol,
            Self::Substreams { .. } => Protocol::Litep2pPerf,
            Self::Handshakes { .. } | Self::Ping { .. } => Protocol::Ping,
            Self::Relay { .. } | Self::RelayStress { .. } => Protocol::TestData,
            Self::Echo(_) => Protocol::Echo,
        }
    }

    /// How the dialler negotiates it.
    pub fn negotiation(&self) -> Negotiation {
        match self {
            Self::Bandwidth { negotiation, .. } | Self::Substreams { negotiation, .. } => *negotiation,
            Self::Handshakes { .. }
            | Self::Ping { .. }
            | Self::Echo(_)
            | Self::Relay { .. }
            | Self::RelayStress { .. } => Negotiation::V1,
        }
    }

    /// The keys of its peers.
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
            Self::Handshakes { .. } | Self::Ping { .. } => 1,
            Self::Relay { .. } => 1,
            // The connection of a source with its relay carries a stream for each of its sinks.
            Self::RelayStress { sinks, sources, .. } => sinks.div_ceil((*sources).max(1)),
            Self::Echo(echo) => echo.streams_per_connection,
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

    /// The measuring time that is asked for, where it is: a trial may last that much longer.
    pub fn duration(&self) -> Duration {
        let seconds = match self {
            Self::Bandwidth {
                amount: Amount::Seconds(seconds),
                ..
            }
            | Self::Handshakes {
                amount: Amount::Seconds(seconds),
                ..
            } => *seconds,
            Self::Substreams {
                count,
                mode: OpenMode::Paced,
                rate: Some(rate),
                ..
            } => f64::from(*count) / f64::from(*rate),
            Self::Ping {
                count,
                interval_seconds,
            } => f64::from(*count) * interval_seconds,
            Self::RelayStress {
                ramp_seconds,
                plateau_seconds,
                ..
            } => ramp_seconds + plateau_seconds,
            Self::Echo(echo) => echo.duration_seconds,
            _ => 0.0,
        };
        // Parameters also come over the network, where nobody has checked them: this must not panic.
        Duration::try_from_secs_f64(seconds.min(LONGEST_SECONDS)).unwrap_or_default()
    }
}

/// More than any valid document asks for.
const LONGEST_SECONDS: f64 = 1e9;

/// The parameters in short, e.g. `upload-64Mi`: the last part of a cell's id.
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
            Self::Echo(echo) => {
                write!(f, "echo-{}x{}", echo.connections, echo.streams_per_connection)?;
                match echo.identity {
                    Identity::Ed25519 => Ok(()),
                    other => write!(f, "-{other}"),
                }
            }
        }
    }
}

/// How much of something, or for how long.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Amount {
    /// So many bytes of each stream, or connections.
    Count(u64),
    /// For so many seconds.
    Seconds(f64),
}

impl Amount {
    /// The amount with its unit, when it counts bytes.
    pub fn of_bytes(self) -> String {
        match self {
            Self::Count(bytes) => ByteSize(bytes).to_string(),
            Self::Seconds(seconds) => format!("{seconds}s"),
        }
    }

    /// The amount with its unit, when it counts things.
    pub fn of_items(self) -> String {
        match self {
            Self::Count(count) => count.to_string(),
            Self::Seconds(seconds) => format!("{seconds}s"),
        }
    }
}
