//! The pod of a node.
//!
//! What the node in it finds is in [`perfrun_api::pod`]. A pod is not restarted in place: a new one with
//! another name replaces it. If the plan impairs links, a link agent runs beside the node, see [`link`].

pub(crate) mod link;

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::{
    api::core::v1::{
        Affinity, Container, ContainerPort, EnvVar, LocalObjectReference, NodeSelectorRequirement,
        NodeSelectorTerm, Pod, PodAffinity, PodAffinityTerm, PodAntiAffinity, PodSecurityContext, PodSpec,
        PreferredSchedulingTerm, Toleration, TopologySpreadConstraint, WeightedPodAffinityTerm,
    },
    apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement},
};
use perfrun_api::{
    cluster::{CELL_PAIR_LABEL, INCARNATION_LABEL, NODE_LABEL, ROLE_LABEL, RUN_LABEL},
    pod::{self, node_container, pod_spec, variable},
    spec::{PerfRunSpec, Placement, PodSettings},
};
use perfrun_contract::{
    matrix::NodeProgramKind,
    node::variables,
    plan::{Cell, Plan, PlannedNode},
    role::Role,
};
use perfrun_metrics::WAIT_MAX;

use super::{NewPod, PodDefaults, RunIdentity, control_port, longest_seconds, metrics_port};
use crate::names;

const HOST: &str = "kubernetes.io/hostname";
/// A pod on an unreachable Kubernetes node is given up after this time, instead of five minutes. Not sooner,
/// because all Kubernetes nodes count as unreachable for a few seconds after an outage of the API server.
const LOST_AFTER_SECONDS: i64 = 30;
/// A node that is stopped waits up to three seconds for its outcomes to be collected, and then for a last
/// scrape.
pub(crate) const STOP_TIMEOUT_SECONDS: i64 = 5 + WAIT_MAX.as_secs().cast_signed();

/// Builds the pod of a node.
pub(crate) fn pod(
    run: &RunIdentity,
    spec: &PerfRunSpec,
    plan: &Plan,
    new: &NewPod,
    pod_defaults: &PodDefaults,
) -> Pod {
    let NewPod {
        node, incarnation, ..
    } = new;
    let index = plan.nodes.iter().position(|planned| planned == node).unwrap_or(0);
    let settings = match node.role {
        Role::Server => &spec.template.server,
        Role::Client => &spec.template.client,
        Role::Relay => &spec.template.relay,
    };
    let mut metadata = run.metadata(names::pod(&run.name, &run.uid, &node.name, *incarnation));
    let labels = metadata.labels.get_or_insert_default();
    // The template's labels first: they must not override the operator's.
    let mut merged = settings.labels.clone();
    merged.append(labels);
    merged.extend([
        (NODE_LABEL.to_owned(), node.name.clone()),
        (ROLE_LABEL.to_owned(), node.role.to_string()),
        (INCARNATION_LABEL.to_owned(), incarnation.to_string()),
    ]);
    merged.extend(
        cell_pair(plan, &node.name).map(|cell_pair| (CELL_PAIR_LABEL.to_owned(), cell_pair.to_owned())),
    );
    *labels = merged;
    let mut annotations = scrape_annotations(metrics_port(spec, index));
    annotations.extend(settings.annotations.clone());
    metadata.annotations = Some(annotations);
    let common = pod_spec(
        container(run, spec, index, settings, new, pod_defaults),
        names::token(&run.name, &run.uid),
    );
    Pod {
        metadata,
        spec: Some(PodSpec {
            active_deadline_seconds: Some(longest_seconds(spec, pod_defaults)),
            affinity: Some(affinity(run, spec, plan, settings, new)),
            host_network: spec.topology.host_network.then_some(true),
            init_containers: link::agent(run, spec, plan, node, pod_defaults).map(|agent| vec![agent]),
            image_pull_secrets: none_if_empty(pull_secrets(settings, pod_defaults)),
            node_selector: Some(settings.node_selector.clone()).filter(|all| !all.is_empty()),
            priority_class_name: settings.priority_class_name.clone(),
            runtime_class_name: settings.runtime_class_name.clone(),
            security_context: common.security_context.map(|security| PodSecurityContext {
                sysctls: link::sysctls(plan, pod_defaults),
                ..security
            }),
            termination_grace_period_seconds: Some(STOP_TIMEOUT_SECONDS),
            tolerations: Some(tolerations(settings)),
            topology_spread_constraints: none_if_empty(spread(run, spec, plan, settings, node.role)),
            volumes: common
                .volumes
                .map(|volumes| volumes.into_iter().chain(link::volume(plan)).collect()),
            ..common
        }),
        status: None,
    }
}

