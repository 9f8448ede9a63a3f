//! The only write of a status, and then the events that report it.

use std::time::Duration;

use kube::{
    Client, Resource,
    api::{Patch, PatchParams},
    core::{NamespaceResourceScope, ObjectMeta, Request},
    runtime::{
        controller::Action,
        events::{Event, Recorder},
        reflector::ObjectRef,
    },
};
use perfrun_api::cluster::MANAGER;
use serde::Serialize;
use serde_json::{Value, json};
use strum::IntoStaticStr;
use thiserror::Error;
use tokio::time::timeout;

use crate::api::{
    call::{CallError, change},
    events::publish_event,
};

/// Pause after a conflict. The watch usually wakes the run or the schedule sooner.
pub(crate) const CONFLICT_PAUSE: Duration = Duration::from_secs(1);

/// How long the events about a status may take together. Those that are lost do no harm.
const EVENTS_TIMEOUT: Duration = Duration::from_secs(10);

/// Why a status was not written.
#[derive(Debug, Error, IntoStaticStr)]
pub(crate) enum Error {
    #[error("failed to write the status")]
    Status(#[source] CallError),
}

impl Error {
    /// A bounded value for metric labels, e.g. `Status`.
    pub(crate) fn category(&self) -> &'static str {
        self.into()
    }

    /// Whether the API server may take a smaller status.
    pub(crate) fn refuses_content(&self) -> bool {
        let Self::Status(error) = self;
        error.refuses_content()
    }
}

/// Whether the API server has the status.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Published {
    /// It has, or the object no longer exists.
    Yes,
    /// The object has changed since it was observed.
    Conflict,
}

/// Writes the status of a run or a schedule if it differs from the observed one, unless the object has
/// changed in the meantime. Then publishes events.
pub(crate) async fn publish<K, S>(
    object: &K,
    previous: &S,
    next: &S,
    events: &[Event],
    client: &Client,
    recorder: &Recorder,
) -> Result<Published, Error>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    S: PartialEq + Serialize,
{
    if previous == next {
        return Ok(Published::Yes);
    }
    if write_status::<K>(object.meta(), MANAGER, &json!(next), client).await? == Published::Conflict {
        let object = ObjectRef::from_obj(object);
        tracing::debug!(%object, "the object has changed in the meantime");
        return Ok(Published::Conflict);
    }
    let published = async {
        for event in events {
            publish_event(event, &object.object_ref(&()), recorder).await;
        }
    };
    if timeout(EVENTS_TIMEOUT, published).await.is_err() {
        tracing::debug!("events were not published in time");
    }
    Ok(Published::Yes)
}

/// Writes a status by server-side apply.
pub(crate) async fn write_status<K>(
    metadata: &ObjectMeta,
    manager: &str,
    status: &Value,
    client: &Client,
) -> Result<Published, Error>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
{
    let patch = json!({
        "apiVersion": K::api_version(&()),
        "kind": K::kind(&()),
        "metadata": { "resourceVersion": metadata.resource_version },
        "status": status,
    });
    let params = PatchParams::apply(manager).force();
    let name = metadata.name.as_deref().unwrap_or_default();
    let request = Request::new(K::url_path(&(), metadata.namespace.as_deref()));
    let request = request.patch_subresource("status", name, &params, &Patch::Apply(&patch));
    match change(client, request).await {
        Ok(()) => Ok(Published::Yes),
        Err(error) => match error.answer() {
            Some(answer) if answer.is_conflict() => Ok(Published::Conflict),
            // The object has been deleted in the meantime.
            Some(answer) if answer.is_not_found() => Ok(Published::Yes),
            _ => Err(Error::Status(error)),
        },
    }
}

/// When the next reconciliation is due.
pub(crate) fn next_action(published: Published, wake: Option<Duration>) -> Action {
    match (published, wake) {
        (Published::Conflict, _) => Action::requeue(CONFLICT_PAUSE),
        (Published::Yes, Some(wake)) => Action::requeue(wake),
        (Published::Yes, None) => Action::await_change(),
    }
}
