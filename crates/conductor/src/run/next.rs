//! What comes after a trial, as functions of values: of the plan, and of what was recorded.
//!
//! A trial in which a node was lost is tried once more. The trials of a pair of cells, with that of its
//! control, are tried together: again if one lost a node, if one was disturbed, or if they are of two
//! sessions. That rule is blind to what was measured and to which of them is the candidate, so it does not
//! bias their comparison. It has a limit, since a machine that is always busy is not worth more time. The
//! limit follows from the plan alone, not from the trials that interim checks leave out: what is settled
//! early depends on what was measured.

use std::{collections::HashMap, mem};

use perfrun_contract::{
    compare::CellPair,
    node::Reason,
    plan::{Iteration, Plan, Trial},
    record::{Flag, TrialRecord},
};

/// How often a trial is tried at most.
pub const ATTEMPTS: u32 = 2;

/// Of this number of measured pairs, one may be retried though no node was lost. A pair with the trial of its
/// control counts as one.
const PAIRS_PER_RETRY: usize = 4;

/// A trial to run.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct NextAttempt<'a> {
    pub trial: &'a Trial,
    pub attempt: u32,
    /// Whether it is a retry after the loss of a node.
    pub after_loss: bool,
}

/// How far a run is.
#[derive(Debug)]
pub(super) struct Progress<'a> {
    /// The trials of the plan, in running order. Those that are tried together are together.
    blocks: Vec<&'a [Trial]>,
    trials: HashMap<String, LastAttempt>,
    /// Iterations after which the run is checked.
    interim_checks: &'a [u32],
    /// The iteration before which it was checked last.
    checked_before: u32,
    /// Of each cell, the number of iterations that it is measured for. Empty before the first interim check.
    iterations: Vec<u32>,
}

/// The last attempt at a trial.
#[derive(Debug)]
struct LastAttempt {
    attempt: u32,
    session: u32,
    /// In this attempt or before.
    lost_a_node: bool,
    was_disturbed: bool,
}

impl<'a> Progress<'a> {
    /// The progress of a run of this plan without records.
    pub(super) fn of(plan: &'a Plan) -> Self {
        let is_of_cell_pair = |a: &Trial, b: &Trial| {
            let mut cell_pairs = plan.judging.cell_pairs.iter();
            let has = |cell_pair: &CellPair, trial: &Trial| cell_pair.cells().any(|cell| cell == trial.cell);
            Iteration::of(a) == Iteration::of(b)
                && cell_pairs.any(|cell_pair| has(cell_pair, a) && has(cell_pair, b))
        };
        Self {
            blocks: plan.trials.chunk_by(is_of_cell_pair).collect(),
            trials: HashMap::new(),
            interim_checks: &plan.judging.interim_checks,
            checked_before: 0,
            iterations: vec![],
        }
    }

    /// Adds the record of an attempt, in which a node was lost or not.
    pub(super) fn add(&mut self, record: &TrialRecord, lost_a_node: bool) {
        let id = &record.trial.id;
        let before = self.trials.get(id);
        if before.is_some_and(|before| before.attempt > record.attempt) {
            return;
        }
        let lost_before = before.is_some_and(|before| before.lost_a_node);
        let last = LastAttempt {
            attempt: record.attempt,
            session: record.session,
            lost_a_node: lost_a_node || lost_before,
            was_disturbed: record.flags.contains(&Flag::Disturbed),
        };
        self.trials.insert(id.clone(), last);
    }

    /// Adds a record of an earlier session.
    pub(super) fn add_earlier(&mut self, record: &TrialRecord) {
        let reason = record.failure.as_ref().map(|failure| failure.reason);
        self.add(record, reason.is_some_and(Reason::loses_node));
    }

