//! Comparisons of several runs.
//!
//! Within a run, the two trials of a pair share a machine and a moment. Runs share neither: they differ by
//! some percent for reasons that no number of trials in one of them shows. So a run is one observation here:
//! of each metric of each cell it gives its median.

use std::collections::BTreeSet;

use perfrun_contract::{
    compare::{ALPHA, CellPair, Comparison, Finding, Judged, Judging, NoFinding, Verdict},
    metric::Metric,
    plan::Plan,
    record::TrialRecord,
};
use strum::AsRefStr;

use crate::{
    comparison::{self, count, ratio, with_result},
    family::{self, Hypothesis},
    holm,
    hypothesis_tests::{ComparisonInput, test_comparisons_with_min_pairs},
    median::{median, median_interval},
    pairs::{self, Trials},
    prediction::Prediction,
    signed_rank::Location,
};

/// Below this number of runs of each side, runs are not compared pair by pair: no five pairs are evidence at
/// [`ALPHA`].
pub const RUNS_MIN: usize = 6;

/// Below this number of earlier runs, a new one has no finding: four tell too little of how runs differ.
pub const EARLIER_MIN: usize = 5;

/// A run as it was planned and measured.
#[derive(Clone, Copy, Debug)]
pub struct Run<'a> {
    /// The plan of the run.
    pub plan: &'a Plan,
    /// The records of its trials, in any order.
    pub records: &'a [TrialRecord],
}

/// What comparisons are based on.
#[derive(AsRefStr, Clone, Copy, Debug, Default, Eq, PartialEq)]
#[strum(serialize_all = "camelCase")]
pub enum Basis {
    /// Pairs of neighbouring trials of one run.
    #[default]
    Trials,
    /// One run of each side.
    TwoRuns,
    /// Runs of both sides in turn, by pairs.
    PairsOfRuns,
    /// Earlier runs, and a new one.
    EarlierRuns,
}

impl Basis {
    /// A number of them, for example `40 pairs`.
    pub(crate) fn number(self, count: u32) -> String {
        let counted = |one: &str, several: &str| match count {
            1 => format!("1 {one}"),
            _ => format!("{count} {several}"),
        };
        match self {
            Self::Trials => counted("pair", "pairs"),
            Self::TwoRuns => "one run each".to_owned(),
            Self::PairsOfRuns => counted("pair of runs", "pairs of runs"),
            Self::EarlierRuns => counted("earlier run", "earlier runs"),
        }
    }
}

