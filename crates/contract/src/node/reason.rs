//! Why a trial failed on a node.

use schemars::JsonSchema;
use serde::Deserialize;
use strum::{AsRefStr, Display, IntoStaticStr};

use crate::newer::{self, NewerName};

/// Kinds of failure.
#[derive(
    AsRefStr,
    IntoStaticStr,
    Clone,
    Copy,
    Debug,
    Deserialize,
    Display,
    Eq,
    Hash,
    JsonSchema,
    Ord,
    PartialEq,
    PartialOrd,
)]
pub enum Reason {
    /// The stack cannot do what was requested.
    Unsupported,
    /// The listener could not be bound.
    ListenFailed,
    /// A peer could not be reached, or the handshake failed.
    DialFailed,
    /// A relay refused a reservation or a circuit.
    Refused,
    /// A stream could not be opened.
    OpenFailed,
    /// A stream or connection broke.
    StreamFailed,
    /// A peer ended a stream before all bytes were sent.
    TooFewBytes,
    /// A peer sent more than was due, or something else than was due.
    UnexpectedBytes,
    /// A peer echoed other bytes than it was sent.
    WrongEcho,
    /// A message did not arrive, by the sequence numbers of those that did.
    MessageLost,
    /// Not done in time.
    Timeout,
    /// Cancelled on request.
    Cancelled,
    /// The node received the request to stop.
    Stopped,
    /// The node could not be reached any more.
    NodeLost,
    /// Sender and receiver counted different numbers of bytes. In a timed transfer: nothing arrived in time.
    CountMismatch,
    /// The link was not what it was set to be.
    ImpairmentNotEffective,
    /// The system lets the node have too little of something, for example open files.
    LimitTooLow,
    /// A fault of the node program.
    Internal,
    /// A reason of a newer version, which this version carries.
    #[schemars(skip)]
    #[serde(skip_deserializing)]
    #[strum(transparent)]
    Newer(NewerName),
}

newer::carry!(Reason);

impl Reason {
    /// All reasons of this version.
    pub const ALL: [Self; 18] = [
        Self::Unsupported,
        Self::ListenFailed,
        Self::DialFailed,
        Self::Refused,
        Self::OpenFailed,
        Self::StreamFailed,
        Self::TooFewBytes,
        Self::UnexpectedBytes,
        Self::WrongEcho,
        Self::MessageLost,
        Self::Timeout,
        Self::Cancelled,
        Self::Stopped,
        Self::NodeLost,
        Self::CountMismatch,
        Self::ImpairmentNotEffective,
        Self::LimitTooLow,
        Self::Internal,
    ];

    /// Whether the node that failed will not answer any more.
    pub fn loses_node(self) -> bool {
        matches!(self, Self::NodeLost | Self::Stopped)
    }

    /// How far from the root a failure usually is. Peers of a dead node see broken streams and refused dials,
    /// often before the conductor notices that it is dead. A trial that was cancelled is never the cause.
    pub fn remoteness(self) -> u8 {
        match self {
            Self::NodeLost => 0,
            Self::Stopped | Self::Internal | Self::Unsupported | Self::LimitTooLow | Self::ListenFailed => 1,
            Self::Refused
            | Self::UnexpectedBytes
            | Self::WrongEcho
            | Self::MessageLost
            | Self::CountMismatch
            | Self::ImpairmentNotEffective => 2,
            Self::DialFailed
            | Self::OpenFailed
            | Self::StreamFailed
            | Self::TooFewBytes
            | Self::Timeout
            | Self::Newer(_) => 3,
            Self::Cancelled => 4,
        }
    }
}
