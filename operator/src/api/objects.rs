//! Objects that perfrun creates and deletes, and never changes.

use std::{borrow::Cow, fmt::Debug};

use kube::{
    Api, Client, Resource, ResourceExt,
    api::{DeleteParams, PostParams, Preconditions},
    core::{NamespaceResourceScope, Request},
};
use perfrun_api::{cluster::MANAGER, spec::PerfRun};
use serde::{Serialize, de::DeserializeOwned};
use strum::IntoStaticStr;
use thiserror::Error;

use crate::api::call::{CallError, change, within_timeout};

/// Why an object was not created or deleted.
#[derive(Debug, Error, IntoStaticStr)]
pub(crate) enum Error {
    #[error("failed to create {kind} {name:?}")]
    Create {
        kind: Cow<'static, str>,
        name: String,
        source: CallError,
    },
    #[error("failed to find out whose {kind} {name:?} is, or whether it exists")]
    Find {
        kind: Cow<'static, str>,
        name: String,
        source: CallError,
    },
    #[error(
        "{kind} {name:?} exists and does not belong to this {owner}: delete it, or give the {owner} another name"
    )]
    NameConflict {
        kind: Cow<'static, str>,
        name: String,
        owner: &'static str,
    },
    #[error("failed to delete the run's pods")]
    DeletePods(#[source] CallError),
    #[error("failed to delete the run")]
    DeleteRun(#[source] CallError),
}

impl Error {
    /// A bounded value for metric labels, e.g. `Create`.
    pub(crate) fn category(&self) -> &'static str {
        self.into()
    }
}

/// What an existing object of the same name means.
pub(crate) enum Existing {
    IsAccepted,
    MustBelongToOwner,
}

/// Creates an object of an owner with this UID. `owner` is the kind of the owner, for people.
pub(crate) async fn create_object<K>(
    object: K,
    owner: &'static str,
    uid: &str,
    existing: Existing,
    client: &Client,
) -> Result<(), Error>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
        + Clone
        + Debug
        + DeserializeOwned
        + Serialize,
{
    let api: Api<K> = Api::namespaced(client.clone(), &object.namespace().unwrap_or_default());
    let (kind, name) = (K::kind(&()), object.name_any());
    let params = PostParams {
        field_manager: Some(MANAGER.to_owned()),
        ..PostParams::default()
    };
    let result = match within_timeout(api.create(&params, &object)).await {
        Ok(_) => Ok(()),
        Err(exists) if exists.is_already_exists() => match existing {
            Existing::IsAccepted => Ok(()),
            Existing::MustBelongToOwner => match within_timeout(api.get_metadata(&name)).await {
                Ok(found) if found.owner_references().iter().any(|owner| owner.uid == uid) => Ok(()),
                Ok(_) => return Err(Error::NameConflict { kind, name, owner }),
                // The next attempt finds it gone.
                Err(error) if error.answer().is_some_and(|answer| answer.code == 404) => Err(exists),
                Err(source) => return Err(Error::Find { kind, name, source }),
            },
        },
        Err(error) => Err(error),
    };
    result.map_err(|source| Error::Create { kind, name, source })
}

/// Whether an object of this name exists, of any owner.
pub(crate) async fn exists<K>(object: &K, client: &Client) -> Result<bool, Error>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    let api: Api<K> = Api::namespaced(client.clone(), &object.namespace().unwrap_or_default());
    let (kind, name) = (K::kind(&()), object.name_any());
    match within_timeout(api.get_metadata(&name)).await {
        Ok(_) => Ok(true),
        Err(error) if error.answer().is_some_and(kube::core::Status::is_not_found) => Ok(false),
        Err(source) => Err(Error::Find { kind, name, source }),
    }
}

/// Deletes the object with this name and UID, if it still exists.
pub(crate) async fn delete<K>(
    namespace: &str,
    name: &str,
    uid: &str,
    params: DeleteParams,
    client: &Client,
) -> Result<(), CallError>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
{
    let params = params.preconditions(Preconditions {
        uid: Some(uid.to_owned()),
        resource_version: None,
    });
    let request = Request::new(K::url_path(&(), Some(namespace))).delete(name, &params);
    match change(client, request).await {
        Ok(()) => Ok(()),
        // The object no longer exists, or another one has its name.
        Err(error)
            if error
                .answer()
                .is_some_and(|answer| matches!(answer.code, 404 | 409)) =>
        {
            Ok(())
        }
        Err(error) => Err(error),
    }
}

/// Deletes a run. A run of the same name with another UID stays.
pub(crate) async fn remove_run(namespace: &str, name: &str, uid: &str, client: &Client) -> Result<(), Error> {
    let deleted = delete::<PerfRun>(namespace, name, uid, DeleteParams::background(), client).await;
    deleted.map_err(Error::DeleteRun)
}
