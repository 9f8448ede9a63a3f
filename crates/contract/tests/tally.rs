//! One account of a run: every place that counts trials or names an end takes it from here.

use perfrun_contract::{
    compare::NotNeeded,
    node::Reason,
    record::TrialRecord,
    run::{
        Phase::{Failed, Running},
        RunState::{self, Complete, Interrupted},
    },
    tally::{Conclusion, EndReason, Tally, counting},
};
use perfrun_test_kit::records::{completed, failed, plan_of, retried};

const TRIALS: [&str; 4] = ["c0.w0", "c1.w0", "c0.i0", "c1.i0"];

fn all_but(others: impl IntoIterator<Item = TrialRecord>) -> Vec<TrialRecord> {
    let others: Vec<_> = others.into_iter().collect();
    let is_among = |id: &str| others.iter().any(|record| record.trial.id == id);
    let rest: Vec<_> = TRIALS
        .into_iter()
        .filter(|id| !is_among(id))
        .map(completed)
        .collect();
    rest.into_iter().chain(others).collect()
}

fn lost_twice(id: &str) -> [TrialRecord; 2] {
    [
        failed(id, Reason::NodeLost),
        retried(failed(id, Reason::NodeLost)),
    ]
}

fn lost_once(id: &str) -> [TrialRecord; 2] {
    [failed(id, Reason::NodeLost), retried(completed(id))]
}

/// A trial that ended because of a limit of its workload.
fn missed_deadline(id: &str) -> TrialRecord {
    let mut record = failed(id, Reason::Timeout);
    if let Some(failure) = &mut record.failure {
        failure.other_limit = true;
    }
    record
}

/// Records, the state of their run, and its counts and its conclusion in words.
type Case = (&'static str, Vec<TrialRecord>, RunState, &'static str);

fn have_one_conclusion(cases: Vec<Case>) {
    for (case, records, state, expected) in cases {
        let tally = Tally::of(&plan_of(&TRIALS), &records);
        let counts = tally.counts();
        assert_eq!((counts.planned, counts.not_needed), (4, 0), "{case}");
        let Conclusion {
            phase,
            reason,
            message,
        } = tally.conclusion(state, None, None);
        let (completed, failed) = (counts.completed, counts.failed);
        let found = format!("{completed} completed, {failed} failed, {phase}, {reason}: {message}");
        assert_eq!(found, expected, "{case}");
    }
}

#[test]
fn a_run_of_one_trial_has_a_conclusion_in_the_singular() {
    let tally = Tally::of(&plan_of(&["c0.i0"]), &[completed("c0.i0")]);
    let Conclusion { message, .. } = tally.conclusion(Complete, None, None);
    assert_eq!(message, "the only trial was measured");
}

#[test]
fn every_sequence_of_records_has_one_conclusion() {
    const ALL: &str = "4 completed, 0 failed, Succeeded, Succeeded: all 4 trials were measured";
    let beside_a_failure = lost_once("c0.i0")
        .into_iter()
        .chain([failed("c1.i0", Reason::Timeout)]);
    have_one_conclusion(vec![
        ("all trials completed", all_but([]), Complete, ALL),
        ("a retry completed", all_but(lost_once("c0.i0")), Complete, ALL),
        (
            "an earlier attempt is read later",
            all_but(lost_once("c0.i0").into_iter().rev()),
            Complete,
            ALL,
        ),
        (
            "a retry was lost too",
            all_but(lost_twice("c1.w0")),
            Complete,
            "3 completed, 1 failed, Failed, NodeLost: 1 of 4 trials failed; the first: c1.w0: NodeLost",
        ),
        (
            "a retry failed for another reason",
            all_but([
                failed("c0.i0", Reason::NodeLost),
                retried(failed("c0.i0", Reason::DialFailed)),
            ]),
            Complete,
            "3 completed, 1 failed, Failed, TrialsFailed: 1 of 4 trials failed; the first: c0.i0: DialFailed",
        ),
        (
            "all failures are timeouts",
            all_but([failed("c0.i0", Reason::Timeout), failed("c1.i0", Reason::Timeout)]),
            Complete,
            "2 completed, 2 failed, Failed, TrialTimeout: 2 of 4 trials failed; the first: c0.i0: Timeout",
        ),
        (
            "all failures are of links",
            all_but([failed("c1.i0", Reason::ImpairmentNotEffective)]),
            Complete,
            "3 completed, 1 failed, Failed, ImpairmentNotEffective: 1 of 4 trials failed; the first: c1.i0: \
             ImpairmentNotEffective",
        ),
        (
            "failures differ",
            all_but([
                failed("c1.w0", Reason::Timeout),
                failed("c0.i0", Reason::StreamFailed),
            ]),
            Complete,
            "2 completed, 2 failed, Failed, TrialsFailed: 2 of 4 trials failed; the first: c1.w0: Timeout",
        ),
        (
            "a retried trial is no failure beside a real one",
            all_but(beside_a_failure),
            Complete,
            "3 completed, 1 failed, Failed, TrialTimeout: 1 of 4 trials failed; the first: c1.i0: Timeout",
        ),
    ]);
}

#[test]
fn a_limit_of_the_workload_is_not_taken_for_that_of_the_trial() {
    have_one_conclusion(vec![
        (
            "all failures are of a limit of the workload",
            all_but([missed_deadline("c0.i0"), missed_deadline("c1.i0")]),
            Complete,
            "2 completed, 2 failed, Failed, WorkloadTimeout: 2 of 4 trials failed; the first: c0.i0: Timeout",
        ),
        (
            "failures are of several limits",
            all_but([missed_deadline("c0.i0"), failed("c1.i0", Reason::Timeout)]),
            Complete,
            "2 completed, 2 failed, Failed, TrialsFailed: 2 of 4 trials failed; the first: c0.i0: Timeout",
        ),
    ]);
}

