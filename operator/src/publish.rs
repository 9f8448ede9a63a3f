//! Stage 4 of a pass: the only write of the status, and then the events that report it.

use std::fmt::Debug;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::{
    Api, Client, Resource,
    api::{Patch, PatchParams},
    core::{NamespaceResourceScope, ObjectMeta},
    runtime::{
        events::{Event, Recorder},
        reflector::ObjectRef,
    },
};
use perfrun_api::{
    cluster::{
        MANAGER,
        condition::{Reason, Status, Type},
    },
    spec::PerfRun,
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use strum::IntoStaticStr;
use thiserror::Error;

use crate::{
    controller::Context,
    refusal::{CallError, within_timeout},
    status,
    watched::{Part, UnreadableRun},
};

/// The field manager that writes the condition of a run that cannot be read. It owns nothing else, so that
/// its writes remove nothing from the status.
const READER: &str = "perfrun-operator-reader";

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
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + Debug + DeserializeOwned,
    S: PartialEq + Serialize,
{
    if previous == next {
        return Ok(Published::Yes);
    }
    if write::<K>(object.meta(), MANAGER, &json!(next), client).await? == Published::Conflict {
        let object = ObjectRef::from_obj(object);
        tracing::debug!(%object, "the object has changed in the meantime");
        return Ok(Published::Conflict);
    }
    for event in events {
        record(event, &object.object_ref(&()), recorder).await;
    }
    Ok(Published::Yes)
}

/// Reports that a run cannot be read. Of an unreadable spec by the condition Accepted, unless the run has
/// ended; of an unreadable status, which is never written, by an event.
pub(crate) async fn report_unreadable(
    run: &UnreadableRun,
    reference: &ObjectReference,
    context: &Context,
) -> Result<Published, Error> {
    let error = &run.error;
    match run.part {
        Part::Spec if run.has_ended() => Ok(Published::Yes),
        Part::Spec => {
            let message = format!(
                "this version of perfrun cannot read the spec; another version or hand wrote it: {error}"
            );
            let verdict = (Status::False, Reason::Malformed, message.into());
            let generation = run.metadata.generation;
            let now = (context.clock)();
            let accepted = status::condition(&run.conditions, Type::Accepted, verdict, generation, now);
            if run.conditions.contains(&accepted) {
                return Ok(Published::Yes);
            }
            let status = json!({"conditions": [accepted]});
            write::<PerfRun>(&run.metadata, READER, &status, &context.client).await
        }
        Part::Status => {
            let message =
                format!("this version of perfrun cannot read the status and leaves the run alone: {error}");
            let event = status::event(false, Reason::StatusUnreadable, &message, "Read");
            record(&event, reference, &context.recorder).await;
            Ok(Published::Yes)
        }
    }
}

async fn write<K>(
    metadata: &ObjectMeta,
    manager: &str,
    status: &Value,
    client: &Client,
) -> Result<Published, Error>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    let namespace = metadata.namespace.as_deref().unwrap_or_default();
    let api: Api<K> = Api::namespaced(client.clone(), namespace);
    let patch = json!({
        "apiVersion": K::api_version(&()),
        "kind": K::kind(&()),
        "metadata": { "resourceVersion": metadata.resource_version },
        "status": status,
    });
    let params = PatchParams::apply(manager).force();
    let name = metadata.name.as_deref().unwrap_or_default();
    match within_timeout(api.patch_status(name, &params, &Patch::Apply(&patch))).await {
        Ok(_) => Ok(Published::Yes),
        // The answer is the object, which may still be unreadable.
        Err(CallError::Api(kube::Error::SerdeError(_))) => Ok(Published::Yes),
        Err(error) => match error.answer() {
            Some(answer) if answer.is_conflict() => Ok(Published::Conflict),
            // The object has been deleted in the meantime.
            Some(answer) if answer.is_not_found() => Ok(Published::Yes),
            _ => Err(Error::Status(error)),
        },
    }
}

/// Publishes an event. One that is lost does no harm.
pub(crate) async fn record(event: &Event, reference: &ObjectReference, recorder: &Recorder) {
    let published = within_timeout(recorder.publish(event, reference)).await;
    if let Err(error) = published {
        tracing::debug!(%error, "failed to publish an event");
    }
}
