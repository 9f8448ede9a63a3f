//! The status of a run and its events, as functions of values.

use std::borrow::Cow;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::runtime::events::{Event, EventType};
use perfrun_api::{
    cluster::condition::{
        self, ACCEPTED, COMPLETE, LINKS_VERIFIED, PROVISIONED, RUNNING, SAMPLES_MERGED, VERDICT,
    },
    spec::{PerfRunStatus, TrialCounts},
};
use perfrun_contract::{
    compare::Judged, record::Metric, run::Phase, summary::SummaryRow, tally::Counts, text::plain,
};

use crate::{
    links::{AS_CONFIGURED, NOT_EFFECTIVE},
    plans::Outline,
    refusal::UNSUPPORTED,
    stage::{Progress, Stage},
    verdict::{self, Expected},
};

/// The largest number of rows in `status.summary`: an object of the API server holds some hundred KiB.
const ROWS_MAX: usize = 256;
/// The metrics that are kept if not all fit.
const FIRST: [Metric; 6] = [
    Metric::UploadGoodput,
    Metric::DownloadGoodput,
    Metric::OpenMean,
    Metric::HandshakeFirstByteP50,
    Metric::RoundTripP50,
    Metric::CpuSecondsPerGiB,
];
/// The longest message of a condition, in characters.
const MESSAGE_MAX: usize = 2000;
/// The longest note of an event, in characters: the API server allows 1024 bytes.
const NOTE_MAX: usize = 1000;

/// Whether a run has ended. The status of such a run no longer changes.
pub(crate) fn has_ended(status: &PerfRunStatus) -> bool {
    condition::has_ended(&status.conditions)
}

/// Whether a run is starting its nodes, whatever a newer version calls its phase.
pub(crate) fn is_provisioning(status: &PerfRunStatus) -> bool {
    phase(&status.conditions) == Phase::Provisioning
}

/// Whether a run's trials are in progress, whatever a newer version calls its phase.
pub(crate) fn is_running(status: &PerfRunStatus) -> bool {
    phase(&status.conditions) == Phase::Running
}

/// The condition of a type.
pub(crate) fn find<'a>(status: &'a PerfRunStatus, type_: &str) -> Option<&'a Condition> {
    status
        .conditions
        .iter()
        .find(|condition| condition.type_ == type_)
}

/// Since when a condition has had a status. `None` if it has another one.
pub(crate) fn since(status: &PerfRunStatus, type_: &str, is: &str) -> Option<Timestamp> {
    let condition = find(status, type_)?;
    (condition.status == is).then_some(condition.last_transition_time.0)
}

/// The status after a decision.
pub(crate) fn next(
    previous: &PerfRunStatus,
    generation: Option<i64>,
    outline: Option<&Outline>,
    stage: &Stage,
    now: Timestamp,
) -> PerfRunStatus {
    if *stage == Stage::Over {
        return previous.clone();
    }
    let mut status = PerfRunStatus {
        observed_generation: generation,
        start_time: previous.start_time.clone().or(Some(Time(now))),
        trials: outline.map_or_else(TrialCounts::default, |outline| trials(outline, previous, stage)),
        ..previous.clone()
    };
    let mut set = |type_: &str, verdict: ConditionParts<'_>| {
        let condition = condition(&previous.conditions, type_, verdict, generation, now);
        match status.conditions.iter_mut().find(|old| old.type_ == type_) {
            Some(old) => *old = condition,
            None => status.conditions.push(condition),
        }
    };
    set(ACCEPTED, accepted(outline, stage));
    set(PROVISIONED, provisioned(previous, outline, stage));
    set(RUNNING, running(previous, stage));
    if let Some(networks) = outline.map(|outline| outline.networks).filter(|count| *count > 0) {
        set(LINKS_VERIFIED, links_verified(previous, networks, stage));
    }
    if let Some(expected) = outline.and_then(|outline| outline.expected.as_deref()) {
        set(VERDICT, verdict(expected, stage));
    }
    if let Some(message) = merged(stage) {
        set(SAMPLES_MERGED, ("True", "ResultsTooLarge", message.into()));
    }
    set(COMPLETE, complete(stage));
    if let Stage::Ended { outcome, .. } = stage {
        status.completion_time = Some(Time(now));
        if let Some(outcome) = outcome {
            status.summary = bounded(&outcome.summary);
            status.results.clone_from(&outcome.results);
            status.store.clone_from(&outcome.stored);
            if let Some(judged) = &outcome.judged {
                status.verdict = judged.verdict;
                status.comparisons = verdict::bounded(&judged.comparisons);
            }
        }
    }
    if let Stage::Rejected(_) = stage {
        status.completion_time = Some(Time(now));
    }
    status.phase = Some(phase(&status.conditions));
    #[cfg(next)]
    if let Some(known @ (Phase::Running | Phase::Succeeded)) = status.phase {
        status.next = Some(format!("{known} in the next version"));
        status.phase = Some(Phase::Next);
    }
    status
}

