//! A pod as the operator watches it.
//!
//! Anybody who may create pods can give them the label of the operator. So of a pod only what a run needs is
//! kept.

use std::borrow::Cow;

use k8s_openapi::api::core::v1::{Pod, PodStatus};
use kube::{Resource, core::ObjectMeta};
use perfrun_api::pod::{LINK_CONTAINER, NODE_CONTAINER, PodState, state};
use serde::{Deserialize, Deserializer};

use super::{resource, used};

/// Most containers of a pod that are named as foreign.
const FOREIGN_MAX: usize = 16;

/// What the operator uses of a pod.
#[derive(Clone, Debug)]
pub(crate) struct WatchedPod {
    pub(crate) metadata: ObjectMeta,
    pub(crate) state: PodState,
    /// The Kubernetes node that it is on.
    pub(crate) host: Option<String>,
    /// Names of the containers that perfrun did not make.
    pub(crate) foreign_containers: Vec<String>,
}

impl WatchedPod {
    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn metadata_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

resource!(WatchedPod: Pod);

#[derive(Deserialize)]
struct Raw {
    metadata: ObjectMeta,
    #[serde(default)]
    spec: Spec,
    status: Option<PodStatus>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    node_name: Option<String>,
    containers: Option<Vec<Named>>,
    init_containers: Option<Vec<Named>>,
}

#[derive(Deserialize)]
struct Named {
    name: String,
}

impl Spec {
    fn foreign_containers(self) -> Vec<String> {
        let containers = [self.init_containers, self.containers];
        let names = containers
            .into_iter()
            .flatten()
            .flatten()
            .map(|Named { name }| name);
        let is_foreign = |name: &String| ![NODE_CONTAINER, LINK_CONTAINER].contains(&name.as_str());
        names.filter(is_foreign).take(FOREIGN_MAX).collect()
    }
}

impl<'de> Deserialize<'de> for WatchedPod {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Raw {
            metadata,
            mut spec,
            status,
        } = Raw::deserialize(deserializer)?;
        let pod = Pod {
            metadata: used(metadata),
            spec: None,
            status,
        };
        Ok(Self {
            state: state(&pod),
            metadata: pod.metadata,
            host: spec.node_name.take(),
            foreign_containers: spec.foreign_containers(),
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn watched(pod: Value) -> WatchedPod {
        serde_json::from_value(pod).unwrap()
    }

    #[test]
    fn containers_of_a_service_mesh_are_foreign() {
        let foreign = |containers, init| {
            let spec = json!({"containers": containers, "initContainers": init});
            watched(json!({"metadata": {}, "spec": spec})).foreign_containers
        };
        let named = |name: &str| json!({"name": name});
        assert!(foreign(json!([named("node")]), json!([named("link")])).is_empty());
        let meshed = foreign(
            json!([named("node"), named("istio-proxy")]),
            json!([named("istio-init")]),
        );
        assert_eq!(meshed, ["istio-init", "istio-proxy"]);
    }

    #[test]
    fn what_an_editor_writes_into_a_pod_is_not_kept() {
        let long = "x".repeat(256 << 10);
        let owner = |kind: &str, uid: &str| {
            let version = "perfrun.io/v1alpha1";
            json!({"apiVersion": version, "kind": kind, "name": "a", "uid": uid})
        };
        let mut owners = vec![owner(&long, "b"), owner("PerfRun", &long)];
        owners.extend((0..1000).map(|number| owner("PerfRun", &number.to_string())));
        let pod = watched(json!({
            "metadata": {
                "name": "a", "namespace": "bench", "uid": "uid-1", "annotations": {"a": long}, "finalizers": [long],
                "labels": {"perfrun.io/node": "client-0", "other": long},
                "ownerReferences": owners,
            },
            "spec": {"containers": vec![json!({"name": "other", "image": long}); 100]},
            "status": {"phase": "Pending"},
        }));
        let kept = format!("{pod:?}");
        assert!(kept.len() < 8 << 10, "{kept}");
        assert_eq!(pod.metadata.labels.unwrap()["perfrun.io/node"], "client-0");
        assert_eq!(pod.metadata.owner_references.unwrap()[0].uid, "0");
    }
}
