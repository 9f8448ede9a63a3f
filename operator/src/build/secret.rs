//! The Secret with the run's token.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Secret;

use perfrun_api::pod::TOKEN_KEY;

use super::RunIdentity;
use crate::names;

/// Builds the Secret.
pub(crate) fn secret(run: &RunIdentity, token: String) -> Secret {
    Secret {
        metadata: run.metadata(names::token(&run.name, &run.uid)),
        string_data: Some(BTreeMap::from([(TOKEN_KEY.to_owned(), token)])),
        immutable: Some(true),
        ..Secret::default()
    }
}
