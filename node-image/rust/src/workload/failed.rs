//! Why a side of a trial failed.

use std::fmt;

use perfrun_contract::{
    node::{Failure, Reason},
    text,
};
use perfrun_stack as stack;

use crate::wire;

/// A [`Failure`] as an error.
#[derive(Debug)]
pub(crate) struct Failed(pub(crate) Failure);

/// A failure in words, which may be those of a peer, and for programs.
pub(crate) fn failure(reason: Reason, message: impl fmt::Display) -> Failure {
    Failure {
        reason,
        message: text::message(&message.to_string()),
    }
}

impl From<stack::Error> for Failed {
    fn from(error: stack::Error) -> Self {
        use stack::Error::{Address, Dial, Listen, Open, Refused, Setup, Unsupported};
        let reason = match &error {
            Unsupported { .. } => Reason::Unsupported,
            Listen { .. } => Reason::ListenFailed,
            Address { .. } | Dial { .. } => Reason::DialFailed,
            Refused { .. } => Reason::Refused,
            Open(_) => Reason::OpenFailed,
            Setup { .. } => Reason::Internal,
        };
        Self(failure(reason, error))
    }
}

impl From<wire::Error> for Failed {
    fn from(error: wire::Error) -> Self {
        Self(failure(error.reason(), error))
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn messages_of_a_peer_are_cut_and_cannot_control_a_terminal() {
        let reason = format!("closed by peer: \x1b]52;c;AA\x07{}", "x".repeat(10_000));
        let Failed(failure) = wire::Error::from(io::Error::other(reason)).into();
        assert_eq!(failure.reason, Reason::StreamFailed);
        assert!(
            failure
                .message
                .starts_with("the stream broke: closed by peer:  ]52;c;AA x"),
            "{}",
            failure.message
        );
        assert_eq!(failure.message.chars().count(), text::MESSAGE_MAX);
    }
}
