//! A ConfigMap with a part of the run's results.

use std::collections::BTreeMap;

use k8s_openapi::{ByteString, api::core::v1::ConfigMap};
use kube::api::ObjectMeta;
use perfrun_api::{
    cluster::{CONTINUES_ANNOTATION, Part, SCHEMA_ANNOTATION},
    results::SCHEMA_VERSION,
};

use super::RunIdentity;

/// Builds the ConfigMap. `previous` is the name of the ConfigMap that it continues.
pub(crate) fn part(
    run: &RunIdentity,
    name: String,
    (key, bytes): Part,
    previous: Option<String>,
) -> ConfigMap {
    let schema = (SCHEMA_ANNOTATION.to_owned(), SCHEMA_VERSION.to_string());
    let continues = previous.map(|previous| (CONTINUES_ANNOTATION.to_owned(), previous));
    let annotations = [Some(schema), continues].into_iter().flatten();
    ConfigMap {
        metadata: ObjectMeta {
            annotations: Some(annotations.collect()),
            ..run.metadata(name)
        },
        binary_data: Some(BTreeMap::from([(key.to_owned(), ByteString(bytes))])),
        ..ConfigMap::default()
    }
}