/// The plan of the last run, with the cells that all runs have, each as a pair with itself. The raw
/// reference and controls are not among them: they say how machines differ, and not how programs do.
pub fn shared(runs: &[Run<'_>]) -> Plan {
    let Some((last, others)) = runs.split_last() else {
        return Plan::default();
    };
    let others: Vec<BTreeSet<&str>> = others
        .iter()
        .map(|run| run.plan.cells.iter().map(|cell| cell.id.as_str()).collect())
        .collect();
    let cells = last.plan.cells.iter().enumerate();
    let is_control = |index| {
        last.plan
            .judging
            .cell_pairs
            .iter()
            .any(|cell_pair| cell_pair.control == Some(index))
    };
    let in_all = cells.filter(|(index, cell)| {
        !cell.is_raw_reference() && !is_control(*index) && others.iter().all(|ids| ids.contains(&*cell.id))
    });
    Plan {
        judging: Judging {
            cell_pairs: in_all
                .map(|(index, _)| CellPair {
                    baseline: index,
                    candidate: index,
                    control: None,
                })
                .collect(),
            ..Judging::default()
        },
        ..last.plan.clone()
    }
}

/// What two runs say, given the plan that they [share](shared): the ratio of their medians, and never a
/// finding.
///
/// The interval is that of the two medians within their runs. Each has half of the error, so that both hold
/// together (Bonferroni). How machines differ between runs is not in it.
pub fn of_two(plan: &Plan, baseline: Run<'_>, candidate: Run<'_>) -> Judged {
    let runs = ComparedRuns::of(plan, &[baseline], &[candidate]);
    let compared = |hypothesis: &Hypothesis| {
        let [a, b] = runs
            .medians(hypothesis)
            .map(|mut medians| medians.pop().flatten());
        let ratio = a.zip(b).and_then(|(a, b)| {
            let ends = a.interval.zip(b.interval);
            let location = Location {
                estimate: difference(a.score, b.score)?,
                interval: ends.and_then(|(a, b)| difference(a.1, b.0).zip(difference(a.0, b.1))),
            };
            ratio(hypothesis.metric, location)
        });
        let reason = runs
            .obstacle(hypothesis)
            .or((a.is_none() || b.is_none()).then_some(NoFinding::NotMeasured));
        Comparison {
            pairs: u32::from(a.is_some() && b.is_some()),
            ratio,
            finding: reason.map_or(Finding::Inconclusive, |_| Finding::NotComparable),
            reason,
            ..runs.blank(hypothesis)
        }
    };
    judged(family::of(plan).iter().map(compared).collect())
}

/// What runs of both sides say, given the plan that all of them [share](shared): the first of each side are a
/// pair, and so on. The signed-rank test of the pairs finds what it finds for pairs of trials within a run.
///
/// Runs of both sides must take turns: otherwise what changed with time looks like a difference.
pub fn of_pairs(plan: &Plan, baselines: &[Run<'_>], candidates: &[Run<'_>]) -> Judged {
    let runs = ComparedRuns::of(plan, baselines, candidates);
    let hypotheses = family::of(plan);
    let input = |hypothesis: &Hypothesis| {
        let [a, b] = runs.medians(hypothesis);
        let differences = a
            .iter()
            .zip(&b)
            .filter_map(|(a, b)| difference(a.as_ref()?.score, b.as_ref()?.score));
        ComparisonInput::Open {
            differences: differences.collect(),
            tolerance: hypothesis.tolerance,
            obstacle: runs.obstacle(hypothesis),
        }
    };
    let inputs = hypotheses
        .iter()
        .map(|hypothesis| (hypothesis, input(hypothesis)))
        .collect();
    let found = test_comparisons_with_min_pairs(inputs, 1.0, RUNS_MIN).into_iter();
    let compared = found.filter_map(|(hypothesis, found)| {
        let found = found?;
        Some(Comparison {
            excluded_pairs: count(baselines.len().min(candidates.len()) - found.differences.len()),
            ..with_result(runs.blank(hypothesis), &found)
        })
    });
    judged(compared.collect())
}

/// What earlier runs let expect of a hypothesis, and what the new run has.
struct Predicted<'a> {
    hypothesis: &'a Hypothesis,
    prediction: Option<Prediction>,
    /// The number of earlier runs that it is from.
    known: usize,
    new: Option<Median>,
}

impl Predicted<'_> {
    /// The probability of a median that is at least as far from where it is predicted.
    fn probability(&self) -> f64 {
        let p = self.prediction.as_ref().zip(self.new.as_ref());
        p.map_or(1.0, |(prediction, new)| prediction.two_sided(new.score))
    }
}

