//! How far a run is: its trials and its links.

use perfrun_contract::{
    compare::NotNeeded,
    plan::Plan,
    record::TrialRecord,
    tally::{Counts, Tally},
};

use super::links::Links;

/// How far a run's trials are.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Progress {
    pub(crate) counts: Counts,
    /// Empty if this process has measured no links.
    pub(crate) links: Links,
}

/// What the records of a run amount to so far.
#[derive(Clone, Debug, Default)]
pub(super) struct RunningAccount {
    trials: Tally,
    links: Links,
    /// The network of each cell. Empty if the run does not impair links.
    networks: Vec<String>,
}

impl RunningAccount {
    /// The account of a plan without any record.
    pub(super) fn new(plan: &Plan) -> Self {
        let impairs = !plan.networks.is_empty();
        let cells = plan.cells.iter().filter(|_| impairs);
        Self {
            trials: Tally::of(plan, []),
            links: Links::default(),
            networks: cells.map(|cell| cell.network.clone()).collect(),
        }
    }

    /// Adds an attempt. Attempts are added in the order in which they ended.
    pub(super) fn add(&mut self, record: &TrialRecord) {
        self.trials.add(record);
        if let Some(network) = self.networks.get(record.trial.cell) {
            self.links.add(network, record);
        }
    }

    /// See [`Tally::leave_out`].
    pub(super) fn leave_out(&mut self, not_needed: Option<NotNeeded>) {
        self.trials.leave_out(not_needed);
    }

    pub(super) fn trials(&self) -> &Tally {
        &self.trials
    }

    pub(super) fn progress(&self) -> Progress {
        Progress {
            counts: self.trials.counts(),
            links: self.links.clone(),
        }
    }
}
