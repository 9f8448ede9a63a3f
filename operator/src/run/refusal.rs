//! What an error of the API server means for the run whose object was not created.

use error_reporter::Report;
use perfrun_api::{cluster::condition::Reason, pod::Cause};
use perfrun_contract::{plan::Plan, tally::EndReason};

use crate::api::{
    call::{CallError, Forbidden},
    objects::Error,
};

/// Reasons that only the status remembers, because the refused object does not exist.
pub(crate) const REFUSALS: [Reason; 3] = [
    Reason::PodRefused,
    Reason::ApiServerRefuses,
    Reason::ApiServerUnreachable,
];

/// Phrases in the messages of admission plug-ins that judge the rights of pods: Pod Security, and OpenShift.
const RIGHTS: [&str; 2] = ["violates PodSecurity", "security context constraint"];
/// A new namespace has no service account for a few moments.
const NAMESPACE_IS_NEW: &str = "error looking up service account";

/// What a refusal means for the run.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Refusal {
    /// The same request may succeed later. `None` if nothing is wrong: the namespace is new.
    Temporary(Option<Cause>),
    /// The same request will always be refused.
    Final(Cause),
}

impl Refusal {
    /// What an error means for a run of this plan in a namespace. `None` if no object was refused.
    pub(crate) fn of(error: &Error, namespace: &str, plan: Option<&Plan>) -> Option<Self> {
        let impairs = plan.is_some_and(|plan| !plan.networks.is_empty());
        match error {
            Error::Create { kind, source, .. } => Some(refusal(source, kind, namespace, impairs)),
            // Nothing is known of the object.
            Error::Find { source, .. } => {
                let cause = Cause::new(source.reason(), Report::new(error).to_string());
                Some(Self::Temporary(Some(cause)))
            }
            Error::NameConflict { .. } => {
                let cause = Cause::new(Reason::NameConflict, error.to_string());
                Some(Self::Final(cause))
            }
            Error::DeletePods(_) | Error::DeleteRun(_) => None,
        }
    }
}

/// Judges an error with which an object of this kind was not created in a namespace. `impairs` says whether
/// the run's pods have link agents.
fn refusal(error: &CallError, kind: &str, namespace: &str, impairs: bool) -> Refusal {
    let Some(answer) = error.answer() else {
        let message = format!("failed to create a {kind}: {error}");
        return Refusal::Temporary(Some(Cause::new(Reason::ApiServerUnreachable, message)));
    };
    let is_pod = kind == "Pod";
    let text = &answer.message;
    if answer.code == 403 && text.contains(NAMESPACE_IS_NEW) {
        return Refusal::Temporary(None);
    }
    if is_pod && impairs && answer.code == 403 && RIGHTS.iter().any(|phrase| text.contains(phrase)) {
        let message = format!(
            "impairing links needs a container with the capability NET_ADMIN, which namespace {namespace} does not \
             allow: use another namespace, or `kubectl label --overwrite namespace {namespace} \
             pod-security.kubernetes.io/enforce=privileged`, or keep only the network `none`. The API server \
             answered: {text}"
        );
        return Refusal::Final(Cause::new(EndReason::ImpairmentUnsupported, message));
    }
    let reason = match is_pod && error.is_final(Forbidden::IsFinal) {
        true => Reason::PodRefused,
        // The pod may be in order, and the API server have an error.
        false => Reason::ApiServerRefuses,
    };
    let cause = Cause::new(reason, format!("the API server refuses the run's {kind}: {text}"));
    match error.is_final(Forbidden::IsTemporary) {
        true => Refusal::Final(cause),
        false => Refusal::Temporary(Some(cause)),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use kube::core::Status;

    use super::*;

    #[test]
    fn a_refusal_of_link_agents_is_not_taken_for_an_exceeded_quota() {
        let restricted =
            "pods \"a\" is forbidden: violates PodSecurity \"restricted:latest\": unrestricted capabilities";
        let Refusal::Final(cause) = refusal_of("Pod", 403, restricted, true) else {
            panic!("may go away")
        };
        assert_eq!(cause.reason, EndReason::ImpairmentUnsupported.into());
        let fix = "`kubectl label --overwrite namespace bench pod-security.kubernetes.io/enforce=privileged`";
        assert!(cause.message.contains(fix), "{}", cause.message);
        assert!(cause.message.ends_with(restricted), "{}", cause.message);
        // On the host's network, nodes violate the same level.
        assert_eq!(
            reason(&refusal_of("Pod", 403, restricted, false)),
            Reason::PodRefused
        );
        let full = "pods \"a\" is forbidden: exceeded quota: small";
        assert_eq!(reason(&refusal_of("Pod", 403, full, true)), Reason::PodRefused);
    }

    #[test]
    fn a_refusal_for_a_missing_service_account_is_temporary() {
        let new = "pods \"a\" is forbidden: error looking up service account bench/default: serviceaccount \"default\" not found";
        assert_eq!(refusal_of("Pod", 403, new, true), Refusal::Temporary(None));
    }

    #[test]
    fn an_object_is_requested_again_after_trouble_of_the_api_server() {
        for code in [409, 429, 500, 503, 504] {
            let refusal = refusal_of("Pod", code, "try again", true);
            assert!(
                matches!(refusal, Refusal::Temporary(Some(_))),
                "{code}: {refusal:?}"
            );
            assert_eq!(reason(&refusal), Reason::ApiServerRefuses, "{code}");
        }
        let silent = refusal(&CallError::TimedOut(Duration::ZERO), "Secret", "bench", true);
        assert_eq!(reason(&silent), Reason::ApiServerUnreachable);
    }

    #[test]
    fn an_object_that_can_never_be_created_is_not_requested_again() {
        for (code, message) in [
            (400, "quantities must match the regular expression"),
            (413, "request entity too large"),
            (422, "spec.topologySpreadConstraints[1]: Duplicate value"),
            (
                500,
                "failed to create typed patch object (bench/a; /v1, Kind=Pod): duplicate entries",
            ),
        ] {
            let refusal = refusal_of("Pod", code, message, false);
            let Refusal::Final(cause) = refusal else {
                panic!("{code}: {refusal:?}")
            };
            assert!(cause.message.ends_with(message), "{}", cause.message);
        }
    }

    #[test]
    fn every_kind_of_object_can_be_refused() {
        let full = refusal_of("Secret", 403, "exceeded quota: secrets", true);
        let cause = Cause::new(
            Reason::ApiServerRefuses,
            "the API server refuses the run's Secret: exceeded quota: secrets",
        );
        assert_eq!(full, Refusal::Temporary(Some(cause)));
    }

    fn reason(refusal: &Refusal) -> Reason {
        match refusal {
            Refusal::Temporary(cause) => cause.as_ref().unwrap().reason,
            Refusal::Final(cause) => cause.reason,
        }
    }

    fn refusal_of(kind: &str, code: u16, message: &str, impairs: bool) -> Refusal {
        let status = Status {
            code,
            message: message.to_owned(),
            ..Status::default()
        };
        let error = CallError::Api(kube::Error::Api(Box::new(status)));
        refusal(&error, kind, "bench", impairs)
    }
}
