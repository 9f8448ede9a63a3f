//! The NetworkPolicy of a run. Its nodes accept connections from one another, and on the control ports of
//! nodes and link agents from operators only. On a network that does not enforce policies, the token still
//! keeps others out. Metrics are open to everybody, because the operator does not know where scrapers run.

use k8s_openapi::api::networking::v1::NetworkPolicy;
use perfrun_api::{
    cluster::{NAME_LABEL, RUN_LABEL},
    pod::{CONTROL_PORT, METRICS_PORT, object},
};
use serde_json::json;

use super::{LINK_METRICS_PORT, LINK_PORT, RunIdentity};
use crate::names;

/// The label of operators' pods.
const OPERATOR: (&str, &str) = (NAME_LABEL, "perfrun-operator");
/// Each pair of ports is one range of the policy.
const _: () = assert!(LINK_PORT == CONTROL_PORT + 1 && METRICS_PORT == LINK_METRICS_PORT + 1);
/// The label that every namespace has: its name.
const NAMESPACE_LABEL: &str = "kubernetes.io/metadata.name";

/// Builds the network policy of a run's pods. `operator_namespace` is that of the operators' pods. `None` if
/// calls come through the API server, whose address is not a pod's; then only the token protects the control
/// ports.
pub(crate) fn network_policy(run: &RunIdentity, operator_namespace: Option<&str>) -> NetworkPolicy {
    let labelled = |(key, value): (&str, &str)| json!({"matchLabels": {key: value}});
    let ports =
        |protocol: &str, first: u16, last: u16| json!({"protocol": protocol, "port": first, "endPort": last});
    let nodes = labelled((RUN_LABEL, &run.name));
    let mut control = json!({"ports": [ports("TCP", CONTROL_PORT, LINK_PORT)]});
    if let Some(namespace) = operator_namespace {
        let namespace = labelled((NAMESPACE_LABEL, namespace));
        control["from"] = json!([{"namespaceSelector": namespace, "podSelector": labelled(OPERATOR)}]);
    }
    let trials = json!({
        "from": [{"podSelector": nodes}],
        // All ports except the control ports.
        "ports": [
            ports("TCP", 1, CONTROL_PORT - 1),
            ports("TCP", LINK_PORT + 1, u16::MAX),
            // Probes of links use UDP on any port.
            ports("UDP", 1, u16::MAX),
        ],
    });
    let metrics = json!({"ports": [ports("TCP", LINK_METRICS_PORT, METRICS_PORT)]});
    NetworkPolicy {
        metadata: run.metadata(names::network_policy(&run.name, &run.uid)),
        spec: object(json!({
            "podSelector": nodes,
            "ingress": [control, trials, metrics],
            "policyTypes": ["Ingress"],
        })),
    }
}

#[cfg(test)]
mod tests {
    use kube::core::ObjectMeta;
    use perfrun_api::spec::PerfRun;

    use super::*;

    #[test]
    fn nodes_and_link_agents_are_controlled_by_operators_only() {
        let mut run: PerfRun = perfrun_api::document::parse(
            "{apiVersion: perfrun.io/v1alpha1, kind: PerfRun, metadata: {name: run}, spec: {workload: {ping: {}}}}",
        )
        .unwrap()
        .remove(0);
        run.metadata = ObjectMeta {
            name: Some("run".to_owned()),
            namespace: Some("benchmarks".to_owned()),
            uid: Some("00000000-1111-2222-3333-444444444444".to_owned()),
            ..ObjectMeta::default()
        };
        let ingress = |operator_namespace| {
            let built = network_policy(&RunIdentity::of(&run).unwrap(), operator_namespace);
            json!(built.spec.unwrap().ingress)
        };
        let control = json!([{"protocol": "TCP", "port": 9090, "endPort": 9091}]);
        let trials = json!([
            {"protocol": "TCP", "port": 1, "endPort": 9089},
            {"protocol": "TCP", "port": 9092, "endPort": 65535},
            {"protocol": "UDP", "port": 1, "endPort": 65535},
        ]);
        let rules = ingress(Some("perfrun-system"));
        assert_eq!((&rules[0]["ports"], &rules[1]["ports"]), (&control, &trials));
        let operators = json!([{
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "perfrun-system"}},
            "podSelector": {"matchLabels": {"app.kubernetes.io/name": "perfrun-operator"}},
        }]);
        assert_eq!(rules[0]["from"], operators);
        let metrics = json!([{"protocol": "TCP", "port": 9400, "endPort": 9401}]);
        assert_eq!((&rules[2]["ports"], rules[2].get("from")), (&metrics, None));
        let nodes = json!([{"podSelector": {"matchLabels": {"perfrun.io/run": "run"}}}]);
        assert_eq!(rules[1]["from"], nodes);
        assert_eq!(
            ingress(None)[0].get("from"),
            None,
            "calls come from the API server"
        );
    }
}
