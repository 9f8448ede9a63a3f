//! Where the complete results of a run on a cluster are kept.
#![expect(
    unreachable_pub,
    reason = "KubeSchema derives from a copy of each type, which no one else reaches"
)]

use kube::{KubeSchema, core::Rule};
use serde::{Deserialize, Serialize};

use crate::results::SCHEMA_VERSION;

/// Where a claim is mounted in the pod that keeps results.
pub(crate) const VOLUME_FOLDER: &str = "/run/results";

/// What happens to the results of a run on a cluster.
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ResultsSettings {
    /// Where complete results are kept. Default: in ConfigMaps, which are deleted together with the PerfRun.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store: Option<Store>,
}

/// A place for complete results, which stay there when the PerfRun is deleted. Exactly one is set.
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[x_kube(validation = one_store())]
#[serde(rename_all = "camelCase")]
pub struct Store {
    /// A bucket of an S3-compatible store, of Google Cloud Storage, or a container of Azure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object_store: Option<ObjectStore>,
    /// A PersistentVolumeClaim of the namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume: Option<Volume>,
}

/// A bucket, and the Secret that opens it. Only the pod that keeps the results mounts the Secret.
#[derive(Clone, Debug, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectStore {
    /// Bucket and folder, as `s3://BUCKET/FOLDER`, `gs://BUCKET/FOLDER` or `az://CONTAINER/FOLDER`.
    #[schemars(length(max = 512))]
    #[x_kube(validation = url())]
    pub url: String,
    /// Address of the store, as `https://HOST`, where it is not that of Amazon, Google or Microsoft.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512))]
    #[x_kube(validation = endpoint())]
    pub endpoint: Option<String>,
    /// Name of a Secret of the namespace. Its keys are settings of the store, as `AWS_ACCESS_KEY_ID`,
    /// `AWS_SECRET_ACCESS_KEY` and `AWS_REGION`, `GOOGLE_SERVICE_ACCOUNT_KEY`, or
    /// `AZURE_STORAGE_ACCOUNT_NAME` and `AZURE_STORAGE_ACCOUNT_KEY`. `ca.crt` has certificates that are
    /// trusted besides those of public authorities.
    #[schemars(length(max = 253))]
    #[x_kube(validation = object_name())]
    pub secret: String,
}

/// A folder of a volume.
#[derive(Clone, Debug, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Volume {
    /// Name of the claim. Group 65532 must be allowed to write to the volume.
    #[schemars(length(max = 253))]
    #[x_kube(validation = object_name())]
    pub claim: String,
    /// Folder on the volume. Default: its root.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 512))]
    #[x_kube(validation = folder())]
    pub path: String,
}

impl Store {
    /// The folder of a run, as a URL that the program in the pod reads.
    pub fn url(&self, namespace: &str, run: &str, uid: &str) -> String {
        let root = match self {
            Self {
                object_store: Some(store),
                ..
            } => store.url.trim_end_matches('/').to_owned(),
            Self { volume, .. } => {
                let path = volume.as_ref().map_or("", |volume| volume.path.as_str());
                format!("file://{VOLUME_FOLDER}/{path}")
                    .trim_end_matches('/')
                    .to_owned()
            }
        };
        // Objects outlive the run, and perhaps the cluster: the UID tells runs of one name apart, and the
        // version what would be misread.
        format!("{root}/{namespace}/{run}/{uid}/v{SCHEMA_VERSION}")
    }

    /// The folder of a run, for people.
    pub fn location(&self, namespace: &str, run: &str, uid: &str) -> String {
        let url = self.url(namespace, run, uid);
        match &self.volume {
            Some(volume) => {
                let folder = url
                    .trim_start_matches("file://")
                    .trim_start_matches(VOLUME_FOLDER);
                format!("folder {folder} of PersistentVolumeClaim {}", volume.claim)
            }
            None => url,
        }
    }
}

fn one_store() -> Rule {
    Rule::new("has(self.objectStore) != has(self.volume)").message("must set one of objectStore and volume")
}

fn url() -> Rule {
    Rule::new("self.matches('^(s3|gs|az)://[a-z0-9][-a-z0-9._]{1,62}(/[A-Za-z0-9_][-A-Za-z0-9._]*)*/?$')").message(
        "must be s3://BUCKET/FOLDER, gs://BUCKET/FOLDER or az://CONTAINER/FOLDER; folders have letters, digits, '-', \
         '_' and '.', and do not begin with '-' or '.'",
    )
}

fn endpoint() -> Rule {
    Rule::new("self.matches('^https?://[-A-Za-z0-9.]+(:[0-9]{1,5})?(/[-A-Za-z0-9._]+)*/?$')")
        .message("must be https://HOST or http://HOST, perhaps with a port and a path")
}

fn object_name() -> Rule {
    Rule::new("self.matches('^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$')")
        .message("must be the name of an object: lower-case letters, digits, '-' and '.'")
}

fn folder() -> Rule {
    Rule::new("self == '' || self.matches('^[A-Za-z0-9_][-A-Za-z0-9._]*(/[A-Za-z0-9_][-A-Za-z0-9._]*)*$')").message(
        "must be a relative path: folders have letters, digits, '-', '_' and '.', and do not begin with '-' or '.'",
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn places(store: serde_json::Value) -> [String; 2] {
        let store: Store = serde_json::from_value(store).unwrap();
        [
            store.url("bench", "tcp", "uid-1"),
            store.location("bench", "tcp", "uid-1"),
        ]
    }

    #[test]
    fn each_run_has_its_own_folder() {
        let url = "s3://results/nightly/bench/tcp/uid-1/v2";
        for given in ["s3://results/nightly", "s3://results/nightly/"] {
            let store = json!({"objectStore": {"url": given, "secret": "s3"}});
            assert_eq!(places(store), [url, url]);
        }
    }

    #[test]
    fn a_folder_of_a_volume_is_below_the_mounted_claim() {
        assert_eq!(
            places(json!({"volume": {"claim": "disk", "path": "a/b"}})),
            [
                "file:///run/results/a/b/bench/tcp/uid-1/v2",
                "folder /a/b/bench/tcp/uid-1/v2 of PersistentVolumeClaim disk"
            ]
        );
        let [url, _] = places(json!({"volume": {"claim": "disk"}}));
        assert_eq!(url, "file:///run/results/bench/tcp/uid-1/v2");
    }
}