    /// The blocks of the run, in running order.
    pub(super) fn blocks(&self) -> Vec<&'a [Trial]> {
        self.blocks.clone()
    }

    /// Begins the interim check that comes before this block, because an iteration that a check follows has
    /// ended. Returns whether there is one: only once for each check.
    pub(super) fn begin_check_if_due(&mut self, block: &[Trial]) -> bool {
        let Trial {
            warmup, iteration, ..
        } = block[0];
        let is_due = !warmup && iteration > self.checked_before && self.interim_checks.contains(&iteration);
        if is_due {
            self.checked_before = iteration;
        }
        is_due
    }

    /// Limits the iterations that each cell is measured for. Returns whether that is another limit than
    /// before.
    pub(super) fn limit(&mut self, iterations: Vec<u32>) -> bool {
        let before = mem::replace(&mut self.iterations, iterations);
        before != self.iterations
    }

    fn is_needed(&self, trial: &Trial) -> bool {
        let iterations = self.iterations.get(trial.cell);
        trial.warmup || iterations.is_none_or(|iterations| trial.iteration < *iterations)
    }

    /// The number of trials that have ended, unless another of their block makes them run again.
    pub(super) fn ended(&self) -> usize {
        let ended = self.blocks.iter().map(|block| {
            let attempt = self.next(block).map_or(0, |next| next.attempt);
            let lasts = block.iter().filter_map(|trial| self.trials.get(&trial.id));
            lasts.filter(|last| last.attempt >= attempt).count()
        });
        ended.sum()
    }

    /// What to run next of a block. `None` if it has ended, or is not needed.
    pub(super) fn next(&self, block: &'a [Trial]) -> Option<NextAttempt<'a>> {
        if !block.iter().any(|trial| self.is_needed(trial)) {
            return None;
        }
        let last = |trial: &Trial| self.trials.get(&trial.id);
        let lasts = || block.iter().filter_map(last);
        let lost_a_node = lasts().any(|last| last.lost_a_node);
        let attempt = lasts().map(|last| last.attempt).max().unwrap_or(0);
        let has_attempt = |trial: &Trial| last(trial).is_some_and(|last| last.attempt == attempt);
        if let Some(trial) = block.iter().find(|trial| !has_attempt(trial)) {
            return Some(NextAttempt {
                trial,
                attempt,
                after_loss: attempt > 0 && lost_a_node,
            });
        }
        let session = lasts().map(|last| last.session).max().unwrap_or(0);
        let is_pair_to_retry = is_measured_pair(block)
            && (lasts().any(|last| last.was_disturbed) || lasts().any(|last| last.session != session))
            && self.may_retry_a_pair();
        (attempt + 1 < ATTEMPTS && (lost_a_node || is_pair_to_retry)).then(|| NextAttempt {
            trial: &block[0],
            attempt: attempt + 1,
            after_loss: lost_a_node,
        })
    }

    fn may_retry_a_pair(&self) -> bool {
        let pairs = self.blocks.iter().filter(|block| is_measured_pair(block));
        let is_retried = |trial: &Trial| self.trials.get(&trial.id).is_some_and(|last| last.attempt > 0);
        let retried = pairs.clone().filter(|pair| pair.iter().any(is_retried)).count();
        (retried + 1) * PAIRS_PER_RETRY <= pairs.count()
    }
}

fn is_measured_pair(block: &[Trial]) -> bool {
    block.len() > 1 && !block[0].warmup
}

#[cfg(test)]
mod tests {
    use perfrun_contract::compare::Judging;
    use perfrun_test_kit::records::{completed, failed, plan_of, retried, trial};

    use super::*;

    #[test]
    fn a_trial_that_lost_a_node_has_one_more_attempt() {
        let plan = plan_of(&["c0.i0", "c0.i1"]);
        let lost = failed("c0.i0", Reason::NodeLost);
        assert_eq!(rest(&plan, &[]), ["c0.i0.a0", "c0.i1.a0"]);
        assert_eq!(
            rest(&plan, std::slice::from_ref(&lost)),
            ["c0.i0.a1 after a loss", "c0.i1.a0"]
        );
        let again = retried(lost.clone());
        assert_eq!(rest(&plan, &[lost, again]), ["c0.i1.a0"], "only one");
    }

    #[test]
    fn a_resumed_run_continues_as_if_it_had_never_stopped() {
        let plan = plan_of(&["c0.i0"]);
        let lost = failed("c0.i0", Reason::Stopped);
        assert_eq!(rest(&plan, &[]), ["c0.i0.a0"], "never begun");
        assert_eq!(rest(&plan, &[completed("c0.i0")]), [""; 0], "completed");
        let failed = failed("c0.i0", Reason::Timeout);
        assert_eq!(rest(&plan, &[failed]), [""; 0], "failed for good");
        let both = [lost, retried(completed("c0.i0"))];
        assert_eq!(rest(&plan, &both), [""; 0], "the second attempt completed");
    }

