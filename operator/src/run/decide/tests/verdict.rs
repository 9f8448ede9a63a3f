//! What the condition Verdict and the events about expectations show.

use std::collections::BTreeSet;

use kube::runtime::events::EventType;
use perfrun_contract::{
    compare::{Comparison, Finding, Judged, JudgedExpectation, NoFinding, Verdict},
    metric::Metric,
};
use perfrun_test_kit::records;

use super::*;

const EXPECT: &str = "[{metric: roundTripP50, maxRegression: 10%}, {metric: roundTripP50, max: 1us}]";

/// The end of a run that found this about its candidate, and about its expectations and their cells.
fn found(
    finding: Finding,
    reason: Option<NoFinding>,
    expectations: &[(usize, &str, Verdict)],
) -> ConductorState {
    let ConductorState::Ended(mut ended) = outcome(EndReason::Succeeded, 2, 0) else {
        panic!()
    };
    ended.judged = Some(Judged {
        comparisons: vec![Comparison {
            reason,
            ..comparison("pr", finding)
        }],
        expectations: expectations
            .iter()
            .map(|&(index, cell, verdict)| JudgedExpectation {
                index,
                cell: cell.to_owned(),
                verdict,
                evidence: format!("it is {verdict}"),
            })
            .collect(),
        verdict: expectations.iter().map(|(_, _, verdict)| *verdict).max(),
        ..Judged::default()
    });
    ConductorState::Ended(ended)
}

fn comparison(candidate: &str, finding: Finding) -> Comparison {
    records::comparison(candidate, Metric::RoundTripP50, finding)
}

#[test]
fn a_run_that_expects_nothing_has_no_verdict() {
    let mut life = Life::running();
    life.conductor = outcome(EndReason::Succeeded, 2, 0);
    life.reconcile();
    assert_eq!(life.status.verdict, None);
    assert_eq!(condition::find(&life.status.conditions, Type::Verdict), None);
}

#[test]
fn the_verdict_is_open_until_the_run_has_ended_and_then_stays() {
    let mut life = Life::comparing(EXPECT);
    life.reconcile();
    assert_eq!(life.verdict(), ("Unknown", "InProgress", "the run has not ended"));
    assert_eq!(life.reasons(), ["Starting"]);
    life.pods.clear();
    let mut life = life.started();
    life.conductor = found(
        Finding::Same,
        None,
        &[(0, "pr", Verdict::Pass), (1, "main", Verdict::Pass)],
    );
    life.reconcile();
    assert_eq!(life.status.verdict, Some(Verdict::Pass));
    assert_eq!(
        life.verdict(),
        ("True", "ExpectationsHold", "all expectations hold, 2 in number")
    );
    assert_eq!(life.status.comparisons, [comparison("pr", Finding::Same)]);
    assert_eq!(life.reasons(), ["ExpectationsHold", "Succeeded"]);
    let ended = life.status.clone();
    // Another operator takes over, and knows nothing of the results.
    life.conductor = ConductorState::None;
    life.later(3600).reconcile();
    assert_eq!(life.status, ended);
}

#[test]
fn the_columns_of_a_run_show_why_its_verdict_is_not_pass() {
    let mut life = Life::comparing(EXPECT);
    life.reconcile();
    let columns = |status: &PerfRunStatus| (status.reason.clone(), status.duration.clone());
    assert_eq!(columns(&life.status), (Some("Starting".to_owned()), None));
    assert_eq!(life.status.workload.as_deref(), Some("ping"));
    life.pods.clear();
    let mut life = life.started();
    life.conductor = found(Finding::Worse, None, &[(0, "pr", Verdict::Fail)]);
    life.later(185).reconcile();
    assert_eq!(
        columns(&life.status),
        (Some("Regressed".to_owned()), Some("3m5s".to_owned()))
    );
}

#[test]
fn each_expectation_that_does_not_hold_is_an_event() {
    let mut life = Life::comparing(EXPECT).started();
    life.conductor = found(
        Finding::Worse,
        None,
        &[
            (0, "pr", Verdict::Inconclusive),
            (1, "main", Verdict::Fail),
            (1, "pr", Verdict::Fail),
        ],
    );
    life.reconcile();
    assert_eq!(life.status.verdict, Some(Verdict::Fail));
    let sentence = "roundTripP50 of main: it is Fail";
    assert_eq!(life.verdict(), ("False", "AboveMaximum", sentence));
    assert_eq!(life.reasons(), ["Succeeded", "AboveMaximum"]);
    let event = &life.events[1];
    assert_eq!(event.type_, EventType::Warning);
    assert_eq!(event.note, Some(format!("{sentence}; and 1 other cell")));
}

