//! The objects of a suite, and what their status means. Pure.

use k8s_openapi::{
    api::core::v1::{Pod, PodSpec, Secret},
    apimachinery::pkg::apis::meta::v1::OwnerReference,
};
use kube::{ResourceExt, api::ObjectMeta};
use perfrun_api::{
    cluster::{MANAGED_BY_LABEL, NAME_LABEL, NODE_LABEL, RUN_LABEL, condition::Reason},
    pod::{
        CONTROL_PORT, METRICS_PORT, PodState, TOKEN_KEY, UNPUBLISHED_ADVICE, environment, node_container,
        node_state, pod_spec, state,
    },
};
use perfrun_conformance::nodes::Participant;
use perfrun_contract::{matrix::IpFamily, role::Role};

use crate::cluster::access::FIELD_MANAGER;

/// A pod that nobody deletes, because perfrun was killed, ends after this time.
const SECONDS_MAX: i64 = 2 * 3600;

/// The exit code of a container that the kubelet killed.
const KILLED_EXIT_CODE: i32 = 128 + 9;

/// The Secret with the token.
pub(super) fn secret(suite: &str, token: &str) -> Secret {
    Secret {
        metadata: metadata(suite, suite.to_owned()),
        string_data: Some([(TOKEN_KEY.to_owned(), token.to_owned())].into()),
        immutable: Some(true),
        ..Secret::default()
    }
}

/// The pod of a node, as a run's are, except that it does not wait for a last scrape when it is stopped.
pub(super) fn pod(
    suite: &str,
    namespace: &str,
    who: Participant,
    number: u32,
    image: &str,
    owner: &OwnerReference,
) -> Pod {
    let node = match who {
        Participant::Tested => "tested",
        Participant::Second => "second",
        Participant::Reference => "reference",
    };
    let mut metadata = metadata(suite, format!("{suite}-{node}-{number}"));
    metadata.owner_references = Some(vec![owner.clone()]);
    let labels = metadata.labels.get_or_insert_default();
    labels.insert(NODE_LABEL.to_owned(), node.to_owned());
    let ip_family = IpFamily::default();
    let env = environment(suite, namespace, node, ip_family, METRICS_PORT);
    let container = node_container(image, Role::Server, ip_family, [CONTROL_PORT, METRICS_PORT], env);
    Pod {
        metadata,
        spec: Some(PodSpec {
            active_deadline_seconds: Some(SECONDS_MAX),
            ..pod_spec(container, suite.to_owned())
        }),
        status: None,
    }
}

fn metadata(suite: &str, name: String) -> ObjectMeta {
    let labels = [
        (NAME_LABEL, "perfrun-node"),
        (MANAGED_BY_LABEL, FIELD_MANAGER),
        (RUN_LABEL, suite),
    ];
    ObjectMeta {
        name: Some(name),
        labels: Some(
            labels
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .into(),
        ),
        ..ObjectMeta::default()
    }
}

/// Why a pod is not ready, and what to do.
pub(super) fn obstacle(pod: &Pod) -> String {
    let cause = match state(pod) {
        PodState::Stuck(cause) | PodState::Gone(cause) => cause,
        PodState::Starting | PodState::Ready(_) => {
            let problem = match node_state(pod) {
                Some(node) if node.running.is_some() => {
                    "runs, but its readiness probe fails; a node has to answer GET /readyz on its control port"
                }
                _ => "is still starting; if it pulls a large image, raise --provision-timeout",
            };
            return format!("pod {} {problem}", pod.name_any());
        }
    };
    // It names the chart, which this command does not need.
    if let Some(message) = cause.message.strip_suffix(UNPUBLISHED_ADVICE) {
        return format!(
            "{message}; images of perfrun are not published: build one, load it into the Kubernetes nodes or push it to a \
             registry, and name it (--image, --reference-image)"
        );
    }
    let advice = match cause.reason {
        Reason::ImagePullFailed => {
            "; check the name of the image (--image, --reference-image), and that every Kubernetes node has it or may \
             pull it"
        }
        Reason::Unschedulable => "; make room: a pod requests 100m of CPU and 64 MiB of memory",
        _ => "",
    };
    cause.message + advice
}

