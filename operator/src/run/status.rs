//! The status of a run and its events, as functions of values.

use std::{borrow::Cow, collections::BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::runtime::events::Event;
use perfrun_api::{
    cluster::{
        age::age,
        condition::{self, Reason, Status, Type, find},
    },
    spec::{PerfRunStatus, TrialCounts},
};
use perfrun_contract::{compare::Judged, metric::Metric, summary::SummaryRow, tally::EndReason};

use crate::{
    api::{
        conditions::{ConditionValues, condition},
        events::event,
    },
    conduct::NOT_EFFECTIVE,
    pods::NodePod,
    run::{
        conditions::{has_ended, phase, since},
        decide::Inputs,
        plans::Outline,
        stage::Stage,
        verdict::{self, Expected},
    },
};

/// The largest number of rows in `status.summary`: an object of the API server holds some hundred KiB.
const ROWS_MAX: usize = 256;

/// The longest message of a condition in a status that the API server has refused with longer ones, in
/// characters.
const SHORT_MESSAGE: usize = 100;

/// The metrics that are kept if not all rows fit.
const KEPT_METRICS: [Metric; 6] = [
    Metric::UploadGoodput,
    Metric::DownloadGoodput,
    Metric::OpenMean,
    Metric::HandshakeFirstByteP50,
    Metric::RoundTripP50,
    Metric::CpuSecondsPerGiB,
];

/// Reason of a run whose links cannot be impaired on this cluster.
const UNSUPPORTED: Reason = Reason::End(EndReason::ImpairmentUnsupported);

/// The status after a decision.
pub(crate) fn next(inputs: &Inputs<'_>, generation: Option<i64>, stage: &Stage) -> PerfRunStatus {
    let Inputs {
        spec,
        status: previous,
        now,
        ..
    } = *inputs;
    let outline = inputs.planned.outline();
    if *stage == Stage::Unchanged {
        return previous.clone();
    }
    let mut status = PerfRunStatus {
        observed_generation: generation,
        workload: Some(spec.workload.name().to_owned()),
        start_time: previous.start_time.clone().or(Some(Time(now))),
        trials: outline.map_or_else(TrialCounts::default, |outline| {
            trial_counts(outline, previous, stage)
        }),
        ..previous.clone()
    };
    for (type_, values) in conditions(inputs, stage) {
        let condition = condition(&previous.conditions, type_, values, generation, now);
        let mut present = status.conditions.iter_mut();
        match present.find(|old| old.type_ == condition.type_) {
            Some(old) => *old = condition,
            None => status.conditions.push(condition),
        }
    }
    if matches!(stage, Stage::Rejected(_) | Stage::Ending { .. }) {
        status.completion_time = Some(Time(now));
    }
    if let Stage::Ending { outcome, .. } = stage {
        let measuring = since(previous, Type::Running, Status::True);
        status.duration = measuring.map(|since| age(now.duration_since(since).as_secs()));
        if let Some(outcome) = outcome {
            status.summary = rows_that_fit(&outcome.summary);
            status.results.clone_from(&outcome.results);
            status.store.clone_from(&outcome.stored);
            if let Some(judged) = &outcome.judged {
                status.verdict = judged.verdict;
                status.comparisons = verdict::comparisons_that_fit(&judged.comparisons);
            }
        }
    }
    status.phase = Some(phase(&status.conditions));
    status.reason = condition::explaining_condition(&status.conditions).map(|main| main.reason.clone());
    status
}

/// Smaller versions of a status that the API server refuses, the largest first: without the tables, which the
/// results have, and then with short messages.
pub(crate) fn smaller(status: &PerfRunStatus) -> Vec<PerfRunStatus> {
    let without_tables = PerfRunStatus {
        summary: vec![],
        comparisons: vec![],
        ..status.clone()
    };
    let mut short = PerfRunStatus {
        verdict: None,
        ..without_tables.clone()
    };
    for condition in &mut short.conditions {
        condition.message = condition.message.chars().take(SHORT_MESSAGE).collect();
    }
    let mut versions = vec![status.clone(), without_tables, short];
    versions.dedup();
    versions.split_off(1)
}

/// The conditions that a stage sets, in the order in which the status has them.
fn conditions<'a>(inputs: &'a Inputs<'_>, stage: &'a Stage) -> Vec<(Type, ConditionValues<'a>)> {
    let (previous, outline) = (inputs.status, inputs.planned.outline());
    let mut all = vec![
        (Type::Accepted, accepted(outline, stage)),
        (Type::Provisioned, provisioned(previous, outline, stage)),
        (Type::Running, running(previous, stage)),
    ];
    if let Some(networks) = outline.map(|outline| outline.networks).filter(|count| *count > 0) {
        all.push((Type::LinksVerified, links_verified(previous, networks, stage)));
    }
    if let Some(expected) = outline.and_then(|outline| outline.expected.as_deref()) {
        all.push((Type::Verdict, verdict(expected, stage)));
    }
    if let Some(message) = merged(stage) {
        let values = (Status::True, Reason::ResultsTooLarge, message.into());
        all.push((Type::SamplesMerged, values));
    }
    if let Some(message) = injected_containers(&inputs.pods) {
        let values = (Status::True, Reason::ForeignContainers, message.into());
        all.push((Type::ContainersInjected, values));
    }
    all.push((Type::Complete, complete(stage)));
    all
}