/// The secrets of the template and of the operator. Each name only once, because the API server merges them
/// by name.
fn pull_secrets(settings: &PodSettings, pod_defaults: &PodDefaults) -> Vec<LocalObjectReference> {
    let of_operator = pod_defaults
        .pull_secrets
        .iter()
        .map(|name| LocalObjectReference { name: name.clone() });
    let mut all = vec![];
    for secret in settings.image_pull_secrets.iter().cloned().chain(of_operator) {
        if !all.contains(&secret) {
            all.push(secret);
        }
    }
    all
}

/// Annotations that many scrapers look for. Those of the template override them.
fn scrape_annotations(port: u16) -> BTreeMap<String, String> {
    [
        ("scrape", "true".to_owned()),
        ("path", "/metrics".to_owned()),
        ("port", port.to_string()),
    ]
    .map(|(what, value)| (format!("prometheus.io/{what}"), value))
    .into()
}

fn container(
    run: &RunIdentity,
    spec: &PerfRunSpec,
    index: usize,
    settings: &PodSettings,
    new: &NewPod,
    pod_defaults: &PodDefaults,
) -> Container {
    let variant = new.node.variant.as_deref().and_then(|name| spec.variant(name));
    let image = variant
        .and_then(|variant| variant.image.as_deref())
        .unwrap_or(match new.node.program {
            NodeProgramKind::Go => &pod_defaults.node_image_go,
            // An external stack without an image gets a node that does not speak it, which the run reports.
            NodeProgramKind::Rust | NodeProgramKind::External => &pod_defaults.node_image,
        });
    let (control, metrics) = (control_port(spec, index), metrics_port(spec, index));
    let own = environment(run, &new.node, metrics);
    let variables = variant.into_iter().flat_map(|variant| &variant.env);
    // The API server merges variables by name, and the operator's must not be overridden.
    let variables = variables.filter(|(name, _)| own.iter().all(|variable| variable.name != **name));
    let mut env: Vec<_> = variables.map(|(name, text)| variable(name, text)).collect();
    env.extend(own);
    let common = node_container(image, new.node.role, new.node.ip_family, [control, metrics], env);
    // The scheduler separates pods that would share a port of the host.
    let host_port = |port: ContainerPort| ContainerPort {
        host_port: spec.topology.host_network.then_some(port.container_port),
        ..port
    };
    Container {
        image_pull_policy: pod_defaults.node_image_pull_policy.clone(),
        ports: common
            .ports
            .map(|ports| ports.into_iter().map(host_port).collect()),
        resources: settings.resources.clone().or(common.resources),
        ..common
    }
}

/// Settings of both programs of a pod.
fn environment(run: &RunIdentity, node: &PlannedNode, metrics_port: u16) -> Vec<EnvVar> {
    let mut all = pod::environment(
        &run.name,
        &run.namespace,
        &node.name,
        node.ip_family,
        metrics_port,
    );
    let linger = WAIT_MAX.as_secs().to_string();
    all.push(variable(variables::LINGER_SECONDS, &linger));
    all
}