/// What earlier runs say about a new one, given the plan that all of them [share](shared).
///
/// The logarithms of the medians of earlier runs are taken for normal. The new one differs if it is outside
/// of where they predict it with probability 1 − [`ALPHA`], corrected for the number of comparisons (Holm).
/// The ratio is to their geometric mean, and its interval has 1 if that prediction has the new median.
pub fn of_history(plan: &Plan, earlier: &[Run<'_>], new: Run<'_>) -> Judged {
    let runs = ComparedRuns::of(plan, earlier, &[new]);
    let hypotheses = family::of(plan);
    let predicted = hypotheses.iter().map(|hypothesis| {
        let [known, mut new] = runs.medians(hypothesis);
        let known = known.into_iter().flatten().map(|median| median.score);
        let known: Vec<f64> = known.filter(|score| score.is_finite()).collect();
        Predicted {
            hypothesis,
            prediction: Prediction::of(&known),
            known: known.len(),
            new: new.pop().flatten(),
        }
    });
    let adjusted = holm::adjust(predicted.collect(), Predicted::probability).into_iter();
    let chance = ALPHA / hypotheses.len().max(1) as f64;
    let compared = adjusted.map(|(predicted, p)| {
        let Predicted {
            hypothesis,
            prediction,
            known,
            new,
        } = predicted;
        let blank = runs.blank(hypothesis);
        let too_few = (known < EARLIER_MIN).then_some(NoFinding::TooFewPairs);
        let reason = runs
            .obstacle(hypothesis)
            .or(new.is_none().then_some(NoFinding::NotMeasured))
            .or(too_few);
        let (Some(prediction), Some(new)) = (prediction, new) else {
            return Comparison {
                finding: Finding::NotComparable,
                reason: reason.or(Some(NoFinding::TooFewPairs)),
                ..blank
            };
        };
        let difference = new.score - prediction.mean;
        let half = prediction.half_width(ALPHA);
        let finding = match reason {
            Some(_) => Finding::NotComparable,
            None if p > ALPHA => Finding::Inconclusive,
            None if difference > 0.0 => Finding::Better,
            None => Finding::Worse,
        };
        let location = Location {
            estimate: difference,
            interval: Some((difference - half, difference + half)),
        };
        Comparison {
            pairs: count(known),
            excluded_pairs: count(earlier.len() - known),
            ratio: ratio(hypothesis.metric, location),
            p_adjusted: Some(p),
            finding,
            reason,
            detectable_difference: (finding == Finding::Inconclusive).then(|| prediction.detectable(chance)),
            ..blank
        }
    });
    judged(compared.collect())
}

/// The worst verdict of all comparisons: Fail if the candidate is worse in one of them, Inconclusive if one
/// is not decided or if there are none, otherwise Pass.
pub fn verdict(judged: &Judged) -> Verdict {
    let verdicts = judged
        .comparisons
        .iter()
        .map(|comparison| verdict_of(comparison.finding));
    verdicts.max().unwrap_or(Verdict::Inconclusive)
}

/// The verdict of one comparison: Pass if the candidate is better or the same, Fail if it is worse.
pub fn verdict_of(finding: Finding) -> Verdict {
    match finding {
        Finding::Worse => Verdict::Fail,
        Finding::Inconclusive | Finding::NotComparable | Finding::Newer(_) => Verdict::Inconclusive,
        Finding::Better | Finding::Same => Verdict::Pass,
    }
}

fn judged(comparisons: Vec<Comparison>) -> Judged {
    Judged {
        comparisons,
        ..Judged::default()
    }
}

/// Runs of two sides, and the plan that all of them [share](shared).
struct ComparedRuns<'a> {
    plan: &'a Plan,
    /// The trials of each run of the baseline, and of the candidate.
    sides: [Vec<Trials<'a>>; 2],
}

/// The median of a metric of a cell in one run, turned so that a higher one is better.
#[derive(Clone, Copy)]
struct Median {
    /// The logarithm of the median, negated where less is better.
    score: f64,
    /// In the unit of `score`.
    interval: Option<(f64, f64)>,
}

impl<'a> ComparedRuns<'a> {
    fn of(plan: &'a Plan, baselines: &[Run<'a>], candidates: &[Run<'a>]) -> Self {
        let trials = |run: &Run<'a>| Trials::of(run.plan, run.records);
        let sides = [baselines, candidates].map(|runs| runs.iter().map(trials).collect());
        Self { plan, sides }
    }

    /// The id of the compared cell, which is a pair with itself.
    fn cell(&self, hypothesis: &Hypothesis) -> &'a str {
        let cell_pair = self.plan.judging.cell_pairs[hypothesis.cell_pair];
        &self.plan.cells[cell_pair.candidate].id
    }

    /// The median of each run of each side. `None` if none of its trials has a value.
    fn medians(&self, hypothesis: &Hypothesis) -> [Vec<Option<Median>>; 2] {
        let cell = self.cell(hypothesis);
        let median = |run: &Trials<'_>| Median::of(&run.of_cell_called(cell), hypothesis.metric);
        self.sides
            .each_ref()
            .map(|runs| runs.iter().map(median).collect())
    }

    /// Why the runs say nothing about a metric, whatever their number. Whether any has it is for callers to
    /// say.
    fn obstacle(&self, hypothesis: &Hypothesis) -> Option<NoFinding> {
        let cell = self.cell(hypothesis);
        let trials = self
            .sides
            .iter()
            .flatten()
            .flat_map(|run| run.of_cell_called(cell));
        let trials: Vec<[&TrialRecord; 1]> = trials.map(|record| [record]).collect();
        comparison::obstacle_of_trials(&trials, hypothesis.metric, true)
    }

    /// A comparison without a finding.
    fn blank(&self, hypothesis: &Hypothesis) -> Comparison {
        let cell = self.cell(hypothesis);
        let direction = pairs::direction(hypothesis.metric).unwrap_or(1.0);
        let middle = |medians: Vec<Option<Median>>| {
            let scores = medians.into_iter().flatten().map(|median| median.score);
            let middle = median(&scores.collect::<Vec<_>>());
            (middle > f64::NEG_INFINITY).then(|| (direction * middle).exp())
        };
        let [baseline, candidate] = self.medians(hypothesis).map(middle);
        let is_failed = |record: &&TrialRecord| pairs::has_failure_of_stack(record);
        let failed = |runs: &Vec<Trials<'_>>| {
            let trials = runs.iter().flat_map(|run| run.of_cell_called(cell));
            count(trials.filter(is_failed).count())
        };
        Comparison {
            failed: self.sides.each_ref().map(failed),
            medians: baseline
                .zip(candidate)
                .map(|(baseline, candidate)| [baseline, candidate]),
            ..comparison::blank(cell.to_owned(), cell.to_owned(), hypothesis)
        }
    }
}

