//! The pod of a node: what each pod gives the program in it, and what the status of a pod means. The operator
//! and `perfrun conformance` build their pods from these parts, so that a node that conforms finds the same
//! in a run. Pure.
//!
//! A pod meets the restricted Pod Security Standard and has no service account token. It is not restarted in
//! place: a node that ended has forgotten its trials and its clock.

mod state;
pub mod store;

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use k8s_openapi::api::core::v1::{
    Container, ContainerPort, EnvVar, PodSpec, ResourceRequirements, Volume, VolumeMount,
};
use perfrun_contract::{matrix::IpFamily, node::variables, role::Role};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

pub use self::state::{Cause, PodState, UNPUBLISHED_ADVICE, node_state, state};

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
pub(crate) const UNPUBLISHED: &str = "perfrun.invalid/";
/// The image of perfrun's own node, as `cargo xtask image node` names it.
pub const NODE_IMAGE: &str = concat!("perfrun.invalid/node:", env!("CARGO_PKG_VERSION"));
/// The key of the token in its Secret.
pub const TOKEN_KEY: &str = "token";

/// The user and group of nodes, as in the image.
const USER: i64 = 65532;
const TOKEN_FOLDER: &str = "/run/perfrun";

/// Reads an object of Kubernetes from JSON.
///
/// # Panics
///
/// If the JSON does not fit the type. Debug builds also panic if it has a key that the type lacks, or a null.
pub fn object<T: DeserializeOwned + Serialize>(json: Value) -> T {
    let object = T::deserialize(&json).expect("the JSON is of this type");
    debug_assert_eq!(
        serde_json::to_value(&object).ok(),
        Some(json),
        "all keys are those of the object"
    );
    object
}

/// A pod with one node, whose token is in a Secret.
pub fn pod_spec(node: Container, token_secret: String) -> PodSpec {
    object(json!({
        "automountServiceAccountToken": false,
        "containers": [node],
        "enableServiceLinks": false,
        "restartPolicy": "Never",
        "securityContext": {
            "fsGroup": USER,
            "runAsGroup": USER,
            "runAsNonRoot": true,
            "runAsUser": USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        // Process 1 of a namespace misses a SIGTERM that comes before it handles it, for example in a pod
        // that is deleted while it starts, and would stay for the whole grace period. In a namespace of
        // the pod, the node is not process 1.
        "shareProcessNamespace": true,
        "volumes": [secret_volume(TOKEN_KEY, &token_secret, 0o440)],
    }))
}

fn secret_volume(name: &str, secret: &str, mode: i32) -> Volume {
    object(json!({"name": name, "secret": {"secretName": secret, "defaultMode": mode}}))
}

/// Where the programs of a pod listen for calls and scrapes: at all of its addresses. A socket of IPv6 takes
/// connections over IPv4, too, and only nodes of IPv6 need a kernel that has it.
pub fn all_addresses(ip_family: IpFamily, port: u16) -> SocketAddr {
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
    object(json!({
        "name": NODE_CONTAINER,
        "image": image,
        "args": [
            "control",
            format!("--control={}", all_addresses(ip_family, control)),
            format!("--role={role}"),
        ],
        "env": env,
        "ports": [named_port("control", control), named_port("metrics", metrics)],
        // The default of 10 s would be most of a short run.
        "readinessProbe": {"httpGet": {"path": "/readyz", "port": control}, "periodSeconds": 1},
        "resources": default_resources(),
        "securityContext": {
            "allowPrivilegeEscalation": false,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": true,
        },
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [token_mount()],
    }))
}

/// A TCP port of a container.
pub fn named_port(name: &str, port: u16) -> ContainerPort {
    object(json!({"name": name, "containerPort": port, "protocol": "TCP"}))
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
    let of_status = |name: &str, field: &str| {
        let field = format!("status.{field}");
        object(json!({"name": name, "valueFrom": {"fieldRef": {"fieldPath": field}}}))
    };
    vec![
        of_status(variables::LISTEN_IP, "podIP"),
        // The first address is of the cluster's first family. Only the pod knows the others.
        of_status(variables::LISTEN_IPS, "podIPs"),
        variable(variables::IP_FAMILY, ip_family.as_ref()),
        variable(variables::TOKEN_FILE, &format!("{TOKEN_FOLDER}/{TOKEN_KEY}")),
        variable(variables::RUN, run),
        variable(variables::RUN_NAMESPACE, namespace),
        variable(variables::RUN_NODE, node),
        variable(
            variables::METRICS,
            &all_addresses(ip_family, metrics_port).to_string(),
        ),
    ]
}

/// An environment variable.
pub fn variable(name: &str, value: &str) -> EnvVar {
    object(json!({"name": name, "value": value}))
}

/// The folder with the token.
pub fn token_mount() -> VolumeMount {
    object(json!({"name": TOKEN_KEY, "mountPath": TOKEN_FOLDER, "readOnly": true}))
}

/// The resources of a node without any in its template. They are small enough for small clusters. Yet any
/// request lifts the pod out of the class `BestEffort`, whose share of a busy processor is a fiftieth of this
/// one.
pub fn default_resources() -> ResourceRequirements {
    object(json!({"requests": {"cpu": "100m", "memory": "64Mi"}}))
}