/// Status, reason and message of a condition.
pub(crate) type ConditionParts<'a> = (&'static str, &'a str, Cow<'a, str>);

fn accepted<'a>(outline: Option<&Outline>, stage: &'a Stage) -> ConditionParts<'a> {
    match (stage, outline) {
        (Stage::Rejected(trouble), _) => ("False", trouble.reason, Cow::from(&trouble.message)),
        (_, Some(outline)) => {
            let Outline {
                trials,
                may_end_early,
                cells,
                nodes,
                skipped,
                ..
            } = outline;
            let skipped = match &outline.first_skipped {
                None => String::new(),
                Some(reason) => format!("; {skipped} cells skipped, the first because {reason}"),
            };
            let at_most = if *may_end_early { "up to " } else { "" };
            let message = format!("{at_most}{trials} trials of {cells} cells on {nodes} nodes{skipped}");
            ("True", "Valid", message.into())
        }
        (_, None) => ("Unknown", "NotPlanned", "".into()),
    }
}

fn provisioned<'a>(
    previous: &PerfRunStatus,
    outline: Option<&Outline>,
    stage: &'a Stage,
) -> ConditionParts<'a> {
    match stage {
        Stage::Held(trouble) => ("Unknown", trouble.reason, Cow::from(&trouble.message)),
        Stage::Provisioning { ready, trouble } => match trouble {
            Some(trouble) => ("False", trouble.reason, Cow::from(&trouble.message)),
            None => {
                let nodes = outline.map_or(0, |outline| outline.nodes);
                (
                    "False",
                    "Starting",
                    format!("{ready} of {nodes} nodes are ready").into(),
                )
            }
        },
        Stage::Running(_) => ("True", "Ready", "all nodes have been ready".into()),
        Stage::Ended { .. } if since(previous, PROVISIONED, "True").is_some() => {
            ("True", "Ready", "all nodes have been ready".into())
        }
        Stage::Ended { reason, message, .. } if since(previous, PROVISIONED, "False").is_some() => {
            ("False", reason, Cow::from(message))
        }
        Stage::Ended { .. } | Stage::Rejected(_) | Stage::Over => {
            ("Unknown", "NotStarted", "no node has been started".into())
        }
    }
}

fn running<'a>(previous: &PerfRunStatus, stage: &'a Stage) -> ConditionParts<'a> {
    match stage {
        Stage::Running(_) => ("True", "Measuring", "trials are in progress".into()),
        Stage::Ended { .. } if since(previous, RUNNING, "Unknown").is_none() => {
            ("False", "Ended", "no more trials are run".into())
        }
        _ => ("Unknown", "NotStarted", "no trial has been run yet".into()),
    }
}

