//! Whether expectations hold.

use std::collections::BTreeMap;

use perfrun_contract::{
    compare::{ALPHA, Bound, CellPair, Finding, Verdict, interval_min},
    metric::Metric,
    plan::Plan,
    record::TrialRecord,
    units,
};
use statrs::distribution::{Binomial, DiscreteCDF};

use crate::{
    check::Check,
    comparison::ratio,
    holm,
    hypothesis_tests::TestResult,
    median::{median, median_interval},
    pairs::{self, Trials},
    signed_rank::{Location, SignedRank},
    text,
};

/// An expectation of one cell.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CellExpectation {
    /// Index of the expectation in the plan.
    pub(crate) index: usize,
    pub(crate) cell: usize,
    /// The pair of cells whose candidate the cell is, of [`Bound::MaxRegression`].
    pub(crate) cell_pair: Option<usize>,
}

impl CellExpectation {
    /// All expectations of a run, by cell.
    pub(crate) fn of(plan: &Plan) -> Vec<Self> {
        let mut all = vec![];
        for (index, expected) in plan.judging.expect.iter().enumerate() {
            for &cell in &expected.cells {
                let one = Self {
                    index,
                    cell,
                    cell_pair: None,
                };
                let before = all.len();
                if let Bound::MaxRegression(_) = expected.bound {
                    let cell_pairs = plan.judging.cell_pairs.iter().enumerate();
                    let of_cell = cell_pairs.filter(|(_, cell_pair)| cell_pair.candidate == cell);
                    all.extend(of_cell.map(|(cell_pair, _)| Self {
                        cell_pair: Some(cell_pair),
                        ..one
                    }));
                }
                if all.len() == before {
                    all.push(one);
                }
            }
        }
        all
    }

    /// The pairs of cells that the expectation is about.
    pub(crate) fn cell_pairs(self, plan: &Plan) -> impl Iterator<Item = usize> {
        let cell_pairs = plan.judging.cell_pairs.iter().enumerate();
        let is_about = move |(index, cell_pair): &(usize, &CellPair)| match self.cell_pair {
            Some(own) => own == *index,
            None => self.cell == cell_pair.baseline || self.cell == cell_pair.candidate,
        };
        cell_pairs.filter(is_about).map(|(index, _)| index)
    }
}

/// Whether an expectation of one cell holds.
#[derive(Clone, Debug)]
pub(crate) struct Evaluation {
    pub(crate) verdict: Verdict,
    /// What the verdict is based on.
    pub(crate) evidence: String,
}

/// A comparison that may be worse by some share.
pub(crate) struct AllowedRegression<'a> {
    pub(crate) found: &'a TestResult,
    pub(crate) metric: Metric,
    pub(crate) share: f64,
    /// The numbers of pairs in which only the baseline failed, and in which only the candidate failed.
    pub(crate) failed: [usize; 2],
    /// See [`p_of_failures`], corrected for the number of pairs of cells.
    pub(crate) p_failing: f64,
}

impl AllowedRegression<'_> {
    /// The worst difference that is allowed.
    fn worst(&self) -> f64 {
        match pairs::direction(self.metric) {
            Some(direction) if direction < 0.0 => -self.share.ln_1p(),
            _ => (-self.share).ln_1p(),
        }
    }

    fn is_comparable(&self) -> bool {
        self.found.finding != Finding::NotComparable
    }

    /// The probability of differences like these or worse ones, if the worst that is allowed were true.
    fn p_worse(&self) -> f64 {
        if !self.is_comparable() {
            return 1.0;
        }
        let worst = self.worst();
        SignedRank::of(self.found.differences.iter().map(|difference| difference - worst)).at_most()
    }

    /// The verdict at a check with this error, given the probability of [`Self::p_worse`] corrected for the
    /// number of regressions.
    fn verdict(&self, p_worse: f64, alpha: f64) -> Verdict {
        let interval = self.found.location.and_then(|location| location.interval);
        if !self.is_comparable() {
            Verdict::Inconclusive
        } else if p_worse <= alpha / 2.0 || self.p_failing <= alpha / 2.0 {
            Verdict::Fail
        } else if interval.is_some_and(|(low, _)| low > self.worst()) {
            Verdict::Pass
        } else {
            Verdict::Inconclusive
        }
    }

    fn evidence(&self) -> String {
        let failures = match self.failed {
            [0, 0] => String::new(),
            [baseline, candidate] => format!(", failed trials {baseline} → {candidate}"),
        };
        let change = match self.found.location {
            Some(location) if location.estimate == f64::NEG_INFINITY => "infinitely worse".to_owned(),
            location => {
                let ratio = location.and_then(|location| ratio(self.metric, location));
                text::change(ratio.as_ref())
            }
        };
        let found = match self.found.differences.len() {
            0 => "no pair of trials has values that count".to_owned(),
            1 => format!("{change} (1 pair)"),
            pairs => format!("{change} ({pairs} pairs)"),
        };
        format!(
            "{found}{failures}; {} worse is allowed",
            units::percent(self.share)
        )
    }
}

