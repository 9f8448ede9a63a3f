//! Tokens of runs. Each is derived from a key that only operators know and from the run's UID. An operator
//! that takes over derives it again, so that operators need no right to read Secrets of runs.

use std::collections::BTreeMap;

use hmac::{Hmac, KeyInit, Mac};
use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::{
    Api, Client,
    api::{ObjectMeta, PostParams},
};
use sha2::Sha256;
use thiserror::Error;

use crate::api::call::{CallError, within_timeout};

/// Name of the Secret with the operators' key.
pub(crate) const KEY_SECRET: &str = "perfrun-operator-key";
const KEY: &str = "key";

/// The key that tokens are derived from.
#[derive(Clone)]
pub(crate) struct TokenKey(Vec<u8>);

/// Why the key is not available.
#[derive(Debug, Error)]
pub(crate) enum Error {
    #[error(
        "failed to get or create Secret {KEY_SECRET:?} in namespace {namespace:?}: the operator needs the verb `get` on it \
         and `create` on secrets"
    )]
    Get { namespace: String, source: CallError },
    #[error(
        "Secret {KEY_SECRET:?} in namespace {namespace:?} has no {KEY:?} of at least 16 bytes: delete it, and the operator \
         creates a new one"
    )]
    Malformed { namespace: String },
}

impl TokenKey {
    /// The key of the operators in this namespace. The first operator creates it.
    pub(crate) async fn get_or_create(client: Client, namespace: &str) -> Result<Self, Error> {
        let api: Api<Secret> = Api::namespaced(client, namespace);
        let failed = |source| Error::Get {
            namespace: namespace.to_owned(),
            source,
        };
        let secret = match within_timeout(api.get_opt(KEY_SECRET)).await.map_err(failed)? {
            Some(secret) => secret,
            None => match within_timeout(api.create(&PostParams::default(), &new_key())).await {
                Ok(created) => created,
                // Another operator was faster.
                Err(error) if error.is_already_exists() => {
                    within_timeout(api.get(KEY_SECRET)).await.map_err(failed)?
                }
                Err(error) => return Err(failed(error)),
            },
        };
        let key = secret
            .data
            .and_then(|mut data| data.remove(KEY))
            .unwrap_or_default()
            .0;
        if key.len() < 16 {
            return Err(Error::Malformed {
                namespace: namespace.to_owned(),
            });
        }
        Ok(Self(key))
    }

    /// The key of tests.
    #[cfg(test)]
    pub(crate) fn fixed() -> Self {
        Self(vec![7; 32])
    }

    /// The token of the pod that keeps results of a run. Nodes do not know it.
    pub(crate) fn store_token(&self, uid: &str) -> String {
        self.token(&format!("{uid}/store"))
    }

    /// The token of a run: 64 hexadecimal digits.
    pub(crate) fn token(&self, uid: &str) -> String {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("HMAC takes keys of any length");
        mac.update(uid.as_bytes());
        mac.finalize()
            .into_bytes()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect()
    }
}

fn new_key() -> Secret {
    let key: [u8; 32] = rand::random();
    Secret {
        metadata: ObjectMeta {
            name: Some(KEY_SECRET.to_owned()),
            ..ObjectMeta::default()
        },
        data: Some(BTreeMap::from([(KEY.to_owned(), ByteString(key.to_vec()))])),
        immutable: Some(true),
        ..Secret::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_run_has_its_own_token_which_can_be_derived_again() {
        let key = TokenKey::fixed();
        assert_eq!(key.token("uid-1"), TokenKey::fixed().token("uid-1"));
        assert_ne!(key.token("uid-1"), key.token("uid-2"));
        assert_ne!(key.token("uid-1"), key.store_token("uid-1"));
        assert_ne!(key.token("uid-1"), TokenKey(vec![8; 32]).token("uid-1"));
        assert_eq!(key.token("uid-1").len(), 64);
    }
}
