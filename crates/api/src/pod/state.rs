//! What the status of a node's pod means.

use std::net::IpAddr;

use k8s_openapi::api::core::v1::{ContainerState, ContainerStatus, Pod, PodCondition, PodStatus};
use kube::ResourceExt;
use perfrun_contract::tally::EndReason;

use super::{LINK_CONTAINER, NODE_CONTAINER, UNPUBLISHED};
use crate::cluster::condition::Reason;

/// Why a run or a pod waits or has ended.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Cause {
    /// Reason of a condition.
    pub reason: Reason,
    /// For people, with the names of the objects.
    pub message: String,
}

impl Cause {
    /// A cause.
    pub fn new(reason: impl Into<Reason>, message: impl Into<String>) -> Self {
        Self {
            reason: reason.into(),
            message: message.into(),
        }
    }
}

/// How far a pod is.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum PodState {
    /// The pod is starting, and nothing keeps it from that so far.
    Starting,
    /// Something keeps the pod from starting. It may resolve itself.
    Stuck(Cause),
    /// The node answers.
    Ready(IpAddr),
    /// The node has ended, or the pod is being deleted.
    Gone(Cause),
}

/// Reads the status of a pod.
pub fn state(pod: &Pod) -> PodState {
    let name = pod.name_any();
    if pod.metadata.deletion_timestamp.is_some() {
        let text = why_disrupted(pod).unwrap_or_default();
        let message = format!("pod {name} was deleted{text}");
        return PodState::Gone(Cause::new(EndReason::NodeLost, message));
    }
    let Some(status) = &pod.status else {
        return PodState::Starting;
    };
    let container = container(status.container_statuses.as_ref(), NODE_CONTAINER);
    if let Some(end) = end_cause(&name, status, container) {
        return PodState::Gone(end);
    }
    let ip = status.pod_ip.as_deref().and_then(|ip| ip.parse().ok());
    let is_ready = condition(status, "Ready").is_some_and(|ready| ready.status == "True");
    if let (Some(ip), true) = (ip, is_ready) {
        return PodState::Ready(ip);
    }
    startup_cause(&name, status, container).map_or(PodState::Starting, PodState::Stuck)
}

/// The state of the container that runs the node. `None` if the status does not say.
pub fn node_state(pod: &Pod) -> Option<&ContainerState> {
    let status = pod.status.as_ref()?;
    let node = container(status.container_statuses.as_ref(), NODE_CONTAINER)?;
    node.state.as_ref()
}

/// Why the node of a pod has ended. `None` if it has not.
fn end_cause(pod: &str, status: &PodStatus, node: Option<&ContainerStatus>) -> Option<Cause> {
    if let Some(ended) = node.and_then(|node| node.state.as_ref()?.terminated.as_ref()) {
        let what = match ended.signal {
            Some(signal) => format!("signal {signal}"),
            None => format!("exit code {}", ended.exit_code),
        };
        let why = ended.reason.as_deref().filter(|reason| *reason != "Error");
        let why = why.map(|why| format!(" ({why})")).unwrap_or_default();
        let text = detail(ended.message.as_ref());
        return Some(Cause::new(
            Reason::NodeCrashed,
            format!("the node in pod {pod} ended with {what}{why}{text}; see kubectl logs {pod}"),
        ));
    }
    matches!(status.phase.as_deref(), Some("Failed" | "Succeeded")).then(|| {
        let why = status.reason.as_deref().unwrap_or("no reason given");
        let text = detail(status.message.as_ref());
        Cause::new(EndReason::NodeLost, format!("pod {pod} has ended: {why}{text}"))
    })
}

/// What keeps a pod from starting. `None` if it is just starting.
fn startup_cause(pod: &str, status: &PodStatus, node: Option<&ContainerStatus>) -> Option<Cause> {
    let scheduled = condition(status, "PodScheduled");
    if let Some(scheduled) = scheduled.filter(|c| c.reason.as_deref() == Some("Unschedulable")) {
        let text = detail(scheduled.message.as_ref());
        return Some(Cause::new(
            Reason::Unschedulable,
            format!("no Kubernetes node takes pod {pod}{text}"),
        ));
    }
    // The node does not start before its link agent.
    let agent = container(status.init_container_statuses.as_ref(), LINK_CONTAINER);
    let agent = agent.and_then(|agent| why_stuck(agent, Reason::LinkAgentCrashed));
    let agent = agent.map(|(reason, why)| Cause::new(reason, format!("the link agent of pod {pod}: {why}")));
    let node = node.and_then(|node| why_stuck(node, Reason::NodeCrashed));
    let node = node.map(|(reason, why)| Cause::new(reason, format!("pod {pod}: {why}")));
    agent.or(node)
}

