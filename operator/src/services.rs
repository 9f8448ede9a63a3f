//! What reconciliations and the conductors of runs share.

use std::sync::Arc;

use kube::{
    Client,
    runtime::{events::Recorder, reflector::Store},
};
use perfrun_conductor::client::AnswerBudget;

use crate::{
    access::Access,
    api::watched::WatchedPod,
    build::PodDefaults,
    process::{clock::TimeSource, fence::Term, metrics::Metrics, shared_memory_budget::SharedMemoryBudget},
    token::TokenKey,
};

/// What reconciliations and the conductors of runs share.
#[derive(Clone)]
pub(crate) struct Services {
    /// Changes nothing after the term.
    pub(crate) client: Client,
    pub(crate) term: Term,
    pub(crate) clock: TimeSource,
    /// How nodes are reached.
    pub(crate) access: Access,
    /// The room for answers of nodes, of all runs.
    pub(crate) answer_budget: AnswerBudget,
    /// The key that tokens of runs are derived from.
    pub(crate) key: TokenKey,
    pub(crate) pod_defaults: PodDefaults,
    /// The namespace of operators' pods.
    pub(crate) operator_namespace: String,
    /// Most bytes of a run's compressed records before samples are merged.
    pub(crate) result_bytes: u64,
    pub(crate) recorder: Recorder,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) memory: SharedMemoryBudget,
    /// Pods of runs, as the watch shows them.
    pub(crate) pods: Store<WatchedPod>,
}
