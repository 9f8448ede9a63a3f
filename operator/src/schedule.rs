//! The driver of schedules: reconciles one schedule.
//!
//! Like that of runs, it observes, decides, applies and publishes. Runs are created and deleted, and never
//! changed: how a run proceeds does not depend on its schedule.

mod decide;
mod pauses;

use std::sync::Arc;

use error_reporter::Report;
use futures::{StreamExt, future};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::{
    Api, Resource, ResourceExt,
    api::ListParams,
    core::error_boundary::InvalidObject,
    runtime::{
        Controller, WatchStreamExt,
        controller::{self, Action},
        reflector::{self, ObjectRef, Store},
        watcher,
    },
};
use perfrun_api::{
    cluster::condition::{self, Reason, Type},
    pod::Cause,
    schedule::{EndedRun, PerfSchedule, due},
    spec::PerfRun,
};
use perfrun_contract::plan::Order;
use tokio::sync::mpsc;
use tokio_stream::wrappers::UnboundedReceiverStream;

pub(crate) use self::pauses::Pauses;
use self::{
    decide::{Decision, Inputs, OwnedRun, after_failure, decide, events},
    pauses::key,
};
use crate::{
    api::{
        call::within_timeout,
        events::{event, publish_event},
        objects::{self, Existing},
        publish::{self, next_action, publish},
        watched::{LargeFields, WatchedRun, WatchedSchedule},
    },
    process::watch::{note_failure, watch},
    run::{conditions::has_ended, plans},
    services::Services,
};

/// Most reconciliations of schedules at the same time: those of one namespace must not take all requests that
/// the API server grants to the operator.
const RECONCILIATIONS_MAX: u16 = 8;

/// The longest sentence about a run in the history, in characters.
const SENTENCE_MAX: usize = 200;

/// What reconciliations of schedules share.
pub(crate) struct Context {
    pub(crate) services: Arc<Services>,
    /// Runs, as the watch shows them.
    pub(crate) runs: Store<WatchedRun>,
    pub(crate) pauses: Pauses,
}

/// Reconciles all schedules. Does not end on its own.
pub(crate) async fn reconcile_schedules(
    context: Context,
    namespaces: &[String],
    woken: mpsc::UnboundedReceiver<ObjectRef<WatchedSchedule>>,
) {
    // Before that, no schedule would seem to have a run.
    if context.runs.wait_until_ready().await.is_err() {
        return;
    }
    let (schedules, writer) = reflector::store();
    let (services, pauses) = (context.services.clone(), context.pauses.clone());
    services.metrics.export_schedules(Some(schedules.clone()));
    let memory = services.memory.clone();
    let keep = move |schedule: &mut WatchedSchedule| schedule.keep_within(|bytes| memory.for_spec(bytes));
    let changes = watch::<WatchedSchedule>(&services.client, namespaces, watcher::Config::default(), keep)
        .reflect(writer)
        .applied_objects();
    Controller::for_stream(changes, schedules)
        .with_config(controller::Config::default().concurrency(RECONCILIATIONS_MAX))
        .reconcile_on(UnboundedReceiverStream::new(woken))
        .run(reconcile, after_error, Arc::new(context))
        .for_each(|result| {
            if let Err(controller::Error::ObjectNotFound(schedule)) = &result {
                pauses.forget(&(schedule.namespace.clone(), schedule.name.clone()));
            }
            note_failure(result, &services.metrics);
            future::ready(())
        })
        .await;
}

/// Wakes the schedules whose runs have changed. The cache of the watch has them already.
pub(crate) fn wake_owners(
    event: &watcher::Event<WatchedRun>,
    runs: &Store<WatchedRun>,
    wake: &mpsc::UnboundedSender<ObjectRef<WatchedSchedule>>,
) {
    let wake_owner = |run: &WatchedRun| {
        if let Some(schedule) = owner(run) {
            // Nobody listens when the operator ends.
            let _ = wake.send(schedule);
        }
    };
    match event {
        watcher::Event::Apply(run) | watcher::Event::Delete(run) => wake_owner(run),
        watcher::Event::InitDone => runs.state().iter().for_each(|run| wake_owner(run)),
        watcher::Event::Init | watcher::Event::InitApply(_) => {}
    }
}

