//! What the administrators of an operator allow the authors of runs. Pure.
//!
//! Authors of PerfRuns create pods with them. A policy limits these pods, for authors who have no right to
//! create pods themselves.

mod requests;

use std::time;

use k8s_openapi::api::core::v1::PodAffinityTerm;
use kube::core::Duration;
use perfrun_api::{cluster::condition::Reason, pod::Cause, spec::PerfRunSpec};
use serde::Deserialize;

use self::requests::{Request, pod_terms, requests, settings_of_pods};

/// What documents may request. The fields are those of `policy` in the chart's values. By default, everything
/// is allowed.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Policy {
    /// Whether pods may share the host's network.
    pub allow_host_network: bool,
    /// Whether the affinity of pods may name other namespaces. While a pod repels others, the scheduler keeps
    /// new pods of the named namespaces away from it.
    pub allow_cross_namespace_affinity: bool,
    /// The longest `timeouts.provision`.
    pub longest_provision: Duration,
    /// The longest `timeouts.run`.
    pub longest_run: Duration,
    /// How long pods of a failed run stay with `cleanup.keepPodsOnFailure`.
    pub kept_pods: Duration,
    /// The largest number of nodes of a run. 0 for no limit.
    pub most_nodes: usize,
    /// Images of stacks.
    pub allowed_images: Patterns,
    /// Priority classes of pods.
    pub allowed_priority_classes: Patterns,
    /// Runtime classes of pods.
    pub allowed_runtime_classes: Patterns,
    /// Capabilities of link agents.
    pub allowed_capabilities: Patterns,
    /// Keys of taints that pods may tolerate. The key of a toleration of all taints is empty.
    pub allowed_tolerations: Patterns,
    /// Keys of labels of Kubernetes nodes that pods may select.
    pub allowed_node_selectors: Patterns,
    /// Keys of annotations of pods.
    pub allowed_annotations: Patterns,
    /// Keys of labels of pods.
    pub allowed_labels: Patterns,
    /// Where results are kept: URLs and addresses of object stores, and claims. A run can use any Secret of
    /// its namespace to write there.
    pub allowed_stores: Patterns,
    /// The largest number of active runs of a namespace. 0 for no limit.
    pub active_runs_per_namespace: usize,
    /// Beside which runs no exclusive run may be active.
    pub exclusive_per: ExclusivePer,
}

/// See [`Policy::exclusive_per`].
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "lowercase")]
pub enum ExclusivePer {
    /// All runs of the operator.
    #[default]
    Cluster,
    /// The runs of the same namespace.
    Namespace,
}

/// Texts that are allowed. One that ends with `*` allows all texts with this beginning.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq)]
pub struct Patterns(pub Vec<String>);

impl Default for Policy {
    fn default() -> Self {
        let all = || Patterns(vec!["*".to_owned()]);
        Self {
            allow_host_network: true,
            allow_cross_namespace_affinity: true,
            // The maxima of documents.
            longest_provision: hours(24),
            longest_run: hours(168),
            kept_pods: hours(24),
            most_nodes: 0,
            allowed_images: all(),
            allowed_priority_classes: all(),
            allowed_runtime_classes: all(),
            allowed_capabilities: all(),
            allowed_tolerations: all(),
            allowed_node_selectors: all(),
            allowed_annotations: all(),
            allowed_labels: all(),
            allowed_stores: all(),
            active_runs_per_namespace: 0,
            exclusive_per: ExclusivePer::default(),
        }
    }
}

impl Policy {
    /// Why a document is not allowed. `nodes` is the number of nodes of its plan, `capabilities` are those of
    /// its link agents. `operator_namespace` is for authors who want to ask.
    pub(crate) fn refusal(
        &self,
        spec: &PerfRunSpec,
        nodes: usize,
        capabilities: &[&str],
        operator_namespace: &str,
    ) -> Option<Cause> {
        let what = self
            .host_network_refusal(spec)
            .or_else(|| self.affinity_refusal(spec))
            .or_else(|| self.timeouts_refusal(spec))
            .or_else(|| self.nodes_refusal(nodes))
            .or_else(|| {
                let requests = requests(self, spec, capabilities);
                requests.iter().find_map(Request::refusal)
            })?;
        let message = format!(
            "{what}. Change the document, or ask the administrators of the operator, in namespace {operator_namespace}"
        );
        Some(Cause::new(Reason::NotAllowed, message))
    }