    #[test]
    fn a_disturbed_trial_is_measured_again_with_its_pair() {
        let plan = cell_pairs(4);
        for disturbed in ["c0.i0", "c1.i0"] {
            let first = ["c0.i0", "c1.i0"].map(|id| match id == disturbed {
                true => disturb(completed(id)),
                false => completed(id),
            });
            assert_eq!(rest(&plan, &first)[..3], ["c0.i0.a1", "c1.i0.a1", "c1.i1.a0"]);
            let half = [&first[..], &[retried(completed("c0.i0"))]].concat();
            assert_eq!(rest(&plan, &half)[..2], ["c1.i0.a1", "c1.i1.a0"], "a resumed run");
            let again = [&half[..], &[disturb(retried(completed("c1.i0")))]].concat();
            assert_eq!(rest(&plan, &again)[0], "c1.i1.a0", "only once");
        }
    }

    #[test]
    fn a_control_is_measured_again_with_its_pair() {
        let mut plan = cell_pairs(4);
        plan.judging.cell_pairs[0].control = Some(2);
        let iterations = (0..4).flat_map(|i| [format!("c0.i{i}"), format!("c2.i{i}"), format!("c1.i{i}")]);
        plan.trials = iterations.map(|id| trial(&id)).collect();
        for disturbed in ["c0.i0", "c1.i0", "c2.i0"] {
            let first = ["c0.i0", "c2.i0", "c1.i0"].map(|id| match id == disturbed {
                true => disturb(completed(id)),
                false => completed(id),
            });
            assert_eq!(
                rest(&plan, &first)[..4],
                ["c0.i0.a1", "c2.i0.a1", "c1.i0.a1", "c0.i1.a0"],
                "{disturbed}"
            );
        }
        let ended = run(&plan, |_| true);
        let again = ended.iter().filter(|record| record.attempt > 0).count();
        assert_eq!(again, 3, "one of four iterations");
    }

    #[test]
    fn a_loss_repeats_the_pair_in_the_same_order() {
        let plan = cell_pairs(4);
        let before = ["c0.i0", "c1.i0"].map(completed);
        let lost = [&before[..], &[failed("c1.i1", Reason::NodeLost)]].concat();
        assert_eq!(
            rest(&plan, &lost)[..4],
            [
                "c0.i1.a0",
                "c1.i1.a1 after a loss",
                "c0.i1.a1 after a loss",
                "c0.i2.a0"
            ]
        );
    }

    #[test]
    fn trials_of_two_sessions_do_not_form_a_pair() {
        let later = TrialRecord {
            session: 1,
            ..completed("c1.i0")
        };
        let next = rest(&cell_pairs(4), &[completed("c0.i0"), later]);
        assert_eq!(next[..2], ["c0.i0.a1", "c1.i0.a1"]);
    }

    #[test]
    fn one_pair_of_four_may_be_repeated() {
        for (iterations, repeated) in [(3, 0), (4, 1), (7, 1), (8, 2)] {
            let ended = run(&cell_pairs(iterations), |_| true);
            let again = ended.iter().filter(|record| record.attempt > 0).count();
            assert_eq!(again, 2 * repeated, "{iterations} pairs");
        }
    }

    #[test]
    fn an_interim_check_is_due_once_before_the_iteration_that_follows_it() {
        let mut plan = cell_pairs(4);
        plan.judging.interim_checks = vec![2, 3, 4];
        let mut progress = Progress::of(&plan);
        let blocks = progress.blocks();
        let due: Vec<bool> = blocks
            .iter()
            .chain(&blocks)
            .map(|block| progress.begin_check_if_due(block))
            .collect();
        assert_eq!(due, [false, false, true, true, false, false, false, false]);
    }

