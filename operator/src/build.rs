//! Builds the objects of a run. Pure.

pub(crate) mod network_policy;
pub(crate) mod part;
pub(crate) mod pod;
pub(crate) mod secret;
pub(crate) mod store;

use std::{collections::BTreeMap, time::Duration};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{Resource, api::ObjectMeta};
use perfrun_api::{
    cluster::{MANAGED_BY_LABEL, MANAGER, NAME_LABEL, RUN_LABEL},
    planning::NODES_MAX,
    pod::{CONTROL_PORT, METRICS_PORT},
    spec::{PerfRun, PerfRunSpec},
};
use perfrun_contract::plan::PlannedNode;

/// The control port of link agents. Links are never impaired on the host's network, so that pods do not share
/// it.
pub(crate) const LINK_PORT: u16 = 9091;
/// The port of link agents that serves metrics only.
pub(crate) const LINK_METRICS_PORT: u16 = 9400;

/// The metrics port of the first node on the host's network.
const HOST_METRICS_PORT: u16 = 9700;
// The ports of the largest run differ, and exist.
const _: () = assert!(HOST_METRICS_PORT as u64 >= CONTROL_PORT as u64 + NODES_MAX);
const _: () = assert!(HOST_METRICS_PORT as u64 + NODES_MAX <= u16::MAX as u64);

/// The settings of pods that depend on the operator and its cluster, and not on the run.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct PodDefaults {
    /// The image of nodes whose variant names none, and of all link agents.
    pub(crate) node_image: String,
    /// The image of nodes of go-libp2p whose variant names none.
    pub(crate) node_image_go: String,
    /// The image of the operator, for pods that keep results.
    pub(crate) operator_image: String,
    /// When the operator's image is pulled. `None` if Kubernetes decides.
    pub(crate) operator_image_pull_policy: Option<String>,
    /// When images of nodes are pulled. `None` if Kubernetes decides.
    pub(crate) node_image_pull_policy: Option<String>,
    /// Names of the Secrets for pulling the images of all pods.
    pub(crate) pull_secrets: Vec<String>,
    /// Whether pods may set the sizes of TCP windows: Kubernetes counts them among the safe sysctls since
    /// 1.32.
    pub(crate) tcp_sysctls: bool,
    /// How long pods of a failed run stay, if its document requests that.
    pub(crate) kept_pods: Duration,
}

#[cfg(test)]
impl PodDefaults {
    /// As tests have it.
    pub(crate) fn fixed() -> Self {
        Self {
            node_image: "node".to_owned(),
            node_image_go: "node-go".to_owned(),
            operator_image: "operator".to_owned(),
            operator_image_pull_policy: None,
            node_image_pull_policy: None,
            pull_secrets: vec!["registry".to_owned()],
            tcp_sysctls: true,
            kept_pods: Duration::from_secs(24 * 3600),
        }
    }
}

/// Identifies a run in all its objects.
#[derive(Clone, Debug)]
pub(crate) struct RunIdentity {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: String,
    owner: OwnerReference,
}

impl RunIdentity {
    /// Identifies a run of the API server. `None` if the run is not from there.
    pub(crate) fn of(run: &PerfRun) -> Option<Self> {
        let metadata = run.meta();
        Some(Self {
            namespace: metadata.namespace.clone()?,
            name: metadata.name.clone()?,
            uid: metadata.uid.clone()?,
            owner: run.controller_owner_ref(&())?,
        })
    }

    /// `namespace/name`, for people.
    pub(crate) fn label(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// Metadata of an object of the run. Kubernetes deletes the object together with the run.
    fn metadata(&self, name: String) -> ObjectMeta {
        ObjectMeta {
            name: Some(name),
            namespace: Some(self.namespace.clone()),
            labels: Some(self.labels()),
            owner_references: Some(vec![self.owner.clone()]),
            ..ObjectMeta::default()
        }
    }

    fn labels(&self) -> BTreeMap<String, String> {
        BTreeMap::from([
            (NAME_LABEL.to_owned(), "perfrun-node".to_owned()),
            (MANAGED_BY_LABEL.to_owned(), MANAGER.to_owned()),
            (RUN_LABEL.to_owned(), self.name.clone()),
        ])
    }
}

/// Added to a pod's deadline: time to keep results, and for an outage of the operator.
const DEADLINE_ALLOWANCE: Duration = Duration::from_secs(15 * 60);

/// How long a pod of a run may exist, in seconds: the kubelet ends it then, even if no operator does.
pub(crate) fn longest_seconds(spec: &PerfRunSpec, pod_defaults: &PodDefaults) -> i64 {
    let kept = match spec.cleanup.keep_pods_on_failure {
        true => pod_defaults.kept_pods,
        false => Duration::ZERO,
    };
    let timeouts = &spec.timeouts;
    let all = Duration::from(timeouts.provision)
        .saturating_add(timeouts.run.into())
        .saturating_add(kept)
        .saturating_add(DEADLINE_ALLOWANCE);
    // Kubernetes accepts no larger number.
    i32::try_from(all.as_secs()).unwrap_or(i32::MAX).into()
}

/// A pod to create.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct NewPod {
    pub(crate) node: PlannedNode,
    /// How many pods the node has had before.
    pub(crate) incarnation: u32,
    /// The Kubernetes node on which the previous pod was lost. The new pod prefers another.
    pub(crate) avoid: Option<String>,
}

/// The control port of node number `index` of the plan. Ports differ only on the host's network, where pods
/// share addresses.
pub(crate) fn control_port(spec: &PerfRunSpec, index: usize) -> u16 {
    match spec.topology.host_network {
        true => CONTROL_PORT + offset(index),
        false => CONTROL_PORT,
    }
}

/// The metrics port of node number `index` of the plan.
pub(crate) fn metrics_port(spec: &PerfRunSpec, index: usize) -> u16 {
    match spec.topology.host_network {
        true => HOST_METRICS_PORT + offset(index),
        false => METRICS_PORT,
    }
}

fn offset(index: usize) -> u16 {
    u16::try_from(index).expect("a plan has at most NODES_MAX nodes")
}
