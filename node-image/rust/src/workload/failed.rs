//! Why a side of a trial failed.

use std::fmt;

use perfrun_contract::node::{Failure, Reason};

use crate::{stack, wire};

/// A [`Failure`] as an error.
#[derive(Debug)]
pub(crate) struct Failed(pub(crate) Failure);

/// A failure in words and for programs.
pub(crate) fn failure(reason: Reason, message: impl fmt::Display) -> Failure {
    Failure {
        reason,
        message: message.to_string(),
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