    #[test]
    fn trials_not_needed_are_not_run_and_their_share_of_repetitions_stays() {
        let plan = cell_pairs(8);
        let mut progress = progress(&plan, &["c0.i0", "c1.i0"].map(completed));
        assert!(progress.limit(vec![2, 2]));
        assert!(!progress.limit(vec![2, 2]), "nothing is new");
        let blocks = progress.blocks();
        let next = |progress: &Progress<'_>| -> Vec<String> {
            let next = blocks.iter().filter_map(|block| progress.next(block));
            next.map(|next| format!("{}.a{}", next.trial.id, next.attempt))
                .collect()
        };
        assert_eq!(next(&progress), ["c1.i1.a0"]);
        for id in ["c1.i1", "c0.i1", "c1.i0"] {
            progress.add(&disturb(completed(id)), false);
        }
        assert_eq!(next(&progress), ["c0.i0.a1", "c1.i1.a1"], "two of eight");
    }

    #[test]
    fn only_measured_pairs_are_repeated_for_a_disturbance() {
        let single = plan_of(&["c0.i0", "c0.i1", "c0.i2", "c0.i3"]);
        assert_eq!(run(&single, |_| true).len(), 4);
        let warmup = Plan {
            trials: [plan_of(&["c0.w0", "c1.w0"]).trials, cell_pairs(4).trials].concat(),
            ..cell_pairs(4)
        };
        let ended = run(&warmup, |trial| trial.warmup);
        assert!(ended.iter().all(|record| record.attempt == 0));
    }

    #[test]
    fn ended_trials_are_counted_once() {
        let plan = cell_pairs(4);
        let ended = |past: &[TrialRecord]| progress(&plan, past).ended();
        let [a, b] = ["c0.i0", "c1.i0"].map(completed);
        assert_eq!(ended(&[]), 0);
        assert_eq!(ended(std::slice::from_ref(&a)), 1);
        assert_eq!(ended(&[a.clone(), b.clone()]), 2);
        assert_eq!(ended(&[a.clone(), disturb(b.clone())]), 0, "both run again");
        assert_eq!(ended(&[a.clone(), disturb(b), retried(a)]), 1);
    }

    /// Iterations of a pair of cells, whose first trial is first in even iterations.
    fn cell_pairs(iterations: u32) -> Plan {
        let iterations = (0..iterations).flat_map(|i| {
            let [first, second] = [i % 2, 1 - i % 2];
            [format!("c{first}.i{i}"), format!("c{second}.i{i}")]
        });
        let iterations: Vec<String> = iterations.collect();
        let cell_pair = CellPair {
            baseline: 0,
            candidate: 1,
            control: None,
        };
        Plan {
            judging: Judging {
                cell_pairs: vec![cell_pair],
                ..Judging::default()
            },
            ..plan_of(&iterations.iter().map(String::as_str).collect::<Vec<_>>())
        }
    }

    fn disturb(record: TrialRecord) -> TrialRecord {
        TrialRecord {
            flags: vec![Flag::Disturbed],
            ..record
        }
    }

    fn progress<'a>(plan: &'a Plan, past: &[TrialRecord]) -> Progress<'a> {
        let mut progress = Progress::of(plan);
        past.iter().for_each(|record| progress.add_earlier(record));
        progress
    }

    /// What is run after these records, if it completes undisturbed.
    fn rest(plan: &Plan, past: &[TrialRecord]) -> Vec<String> {
        let mut all = vec![];
        let mut progress = progress(plan, past);
        for block in progress.blocks() {
            while let Some(next) = progress.next(block) {
                let id = &next.trial.id;
                let why = if next.after_loss { " after a loss" } else { "" };
                all.push(format!("{id}.a{}{why}", next.attempt));
                let record = TrialRecord {
                    attempt: next.attempt,
                    session: past.iter().map(|record| record.session).max().unwrap_or(0),
                    ..completed(id)
                };
                progress.add(&record, false);
            }
        }
        all
    }

    /// The records of a run in which some trials are disturbed, whenever they run.
    fn run(plan: &Plan, is_disturbed: fn(&Trial) -> bool) -> Vec<TrialRecord> {
        let mut records = vec![];
        let mut progress = Progress::of(plan);
        for block in progress.blocks() {
            while let Some(next) = progress.next(block) {
                let record = TrialRecord {
                    attempt: next.attempt,
                    ..completed(&next.trial.id)
                };
                let record = match is_disturbed(next.trial) {
                    true => disturb(record),
                    false => record,
                };
                progress.add(&record, false);
                records.push(record);
            }
        }
        records
    }
}
