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
    GoOn,
}

/// Decides after an attempt in which a node was lost, or was not.
pub(super) fn after(lost: bool, attempt: u32) -> After {
    if lost && attempt + 1 < ATTEMPTS {
        After::Retry(attempt + 1)
    } else {
        After::GoOn
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
        After::GoOn => None,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use perfrun_contract::{
        plan::Plan,
        record::{TrialFailure, TrialRecord},
    };

    use super::*;

    #[test]
    fn a_lost_node_earns_one_more_attempt() {
        assert_eq!([after(true, 0), after(true, 1)], [After::Retry(1), After::GoOn]);
        assert_eq!(after(false, 0), After::GoOn);
    }

    #[test]
    fn a_resumed_run_goes_on_as_if_it_had_never_stopped() {
        let lost = record(0, Some(Reason::NodeLost));
        assert_eq!(next_attempt(&tally(&[]), &trial("c0.i0")), Some(0), "never begun");
        assert_eq!(
            next_attempt(&tally(&[record(0, None)]), &trial("c0.i0")),
            None,
            "completed"
        );
        assert_eq!(
            next_attempt(&tally(&[record(0, Some(Reason::Timeout))]), &trial("c0.i0")),
            None,
            "failed for good"
        );
        assert_eq!(
            next_attempt(&tally(std::slice::from_ref(&lost)), &trial("c0.i0")),
            Some(1),
            "one attempt is left"
        );
        assert_eq!(
            next_attempt(&tally(&[lost, record(1, None)]), &trial("c0.i0")),
            None,
            "the second attempt completed"
        );
        assert_eq!(
            next_attempt(&tally(&[record(0, None)]), &trial("c0.i1")),
            Some(0),
            "another trial"
        );
    }

    fn tally(records: &[TrialRecord]) -> Tally {
        Tally::of(&Plan::default(), records)
    }

    fn trial(id: &str) -> Trial {
        Trial {
            id: id.to_owned(),
            cell: 0,
            iteration: 0,
            warmup: false,
        }
    }

    fn record(attempt: u32, reason: Option<Reason>) -> TrialRecord {
        TrialRecord {
            trial: trial("c0.i0"),
            attempt,
            failure: reason.map(|reason| TrialFailure {
                node: None,
                reason,
                message: String::new(),
            }),
            metrics: BTreeMap::new(),
            flags: vec![],
            at_seconds: 0.0,
            start_skew_seconds: None,
            clock_uncertainty_seconds: None,
            start_lateness_seconds: None,
            overhead_seconds: 0.0,
            links: None,
            nodes: BTreeMap::new(),
        }
    }
}
