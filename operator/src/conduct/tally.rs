//! Counts the trials of a run. The last attempt at each trial counts.

use std::collections::{BTreeMap, HashMap};

use perfrun_api::{node::Reason, plan::Plan, results::TrialRecord};

use crate::{
    links::Links,
    stage::{Counts, Progress},
};

/// The ended trials of a run.
#[derive(Debug, Default)]
pub(super) struct Tally {
    /// By id of the trial: how its last attempt failed. `None` if it did not.
    trials: HashMap<String, Option<Failed>>,
    failed: u32,
    records: usize,
    links: Links,
    /// The network of each cell. Empty if the run does not impair links.
    networks: Vec<String>,
}

#[derive(Debug)]
struct Failed {
    /// The number of records before this one.
    record: usize,
    reason: Reason,
    message: String,
}

impl Tally {
    /// The tally of a plan without any record.
    pub(super) fn new(plan: &Plan) -> Self {
        let impairs = !plan.networks.is_empty();
        let cells = plan.cells.iter().filter(|_| impairs);
        Self {
            networks: cells.map(|cell| cell.network.clone()).collect(),
            ..Self::default()
        }
    }

    /// Adds an attempt. Attempts are added in the order in which they ended.
    pub(super) fn add(&mut self, record: &TrialRecord) {
        let failed = record.failure.as_ref().map(|failure| Failed {
            record: self.records,
            reason: failure.reason,
            message: failure.message.clone(),
        });
        self.records += 1;
        if let Some(network) = self.networks.get(record.trial.cell) {
            self.links.add(network, record);
        }
        self.failed += u32::from(failed.is_some());
        let before = self.trials.insert(record.trial.id.clone(), failed);
        self.failed -= u32::from(before.flatten().is_some());
    }

    pub(super) fn progress(&self) -> Progress {
        Progress {
            counts: Counts {
                completed: u32::try_from(self.trials.len()).unwrap_or(u32::MAX) - self.failed,
                failed: self.failed,
            },
            links: self.links.clone(),
        }
    }

    /// How many trials failed, by reason.
    pub(super) fn failures(&self) -> BTreeMap<Reason, u32> {
        let mut reasons = BTreeMap::new();
        for failed in self.trials.values().flatten() {
            *reasons.entry(failed.reason).or_insert(0) += 1;
        }
        reasons
    }

    /// The message of the first failed trial.
    pub(super) fn first_failure(&self) -> Option<String> {
        let first = self.trials.values().flatten().min_by_key(|failed| failed.record);
        first.map(|failed| failed.message.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conduct::tests::record;

    #[test]
    fn the_last_attempt_counts() {
        let mut tally = Tally::default();
        for (trial, attempt, failure) in [
            ("a", 0, Some(Reason::NodeLost)),
            ("a", 1, None),
            ("b", 0, Some(Reason::Timeout)),
            ("c", 0, None),
            ("d", 0, Some(Reason::Timeout)),
        ] {
            tally.add(&record(trial, attempt, failure));
        }
        assert_eq!(
            tally.progress().counts,
            Counts {
                completed: 2,
                failed: 2
            }
        );
        assert_eq!(tally.failures(), [(Reason::Timeout, 2)].into());
        assert_eq!(tally.first_failure().unwrap(), "b.a0");
    }
}
