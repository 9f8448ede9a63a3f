//! Where the complete results of a run on a cluster are kept.
#![expect(
    unreachable_pub,
    reason = "KubeSchema derives from a copy of each type, which no one else reaches"
)]

use kube::{KubeSchema, core::Rule};
use serde::{Deserialize, Serialize};

/// Where a claim is mounted in the pod that keeps results.
pub(crate) const VOLUME_FOLDER: &str = "/run/results";

/// What happens to the results of a run on a cluster.
#[serde_with_macros::skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ResultsSettings {
    /// Where complete results are kept. Default: in ConfigMaps, which are deleted together with the PerfRun.
    pub store: Option<Store>,
}

/// A place for complete results, which stay there when the PerfRun is deleted. Exactly one is set.
#[serde_with_macros::skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[x_kube(validation = one_store())]
#[serde(rename_all = "camelCase")]
pub struct Store {
    /// A bucket of an S3-compatible store, of Google Cloud Storage, or a container of Azure.
    pub object_store: Option<ObjectStore>,
    /// A PersistentVolumeClaim of the namespace.
    pub volume: Option<Volume>,
}

/// A bucket, and the Secret that opens it. Only the pod that keeps the results mounts the Secret.
#[serde_with_macros::skip_serializing_none]
#[derive(Clone, Debug, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectStore {
    /// Bucket and folder, as `s3://BUCKET/FOLDER`, `gs://BUCKET/FOLDER` or `az://CONTAINER/FOLDER`.
    #[schemars(length(max = 512))]
    #[x_kube(validation = url())]
    pub url: String,
    /// Address of the store, as `https://HOST`, where it is not that of Amazon, Google or Microsoft.
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
