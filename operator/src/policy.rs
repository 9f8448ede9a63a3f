//! What the administrators of an operator allow the authors of runs. Pure.
//!
//! Authors of PerfRuns create pods with them. A policy limits these pods, for authors who have no right to
//! create pods themselves.

use std::time;

use kube::core::Duration;
use perfrun_api::{cluster::condition::Reason, pod::Trouble, spec::PerfRunSpec, store::Store};
use serde::Deserialize;

/// What documents may request. The fields are those of `policy` in the chart's values. By default, everything
/// is allowed.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Policy {
    /// Whether pods may share the host's network.
    pub allow_host_network: bool,
    /// The longest `timeouts.provision`.
    pub longest_provision: Duration,
    /// The longest `timeouts.run`.
    pub longest_run: Duration,
    /// How long pods of a failed run stay with `cleanup.keepPodsOnFailure`.
    pub kept_pods: Duration,
    /// Images of stacks.
    pub allowed_images: Patterns,
    /// Priority classes of pods.
    pub allowed_priority_classes: Patterns,
    /// Capabilities of link agents.
    pub allowed_capabilities: Patterns,
    /// Keys of taints that pods may tolerate. The key of a toleration of all taints is empty.
    pub allowed_tolerations: Patterns,
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
            // The maxima of documents.
            longest_provision: hours(24),
            longest_run: hours(168),
            kept_pods: hours(24),
            allowed_images: all(),
            allowed_priority_classes: all(),
            allowed_capabilities: all(),
            allowed_tolerations: all(),
            allowed_annotations: all(),
            allowed_labels: all(),
            allowed_stores: all(),
            active_runs_per_namespace: 0,
            exclusive_per: ExclusivePer::default(),
        }
    }
}

impl Policy {
    /// Why a document is not allowed. `capabilities` are those of its link agents. `operators` is the
    /// namespace of the operator, for authors who want to ask.
    pub(crate) fn refusal(
        &self,
        spec: &PerfRunSpec,
        capabilities: &[&str],
        operators: &str,
    ) -> Option<Trouble> {
        let what = self
            .host_network(spec)
            .or_else(|| self.timeouts(spec))
            .or_else(|| {
                let requests = self.requests(spec, capabilities);
                requests.iter().find_map(Request::refusal)
            })?;
        let message = format!(
            "{what}. Change the document, or ask the administrators of the operator, in namespace {operators}"
        );
        Some(Trouble::new(Reason::NotAllowed, message))
    }

    fn host_network(&self, spec: &PerfRunSpec) -> Option<String> {
        let what = "spec.topology.hostNetwork is true, which the operator does not allow";
        (spec.topology.host_network && !self.allow_host_network)
            .then(|| format!("{what} (policy.allowHostNetwork)"))
    }

    fn timeouts(&self, spec: &PerfRunSpec) -> Option<String> {
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

    fn requests<'a>(&'a self, spec: &'a PerfRunSpec, capabilities: &[&'a str]) -> Vec<Request<'a>> {
        let mut all = vec![];
        let mut add = |field: String, text: &'a str, allowed: &'a Patterns, value: &'static str| {
            all.push(Request {
                field,
                text,
                allowed,
                value,
            });
        };
        for (index, stack) in spec.stacks.iter().enumerate() {
            if let Some(image) = &stack.image {
                let field = format!("spec.stacks[{index}].image");
                add(field, image, &self.allowed_images, "allowedImages");
            }
        }
        for &capability in capabilities {
            let field = "a capability that spec.matrix.networks needs".to_owned();
            add(
                field,
                capability,
                &self.allowed_capabilities,
                "allowedCapabilities",
            );
        }
        if let Some(Store { object_store, volume }) = spec.store() {
            let bucket = object_store.iter().map(|bucket| ("objectStore.url", &bucket.url));
            let endpoint = object_store.iter().flat_map(|bucket| &bucket.endpoint);
            let endpoint = endpoint.map(|endpoint| ("objectStore.endpoint", endpoint));
            let claim = volume.iter().map(|volume| ("volume.claim", &volume.claim));
            for (field, text) in bucket.chain(endpoint).chain(claim) {
                let field = format!("spec.results.store.{field}");
                add(field, text, &self.allowed_stores, "allowedStores");
            }
        }
        let template = &spec.template;
        for (role, settings) in [
            ("server", &template.server),
            ("client", &template.client),
            ("relay", &template.relay),
        ] {
            let path = format!("spec.template.{role}");
            if let Some(class) = &settings.priority_class_name {
                let field = format!("{path}.priorityClassName");
                add(
                    field,
                    class,
                    &self.allowed_priority_classes,
                    "allowedPriorityClasses",
                );
            }
            for (index, toleration) in settings.tolerations.iter().enumerate() {
                let field = format!("{path}.tolerations[{index}].key");
                let key = toleration.key.as_deref().unwrap_or_default();
                add(field, key, &self.allowed_tolerations, "allowedTolerations");
            }
            for key in settings.annotations.keys() {
                let field = format!("a key of {path}.annotations");
                add(field, key, &self.allowed_annotations, "allowedAnnotations");
            }
            for key in settings.labels.keys() {
                let field = format!("a key of {path}.labels");
                add(field, key, &self.allowed_labels, "allowedLabels");
            }
        }
        all
    }
}

/// Something that a document requests.
struct Request<'a> {
    /// What requests it, for people.
    field: String,
    text: &'a str,
    allowed: &'a Patterns,
    /// The field of the policy with these patterns.
    value: &'static str,
}

impl Request<'_> {
    /// Why it is not allowed.
    fn refusal(&self) -> Option<String> {
        let Self {
            field,
            text,
            allowed: Patterns(allowed),
            value,
        } = self;
        if allowed.iter().any(|pattern| matches(pattern, text)) {
            return None;
        }
        let allowed = match &allowed[..] {
            [] => "none".to_owned(),
            all => all.join(", "),
        };
        Some(format!(
            "{field} is {text:?}, which the operator does not allow (policy.{value}: {allowed})"
        ))
    }
}

fn hours(hours: u64) -> Duration {
    time::Duration::from_secs(hours * 60 * 60).into()
}

fn matches(pattern: &str, text: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(beginning) => text.starts_with(beginning),
        None => text == pattern,
    }
}

#[cfg(test)]
mod tests {
    use perfrun_api::document;

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
      tolerations: [{key: bench, operator: Exists}]
      annotations: {example.com/role: admin}
      labels: {app: shop}
    relay:
      tolerations: [{operator: Exists}]
";

    fn refusal(policy: &str) -> Option<String> {
        let policy: Policy = serde_json::from_str(policy).unwrap();
        let spec = document::parse(DOCUMENT).unwrap().remove(0).spec;
        let trouble = policy.refusal(&spec, &["NET_ADMIN", "MKNOD"], "perfrun-system")?;
        assert_eq!(trouble.reason, Reason::NotAllowed);
        Some(trouble.message)
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
            let ask =
                "Change the document, or ask the administrators of the operator, in namespace perfrun-system";
            assert_eq!(refusal(policy), Some(format!("{what}. {ask}")), "{policy}");
        }
    }

    #[test]
    fn values_that_match_a_pattern_of_the_policy_are_allowed() {
        let policy = r#"{"longestRun": "1h", "allowedImages": ["registry.example/bench/*"], "allowedPriorityClasses": ["high"],
            "allowedCapabilities": ["NET_ADMIN", "MKNOD"], "allowedTolerations": ["bench", ""],
            "allowedAnnotations": ["example.com/*"], "allowedLabels": ["app"]}"#;
        assert_eq!(refusal(policy), None);
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
