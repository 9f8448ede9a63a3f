//! The pods that have logs, and the prefixes of their lines: pure.

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use perfrun_api::{
    cluster::{INCARNATION_LABEL, NODE_LABEL},
    pod::node_state,
};

/// A pod of a run that has a log.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct LogSource {
    /// The name of the pod.
    pub pod: String,
    /// The name of the node in the plan. For a replaced node, the number of the pod follows.
    pub label: String,
    /// Whether its container has started. It may have ended since.
    pub has_started: bool,
    /// Whether its container has ended, and its log is complete.
    pub has_ended: bool,
}

impl LogSource {
    /// The text before each of its lines.
    pub(super) fn prefix(&self, width: usize) -> String {
        format!("{:<width$} | ", self.label)
    }
}

/// The pods of a run, in the order of their nodes.
pub(super) fn sources(pods: &[Pod]) -> Vec<LogSource> {
    let mut sorted: Vec<(String, u32, &Pod)> = pods
        .iter()
        .map(|pod| {
            let labels = pod.labels();
            let node = labels.get(NODE_LABEL).cloned().unwrap_or_else(|| pod.name_any());
            let incarnation = labels
                .get(INCARNATION_LABEL)
                .and_then(|number| number.parse().ok())
                .unwrap_or(0);
            (node, incarnation, pod)
        })
        .collect();
    sorted.sort_by(|(a, x, _), (b, y, _)| (a, x).cmp(&(b, y)));
    sorted
        .into_iter()
        .map(|(node, incarnation, pod)| {
            let state = node_state(pod);
            let has_ended = state.is_some_and(|state| state.terminated.is_some());
            LogSource {
                pod: pod.name_any(),
                label: match incarnation {
                    0 => node,
                    number => format!("{node}/{number}"),
                },
                has_started: has_ended || state.is_some_and(|state| state.running.is_some()),
                has_ended,
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(node: &str, incarnation: u32, state: Value) -> Pod {
        serde_json::from_value(json!({
            "metadata": {
                "name": format!("tcp-{node}-{incarnation}"),
                "labels": {"perfrun.io/node": node, "perfrun.io/incarnation": incarnation.to_string()},
            },
            "status": {"containerStatuses": [
                {"name": "node", "image": "", "imageID": "", "ready": true, "restartCount": 0, "state": state},
            ]},
        }))
        .unwrap()
    }

    #[test]
    fn pods_come_in_the_order_of_their_nodes_and_replacements_are_marked() {
        let running = json!({"running": {}});
        let pods = [
            pod("server-0", 0, running),
            pod("client-0", 1, json!({"waiting": {"reason": "ContainerCreating"}})),
            pod("client-0", 0, json!({"terminated": {"exitCode": 1}})),
        ];
        let listed: Vec<(String, bool, bool)> = sources(&pods)
            .into_iter()
            .map(|source| (source.prefix(10), source.has_started, source.has_ended))
            .collect();
        assert_eq!(
            listed,
            [
                ("client-0   | ".to_owned(), true, true),
                ("client-0/1 | ".to_owned(), false, false),
                ("server-0   | ".to_owned(), true, false),
            ]
        );
    }

    #[test]
    fn a_pod_without_labels_or_status_goes_by_its_name() {
        let mut bare = Pod::default();
        bare.metadata.name = Some("odd".into());
        let source = LogSource {
            pod: "odd".into(),
            label: "odd".into(),
            has_started: false,
            has_ended: false,
        };
        assert_eq!(sources(&[bare]), [source]);
    }
}