fn links_verified<'a>(previous: &'a PerfRunStatus, networks: usize, stage: &'a Stage) -> ConditionParts<'a> {
    let progress = match stage {
        Stage::Ended { reason, message, .. } if *reason == UNSUPPORTED => {
            return ("False", UNSUPPORTED, Cow::from(message));
        }
        Stage::Ended { outcome, .. } => outcome.as_ref().map(|outcome| &outcome.progress),
        Stage::Running(progress) => Some(progress),
        _ => None,
    };
    if let Some(verdict) = progress.and_then(|Progress { links, .. }| links.condition(networks)) {
        return verdict;
    }
    // An operator that takes over has not read the journal yet.
    let last = find(previous, LINKS_VERIFIED).map(|last| (last.status.as_str(), last.message.as_str()));
    match last {
        Some(("True", message)) => ("True", AS_CONFIGURED, message.into()),
        Some(("False", message)) => ("False", NOT_EFFECTIVE, message.into()),
        _ => ("Unknown", "NotMeasured", "no link has been measured yet".into()),
    }
}

fn verdict<'a>(expected: &[Expected], stage: &'a Stage) -> ConditionParts<'a> {
    match (judged(stage), stage) {
        (Some(judged), _) => verdict::condition(judged, expected),
        (None, Stage::Ended { .. }) => ("Unknown", "NotMeasured", "the run ended without results".into()),
        (None, _) => ("Unknown", "InProgress", "the run has not ended".into()),
    }
}

/// What a run found that ends now.
fn judged(stage: &Stage) -> Option<&Judged> {
    match stage {
        Stage::Ended { outcome, .. } => outcome.as_ref()?.judged.as_ref(),
        _ => None,
    }
}

/// How samples of a run that ends now were merged.
fn merged(stage: &Stage) -> Option<&str> {
    match stage {
        Stage::Ended { outcome, .. } => outcome.as_ref()?.merged.as_deref(),
        _ => None,
    }
}

fn complete(stage: &Stage) -> ConditionParts<'_> {
    match stage {
        Stage::Ended { reason, message, .. } => ("True", reason, Cow::from(message)),
        Stage::Rejected(trouble) => ("True", trouble.reason, Cow::from(&trouble.message)),
        _ => ("False", "InProgress", "the run has not ended".into()),
    }
}

/// A condition. Its last transition is the previous one as long as its status stays.
pub(crate) fn condition(
    previous: &[Condition],
    type_: &str,
    (status, reason, message): ConditionParts<'_>,
    generation: Option<i64>,
    now: Timestamp,
) -> Condition {
    let unchanged = previous
        .iter()
        .find(|old| old.type_ == type_ && old.status == status);
    Condition {
        type_: type_.to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message: plain(&message).chars().take(MESSAGE_MAX).collect(),
        observed_generation: generation,
        last_transition_time: unchanged.map_or(Time(now), |old| old.last_transition_time.clone()),
    }
}

/// The phase that the conditions amount to.
fn phase(conditions: &[Condition]) -> Phase {
    let is = |type_: &str, status: &str| {
        conditions
            .iter()
            .find(|condition| condition.type_ == type_ && condition.status == status)
    };
    match (
        is(COMPLETE, "True").map(|condition| condition.reason.as_str()),
        is(RUNNING, "True"),
    ) {
        (Some("Succeeded"), _) => Phase::Succeeded,
        (Some("Cancelled"), _) => Phase::Cancelled,
        (Some(_), _) => Phase::Failed,
        (None, Some(_)) => Phase::Running,
        (None, None) if is(PROVISIONED, "False").is_some() => Phase::Provisioning,
        (None, None) => Phase::Pending,
    }
}

fn trials(outline: &Outline, previous: &PerfRunStatus, stage: &Stage) -> TrialCounts {
    let counts = match stage {
        Stage::Running(progress) => progress.counts,
        Stage::Ended {
            outcome: Some(outcome),
            ..
        } => outcome.progress.counts,
        _ => counts(previous),
    };
    let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    TrialCounts {
        total: number(outline.trials),
        completed: number(counts.completed),
        failed: number(counts.failed),
        skipped: number(outline.skipped),
        not_needed: number(counts.not_needed),
        progress: format!(
            "{}/{}",
            counts.ended(),
            outline.trials.saturating_sub(counts.not_needed)
        ),
    }
}

