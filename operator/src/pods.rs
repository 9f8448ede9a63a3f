//! The pods of a run, as a decision needs them.

use std::net::IpAddr;

use jiff::Timestamp;
use kube::{ResourceExt, runtime::reflector::Store};
use perfrun_api::{
    cluster::{INCARNATION_LABEL, NODE_LABEL, RUN_LABEL},
    pod::PodState,
};

use crate::{api::watched::WatchedPod, build::RunIdentity};

/// A pod of a run.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct NodePod {
    pub(crate) name: String,
    pub(crate) uid: String,
    /// The plan's name of the node, or `STORE_NODE` for the pod that keeps results.
    pub(crate) node: String,
    /// How many pods the node has had before.
    pub(crate) incarnation: u32,
    /// When the API server created it.
    pub(crate) created: Option<Timestamp>,
    pub(crate) deleting: bool,
    pub(crate) state: PodState,
    /// Names of the containers that perfrun did not make.
    pub(crate) foreign_containers: Vec<String>,
}

impl NodePod {
    /// Reads a pod. `None` if it lacks the labels of a node, or a UID.
    pub(crate) fn from_pod(pod: &WatchedPod) -> Option<Self> {
        let label = |key| pod.labels().get(key).cloned();
        Some(Self {
            name: pod.name_any(),
            uid: pod.uid()?,
            node: label(NODE_LABEL)?,
            incarnation: label(INCARNATION_LABEL)?.parse().ok()?,
            created: pod.metadata.creation_timestamp.as_ref().map(|time| time.0),
            deleting: pod.metadata.deletion_timestamp.is_some(),
            state: pod.state.clone(),
            foreign_containers: pod.foreign_containers.clone(),
        })
    }

    /// Whether the pod is the node, or will be.
    pub(crate) fn is_alive(&self) -> bool {
        !matches!(self.state, PodState::Gone(_))
    }
}

/// The latest pod of a node, unless it is gone.
pub(crate) fn live_pod<'a>(pods: &'a [NodePod], node: &str) -> Option<&'a NodePod> {
    pods.iter()
        .filter(|pod| pod.node == node && pod.is_alive())
        .max_by_key(|pod| pod.incarnation)
}

/// The latest pod of a node and its address, if the pod is ready.
pub(crate) fn ready_pod<'a>(pods: &'a [NodePod], node: &str) -> Option<(&'a NodePod, IpAddr)> {
    let pod = live_pod(pods, node)?;
    match pod.state {
        PodState::Ready(ip) => Some((pod, ip)),
        _ => None,
    }
}

/// Whether the run has pods that are not being deleted.
pub(crate) fn has_undeleted(pods: &[NodePod]) -> bool {
    pods.iter().any(|pod| !pod.deleting)
}

/// The pods of a run, as the watch shows them.
pub(crate) fn of_run(run: &RunIdentity, watched: &Store<WatchedPod>) -> Vec<NodePod> {
    let pods = watched.state();
    let own = pods.iter().filter(|pod| is_of(pod, run));
    let mut own: Vec<_> = own.filter_map(|pod| NodePod::from_pod(pod)).collect();
    // The cache of the watch has no order. The same pods lead to the same decision.
    own.sort_by(|one, other| one.name.cmp(&other.name));
    own
}

/// Whether a pod belongs to the run. A deleted run of the same name may have left pods behind.
pub(crate) fn is_of(pod: &WatchedPod, run: &RunIdentity) -> bool {
    pod.namespace().as_deref() == Some(run.namespace.as_str())
        && pod.labels().get(RUN_LABEL) == Some(&run.name)
        && pod.owner_references().iter().any(|owner| owner.uid == run.uid)
}
