//! Types of parameters that documents share.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::{AsRefStr, Display, EnumString, VariantNames};

use crate::{matrix::Protocol, quantity::ByteSize};

/// The protocol of a bulk transfer.
#[derive(
    Clone, Copy, Debug, Default, Deserialize, EnumString, Eq, JsonSchema, PartialEq, Serialize, VariantNames,
)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum BandwidthProtocol {
    /// `/perf/1.0.0`
    #[default]
    Perf,
    /// `/litep2p-perf/1.0.0`
    Litep2pPerf,
}

impl From<BandwidthProtocol> for Protocol {
    fn from(protocol: BandwidthProtocol) -> Self {
        match protocol {
            BandwidthProtocol::Perf => Self::Perf,
            BandwidthProtocol::Litep2pPerf => Self::Litep2pPerf,
        }
    }
}

/// The direction of a bulk transfer.
#[derive(
    AsRefStr, Clone, Copy, Debug, Deserialize, Display, EnumString, Eq, Hash, JsonSchema, PartialEq, Serialize,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Direction {
    /// Client to server.
    Upload,
    /// Server to client.
    Download,
    /// An upload, then a download of the same size on the same stream.
    Both,
}

/// When an upload ends.
#[derive(
    AsRefStr,
    Clone,
    Copy,
    Debug,
    Default,
    Deserialize,
    Display,
    EnumString,
    Eq,
    Hash,
    JsonSchema,
    PartialEq,
    Serialize,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Timing {
    /// When the receiver has consumed the bytes.
    #[default]
    Strict,
    /// When the sender's last call has returned, as in the published tools.
    Compat,
}

/// How substreams are requested.
#[derive(
    AsRefStr, Clone, Copy, Debug, Default, Deserialize, Display, Eq, Hash, JsonSchema, PartialEq, Serialize,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum OpenMode {
    /// All at the same time.
    #[default]
    Burst,
    /// At a steady rate.
    Paced,
}

/// How messages follow each other.
#[derive(AsRefStr, Clone, Copy, Debug, Deserialize, Display, Eq, Hash, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[strum(serialize_all = "camelCase")]
pub enum MessageMode {
    /// One message at a time between two peers of one process: the next one follows the receipt of the last.
    Serial,
    /// One message at a time between two processes: the next one follows the answer to the last.
    SerialAck,
    /// A window of messages in flight, which the receiver acknowledges by their sequence numbers.
    Stream,
    /// Each message to all servers. Nothing is acknowledged, and a message that a stack loses is counted.
    Broadcast,
}

/// How a sink reaches its source.
#[derive(AsRefStr, Clone, Copy, Debug, Deserialize, Display, Eq, Hash, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum RelayPath {
    /// By dialling it.
    Direct,
    /// Through the relay.
    Relayed,
}

/// Limits of a relay, which refuses requests above them. A field that is not set has no limit, and peers may
/// send requests at any rate: libp2p's own defaults (16 circuits of 128 KiB each) end every benchmark.
#[serde_with_macros::skip_serializing_none]
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RelayLimits {
    /// Reservations at the same time.
    pub reservations: Option<u32>,
    /// Circuits at the same time.
    pub circuits: Option<u32>,
    /// Circuits of one peer at the same time, as their source or their sink.
    pub circuits_per_peer: Option<u32>,
    /// Bytes of a circuit, both directions together. The relay closes it after that.
    pub circuit_bytes: Option<ByteSize>,
}
