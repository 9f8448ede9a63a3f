//! Calls of the API server, each of which may take a limited time.

use std::time::Duration;

use thiserror::Error;

/// The API server answers 500 to an object that can never be applied.
pub(crate) const NEVER_APPLIES: &str = "failed to create typed patch object";

/// The longest time that one call of the API server may take.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);

/// Why a call of the API server failed.
#[derive(Debug, Error)]
pub(crate) enum CallError {
    #[error("{}", describe(.0))]
    Api(kube::Error),
    #[error("no answer within {CALL_TIMEOUT:?}")]
    TimedOut,
}

/// An error without the details that kube prints twice.
fn describe(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(answer) => format!("the API server answered {}: {}", answer.code, answer.message),
        other => other.to_string(),
    }
}

impl CallError {
    /// The answer of the API server, if there was one.
    pub(crate) fn answer(&self) -> Option<&kube::core::Status> {
        match self {
            Self::Api(kube::Error::Api(status)) => Some(status),
            _ => None,
        }
    }

    /// Whether the API server would give the same answer again: no right, no room, no namespace.
    pub(crate) fn is_final(&self) -> bool {
        self.answer().is_some_and(|answer| match answer.code {
            409 | 429 => false,
            500 => answer.message.contains(NEVER_APPLIES),
            code => (400..500).contains(&code),
        })
    }
}

/// A call of the API server, which may take [`CALL_TIMEOUT`].
pub(crate) async fn within_timeout<T>(
    call: impl Future<Output = Result<T, kube::Error>>,
) -> Result<T, CallError> {
    match tokio::time::timeout(CALL_TIMEOUT, call).await {
        Ok(answer) => answer.map_err(CallError::Api),
        Err(_) => Err(CallError::TimedOut),
    }
}