/// The affinity of the template, with that of `placement`.
fn affinity(
    run: &RunIdentity,
    spec: &PerfRunSpec,
    plan: &Plan,
    settings: &PodSettings,
    new: &NewPod,
) -> Affinity {
    let mut affinity = settings.affinity.clone().unwrap_or_default();
    match spec.topology.placement {
        Placement::SpreadNodes => keep_apart(&mut affinity, run, plan, new.node.role),
        Placement::SameNode => {
            let together: &mut PodAffinity = affinity.pod_affinity.get_or_insert_default();
            let required = &mut together.required_during_scheduling_ignored_during_execution;
            required.get_or_insert_default().push(beside(run, None));
        }
        Placement::Any => {}
    }
    if let Some(cell_pair) = cell_pair(plan, &new.node.name) {
        let together: &mut PodAffinity = affinity.pod_affinity.get_or_insert_default();
        share_kubernetes_node(together, beside_cell_pair(run, cell_pair));
    }
    if let Some(host) = &new.avoid {
        let nodes = affinity.node_affinity.get_or_insert_default();
        let preferred = &mut nodes.preferred_during_scheduling_ignored_during_execution;
        preferred.get_or_insert_default().push(PreferredSchedulingTerm {
            weight: 100,
            preference: NodeSelectorTerm {
                match_expressions: Some(vec![NodeSelectorRequirement {
                    key: HOST.to_owned(),
                    operator: "NotIn".to_owned(),
                    values: Some(vec![host.clone()]),
                }]),
                match_fields: None,
            },
        });
    }
    affinity
}

/// Keeps servers, clients and relays on different Kubernetes nodes.
fn keep_apart(affinity: &mut Affinity, run: &RunIdentity, plan: &Plan, role: Role) {
    let (apart_from, on_its_own) = match role {
        Role::Server => (Some(Role::Client), &[Role::Relay][..]),
        Role::Client => (Some(Role::Server), &[Role::Relay][..]),
        // A third Kubernetes node if the cluster has one.
        Role::Relay => (None, &[Role::Server, Role::Client][..]),
    };
    let weighted = |other: Role| WeightedPodAffinityTerm {
        weight: 100,
        pod_affinity_term: beside(run, Some(other)),
    };
    let apart: &mut PodAntiAffinity = affinity.pod_anti_affinity.get_or_insert_default();
    if let Some(other) = apart_from {
        let required = &mut apart.required_during_scheduling_ignored_during_execution;
        required.get_or_insert_default().push(beside(run, Some(other)));
    }
    if plan.nodes.iter().any(|node| node.role == Role::Relay) {
        let preferred = &mut apart.preferred_during_scheduling_ignored_during_execution;
        let others = on_its_own.iter().copied().map(weighted);
        preferred.get_or_insert_default().extend(others);
    }
    if role == Role::Server {
        // Servers share a Kubernetes node if they can, so that one is left for clients.
        let together: &mut PodAffinity = affinity.pod_affinity.get_or_insert_default();
        let preferred = &mut together.preferred_during_scheduling_ignored_during_execution;
        preferred.get_or_insert_default().push(weighted(role));
    }
}

/// Puts the pods of a pair of cells on one Kubernetes node, so that a comparison does not measure two
/// machines. The scheduler lets the first of them go anywhere, since it has the label that it looks for.
fn share_kubernetes_node(together: &mut PodAffinity, cell_pair: PodAffinityTerm) {
    let required = &mut together.required_during_scheduling_ignored_during_execution;
    if required.as_ref().is_none_or(Vec::is_empty) {
        required.get_or_insert_default().push(cell_pair);
    } else {
        // The scheduler looks for one pod that meets all required terms. Before the first pod of a pair of
        // cells there is none: that pod would go anywhere if it meets all of the terms itself, and nowhere
        // otherwise.
        let preferred = &mut together.preferred_during_scheduling_ignored_during_execution;
        preferred.get_or_insert_default().push(WeightedPodAffinityTerm {
            weight: 100,
            pod_affinity_term: cell_pair,
        });
    }
}

/// Nodes of baselines, each with the node of the candidate, or of the control, of the same role and index.
fn cell_pairs(plan: &Plan) -> impl Iterator<Item = (&str, &str)> {
    plan.judging.cell_pairs.iter().flat_map(|cell_pair| {
        let nodes = |cell: usize| plan.cells.get(cell).into_iter().flat_map(Cell::nodes);
        let baseline = cell_pair.baseline;
        let others = cell_pair.cells().filter(move |cell| *cell != baseline);
        let pairs = others.flat_map(move |other| nodes(baseline).zip(nodes(other)));
        // They may replace the baseline on one side only.
        pairs
            .filter(|(baseline, other)| baseline != other)
            .map(|(baseline, other)| (baseline.as_str(), other.as_str()))
    })
}