fn container<'a>(statuses: Option<&'a Vec<ContainerStatus>>, name: &str) -> Option<&'a ContainerStatus> {
    statuses?.iter().find(|container| container.name == name)
}

fn condition<'a>(status: &'a PodStatus, type_: &str) -> Option<&'a PodCondition> {
    let mut conditions = status.conditions.iter().flatten();
    conditions.find(|condition| condition.type_ == type_)
}

fn detail(message: Option<&String>) -> String {
    message.map(|text| format!(": {text}")).unwrap_or_default()
}

/// Why Kubernetes deletes a pod: preemption, an eviction, or a Kubernetes node that does not answer.
fn why_disrupted(pod: &Pod) -> Option<String> {
    let target =
        condition(pod.status.as_ref()?, "DisruptionTarget").filter(|target| target.status == "True")?;
    let words = [target.reason.as_deref(), target.message.as_deref()];
    Some(
        words
            .into_iter()
            .flatten()
            .map(|word| format!(": {word}"))
            .collect(),
    )
}

/// How the message about an image of perfrun that cannot be pulled ends.
pub const UNPUBLISHED_ADVICE: &str = "; images of perfrun are not published: build them and load them into the Kubernetes \
                                  nodes, or push them to a registry and set global.imageRegistry of the chart";

