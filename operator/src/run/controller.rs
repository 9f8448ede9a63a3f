//! The driver: reconciles one run, step by step.
//!
//! | step | does | reaches the API server |
//! |---|---|---|
//! | [`observe`] | collects what is known of the run | no |
//! | [`decide`] | decides what to do, and where the run stands | no |
//! | [`apply`] | creates and deletes objects, commands the conductor | yes |
//! | [`publish`] | writes the status and its events | yes |
//!
//! Every reconciliation applies once, and writes the status at most once. A changed status is written even if
//! applying failed: whatever the API server answers becomes a condition, and with the condition the time that
//! the run may take begins. A status that the API server refuses is written smaller. A run whose status
//! nobody can write ends in its time as well, by the clock of this process.

use std::{sync::Arc, time::Duration};

use error_reporter::Report;
use kube::{
    Api, Resource, ResourceExt,
    runtime::{controller::Action, events::Event, reflector::ObjectRef},
};
use perfrun_api::{
    cluster::condition::Reason,
    spec::{PerfRun, PerfRunStatus},
};
use strum::IntoStaticStr;
use thiserror::Error;

use crate::{
    api::{
        call::{CallError, within_timeout},
        events::{event, publish_event},
        objects,
        publish::{self, Published, next_action, publish},
        watched::{LargeFields, WatchedRun},
    },
    run::{
        apply::{Applied, apply},
        conditions::has_ended,
        context::Context,
        decide::{after_failure, decide, keeps_pods},
        observe::{self, observe},
        refusal::Refusal,
        stage::Stage,
        status,
        turns::END_SHOWN_TIMEOUT,
        unreadable::report_unreadable,
    },
    services::Services,
};

