//! Runs that this version cannot read.

use k8s_openapi::api::core::v1::ObjectReference;
use perfrun_api::{
    cluster::condition::{Reason, Status, Type},
    spec::PerfRun,
};
use serde_json::json;

use crate::{
    api::{
        conditions::condition,
        events::{event, publish_event},
        publish::{Error, Published, write_status},
        watched::{UnreadableField, UnreadableRun},
    },
    services::Services,
};

/// The field manager that writes the condition of a run that cannot be read. It owns nothing else, so that
/// its writes remove nothing from the status.
const READER: &str = "perfrun-operator-reader";

/// Reports that a run cannot be read. Of an unreadable spec by the condition Accepted, unless the run has
/// ended; of an unreadable status, which is never written, by an event.
pub(crate) async fn report_unreadable(
    run: &UnreadableRun,
    reference: &ObjectReference,
    services: &Services,
) -> Result<Published, Error> {
    let error = &run.error;
    match run.field {
        UnreadableField::Spec if run.has_ended() => Ok(Published::Yes),
        UnreadableField::Spec => {
            let message = format!(
                "this version of perfrun cannot read the spec: {error}. Another version wrote it, it was edited, or \
                 it is too large"
            );
            let values = (Status::False, Reason::Malformed, message.into());
            let generation = run.metadata.generation;
            let now = (services.clock)();
            let accepted = condition(&run.conditions, Type::Accepted, values, generation, now);
            if run.conditions.contains(&accepted) {
                return Ok(Published::Yes);
            }
            let status = json!({"conditions": [accepted]});
            write_status::<PerfRun>(&run.metadata, READER, &status, &services.client).await
        }
        UnreadableField::Status => {
            let message =
                format!("this version of perfrun cannot read the status and leaves the run alone: {error}");
            let event = event(false, Reason::StatusUnreadable, &message, "Read");
            publish_event(&event, reference, &services.recorder).await;
            Ok(Published::Yes)
        }
    }
}
