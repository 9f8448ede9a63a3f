//! What a document and a trial's parameters say with the same words.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::{AsRefStr, Display, EnumString};

use crate::quantity::ByteSize;

/// Which way bytes go.
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
    /// When the sender's last call returned, as the published tools time it.
    Compat,
}

/// How substreams are requested.
#[derive(
    AsRefStr, Clone, Copy, Debug, Default, Deserialize, Display, Eq, Hash, JsonSchema, PartialEq, Serialize,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum OpenMode {
    /// All at once.
    #[default]
    Burst,
    /// At a steady rate.
    Paced,
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
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RelayLimits {
    /// Reservations at the same time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reservations: Option<u32>,
    /// Circuits at the same time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub circuits: Option<u32>,
    /// Circuits of one peer at the same time, as their source or their sink.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub circuits_per_peer: Option<u32>,
    /// Bytes of a circuit, both directions together. The relay closes it after that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub circuit_bytes: Option<ByteSize>,
}