/// Why a container does not start. `None` if it is just starting.
fn why_stuck(container: &ContainerStatus, crashed: Reason) -> Option<(Reason, String)> {
    let waiting = container.state.as_ref()?.waiting.as_ref()?;
    let why = waiting.reason.as_deref()?;
    let reason = match why {
        "ErrImagePull" | "ImagePullBackOff" | "InvalidImageName" | "ErrImageNeverPull"
        | "ImageInspectError" => Reason::ImagePullFailed,
        "CreateContainerConfigError" | "CreateContainerError" | "RunContainerError" | "CrashLoopBackOff" => {
            crashed
        }
        _ => return None,
    };
    // The kubelet's message about a crash has the time of the next attempt, the end of the program's log has
    // the cause.
    let last = container
        .last_state
        .as_ref()
        .and_then(|last| last.terminated.as_ref());
    let words = [
        waiting.message.as_deref(),
        last.and_then(|ended| ended.message.as_deref()),
    ];
    let words: String = words
        .into_iter()
        .flatten()
        .map(|text| format!(": {}", text.trim()))
        .collect();
    let is_missing = reason == Reason::ImagePullFailed && container.image.starts_with(UNPUBLISHED);
    let advice = if is_missing { UNPUBLISHED_ADVICE } else { "" };
    Some((reason, format!("{why}{words}{advice}")))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::pod::NODE_IMAGE;

    #[test]
    fn a_pod_that_fits_nowhere_reports_the_message_of_the_scheduler() {
        let state = state_of(json!({"conditions": [
            {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes are available"}
        ]}));
        let PodState::Stuck(cause) = state else {
            panic!("{state:?}")
        };
        assert_eq!(cause.reason, Reason::Unschedulable);
        assert_eq!(
            cause.message,
            "no Kubernetes node takes pod run-server-0-0: 0/3 nodes are available"
        );
    }

    #[test]
    fn an_image_that_cannot_be_pulled_differs_from_one_that_takes_long() {
        let waiting = |reason: &str, image: &str| {
            state_of(json!({"containerStatuses": [
                {"name": "node", "image": image, "imageID": "", "ready": false, "restartCount": 0,
                 "state": {"waiting": {"reason": reason, "message": "not found"}}}
            ]}))
        };
        let mine = "registry.example/node:1";
        assert_eq!(waiting("ContainerCreating", mine), PodState::Starting);
        for (image, is_unpublished) in [(mine, false), (NODE_IMAGE, true)] {
            let PodState::Stuck(cause) = waiting("ImagePullBackOff", image) else {
                panic!()
            };
            assert_eq!(cause.reason, Reason::ImagePullFailed);
            assert_eq!(cause.message.contains("set global.imageRegistry"), is_unpublished);
        }
    }

    #[test]
    fn a_link_agent_that_does_not_start_has_another_reason_than_a_node() {
        let agent = |state: Value| {
            let PodState::Stuck(cause) = state_of(json!({
                "initContainerStatuses": [{"name": "link", "image": "", "imageID": "", "ready": false, "restartCount": 3,
                    "state": state,
                    "lastState": {"terminated": {"exitCode": 1, "message": "Error: no such token\n"}}}],
                "containerStatuses": [{"name": "node", "image": "", "imageID": "", "ready": false, "restartCount": 0,
                    "state": {"waiting": {"reason": "PodInitializing"}}}],
            })) else {
                panic!()
            };
            (cause.reason, cause.message)
        };
        assert_eq!(
            agent(json!({"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s"}})),
            (
                Reason::LinkAgentCrashed,
                "the link agent of pod run-server-0-0: CrashLoopBackOff: back-off 10s: Error: no such token"
                    .to_owned()
            )
        );
        let forbidden =
            json!({"waiting": {"reason": "CreateContainerError", "message": "NET_ADMIN is not allowed"}});
        let (reason, message) = agent(forbidden);
        assert_eq!(reason, Reason::LinkAgentCrashed);
        assert!(
            message.contains("CreateContainerError: NET_ADMIN is not allowed"),
            "{message}"
        );
        let pulled = json!({"waiting": {"reason": "ImagePullBackOff", "message": "not found"}});
        assert_eq!(agent(pulled).0, Reason::ImagePullFailed);
    }

    #[test]
    fn a_pod_whose_link_agent_restarts_is_neither_ready_nor_gone() {
        let state = state_of(json!({"phase": "Running", "podIP": "10.0.0.1",
            "conditions": [{"type": "Ready", "status": "False"}],
            "initContainerStatuses": [{"name": "link", "image": "", "imageID": "", "ready": false, "restartCount": 0,
                "state": {"terminated": {"exitCode": 137}}}],
            "containerStatuses": [{"name": "node", "image": "", "imageID": "", "ready": true, "restartCount": 0,
                "state": {"running": {}}}]}));
        assert_eq!(state, PodState::Starting);
    }

    #[test]
    fn a_node_that_ended_is_gone_even_before_its_pod_is() {
        let ended = state_of(json!({"phase": "Running", "podIP": "10.0.0.1",
            "conditions": [{"type": "Ready", "status": "True"}],
            "containerStatuses": [{"name": "node", "image": "", "imageID": "", "ready": false, "restartCount": 0,
                "state": {"terminated": {"exitCode": 137, "signal": 9, "reason": "OOMKilled"}}}]}));
        let PodState::Gone(cause) = ended else {
            panic!("{ended:?}")
        };
        assert_eq!(
            cause.message,
            "the node in pod run-server-0-0 ended with signal 9 (OOMKilled); see kubectl logs run-server-0-0"
        );
    }

    #[test]
    fn a_preempted_pod_is_gone_with_the_reason() {
        let pod = json!({
            "metadata": {"name": "run-server-0-0", "deletionTimestamp": "2026-01-01T00:00:00Z"},
            "status": {"conditions": [{"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler",
                "message": "preempting to accommodate a higher priority pod"}]}
        });
        let PodState::Gone(cause) = state(&serde_json::from_value(pod).unwrap()) else {
            panic!("it is deleted")
        };
        assert_eq!(
            cause.message,
            "pod run-server-0-0 was deleted: PreemptionByScheduler: preempting to accommodate a higher priority pod"
        );
    }

    #[test]
    fn a_ready_pod_has_an_address() {
        let ready = state_of(json!({"phase": "Running", "podIP": "10.0.0.1",
            "conditions": [{"type": "Ready", "status": "True"}]}));
        assert_eq!(ready, PodState::Ready("10.0.0.1".parse().unwrap()));
    }

    fn state_of(status: Value) -> PodState {
        let pod = json!({"metadata": {"name": "run-server-0-0"}, "status": status});
        state(&serde_json::from_value(pod).unwrap())
    }
}
