//! The pod of a node.
//!
//! A pod meets the restricted Pod Security Standard and has no service account token. It is not restarted in
//! place: a node that ended has forgotten its trials and its clock, so that a new pod with another name
//! replaces it. If the plan impairs links, a link agent runs beside the node, see [`link`].

mod link;

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::{
        Affinity, Capabilities, Container, ContainerPort, EnvVar, EnvVarSource, HTTPGetAction,
        LocalObjectReference, NodeSelectorRequirement, NodeSelectorTerm, ObjectFieldSelector, Pod,
        PodAffinity, PodAffinityTerm, PodAntiAffinity, PodSecurityContext, PodSpec, PreferredSchedulingTerm,
        Probe, ResourceRequirements, SeccompProfile, SecretVolumeSource, SecurityContext, Toleration,
        TopologySpreadConstraint, Volume, VolumeMount, WeightedPodAffinityTerm,
    },
    apimachinery::pkg::{api::resource::Quantity, apis::meta::v1::LabelSelector, util::intstr::IntOrString},
};
use perfrun_api::{
    cluster::{INCARNATION_LABEL, NODE_LABEL, ROLE_LABEL, RUN_LABEL},
    spec::{PerfRunSpec, Placement, PodSettings},
};
use perfrun_contract::{matrix::NodeProgramKind, node::Role, plan::Plan};
use perfrun_metrics::LONGEST_WAIT;

use super::{RunIdentity, Site, control_port, metrics_port, secret::TOKEN_KEY};
use crate::{decide::NewPod, names, observe::pod::NODE_CONTAINER};

/// The user and group of nodes, as in the image.
const USER: i64 = 65532;
const TOKEN_FOLDER: &str = "/run/perfrun";
const HOST: &str = "kubernetes.io/hostname";
/// A pod on an unreachable Kubernetes node is given up after this time, instead of five minutes. Not sooner,
/// because all Kubernetes nodes count as unreachable for a few seconds after an outage of the API server.
const LOST_AFTER_SECONDS: i64 = 30;
/// A node that is stopped waits up to three seconds for its outcomes to be collected, and then for a last
/// scrape.
const STOP_WITHIN_SECONDS: i64 = 5 + LONGEST_WAIT.as_secs().cast_signed();

/// Builds the pod of a node.
pub(crate) fn pod(run: &RunIdentity, spec: &PerfRunSpec, plan: &Plan, new: &NewPod, site: &Site) -> Pod {
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
    *labels = merged;
    let mut annotations = scraped(metrics_port(spec, index));
    annotations.extend(settings.annotations.clone());
    metadata.annotations = Some(annotations);
    Pod {
        metadata,
        spec: Some(PodSpec {
            affinity: Some(affinity(run, spec, plan, settings, new)),
            automount_service_account_token: Some(false),
            containers: vec![container(run, spec, index, settings, new, site)],
            enable_service_links: Some(false),
            host_network: spec.topology.host_network.then_some(true),
            init_containers: link::agent(run, spec, plan, &node.name, site).map(|agent| vec![agent]),
            image_pull_secrets: some(pull_secrets(settings, site)),
            node_selector: Some(settings.node_selector.clone()).filter(|all| !all.is_empty()),
            priority_class_name: settings.priority_class_name.clone(),
            restart_policy: Some("Never".to_owned()),
            runtime_class_name: settings.runtime_class_name.clone(),
            security_context: Some(PodSecurityContext {
                fs_group: Some(USER),
                run_as_group: Some(USER),
                run_as_non_root: Some(true),
                run_as_user: Some(USER),
                seccomp_profile: Some(SeccompProfile {
                    type_: "RuntimeDefault".to_owned(),
                    localhost_profile: None,
                }),
                sysctls: link::sysctls(plan, site),
                ..PodSecurityContext::default()
            }),
            // Process 1 of a namespace misses a SIGTERM that comes before it handles it, for example in a pod
            // that is deleted while it starts, and would stay for the whole grace period. In a namespace of
            // the pod, the node is not process 1.
            share_process_namespace: Some(true),
            termination_grace_period_seconds: Some(STOP_WITHIN_SECONDS),
            tolerations: Some(tolerations(settings)),
            topology_spread_constraints: some(spread(run, spec, settings, node.role)),
            volumes: Some([token(run)].into_iter().chain(link::volume(plan)).collect()),
            ..PodSpec::default()
        }),
        status: None,
    }
}