/// Evaluates all allowed regressions of a run, at a check that has this share of [`ALPHA`]. Each keeps what
/// comes with it. `None` stands for those of settled pairs of cells, and remains.
///
/// An expectation fails if its differences, or the candidate's failures, are worse than is allowed, with half
/// of the error for all of them together: the more there are, the stronger the evidence must be. It passes if
/// its own interval lies above the limit: all must pass for the run to pass, so that no correction is needed
/// (Berger, *Multiparameter Hypothesis Testing and Acceptance Sampling*, Technometrics 24, 1982).
pub(crate) fn evaluate_regressions<T>(
    regressions: Vec<(T, Option<AllowedRegression<'_>>)>,
    share: f64,
) -> Vec<(T, Option<Evaluation>)> {
    let evaluation = |regression: AllowedRegression<'_>, p_worse: f64| Evaluation {
        verdict: regression.verdict(p_worse, ALPHA * share),
        evidence: regression.evidence(),
    };
    holm::adjust(regressions, |(_, regression)| {
        regression.as_ref().map_or(1.0, AllowedRegression::p_worse)
    })
    .into_iter()
    .map(|((of, regression), p_worse)| (of, regression.map(|one| evaluation(one, p_worse))))
    .collect()
}

/// The probability that the candidate failed in this many or more of the pairs in which exactly one trial
/// failed, if both sides are equally likely to fail. Source: McNemar, *Note on the Sampling Error of the
/// Difference between Correlated Proportions or Percentages*, Psychometrika 12 (1947), in its exact form.
pub(crate) fn p_of_failures([baseline, candidate]: [usize; 2]) -> f64 {
    let Some(fewer) = candidate.checked_sub(1) else {
        return 1.0;
    };
    let of_candidate = Binomial::new(0.5, (baseline + candidate) as u64).expect("a half is a probability");
    of_candidate.sf(fewer as u64)
}

/// Evaluates a bound of a cell's own values.
pub(crate) fn evaluate_bound(
    plan: &Plan,
    trials: &Trials<'_>,
    expectation: CellExpectation,
    check: Check,
) -> Evaluation {
    let CellExpectation { index, cell, .. } = expectation;
    let expectation = &plan.judging.expect[index];
    let values = CellValues {
        trials,
        metric: expectation.metric,
        cell,
        check,
    };
    match expectation.bound {
        Bound::Min(least) => values.evaluate_median(least, 1.0),
        Bound::Max(most) => values.evaluate_median(most, -1.0),
        Bound::MinShareOfRaw(share) => match plan.cells.get(cell).and_then(|cell| plan.raw_of(cell)) {
            Some(raw) => values.evaluate_share_of_raw(raw, share),
            None => inconclusive("the run has no raw reference of this cell"),
        },
        Bound::MaxRegression(_) => inconclusive("the run compares this cell with no other"),
    }
}

pub(crate) fn inconclusive(evidence: &str) -> Evaluation {
    Evaluation {
        verdict: Verdict::Inconclusive,
        evidence: evidence.to_owned(),
    }
}

/// The values of a cell that a check examines.
struct CellValues<'a> {
    trials: &'a Trials<'a>,
    metric: Metric,
    cell: usize,
    check: Check,
}

