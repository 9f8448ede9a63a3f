//! What comes after a trial, as functions of values.

use perfrun_contract::{node::Reason, plan::Trial, tally::Tally};

/// A trial in which a node was lost is tried once more.
const ATTEMPTS: u32 = 2;

/// What comes after an attempt.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum After {
    /// The same trial again, with this attempt.
    Retry(u32),
    /// The next trial.
    Continue,
}

/// Decides after an attempt in which a node was lost, or was not.
pub(super) fn after(lost: bool, attempt: u32) -> After {
    if lost && attempt + 1 < ATTEMPTS {
        After::Retry(attempt + 1)
    } else {
        After::Continue
    }
}

/// The attempt that a trial begins with, given what was recorded of the run already. None if the trial has
/// ended.
pub(super) fn next_attempt(already: &Tally, trial: &Trial) -> Option<u32> {
    let Some((attempt, failure)) = already.last_attempt(&trial.id) else {
        return Some(0);
    };
    let was_lost = matches!(failure, Some(Reason::NodeLost | Reason::Stopped));
    match after(was_lost, attempt) {
        After::Retry(attempt) => Some(attempt),
        After::Continue => None,
    }
}

#[cfg(test)]
mod tests {
    use perfrun_contract::{plan::Plan, record::TrialRecord};
    use perfrun_test_kit::records::{completed, failed, retried, trial};

    use super::*;

    #[test]
    fn a_lost_node_earns_one_more_attempt() {
        assert_eq!(
            [after(true, 0), after(true, 1)],
            [After::Retry(1), After::Continue]
        );
        assert_eq!(after(false, 0), After::Continue);
    }

    #[test]
    fn a_resumed_run_continues_as_if_it_had_never_stopped() {
        let lost = failed("c0.i0", Reason::NodeLost);
        assert_eq!(next_attempt(&tally(&[]), &trial("c0.i0")), Some(0), "never begun");
        assert_eq!(
            next_attempt(&tally(&[completed("c0.i0")]), &trial("c0.i0")),
            None,
            "completed"
        );
        assert_eq!(
            next_attempt(&tally(&[failed("c0.i0", Reason::Timeout)]), &trial("c0.i0")),
            None,
            "failed for good"
        );
        assert_eq!(
            next_attempt(&tally(std::slice::from_ref(&lost)), &trial("c0.i0")),
            Some(1),
            "one attempt is left"
        );
        assert_eq!(
            next_attempt(&tally(&[lost, retried(completed("c0.i0"))]), &trial("c0.i0")),
            None,
            "the second attempt completed"
        );
        assert_eq!(
            next_attempt(&tally(&[completed("c0.i0")]), &trial("c0.i1")),
            Some(0),
            "another trial"
        );
    }

    fn tally(records: &[TrialRecord]) -> Tally {
        Tally::of(&Plan::default(), records)
    }
}