#[test]
fn many_expectations_that_do_not_hold_have_a_few_events_with_different_actions() {
    let expect = ["{metric: roundTripP50, max: 1us}"; 12].join(", ");
    let mut life = Life::comparing(&format!("[{expect}]")).started();
    let expectations: Vec<_> = (0..12).map(|index| (index, "pr", Verdict::Fail)).collect();
    life.conductor = found(Finding::Same, None, &expectations);
    life.reconcile();
    let warnings: Vec<_> = life
        .events
        .iter()
        .filter(|event| event.type_ == EventType::Warning)
        .collect();
    assert_eq!(warnings.len(), 9);
    assert_eq!(
        warnings[8].note.as_deref(),
        Some("and 4 more expectations do not hold")
    );
    let actions: BTreeSet<_> = warnings.iter().map(|event| &event.action).collect();
    assert_eq!(actions.len(), 9, "the recorder would count them as one");
}

#[test]
fn a_verdict_that_is_open_at_the_end_has_its_cause_as_reason() {
    for (why, reason) in [
        (None, "NotPrecise"),
        (Some(NoFinding::TooFewPairs), "TooFewPairs"),
        (Some(NoFinding::DifferentMachines), "DifferentMachines"),
        (Some(NoFinding::ControlDiffers), "ControlDiffers"),
    ] {
        let mut life = Life::comparing(EXPECT).started();
        let expectations = [(0, "pr", Verdict::Inconclusive), (1, "pr", Verdict::Pass)];
        life.conductor = found(Finding::Inconclusive, why, &expectations);
        life.reconcile();
        assert_eq!(life.status.verdict, Some(Verdict::Inconclusive));
        let sentence = "roundTripP50 of pr: it is Inconclusive";
        assert_eq!(life.verdict(), ("Unknown", reason, sentence));
    }
    let mut life = Life::comparing(EXPECT).started();
    life.conductor = outcome(EndReason::RecordNotKept, 0, 0);
    life.reconcile();
    assert_eq!(
        life.verdict(),
        ("Unknown", "NotMeasured", "the run ended without results")
    );
}

#[test]
fn a_cancelled_run_has_the_verdict_of_what_it_measured() {
    let mut life = Life::comparing(EXPECT).started();
    life.spec.cancel = true;
    let expectations = [(0, "pr", Verdict::Inconclusive)];
    let ConductorState::Ended(mut ended) = found(
        Finding::NotComparable,
        Some(NoFinding::TooFewPairs),
        &expectations,
    ) else {
        panic!()
    };
    (ended.conclusion.phase, ended.conclusion.reason) = (Phase::Cancelled, EndReason::Cancelled);
    life.conductor = ConductorState::Ended(ended);
    life.reconcile();
    assert_eq!(life.end(), (Phase::Cancelled, "Cancelled"));
    assert_eq!(life.status.verdict, Some(Verdict::Inconclusive));
    let sentence = "roundTripP50 of pr: it is Inconclusive";
    assert_eq!(life.verdict(), ("Unknown", "TooFewPairs", sentence));
}

#[test]
fn comparisons_without_expectations_report_their_findings() {
    let mut life = Life::comparing("[]").started();
    life.conductor = found(Finding::Better, None, &[]);
    life.reconcile();
    assert_eq!(life.status.verdict, None);
    assert_eq!(
        life.verdict(),
        ("Unknown", "NothingExpected", "comparisons: 1 Better")
    );
}

#[test]
fn comparisons_that_are_not_the_same_stay_in_the_status_if_not_all_fit() {
    let mut life = Life::comparing("[]").started();
    let ConductorState::Ended(mut ended) = found(Finding::Same, None, &[]) else {
        panic!()
    };
    let same = (0..70).map(|index| comparison(&format!("same-{index}"), Finding::Same));
    let others = [Finding::Worse, Finding::Inconclusive].map(|finding| comparison(finding.as_ref(), finding));
    ended.judged.as_mut().unwrap().comparisons = same.chain(others).collect();
    life.conductor = ConductorState::Ended(ended);
    life.reconcile();
    let rows: Vec<_> = life
        .status
        .comparisons
        .iter()
        .map(|row| row.candidate.as_str())
        .collect();
    assert_eq!(
        (rows.len(), &rows[..3]),
        (64, &["Worse", "Inconclusive", "same-0"][..])
    );
}
