//! Why a call to a cluster fails, and what the user can do.

use std::{error, fmt, time::Duration};

use kube::core::Status;
use thiserror::Error;

/// A call to the API server, in the words of Kubernetes roles.
#[derive(Clone, Copy, Debug)]
pub(super) struct Call<'a> {
    /// For example `get`.
    pub verb: &'static str,
    /// For example `perfruns`.
    pub resource: &'static str,
    /// The name of the object. `None` if the call is about all objects.
    pub name: Option<&'a str>,
}

impl<'a> Call<'a> {
    /// About one object.
    pub(super) fn of(verb: &'static str, resource: &'static str, name: &'a str) -> Self {
        let name = Some(name);
        Self { verb, resource, name }
    }

    /// About all objects.
    pub(super) fn all(verb: &'static str, resource: &'static str) -> Self {
        let name = None;
        Self { verb, resource, name }
    }
}

impl fmt::Display for Call<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.verb, self.resource)?;
        self.name.map_or(Ok(()), |name| write!(f, " {name}"))
    }
}

/// Why a call failed: a variant for each cause, because what the user can do depends on it.
#[derive(Debug, Error)]
pub(super) enum Error {
    /// No API server answers at this address, or not one that the client trusts.
    #[error(
        "failed to reach the cluster at {url}: {cause}; check that it is up and the right one \
         (--context, --kubeconfig)"
    )]
    Unreachable {
        url: String,
        /// The innermost cause.
        cause: String,
    },
    /// The server accepted the connection and did not answer.
    #[error("the cluster at {url} did not answer within {limit:?}; try again when its API server is up")]
    Silent { url: String, limit: Duration },
    /// The CRD is missing.
    #[error(
        "the cluster does not know the resource PerfRun; install perfrun's Helm chart, which contains it"
    )]
    CrdMissing,
    /// The CRD lacks a field of the document.
    #[error(
        "the cluster has another version of the resource PerfRun: {message}; upgrade perfrun's Helm chart, or use \
         the perfrun that belongs to the cluster's operator"
    )]
    CrdOutdated {
        /// From the API server.
        message: String,
    },
    /// The object does not exist.
    #[error("failed to {call}: {message}")]
    NotFound {
        call: String,
        /// From the API server.
        message: String,
    },
    /// The namespace does not exist.
    #[error("failed to {call}: {message}: create the namespace, or choose another one with --namespace")]
    NamespaceMissing {
        call: String,
        /// From the API server.
        message: String,
    },
    #[error(
        "the cluster at {url} does not accept your credentials; log in again, or use another --context or \
         --kubeconfig"
    )]
    Unauthenticated { url: String },
    /// The user has no role that allows the call.
    #[error("not allowed to {call}: {message}; ask for a role that has the verb \"{verb}\" on {resource}")]
    Forbidden {
        call: String,
        /// From the API server.
        message: String,
        verb: &'static str,
        resource: &'static str,
    },
    /// The user has the right, but the namespace does not take the object.
    #[error(
        "the namespace does not allow to {call}: {message}; change that, or choose another namespace with \
         --namespace"
    )]
    NotAdmitted {
        call: String,
        /// From the API server: a quota, Pod Security, or that the namespace is being deleted.
        message: String,
    },
    /// The API server rejected the request.
    #[error("the cluster refused to {call}: {message}")]
    Rejected {
        call: String,
        /// From the API server.
        message: String,
    },
    /// The API server has a problem that may be temporary.
    #[error("the cluster is unable to {call} now: {message}; try again later")]
    ServerTrouble {
        call: String,
        /// From the API server.
        message: String,
    },
    #[error("failed to {call}: {cause}")]
    Other {
        call: String,
        /// The text of kube's error, which includes its causes.
        cause: String,
    },
}

impl Error {
    /// The meaning of an error of kube's client.
    pub(super) fn of(error: kube::Error, call: &Call<'_>, url: &str) -> Self {
        match error {
            kube::Error::Api(status) => Self::of_status(&status, call, url),
            kube::Error::Service(_) | kube::Error::HyperError(_) | kube::Error::ReadEvents(_) => {
                Self::Unreachable {
                    url: url.to_owned(),
                    cause: innermost(&error),
                }
            }
            other => Self::Other {
                call: call.to_string(),
                cause: other.to_string(),
            },
        }
    }