/// The name of the pair of cells that a node is of: that of the baseline's node.
fn cell_pair<'a>(plan: &'a Plan, node: &str) -> Option<&'a str> {
    cell_pairs(plan)
        .find(|(baseline, other)| [baseline, other].contains(&&node))
        .map(|(baseline, _)| baseline)
}

/// The pods of a pair of cells on the same Kubernetes node.
fn beside_cell_pair(run: &RunIdentity, cell_pair: &str) -> PodAffinityTerm {
    let labels = [(RUN_LABEL, run.name.as_str()), (CELL_PAIR_LABEL, cell_pair)];
    PodAffinityTerm {
        label_selector: Some(LabelSelector {
            match_labels: Some(
                labels
                    .map(|(key, value)| (key.to_owned(), value.to_owned()))
                    .into(),
            ),
            ..LabelSelector::default()
        }),
        topology_key: HOST.to_owned(),
        ..PodAffinityTerm::default()
    }
}

/// The pods of the run on the same Kubernetes node, of one role or of all.
pub(super) fn beside(run: &RunIdentity, role: Option<Role>) -> PodAffinityTerm {
    PodAffinityTerm {
        label_selector: Some(pods_of(run, role)),
        topology_key: HOST.to_owned(),
        ..PodAffinityTerm::default()
    }
}

/// Selects the nodes of a run, of one role or of all. Its other pods have no role.
fn pods_of(run: &RunIdentity, role: Option<Role>) -> LabelSelector {
    let mut labels: BTreeMap<_, _> = [(RUN_LABEL.to_owned(), run.name.clone())].into();
    labels.extend(role.map(|role| (ROLE_LABEL.to_owned(), role.to_string())));
    let any_role = LabelSelectorRequirement {
        key: ROLE_LABEL.to_owned(),
        operator: "Exists".to_owned(),
        values: None,
    };
    LabelSelector {
        match_expressions: role.is_none().then(|| vec![any_role]),
        match_labels: Some(labels),
    }
}

/// The constraints of the template, and one that spreads clients over all Kubernetes nodes. The template's
/// wins if both have the same topology key and action, by which the API server merges them. Candidates and
/// controls do not count: they are where their baselines are.
fn spread(
    run: &RunIdentity,
    spec: &PerfRunSpec,
    plan: &Plan,
    settings: &PodSettings,
    role: Role,
) -> Vec<TopologySpreadConstraint> {
    let mut all = settings.topology_spread_constraints.clone();
    let others: BTreeSet<_> = cell_pairs(plan).map(|(_, other)| other.to_owned()).collect();
    let not_others = LabelSelectorRequirement {
        key: NODE_LABEL.to_owned(),
        operator: "NotIn".to_owned(),
        values: Some(others.iter().cloned().collect()),
    };
    let own = TopologySpreadConstraint {
        label_selector: Some(LabelSelector {
            match_expressions: (!others.is_empty()).then(|| vec![not_others]),
            ..pods_of(run, Some(role))
        }),
        max_skew: 1,
        topology_key: HOST.to_owned(),
        when_unsatisfiable: "ScheduleAnyway".to_owned(),
        ..TopologySpreadConstraint::default()
    };
    let keys = |constraint: &TopologySpreadConstraint| {
        (
            constraint.topology_key.clone(),
            constraint.when_unsatisfiable.clone(),
        )
    };
    let spreads = spec.topology.placement == Placement::SpreadNodes && role == Role::Client;
    if spreads && all.iter().all(|constraint| keys(constraint) != keys(&own)) {
        all.push(own);
    }
    all
}

/// The tolerations of the template, and a short wait for unreachable Kubernetes nodes unless the template
/// sets one.
pub(super) fn tolerations(settings: &PodSettings) -> Vec<Toleration> {
    let mut all = settings.tolerations.clone();
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        if !all
            .iter()
            .any(|toleration| toleration.key.as_deref() == Some(key))
        {
            all.push(Toleration {
                key: Some(key.to_owned()),
                operator: Some("Exists".to_owned()),
                effect: Some("NoExecute".to_owned()),
                toleration_seconds: Some(LOST_AFTER_SECONDS),
                value: None,
            });
        }
    }
    all
}

fn none_if_empty<T>(all: Vec<T>) -> Option<Vec<T>> {
    Some(all).filter(|all| !all.is_empty())
}

#[cfg(test)]
mod tests;
