//! The pod of a node: what each pod gives the program in it, and what the status of a pod means. The operator
//! and `perfrun conformance` build their pods from these parts, so that a node that conforms finds the same
//! in a run. Pure.
//!
//! A pod meets the restricted Pod Security Standard and has no service account token. It is not restarted in
//! place: a node that ended has forgotten its trials and its clock.

mod state;
pub mod store;

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use k8s_openapi::{
    api::core::v1::{
        Capabilities, Container, ContainerPort, EnvVar, EnvVarSource, HTTPGetAction, ObjectFieldSelector,
        PodSecurityContext, PodSpec, Probe, ResourceRequirements, SeccompProfile, SecretVolumeSource,
        SecurityContext, Volume, VolumeMount,
    },
    apimachinery::pkg::{api::resource::Quantity, util::intstr::IntOrString},
};
use perfrun_contract::{matrix::IpFamily, role::Role};

pub use self::state::{PodState, Trouble, state};

/// Name of the container that runs the node.
pub const NODE_CONTAINER: &str = "node";
/// Name of the container that impairs the node's links.
pub const LINK_CONTAINER: &str = "link";
/// The control port of nodes. On the host's network, that of the first node.
pub const CONTROL_PORT: u16 = 9090;
/// The port of nodes that serves metrics only, except on the host's network.
pub const METRICS_PORT: u16 = 9401;
/// How the default names of perfrun's images begin, which are not published yet. No registry can have a name
/// that ends with `.invalid` (RFC 6761), so nobody else can serve an image in their place.
pub const UNPUBLISHED: &str = "perfrun.invalid/";
/// The image of perfrun's own node, as `cargo xtask image node` names it.
pub const NODE_IMAGE: &str = concat!("perfrun.invalid/node:", env!("CARGO_PKG_VERSION"));
/// The key of the token in its Secret.
pub const TOKEN_KEY: &str = "token";

/// The user and group of nodes, as in the image.
const USER: i64 = 65532;
const TOKEN_FOLDER: &str = "/run/perfrun";

/// A pod with one node, whose token is in a Secret.
pub fn pod_spec(node: Container, token_secret: String) -> PodSpec {
    PodSpec {
        automount_service_account_token: Some(false),
        containers: vec![node],
        enable_service_links: Some(false),
        restart_policy: Some("Never".to_owned()),
        security_context: Some(PodSecurityContext {
            fs_group: Some(USER),
            run_as_group: Some(USER),
            run_as_non_root: Some(true),
            run_as_user: Some(USER),
            seccomp_profile: Some(SeccompProfile {
                type_: "RuntimeDefault".to_owned(),
                localhost_profile: None,
            }),
            ..PodSecurityContext::default()
        }),
        // Process 1 of a namespace misses a SIGTERM that comes before it handles it, for example in a pod
        // that is deleted while it starts, and would stay for the whole grace period. In a namespace of
        // the pod, the node is not process 1.
        share_process_namespace: Some(true),
        volumes: Some(vec![Volume {
            name: TOKEN_KEY.to_owned(),
            secret: Some(SecretVolumeSource {
                secret_name: Some(token_secret),
                default_mode: Some(0o440),
                ..SecretVolumeSource::default()
            }),
            ..Volume::default()
        }]),
        ..PodSpec::default()
    }
}

/// Where the programs of a pod listen for calls and scrapes: at all of its addresses. A socket of IPv6 takes
/// connections over IPv4, too, and only nodes of IPv6 need a kernel that has it.
pub fn everywhere(ip_family: IpFamily, port: u16) -> SocketAddr {
    match ip_family {
        IpFamily::IPv4 => (Ipv4Addr::UNSPECIFIED, port).into(),
        IpFamily::IPv6 => (Ipv6Addr::UNSPECIFIED, port).into(),
    }
}

/// The container of a node with these ports.
pub fn node_container(
    image: &str,
    role: Role,
    ip_family: IpFamily,
    [control, metrics]: [u16; 2],
    env: Vec<EnvVar>,
) -> Container {
    Container {
        name: NODE_CONTAINER.to_owned(),
        image: Some(image.to_owned()),
        args: Some(vec![
            "control".to_owned(),
            format!("--control={}", everywhere(ip_family, control)),
            format!("--role={role}"),
        ]),
        env: Some(env),
        ports: Some(vec![
            named_port("control", control),
            named_port("metrics", metrics),
        ]),
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
        resources: Some(modest()),
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

/// A TCP port of a container.
pub fn named_port(name: &str, port: u16) -> ContainerPort {
    ContainerPort {
        name: Some(name.to_owned()),
        container_port: port.into(),
        protocol: Some("TCP".to_owned()),
        ..ContainerPort::default()
    }
}

/// Settings of the programs of a pod. They are variables and not arguments, because older images do not know
/// all of them.
pub fn environment(
    run: &str,
    namespace: &str,
    node: &str,
    ip_family: IpFamily,
    metrics_port: u16,
) -> Vec<EnvVar> {
    let of_status = |name: &str, field: &str| EnvVar {
        name: name.to_owned(),
        value: None,
        value_from: Some(EnvVarSource {
            field_ref: Some(ObjectFieldSelector {
                field_path: format!("status.{field}"),
                api_version: None,
            }),
            ..EnvVarSource::default()
        }),
    };
    vec![
        of_status("PERFRUN_LISTEN_IP", "podIP"),
        // The first address is of the cluster's first family. Only the pod knows the others.
        of_status("PERFRUN_LISTEN_IPS", "podIPs"),
        variable("PERFRUN_IP_FAMILY", ip_family.as_ref()),
        variable("PERFRUN_TOKEN_FILE", &format!("{TOKEN_FOLDER}/{TOKEN_KEY}")),
        variable("PERFRUN_RUN", run),
        variable("PERFRUN_RUN_NAMESPACE", namespace),
        variable("PERFRUN_RUN_NODE", node),
        variable(
            "PERFRUN_METRICS",
            &everywhere(ip_family, metrics_port).to_string(),
        ),
    ]
}

/// An environment variable.
pub fn variable(name: &str, value: &str) -> EnvVar {
    EnvVar {
        name: name.to_owned(),
        value: Some(value.to_owned()),
        value_from: None,
    }
}

/// The folder with the token.
pub fn token_mount() -> VolumeMount {
    VolumeMount {
        name: TOKEN_KEY.to_owned(),
        mount_path: TOKEN_FOLDER.to_owned(),
        read_only: Some(true),
        ..VolumeMount::default()
    }
}

/// The resources of a node without any in its template. They are small enough for small clusters. Yet any
/// request lifts the pod out of the class `BestEffort`, whose share of a busy processor is a fiftieth of this
/// one.
pub fn modest() -> ResourceRequirements {
    let request = |name: &str, amount: &str| (name.to_owned(), Quantity(amount.to_owned()));
    ResourceRequirements {
        requests: Some([request("cpu", "100m"), request("memory", "64Mi")].into()),
        ..ResourceRequirements::default()
    }
}
