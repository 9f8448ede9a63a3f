//! A whole run: where it stands, what ends it, and what it runs on.

use std::{collections::BTreeMap, time::Duration};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::{AsRefStr, Display};

use crate::{
    newer::{self, NewerName},
    node::Info,
};

/// State of a run.
#[derive(AsRefStr, Clone, Copy, Debug, Default, Deserialize, Display, Eq, Hash, JsonSchema, PartialEq)]
pub enum Phase {
    /// Accepted or waiting: nothing is running yet.
    #[default]
    Pending,
    /// Nodes are being started.
    Provisioning,
    /// Trials are in progress.
    Running,
    /// Ended: every trial was measured, or skipped for a stated reason.
    Succeeded,
    /// Ended: the conditions give the reason.
    Failed,
    /// Stopped on request.
    Cancelled,
    /// A phase of a newer version, which this version carries.
    #[schemars(skip)]
    #[serde(skip_deserializing)]
    #[strum(transparent)]
    Newer(NewerName),
}

newer::carry!(Phase);

/// Whether a run ran to its end.
#[derive(Clone, Copy, Debug, Deserialize, Display, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum RunState {
    /// Every trial of the plan was run.
    Complete,
    /// Stopped by the user; the trials until then are here.
    Interrupted,
    /// Ended by an error; the trials until then are here.
    Failed,
}

/// What a run ran on.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Environment {
    /// Version of perfrun.
    pub perfrun: String,
    /// How nodes were kept apart.
    pub isolation: Isolation,
    /// What each node reported about itself. The host name is that of the Kubernetes node if it ran in a pod.
    pub nodes: BTreeMap<String, Info>,
    /// Node programs that the user named, instead of the one that belongs to perfrun.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub programs: Vec<NodeProgram>,
}

/// A program that nodes ran.
#[serde_with_macros::skip_serializing_none]
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeProgram {
    /// The stack variant whose nodes ran it. Absent for all others.
    pub variant: Option<String>,
    /// Its absolute path on the machine of the run.
    pub path: String,
}

/// How nodes are kept apart.
#[derive(Clone, Copy, Debug, Deserialize, Display, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Isolation {
    /// A network namespace each, joined by veth pairs and a bridge, on one machine.
    #[strum(serialize = "network namespaces on one machine, joined by veth and a bridge")]
    Namespaces,
    /// Only processes: all share the loopback interface.
    #[strum(serialize = "one loopback interface shared by all nodes (no network namespaces)")]
    Loopback,
    /// Pods of a Kubernetes cluster.
    #[strum(serialize = "pods of a Kubernetes cluster")]
    Pods,
}

/// How long things may take.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct RunTimeouts {
    /// Until all nodes are ready.
    pub provision: Duration,
    /// One trial. A workload with a duration has that much more.
    pub trial: Duration,
    /// The whole run, from the start of its first node.
    pub run: Duration,
}
