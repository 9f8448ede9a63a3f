//! What happens to a schedule now: a function of its document, of its runs, and of the time.

use std::{cmp::Reverse, iter, time::Duration};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{
    api::core::v1::ObjectReference,
    apimachinery::pkg::apis::meta::v1::{Condition, Time},
};
use kube::{Resource, ResourceExt, runtime::events::Event};
use perfrun_api::{
    cluster::condition::{self, Reason, Status, Type},
    planning::plan,
    pod::Cause,
    schedule::{
        ConcurrencyPolicy, EndedRun, Error, HISTORY_MAX, PerfSchedule, PerfScheduleStatus, Timetable,
        run_name,
    },
    spec::PerfRun,
};
use perfrun_contract::{compare::Verdict, run::Phase};

use crate::api::{
    conditions::{ConditionValues, condition},
    events::event,
};

/// How many runs may be missed without a warning, as in a CronJob. More show that the operator or its clock
/// has stopped.
const MISSED_MAX: usize = 100;

/// Most runs of a schedule that have not ended, whatever its policy. Behind a run that lasts a week, runs of
/// every five minutes would be two thousand.
const ACTIVE_MAX: usize = 3;

/// From this number of runs beyond the limits, no run is created before they are gone. They would pile up if
/// a finalizer kept them, or if the API server refused their deletion or the status with what they found.
const BEYOND_MAX: usize = 3;

/// Most runs that a reconciliation deletes for one reason. All are deleted at the same time, so that it takes
/// no longer than one call of the API server may.
const DELETIONS_MAX: usize = 8;

/// The longest time until the next reconciliation: clocks are set, and machines sleep.
const WAKE_MAX: Duration = Duration::from_secs(300);

/// What a decision depends on.
pub(crate) struct Inputs<'a> {
    pub(crate) schedule: &'a PerfSchedule,
    /// The status as the API server has it.
    pub(crate) status: &'a PerfScheduleStatus,
    /// The runs that the schedule owns.
    pub(crate) runs: &'a [OwnedRun],
    /// Whether a request has failed, and the next one is not due yet.
    pub(crate) is_paused: bool,
    pub(crate) now: Timestamp,
}

/// A run of a schedule.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct OwnedRun {
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) deleting: bool,
    /// What it found. `None` if it has not ended.
    pub(crate) ended: Option<EndedRun>,
}

/// What to do, and where the schedule stands.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Decision {
    /// Active runs to delete, because the next one replaces them.
    pub(crate) replace: Vec<OwnedRun>,
    /// When the run to create is due.
    pub(crate) create: Option<Timestamp>,
    /// The status once all of it is done.
    pub(crate) status: PerfScheduleStatus,
    /// Runs beyond the limits, to delete: the status that the API server has says what they found. None while
    /// requests pause.
    pub(crate) expire: Vec<OwnedRun>,
    /// Whether the run that is due waits for deletions.
    pub(crate) waits_for_deletions: bool,
    /// Whether more than [`MISSED_MAX`] runs were missed.
    missed_many: bool,
    /// When to decide again if nothing changes.
    pub(crate) wake: Option<Duration>,
}

/// Decides what happens to a schedule, and where it stands.
pub(crate) fn decide(inputs: &Inputs<'_>) -> Decision {
    let Inputs { schedule, now, .. } = *inputs;
    let status = observed_status(inputs);
    let beyond = runs_beyond_limits(inputs);
    let is_written =
        |run: &OwnedRun| has_run(&inputs.status.history, &run.name) || !has_run(&status.history, &run.name);
    let written = beyond.iter().filter(|run| !inputs.is_paused && is_written(run));
    let expire: Vec<_> = written.take(DELETIONS_MAX).cloned().collect();
    let mut decision = Decision {
        replace: vec![],
        create: None,
        wake: (!expire.is_empty()).then_some(WAKE_MAX),
        status,
        expire,
        waits_for_deletions: false,
        missed_many: false,
    };
    let timetable = match accept(inputs) {
        Ok(timetable) => timetable,
        Err(Cause { reason, message }) => {
            set_condition(
                &mut decision.status,
                Type::Accepted,
                (Status::False, reason, message.into()),
                inputs,
            );
            return decision;
        }
    };
    let next = timetable.after(now);
    let accepted = match next {
        _ if schedule.spec.suspend => (
            Status::True,
            Reason::Suspended,
            "set spec.suspend to false to create runs".into(),
        ),
        Some(next) => {
            let message = format!("the next run is due at {}", timetable.local(next));
            (Status::True, Reason::Valid, message.into())
        }
        None => (Status::True, Reason::Valid, "no run is due any more".into()),
    };
    set_condition(&mut decision.status, Type::Accepted, accepted, inputs);
    decision.wake = Some(next.map_or(WAKE_MAX, |next| time_until(next, now).min(WAKE_MAX)));
    if !schedule.spec.suspend {
        let kept = inputs
            .runs
            .iter()
            .filter(|run| run.deleting && run.ended.is_some());
        decide_due_run(&mut decision, &timetable, beyond.len() + kept.count(), inputs);
    }
    decision
}

