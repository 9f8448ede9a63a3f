//! Conditions of PerfRuns and PerfSchedules: their types, and the reasons of conditions and events.
//!
//! The documentation of each variant is for users: `docs/reference/conditions.md` is generated from it.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use perfrun_contract::{compare::NoFinding, tally::EndReason};
use strum::{AsRefStr, Display, EnumMessage, EnumString, VariantNames};

/// Types of conditions, in the order in which they become true.
#[derive(AsRefStr, Clone, Copy, Debug, Display, EnumMessage, EnumString, Eq, PartialEq)]
pub enum Type {
    /// Whether the document can be run. Of a schedule: whether runs can be created.
    Accepted,
    /// Whether all pods have been ready. Unknown: the run waits to be started.
    Provisioned,
    /// Whether trials are in progress. Unknown: no trial has started.
    Running,
    /// Only of runs that impair links: whether the last measurement of each measured network agreed with its
    /// configuration.
    LinksVerified,
    /// Only of runs that compare or expect something: whether all that is expected is proved to hold. The
    /// message has the evidence.
    Verdict,
    /// Only of runs that measured more than the operator keeps of a run, or had room for: the results have
    /// fewer samples.
    SamplesMerged,
    /// Only of runs whose pods had containers that perfrun did not make. The message names them.
    ContainersInjected,
    /// Whether the last run that was due was created. Unknown: no run has been due.
    Scheduled,
    /// Whether the run has ended and will not change. The reason states how it ended, whatever the verdict
    /// is.
    Complete,
}

/// Statuses of conditions.
#[derive(AsRefStr, Clone, Copy, Debug, Display, EnumString, Eq, PartialEq)]
pub enum Status {
    /// The condition holds.
    True,
    /// The condition does not hold.
    False,
    /// The condition may hold or not.
    Unknown,
}