/// The schedule that a run belongs to.
fn owner(run: &WatchedRun) -> Option<ObjectRef<WatchedSchedule>> {
    let kind = PerfSchedule::kind(&());
    let mut owners = run.owner_references().iter();
    let owner = owners.find(|owner| owner.controller == Some(true) && owner.kind == kind)?;
    Some(ObjectRef::new(&owner.name).within(&run.namespace()?))
}

/// Reconciles one schedule.
async fn reconcile(watched: Arc<WatchedSchedule>, context: Arc<Context>) -> Result<Action, publish::Error> {
    let result = match &watched.0 {
        Ok(schedule) if schedule.metadata.deletion_timestamp.is_none() => match watched.1 {
            LargeFields::LeftOut => reconcile_unkept(schedule, &context).await,
            _ => reconcile_readable(schedule, &context).await,
        },
        left_alone => {
            context.pauses.forget(&key(watched.meta()));
            if let Err(invalid) = left_alone {
                report_unreadable(&watched, invalid, &context).await;
            }
            Ok(Action::await_change())
        }
    };
    if let Err(error) = &result {
        context.services.metrics.count_error(error.category());
    }
    result
}

fn after_error(schedule: Arc<WatchedSchedule>, error: &publish::Error, context: Arc<Context>) -> Action {
    let (name, namespace) = (schedule.name_any(), schedule.namespace());
    let error = Report::new(error);
    tracing::warn!(schedule = name, namespace, %error, "reconciling failed");
    Action::requeue(context.pauses.begin(schedule.meta()))
}

async fn report_unreadable(watched: &WatchedSchedule, invalid: &InvalidObject, context: &Context) {
    context.services.metrics.count_error("Unreadable");
    let message = format!(
        "this version of perfrun cannot read the schedule and creates no runs: {invalid}. Another version wrote it, \
         it was edited, or it is too large"
    );
    let event = event(false, Reason::Unreadable, &message, "Read");
    publish_event(&event, &watched.object_ref(&()), &context.services.recorder).await;
}

/// Reconciles a schedule whose spec is not kept whole. The API server has it, and the operator may list
/// schedules, but not get one.
async fn reconcile_unkept(schedule: &PerfSchedule, context: &Context) -> Result<Action, publish::Error> {
    let Services {
        client,
        memory,
        metrics,
        ..
    } = &*context.services;
    let _room = memory.for_unkept().await;
    let namespace = schedule.namespace().unwrap_or_default();
    let api: Api<WatchedSchedule> = Api::namespaced(client.clone(), &namespace);
    let params = ListParams::default().fields(&format!("metadata.name={}", schedule.name_any()));
    let found = match within_timeout(api.list(&params)).await {
        Ok(mut list) => list.items.pop(),
        Err(error) => {
            metrics.count_error("Read");
            let name = schedule.name_any();
            tracing::warn!(schedule = name, namespace, %error, "failed to read the schedule");
            return Ok(Action::requeue(context.pauses.begin(&schedule.metadata)));
        }
    };
    match found {
        Some(WatchedSchedule(Ok(whole), _)) if whole.uid() == schedule.uid() => {
            reconcile_readable(&whole, context).await
        }
        // The watch shows soon what happened to it.
        _ => Ok(Action::await_change()),
    }
}

async fn reconcile_readable(schedule: &PerfSchedule, context: &Context) -> Result<Action, publish::Error> {
    let Context { services, pauses, .. } = context;
    let Services { client, recorder, .. } = &**services;
    let previous = schedule.status.clone().unwrap_or_default();
    let runs = context.runs.state();
    let mut runs: Vec<_> = runs.iter().filter_map(|run| owned_run(run, schedule)).collect();
    runs.sort_by(|a, b| a.name.cmp(&b.name));
    let pause = pauses.remaining(&schedule.metadata);
    let inputs = Inputs {
        schedule,
        status: &previous,
        runs: &runs,
        is_paused: pause.is_some(),
        now: (services.clock)(),
    };
    let mut decision = decide(&inputs);
    // First, because a quota may count them.
    let expired = delete(schedule, &decision.expire, context).await;
    let created = create_due_run(schedule, &decision, context).await;
    for error in [&expired, &created]
        .into_iter()
        .filter_map(|done| done.as_ref().err())
    {
        report(error, schedule, context);
    }
    // A few runs that cannot be deleted keep no other run from being created.
    let expired = expired.err().filter(|_| decision.waits_for_deletions);
    let failure = created.err().or(expired);
    if let Some(error) = &failure {
        decision = after_failure(decision, cause(error), &inputs);
    }
    let events = events(&previous, &decision);
    let published = publish(schedule, &previous, &decision.status, &events, client, recorder).await?;
    let pause = match failure.is_some() {
        true => Some(pauses.begin(&schedule.metadata)),
        false => pause,
    };
    if pause.is_none() {
        pauses.forget(&key(&schedule.metadata));
    }
    Ok(next_action(
        published,
        decision.wake.into_iter().chain(pause).min(),
    ))
}

