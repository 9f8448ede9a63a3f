//! What a document requests from the lists of a policy. Pure.

use k8s_openapi::api::core::v1::{NodeSelectorTerm, PodAffinityTerm};
use perfrun_api::{
    spec::{PerfRunSpec, PodSettings},
    store::Store,
};

use super::{Patterns, Policy};

/// A text of a document that a list of a policy has to allow.
pub(super) struct Request<'a> {
    /// The field of the document with the text, for people.
    field: String,
    text: &'a str,
    allowed: &'a Patterns,
    /// The field of the policy with these patterns.
    value: &'static str,
}

impl<'a> Request<'a> {
    fn new(field: String, text: &'a str, allowed: &'a Patterns, value: &'static str) -> Self {
        Self {
            field,
            text,
            allowed,
            value,
        }
    }

    /// Why the policy does not allow the text. `None` if it does.
    pub(super) fn refusal(&self) -> Option<String> {
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

fn matches(pattern: &str, text: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(beginning) => text.starts_with(beginning),
        None => text == pattern,
    }
}

/// The requests of a document. `capabilities` are those of its link agents.
pub(super) fn requests<'a>(
    policy: &'a Policy,
    spec: &'a PerfRunSpec,
    capabilities: &[&'a str],
) -> Vec<Request<'a>> {
    let mut all = vec![];
    for (index, stack) in spec.stacks.iter().enumerate() {
        if let Some(image) = &stack.image {
            let field = format!("spec.stacks[{index}].image");
            let allowed = &policy.allowed_images;
            all.push(Request::new(field, image, allowed, "allowedImages"));
        }
    }
    for &capability in capabilities {
        let field = "a capability that spec.matrix.networks needs".to_owned();
        let allowed = &policy.allowed_capabilities;
        all.push(Request::new(field, capability, allowed, "allowedCapabilities"));
    }
    if let Some(Store { object_store, volume }) = spec.store() {
        let bucket = object_store.iter().map(|bucket| ("objectStore.url", &bucket.url));
        let endpoint = object_store.iter().flat_map(|bucket| &bucket.endpoint);
        let endpoint = endpoint.map(|endpoint| ("objectStore.endpoint", endpoint));
        let claim = volume.iter().map(|volume| ("volume.claim", &volume.claim));
        for (field, text) in bucket.chain(endpoint).chain(claim) {
            let field = format!("spec.results.store.{field}");
            all.push(Request::new(field, text, &policy.allowed_stores, "allowedStores"));
        }
    }
    for (path, settings) in settings_of_pods(spec) {
        all.extend(of_pods(policy, path, settings));
    }
    all
}

/// The settings of pods in a document, each with its path.
pub(super) fn settings_of_pods(spec: &PerfRunSpec) -> [(&'static str, &PodSettings); 3] {
    let template = &spec.template;
    [
        ("spec.template.server", &template.server),
        ("spec.template.client", &template.client),
        ("spec.template.relay", &template.relay),
    ]
}

fn of_pods<'a>(policy: &'a Policy, path: &str, settings: &'a PodSettings) -> Vec<Request<'a>> {
    let mut all = vec![];
    let mut add = |field: String, text: &'a str, allowed: &'a Patterns, value: &'static str| {
        all.push(Request::new(field, text, allowed, value));
    };
    if let Some(class) = &settings.priority_class_name {
        let field = format!("{path}.priorityClassName");
        let allowed = &policy.allowed_priority_classes;
        add(field, class, allowed, "allowedPriorityClasses");
    }
    if let Some(class) = &settings.runtime_class_name {
        let field = format!("{path}.runtimeClassName");
        let allowed = &policy.allowed_runtime_classes;
        add(field, class, allowed, "allowedRuntimeClasses");
    }
    for (index, toleration) in settings.tolerations.iter().enumerate() {
        let field = format!("{path}.tolerations[{index}].key");
        let key = toleration.key.as_deref().unwrap_or_default();
        add(field, key, &policy.allowed_tolerations, "allowedTolerations");
    }
    for (field, key) in node_labels(settings) {
        let field = format!("a key of {path}.{field}");
        let allowed = &policy.allowed_node_selectors;
        add(field, key, allowed, "allowedNodeSelectors");
    }
    for key in settings.annotations.keys() {
        let field = format!("a key of {path}.annotations");
        add(field, key, &policy.allowed_annotations, "allowedAnnotations");
    }
    for key in settings.labels.keys() {
        let field = format!("a key of {path}.labels");
        add(field, key, &policy.allowed_labels, "allowedLabels");
    }
    all
}

/// The keys of labels by which pods select Kubernetes nodes, each with its field. Those of topologies are
/// among them: the scheduler puts a pod on no Kubernetes node that lacks the label of a required topology.
fn node_labels(settings: &PodSettings) -> impl Iterator<Item = (&'static str, &str)> {
    let selector = settings.node_selector.keys();
    let selector = selector.map(|key| ("nodeSelector", key.as_str()));
    let affinity = node_terms(settings)
        .flat_map(|term| [&term.match_expressions, &term.match_fields])
        .flatten()
        .flatten()
        .map(|requirement| ("affinity.nodeAffinity", requirement.key.as_str()));
    let pods = pod_terms(settings).map(|(field, term)| (field, term.topology_key.as_str()));
    let spread = settings.topology_spread_constraints.iter();
    let spread = spread.map(|spread| ("topologySpreadConstraints", spread.topology_key.as_str()));
    selector.chain(affinity).chain(pods).chain(spread)
}

/// The terms of affinities to Kubernetes nodes.
fn node_terms(settings: &PodSettings) -> impl Iterator<Item = &NodeSelectorTerm> {
    let affinity = settings.affinity.as_ref();
    let affinity = affinity.and_then(|affinity| affinity.node_affinity.as_ref());
    affinity.into_iter().flat_map(|affinity| {
        let required = &affinity.required_during_scheduling_ignored_during_execution;
        let preferred = &affinity.preferred_during_scheduling_ignored_during_execution;
        let required = required.iter().flat_map(|selector| &selector.node_selector_terms);
        required.chain(preferred.iter().flatten().map(|term| &term.preference))
    })
}

/// The terms of affinities to pods and of those against pods, each with its field.
pub(super) fn pod_terms(settings: &PodSettings) -> impl Iterator<Item = (&'static str, &PodAffinityTerm)> {
    let affinity = settings.affinity.as_ref();
    let near = affinity.and_then(|affinity| affinity.pod_affinity.as_ref());
    let near = near.map(|near| {
        (
            "affinity.podAffinity",
            &near.required_during_scheduling_ignored_during_execution,
            &near.preferred_during_scheduling_ignored_during_execution,
        )
    });
    let apart = affinity.and_then(|affinity| affinity.pod_anti_affinity.as_ref());
    let apart = apart.map(|apart| {
        (
            "affinity.podAntiAffinity",
            &apart.required_during_scheduling_ignored_during_execution,
            &apart.preferred_during_scheduling_ignored_during_execution,
        )
    });
    near.into_iter()
        .chain(apart)
        .flat_map(|(field, required, preferred)| {
            let preferred = preferred.iter().flatten().map(|term| &term.pod_affinity_term);
            let terms = required.iter().flatten().chain(preferred);
            terms.map(move |term| (field, term))
        })
}