/// The secrets of the template and of the site. Each name only once, because the API server merges them by
/// name.
fn pull_secrets(settings: &PodSettings, site: &Site) -> Vec<LocalObjectReference> {
    let site = site
        .pull_secrets
        .iter()
        .map(|name| LocalObjectReference { name: name.clone() });
    let mut all = vec![];
    for secret in settings.image_pull_secrets.iter().cloned().chain(site) {
        if !all.contains(&secret) {
            all.push(secret);
        }
    }
    all
}

/// Annotations that many scrapers look for. Those of the template override them.
fn scraped(port: u16) -> BTreeMap<String, String> {
    [
        ("scrape", "true".to_owned()),
        ("path", "/metrics".to_owned()),
        ("port", port.to_string()),
    ]
    .map(|(what, value)| (format!("prometheus.io/{what}"), value))
    .into()
}

fn token(run: &RunIdentity) -> Volume {
    Volume {
        name: "token".to_owned(),
        secret: Some(SecretVolumeSource {
            secret_name: Some(names::token(&run.name, &run.uid)),
            default_mode: Some(0o440),
            ..SecretVolumeSource::default()
        }),
        ..Volume::default()
    }
}

fn container(
    run: &RunIdentity,
    spec: &PerfRunSpec,
    index: usize,
    settings: &PodSettings,
    new: &NewPod,
    site: &Site,
) -> Container {
    let variant = spec
        .stacks
        .iter()
        .find(|variant| Some(&variant.name) == new.node.variant.as_ref());
    let image = variant
        .and_then(|variant| variant.image.as_deref())
        .unwrap_or(match new.node.program {
            NodeProgramKind::Go => &site.node_image_go,
            // An external stack without an image gets a node that does not speak it, which the run reports.
            NodeProgramKind::Rust | NodeProgramKind::External => &site.node_image,
        });
    let (control, metrics) = (control_port(spec, index), metrics_port(spec, index));
    let own = environment(run, &new.node.name, metrics);
    let variables = variant.into_iter().flat_map(|variant| &variant.env);
    // The API server merges variables by name, and the operator's must not be overridden.
    let variables = variables.filter(|(name, _)| own.iter().all(|variable| variable.name != **name));
    let mut env: Vec<_> = variables.map(|(name, text)| variable(name, text)).collect();
    env.extend(own);
    Container {
        name: NODE_CONTAINER.to_owned(),
        image: Some(image.to_owned()),
        image_pull_policy: site.pull_policy.clone(),
        args: Some(vec![
            "control".to_owned(),
            format!("--control=0.0.0.0:{control}"),
            format!("--role={}", new.node.role),
        ]),
        env: Some(env),
        ports: Some(
            [("control", control), ("metrics", metrics)]
                .map(|(name, port)| ContainerPort {
                    // The scheduler separates pods that would share the port.
                    host_port: spec.topology.host_network.then_some(port.into()),
                    ..named_port(name, port)
                })
                .into(),
        ),
        readiness_probe: Some(Probe {
            http_get: Some(HTTPGetAction {
                path: Some("/readyz".to_owned()),
                port: IntOrString::Int(control.into()),
                ..HTTPGetAction::default()
            }),
            // The default of 10 s would be most of a short run.
            period_seconds: Some(1),
            ..Probe::default()
        }),
        resources: Some(settings.resources.clone().unwrap_or_else(modest)),
        security_context: Some(SecurityContext {
            allow_privilege_escalation: Some(false),
            capabilities: Some(Capabilities {
                add: None,
                drop: Some(vec!["ALL".to_owned()]),
            }),
            read_only_root_filesystem: Some(true),
            ..SecurityContext::default()
        }),
        termination_message_policy: Some("FallbackToLogsOnError".to_owned()),
        volume_mounts: Some(vec![token_mount()]),
        ..Container::default()
    }
}

fn named_port(name: &str, port: u16) -> ContainerPort {
    ContainerPort {
        name: Some(name.to_owned()),
        container_port: port.into(),
        protocol: Some("TCP".to_owned()),
        ..ContainerPort::default()
    }
}

/// Settings of both programs of a pod. They are variables and not arguments, because older images do not know
/// all of them.
fn environment(run: &RunIdentity, node: &str, metrics_port: u16) -> [EnvVar; 7] {
    let listen_ip = EnvVar {
        name: "PERFRUN_LISTEN_IP".to_owned(),
        value: None,
        value_from: Some(EnvVarSource {
            field_ref: Some(ObjectFieldSelector {
                field_path: "status.podIP".to_owned(),
                api_version: None,
            }),
            ..EnvVarSource::default()
        }),
    };
    [
        listen_ip,
        variable("PERFRUN_TOKEN_FILE", &format!("{TOKEN_FOLDER}/{TOKEN_KEY}")),
        variable("PERFRUN_RUN", &run.name),
        variable("PERFRUN_RUN_NAMESPACE", &run.namespace),
        variable("PERFRUN_RUN_NODE", node),
        variable("PERFRUN_METRICS", &format!("0.0.0.0:{metrics_port}")),
        variable("PERFRUN_LINGER_SECONDS", &LONGEST_WAIT.as_secs().to_string()),
    ]
}

