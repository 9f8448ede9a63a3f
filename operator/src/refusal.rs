//! What it means that the API server refuses a pod.

use crate::observe::Trouble;

/// Reason of a run whose pods are refused, for whatever cause: it may yet go away.
pub const REFUSED: &str = "PodRefused";
/// Reason of a run whose links cannot be impaired on this cluster; the same as that of the conductor.
pub const UNSUPPORTED: &str = "ImpairmentUnsupported";

/// Words of those who decide about the rights of pods: Pod Security, and OpenShift.
const RIGHTS: [&str; 2] = ["violates PodSecurity", "security context constraint"];

/// Looks at an error with which a pod was not created; `None`, if asking again may help.
pub fn refusal(error: &kube::Error, namespace: &str, impairs: bool) -> Option<Trouble> {
    let kube::Error::Api(status) = error else {
        return None;
    };
    if ![403, 422].contains(&status.code) {
        return None;
    }
    let said = &status.message;
    // A namespace that has just been made has no service account for some moments.
    if said.contains("error looking up service account") {
        return None;
    }
    if impairs && RIGHTS.iter().any(|words| said.contains(words)) {
        return Some(Trouble {
            reason: UNSUPPORTED,
            message: format!(
                "links are impaired by a container with the capability NET_ADMIN, which namespace {namespace} does not \
                 allow: use another one, or `kubectl label --overwrite namespace {namespace} \
                 pod-security.kubernetes.io/enforce=privileged`, or only the network none. The API server said: {said}"
            ),
        });
    }
    Some(Trouble {
        reason: REFUSED,
        message: format!("the API server refuses the run's pods: {said}"),
    })
}

#[cfg(test)]
mod tests {
    use kube::core::Status;
    use perfrun_contract::tally::EndReason;

    use super::*;

    #[test]
    fn a_namespace_that_does_not_allow_link_agents_is_told_from_one_that_has_no_room() {
        let restricted =
            "pods \"a\" is forbidden: violates PodSecurity \"restricted:latest\": unrestricted capabilities";
        let trouble = refusal(&error(403, restricted), "bench", true).unwrap();
        assert_eq!(trouble.reason, UNSUPPORTED);
        let fix = "`kubectl label --overwrite namespace bench pod-security.kubernetes.io/enforce=privileged`";
        assert!(trouble.message.contains(fix), "{}", trouble.message);
        assert!(trouble.message.ends_with(restricted), "{}", trouble.message);
        // On the host's network, nodes violate it, too.
        assert_eq!(
            refusal(&error(403, restricted), "bench", false).unwrap().reason,
            REFUSED
        );
        let full = "pods \"a\" is forbidden: exceeded quota: small";
        assert_eq!(refusal(&error(403, full), "bench", true).unwrap().reason, REFUSED);
    }

    #[test]
    fn a_namespace_that_has_just_been_made_refuses_nothing() {
        let young = "pods \"a\" is forbidden: error looking up service account bench/default: serviceaccount \"default\" not found";
        assert!(refusal(&error(403, young), "bench", true).is_none());
    }

    #[test]
    fn an_api_server_in_trouble_refuses_nothing() {
        for code in [409, 429, 500, 503, 504] {
            assert!(
                refusal(&error(code, "try again"), "bench", true).is_none(),
                "{code}"
            );
        }
    }

    #[test]
    fn the_reason_is_that_of_the_conductor() {
        assert_eq!(<&str>::from(EndReason::ImpairmentUnsupported), UNSUPPORTED);
    }

    fn error(code: u16, message: &str) -> kube::Error {
        let status = Status {
            code,
            message: message.to_owned(),
            ..Status::default()
        };
        kube::Error::Api(Box::new(status))
    }
}