/// The decision after the run could not be created, or another not be deleted. The run stays due.
pub(crate) fn after_failure(decision: Decision, cause: Cause, inputs: &Inputs<'_>) -> Decision {
    let mut failed = Decision {
        create: None,
        missed_many: false,
        ..decision
    };
    failed.status.last_schedule_time = inputs.status.last_schedule_time.clone();
    let Cause { reason, message } = cause;
    set_condition(
        &mut failed.status,
        Type::Scheduled,
        (Status::False, reason, message.into()),
        inputs,
    );
    failed
}

/// The events that report a decision that has been carried out.
pub(crate) fn events(previous: &PerfScheduleStatus, decision: &Decision) -> Vec<Event> {
    let mut events = vec![];
    for ended in decision.status.history.iter().rev() {
        if !has_run(&previous.history, &ended.name) {
            let verdict = ended.verdict.map(|verdict| format!(", {verdict}"));
            let text = format!(
                "{} ended as {}{}: {}",
                ended.name,
                ended.phase,
                verdict.unwrap_or_default(),
                ended.message
            );
            events.push(event(ended.is_successful(), Reason::RunEnded, &text, "Judge"));
        }
    }
    if decision.missed_many {
        let text = format!(
            "more than {MISSED_MAX} runs were missed, and only the last one is created: set \
             spec.startingDeadlineSeconds, and check the operator and its clock"
        );
        events.push(event(
            false,
            Reason::TooManyMissedTimes,
            &text,
            Type::Scheduled.as_ref(),
        ));
    }
    for condition in &decision.status.conditions {
        let Condition {
            type_,
            status,
            reason,
            message,
            ..
        } = condition;
        let (Ok(known), Ok(status)) = (type_.parse(), status.parse()) else {
            continue;
        };
        let is_new = find_condition(previous, known)
            .is_none_or(|old| (&old.reason, &old.message) != (reason, message));
        match (known, status) {
            (Type::Accepted | Type::Scheduled, Status::False) if is_new => {
                events.push(event(false, reason, message, type_));
            }
            (Type::Scheduled, Status::True) if is_new => events.push(event(true, reason, message, type_)),
            _ => {}
        }
    }
    events
}

/// The status with what the runs show.
fn observed_status(inputs: &Inputs<'_>) -> PerfScheduleStatus {
    let Inputs {
        schedule,
        status: previous,
        runs,
        ..
    } = *inputs;
    let mut history = previous.history.clone();
    for ended in runs.iter().filter_map(|run| run.ended.as_ref()) {
        // A run that has ended does not change. A newer version may have written more of it.
        if !has_run(&history, &ended.name) {
            history.push(ended.clone());
        }
    }
    history.sort_by_key(|run| Reverse(run.schedule_time.0));
    history.truncate(HISTORY_MAX);
    let successes = history.iter().filter(|run| run.is_successful());
    let last = successes.filter_map(|run| run.completion_time.as_ref());
    PerfScheduleStatus {
        observed_generation: schedule.metadata.generation,
        active: active_runs(runs).map(|run| reference(run, schedule)).collect(),
        last_schedule_time: previous.last_schedule_time.clone(),
        last_successful_time: last
            .chain(&previous.last_successful_time)
            .max_by_key(|time| time.0)
            .cloned(),
        history,
        reason: previous.reason.clone(),
        conditions: previous.conditions.clone(),
    }
}

