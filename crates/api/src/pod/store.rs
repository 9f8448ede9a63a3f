//! The pod that keeps the results of a run, or reads them again. It alone mounts the Secret of an object
//! store, or the claim.

use k8s_openapi::api::core::v1::{LocalObjectReference, PodSpec, VolumeMount};
use perfrun_contract::{matrix::IpFamily, role::Role};
use serde_json::json;

use super::{
    CONTROL_PORT, METRICS_PORT, TOKEN_FOLDER, TOKEN_KEY, named_port, node_container, object, pod_spec,
    secret_volume, token_mount,
};
use crate::store::{Store, VOLUME_FOLDER, Volume};

/// The label [`crate::cluster::NODE_LABEL`] of the pod. No node has this name.
pub const STORE_NODE: &str = "store";
/// The image of the program, as `cargo xtask image operator` names it.
pub const OPERATOR_IMAGE: &str = concat!("perfrun.invalid/operator:", env!("CARGO_PKG_VERSION"));
/// Most bytes of one part in a store. Records are compressed together from some MiB on, each of which has at
/// most 16 MiB, and the results without their trials are smaller.
pub const STORED_PART_BYTES: usize = 64 << 20;
/// The path of all parts. That of one ends with its name.
pub const PARTS: &str = "/v1/parts";

const CREDENTIALS: &str = "credentials";
const CREDENTIALS_FOLDER: &str = "/run/credentials";
const RESULTS: &str = "results";

/// Who may call the program of a store pod.
#[derive(Clone, Debug)]
pub enum StoreAccess {
    /// Everybody with the token in the Secret of this name.
    Token(String),
    /// Who may forward ports of the pod. They can only read.
    Forwarded,
}

/// A pod that serves the folder of a run at [`PARTS`], on [`CONTROL_PORT`]. Secrets of these names pull its
/// image.
pub fn store_pod(
    store: &Store,
    url: &str,
    image: &str,
    pull_secrets: &[String],
    access: StoreAccess,
) -> PodSpec {
    let mut args = vec!["store".to_owned(), format!("--url={url}")];
    let (mut volumes, mut mounts) = (vec![], vec![]);
    let mut container = node_container(
        image,
        Role::Server,
        IpFamily::IPv4,
        [CONTROL_PORT, METRICS_PORT],
        vec![],
    );
    let reads_only = matches!(access, StoreAccess::Forwarded);
    if let Some(bucket) = &store.object_store {
        args.push(format!("--credentials={CREDENTIALS_FOLDER}"));
        args.extend(
            bucket
                .endpoint
                .iter()
                .map(|endpoint| format!("--endpoint={endpoint}")),
        );
        volumes.push(secret_volume(CREDENTIALS, &bucket.secret));
        mounts.push(mount(CREDENTIALS, CREDENTIALS_FOLDER, true));
    }
    if let Some(Volume { claim, .. }) = &store.volume {
        volumes.push(object(
            json!({"name": RESULTS, "persistentVolumeClaim": {"claimName": claim}}),
        ));
        mounts.push(mount(RESULTS, VOLUME_FOLDER, reads_only));
    }
    match access {
        StoreAccess::Token(secret) => {
            args.push(format!("--listen=0.0.0.0:{CONTROL_PORT}"));
            args.push(format!("--token-file={TOKEN_FOLDER}/{TOKEN_KEY}"));
            volumes.push(secret_volume(TOKEN_KEY, &secret));
            mounts.push(token_mount());
        }
        StoreAccess::Forwarded => {
            args.push(format!("--listen=127.0.0.1:{CONTROL_PORT}"));
            args.push("--read-only".to_owned());
            // The kubelet does not reach this address.
            container.readiness_probe = None;
        }
    }
    container.args = Some(args);
    container.ports = Some(vec![named_port("control", CONTROL_PORT)]);
    container.volume_mounts = Some(mounts);
    let secrets = pull_secrets
        .iter()
        .map(|name| LocalObjectReference { name: name.clone() });
    PodSpec {
        image_pull_secrets: Some(secrets.collect()).filter(|all: &Vec<_>| !all.is_empty()),
        volumes: Some(volumes),
        ..pod_spec(container, String::new())
    }
}

fn mount(name: &str, path: &str, read_only: bool) -> VolumeMount {
    VolumeMount {
        name: name.to_owned(),
        mount_path: path.to_owned(),
        read_only: read_only.then_some(true),
        ..VolumeMount::default()
    }
}
