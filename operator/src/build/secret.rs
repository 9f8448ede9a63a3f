//! The Secrets with the tokens of a run.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Secret;
use perfrun_api::pod::TOKEN_KEY;

use super::RunIdentity;

/// Builds a Secret.
pub(crate) fn secret(run: &RunIdentity, name: String, token: String) -> Secret {
    Secret {
        metadata: run.metadata(name),
        string_data: Some(BTreeMap::from([(TOKEN_KEY.to_owned(), token)])),
        immutable: Some(true),
        ..Secret::default()
    }
}
