//! What the differences of the pairs of each comparison show.

use perfrun_contract::compare::{ALPHA, Finding, NoFinding, PAIRS_MIN};

use crate::{
    holm,
    signed_rank::{Location, SignedRank, quantile},
};

/// The standard normal quantile of 0.8: a difference of that size is found in four of five runs.
pub(crate) const POWER_QUANTILE: f64 = 0.842;

/// What is known of one comparison of a run.
pub(crate) enum ComparisonInput {
    /// The differences of its pairs.
    Open {
        differences: Vec<f64>,
        /// Ratios between 1 − tolerance and 1 ÷ (1 − tolerance) count as no difference.
        tolerance: f64,
        /// Why the differences say nothing, whatever they are.
        obstacle: Option<NoFinding>,
    },
    /// The comparison was settled at an earlier interim check.
    Settled {
        /// Whether the finding was a difference.
        differ: bool,
    },
}

/// The result of testing the differences of a comparison.
#[derive(Debug)]
pub(crate) struct TestResult {
    pub(crate) differences: Vec<f64>,
    pub(crate) location: Option<Location>,
    /// Corrected for the number of comparisons, and for the share of [`ALPHA`] that this check has.
    pub(crate) p_adjusted: f64,
    pub(crate) finding: Finding,
    pub(crate) reason: Option<NoFinding>,
    pub(crate) detectable_difference: Option<f64>,
    pub(crate) pairs_needed: Option<u32>,
}

/// Tests all comparisons of a run at a check that has this share of [`ALPHA`]. Each keeps what comes with it,
/// and has `None` if it is settled.
///
/// A comparison that was found to differ at an earlier check leaves the family: if that was an error, it is
/// one of the earlier check. A comparison that was settled otherwise stays in the family.
pub(crate) fn test_comparisons<T>(
    inputs: Vec<(T, ComparisonInput)>,
    share: f64,
) -> Vec<(T, Option<TestResult>)> {
    test_comparisons_with_min_pairs(inputs, share, PAIRS_MIN as usize)
}

/// Like [`test_comparisons`], where fewer pairs than `min_pairs` have no finding.
pub(crate) fn test_comparisons_with_min_pairs<T>(
    inputs: Vec<(T, ComparisonInput)>,
    share: f64,
    min_pairs: usize,
) -> Vec<(T, Option<TestResult>)> {
    let probability = |(_, input): &(T, ComparisonInput)| match input {
        ComparisonInput::Open { differences, .. } => SignedRank::of(differences.iter().copied()).two_sided(),
        ComparisonInput::Settled { differ: true } => 0.0,
        ComparisonInput::Settled { differ: false } => 1.0,
    };
    let alpha = ALPHA * share;
    let chance = alpha / (2.0 * inputs.len() as f64);
    let found = |input: ComparisonInput, p: f64| {
        let ComparisonInput::Open {
            differences,
            tolerance,
            obstacle,
        } = input
        else {
            return None;
        };
        let location = Location::of(&differences, alpha);
        let p_adjusted = (p / share).min(1.0);
        let too_few = (differences.len() < min_pairs).then_some(NoFinding::TooFewPairs);
        let reason = obstacle.or(too_few);
        let finding = match location {
            Some(location) if reason.is_none() => finding(location, tolerance, p_adjusted),
            _ => Finding::NotComparable,
        };
        let (detectable_difference, pairs_needed) = match location {
            Some(location) if finding != Finding::NotComparable => {
                detection_limits(&location, differences.len(), (alpha, chance), tolerance)
            }
            _ => (None, None),
        };
        Some(TestResult {
            differences,
            location,
            p_adjusted,
            finding,
            reason,
            detectable_difference,
            pairs_needed,
        })
    };
    let adjusted = holm::adjust(inputs, probability).into_iter();
    adjusted.map(|((of, input), p)| (of, found(input, p))).collect()
}

fn finding(location: Location, tolerance: f64, p_adjusted: f64) -> Finding {
    let most = -(-tolerance).ln_1p();
    match location.interval {
        Some((low, high)) if -most < low && high < most => Finding::Same,
        _ if p_adjusted > ALPHA => Finding::Inconclusive,
        _ if location.estimate > 0.0 => Finding::Better,
        _ => Finding::Worse,
    }
}

/// The smallest difference that these pairs would show, and the number of pairs that would show one of the
/// tolerance, if it is larger than theirs. Both follow from the width of the interval at this error, if a
/// finding needs the probability `chance` on its side. The signs of n pairs cannot have less than 1 ÷ 2ⁿ: if
/// that is more than `chance`, they show no difference at all.
fn detection_limits(
    found: &Location,
    pairs: usize,
    (alpha, chance): (f64, f64),
    tolerance: f64,
) -> (Option<f64>, Option<u32>) {
    let Some((low, high)) = found.interval.filter(|(low, high)| (high - low).is_finite()) else {
        return (None, None);
    };
    let pairs = pairs as f64;
    let least = -chance.log2();
    let deviation = (high - low) / 2.0 / -quantile(alpha / 2.0);
    let detectable = deviation * (POWER_QUANTILE - quantile(chance));
    let needed = (pairs * (detectable / tolerance.ln_1p()).powi(2))
        .max(least)
        .ceil();
    (
        (pairs >= least).then(|| detectable.exp_m1()),
        (needed > pairs).then_some(needed as u32),
    )
}