/// Reasons of conditions and of events. Most events report a condition, and have its reason.
#[derive(AsRefStr, Clone, Copy, Debug, Display, EnumMessage, Eq, PartialEq, VariantNames)]
pub enum Reason {
    /// The operator has not planned the run yet. Wait.
    NotPlanned,
    /// The document can be run; the message has the size of its plan. Of a schedule: the message says when
    /// the next run is due.
    Valid,
    /// The document cannot be run, and the message says why. Correct it, and create the PerfRun again.
    Invalid,
    /// The operator cannot read the document: another version wrote it, it was edited, or it is too large.
    /// Use a version that can, or delete the PerfRun and create a smaller one.
    Malformed,
    /// The operator's policy does not allow what the document requests. Change the field that the message
    /// names, or ask the administrators of the operator.
    NotAllowed,
    /// The schedule cannot be read, or is never due. Correct `spec.schedule`.
    InvalidSchedule,
    /// The IANA database has no such time zone. Correct `spec.timeZone`.
    UnknownTimeZone,
    /// The template cannot be run, and the message says why. Correct `spec.runTemplate.spec`.
    InvalidTemplate,
    /// The document asks to wait. Set `spec.suspend` to false to start the run, or to create runs.
    Suspended,
    /// Other runs are active or come first. Wait; the message says for what.
    WaitingForOtherRuns,
    /// Nothing was started yet, or nothing at all if the run has ended.
    NotStarted,
    /// Pods are starting; the message says how many are ready. Wait.
    Starting,
    /// No Kubernetes node takes a pod. Make room, or change `spec.template` or `spec.topology`; the message
    /// has the words of the scheduler.
    Unschedulable,
    /// An image cannot be pulled. Correct its name, load it, or give the pods a pull secret.
    ImagePullFailed,
    /// A node's program ended, or its container cannot start. The message has the end of its log, and
    /// `kubectl logs` the rest.
    NodeCrashed,
    /// The container that impairs links cannot start. The message has the end of its log;
    /// `spec.template.link` has its settings.
    LinkAgentCrashed,
    /// The API server refuses a pod. The message has its answer: correct the document, or raise the quota of
    /// the namespace.
    PodRefused,
    /// The API server refuses an object, or has an error. The message has its answer: raise the quota of the
    /// namespace, or grant the operator the right.
    #[strum(serialize = "APIServerRefuses")]
    ApiServerRefuses,
    /// The API server does not answer. The operator retries.
    #[strum(serialize = "APIServerUnreachable")]
    ApiServerUnreachable,
    /// An object of another owner has a name that is needed. Delete it, or give the run or the schedule
    /// another name.
    NameConflict,
    /// The pod that keeps results was not ready in time. `kubectl describe` shows its events; often a claim
    /// or a Secret is missing.
    StoreNotReady,
    /// The nodes were not ready within `timeouts.provision`, without a known cause. Increase it, or look at
    /// the events of the pods.
    ProvisionTimeout,
    /// All nodes have been ready.
    Ready,
    /// Trials are in progress.
    Measuring,
    /// No more trials are run.
    Ended,
    /// Nothing was measured yet. Of a verdict: no trial has the metric, or the run ended without results; the
    /// condition `Complete` says why.
    NotMeasured,
    /// All networks that were measured are as configured.
    AsConfigured,
    /// The run has not ended. Wait.
    InProgress,
    /// The run compares, and expects nothing. The message counts what was found; `status.comparisons` has it.
    NothingExpected,
    /// All expectations hold. The verdict is `Pass`.
    ExpectationsHold,
    /// A candidate is worse than its baseline by more than `maxRegression`. The verdict is `Fail`.
    Regressed,
    /// A metric is below the `min` of an expectation. The verdict is `Fail`.
    BelowMinimum,
    /// A metric is above the `max` of an expectation. The verdict is `Fail`.
    AboveMaximum,
    /// A metric is below the share of raw TCP or QUIC that an expectation names. The verdict is `Fail`.
    BelowShareOfRaw,
    /// Expectations do not hold, and the verdict is `Fail`. An event counts those beyond the first eight,
    /// which have events of their own. The condition has this reason where the kind of the expectation is not
    /// known. The table *Expectations* of the report has all of them.
    ExpectationsFail,
    /// The trials cannot show whether an expectation holds. The verdict is `Inconclusive`: use a larger
    /// `maxIterations`, a quieter machine or a larger bound.
    NotPrecise,
    /// Neighbouring samples of trials are merged, so that the results fit, or because the operator had no
    /// room for all; the message says of how many. Where only what is kept is merged, metrics are complete.
    /// Where the operator had no room, metrics that come from samples (of `echo` and `relayStress`) are
    /// computed from the merged ones. `--max-result-bytes` of the operator keeps more.
    ResultsTooLarge,
    /// Something added containers to pods of the run, for example a service mesh. They may carry the traffic
    /// that is measured, and use CPU time. Leave them out, with labels or annotations in `spec.template`.
    ForeignContainers,
    /// No run has been due.
    NotDue,
    /// The run that was due was created; the message has its name.
    RunCreated,
    /// The run that was due was not created within `spec.startingDeadlineSeconds`. Increase it, and check
    /// that the operator was running.
    DeadlineMissed,
    /// The run that was due waits until an earlier one has ended, because `spec.concurrencyPolicy` is
    /// `Forbid`, or because three have not ended.
    RunActive,
    /// The run that was due waits until earlier runs of the schedule are deleted. Wait; if they stay, their
    /// finalizers name what keeps them.
    RunsNotDeleted,
    /// A run of the schedule has ended; the message says how.
    RunEnded,
    /// More than 100 runs were missed, and only the last one is created. Set `spec.startingDeadlineSeconds`,
    /// and check the operator and its clock.
    TooManyMissedTimes,
    /// This version of perfrun cannot read the object: another version wrote it, or it was edited. The
    /// operator creates no runs of such a schedule. Use a version that can, or correct the object.
    Unreadable,
    /// The operator cannot read the status of the run, and leaves the run alone. Use the version that wrote
    /// it.
    StatusUnreadable,
    /// Parts of the kept records cannot be read. Their trials are measured again.
    RecordsUnreadable,
    /// How a run ended.
    #[strum(transparent)]
    End(EndReason),
    /// Why a comparison is not comparable.
    #[strum(transparent)]
    Inconclusive(NoFinding),
}