    fn host_network_refusal(&self, spec: &PerfRunSpec) -> Option<String> {
        let what = "spec.topology.hostNetwork is true, which the operator does not allow";
        (spec.topology.host_network && !self.allow_host_network)
            .then(|| format!("{what} (policy.allowHostNetwork)"))
    }

    fn affinity_refusal(&self, spec: &PerfRunSpec) -> Option<String> {
        if self.allow_cross_namespace_affinity {
            return None;
        }
        // An empty list stands for the namespace of the pod, an empty selector for all namespaces.
        let names_namespaces = |term: &PodAffinityTerm| {
            let names = term.namespaces.as_ref();
            term.namespace_selector.is_some() || names.is_some_and(|names| !names.is_empty())
        };
        settings_of_pods(spec).into_iter().find_map(|(path, settings)| {
            let (field, _) = pod_terms(settings).find(|(_, term)| names_namespaces(term))?;
            let what = "names namespaces, which the operator does not allow";
            Some(format!(
                "{path}.{field} {what} (policy.allowCrossNamespaceAffinity)"
            ))
        })
    }

    fn nodes_refusal(&self, nodes: usize) -> Option<String> {
        let most = self.most_nodes;
        let what = "spec.matrix and spec.topology need";
        (most != 0 && nodes > most).then(|| {
            format!("{what} {nodes} nodes, more than the operator allows (policy.mostNodes: {most})")
        })
    }

    fn timeouts_refusal(&self, spec: &PerfRunSpec) -> Option<String> {
        let timeouts = [
            ("run", spec.timeouts.run, self.longest_run, "longestRun"),
            (
                "provision",
                spec.timeouts.provision,
                self.longest_provision,
                "longestProvision",
            ),
        ];
        let is_longer = |timeout: Duration, longest: Duration| {
            time::Duration::from(timeout) > time::Duration::from(longest)
        };
        timeouts
            .into_iter()
            .find(|(_, timeout, longest, _)| is_longer(*timeout, *longest))
            .map(|(field, timeout, longest, value)| {
                format!(
                    "spec.timeouts.{field} is {timeout}, longer than the operator allows (policy.{value}: {longest})"
                )
            })
    }
}

