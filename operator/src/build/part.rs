//! A ConfigMap with a part of the run's results.

use std::collections::BTreeMap;

use k8s_openapi::{ByteString, api::core::v1::ConfigMap};
use perfrun_api::cluster::Part;

use super::RunIdentity;

/// Builds the ConfigMap.
pub(crate) fn part(run: &RunIdentity, name: String, (key, bytes): Part) -> ConfigMap {
    ConfigMap {
        metadata: run.metadata(name),
        binary_data: Some(BTreeMap::from([(key.to_owned(), ByteString(bytes))])),
        ..ConfigMap::default()
    }
}