/// Whether runs can be created, and when. A template is planned once for each generation.
fn accept(inputs: &Inputs<'_>) -> Result<Timetable, Cause> {
    let PerfSchedule { metadata, spec, .. } = inputs.schedule;
    let timetable = Timetable::new(spec).map_err(|error| {
        let reason = match error {
            Error::Schedule { .. } | Error::Never(_) => Reason::InvalidSchedule,
            Error::TimeZone(_) => Reason::UnknownTimeZone,
        };
        Cause::new(reason, error.to_string())
    })?;
    let was_accepted = |old: &&Condition| {
        condition::has_status(old, Status::True)
            && old.observed_generation == metadata.generation
            && metadata.generation.is_some()
    };
    if find_condition(inputs.status, Type::Accepted)
        .filter(was_accepted)
        .is_none()
    {
        plan(&spec.run_template.spec).map_err(|error| {
            Cause::new(Reason::InvalidTemplate, format!("spec.runTemplate.spec: {error}"))
        })?;
    }
    Ok(timetable)
}

/// Decides to create the last run that is due, unless it exists or waits. `beyond` is the number of runs
/// beyond the limits that still exist.
fn decide_due_run(decision: &mut Decision, timetable: &Timetable, beyond: usize, inputs: &Inputs<'_>) {
    let Inputs {
        schedule, runs, now, ..
    } = *inputs;
    let spec = &schedule.spec;
    let last = inputs.status.last_schedule_time.clone();
    let last = last.or_else(|| schedule.creation_timestamp());
    // A time in the future was written when the clock was wrong.
    let since = last.map_or(now, |last| last.0.min(now));
    let Some(due) = timetable.until(now).filter(|due| *due > since) else {
        if find_condition(&decision.status, Type::Scheduled).is_none() {
            let values = (Status::Unknown, Reason::NotDue, "no run has been due".into());
            set_condition(&mut decision.status, Type::Scheduled, values, inputs);
        }
        return;
    };
    let name = run_name(&schedule.name_any(), due);
    let at = timetable.local(due);
    if runs.iter().any(|run| run.name == name) || has_run(&decision.status.history, &name) {
        // The run was created, and the status was not written.
        return set_created(
            decision,
            due,
            &format!("created {name}, which was due at {at}"),
            inputs,
        );
    }
    let deadline = spec
        .starting_deadline_seconds
        .map(|seconds| now - SignedDuration::from_secs(seconds.into()));
    if deadline.is_some_and(|deadline| due < deadline) {
        let message = format!("the run that was due at {at} is missed: spec.startingDeadlineSeconds is over");
        let values = (Status::False, Reason::DeadlineMissed, message.into());
        return set_condition(&mut decision.status, Type::Scheduled, values, inputs);
    }
    if let Some(awaited) = awaited(spec.concurrency_policy, runs) {
        let message = format!("the run that was due at {at} waits until {awaited}");
        let values = (Status::False, Reason::RunActive, message.into());
        return set_condition(&mut decision.status, Type::Scheduled, values, inputs);
    }
    if inputs.is_paused {
        // The status has the reason.
        return;
    }
    if beyond >= BEYOND_MAX {
        return wait_for_deletions(decision, &at, inputs);
    }
    let mut message = format!("created {name}, which was due at {at}");
    if spec.concurrency_policy == ConcurrencyPolicy::Replace
        && let Some(earlier) = active_runs(runs).next()
    {
        let mut replaced = active_runs(runs).filter(|run| !run.deleting);
        decision.replace = replaced.by_ref().take(DELETIONS_MAX).cloned().collect();
        if replaced.next().is_some() {
            return wait_for_deletions(decision, &at, inputs);
        }
        message = format!("{message}, in place of {}, which had not ended", earlier.name);
    }
    let counted = deadline.map_or(since, |deadline| since.max(deadline));
    let mut missed = iter::successors(timetable.after(counted), |time| timetable.after(*time));
    decision.missed_many = missed.nth(MISSED_MAX).is_some_and(|time| time <= now);
    decision.create = Some(due);
    set_created(decision, due, &message, inputs);
}