fn hours(hours: u64) -> Duration {
    time::Duration::from_secs(hours * 60 * 60).into()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use kube::CustomResourceExt;
    use perfrun_api::{document, spec::PerfRun};
    use serde_json::{Value, json};

    use super::*;

    const DOCUMENT: &str = "
apiVersion: perfrun.io/v1alpha1
kind: PerfRun
metadata: {name: run}
spec:
  workload: {ping: {}}
  topology: {hostNetwork: true}
  results: {store: {objectStore: {url: s3://results, endpoint: https://elsewhere, secret: s3}}}
  stacks:
  - {name: own, stack: libp2p}
  - {name: mine, stack: libp2p, image: 'registry.example/bench/node:1'}
  matrix: {clients: [own, mine]}
  template:
    client:
      priorityClassName: high
      runtimeClassName: runc
      tolerations: [{key: bench, operator: Exists}]
      nodeSelector: {example.com/disk: ssd}
      annotations: {example.com/role: admin}
      labels: {app: shop}
    relay:
      tolerations: [{operator: Exists}]
      affinity:
        podAntiAffinity:
          requiredDuringSchedulingIgnoredDuringExecution:
          - {labelSelector: {matchLabels: {app: shop}}, namespaceSelector: {}, topologyKey: example.com/rack}
";

    const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
    const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

    const ASK: &str =
        "Change the document, or ask the administrators of the operator, in namespace perfrun-system";

    fn refusal_of(document: &str, policy: &str) -> Option<String> {
        let policy: Policy = serde_json::from_str(policy).unwrap();
        let spec = document::parse(document).unwrap().remove(0).spec;
        let cause = policy.refusal(&spec, 4, &["NET_ADMIN", "MKNOD"], "perfrun-system")?;
        assert_eq!(cause.reason, Reason::NotAllowed);
        Some(cause.message)
    }

    fn refusal(policy: &str) -> Option<String> {
        refusal_of(DOCUMENT, policy)
    }

    /// A document with one setting of pods.
    fn with_setting(role: &str, field: &str, value: &Value) -> String {
        let spec = json!({
            "workload": {"ping": {}},
            "matrix": {"clients": ["libp2p"], "servers": ["libp2p"]},
            "template": {role: {field: value}},
        });
        json!({"apiVersion": "perfrun.io/v1alpha1", "kind": "PerfRun", "metadata": {"name": "run"}, "spec": spec})
            .to_string()
    }

    #[test]
    fn everything_is_allowed_by_default() {
        assert_eq!(refusal("{}"), None);
    }

    #[test]
    fn a_field_against_the_policy_is_refused_with_its_value_and_the_limit() {
        for (policy, what) in [
            (
                r#"{"allowHostNetwork": false}"#,
                "spec.topology.hostNetwork is true, which the operator does not allow (policy.allowHostNetwork)",
            ),
            (
                r#"{"allowCrossNamespaceAffinity": false}"#,
                "spec.template.relay.affinity.podAntiAffinity names namespaces, which the operator does not allow \
                 (policy.allowCrossNamespaceAffinity)",
            ),
            (
                r#"{"mostNodes": 3}"#,
                "spec.matrix and spec.topology need 4 nodes, more than the operator allows (policy.mostNodes: 3)",
            ),
            (
                r#"{"longestRun": "10m"}"#,
                "spec.timeouts.run is 3600s, longer than the operator allows (policy.longestRun: 600s)",
            ),
            (
                r#"{"longestProvision": "1m"}"#,
                "spec.timeouts.provision is 300s, longer than the operator allows (policy.longestProvision: 60s)",
            ),
            (
                r#"{"allowedImages": ["registry.example/perfrun/*", "registry.example/bench/node"]}"#,
                "spec.stacks[1].image is \"registry.example/bench/node:1\", which the operator does not allow \
                 (policy.allowedImages: registry.example/perfrun/*, registry.example/bench/node)",
            ),
            (
                r#"{"allowedCapabilities": ["NET_ADMIN"]}"#,
                "a capability that spec.matrix.networks needs is \"MKNOD\", which the operator does not allow \
                 (policy.allowedCapabilities: NET_ADMIN)",
            ),
            (
                r#"{"allowedPriorityClasses": []}"#,
                "spec.template.client.priorityClassName is \"high\", which the operator does not allow \
                 (policy.allowedPriorityClasses: none)",
            ),
            (
                r#"{"allowedRuntimeClasses": ["gvisor"]}"#,
                "spec.template.client.runtimeClassName is \"runc\", which the operator does not allow \
                 (policy.allowedRuntimeClasses: gvisor)",
            ),
            (
                r#"{"allowedNodeSelectors": ["kubernetes.io/*", "example.com/rack"]}"#,
                "a key of spec.template.client.nodeSelector is \"example.com/disk\", which the operator does not \
                 allow (policy.allowedNodeSelectors: kubernetes.io/*, example.com/rack)",
            ),
            (
                r#"{"allowedTolerations": ["bench"]}"#,
                "spec.template.relay.tolerations[0].key is \"\", which the operator does not allow \
                 (policy.allowedTolerations: bench)",
            ),
            (
                r#"{"allowedAnnotations": ["prometheus.io/*"]}"#,
                "a key of spec.template.client.annotations is \"example.com/role\", which the operator does not \
                 allow (policy.allowedAnnotations: prometheus.io/*)",
            ),
            (
                r#"{"allowedLabels": ["team"]}"#,
                "a key of spec.template.client.labels is \"app\", which the operator does not allow \
                 (policy.allowedLabels: team)",
            ),
            (
                r#"{"allowedStores": ["s3://*"]}"#,
                "spec.results.store.objectStore.endpoint is \"https://elsewhere\", which the operator does not allow \
                 (policy.allowedStores: s3://*)",
            ),
        ] {
            assert_eq!(refusal(policy), Some(format!("{what}. {ASK}")), "{policy}");
        }
    }

    #[test]
    fn values_that_match_a_pattern_of_the_policy_are_allowed() {
        let policy = r#"{"longestRun": "1h", "mostNodes": 4, "allowedRuntimeClasses": ["runc"],
            "allowedNodeSelectors": ["example.com/*"], "allowedImages": ["registry.example/bench/*"],
            "allowedPriorityClasses": ["high"],
            "allowedCapabilities": ["NET_ADMIN", "MKNOD"], "allowedTolerations": ["bench", ""],
            "allowedAnnotations": ["example.com/*"], "allowedLabels": ["app"]}"#;
        assert_eq!(refusal(policy), None);
    }

    #[test]
    fn every_field_of_a_pod_is_in_the_policy_or_has_a_reason() {
        const STRICT: &str = r#"{"allowedPriorityClasses": [], "allowedRuntimeClasses": [], "allowedTolerations": [],
            "allowedNodeSelectors": [], "allowedAnnotations": [], "allowedLabels": []}"#;
        let near = json!({"podAffinity": {REQUIRED: [{"topologyKey": "example.com/rack"}]}});
        let spread = json!([{"maxSkew": 1, "topologyKey": "rack", "whenUnsatisfiable": "DoNotSchedule"}]);
        let limited = [
            ("affinity", near),
            ("annotations", json!({"example.com/role": "admin"})),
            ("labels", json!({"app": "shop"})),
            ("nodeSelector", json!({"disk": "ssd"})),
            ("priorityClassName", json!("high")),
            ("runtimeClassName", json!("runc")),
            ("tolerations", json!([{"operator": "Exists"}])),
            ("topologySpreadConstraints", spread),
        ];
        let others = [
            ("resources", "a ResourceQuota and a LimitRange limit them"),
            (
                "imagePullSecrets",
                "they are Secrets of the namespace, and allowedImages limits what they pull",
            ),
        ];
        let others_of_links = [
            (
                "realTime",
                "allowedCapabilities limits the capability that it needs",
            ),
            ("resources", "as those of nodes"),
        ];
        let names = |fields: &[(&'static str, &'static str)]| {
            let names = fields.iter().map(|(name, _)| (*name).to_owned());
            names.collect::<BTreeSet<_>>()
        };
        let of_nodes: BTreeSet<_> = limited.iter().map(|(name, _)| (*name).to_owned()).collect();
        let of_nodes = &of_nodes | &names(&others);
        let crd = serde_json::to_value(PerfRun::crd()).unwrap();
        let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        let template = &schema["properties"]["spec"]["properties"]["template"]["properties"];
        for (part, schema) in template.as_object().unwrap() {
            let fields: BTreeSet<_> = schema["properties"]
                .as_object()
                .unwrap()
                .keys()
                .cloned()
                .collect();
            if part == "link" {
                assert_eq!(fields, names(&others_of_links));
                continue;
            }
            assert_eq!(fields, of_nodes, "{part}");
            for (field, value) in &limited {
                let refused = refusal_of(&with_setting(part, field, value), STRICT).unwrap_or_default();
                assert!(
                    refused.contains(&format!("spec.template.{part}.{field}")),
                    "{part}.{field}: {refused}"
                );
            }
        }
    }

    #[test]
    fn labels_and_namespaces_in_each_list_of_an_affinity_are_limited() {
        const NO_LABELS: &str = r#"{"allowedNodeSelectors": []}"#;
        const OWN_NAMESPACE: &str = r#"{"allowCrossNamespaceAffinity": false}"#;
        let refused = |affinity: &Value, policy: &str| {
            let document = with_setting("server", "affinity", affinity);
            refusal_of(&document, policy).is_some()
        };
        for kind in ["podAffinity", "podAntiAffinity"] {
            for (mut term, are_others) in [
                (json!({}), false),
                (json!({"namespaces": []}), false),
                (json!({"namespaces": ["shop"]}), true),
                (json!({"namespaceSelector": {}}), true),
            ] {
                term["topologyKey"] = json!("example.com/rack");
                let weighted = json!({"weight": 1, "podAffinityTerm": term});
                for lists in [json!({REQUIRED: [term]}), json!({PREFERRED: [weighted]})] {
                    let affinity = json!({kind: lists});
                    assert_eq!(refused(&affinity, OWN_NAMESPACE), are_others, "{affinity}");
                    assert!(refused(&affinity, NO_LABELS), "{affinity}");
                }
            }
        }
        for requirements in ["matchExpressions", "matchFields"] {
            let host = json!({"key": "metadata.name", "operator": "In", "values": ["a"]});
            let term = json!({requirements: [host]});
            let required = json!({REQUIRED: {"nodeSelectorTerms": [term]}});
            let preferred = json!({PREFERRED: [{"weight": 1, "preference": term}]});
            for lists in [required, preferred] {
                let affinity = json!({"nodeAffinity": lists});
                assert!(refused(&affinity, NO_LABELS), "{affinity}");
                assert!(!refused(&affinity, OWN_NAMESPACE), "{affinity}");
            }
        }
    }

    #[test]
    fn a_misspelt_policy_is_an_error() {
        let error = serde_json::from_str::<Policy>(r#"{"allowHostnetwork": false}"#).unwrap_err();
        assert!(
            error.to_string().contains("unknown field `allowHostnetwork`"),
            "{error}"
        );
    }
}
