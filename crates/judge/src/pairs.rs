//! Which trials are compared with which.

use std::collections::BTreeMap;

use perfrun_contract::{
    compare::CellPair,
    metric::{Better, Metric},
    node::Reason,
    plan::Plan,
    record::TrialRecord,
    tally::counting,
};

/// Two trials are neighbours only if the pause between them is at most this, in seconds: machines change.
const PAUSE_SECONDS_MAX: f64 = 60.0;

/// The trials of a run by cell and iteration, without warm-up; of each the last attempt.
pub(crate) struct Trials<'a> {
    plan: &'a Plan,
    by_iteration: BTreeMap<(usize, u32), Placed<'a>>,
}

/// A record with its place in running order.
#[derive(Clone, Copy)]
struct Placed<'a> {
    place: usize,
    record: &'a TrialRecord,
}

/// The trials of a pair of cells in one iteration.
pub(crate) struct Pair<'a> {
    pub(crate) iteration: u32,
    pub(crate) baseline: &'a TrialRecord,
    pub(crate) candidate: &'a TrialRecord,
    pub(crate) status: PairStatus,
}

/// Whether a pair counts. The reasons do not depend on which of the two is the candidate.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum PairStatus {
    Counts,
    /// Something else kept the machine busy.
    Disturbed,
    /// Both failed: neither is worse.
    BothFailed,
    /// The two are not neighbours, or one failed for a reason that is not the stack's.
    Unpaired,
}

impl<'a> Trials<'a> {
    pub(crate) fn of(plan: &'a Plan, records: &'a [TrialRecord]) -> Self {
        let mut records: Vec<&TrialRecord> = counting(records).collect();
        // Records may be given in another order than that in which they were measured.
        records.sort_by(|a, b| (a.session.cmp(&b.session)).then(a.at_seconds.total_cmp(&b.at_seconds)));
        let placed = records
            .into_iter()
            .enumerate()
            .map(|(place, record)| Placed { place, record });
        let by_iteration = placed
            .filter(|placed| !placed.record.trial.warmup)
            .map(|placed| ((placed.record.trial.cell, placed.record.trial.iteration), placed))
            .collect();
        Self { plan, by_iteration }
    }

    /// The trials of a cell in the first iterations.
    pub(crate) fn of_cell(&self, cell: usize, iterations: u32) -> impl Iterator<Item = &'a TrialRecord> {
        self.by_iteration
            .range((cell, 0)..(cell, iterations))
            .map(|(_, placed)| placed.record)
    }

    /// The trials of the cell with this id. Empty if the plan has no such cell.
    pub(crate) fn of_cell_called(&self, id: &str) -> Vec<&'a TrialRecord> {
        let cell = self.plan.cells.iter().position(|cell| cell.id == id);
        cell.map_or_else(Vec::new, |cell| self.of_cell(cell, u32::MAX).collect())
    }

    /// The trial of a cell in an iteration.
    pub(crate) fn at(&self, cell: usize, iteration: u32) -> Option<&'a TrialRecord> {
        self.by_iteration
            .get(&(cell, iteration))
            .map(|placed| placed.record)
    }

    /// The trials of baseline and candidate in the first iterations, as pairs.
    pub(crate) fn pairs(&self, cell_pair: CellPair, iterations: u32) -> Vec<Pair<'a>> {
        let longest = self.plan.cells.get(cell_pair.baseline).map_or(0.0, |cell| {
            let trial = cell.parameters.duration().max(self.plan.least_time_of(cell));
            PAUSE_SECONDS_MAX + trial.as_secs_f64()
        });
        let baselines = self
            .by_iteration
            .range((cell_pair.baseline, 0)..(cell_pair.baseline, iterations));
        let pair = |(&(_, iteration), baseline): (_, &Placed<'a>)| {
            let trial = |cell: usize| self.by_iteration.get(&(cell, iteration));
            let candidate = trial(cell_pair.candidate)?;
            Some(Pair {
                iteration,
                baseline: baseline.record,
                candidate: candidate.record,
                status: status(baseline, candidate, cell_pair.control.and_then(trial), longest),
            })
        };
        baselines.filter_map(pair).collect()
    }
}

impl Pair<'_> {
    /// How much better the candidate's value is, as a logarithm of their ratio. A candidate that failed is
    /// worse than any value (Lachin, on worst ranks for informatively missing observations, Controlled
    /// Clinical Trials 20, 1999). Any number of lost messages, for example, is infinitely worse than none.
    /// `None` if the pair does not count, or has no values.
    pub(crate) fn difference(&self, metric: Metric) -> Option<f64> {
        if self.status != PairStatus::Counts {
            return None;
        }
        difference(metric, self.baseline, self.candidate)
    }
}

