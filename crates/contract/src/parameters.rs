//! What a trial does, and what its workload needs of nodes. A new workload is a module below this one with
//! its [`Workload`], a variant of [`Parameters`], and an entry in [`USES`].

mod bandwidth;
mod bounds;
mod echo;
mod facts;
mod handshakes;
mod messages;
mod ping;
mod relay;
mod relay_stress;
mod substreams;
mod way;

use std::{fmt, ops::Deref, time::Duration};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::{IntoStaticStr, VariantNames};

use self::bounds::duration;
pub use self::{
    bandwidth::Bandwidth,
    bounds::{ensure, is_time},
    echo::{Echo, Pace},
    facts::Workload,
    handshakes::Handshakes,
    messages::Messages,
    ping::Ping,
    relay::Relay,
    relay_stress::RelayStress,
    substreams::Substreams,
    way::Way,
};
use crate::{matrix::Transport, quantity::ByteSize};

/// What a trial does, with all defaults filled in.
#[derive(Clone, Debug, Deserialize, IntoStaticStr, JsonSchema, PartialEq, Serialize, VariantNames)]
#[serde(rename_all = "camelCase", tag = "workload")]
#[strum(serialize_all = "camelCase")]
pub enum Parameters {
    /// Bulk transfer.
    Bandwidth(Bandwidth),
    /// Many substreams opened on one connection.
    Substreams(Substreams),
    /// New connections.
    Handshakes(Handshakes),
    /// Round trips on one stream.
    Ping(Ping),
    /// One transfer from a source to each sink.
    Relay(Relay),
    /// Many sinks that fetch repeatedly through one relay.
    RelayStress(RelayStress),
    /// Paced echo on many streams.
    Echo(Echo),
    /// Messages to one peer or more.
    Messages(Messages),
}

/// A way to use a workload, which a stack may lack although it has another: its name, and its parameters for
/// a number of streams.
pub type Use = (&'static str, fn(u32) -> Parameters);

/// The ways to use each workload.
pub const USES: [&[Use]; 8] = [
    bandwidth::USES,
    substreams::USES,
    handshakes::USES,
    ping::USES,
    echo::USES,
    relay::USES,
    relay_stress::USES,
    messages::USES,
];

/// The facts of the workload.
impl Deref for Parameters {
    type Target = dyn Workload;

    fn deref(&self) -> &Self::Target {
        match self {
            Self::Bandwidth(load) => load,
            Self::Substreams(load) => load,
            Self::Handshakes(load) => load,
            Self::Ping(load) => load,
            Self::Relay(load) => load,
            Self::RelayStress(load) => load,
            Self::Echo(load) => load,
            Self::Messages(load) => load,
        }
    }
}

impl Parameters {
    /// The name of the workload, as documents write it.
    pub fn workload(&self) -> &'static str {
        self.into()
    }

    /// Whether both ends are in one process on this transport: then each client is its own server.
    pub fn is_in_process_on(&self, transport: Transport) -> bool {
        transport.is_in_process() || self.is_in_process()
    }

    /// When a stream sends its next line. `None` for workloads other than an echo.
    pub fn pace(&self) -> Option<Pace> {
        match self {
            Self::Echo(echo) => Some(echo.pace),
            _ => None,
        }
    }

    /// The messages. `None` for workloads that pass none.
    pub fn messages(&self) -> Option<&Messages> {
        match self {
            Self::Messages(load) => Some(load),
            _ => None,
        }
    }
}

/// See [`Workload::in_short`].
impl fmt::Display for Parameters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.in_short())
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
