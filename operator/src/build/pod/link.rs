//! The link agent beside a node. It is a separate container, so that the node needs no capability, and the
//! cost of an impaired link is not charged to the stack under test.
//!
//! The agent starts before the node and ends after it (a native sidecar). Unlike a node it is restarted in
//! place: its configuration is in a file that outlives it, and it applies that file before it answers.

use k8s_openapi::api::core::v1::{Container, Sysctl, Volume};
use perfrun_api::{
    pod::{LINK_CONTAINER, all_addresses, default_resources, named_port, object, token_mount},
    spec::PerfRunSpec,
};
use perfrun_contract::plan::{Plan, PlannedNode, tcp_window_settings};
use perfrun_link::Backend;
use serde_json::json;

use super::environment;
use crate::build::{LINK_METRICS_PORT, LINK_PORT, PodDefaults, RunIdentity};

const STATE_FOLDER: &str = "/run/perfrun-link";
const STATE_VOLUME: &str = "link-state";
/// An agent that does not answer within this time is restarted. Most answer within some ten milliseconds.
const START_TIMEOUT_SECONDS: i32 = 60;

/// Builds the link agent. `None` if the plan does not impair links.
pub(super) fn agent(
    run: &RunIdentity,
    spec: &PerfRunSpec,
    plan: &Plan,
    node: &PlannedNode,
    pod_defaults: &PodDefaults,
) -> Option<Container> {
    if plan.networks.is_empty() {
        return None;
    }
    let settings = &spec.template.link;
    Some(Container {
        image_pull_policy: pod_defaults.node_image_pull_policy.clone(),
        ..object(json!({
            "name": LINK_CONTAINER,
            // Never a variant's image: both sides of a comparison must have the same agent.
            "image": pod_defaults.node_image,
            "args": [
                "link-agent",
                format!("--control={}", all_addresses(node.ip_family, LINK_PORT)),
                format!("--state-file={STATE_FOLDER}/link.json"),
                // Without MKNOD the agent only reports that it cannot.
                "--make-tun-device",
            ],
            "env": environment(run, node, LINK_METRICS_PORT),
            "ports": [named_port("link", LINK_PORT), named_port("link-metrics", LINK_METRICS_PORT)],
            "resources": settings.resources.clone().unwrap_or_else(default_resources),
            // This makes an init container a sidecar.
            "restartPolicy": "Always",
            "securityContext": {
                "allowPrivilegeEscalation": false,
                "capabilities": {"add": capabilities(plan, settings.real_time), "drop": ["ALL"]},
                "readOnlyRootFilesystem": true,
                // Another user would not get the added capabilities, because Kubernetes sets no ambient ones.
                "runAsGroup": 0,
                "runAsNonRoot": false,
                "runAsUser": 0,
            },
            // The node starts when this probe succeeds.
            "startupProbe": {
                "httpGet": {"path": "/readyz", "port": LINK_PORT},
                "periodSeconds": 1,
                "failureThreshold": START_TIMEOUT_SECONDS,
            },
            "terminationMessagePolicy": "FallbackToLogsOnError",
            "volumeMounts": [token_mount(), json!({"name": STATE_VOLUME, "mountPath": STATE_FOLDER})],
        }))
    })
}

/// The volume for the agent's configuration. `None` if the plan does not impair links.
pub(super) fn volume(plan: &Plan) -> Option<Volume> {
    let volume = || object(json!({"name": STATE_VOLUME, "emptyDir": {"medium": "Memory"}}));
    (!plan.networks.is_empty()).then(volume)
}

/// TCP windows that fill the links, if pods may set them. The defaults of Linux are 6 and 4 MiB at most,
/// which limits a connection to about 0.5 Gbit/s at 50 ms.
pub(super) fn sysctls(plan: &Plan, pod_defaults: &PodDefaults) -> Option<Vec<Sysctl>> {
    let most = plan.tcp_window_bytes().filter(|_| pod_defaults.tcp_sysctls)?;
    let settings = tcp_window_settings(most).map(|(name, value)| Sysctl {
        name: name.to_owned(),
        value,
    });
    Some(settings.into())
}

/// The capabilities of the agents. Empty if the plan does not impair links.
pub(crate) fn capabilities(plan: &Plan, real_time: bool) -> Vec<&'static str> {
    let impairs = !plan.networks.is_empty();
    let mut impairing = plan.networks.iter().filter(|network| !network.is_none());
    let makes_device = impairing.any(|network| network.backend != Backend::Kernel);
    [
        ("NET_ADMIN", impairs),
        ("MKNOD", makes_device),
        ("SYS_NICE", impairs && real_time),
    ]
    .into_iter()
    .filter(|(_, needed)| *needed)
    .map(|(name, _)| name)
    .collect()
}