impl From<EndReason> for Reason {
    fn from(end: EndReason) -> Self {
        Self::End(end)
    }
}

impl From<NoFinding> for Reason {
    fn from(why: NoFinding) -> Self {
        match why {
            NoFinding::NotMeasured => Self::NotMeasured,
            other => Self::Inconclusive(other),
        }
    }
}

impl Reason {
    /// What the reason means and what to do, for users.
    pub fn meaning(self) -> String {
        let text = match self {
            Self::End(end) => return end.meaning(),
            Self::Inconclusive(why) => why.get_documentation(),
            own => own.get_documentation(),
        };
        one_line(text)
    }
}

impl Type {
    /// What the condition is about, for users.
    pub fn meaning(self) -> String {
        one_line(self.get_documentation())
    }
}

/// Documentation as text of a cell.
pub(crate) fn one_line(text: Option<&str>) -> String {
    text.unwrap_or_default().trim().replace('\n', " ")
}

/// The reasons that a condition has with one status.
#[derive(Clone, Debug)]
pub struct Case {
    /// The kind of the object with the condition.
    pub kind: &'static str,
    /// The type of the condition.
    pub type_: Type,
    /// The status of the condition.
    pub status: Status,
    /// All reasons.
    pub reasons: Vec<Reason>,
}

/// The kind of a run.
pub const RUN: &str = "PerfRun";
/// The kind of a schedule.
pub const SCHEDULE: &str = "PerfSchedule";

/// Events that report no condition: kind, and reason.
pub(crate) const EVENTS: [(&str, Reason); 10] = [
    (RUN, Reason::Regressed),
    (RUN, Reason::BelowMinimum),
    (RUN, Reason::AboveMaximum),
    (RUN, Reason::BelowShareOfRaw),
    (RUN, Reason::ExpectationsFail),
    (RUN, Reason::RecordsUnreadable),
    (RUN, Reason::StatusUnreadable),
    (SCHEDULE, Reason::RunEnded),
    (SCHEDULE, Reason::TooManyMissedTimes),
    (SCHEDULE, Reason::Unreadable),
];

/// Why a run does not start, or did not start in time.
const STUCK: [Reason; 10] = [
    Reason::Unschedulable,
    Reason::ImagePullFailed,
    Reason::NodeCrashed,
    Reason::LinkAgentCrashed,
    Reason::PodRefused,
    Reason::ApiServerRefuses,
    Reason::ApiServerUnreachable,
    Reason::NameConflict,
    Reason::StoreNotReady,
    Reason::ProvisionTimeout,
];

/// All conditions.
pub fn cases() -> Vec<Case> {
    let mut all = cases_of_runs();
    all.extend(cases_of_schedules());
    all
}

fn case(kind: &'static str, type_: Type, status: Status, reasons: &[&[Reason]]) -> Case {
    Case {
        kind,
        type_,
        status,
        reasons: reasons.concat(),
    }
}

fn cases_of_runs() -> Vec<Case> {
    use Reason as R;
    use Status::{False, True, Unknown};
    use Type::{
        Accepted, Complete, ContainersInjected, LinksVerified, Provisioned, Running, SamplesMerged, Verdict,
    };
    let run = |type_, status, reasons: &[R]| case(RUN, type_, status, &[reasons]);
    let unsupported = R::End(EndReason::ImpairmentUnsupported);
    let unstarted = [
        R::Starting,
        R::End(EndReason::NodeLost),
        R::End(EndReason::Cancelled),
        R::End(EndReason::Internal),
        unsupported,
    ];
    let inconclusive = NoFinding::ALL.map(R::from);
    let ends = EndReason::ALL.map(R::End);
    vec![
        run(Accepted, True, &[R::Valid]),
        run(Accepted, False, &[R::Invalid, R::NotAllowed, R::Malformed]),
        run(Accepted, Unknown, &[R::NotPlanned]),
        run(Provisioned, True, &[R::Ready]),
        case(RUN, Provisioned, False, &[&unstarted, &STUCK]),
        run(
            Provisioned,
            Unknown,
            &[R::Suspended, R::WaitingForOtherRuns, R::NotStarted],
        ),
        run(Running, True, &[R::Measuring]),
        run(Running, False, &[R::Ended]),
        run(Running, Unknown, &[R::NotStarted]),
        run(LinksVerified, True, &[R::AsConfigured]),
        run(
            LinksVerified,
            False,
            &[R::End(EndReason::ImpairmentNotEffective), unsupported],
        ),
        run(LinksVerified, Unknown, &[R::NotMeasured]),
        run(Verdict, True, &[R::ExpectationsHold]),
        run(
            Verdict,
            False,
            &[
                R::Regressed,
                R::BelowMinimum,
                R::AboveMaximum,
                R::BelowShareOfRaw,
                R::ExpectationsFail,
            ],
        ),
        case(
            RUN,
            Verdict,
            Unknown,
            &[&[R::InProgress, R::NothingExpected, R::NotPrecise], &inconclusive],
        ),
        run(SamplesMerged, True, &[R::ResultsTooLarge]),
        run(ContainersInjected, True, &[R::ForeignContainers]),
        case(
            RUN,
            Complete,
            True,
            &[&ends, &[R::Invalid, R::NotAllowed], &STUCK],
        ),
        run(Complete, False, &[R::InProgress]),
    ]
}

