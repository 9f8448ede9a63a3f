//! Why a trial failed on a node.

use schemars::JsonSchema;
use serde::Deserialize;
use strum::{AsRefStr, Display, EnumMessage, IntoStaticStr};

use crate::newer::{self, NewerName};

/// Kinds of failure.
// docs/reference/flags.md is generated from the documentation of the variants, which is for users, and from
// their messages, which say what to do.
#[derive(
    AsRefStr,
    IntoStaticStr,
    Clone,
    Copy,
    Debug,
    Deserialize,
    Display,
    EnumMessage,
    Eq,
    Hash,
    JsonSchema,
    Ord,
    PartialEq,
    PartialOrd,
)]
pub enum Reason {
    /// The stack cannot do what was requested.
    #[strum(message = "the message says what is missing: change the setting, the transport or the stack")]
    Unsupported,
    /// The listener could not be bound.
    #[strum(message = "see the address in the message: another program may listen there")]
    ListenFailed,
    /// A peer could not be reached, or the handshake failed.
    #[strum(
        message = "see whether the server runs, in its log, and whether a firewall or a NetworkPolicy \
                   drops packets between nodes"
    )]
    DialFailed,
    /// A relay refused a reservation or a circuit.
    #[strum(message = "raise the `limits` of the workload, or use fewer sinks")]
    Refused,
    /// A stream could not be opened.
    #[strum(message = "use fewer streams, because stacks limit them, or see the log of the peer")]
    OpenFailed,
    /// A stream or connection broke.
    #[strum(message = "see the logs of both nodes: the cause is often at the peer")]
    StreamFailed,
    /// A peer ended a stream before all bytes were sent.
    #[strum(message = "see the log of the peer")]
    TooFewBytes,
    /// A peer sent more than was due, or something else than was due.
    #[strum(message = "report the message: a stack or a node has a defect")]
    UnexpectedBytes,
    /// A peer echoed other bytes than it was sent.
    #[strum(message = "report the message: a stack or a node has a defect")]
    WrongEcho,
    /// A message did not arrive, by the sequence numbers of those that did.
    #[strum(
        message = "use a smaller `window` or a `rate`, in case the stack drops what its queues do not \
                   take; otherwise report the message"
    )]
    MessageLost,
    /// Not done in time.
    #[strum(
        message = "increase the limit in question (`timeouts.trial`, `deadline` or `duration`), or make the \
                   workload smaller"
    )]
    Timeout,
    /// Cancelled on request.
    #[strum(message = "resume the run to measure the trial")]
    Cancelled,
    /// The node received the request to stop.
    #[strum(message = "find out what stopped the node, for example the eviction of a pod")]
    Stopped,
    /// The node could not be reached any more.
    #[strum(message = "the message says how it ended: give nodes more memory if theirs was used up")]
    NodeLost,
    /// Sender and receiver counted different numbers of bytes. In a timed transfer: too little arrived.
    #[strum(
        message = "measure again; if it happens often, report the message. If too little arrived in time, \
                   use a longer `duration`"
    )]
    CountMismatch,
    /// The link was not what it was set to be.
    #[strum(message = "the message has what differs: use a quieter machine, a lower rate, or less loss")]
    ImpairmentNotEffective,
    /// The system lets the node have too little of something, for example open files.
    #[strum(message = "raise the limit that the message names, for example by `ulimit -n`")]
    LimitTooLow,
    /// A fault of the node program.
    #[strum(message = "report the message")]
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