impl Median {
    /// A trial that failed by a stack's doing is worse than any value, as in pairs of trials.
    fn of(trials: &[&TrialRecord], metric: Metric) -> Option<Self> {
        let direction = pairs::direction(metric)?;
        let value = |record: &&TrialRecord| match record.failure {
            Some(_) => Some(-direction * f64::INFINITY),
            None => pairs::value(record, metric),
        };
        let valid = trials.iter().copied().filter(|record| pairs::is_valid(record));
        let mut values: Vec<f64> = valid.filter_map(|record| value(&record)).collect();
        if values.is_empty() {
            return None;
        }
        values.sort_unstable_by(f64::total_cmp);
        let score = |value: f64| match value.is_finite() {
            true => direction * value.ln(),
            false => f64::NEG_INFINITY,
        };
        let interval = median_interval(&values, 1.0 - ALPHA / 2.0).map(|(low, high)| {
            let ends = (score(low), score(high));
            if direction < 0.0 { (ends.1, ends.0) } else { ends }
        });
        Some(Self {
            score: score(median(&values)),
            interval,
        })
    }
}

/// How much better the candidate is, by [`Median::score`] of the two. No failure is as good as no failure. If
/// most trials of both failed, neither is worse.
fn difference(baseline: f64, candidate: f64) -> Option<f64> {
    if baseline == f64::INFINITY && candidate == f64::INFINITY {
        return Some(0.0);
    }
    let difference = candidate - baseline;
    (!difference.is_nan()).then_some(difference)
}

#[cfg(test)]
mod tests {
    use super::difference;

    #[test]
    fn two_runs_without_a_failure_are_equal_and_two_failed_runs_form_no_pair() {
        let (none, failed) = (f64::INFINITY, f64::NEG_INFINITY);
        assert_eq!(difference(none, none), Some(0.0));
        assert_eq!(difference(failed, failed), None);
        assert_eq!(difference(none, -1.0), Some(failed));
        assert_eq!(difference(failed, none), Some(none));
        assert_eq!(difference(1.0, 3.0), Some(2.0));
    }
}
