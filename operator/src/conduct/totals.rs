//! How far a run is: its trials, and the networks that were measured.

use std::sync::Arc;

use perfrun_contract::{
    compare::NotNeeded,
    plan::Plan,
    record::TrialRecord,
    tally::{Counts, Tally},
};

use super::measured_networks::MeasuredNetworks;

/// How far a run's trials are.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Progress {
    pub(crate) counts: Counts,
    /// Empty if none was measured, and before the journal has been read.
    pub(crate) measured_networks: MeasuredNetworks,
}

/// What the records of a run amount to so far.
#[derive(Clone, Debug, Default)]
pub(super) struct RecordTotals {
    trials: Tally,
    measured_networks: MeasuredNetworks,
    /// The network of each cell. Empty if the run does not impair links.
    network_of_cell: Arc<[String]>,
}

impl RecordTotals {
    /// The totals of a plan without any record.
    pub(super) fn new(plan: &Plan) -> Self {
        let impairs = !plan.networks.is_empty();
        let cells = plan.cells.iter().filter(|_| impairs);
        Self {
            trials: Tally::of(plan, []),
            measured_networks: MeasuredNetworks::default(),
            network_of_cell: cells.map(|cell| cell.network.clone()).collect(),
        }
    }

    /// Adds an attempt. Attempts are added in the order in which they ended.
    pub(super) fn add(&mut self, record: &TrialRecord) {
        self.trials.add(record);
        if let Some(network) = self.network_of_cell.get(record.trial.cell) {
            self.measured_networks.add(network, record);
        }
    }

    /// Empty totals that start from the networks measured so far; a clone would copy every attempt.
    pub(super) fn continued(&self) -> Self {
        Self {
            trials: Tally::default(),
            measured_networks: self.measured_networks.clone(),
            network_of_cell: self.network_of_cell.clone(),
        }
    }

    /// Adds attempts, and takes the measured networks from `continued`, which already has them.
    pub(super) fn join(&mut self, records: &[TrialRecord], continued: Self) {
        records.iter().for_each(|record| self.trials.add(record));
        self.measured_networks = continued.measured_networks;
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
            measured_networks: self.measured_networks.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use perfrun_api::cluster::condition::Status;
    use perfrun_contract::{node::Reason, record::LinkCheck};
    use perfrun_test_kit::records::{completed, failed};

    use super::*;

    #[test]
    fn attempts_of_continued_totals_count_once_they_have_joined() {
        let mut totals = RecordTotals {
            network_of_cell: ["wan".to_owned()].into(),
            ..RecordTotals::default()
        };
        totals.add(&failed("c0.i0", Reason::ImpairmentNotEffective));
        let before = totals.progress();
        let measured = TrialRecord {
            links: Some(LinkCheck {
                network: "wan".to_owned(),
                set_seconds: 0.1,
                probe_seconds: 1.0,
                legs: vec![],
            }),
            ..completed("c0.i1")
        };
        let mut continued = totals.continued();
        continued.add(&measured);
        assert_eq!(totals.progress(), before);
        // A brief record says nothing about links.
        totals.join(&[measured.brief()], continued);
        let Progress {
            counts,
            measured_networks,
        } = totals.progress();
        assert_eq!((counts.completed, counts.failed), (1, 1));
        assert_eq!(measured_networks.condition(1).unwrap().0, Status::True);
    }
}