/// Whether the node of a pod exited before the kubelet killed it.
pub(super) fn exited_before_the_kill(pod: &Pod) -> bool {
    let ended = node_state(pod).and_then(|node| node.terminated.as_ref());
    ended.is_some_and(|ended| ended.exit_code != KILLED_EXIT_CODE)
}

#[cfg(test)]
mod tests {
    use perfrun_api::pod::NODE_IMAGE;
    use serde_json::{Value, json};

    use super::*;

    fn seen(status: Value) -> Pod {
        serde_json::from_value(json!({"metadata": {"name": "a"}, "status": status})).unwrap()
    }

    fn container(state: Value) -> Value {
        json!({"containerStatuses": [
            {"name": "node", "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": state}
        ]})
    }

    #[test]
    fn a_conformance_pod_has_an_owner_and_the_settings_of_pods_of_runs() {
        let owner = OwnerReference {
            kind: "Secret".to_owned(),
            ..OwnerReference::default()
        };
        let pod = serde_json::to_value(pod(
            "conformance-1",
            "bench",
            Participant::Second,
            7,
            "mine:1",
            &owner,
        ))
        .unwrap();
        assert_eq!(pod["metadata"]["name"], "conformance-1-second-7");
        assert_eq!(pod["metadata"]["labels"]["perfrun.io/run"], "conformance-1");
        assert_eq!(pod["metadata"]["ownerReferences"][0]["kind"], "Secret");
        let spec = &pod["spec"];
        assert_eq!(spec["restartPolicy"], "Never");
        assert_eq!(spec["securityContext"]["runAsNonRoot"], true);
        assert_eq!(spec["volumes"][0]["secret"]["secretName"], "conformance-1");
        let node = &spec["containers"][0];
        assert_eq!(node["image"], "mine:1");
        let args = json!(["control", "--control=0.0.0.0:9090", "--role=server"]);
        assert_eq!(node["args"], args);
        assert_eq!(node["securityContext"]["readOnlyRootFilesystem"], true);
        let token = json!({"name": "PERFRUN_TOKEN_FILE", "value": "/run/perfrun/token"});
        assert!(node["env"].as_array().unwrap().contains(&token), "{node}");
        // A node that lingers for a scraper would miss the time in which it has to exit.
        assert!(!node.to_string().contains("LINGER"), "{node}");
    }

    #[test]
    fn an_obstacle_comes_with_advice() {
        let waiting = json!({"waiting": {"reason": "InvalidImageName", "message": "no \"A\""}});
        let text = obstacle(&seen(container(waiting)));
        assert!(
            text.starts_with("pod a: InvalidImageName: no \"A\"; check the name"),
            "{text}"
        );
        let mut unpublished =
            container(json!({"waiting": {"reason": "ImagePullBackOff", "message": "not found"}}));
        unpublished["containerStatuses"][0]["image"] = json!(NODE_IMAGE);
        let text = obstacle(&seen(unpublished));
        assert!(
            text.contains("not found; images of perfrun are not published") && !text.contains("chart"),
            "{text}"
        );
        let running = obstacle(&seen(container(json!({"running": {}}))));
        assert!(running.contains("GET /readyz"), "{running}");
        let slow = obstacle(&seen(container(
            json!({"waiting": {"reason": "ContainerCreating"}}),
        )));
        assert!(slow.contains("raise --provision-timeout"), "{slow}");
    }

    #[test]
    fn a_killed_node_has_not_exited_before_the_kill() {
        let ended = |code: i32| seen(container(json!({"terminated": {"exitCode": code}})));
        assert!(exited_before_the_kill(&ended(0)) && exited_before_the_kill(&ended(143)));
        assert!(!exited_before_the_kill(&ended(137)) && !exited_before_the_kill(&seen(json!({}))));
    }
}
