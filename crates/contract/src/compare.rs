//! Comparisons: what a run compares, what is expected of it, and what was found.
//!
//! A pair of cells differs in one variant only, of one stack or of two. In each iteration the two trials of a
//! pair of cells run one right after the other, in random order; the trial of its control may be between
//! them. The differences of these pairs of trials are what is judged. A control is the baseline of a pair of
//! cells once more: it takes part in each iteration, and must not differ.
//!
//! An interim check examines a run that is in progress, and ends the measurement of what is settled.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::{AsRefStr, Display, EnumMessage};

use crate::{
    metric::Metric,
    newer::{self, NewerName},
};

/// The family-wise error rate of a run's findings: at least one finding is wrong in at most this share of
/// runs in which nothing differs.
pub const ALPHA: f64 = 0.05;

/// The family-wise error rate of a run's controls: at least one of them is found to differ in at most this
/// share of runs in which nothing differs.
pub const CONTROL_ALPHA: f64 = 0.01;

/// Differences within this share count as no difference, unless a document says otherwise.
pub const TOLERANCE: f64 = 0.05;

/// With fewer pairs than this, the finding is [`Finding::NotComparable`].
pub const PAIRS_MIN: u32 = 10;

/// With fewer values than this, neither a median nor the location of differences has an interval that misses
/// with a probability of at most `alpha`. The widest interval of n values, from the smallest to the largest,
/// misses with a probability of 2 ÷ 2ⁿ.
pub fn interval_min(alpha: f64) -> u32 {
    (1.0 - alpha.log2()).ceil() as u32
}

/// What a run compares, and what is expected of it.
#[serde_with_macros::skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Judging {
    /// Pairs of cells to compare.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cell_pairs: Vec<CellPair>,
    /// What is expected of cells.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub expect: Vec<Expectation>,
    /// Numbers of iterations after which pairs of cells are checked, ascending; the last is that of the whole
    /// run. The run stops measuring pairs of cells that a check finds settled. Empty if the only check is at
    /// the end.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub interim_checks: Vec<u32>,
    /// At an interim check, a pair of cells is settled once half of the interval of each of its ratios is at
    /// most this share wide, whatever the ratios are. Absent if precision alone decides nothing.
    pub target_interval: Option<f64>,
}

impl Judging {
    /// Whether nothing is compared, and nothing is expected.
    pub fn is_empty(&self) -> bool {
        self.cell_pairs.is_empty() && self.expect.is_empty()
    }

    /// The share of [`ALPHA`] that a check after this number of iterations may use: all of it, if the only
    /// check is at the end.
    pub fn share_of_check(&self, iterations: u32) -> f64 {
        if self.interim_checks.is_empty() {
            return 1.0;
        }
        let sum: f64 = self.interim_checks.iter().copied().map(f64::from).sum();
        f64::from(iterations) / sum
    }
}

/// Two cells that differ in one variant only. The trial of a control may be between theirs.
#[serde_with_macros::skip_serializing_none]
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CellPair {
    /// Index of the cell that is compared with.
    pub baseline: usize,
    /// Index of the cell that is compared.
    pub candidate: usize,
    /// Index of the cell that is the baseline once more. Absent if the comparison has no control.
    pub control: Option<usize>,
}

impl CellPair {
    /// The cells whose trials are neighbours in each iteration.
    pub fn cells(self) -> impl Iterator<Item = usize> {
        [Some(self.baseline), Some(self.candidate), self.control]
            .into_iter()
            .flatten()
    }

    /// The same cells, where control and candidate have changed places. `None` without a control.
    pub fn of_control(self) -> Option<Self> {
        self.control.map(|control| Self {
            candidate: control,
            control: Some(self.candidate),
            ..self
        })
    }
}

/// What is expected of a metric.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Expectation {
    /// The metric.
    pub metric: Metric,
    /// Indexes of the cells that it is expected of; the candidates only, for [`Bound::MaxRegression`].
    pub cells: Vec<usize>,
    /// What is expected.
    pub bound: Bound,
}

/// A bound of a metric.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Bound {
    /// The candidate is worse than the baseline by at most this share.
    MaxRegression(f64),
    /// The median is at least this, in the metric's unit.
    Min(f64),
    /// The median is at most this, in the metric's unit.
    Max(f64),
    /// The value is at least this share of the raw reference's in the same iteration.
    MinShareOfRaw(f64),
}

