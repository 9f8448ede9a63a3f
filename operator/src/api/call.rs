//! Calls of the API server, each of which may take a limited time.

use std::time::Duration;

use anyhow::Context;
use http::{Request, header::ACCEPT};
use kube::{Client, core::request};
use perfrun_api::cluster::condition::Reason;
use thiserror::Error;

/// The API server answers 500 to an object that can never be applied.
const NEVER_APPLIES: &str = "failed to create typed patch object";

/// How etcd, which answers the API server, says that an object is too large: the API server answers 500.
const TOO_LARGE: [&str; 2] = ["too large", "larger than max"];

/// Requests the metadata of an object instead of the object.
const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";

/// The longest time that one call of the API server may take.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);

/// Why a call of the API server failed.
#[derive(Debug, Error)]
pub(crate) enum CallError {
    #[error("{}", describe(.0))]
    Api(kube::Error),
    #[error("no answer within {0:?}")]
    TimedOut(Duration),
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

    /// Whether an object of the name exists.
    pub(crate) fn is_already_exists(&self) -> bool {
        self.answer().is_some_and(kube::core::Status::is_already_exists)
    }

    /// The reason of a condition that reports the error, if no other is known.
    pub(crate) fn reason(&self) -> Reason {
        match self.answer() {
            Some(_) => Reason::ApiServerRefuses,
            None => Reason::ApiServerUnreachable,
        }
    }

    /// Whether the API server would give the same answer again, because the object is wrong.
    pub(crate) fn is_final(&self, forbidden: Forbidden) -> bool {
        self.answer().is_some_and(|answer| match answer.code {
            400 | 413 | 422 => true,
            403 | 404 => forbidden == Forbidden::IsFinal,
            500 => answer.message.contains(NEVER_APPLIES),
            // Others may be of a proxy, or go away: the token of the operator is renewed in time.
            _ => false,
        })
    }

    /// Whether the API server refuses the object for what it contains, so that it may take a smaller one.
    pub(crate) fn refuses_content(&self) -> bool {
        let is_too_large = |answer: &kube::core::Status| {
            let mut phrases = TOO_LARGE.iter();
            phrases.any(|phrase| answer.message.contains(phrase))
        };
        self.is_final(Forbidden::IsTemporary) || self.answer().is_some_and(is_too_large)
    }
}

/// Whether 403 and 404 are final for this caller.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Forbidden {
    /// Trials have been measured, and their nodes cannot hold them until an administrator has acted.
    IsFinal,
    /// Nothing has been measured. A quota may be raised, a namespace be relabelled, a right be granted.
    IsTemporary,
}

/// A client of the cluster that the environment names.
pub(crate) async fn find_cluster() -> anyhow::Result<Client> {
    Client::try_default()
        .await
        .context("unable to find a cluster: set KUBECONFIG, or run in a pod with a service account")
}

/// A call of the API server, which may take [`CALL_TIMEOUT`].
pub(crate) async fn within_timeout<T>(
    call: impl Future<Output = Result<T, kube::Error>>,
) -> Result<T, CallError> {
    within(CALL_TIMEOUT, call).await
}

/// Calls of the API server, which together may take this time.
pub(crate) async fn within<T>(
    limit: Duration,
    calls: impl Future<Output = Result<T, kube::Error>>,
) -> Result<T, CallError> {
    match tokio::time::timeout(limit, calls).await {
        Ok(answer) => answer.map_err(CallError::Api),
        Err(_) => Err(CallError::TimedOut(limit)),
    }
}

/// Sends a request that changes or deletes an object. Its answer is the object, which may be large, and which
/// nobody reads.
pub(crate) async fn change(
    client: &Client,
    request: Result<Request<Vec<u8>>, request::Error>,
) -> Result<(), CallError> {
    let mut request = request.map_err(|error| CallError::Api(kube::Error::BuildRequest(error)))?;
    let headers = request.headers_mut();
    headers.insert(ACCEPT, METADATA.parse().expect("it is printable"));
    within_timeout(client.request_text(request)).await.map(drop)
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    fn answered(code: u16, message: &str) -> CallError {
        CallError::Api(kube::Error::Api(Box::new(Status {
            code,
            message: message.to_owned(),
            ..Status::default()
        })))
    }

    #[test]
    fn a_smaller_object_may_be_taken_if_the_answer_is_about_the_object() {
        for (code, message) in [
            (413, ""),
            (422, "status.summary[0].metric: Unsupported value"),
            (500, "etcdserver: request is too large"),
            (500, "trying to send message larger than max (2 MB)"),
        ] {
            assert!(answered(code, message).refuses_content(), "{code} {message}");
        }
        for code in [403, 404, 409, 429, 500, 503] {
            assert!(!answered(code, "etcd is away").refuses_content(), "{code}");
        }
        assert!(!CallError::TimedOut(CALL_TIMEOUT).refuses_content());
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_without_an_answer_names_the_time_that_it_had() {
        let silent = std::future::pending::<Result<(), kube::Error>>();
        let error = within(Duration::from_secs(5), silent).await.unwrap_err();
        assert_eq!(error.to_string(), "no answer within 5s");
    }

    #[test]
    fn rejections_of_the_object_itself_are_final() {
        let is_final = |code, message: &str, forbidden| answered(code, message).is_final(forbidden);
        for forbidden in [Forbidden::IsFinal, Forbidden::IsTemporary] {
            for code in [400, 413, 422] {
                assert!(is_final(code, "", forbidden), "{code}");
            }
            assert!(is_final(500, NEVER_APPLIES, forbidden));
            for code in [401, 407, 408, 409, 410, 429, 500, 503, 504] {
                assert!(!is_final(code, "", forbidden), "{code}");
            }
            assert!(!CallError::TimedOut(CALL_TIMEOUT).is_final(forbidden));
        }
        for code in [403, 404] {
            assert!(is_final(code, "", Forbidden::IsFinal), "{code}");
            assert!(!is_final(code, "", Forbidden::IsTemporary), "{code}");
        }
    }
}
