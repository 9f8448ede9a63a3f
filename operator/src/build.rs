//! The objects of a run, as they are to be. Pure.

pub mod part;
pub mod pod;
pub mod policy;
pub mod secret;

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{Resource, api::ObjectMeta};
use perfrun_api::{
    cluster::{MANAGED_BY_LABEL, MANAGER, RUN_LABEL},
    spec::{PerfRun, PerfRunSpec},
};

/// The port that nodes are controlled on; with the host's network, that of the first node.
pub const CONTROL_PORT: u16 = 9090;
/// The port that link agents are controlled on. Links are not impaired on the host's network, so that pods never share it.
pub const LINK_PORT: u16 = 9091;
/// The port that link agents serve their metrics on, and nothing else.
pub const LINK_METRICS_PORT: u16 = 9400;
/// The port that nodes serve their metrics on, and nothing else; with the host's network, that of the first node. Far
/// enough from the control ports of as many nodes as a run may have.
pub const METRICS_PORT: u16 = 9401;

/// What the operator and its cluster give to pods, whatever the run.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Site {
    /// Image of nodes whose variant names none, and of all link agents.
    pub node_image: String,
    /// When these are pulled; none, if Kubernetes decides.
    pub pull_policy: Option<String>,
    /// Secrets that all images of pods are pulled with, by name.
    pub pull_secrets: Vec<String>,
    /// Whether pods may set the sizes of TCP's windows: Kubernetes counts these among the safe sysctls since 1.32.
    pub tcp_sysctls: bool,
}

/// What every object of a run says of it.
#[derive(Clone, Debug)]
pub struct Identity {
    /// The namespace.
    pub namespace: String,
    /// The run's name.
    pub name: String,
    /// The run's UID.
    pub uid: String,
    owner: OwnerReference,
}

impl Identity {
    /// Of a run as the API server knows it; `None` of one that it does not know.
    pub fn of(run: &PerfRun) -> Option<Self> {
        let metadata = run.meta();
        Some(Self {
            namespace: metadata.namespace.clone()?,
            name: metadata.name.clone()?,
            uid: metadata.uid.clone()?,
            owner: run.controller_owner_ref(&())?,
        })
    }

    /// `namespace/name`, for people.
    pub fn label(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// Metadata of an object of the run. It goes when the run goes.
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
            ("app.kubernetes.io/name".to_owned(), "perfrun-node".to_owned()),
            (MANAGED_BY_LABEL.to_owned(), MANAGER.to_owned()),
            (RUN_LABEL.to_owned(), self.name.clone()),
        ])
    }
}

/// The port that node number `index` of the plan is controlled on. Pods have addresses of their own; on the host's
/// network they share them.
pub fn control_port(spec: &PerfRunSpec, index: usize) -> u16 {
    port_of(CONTROL_PORT, spec, index)
}

/// The port that it serves its metrics on.
pub fn metrics_port(spec: &PerfRunSpec, index: usize) -> u16 {
    port_of(METRICS_PORT, spec, index)
}

fn port_of(first: u16, spec: &PerfRunSpec, index: usize) -> u16 {
    if spec.topology.host_network {
        first + u16::try_from(index).unwrap_or(0)
    } else {
        first
    }
}