fn cases_of_schedules() -> Vec<Case> {
    use Reason as R;
    use Status::{False, True, Unknown};
    use Type::{Accepted, Scheduled};
    let schedule = |type_, status, reasons: &[R]| case(SCHEDULE, type_, status, &[reasons]);
    vec![
        schedule(Accepted, True, &[R::Valid, R::Suspended]),
        schedule(
            Accepted,
            False,
            &[R::InvalidSchedule, R::UnknownTimeZone, R::InvalidTemplate],
        ),
        schedule(Scheduled, True, &[R::RunCreated]),
        schedule(
            Scheduled,
            False,
            &[
                R::DeadlineMissed,
                R::RunActive,
                R::RunsNotDeleted,
                R::NameConflict,
                R::ApiServerRefuses,
                R::ApiServerUnreachable,
            ],
        ),
        schedule(Scheduled, Unknown, &[R::NotDue]),
    ]
}

/// Whether [`cases`] has this. A newer version may have other reasons.
pub fn is_documented(type_: Type, status: Status, reason: Reason) -> bool {
    let is_newer = matches!(
        reason,
        Reason::End(EndReason::Newer(_)) | Reason::Inconclusive(NoFinding::Newer(_))
    );
    let has = |case: &Case| case.type_ == type_ && case.status == status && case.reasons.contains(&reason);
    is_newer || cases().iter().any(has)
}

/// The condition of a type.
pub fn find(conditions: &[Condition], type_: Type) -> Option<&Condition> {
    conditions
        .iter()
        .find(|condition| condition.type_ == type_.as_ref())
}

/// Whether a condition has a status.
pub fn has_status(condition: &Condition, status: Status) -> bool {
    condition.status == status.as_ref()
}

/// The condition that says how a run has ended; `None` if it has not. The phase does not say it: a newer
/// version may have other phases.
pub fn end_condition(conditions: &[Condition]) -> Option<&Condition> {
    find(conditions, Type::Complete).filter(|condition| has_status(condition, Status::True))
}

/// Whether a run with these conditions has ended.
pub fn has_ended(conditions: &[Condition]) -> bool {
    end_condition(conditions).is_some()
}