fn accepted<'a>(outline: Option<&Outline>, stage: &'a Stage) -> ConditionValues<'a> {
    match (stage, outline) {
        (Stage::Rejected(cause), _) => (Status::False, cause.reason, Cow::from(&cause.message)),
        (_, Some(outline)) => {
            let Outline {
                trials,
                may_end_early,
                cells,
                nodes,
                skipped,
                ..
            } = outline;
            let counted = |count: usize, what: &str| match count {
                1 => format!("1 {what}"),
                _ => format!("{count} {what}s"),
            };
            let skipped = match &outline.first_skipped {
                None => String::new(),
                Some(reason) => format!(
                    "; {} skipped, the first because {reason}",
                    counted(*skipped, "cell")
                ),
            };
            let at_most = if *may_end_early { "up to " } else { "" };
            let message = format!(
                "{at_most}{} of {} on {}{skipped}",
                counted(*trials, "trial"),
                counted(*cells, "cell"),
                counted(*nodes, "node")
            );
            (Status::True, Reason::Valid, message.into())
        }
        (_, None) => (
            Status::Unknown,
            Reason::NotPlanned,
            "the run has not been planned".into(),
        ),
    }
}

fn provisioned<'a>(
    previous: &PerfRunStatus,
    outline: Option<&Outline>,
    stage: &'a Stage,
) -> ConditionValues<'a> {
    let all_ready = || (Status::True, Reason::Ready, "all nodes have been ready".into());
    match stage {
        Stage::Held(cause) => (Status::Unknown, cause.reason, Cow::from(&cause.message)),
        Stage::Provisioning { ready, cause } => match cause {
            Some(cause) => (Status::False, cause.reason, Cow::from(&cause.message)),
            None => {
                let nodes = outline.map_or(0, |outline| outline.nodes);
                (
                    Status::False,
                    Reason::Starting,
                    format!("{ready} of {nodes} nodes are ready").into(),
                )
            }
        },
        Stage::Running(_) | Stage::Ending { outcome: Some(_), .. } => all_ready(),
        Stage::Ending { .. } if since(previous, Type::Provisioned, Status::True).is_some() => all_ready(),
        Stage::Ending { reason, message, .. }
            if since(previous, Type::Provisioned, Status::False).is_some() =>
        {
            (Status::False, *reason, Cow::from(message))
        }
        Stage::Ending { .. } | Stage::Rejected(_) | Stage::Unchanged => (
            Status::Unknown,
            Reason::NotStarted,
            "no node has been started".into(),
        ),
    }
}

fn running<'a>(previous: &PerfRunStatus, stage: &'a Stage) -> ConditionValues<'a> {
    match stage {
        Stage::Running(_) => (Status::True, Reason::Measuring, "trials are in progress".into()),
        Stage::Ending { .. } if since(previous, Type::Running, Status::Unknown).is_none() => {
            (Status::False, Reason::Ended, "no more trials are run".into())
        }
        _ => (
            Status::Unknown,
            Reason::NotStarted,
            "no trial has been run yet".into(),
        ),
    }
}

fn links_verified<'a>(previous: &'a PerfRunStatus, networks: usize, stage: &'a Stage) -> ConditionValues<'a> {
    let progress = match stage {
        Stage::Ending { reason, message, .. } if *reason == UNSUPPORTED => {
            return (Status::False, UNSUPPORTED, Cow::from(message));
        }
        Stage::Ending { outcome, .. } => outcome.as_ref().map(|outcome| &outcome.progress),
        Stage::Running(progress) => Some(progress),
        _ => None,
    };
    if let Some(values) = progress.and_then(|progress| progress.measured_networks.condition(networks)) {
        return values;
    }
    // An operator that takes over has not read the journal yet.
    let last = find(&previous.conditions, Type::LinksVerified);
    let last = last.and_then(|last| Some((last.status.parse().ok()?, last.message.as_str())));
    match last {
        Some((Status::True, message)) => (Status::True, Reason::AsConfigured, message.into()),
        Some((Status::False, message)) => (Status::False, NOT_EFFECTIVE, message.into()),
        _ => (
            Status::Unknown,
            Reason::NotMeasured,
            "no link has been measured yet".into(),
        ),
    }
}

