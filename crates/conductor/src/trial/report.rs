//! What the conductor keeps of a node's status, until the trial is recorded.
//!
//! A status may have 8 MiB, and there may be hundreds of nodes. Each outcome has a share of what its trial
//! may always occupy. A larger one needs room that all runs of the process share. Without it, neighbouring
//! samples are merged until they fit the share, as they are later in results that are too large.

use std::iter;

use perfrun_contract::{
    histogram::Histogram,
    node::{Measured, Outcome, Sample, TrialState, TrialStatus},
};

use crate::client::{AnswerBudget, Error, OutcomePermit};

/// What the outcomes of all nodes of a trial may always occupy together.
const TRIAL_OUTCOMES_MAX: usize = 4 << 20;

/// About what [`MAP_ENTRIES`] entries of a map occupy: it allocates room for eleven, and may be half empty.
const MAP_BYTES: usize = 300;
const MAP_ENTRIES: usize = 5;

/// What is kept of any status of a node, until the next one comes.
#[derive(Debug)]
pub(super) struct BriefStatus {
    pub state: TrialState,
    /// Payload sent and received so far.
    pub bytes: u64,
    /// Those of its addresses that are still to be dialled.
    pub addresses: Vec<String>,
}

/// What is kept of a status.
#[derive(Debug)]
pub(super) struct Report {
    pub status: BriefStatus,
    /// How the trial ended, if it has.
    pub outcome: Option<Outcome>,
    /// The room that the outcome takes.
    pub permit: OutcomePermit,
    /// How many neighbouring samples were merged into each one, if that was necessary.
    pub merged_samples: Option<u32>,
}

/// How much is kept of the status of a node.
#[derive(Clone, Copy, Debug)]
pub(super) struct StatusLimits {
    /// How many of its addresses are still to be dialled.
    pub dialled: usize,
    /// What its outcome may always occupy.
    pub outcome_bytes: usize,
}

impl StatusLimits {
    /// The limits of a node of a trial that has this number of them.
    pub(super) fn new(nodes: usize, dialled: usize) -> Self {
        Self {
            dialled,
            outcome_bytes: TRIAL_OUTCOMES_MAX / nodes.max(1),
        }
    }

    /// What is kept of a status.
    ///
    /// # Errors
    ///
    /// If the outcome does not fit, even with only one sample.
    pub(super) fn report(self, status: TrialStatus, answer_budget: &AnswerBudget) -> Result<Report, Error> {
        let mut addresses = status.addresses;
        addresses.truncate(self.dialled);
        addresses.shrink_to_fit();
        let has_ended = status.state == TrialState::Finished;
        let mut report = Report {
            status: BriefStatus {
                state: status.state,
                bytes: status.bytes_sent + status.bytes_received,
                addresses,
            },
            outcome: status.outcome.filter(|_| has_ended),
            permit: OutcomePermit::default(),
            merged_samples: None,
        };
        if let Some(outcome) = &mut report.outcome {
            (report.permit, report.merged_samples) = self.reserve_room(outcome, answer_budget)?;
        }
        Ok(report)
    }

    fn reserve_room(
        self,
        outcome: &mut Outcome,
        answer_budget: &AnswerBudget,
    ) -> Result<(OutcomePermit, Option<u32>), Error> {
        sides(outcome).for_each(|measured| measured.samples.shrink_to_fit());
        let most = self.outcome_bytes;
        let whole = bytes(outcome);
        if whole <= most {
            return Ok((OutcomePermit::default(), None));
        }
        if let Some(permit) = answer_budget.reserve_outcome(whole) {
            return Ok((permit, None));
        }
        let mut step = 1;
        while bytes(outcome) > most && merge_pairs(outcome) {
            step *= 2;
        }
        let left = bytes(outcome);
        let permit = match left <= most {
            true => OutcomePermit::default(),
            false => answer_budget.reserve_outcome(left).ok_or(Error::NoRoom)?,
        };
        Ok((permit, (step > 1).then_some(step)))
    }
}

/// Both sides of a trial in one process, otherwise one.
fn sides(outcome: &mut Outcome) -> impl Iterator<Item = &mut Measured> {
    iter::once(&mut outcome.measured).chain(&mut outcome.served)
}

/// Merges samples in pairs. Returns whether there were any.
fn merge_pairs(outcome: &mut Outcome) -> bool {
    let mut are_merged = false;
    for measured in sides(outcome) {
        are_merged |= measured.samples.len() > 1;
        measured.samples = measured.samples.chunks(2).map(Sample::merged).collect();
    }
    are_merged
}

/// About what an outcome occupies.
fn bytes(outcome: &Outcome) -> usize {
    let all = iter::once(&outcome.measured).chain(&outcome.served);
    all.map(bytes_of_measured).sum()
}