/// The condition that explains where a run stands. At the end, it says how the run ended. If the run
/// succeeded and its expectations are not proved to hold, it is the verdict. Before, it is the first
/// condition that is not true yet, or that the run is running.
pub fn explaining_condition(conditions: &[Condition]) -> Option<&Condition> {
    let of = |type_| find(conditions, type_);
    let is_true = |condition: &&Condition| has_status(condition, Status::True);
    if let Some(end) = end_condition(conditions) {
        let has_succeeded = end.reason == EndReason::Succeeded.as_ref();
        let says_nothing =
            |verdict: &&Condition| is_true(verdict) || verdict.reason == Reason::NothingExpected.as_ref();
        let verdict = of(Type::Verdict).filter(|verdict| has_succeeded && !says_nothing(verdict));
        return verdict.or(Some(end));
    }
    let awaited = [Type::Accepted, Type::Provisioned, Type::Running];
    awaited
        .into_iter()
        .filter_map(of)
        .find(|condition| !is_true(condition))
        .or_else(|| awaited.into_iter().rev().find_map(of))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use kube::CustomResourceExt;
    use serde_json::{Value, json};

    use super::*;
    use crate::{schedule::PerfSchedule, spec::PerfRun};

    #[test]
    fn every_reason_is_of_a_condition_or_an_event() {
        let conditions = cases().into_iter().flat_map(|case| case.reasons);
        let events = EVENTS.map(|(_, reason)| reason);
        let documented: BTreeSet<String> = conditions
            .chain(events)
            .map(|reason| reason.to_string())
            .collect();
        let own = Reason::VARIANTS.iter().copied();
        let own = own.filter(|name| !["End", "Inconclusive"].contains(name));
        let ends = EndReason::ALL.map(|end| end.to_string());
        let inconclusive = NoFinding::ALL.map(|why| why.to_string());
        let all: BTreeSet<String> = own.map(str::to_owned).chain(ends).chain(inconclusive).collect();
        assert_eq!(documented, all);
    }

    #[test]
    fn every_condition_and_reason_has_a_meaning() {
        for case in cases() {
            assert!(case.type_.meaning().ends_with('.'), "{}", case.type_);
            for reason in case.reasons {
                let meaning = reason.meaning();
                assert!(
                    meaning.ends_with('.') && !meaning.contains("[`"),
                    "{reason}: {meaning}"
                );
            }
        }
    }

    #[test]
    fn no_status_of_a_condition_has_a_reason_twice() {
        for Case { type_, reasons, .. } in cases() {
            let names: BTreeSet<_> = reasons.iter().map(Reason::as_ref).collect();
            assert_eq!(names.len(), reasons.len(), "{type_}: {reasons:?}");
        }
    }

    #[test]
    fn the_resources_list_the_types_of_their_conditions() {
        for (kind, crd) in [(RUN, PerfRun::crd()), (SCHEDULE, PerfSchedule::crd())] {
            let crd = serde_json::to_value(crd).unwrap();
            let status = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"];
            let description = status["properties"]["conditions"]["description"]
                .as_str()
                .unwrap();
            for case in cases().into_iter().filter(|case| case.kind == kind) {
                assert!(
                    description.contains(&format!("`{}`", case.type_)),
                    "{description}"
                );
            }
        }
    }

    /// Conditions, each as `Type=Status Reason`.
    fn conditions(texts: &[&str]) -> Vec<Condition> {
        let condition = |text: &&str| {
            let (type_, rest) = text.split_once('=').unwrap();
            let (status, reason) = rest.split_once(' ').unwrap();
            let time = "2026-01-01T12:00:00Z";
            json!({"type": type_, "status": status, "reason": reason, "message": "", "lastTransitionTime": time})
        };
        let all: Value = texts.iter().map(condition).collect();
        serde_json::from_value(all).unwrap()
    }

    #[test]
    fn a_verdict_other_than_pass_is_the_explaining_condition_of_a_complete_run() {
        let reason = |verdict: &str, end: &str| {
            let all = conditions(&["Accepted=True Valid", "Provisioned=True Ready", verdict, end]);
            explaining_condition(&all).unwrap().reason.clone()
        };
        let succeeded = "Complete=True Succeeded";
        assert_eq!(reason("Verdict=False Regressed", succeeded), "Regressed");
        assert_eq!(reason("Verdict=Unknown NotPrecise", succeeded), "NotPrecise");
        assert_eq!(reason("Verdict=True ExpectationsHold", succeeded), "Succeeded");
        assert_eq!(reason("Verdict=Unknown NothingExpected", succeeded), "Succeeded");
        assert_eq!(
            reason("Verdict=Unknown NotPrecise", "Complete=True TrialsFailed"),
            "TrialsFailed"
        );
        assert_eq!(
            reason("Running=True Measuring", "Complete=False InProgress"),
            "Measuring"
        );
    }
}