fn verdict<'a>(expected: &[Expected], stage: &'a Stage) -> ConditionValues<'a> {
    match (judged(stage), stage) {
        (Some(judged), _) => verdict::condition(judged, expected),
        (None, Stage::Ending { .. }) => (
            Status::Unknown,
            Reason::NotMeasured,
            "the run ended without results".into(),
        ),
        (None, _) => (
            Status::Unknown,
            Reason::InProgress,
            "the run has not ended".into(),
        ),
    }
}

/// What a run found that ends now.
fn judged(stage: &Stage) -> Option<&Judged> {
    match stage {
        Stage::Ending { outcome, .. } => outcome.as_ref()?.judged.as_ref(),
        _ => None,
    }
}

/// How samples of a run that ends now were merged.
fn merged(stage: &Stage) -> Option<&str> {
    match stage {
        Stage::Ending { outcome, .. } => outcome.as_ref()?.merged.as_deref(),
        _ => None,
    }
}

/// What to do about containers that perfrun did not make. `None` if there are none.
fn injected_containers(pods: &[NodePod]) -> Option<String> {
    let names: BTreeSet<&str> = pods
        .iter()
        .flat_map(|pod| &pod.foreign_containers)
        .map(String::as_str)
        .collect();
    let names = Vec::from_iter(names).join(", ");
    (!names.is_empty()).then(|| {
        format!(
            "pods have containers that perfrun did not make: {names}. They may carry the traffic that is measured, and \
             use CPU time. Leave them out, with labels or annotations in spec.template"
        )
    })
}

fn complete(stage: &Stage) -> ConditionValues<'_> {
    match stage {
        Stage::Ending { reason, message, .. } => (Status::True, *reason, Cow::from(message)),
        Stage::Rejected(cause) => (Status::True, cause.reason, Cow::from(&cause.message)),
        _ => (Status::False, Reason::InProgress, "the run has not ended".into()),
    }
}

fn trial_counts(outline: &Outline, previous: &PerfRunStatus, stage: &Stage) -> TrialCounts {
    let counts = match stage {
        Stage::Running(progress) => progress.counts,
        Stage::Ending {
            outcome: Some(outcome),
            ..
        } => outcome.progress.counts,
        _ => previous.trials.counts(),
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

/// The rows that fit, the most important ones if not all do.
fn rows_that_fit(rows: &[SummaryRow]) -> Vec<SummaryRow> {
    // The CRD of this version refuses metrics of a newer one. The complete results have them.
    let rows = rows.iter().filter(|row| !matches!(row.metric, Metric::Newer(_)));
    let fit = rows.clone().count() <= ROWS_MAX;
    let wanted = |row: &&SummaryRow| fit || KEPT_METRICS.contains(&row.metric);
    rows.filter(wanted).take(ROWS_MAX).cloned().collect()
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
            let is = |known: Reason| reason == known.as_ref();
            let good = match (type_.parse().ok()?, status.parse().ok()?) {
                (Type::Provisioned, Status::Unknown) if is(Reason::NotStarted) => return None,
                (Type::Provisioned, Status::Unknown | Status::True) => true,
                (Type::Provisioned, Status::False) if is(Reason::Starting) => true,
                // The event of Complete has the same message.
                (Type::Provisioned, Status::False) if has_ended(now) => return None,
                (Type::Provisioned, Status::False) => false,
                (Type::Running | Type::LinksVerified, Status::True) => true,
                (Type::LinksVerified, Status::False) if is(NOT_EFFECTIVE) => false,
                (Type::Verdict, Status::Unknown) if is(Reason::InProgress) => return None,
                (Type::Verdict, Status::True | Status::Unknown) => true,
                (Type::SamplesMerged | Type::ContainersInjected, _) => false,
                (Type::Complete, Status::True) => {
                    is(EndReason::Succeeded.into()) || is(EndReason::Cancelled.into())
                }
                _ => return None,
            };
            Some(event(good, reason, message, type_))
        })
        .chain(broken.into_iter().flatten())
        .collect()
}