fn bytes_of_measured(measured: &Measured) -> usize {
    let map = |entries: usize| entries.div_ceil(MAP_ENTRIES) * MAP_BYTES;
    let samples = measured.samples.iter();
    let samples = samples.map(|sample| size_of::<Sample>() + map(sample.errors.len()));
    let histograms = measured.histograms.values().map(Histogram::text_bytes);
    let refused = measured.refused.keys().map(String::len);
    let maps = [
        measured.errors.len(),
        measured.refused.len(),
        measured.histograms.len(),
    ];
    let maps = maps.into_iter().map(map);
    size_of::<Measured>()
        + samples
            .chain(histograms)
            .chain(refused)
            .chain(maps)
            .sum::<usize>()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use perfrun_contract::{distribution::Distribution, node::Reason};

    use super::*;

    const NODES: usize = 50;

    fn status(measured: Measured) -> TrialStatus {
        TrialStatus {
            state: TrialState::Finished,
            addresses: vec!["/somewhere".to_owned(); 10_000],
            bytes_sent: 1,
            bytes_received: 2,
            outcome: Some(Outcome {
                failure: None,
                measured,
                served: None,
            }),
        }
    }

    /// The status of a node that was sampled for an hour.
    fn long() -> TrialStatus {
        let sample = Sample {
            bytes_sent: 1,
            errors: BTreeMap::from([(Reason::Timeout, 1)]),
            ..Sample::default()
        };
        status(Measured {
            samples: vec![sample; 4097],
            ..Measured::default()
        })
    }

    fn occupied<'a>(reports: impl IntoIterator<Item = &'a Report>) -> usize {
        let outcomes = reports.into_iter().filter_map(|report| report.outcome.as_ref());
        outcomes.map(bytes).sum()
    }

    #[test]
    fn outcomes_that_nothing_has_room_for_have_merged_samples() {
        let (process, limits) = (AnswerBudget::of_process(), StatusLimits::new(NODES, 1));
        let reports = |run: &AnswerBudget| -> Vec<Report> {
            let all = (0..NODES).map(|_| limits.report(long(), run).expect("samples can be merged"));
            all.collect()
        };
        let (first, second) = (process.of_run(), process.of_run());
        let trials = [reports(&first), reports(&second)];
        for reports in &trials {
            assert!(occupied(reports) <= 16 << 20, "{}", occupied(reports));
            assert_eq!(reports[0].merged_samples, None);
            let last = reports.last().expect("there are some");
            assert!(last.merged_samples > Some(1), "{:?}", last.merged_samples);
            let samples = &last.outcome.as_ref().expect("it has ended").measured.samples;
            assert_eq!(samples.iter().map(|sample| sample.bytes_sent).sum::<u64>(), 4097);
        }
        // They have taken all of it. A third run has its share, and one after them has everything.
        let third = limits.report(long(), &process.of_run());
        assert!(third.expect("samples can be merged").merged_samples.is_some());
        drop(trials);
        let next = limits.report(long(), &process.of_run());
        assert_eq!(next.expect("there is room").merged_samples, None);
    }

    #[test]
    fn an_outcome_that_is_too_large_without_samples_needs_room() {
        let (run, limits) = (AnswerBudget::of_process(), StatusLimits::new(NODES, 1));
        let text = serde_json::Value::String("A".repeat(1 << 20));
        let histogram: Histogram = serde_json::from_value(text).expect("a histogram is text");
        let large = || {
            status(Measured {
                histograms: BTreeMap::from([(Distribution::Open, histogram.clone())]),
                ..Measured::default()
            })
        };
        let reports: Vec<_> = (0..NODES).map(|_| limits.report(large(), &run)).collect();
        let refused = reports.iter().filter_map(|report| report.as_ref().err());
        assert!(refused.clone().all(|error| matches!(error, Error::NoRoom)));
        assert!(refused.count() > NODES / 2);
        let kept = reports.iter().filter_map(|report| report.as_ref().ok());
        assert!((1 << 20..=12 << 20).contains(&occupied(kept)));
    }

    #[test]
    fn without_a_bound_every_outcome_is_kept_as_it_is() {
        let (any, limits) = (AnswerBudget::default(), StatusLimits::new(NODES, 1));
        let all = (0..20).map(|_| limits.report(long(), &any).expect("nothing bounds it"));
        let reports: Vec<Report> = all.collect();
        assert!(reports.iter().all(|report| report.merged_samples.is_none()));
    }

    #[test]
    fn one_address_of_each_peer_is_kept_and_no_outcome_before_the_end() {
        let early = TrialStatus {
            state: TrialState::Running,
            ..long()
        };
        let report = StatusLimits::new(NODES, 3).report(early, &AnswerBudget::of_process());
        let Report { status, outcome, .. } = report.expect("it is small");
        assert_eq!((status.addresses.len(), status.bytes), (3, 3));
        assert!(status.addresses.capacity() < 100 && outcome.is_none());
    }
}