impl CellValues<'_> {
    /// Whether the interval of the median lies above the limit (`sign` 1) or below it (−1). A trial that
    /// failed by the stack's doing has the worst value.
    fn evaluate_median(&self, limit: f64, sign: f64) -> Evaluation {
        let value = |record: &TrialRecord| match (why_excluded(record), &record.failure) {
            (Some(reason), _) => Err(reason),
            (None, Some(_)) => Ok(-sign * f64::INFINITY),
            (None, None) => {
                let value = record.metrics.get(&self.metric).copied();
                value.filter(|value| value.is_finite()).ok_or(NO_VALUE)
            }
        };
        let trials = self.trials.of_cell(self.cell, self.check.iterations);
        let mut counted = Counted::of(trials.map(value));
        counted.values.sort_unstable_by(f64::total_cmp);
        let interval = median_interval(&counted.values, 1.0 - ALPHA * self.check.share);
        let found = match median(&counted.values) {
            median if median.is_finite() => text::median(self.metric, median, interval),
            _ => "at least half failed".to_owned(),
        };
        let allowed = if sign > 0.0 { "at least" } else { "at most" };
        Evaluation {
            verdict: compare_with_limit(interval, limit, sign),
            evidence: format!(
                "{}, where {allowed} {} is expected{}",
                counted.described(&found, "trial"),
                units::text(self.metric.unit(), limit),
                self.needed(counted.values.len(), "trials"),
            ),
        }
    }

    /// Whether the value's share of the raw reference's in the same iteration is at least `least`.
    fn evaluate_share_of_raw(&self, raw: usize, least: f64) -> Evaluation {
        let difference = |record: &TrialRecord| {
            let raw = self.trials.at(raw, record.trial.iteration);
            let raw = raw.filter(|raw| raw.session == record.session).ok_or(NO_RAW)?;
            match why_excluded(raw).or_else(|| why_excluded(record)) {
                Some(reason) => Err(reason),
                None if raw.failure.is_some() => Err(FAILED),
                None => pairs::difference(self.metric, raw, record).ok_or(NO_VALUE),
            }
        };
        let trials = self.trials.of_cell(self.cell, self.check.iterations);
        let counted = Counted::of(trials.map(difference));
        let location = Location::of(&counted.values, ALPHA * self.check.share);
        let interval = location.and_then(|location| location.interval);
        let share = text::share(location.map(|location| location.estimate), interval);
        Evaluation {
            verdict: compare_with_limit(interval, least.ln(), 1.0),
            evidence: format!(
                "{}, where at least {} of raw is expected{}",
                counted.described(&format!("{share} of raw"), "iteration"),
                units::percent(least),
                self.needed(counted.values.len(), "iterations"),
            ),
        }
    }

    /// How many things must count for a verdict, if only this number do. Without any, the evidence says why.
    fn needed(&self, count: usize, things: &str) -> String {
        let least = interval_min(ALPHA * self.check.share);
        match (1..least as usize).contains(&count) {
            true => format!("; a verdict needs {least} {things} that count"),
            false => String::new(),
        }
    }
}

const FAILED: &str = "failed";
const NO_VALUE: &str = "without this value";
const NO_RAW: &str = "without raw in the same session";

/// Why a trial says nothing about the stack.
fn why_excluded(record: &TrialRecord) -> Option<&'static str> {
    match record.is_disturbed() {
        true => Some("disturbed"),
        false => pairs::has_unrelated_failure(record).then_some(FAILED),
    }
}

/// The values that count, and how many trials have none, for each reason.
#[derive(Default)]
struct Counted {
    values: Vec<f64>,
    others: BTreeMap<&'static str, usize>,
}

impl Counted {
    fn of(values: impl Iterator<Item = Result<f64, &'static str>>) -> Self {
        let mut counted = Self::default();
        for value in values {
            match value {
                Ok(value) => counted.values.push(value),
                Err(reason) => *counted.others.entry(reason).or_default() += 1,
            }
        }
        counted
    }

    /// What was found, and the number of things that it is based on. Without any, what happened to them.
    fn described(&self, found: &str, thing: &str) -> String {
        let others = self
            .others
            .iter()
            .map(|(reason, count)| format!("{count} {reason}"));
        let mut reasons = self.others.iter();
        match (self.values.len(), reasons.next(), reasons.next()) {
            (0, None, _) => format!("no {thing} was measured"),
            (0, Some((reason, count)), None) => {
                let (all, were) = match count {
                    1 => (format!("the only {thing}"), "was "),
                    _ => (format!("all {count} {thing}s"), "were "),
                };
                let were = if *reason == FAILED { "" } else { were };
                format!("{all} {were}{reason}")
            }
            (0, ..) => format!("no {thing} counts ({})", Vec::from_iter(others).join(", ")),
            (count, ..) => {
                let plural = if count == 1 { "" } else { "s" };
                let others = Vec::from_iter(others).join(", ");
                let without = match others.is_empty() {
                    true => others,
                    false => format!("; not counted: {others}"),
                };
                format!("{found} ({count} {thing}{plural}{without})")
            }
        }
    }
}

/// Whether an interval lies above a limit (`sign` 1), or below it (−1).
fn compare_with_limit(interval: Option<(f64, f64)>, limit: f64, sign: f64) -> Verdict {
    let Some(ends) = interval else {
        return Verdict::Inconclusive;
    };
    let is_right = |end: f64| end * sign >= limit * sign;
    match [ends.0, ends.1].map(is_right) {
        [true, true] => Verdict::Pass,
        [false, false] => Verdict::Fail,
        _ => Verdict::Inconclusive,
    }
}
