//! The pod that keeps the results of a run, see [`crate::store`].

use k8s_openapi::api::core::v1::{Affinity, Pod, PodAntiAffinity, PodSpec, WeightedPodAffinityTerm};
use perfrun_api::{
    cluster::{INCARNATION_LABEL, NODE_LABEL},
    pod::store::{STORE_NODE, StoreAccess, store_pod},
    spec::PerfRunSpec,
    store::Store,
};

use super::{
    PodDefaults, RunIdentity, longest_seconds,
    pod::{beside, tolerations},
};
use crate::names;

/// Builds the pod of a run that keeps its results there. It tolerates what servers do.
pub(crate) fn pod(
    run: &RunIdentity,
    spec: &PerfRunSpec,
    store: &Store,
    incarnation: u32,
    pod_defaults: &PodDefaults,
) -> Pod {
    let mut metadata = run.metadata(names::pod(&run.name, &run.uid, STORE_NODE, incarnation));
    metadata.labels.get_or_insert_default().extend([
        (NODE_LABEL.to_owned(), STORE_NODE.to_owned()),
        (INCARNATION_LABEL.to_owned(), incarnation.to_string()),
    ]);
    let access = StoreAccess::Token(names::store_token(&run.name, &run.uid));
    let url = store.url(&run.namespace, &run.name, &run.uid);
    let mut pod = store_pod(
        store,
        &url,
        &pod_defaults.operator_image,
        &pod_defaults.pull_secrets,
        access,
    );
    for container in &mut pod.containers {
        container
            .image_pull_policy
            .clone_from(&pod_defaults.operator_image_pull_policy);
    }
    Pod {
        metadata,
        spec: Some(PodSpec {
            active_deadline_seconds: Some(longest_seconds(spec, pod_defaults)),
            affinity: Some(away_from_nodes(run)),
            tolerations: Some(tolerations(&spec.template.server)),
            ..pod
        }),
        status: None,
    }
}

/// Keeps the pod away from nodes: writing results would disturb one on the same machine.
fn away_from_nodes(run: &RunIdentity) -> Affinity {
    let term = WeightedPodAffinityTerm {
        weight: 100,
        pod_affinity_term: beside(run, None),
    };
    Affinity {
        pod_anti_affinity: Some(PodAntiAffinity {
            preferred_during_scheduling_ignored_during_execution: Some(vec![term]),
            ..PodAntiAffinity::default()
        }),
        ..Affinity::default()
    }
}