/// Why a reconciliation failed, by step.
#[derive(Debug, Error, IntoStaticStr)]
pub(crate) enum Error {
    #[error("failed to read the run")]
    Read(#[source] CallError),
    #[error("failed to observe the run")]
    Observe(#[from] observe::Error),
    #[error("failed to publish the run's state")]
    Publish(#[from] publish::Error),
}

impl Error {
    /// A bounded value for metric labels, e.g. `Status`.
    fn category(&self) -> &'static str {
        match self {
            Self::Read(_) | Self::Observe(_) => self.into(),
            Self::Publish(error) => error.category(),
        }
    }
}

/// Reconciles one run.
pub(crate) async fn reconcile(watched: Arc<WatchedRun>, context: Arc<Context>) -> Result<Action, Error> {
    // A run whose pods are not known seems to have none, and another would begin beside it.
    context.are_pods_listed.wait().await;
    let began = tokio::time::Instant::now();
    let uid = watched.uid().unwrap_or_default();
    let result = match &*watched {
        WatchedRun::Readable(run, LargeFields::LeftOut) => reconcile_afresh(run, &context).await,
        WatchedRun::Readable(run, _) if context.turns.is_end_overdue(&uid) => {
            reconcile_afresh(run, &context).await
        }
        WatchedRun::Readable(run, _) => reconcile_readable(run, &context).await,
        WatchedRun::Unreadable(run) => {
            context.services.metrics.count_error("Unreadable");
            // What such a run would do is not known, so that no other run waits for it, except for its pods.
            context.turns.leave_unreadable(run);
            context.forget(&uid, false);
            let published = report_unreadable(run, &watched.object_ref(&()), &context.services).await;
            published
                .map(|published| next_action(published, None))
                .map_err(Error::from)
        }
    };
    context.services.metrics.count_reconciliation(began.elapsed());
    match &result {
        Ok(_) => context.times.note_success(&uid),
        Err(error) => {
            context.times.note_failure(&uid);
            context.services.metrics.count_error(error.category());
        }
    }
    let present = context.turns.runs.get(&ObjectRef::from_obj(&*watched));
    if present.is_none_or(|present| present.uid() != watched.uid()) {
        // It was deleted in the meantime, and nothing else ends what this reconciliation has begun.
        context.remove(&uid);
    }
    result
}

/// What to do after a reconciliation that failed.
pub(crate) fn after_error(run: Arc<WatchedRun>, error: &Error, context: Arc<Context>) -> Action {
    let (name, namespace) = (run.name_any(), run.namespace());
    let error = Report::new(error);
    tracing::warn!(run = name, namespace, %error, "reconciling failed");
    Action::requeue(context.times.pause(&run.uid().unwrap_or_default()))
}

/// Reconciles a run as the API server has it: its spec is not kept whole, or the watch does not show its end.
async fn reconcile_afresh(run: &PerfRun, context: &Context) -> Result<Action, Error> {
    let Services { client, memory, .. } = &*context.services;
    let _room = memory.for_unkept().await;
    let api: Api<WatchedRun> = Api::namespaced(client.clone(), &run.namespace().unwrap_or_default());
    let found = within_timeout(api.get_opt(&run.name_any())).await;
    match found.map_err(Error::Read)? {
        Some(WatchedRun::Readable(whole, _)) if whole.uid() == run.uid() => {
            let uid = run.uid().unwrap_or_default();
            let is_ended = whole.status.as_ref().is_some_and(has_ended);
            if is_ended && context.turns.is_end_overdue(&uid) {
                // Only the watch is late. A reconciliation by what it shows must not begin the run again.
                context.turns.renew_end(&uid);
                return Ok(Action::requeue(END_SHOWN_TIMEOUT));
            }
            reconcile_readable(&whole, context).await
        }
        // The watch shows soon what happened to it.
        _ => Ok(Action::await_change()),
    }
}

async fn reconcile_readable(run: &PerfRun, context: &Context) -> Result<Action, Error> {
    let previous = run.status.clone().unwrap_or_default();
    let observed = match observe(run, &previous, context) {
        // The watch wakes the run before, when it is up to date.
        Err(observe::Error::Stale) => return Ok(Action::requeue(END_SHOWN_TIMEOUT)),
        observed => observed?,
    };
    let (identity, inputs) = (&observed.identity, &observed.inputs);
    let mut decision = decide(inputs);
    match apply(run, &observed, &decision, context).await {
        Ok(Applied::All) => {}
        Ok(Applied::Partly) => decision.wake = Some(Duration::ZERO),
        Err(error) => {
            context.services.metrics.count_error(error.category());
            report(&error, &identity.label());
            let plan = inputs.planned.plan().map(AsRef::as_ref);
            let refusal = Refusal::of(&error, &identity.namespace, plan);
            decision = after_failure(decision, refusal, inputs);
        }
    }
    let outline = inputs.planned.outline();
    let next = status::next(inputs, run.metadata.generation, &decision.stage);
    let events = status::events(&previous, &next, outline, &decision.stage);
    let published = publish_what_fits(run, &previous, &next, &events, &context.services).await;
    let is_written = matches!(published, Ok(Published::Yes));
    let (uid, stands_back) = (identity.uid.clone(), inputs.stood_back().is_some());
    let keeps = keeps_pods(&run.spec, &next) && !inputs.kept_pods.is_zero();
    let (now, instant) = (inputs.now, inputs.instant);
    context
        .times
        .note_stage(&uid, &decision.stage, is_written, now, instant);
    match decision.stage {
        Stage::Unchanged => context.forget(&uid, keeps && !inputs.deleting),
        Stage::Rejected(_) | Stage::Ending { .. } if is_written => context.note_end(&uid, keeps),
        Stage::Rejected(_) | Stage::Ending { .. } if stands_back => context.note_stood_back(&uid),
        Stage::Held(_) => context.give_up_turn(&uid),
        _ => {}
    }
    // The run gives back a turn that it could not use.
    drop(observed);
    let has_tried = matches!(decision.stage, Stage::Provisioning { .. });
    if is_written && has_tried && !context.turns.is_active(&uid) {
        // The API server refused the first object. Another run comes first now.
        context.turns.wake_first();
    }
    Ok(next_action(published?, decision.wake))
}

/// Publishes the status, or what the API server takes of it: a status that is too large, or has names that an
/// older CRD does not know, must not keep the run from ending.
async fn publish_what_fits(
    run: &PerfRun,
    previous: &PerfRunStatus,
    next: &PerfRunStatus,
    events: &[Event],
    services: &Services,
) -> Result<Published, publish::Error> {
    let Services { client, recorder, .. } = services;
    let refused = match publish(run, previous, next, events, client, recorder).await {
        Err(error) if error.refuses_content() => error,
        published => return published,
    };
    for smaller in status::smaller(next) {
        let published = publish(run, previous, &smaller, events, client, recorder).await;
        if matches!(&published, Err(error) if error.refuses_content()) {
            continue;
        }
        if matches!(published, Ok(Published::Yes)) && smaller != *previous {
            let refused = Report::new(&refused);
            let why =
                format!("only a part of the status is written, and the results are complete: {refused}");
            let event = event(false, Reason::ApiServerRefuses, &why, "Publish");
            publish_event(&event, &run.object_ref(&()), recorder).await;
        }
        return published;
    }
    Err(refused)
}

fn report(error: &objects::Error, run: &str) {
    let category = error.category();
    let error = Report::new(error);
    tracing::warn!(run, category, %error, "the decision was not carried out");
}

#[cfg(test)]
mod tests;