fn variable(name: &str, value: &str) -> EnvVar {
    EnvVar {
        name: name.to_owned(),
        value: Some(value.to_owned()),
        value_from: None,
    }
}

fn token_mount() -> VolumeMount {
    VolumeMount {
        name: "token".to_owned(),
        mount_path: TOKEN_FOLDER.to_owned(),
        read_only: Some(true),
        ..VolumeMount::default()
    }
}

/// The resources of a node without any in its template. They are small enough for small clusters. Yet any
/// request lifts the pod out of the class `BestEffort`, whose share of a busy processor is a fiftieth of this
/// one.
fn modest() -> ResourceRequirements {
    let request = |name: &str, amount: &str| (name.to_owned(), Quantity(amount.to_owned()));
    ResourceRequirements {
        requests: Some([request("cpu", "100m"), request("memory", "64Mi")].into()),
        ..ResourceRequirements::default()
    }
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
    let role = new.node.role;
    match spec.topology.placement {
        Placement::SpreadNodes => {
            let (apart_from, on_its_own) = match role {
                Role::Server => (Some(Role::Client), &[Role::Relay][..]),
                Role::Client => (Some(Role::Server), &[Role::Relay][..]),
                // A third Kubernetes node if the cluster has one.
                Role::Relay => (None, &[Role::Server, Role::Client][..]),
            };
            let apart: &mut PodAntiAffinity = affinity.pod_anti_affinity.get_or_insert_default();
            if let Some(other) = apart_from {
                let required = &mut apart.required_during_scheduling_ignored_during_execution;
                required.get_or_insert_default().push(beside(run, Some(other)));
            }
            if plan.nodes.iter().any(|node| node.role == Role::Relay) {
                let preferred = &mut apart.preferred_during_scheduling_ignored_during_execution;
                let weighted = |other: &Role| WeightedPodAffinityTerm {
                    weight: 100,
                    pod_affinity_term: beside(run, Some(*other)),
                };
                preferred
                    .get_or_insert_default()
                    .extend(on_its_own.iter().map(weighted));
            }
            if role == Role::Server {
                // Servers share a Kubernetes node if they can, so that one is left for clients.
                let together: &mut PodAffinity = affinity.pod_affinity.get_or_insert_default();
                let preferred = &mut together.preferred_during_scheduling_ignored_during_execution;
                preferred.get_or_insert_default().push(WeightedPodAffinityTerm {
                    weight: 100,
                    pod_affinity_term: beside(run, Some(role)),
                });
            }
        }
        Placement::SameNode => {
            let together: &mut PodAffinity = affinity.pod_affinity.get_or_insert_default();
            let required = &mut together.required_during_scheduling_ignored_during_execution;
            required.get_or_insert_default().push(beside(run, None));
        }
        Placement::Any => {}
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

/// The pods of the run on the same Kubernetes node, of one role or of all.
fn beside(run: &RunIdentity, role: Option<Role>) -> PodAffinityTerm {
    PodAffinityTerm {
        label_selector: Some(pods_of(run, role)),
        topology_key: HOST.to_owned(),
        ..PodAffinityTerm::default()
    }
}

fn pods_of(run: &RunIdentity, role: Option<Role>) -> LabelSelector {
    let mut labels: BTreeMap<_, _> = [(RUN_LABEL.to_owned(), run.name.clone())].into();
    labels.extend(role.map(|role| (ROLE_LABEL.to_owned(), role.to_string())));
    LabelSelector {
        match_labels: Some(labels),
        ..LabelSelector::default()
    }
}

/// The constraints of the template, and one that spreads clients over all Kubernetes nodes. The template's
/// wins if both have the same topology key and action, by which the API server merges them.
fn spread(
    run: &RunIdentity,
    spec: &PerfRunSpec,
    settings: &PodSettings,
    role: Role,
) -> Vec<TopologySpreadConstraint> {
    let mut all = settings.topology_spread_constraints.clone();
    let own = TopologySpreadConstraint {
        label_selector: Some(pods_of(run, Some(role))),
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
fn tolerations(settings: &PodSettings) -> Vec<Toleration> {
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

fn some<T>(all: Vec<T>) -> Option<Vec<T>> {
    Some(all).filter(|all| !all.is_empty())
}