/// Creates the run that is due, in place of others.
async fn create_due_run(
    schedule: &PerfSchedule,
    decision: &Decision,
    context: &Context,
) -> Result<(), objects::Error> {
    delete(schedule, &decision.replace, context).await?;
    match decision.create {
        Some(due) => {
            let (run, uid) = (schedule.run(due), schedule.uid().unwrap_or_default());
            objects::create_object(
                run,
                "schedule",
                &uid,
                Existing::MustBelongToOwner,
                &context.services.client,
            )
            .await
        }
        None => Ok(()),
    }
}

/// Deletes runs at the same time. A decision has few of them.
async fn delete(schedule: &PerfSchedule, runs: &[OwnedRun], context: &Context) -> Result<(), objects::Error> {
    let namespace = schedule.namespace().unwrap_or_default();
    let deletions = runs
        .iter()
        .map(|run| objects::remove_run(&namespace, &run.name, &run.uid, &context.services.client));
    future::join_all(deletions).await.into_iter().collect()
}

fn report(error: &objects::Error, schedule: &PerfSchedule, context: &Context) {
    context.services.metrics.count_error(error.category());
    let (name, namespace) = (schedule.name_any(), schedule.namespace());
    let error = Report::new(error);
    tracing::warn!(schedule = name, namespace, %error, "the decision was not carried out");
}

/// What an error means for the schedule.
fn cause(error: &objects::Error) -> Cause {
    let reason = match error {
        objects::Error::NameConflict { .. } => Reason::NameConflict,
        objects::Error::Create { source, .. }
        | objects::Error::Find { source, .. }
        | objects::Error::DeletePods(source)
        | objects::Error::DeleteRun(source) => source.reason(),
    };
    Cause::new(reason, Report::new(error).to_string())
}

/// A run, if the schedule owns it. A run that has ended and cannot be read counts as not owned: what it found
/// is not known.
fn owned_run(run: &WatchedRun, schedule: &PerfSchedule) -> Option<OwnedRun> {
    let mut owners = run.owner_references().iter();
    owners
        .find(|owner| owner.controller == Some(true) && schedule.metadata.uid.as_ref() == Some(&owner.uid))?;
    let ended = match run {
        WatchedRun::Readable(run, _) => ended_run(run, schedule),
        WatchedRun::Unreadable(run) if run.has_ended() => return None,
        WatchedRun::Unreadable(_) => None,
    };
    Some(OwnedRun {
        name: run.name_any(),
        uid: run.uid()?,
        deleting: run.meta().deletion_timestamp.is_some(),
        ended,
    })
}

/// What a run found. `None` if it has not ended.
fn ended_run(run: &PerfRun, schedule: &PerfSchedule) -> Option<EndedRun> {
    let state = run.status.as_ref().filter(|state| has_ended(state))?;
    let name = run.name_any();
    let due = due(&schedule.name_any(), &name).or_else(|| Some(run.creation_timestamp()?.0))?;
    let of = |type_| condition::find(&state.conditions, type_);
    let verdict = of(Type::Verdict).filter(|_| state.verdict.is_some());
    let sentence = verdict.or_else(|| of(Type::Complete))?;
    Some(EndedRun {
        name,
        schedule_time: Time(due),
        completion_time: state.completion_time.clone(),
        phase: state.phase?,
        verdict: state.verdict,
        seed: plans::seed_of(run).filter(|_| run.spec.order == Order::Interleaved),
        message: sentence.message.chars().take(SENTENCE_MAX).collect(),
    })
}

#[cfg(test)]
mod tests;
