//! The pod that keeps the results of a run, or reads them again. It alone mounts the Secret of an object
//! store, or the claim. The files of others on the volume of a claim stay as they are.

use k8s_openapi::api::core::v1::{LocalObjectReference, PodSecurityContext, PodSpec, VolumeMount};
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
/// Most parts that a store lists. The operator writes less than one for each trial.
pub const PARTS_MAX: usize = 100_000;
/// The path of all parts. That of one ends with its name.
pub const PARTS: &str = "/v1/parts";

const CREDENTIALS: &str = "credentials";
const CREDENTIALS_FOLDER: &str = "/run/credentials";
const RESULTS: &str = "results";
/// Files of a Secret belong to root, because the pod has no `fsGroup`. Only its one container mounts them.
const SECRET_MODE: i32 = 0o444;

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
        volumes.push(secret_volume(CREDENTIALS, &bucket.secret, SECRET_MODE));
        mounts.push(mount(CREDENTIALS, CREDENTIALS_FOLDER, true));
    }
    if let Some(Volume { claim, .. }) = &store.volume {
        volumes.push(object(json!({
            "name": RESULTS,
            "persistentVolumeClaim": {"claimName": claim, "readOnly": reads_only},
        })));
        mounts.push(mount(RESULTS, VOLUME_FOLDER, reads_only));
    }
    match access {
        StoreAccess::Token(secret) => {
            args.push(format!("--listen=0.0.0.0:{CONTROL_PORT}"));
            args.push(format!("--token-file={TOKEN_FOLDER}/{TOKEN_KEY}"));
            volumes.push(secret_volume(TOKEN_KEY, &secret, SECRET_MODE));
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
    let common = pod_spec(container, String::new());
    PodSpec {
        image_pull_secrets: Some(secrets.collect()).filter(|all: &Vec<_>| !all.is_empty()),
        // With `fsGroup`, the kubelet would give all files of a volume to the group and let it write them. A
        // database then refuses its own files. The program is in group 65532 without it: `runAsGroup`.
        security_context: common.security_context.map(|security| PodSecurityContext {
            fs_group: None,
            ..security
        }),
        volumes: Some(volumes),
        ..common
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

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn pod(store: Value, access: StoreAccess) -> Value {
        let store: Store = serde_json::from_value(store).unwrap();
        let url = store.url("bench", "run", "uid-1");
        serde_json::to_value(store_pod(&store, &url, OPERATOR_IMAGE, &[], access)).unwrap()
    }

    fn token() -> StoreAccess {
        StoreAccess::Token("run-token".to_owned())
    }

    #[test]
    fn a_claim_is_mounted_without_a_group_that_would_own_its_files() {
        for (access, reads_only) in [(token(), false), (StoreAccess::Forwarded, true)] {
            let pod = pod(json!({"volume": {"claim": "disk"}}), access);
            let claim = json!({"claimName": "disk", "readOnly": reads_only});
            assert_eq!(pod["volumes"][0]["persistentVolumeClaim"], claim);
            let security = &pod["securityContext"];
            assert_eq!(security["fsGroup"], Value::Null, "{security}");
            assert_eq!(security["runAsGroup"], 65532, "{security}");
        }
    }

    #[test]
    fn the_program_can_read_its_secrets_without_a_group_that_owns_them() {
        let bucket = json!({"objectStore": {"url": "s3://results", "secret": "bucket"}});
        for (store, secrets) in [(json!({"volume": {"claim": "disk"}}), 1), (bucket, 2)] {
            let pod = pod(store, token());
            let volumes = pod["volumes"].as_array().unwrap();
            let modes = volumes
                .iter()
                .filter_map(|volume| volume["secret"]["defaultMode"].as_i64());
            assert_eq!(modes.collect::<Vec<_>>(), vec![0o444; secrets]);
        }
    }
}