#[test]
fn every_sequence_that_lacks_records_has_one_conclusion() {
    have_one_conclusion(vec![
        (
            "a trial has no record",
            vec![completed("c0.w0"), completed("c1.w0"), completed("c0.i0")],
            Complete,
            "3 completed, 0 failed, Failed, RecordNotKept: 1 of 4 trials have no record; 3 completed",
        ),
        (
            "a trial failed and others have no record",
            vec![completed("c0.w0"), failed("c1.i0", Reason::Timeout)],
            Complete,
            "1 completed, 1 failed, Failed, RecordNotKept: 2 of 4 trials have no record; 1 completed",
        ),
        (
            "stopped before the first trial",
            vec![],
            Interrupted,
            "0 completed, 0 failed, Cancelled, Cancelled: stopped on request after 0 of 4 trials",
        ),
        (
            "stopped after a failure",
            vec![completed("c0.w0"), failed("c1.w0", Reason::Timeout)],
            Interrupted,
            "1 completed, 1 failed, Cancelled, Cancelled: stopped on request after 2 of 4 trials",
        ),
    ]);
}

#[test]
fn the_cause_of_an_early_end_is_the_reason_whatever_trials_did() {
    let records = [completed("c0.w0"), failed("c1.w0", Reason::Timeout)];
    let tally = Tally::of(&plan_of(&TRIALS), &records);
    for cause in [Some(EndReason::RunTimeout), Some(EndReason::NodeLost), None] {
        let conclusion = tally.conclusion(RunState::Failed, cause, Some("it stopped there"));
        let reason = cause.unwrap_or(EndReason::Internal);
        assert_eq!((conclusion.phase, conclusion.reason), (Failed, reason));
        assert_eq!(conclusion.message, "it stopped there; 1 of 4 trials completed");
    }
}

#[test]
fn a_killed_run_is_reported_as_cancelled_with_its_cause() {
    let tally = Tally::of(&plan_of(&TRIALS), &[completed("c0.w0")]);
    let conclusion = tally.conclusion(Interrupted, None, Some("perfrun ended before the run did"));
    assert_eq!(
        (conclusion.reason, conclusion.message.as_str()),
        (
            EndReason::Cancelled,
            "perfrun ended before the run did; 1 of 4 trials completed"
        )
    );
}

#[test]
fn a_run_in_progress_reports_its_completed_trials() {
    let records = [completed("c0.w0"), failed("c1.w0", Reason::Timeout)];
    let conclusion = Tally::of(&plan_of(&TRIALS), &records).in_progress();
    assert_eq!(
        (conclusion.phase, conclusion.reason, conclusion.message.as_str()),
        (Running, EndReason::InProgress, "1 of 4 trials completed")
    );
}

#[test]
fn trials_that_are_not_needed_are_neither_missing_nor_failed() {
    let not_needed = NotNeeded {
        trials: 1,
        of_trials: 4,
        iterations: [10, 10],
        of_iterations: 40,
    };
    let records = [completed("c0.w0"), completed("c1.w0"), completed("c0.i0")];
    let mut tally = Tally::of(&plan_of(&TRIALS), &records);
    tally.leave_out(Some(not_needed));
    assert_eq!((tally.counts().needed(), tally.counts().ended()), (3, 3));
    let said = |tally: &Tally, state| {
        let conclusion = tally.conclusion(state, None, None);
        (conclusion.reason, conclusion.message)
    };
    let all = "3 trials were measured; 1 of 4 trials were not needed: those of comparisons that were settled after 10 of 40 iterations";
    assert_eq!(said(&tally, Complete), (EndReason::Succeeded, all.to_owned()));
    let stopped = "stopped on request after 3 of 3 trials".to_owned();
    assert_eq!(said(&tally, Interrupted), (EndReason::Cancelled, stopped));
    let mut fewer = Tally::of(&plan_of(&TRIALS), &records[1..]);
    fewer.leave_out(Some(not_needed));
    let missing = "1 of 3 trials have no record; 2 completed".to_owned();
    assert_eq!(said(&fewer, Complete), (EndReason::RecordNotKept, missing));
    let several = NotNeeded {
        iterations: [10, 20],
        ..not_needed
    };
    assert!(
        several
            .to_string()
            .ends_with("settled after 10 to 20 of 40 iterations")
    );
}

#[test]
fn of_each_trial_one_record_counts() {
    let records = [
        completed("c0.w0"),
        failed("c0.i0", Reason::NodeLost),
        retried(completed("c0.i0")),
        failed("c1.i0", Reason::NodeLost),
        retried(failed("c1.i0", Reason::Timeout)),
    ];
    let counted: Vec<_> = counting(&records)
        .map(|record| (record.trial.id.as_str(), record.attempt))
        .collect();
    assert_eq!(counted, [("c0.w0", 0), ("c0.i0", 1), ("c1.i0", 1)]);
    let tally = Tally::of(&plan_of(&TRIALS), &records);
    assert_eq!([tally.failed_of_cell(0), tally.failed_of_cell(1)], [0, 1]);
    assert_eq!(tally.failures(), [(Reason::Timeout, 1)].into());
    assert_eq!(tally.last_attempt("c1.i0"), Some((1, Some(Reason::Timeout))));
    assert_eq!(tally.last_attempt("c0.i0"), Some((1, None)));
    assert_eq!(tally.last_attempt("c1.w0"), None);
}
