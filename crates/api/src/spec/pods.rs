//! The nodes of a run: their number, where they run, and the settings of their pods.
#![expect(
    unreachable_pub,
    reason = "KubeSchema derives from a copy of each type, which no one else reaches"
)]

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Affinity, LocalObjectReference, ResourceRequirements, Toleration, TopologySpreadConstraint,
};
use kube::{KubeSchema, core::Rule};
use perfrun_contract::{matrix::StackName, plan::Cpus};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    rule,
    structural::{default_true, strip_descriptions},
};

/// Keys of labels and annotations that begin with this are perfrun's; pod templates cannot set them.
const RESERVED_PREFIX: &str = "perfrun.io/";

/// Number of nodes, and where they run.
#[serde_with_macros::skip_serializing_none]
#[derive(Clone, Debug, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Topology {
    /// Number of server nodes. Clients are spread evenly over them.
    #[serde(default = "default_nodes")]
    #[x_kube(validation = rule::integer(1, 100))]
    pub servers: u32,
    /// Number of client nodes. They start together.
    #[serde(default = "default_nodes")]
    #[x_kube(validation = rule::integer(1, 100))]
    pub clients: u32,
    /// Number of peers in each client node, each with its own identity and connection. No effect on
    /// `relayStress`, which sets this number itself.
    #[serde(default = "default_nodes")]
    #[x_kube(validation = rule::integer(1, 1000))]
    pub peers_per_client: u32,
    /// The stack of the relay, for workloads with one. By default, the stack that listens. The raw reference
    /// keeps its own proxy.
    pub relay: Option<StackName>,
    /// Where pods run. `SpreadNodes`: servers and clients on different Kubernetes nodes, and a relay on a
    /// third one if possible. `SameNode`: all on one Kubernetes node. `Any`: wherever the scheduler puts
    /// them. No effect on local runs.
    #[serde(default)]
    pub placement: Placement,
    /// Use the network of the Kubernetes node instead of the pod network. No effect on local runs.
    #[serde(default)]
    pub host_network: bool,
    /// The CPUs of nodes. `shared`: each node may use all. `split`: servers, clients and relays have equal
    /// parts of them, and share none. That is another measurement, with less noise: the kernel does not
    /// decide which of them share a CPU. No effect on a cluster, where pods have CPUs of their own if
    /// their template requests whole ones and the kubelet has the CPU manager's policy `static`.
    #[serde(default)]
    pub cpus: Cpus,
    /// Start only when no other run of the operator is active, or of the namespace if the operator's policy
    /// says so, and let other runs wait: runs that share a CPU or a link distort each other. No effect on
    /// local runs: do not start two at a time.
    #[serde(default = "default_true")]
    pub exclusive: bool,
}

/// Where pods run.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum Placement {
    /// Servers and clients on different Kubernetes nodes.
    #[default]
    SpreadNodes,
    /// All on one Kubernetes node.
    SameNode,
    /// Wherever the scheduler puts them.
    Any,
}

/// Settings of pods, for each role.
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Template {
    /// Server pods.
    #[serde(default)]
    pub server: PodSettings,
    /// Client pods.
    #[serde(default)]
    pub client: PodSettings,
    /// Relay pods, for workloads with a relay.
    #[serde(default)]
    pub relay: PodSettings,
    /// The container that impairs links, next to the node in each pod of a run with impaired links.
    #[serde(default)]
    pub link: LinkSettings,
}

/// Settings of the container that impairs links. It runs as root with the capability `NET_ADMIN` only, and
/// `MKNOD` unless every network has `backend: kernel`, because a container has no /dev/net/tun.
#[serde_with_macros::skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LinkSettings {
    /// Compute resources. By default, it requests 100m of CPU and 64 MiB of memory without limits. A CPU
    /// limit delays packets when it is reached.
    #[schemars(transform = strip_descriptions)]
    pub resources: Option<ResourceRequirements>,
    /// Add the capability `SYS_NICE`, so that packets leave on time on a busy machine. Results record how
    /// late they were.
    #[serde(default)]
    pub real_time: bool,
}

/// Settings of a pod, as in a Kubernetes pod specification.
#[serde_with_macros::skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PodSettings {
    /// Compute resources of the node container. By default, it requests 100m of CPU and 64 MiB of memory
    /// without limits: without a request, a busy Kubernetes node would give it almost nothing.
    #[schemars(transform = strip_descriptions)]
    pub resources: Option<ResourceRequirements>,
    /// Labels that a Kubernetes node must have.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,
    /// Scheduling constraints.
    #[schemars(transform = strip_descriptions)]
    pub affinity: Option<Affinity>,
    /// Taints that the pod tolerates.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = strip_descriptions)]
    pub tolerations: Vec<Toleration>,
    /// How the pods spread over topology domains.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = strip_descriptions)]
    pub topology_spread_constraints: Vec<TopologySpreadConstraint>,
    /// Priority class of the pod.
    pub priority_class_name: Option<String>,
    /// Annotations to add to the pod.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 64))]
    #[x_kube(validation = no_reserved_key())]
    pub annotations: BTreeMap<String, String>,
    /// Labels to add to the pod.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 64))]
    #[x_kube(validation = no_reserved_key())]
    pub labels: BTreeMap<String, String>,
    /// Secrets for pulling the image.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = strip_descriptions)]
    pub image_pull_secrets: Vec<LocalObjectReference>,
    /// Runtime class of the pod.
    pub runtime_class_name: Option<String>,
}

impl Default for Topology {
    fn default() -> Self {
        Self {
            relay: None,
            servers: 1,
            clients: 1,
            peers_per_client: 1,
            placement: Placement::default(),
            host_network: false,
            cpus: Cpus::default(),
            exclusive: true,
        }
    }
}

fn default_nodes() -> u32 {
    1
}

/// Labels or annotations without those that the operator finds its pods by.
pub(crate) fn no_reserved_key() -> Rule {
    Rule::new(format!("self.all(key, !key.startsWith('{RESERVED_PREFIX}'))")).message(
        format!("must not have keys that begin with {RESERVED_PREFIX}, which are reserved for the operator")
            .as_str(),
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::rule::evaluation::judges_of;

    #[test]
    fn the_operators_keys_are_reserved() {
        let message = "must not have keys that begin with perfrun.io/, which are reserved for the operator";
        let map = json!({"type": "object", "additionalProperties": {"type": "string"}});
        judges_of(
            &map,
            &no_reserved_key(),
            &json!({"example.com/run": "a"}),
            &json!({"perfrun.io/run": "a"}),
            message,
        );
    }
}
