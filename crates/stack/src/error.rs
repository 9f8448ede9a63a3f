//! Why a stack failed.

use std::fmt::Display;

use perfrun_contract::matrix::Stack;
use thiserror::Error;

/// Why a stack failed.
#[derive(Debug, Error)]
pub enum Error {
    /// The stack does not have such a transport or negotiation. The plan should have skipped the cell.
    #[error("{0}")]
    Unsupported(String),
    /// The listener could not be bound.
    #[error("failed to listen on {address}: {reason}")]
    Listen {
        /// The requested address.
        address: String,
        /// The stack's error.
        reason: String,
    },
    /// The stack cannot dial such an address.
    #[error("unable to dial {address}: {reason}")]
    Address {
        /// The requested address.
        address: String,
        /// What is wrong with the address.
        reason: String,
    },
    /// The peer could not be reached, or the handshake failed.
    #[error("failed to dial {address}: {reason}")]
    Dial {
        /// The address dialled.
        address: String,
        /// The stack's error.
        reason: String,
    },
    /// A relay refused a reservation or a circuit.
    #[error("the relay {relay} refused the {what}: {status}")]
    Refused {
        /// The relay's address.
        relay: String,
        /// `reservation` or `circuit`.
        what: &'static str,
        /// The name and number of the status in the circuit relay v2 specification.
        status: &'static str,
    },
    /// A stream could not be opened.
    #[error("failed to open a stream: {0}")]
    Open(String),
    /// The stack's own set-up failed (keys, certificates, runtime).
    #[error("failed to set up {stack}: {reason}")]
    Setup {
        /// The stack.
        stack: Stack,
        /// What failed.
        reason: String,
    },
}

impl Error {
    pub(crate) fn unsupported(stack: Stack, what: impl Into<String>) -> Self {
        Self::Unsupported(format!("{stack} cannot do {}", what.into()))
    }

    pub(crate) fn address(address: &(impl Display + ?Sized), reason: impl Into<String>) -> Self {
        let (address, reason) = (address.to_string(), reason.into());
        Self::Address { address, reason }
    }

    pub(crate) fn dial(address: &(impl Display + ?Sized), reason: impl Into<String>) -> Self {
        let (address, reason) = (address.to_string(), reason.into());
        Self::Dial { address, reason }
    }

    pub(crate) fn setup(stack: Stack, reason: impl Into<String>) -> Self {
        let reason = reason.into();
        Self::Setup { stack, reason }
    }
}

/// An error and its sources in one line. Stacks hide the operating system's error several levels deep.
pub(crate) fn describe(error: &(dyn std::error::Error + 'static)) -> String {
    let words = anyhow::Chain::new(error).map(ToString::to_string);
    // Some repeat their source.
    let text = words.reduce(|text, words| match text.contains(&words) {
        true => text,
        false => format!("{text}: {words}"),
    });
    text.unwrap_or_default()
}

#[cfg(not(feature = "webrtc"))]
impl Error {
    pub(crate) fn without_webrtc(stack: Stack) -> Self {
        let what = "webrtc-direct, because this perfrun-node was built without it; \
            `cargo build --release -p perfrun-node` builds all of it";
        Self::unsupported(stack, what)
    }
}

#[cfg(not(feature = "commonware"))]
impl Error {
    pub(crate) fn without(stack: Stack) -> Self {
        let what = "anything, because this perfrun-node was built without it; \
            `cargo build --release -p perfrun-node` builds all of it";
        Self::unsupported(stack, what)
    }
}
