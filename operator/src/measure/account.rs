//! How far a run is: its trials and its links.

use perfrun_contract::{plan::Plan, record::TrialRecord, tally::Tally};

use crate::{decide::Progress, links::Links};

/// What the records of a run say so far.
#[derive(Debug, Default)]
pub struct Account {
    trials: Tally,
    links: Links,
    /// The network of each cell. Empty if links are left as they are.
    networks: Vec<String>,
}

impl Account {
    /// Of a plan of which nothing was run yet.
    pub fn new(plan: &Plan) -> Self {
        let impairs = !plan.networks.is_empty();
        let cells = plan.cells.iter().filter(|_| impairs);
        Self {
            trials: Tally::of(plan, []),
            links: Links::default(),
            networks: cells.map(|cell| cell.network.clone()).collect(),
        }
    }

    /// Takes in an attempt, after those before it.
    pub fn add(&mut self, record: &TrialRecord) {
        self.trials.add(record);
        if let Some(network) = self.networks.get(record.trial.cell) {
            self.links.add(network, record);
        }
    }

    /// The trials so far.
    pub fn trials(&self) -> &Tally {
        &self.trials
    }

    /// How far the run is.
    pub fn progress(&self) -> Progress {
        Progress {
            counts: self.trials.counts(),
            links: self.links.clone(),
        }
    }
}
