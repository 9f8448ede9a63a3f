//! The distributions that nodes measure.

use schemars::JsonSchema;
use serde::Deserialize;
use strum::{AsRefStr, Display};

use crate::newer::{self, NewerName};

/// Names of distributions.
#[derive(
    AsRefStr, Clone, Copy, Debug, Deserialize, Display, Eq, Hash, JsonSchema, Ord, PartialEq, PartialOrd,
)]
#[serde(rename_all = "camelCase")]
#[strum(serialize_all = "camelCase")]
pub enum Distribution {
    /// Dial until the transport is connected (TCP only).
    HandshakeTransport,
    /// Dial until the connection is established, secured and multiplexed.
    HandshakeEstablished,
    /// Dial until a byte came back on a stream of the new connection.
    HandshakeFirstByte,
    /// Just before the first request (when paced: the substream's own request) until a substream was open.
    Open,
    /// Just after the last request until a substream was open: the published tools' definition.
    OpenCompat,
    /// Application round trip.
    RoundTrip,
    /// From sending a message until the peer had it, where both are in one process.
    OneWay,
    /// Dial until the connection with the relay was established.
    RelayConnected,
    /// Time from the request of a reservation until it was granted (source).
    Reservation,
    /// Application round trip with the relay itself.
    RelayRoundTrip,
    /// Time from the request of a stream until its first byte was read.
    FirstByte,
    /// Stream open until all of a transfer was read.
    Transfer,
    /// The moment at which a peer was due to begin until it began.
    Lateness,
    /// A distribution of a newer version, which this version carries.
    #[schemars(skip)]
    #[serde(skip_deserializing)]
    #[strum(transparent)]
    Newer(NewerName),
}

newer::carry!(Distribution);
