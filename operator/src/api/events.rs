//! Events about runs and schedules.

use k8s_openapi::api::core::v1::ObjectReference;
use kube::runtime::events::{Event, EventType, Recorder};
use perfrun_contract::text::plain;

use crate::api::call::within_timeout;

/// The longest note of an event, in characters: the API server allows 1024 bytes.
const NOTE_MAX: usize = 1000;

/// An event, whose note has less room than a message.
pub(crate) fn event(is_good: bool, reason: impl AsRef<str>, message: &str, action: &str) -> Event {
    Event {
        type_: if is_good {
            EventType::Normal
        } else {
            EventType::Warning
        },
        reason: reason.as_ref().to_owned(),
        note: Some(plain(message).chars().take(NOTE_MAX).collect()),
        action: action.to_owned(),
        secondary: None,
    }
}

/// Publishes an event. One that is lost does no harm.
pub(crate) async fn publish_event(event: &Event, reference: &ObjectReference, recorder: &Recorder) {
    let published = within_timeout(recorder.publish(event, reference)).await;
    if let Err(error) = published {
        tracing::debug!(%error, "failed to publish an event");
    }
}