impl Bound {
    /// Whether it is about the values of one cell, of which the interval decides.
    pub fn is_of_one_cell(self) -> bool {
        match self {
            Self::Min(_) | Self::Max(_) | Self::MinShareOfRaw(_) => true,
            Self::MaxRegression(_) => false,
        }
    }
}

/// What was found in a run.
#[serde_with_macros::skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Judged {
    /// A comparison for each judged metric of each pair of cells, in the order of the plan.
    pub comparisons: Vec<Comparison>,
    /// Each metric over all pairs of cells together, if there are several and all have the same two variants.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub overall: Vec<Overall>,
    /// What the controls show, in the order of the plan: each is compared with its baseline as a candidate
    /// is. The intervals are those of an error of 1 % for all controls together, and `pAdjusted` is corrected
    /// for that as well: a control differs if it is at most 5 %, as in `comparisons`. Nothing in
    /// `comparisons` is from a control.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub controls: Vec<Comparison>,
    /// One for each cell of each expectation.
    #[serde(default, rename = "gates", skip_serializing_if = "Vec::is_empty")]
    pub expectations: Vec<JudgedExpectation>,
    /// Whether what was expected holds. Absent if nothing was expected.
    #[serde(default, deserialize_with = "newer::optional")]
    pub verdict: Option<Verdict>,
    /// What interim checks made unnecessary to measure. Absent if nothing.
    pub not_needed: Option<NotNeeded>,
}

/// Trials that a run does not need, because an interim check settled their comparisons without them.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NotNeeded {
    /// Their number.
    pub trials: u32,
    /// The number of trials that the plan has.
    pub of_trials: u32,
    /// The least and the largest number of iterations after which their cells were settled.
    pub iterations: [u32; 2],
    /// The number of iterations that the plan has.
    pub of_iterations: u32,
}

impl fmt::Display for NotNeeded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            trials,
            of_trials,
            iterations: [first, last],
            of_iterations,
        } = self;
        write!(
            f,
            "{trials} of {of_trials} trials were not needed: those of comparisons that were settled after {first} "
        )?;
        if last > first {
            write!(f, "to {last} ")?;
        }
        write!(f, "of {of_iterations} iterations")
    }
}

/// A metric of a candidate beside that of its baseline.
#[serde_with_macros::skip_serializing_none]
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Comparison {
    /// Id of the baseline's cell.
    pub baseline: String,
    /// Id of the candidate's cell.
    pub candidate: String,
    /// What is compared.
    #[serde(deserialize_with = "newer::name")]
    pub metric: Metric,
    /// Pairs of trials that count.
    pub pairs: u32,
    /// Pairs of trials that do not count: both failed, one failed for a reason that is not the stack's, such
    /// as a lost node, one was disturbed, or they did not run right after each other. The trial of a control
    /// may be between them.
    pub excluded_pairs: u32,
    /// Failed trials of the baseline and of the candidate, of pairs that were not disturbed. Failures that
    /// are not the stack's, such as a lost node, do not count.
    pub failed: [u32; 2],
    /// Differences within this share count as no difference: what an expectation allows, or else 5 %.
    pub tolerance: f64,
    /// Medians of the baseline and of the candidate over pairs that count, in the metric's unit; absent
    /// without a completed trial of each.
    pub medians: Option<[f64; 2]>,
    /// The candidate's value as a share of the baseline's (Hodges and Lehmann's estimate), with its interval;
    /// absent without a pair, or if too many trials failed for an estimate.
    pub ratio: Option<Ratio>,
    /// Probability of differences like these or larger ones if the two are equal, corrected for the number of
    /// comparisons (Holm) and for the share that this check has of the 5 % of the whole run.
    pub p_adjusted: Option<f64>,
    /// What the pairs show.
    #[serde(deserialize_with = "newer::name")]
    pub finding: Finding,
    /// Why the two cannot be compared. Only set if the finding is `NotComparable`.
    #[serde(default, deserialize_with = "newer::optional")]
    pub reason: Option<NoFinding>,
    /// The smallest difference, as a share, that this number of pairs shows in four of five runs.
    pub detectable_difference: Option<f64>,
    /// Pairs that would show a difference of the tolerance in four of five runs.
    pub pairs_needed: Option<u32>,
}

/// A ratio with its interval.
#[serde_with_macros::skip_serializing_none]
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Ratio {
    /// The estimate.
    pub value: f64,
    /// Lower end of the interval. Absent if there are too few pairs for one, or if failures leave it open.
    pub low: Option<f64>,
    /// Upper end of the interval.
    pub high: Option<f64>,
}

