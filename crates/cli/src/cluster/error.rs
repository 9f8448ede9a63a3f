//! What can go wrong with a call to a cluster, and what to do about it.

use std::{error, fmt, time::Duration};

use kube::core::Status;
use thiserror::Error;

/// What was tried, in the words of Kubernetes' roles.
#[derive(Clone, Copy, Debug)]
pub struct Act<'a> {
    /// E.g. `get`.
    pub verb: &'static str,
    /// E.g. `perfruns`.
    pub resource: &'static str,
    /// Of one object, its name.
    pub name: Option<&'a str>,
}

impl fmt::Display for Act<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.verb, self.resource)?;
        self.name.map_or(Ok(()), |name| write!(f, " {name}"))
    }
}

/// Why a call came to nothing.
#[derive(Debug, Error)]
pub enum Error {
    /// No API server there, or none that we trust.
    #[error(
        "failed to reach the cluster at {url}: {why}; is it up, and the right one (--context, --kubeconfig)?"
    )]
    Reach {
        /// Where.
        url: String,
        /// The innermost cause.
        why: String,
    },
    /// Connected, but no answer.
    #[error("the cluster at {url} did not answer within {limit:?}; try again when its API server is up")]
    Silent {
        /// Where.
        url: String,
        /// How long was waited.
        limit: Duration,
    },
    /// The CRD is missing.
    #[error("the cluster does not know PerfRuns yet; install them: kubectl apply -f crds/")]
    Install,
    /// The CRD has not all that documents have now.
    #[error(
        "the cluster's PerfRuns are of another version: {message}; update them: kubectl apply -f crds/, \
         or use the perfrun that belongs to the cluster's operator"
    )]
    Update {
        /// What the API server says.
        message: String,
    },
    /// No such object.
    #[error("failed to {act}: {message}")]
    Find {
        /// What was tried.
        act: String,
        /// What the API server says.
        message: String,
    },
    /// Not logged in.
    #[error(
        "the cluster at {url} does not know who you are: log in again, or use another --context or --kubeconfig"
    )]
    LogIn {
        /// Where.
        url: String,
    },
    /// Logged in as somebody who may not.
    #[error("not allowed to {act}: {message}; ask for a role that has the verb \"{verb}\" on {resource}")]
    Allow {
        /// What was tried.
        act: String,
        /// What the API server says.
        message: String,
        /// For the role.
        verb: &'static str,
        /// For the role.
        resource: &'static str,
    },
    /// The API server did not like it.
    #[error("the cluster refused to {act}: {message}")]
    Accept {
        /// What was tried.
        act: String,
        /// What the API server says.
        message: String,
    },
    /// The API server is in trouble, which passes.
    #[error("the cluster is not able to {act} now: {message}; try again later")]
    Serve {
        /// What was tried.
        act: String,
        /// What the API server says.
        message: String,
    },
    /// Anything else.
    #[error("failed to {act}: {why}")]
    Call {
        /// What was tried.
        act: String,
        /// Why; causes of kube's errors are part of their text.
        why: String,
    },
}

impl Error {
    /// What an error of the client means.
    pub fn of(error: kube::Error, act: &Act<'_>, url: &str) -> Self {
        match error {
            kube::Error::Api(status) => Self::answered(&status, act, url),
            kube::Error::Service(_) | kube::Error::HyperError(_) | kube::Error::ReadEvents(_) => {
                Self::Reach {
                    url: url.to_owned(),
                    why: innermost(&error),
                }
            }
            other => Self::Call {
                act: act.to_string(),
                why: other.to_string(),
            },
        }
    }

    fn answered(status: &Status, act: &Act<'_>, url: &str) -> Self {
        let message = status.message.trim().to_owned();
        let act_text = act.to_string();
        match status.code {
            401 => Self::LogIn { url: url.to_owned() },
            403 => Self::Allow {
                act: act_text,
                message,
                verb: act.verb,
                resource: act.resource,
            },
            // A missing object is reported as an object; of a resource that it does not know the server says nothing.
            404 if act.resource == RUNS && status.details.is_none() => Self::Install,
            404 => Self::Find {
                act: act_text,
                message,
            },
            // Server-side apply reports this as a fault of its own.
            500 if message.contains(UNDECLARED) => Self::Update { message },
            429 | 500.. => Self::Serve {
                act: act_text,
                message,
            },
            _ => Self::Accept {
                act: act_text,
                message,
            },
        }
    }

    /// Without what to do about it.
    pub fn brief(&self) -> String {
        let text = self.to_string();
        text.split_once("; ")
            .map_or(text.clone(), |(what, _)| what.to_owned())
    }

    /// Whether the object is simply not there.
    pub fn is_missing(&self) -> bool {
        matches!(self, Self::Find { .. })
    }

    /// Whether it may pass without anybody doing anything about it.
    pub fn may_pass(&self) -> bool {
        matches!(
            self,
            Self::Reach { .. } | Self::Silent { .. } | Self::Serve { .. }
        )
    }
}

/// A field of a document that the CRD does not have.
const UNDECLARED: &str = "field not declared in schema";

/// PerfRuns, as roles call them.
pub const RUNS: &str = "perfruns";

/// The cause that has no cause: those around it only say that something went wrong.
fn innermost(error: &dyn error::Error) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    match error.to_string().as_str() {
        // In tokio's words.
        "deadline has elapsed" => "it takes too long to answer".to_owned(),
        text => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(code: u16, message: &str, details: bool) -> Error {
        let details = details.then(|| serde_json::json!({"name": "tcp", "kind": "perfruns"}));
        let status = serde_json::json!({
            "status": "Failure", "code": code, "message": message, "reason": "", "details": details
        });
        let status: Status = serde_json::from_value(status).unwrap();
        let act = Act {
            verb: "get",
            resource: RUNS,
            name: Some("tcp"),
        };
        Error::of(kube::Error::Api(Box::new(status)), &act, "https://lab:6443/")
    }

    #[test]
    fn an_unknown_resource_is_not_an_unknown_object() {
        assert!(matches!(told(404, "404 page not found\n", false), Error::Install));
        assert!(told(404, "perfruns.perfrun.io \"tcp\" not found", true).is_missing());
    }

    #[test]
    fn a_field_that_the_cluster_does_not_know_does_not_pass() {
        let message =
            "failed to create typed patch object (/tcp; ..): .spec.new: field not declared in schema";
        let error = told(500, message, true);
        assert!(matches!(error, Error::Update { .. }) && !error.may_pass());
    }

    #[test]
    fn who_may_not_is_told_what_to_ask_for() {
        let text = told(
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
    fn trouble_of_the_server_may_pass_and_that_of_the_user_does_not() {
        for code in [429, 500, 503, 504] {
            assert!(told(code, "etcd leader changed", true).may_pass());
        }
        for code in [400, 401, 403, 404, 409, 422] {
            assert!(!told(code, "no", true).may_pass());
        }
    }
}