/// What the run that is due waits for. `None` if it does not wait.
fn awaited(policy: ConcurrencyPolicy, runs: &[OwnedRun]) -> Option<String> {
    let replaces = policy == ConcurrencyPolicy::Replace;
    let active: Vec<_> = active_runs(runs)
        .filter(|run| run.deleting || !replaces)
        .collect();
    let earliest = &active.first()?.name;
    match policy {
        ConcurrencyPolicy::Forbid => Some(format!("{earliest} has ended")),
        ConcurrencyPolicy::Allow | ConcurrencyPolicy::Replace => (active.len() >= ACTIVE_MAX)
            .then(|| format!("{earliest} or another of {} runs has ended", active.len())),
    }
}

fn wait_for_deletions(decision: &mut Decision, at: &str, inputs: &Inputs<'_>) {
    decision.waits_for_deletions = true;
    let message = format!("the run that was due at {at} waits until earlier runs are deleted");
    let values = (Status::False, Reason::RunsNotDeleted, message.into());
    set_condition(&mut decision.status, Type::Scheduled, values, inputs);
}

fn set_created(decision: &mut Decision, due: Timestamp, message: &str, inputs: &Inputs<'_>) {
    decision.status.last_schedule_time = Some(Time(due));
    let values = (Status::True, Reason::RunCreated, message.into());
    set_condition(&mut decision.status, Type::Scheduled, values, inputs);
}

/// Runs beyond the limits: the oldest ones that have ended, without those with a phase or a verdict of a
/// newer version.
fn runs_beyond_limits(inputs: &Inputs<'_>) -> Vec<OwnedRun> {
    let spec = &inputs.schedule.spec;
    let beyond = |successful: bool, limit: u32| {
        let ended = inputs
            .runs
            .iter()
            .filter_map(|run| Some((run.ended.as_ref()?, run)))
            // Whether such a run has succeeded is not known.
            .filter(|(ended, _)| {
                !matches!(ended.phase, Phase::Newer(_)) && !matches!(ended.verdict, Some(Verdict::Newer(_)))
            });
        let mut kept: Vec<_> = ended
            .filter(|(ended, run)| ended.is_successful() == successful && !run.deleting)
            .collect();
        kept.sort_by_key(|(ended, _)| Reverse(ended.schedule_time.0));
        kept.into_iter()
            .skip(usize::try_from(limit).unwrap_or(usize::MAX))
            .map(|(_, run)| run.clone())
    };
    beyond(true, spec.successful_runs_history_limit)
        .chain(beyond(false, spec.failed_runs_history_limit))
        .collect()
}

/// Whether a history has the run of this name.
fn has_run(history: &[EndedRun], name: &str) -> bool {
    history.iter().any(|ended| ended.name == name)
}

fn active_runs(runs: &[OwnedRun]) -> impl Iterator<Item = &OwnedRun> {
    runs.iter().filter(|run| run.ended.is_none())
}

fn reference(run: &OwnedRun, schedule: &PerfSchedule) -> ObjectReference {
    ObjectReference {
        api_version: Some(PerfRun::api_version(&()).into_owned()),
        kind: Some(PerfRun::kind(&()).into_owned()),
        name: Some(run.name.clone()),
        namespace: schedule.namespace(),
        uid: Some(run.uid.clone()),
        ..ObjectReference::default()
    }
}

fn find_condition(status: &PerfScheduleStatus, type_: Type) -> Option<&Condition> {
    condition::find(&status.conditions, type_)
}

fn set_condition(
    status: &mut PerfScheduleStatus,
    type_: Type,
    values: ConditionValues<'_>,
    inputs: &Inputs<'_>,
) {
    let generation = inputs.schedule.metadata.generation;
    let condition = condition(&inputs.status.conditions, type_, values, generation, inputs.now);
    status.conditions.retain(|old| old.type_ != type_.as_ref());
    status.conditions.push(condition);
    status.conditions.sort_by(|a, b| a.type_.cmp(&b.type_));
    let creates_none = |accepted: &&Condition| {
        !condition::has_status(accepted, Status::True) || accepted.reason == Reason::Suspended.as_ref()
    };
    let accepted = find_condition(status, Type::Accepted).filter(creates_none);
    let main = accepted.or_else(|| find_condition(status, Type::Scheduled));
    status.reason = main.map(|main| main.reason.clone());
}

fn time_until(time: Timestamp, now: Timestamp) -> Duration {
    time.duration_since(now).max(SignedDuration::ZERO).unsigned_abs()
}

#[cfg(test)]
mod tests;