/// The differences of pairs that count.
pub(crate) fn differences(pairs: &[Pair<'_>], metric: Metric) -> Vec<f64> {
    pairs.iter().filter_map(|pair| pair.difference(metric)).collect()
}

/// The numbers of pairs that count in which only the baseline failed, and in which only the candidate failed.
pub(crate) fn failed(pairs: &[Pair<'_>]) -> [usize; 2] {
    let counting = || pairs.iter().filter(|pair| pair.status == PairStatus::Counts);
    [
        counting().filter(|pair| pair.baseline.failure.is_some()).count(),
        counting().filter(|pair| pair.candidate.failure.is_some()).count(),
    ]
}

/// See [`Pair::difference`].
pub(crate) fn difference(metric: Metric, baseline: &TrialRecord, candidate: &TrialRecord) -> Option<f64> {
    let sign = direction(metric)?;
    match (&baseline.failure, &candidate.failure) {
        (None, Some(_)) => Some(f64::NEG_INFINITY),
        (Some(_), None) => Some(f64::INFINITY),
        (Some(_), Some(_)) => None,
        (None, None) => {
            let (candidate, baseline) = (value(candidate, metric)?, value(baseline, metric)?);
            let ratio = candidate / baseline;
            match ratio.is_nan() {
                false => Some(sign * ratio.ln()),
                // Both are 0. No failure is as good as no failure; if nothing works, neither is worse.
                true => (sign < 0.0).then_some(0.0),
            }
        }
    }
}

/// 1 if a higher value is better, and −1 if a lower one is.
pub(crate) fn direction(metric: Metric) -> Option<f64> {
    match metric.better() {
        Better::Higher => Some(1.0),
        Better::Lower => Some(-1.0),
        Better::Neither => None,
    }
}

/// The value of a completed trial, if it is one that ratios can be made of. A count may be 0; a time or a
/// rate of 0 was not measured.
pub(crate) fn value(record: &TrialRecord, metric: Metric) -> Option<f64> {
    let value = record.metrics.get(&metric).copied();
    value.filter(|value| value.is_finite() && (*value > 0.0 || *value == 0.0 && metric.is_whole()))
}

/// Whether a trial says something about the stack.
pub(crate) fn is_valid(record: &TrialRecord) -> bool {
    !record.is_disturbed() && !has_unrelated_failure(record)
}

/// Whether a trial failed by the stack's doing.
pub(crate) fn has_failure_of_stack(record: &TrialRecord) -> bool {
    record.failure.is_some() && is_valid(record)
}

/// Whether a trial failed for a reason that says nothing about the stack.
pub(crate) fn has_unrelated_failure(record: &TrialRecord) -> bool {
    record
        .failure
        .as_ref()
        .is_some_and(|failure| match failure.reason {
            Reason::NodeLost
            | Reason::Stopped
            | Reason::Cancelled
            | Reason::ImpairmentNotEffective
            | Reason::LimitTooLow => true,
            Reason::Unsupported
            | Reason::ListenFailed
            | Reason::DialFailed
            | Reason::Refused
            | Reason::OpenFailed
            | Reason::StreamFailed
            | Reason::TooFewBytes
            | Reason::UnexpectedBytes
            | Reason::WrongEcho
            | Reason::MessageLost
            | Reason::Timeout
            | Reason::CountMismatch
            | Reason::Internal
            | Reason::Newer(_) => false,
        })
}

/// The two are neighbours if nothing is between them but the third trial of their pair of cells. `longest` is
/// the longest time in seconds from the start of a trial to that of the next one.
fn status(
    baseline: &Placed<'_>,
    candidate: &Placed<'_>,
    third: Option<&Placed<'_>>,
    longest: f64,
) -> PairStatus {
    let (a, b) = (baseline.record, candidate.record);
    let is_between = |third: &Placed<'_>| (baseline.place < third.place) == (third.place < candidate.place);
    let distance = if third.is_some_and(is_between) { 2 } else { 1 };
    let are_neighbours = baseline.place.abs_diff(candidate.place) == distance
        && a.session == b.session
        && (a.at_seconds - b.at_seconds).abs() <= longest * distance as f64;
    if a.is_disturbed() || b.is_disturbed() {
        PairStatus::Disturbed
    } else if !are_neighbours || has_unrelated_failure(a) || has_unrelated_failure(b) {
        PairStatus::Unpaired
    } else if a.failure.is_some() && b.failure.is_some() {
        PairStatus::BothFailed
    } else {
        PairStatus::Counts
    }
}