    fn of_status(status: &Status, call: &Call<'_>, url: &str) -> Self {
        let message = status.message.trim().to_owned();
        let call_text = call.to_string();
        match status.code {
            401 => Self::Unauthenticated { url: url.to_owned() },
            403 if !message.contains(CANNOT) => Self::NotAdmitted {
                call: call_text,
                message,
            },
            403 => Self::Forbidden {
                call: call_text,
                message,
                verb: call.verb,
                resource: call.resource,
            },
            // The server gives details about a missing object, and none about an unknown resource.
            404 if call.resource == RUNS && status.details.is_none() => Self::CrdMissing,
            404 if message.starts_with("namespaces ") => Self::NamespaceMissing {
                call: call_text,
                message,
            },
            404 => Self::NotFound {
                call: call_text,
                message,
            },
            // Server-side apply reports an unknown field as an error of the server.
            500 if message.contains(UNDECLARED) => Self::CrdOutdated { message },
            429 | 500.. => Self::ServerTrouble {
                call: call_text,
                message,
            },
            _ => Self::Rejected {
                call: call_text,
                message,
            },
        }
    }

    /// The message without its advice.
    pub(super) fn brief(&self) -> String {
        let text = self.to_string();
        text.split_once("; ")
            .map_or(text.clone(), |(problem, _)| problem.to_owned())
    }

    /// Whether the object does not exist.
    pub(super) fn is_missing(&self) -> bool {
        matches!(self, Self::NotFound { .. })
    }

    /// Whether the problem may be temporary.
    pub(super) fn is_temporary(&self) -> bool {
        matches!(
            self,
            Self::Unreachable { .. } | Self::Silent { .. } | Self::ServerTrouble { .. }
        )
    }
}

/// How the API server reports a field that the CRD does not have.
const UNDECLARED: &str = "field not declared in schema";

/// How the API server reports a missing right: `User "ann" cannot get resource "pods"`. It also answers 403
/// for its admission plug-ins, in their own words.
const CANNOT: &str = " cannot ";

/// The name of the resource in roles.
pub(super) const RUNS: &str = "perfruns";

/// The innermost cause. The errors around it only say that something went wrong.
fn innermost(error: &(dyn error::Error + 'static)) -> String {
    let cause = anyhow::Chain::new(error).next_back();
    match cause.unwrap_or(error).to_string() {
        // The text of tokio.
        text if text == "deadline has elapsed" => "it takes too long to answer".to_owned(),
        text => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(code: u16, message: &str, details: bool) -> Error {
        let details = details.then(|| serde_json::json!({"name": "tcp", "kind": "perfruns"}));
        let status = serde_json::json!({
            "status": "Failure", "code": code, "message": message, "reason": "", "details": details
        });
        let status: Status = serde_json::from_value(status).unwrap();
        let call = Call::of("get", RUNS, "tcp");
        Error::of(kube::Error::Api(Box::new(status)), &call, "https://lab:6443/")
    }

    #[test]
    fn an_unknown_resource_is_not_an_unknown_object() {
        assert!(matches!(
            error(404, "404 page not found\n", false),
            Error::CrdMissing
        ));
        assert!(error(404, "perfruns.perfrun.io \"tcp\" not found", true).is_missing());
    }

    #[test]
    fn an_unknown_field_is_not_a_temporary_problem() {
        let message =
            "failed to create typed patch object (/tcp; ..): .spec.new: field not declared in schema";
        let error = error(500, message, true);
        assert!(matches!(error, Error::CrdOutdated { .. }) && !error.is_temporary());
    }

    #[test]
    fn a_missing_permission_comes_with_advice() {
        let text = error(
            403,
            "perfruns.perfrun.io is forbidden: User \"ann\" cannot get",
            true,
        )
        .to_string();
        assert!(
            text.ends_with("ask for a role that has the verb \"get\" on perfruns"),
            "{text}"
        );
    }

    #[test]
    fn an_exceeded_quota_differs_from_a_missing_permission() {
        for message in [
            "pods \"a\" is forbidden: exceeded quota: small, requested: pods=1",
            "pods \"a\" is forbidden: violates PodSecurity \"restricted:latest\"",
        ] {
            assert!(
                matches!(error(403, message, true), Error::NotAdmitted { .. }),
                "{message}"
            );
        }
        let missing = error(404, "namespaces \"bench\" not found", true);
        assert!(!missing.is_missing(), "{missing}");
        assert!(missing.to_string().contains("create the namespace"), "{missing}");
    }

    #[test]
    fn only_problems_of_the_server_are_temporary() {
        for code in [429, 500, 503, 504] {
            assert!(error(code, "etcd leader changed", true).is_temporary());
        }
        for code in [400, 401, 403, 404, 409, 422] {
            assert!(!error(code, "no", true).is_temporary());
        }
    }
}
