//! Trials by what became of them: the last attempt at each counts.

use std::collections::{BTreeMap, HashMap};

use perfrun_api::{node::Reason, plan::Plan, results::TrialRecord};

use crate::{
    decide::{Counts, Progress},
    links::Links,
};

/// What became of the trials so far.
#[derive(Debug, Default)]
pub struct Tally {
    /// By id of the trial: why its last attempt failed, if it did, and as which record of all.
    trials: HashMap<String, Option<Failed>>,
    failed: u32,
    records: usize,
    links: Links,
    /// The network of each cell; none at all, if links are left as they are.
    networks: Vec<String>,
}

#[derive(Debug)]
struct Failed {
    record: usize,
    reason: Reason,
    message: String,
}

impl Tally {
    /// Of a plan of which nothing was run yet.
    pub fn new(plan: &Plan) -> Self {
        let impairs = !plan.networks.is_empty();
        let cells = plan.cells.iter().filter(|_| impairs);
        Self {
            networks: cells.map(|cell| cell.network.clone()).collect(),
            ..Self::default()
        }
    }

    /// Counts an attempt, after those before it.
    pub fn add(&mut self, record: &TrialRecord) {
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

    /// How far the run is.
    pub fn progress(&self) -> Progress {
        Progress {
            counts: Counts {
                completed: u32::try_from(self.trials.len()).unwrap_or(u32::MAX) - self.failed,
                failed: self.failed,
            },
            links: self.links.clone(),
        }
    }

    /// Reasons of the trials that failed, and how many for each.
    pub fn failures(&self) -> BTreeMap<Reason, u32> {
        let mut reasons = BTreeMap::new();
        for failed in self.trials.values().flatten() {
            *reasons.entry(failed.reason).or_insert(0) += 1;
        }
        reasons
    }

    /// Why the first of them failed, for people.
    pub fn first_failure(&self) -> Option<String> {
        let first = self.trials.values().flatten().min_by_key(|failed| failed.record);
        first.map(|failed| failed.message.clone())
    }
}

#[cfg(test)]
pub mod tests {
    use perfrun_api::{plan::Trial, results::TrialFailure};

    use super::*;

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

    pub fn record(trial: &str, attempt: u32, reason: Option<Reason>) -> TrialRecord {
        TrialRecord {
            trial: Trial {
                id: trial.to_owned(),
                cell: 0,
                iteration: 0,
                warmup: false,
            },
            attempt,
            failure: reason.map(|reason| TrialFailure {
                node: None,
                reason,
                message: format!("{trial}.a{attempt}"),
            }),
            metrics: BTreeMap::new(),
            flags: vec![],
            at_seconds: 0.0,
            start_skew_seconds: None,
            clock_uncertainty_seconds: None,
            start_lateness_seconds: None,
            links: None,
            overhead_seconds: 0.0,
            nodes: BTreeMap::new(),
        }
    }
}