/// A metric of all candidates beside that of their baselines.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Overall {
    /// What is compared.
    #[serde(deserialize_with = "newer::name")]
    pub metric: Metric,
    /// Number of pairs of cells that it covers.
    pub cell_pairs: u32,
    /// Iterations in which all of them have a pair that counts.
    pub iterations: u32,
    /// Mean ratio (geometric), with its interval.
    pub ratio: Ratio,
}

/// What a comparison found.
#[derive(AsRefStr, Clone, Copy, Debug, Deserialize, Display, Eq, Hash, JsonSchema, PartialEq)]
pub enum Finding {
    /// The candidate is better: a higher rate, a shorter time, a lower cost.
    Better,
    /// The candidate is worse: a lower rate, a longer time, a higher cost.
    Worse,
    /// They differ by no more than the tolerance.
    Same,
    /// There are too few pairs, or they vary too much, to find a difference or to exclude one.
    Inconclusive,
    /// These pairs prove nothing: the reason says why.
    NotComparable,
    /// A finding of a newer version, which this version carries.
    #[schemars(skip)]
    #[serde(skip_deserializing)]
    #[strum(transparent)]
    Newer(NewerName),
}

newer::carry!(Finding);

impl Finding {
    /// Whether the two were found to differ.
    pub fn differs(self) -> bool {
        matches!(self, Self::Better | Self::Worse)
    }
}

/// Why a comparison is not comparable.
#[derive(
    AsRefStr, Clone, Copy, Debug, Deserialize, Display, EnumMessage, Eq, Hash, JsonSchema, PartialEq,
)]
pub enum NoFinding {
    /// Fewer than 10 pairs count: measure more iterations.
    TooFewPairs,
    /// More than half of the pairs were disturbed: use a less busy machine.
    Disturbed,
    /// The nodes of baseline and candidate ran on different machines: make room for both on one.
    DifferentMachines,
    /// The control of the comparison, which is its baseline once more, was found to differ from the baseline:
    /// this machine measures one program differently at different times. Use a quieter one.
    ControlDiffers,
    /// The baseline or the candidate has no trial with a value of the metric.
    NotMeasured,
    /// A node was a debug build: measure a release build.
    DebugBuild,
    /// The kernel's TCP window, and neither the stack nor the link, may have been the limit: increase
    /// `net.ipv4.tcp_rmem` and `net.ipv4.tcp_wmem`.
    WindowLimited,
    /// A reason of a newer version, which this version carries.
    #[schemars(skip)]
    #[serde(skip_deserializing)]
    #[strum(transparent)]
    Newer(NewerName),
}

newer::carry!(NoFinding);

impl NoFinding {
    /// All reasons of this version.
    pub const ALL: [Self; 7] = [
        Self::TooFewPairs,
        Self::Disturbed,
        Self::DifferentMachines,
        Self::ControlDiffers,
        Self::NotMeasured,
        Self::DebugBuild,
        Self::WindowLimited,
    ];
}

/// An expectation of one cell, judged.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct JudgedExpectation {
    /// Index of the expectation in the plan.
    #[serde(rename = "expectation")]
    pub index: usize,
    /// Id of the cell.
    pub cell: String,
    /// Whether it holds.
    #[serde(deserialize_with = "newer::name")]
    pub verdict: Verdict,
    /// What that is based on, for people.
    pub evidence: String,
}

/// Whether what was expected holds.
#[derive(
    AsRefStr, Clone, Copy, Debug, Deserialize, Display, Eq, Hash, JsonSchema, Ord, PartialEq, PartialOrd,
)]
pub enum Verdict {
    /// All of it holds: it is proved for each cell.
    Pass,
    /// The data neither confirm nor refute it. More pairs, or a quieter machine, would.
    Inconclusive,
    /// A verdict of a newer version, which this version carries. It counts as inconclusive.
    #[schemars(skip)]
    #[serde(skip_deserializing)]
    #[strum(transparent)]
    Newer(NewerName),
    /// Some of it does not hold.
    Fail,
}

newer::carry!(Verdict);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_needs_more_values_at_an_interim_check() {
        for (checks, iterations, least) in [
            (vec![], 10, 6),
            (vec![20], 20, 6),
            (vec![10, 20, 40], 10, 9),
            (vec![10, 20, 40], 20, 8),
            (vec![10, 20, 40], 40, 7),
        ] {
            let judging = Judging {
                interim_checks: checks,
                ..Judging::default()
            };
            let found = interval_min(ALPHA * judging.share_of_check(iterations));
            assert_eq!(found, least, "{:?}, {iterations}", judging.interim_checks);
        }
    }
}