/// The numbers of trials that a status has.
pub(crate) fn counts(status: &PerfRunStatus) -> Counts {
    let TrialCounts {
        total,
        completed,
        failed,
        not_needed,
        ..
    } = status.trials;
    Counts {
        planned: total as usize,
        completed: completed as usize,
        failed: failed as usize,
        not_needed: not_needed as usize,
    }
}

/// The rows that fit, the most important ones if not all do.
fn bounded(rows: &[SummaryRow]) -> Vec<SummaryRow> {
    // The CRD of this version refuses metrics of a newer one. The complete results have them.
    let rows = rows.iter().filter(|row| !matches!(row.metric, Metric::Newer(_)));
    let fit = rows.clone().count() <= ROWS_MAX;
    let wanted = |row: &&SummaryRow| fit || FIRST.contains(&row.metric);
    rows.filter(wanted).take(ROWS_MAX).cloned().collect()
}

/// An event, whose note has less room than a message.
pub(crate) fn event(is_good: bool, reason: &str, message: &str, action: &str) -> Event {
    Event {
        type_: if is_good {
            EventType::Normal
        } else {
            EventType::Warning
        },
        reason: reason.to_owned(),
        note: Some(plain(message).chars().take(NOTE_MAX).collect()),
        action: action.to_owned(),
        secondary: None,
    }
}

/// The events that report a change of a run's conditions, and the expectations that do not hold when it ends.
pub(crate) fn events(
    previous: &PerfRunStatus,
    now: &PerfRunStatus,
    outline: Option<&Outline>,
    stage: &Stage,
) -> Vec<Event> {
    let expected = outline.and_then(|outline| outline.expected.as_deref());
    let broken = judged(stage)
        .zip(expected)
        .map(|(judged, expected)| verdict::warnings(judged, expected));
    let changed = |condition: &&Condition| {
        !previous.conditions.iter().any(|old| {
            (&old.type_, &old.status, &old.reason) == (&condition.type_, &condition.status, &condition.reason)
        })
    };
    now.conditions
        .iter()
        .filter(changed)
        .filter_map(|condition| {
            let Condition {
                type_,
                status,
                reason,
                message,
                ..
            } = condition;
            let good = match (type_.as_str(), status.as_str(), reason.as_str()) {
                (PROVISIONED, "Unknown", "NotStarted") => return None,
                (PROVISIONED, "False", "Starting") | (PROVISIONED, "Unknown" | "True", _) => true,
                // The event of Complete has the same message.
                (PROVISIONED, "False", _) if has_ended(now) => return None,
                (PROVISIONED, "False", _) => false,
                (RUNNING, "True", _) => true,
                (LINKS_VERIFIED, "True", _) => true,
                (LINKS_VERIFIED, "False", NOT_EFFECTIVE) => false,
                (VERDICT, "Unknown", "InProgress") => return None,
                (VERDICT, "True" | "Unknown", _) => true,
                (SAMPLES_MERGED, _, _) => false,
                (COMPLETE, "True", "Succeeded" | "Cancelled") => true,
                (COMPLETE, "True", _) => false,
                _ => return None,
            };
            Some(event(good, reason, message, type_))
        })
        .chain(broken.into_iter().flatten())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_a_node_control_no_terminal_that_shows_the_status() {
        let said = "\x1b]52;c;AA\x07";
        let condition = condition(
            &[],
            COMPLETE,
            ("True", "Failed", said.into()),
            None,
            Timestamp::UNIX_EPOCH,
        );
        assert_eq!(condition.message, " ]52;c;AA ");
        let event = event(false, "Failed", said, "Complete");
        assert_eq!(event.note.as_deref(), Some(" ]52;c;AA "));
    }
}
