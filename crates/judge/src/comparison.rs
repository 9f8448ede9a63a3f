//! A comparison as results keep it.

use perfrun_contract::{
    compare::{CellPair, Comparison, Finding, NoFinding, Ratio},
    metric::Metric,
    plan::Plan,
    record::{Flag, TrialRecord},
    units::Unit,
};

use crate::{
    family::Hypothesis,
    hypothesis_tests::TestResult,
    median::median,
    pairs::{self, Pair, PairStatus},
    signed_rank::Location,
};

/// Why pairs say nothing about a metric, whatever their number.
pub(crate) fn obstacle(pairs: &[Pair<'_>], metric: Metric) -> Option<NoFinding> {
    let is_measured = pairs.iter().all(|pair| pair.status != PairStatus::Counts)
        || pairs.iter().any(|pair| pair.difference(metric).is_some());
    let trials = pairs.iter().map(|pair| [pair.baseline, pair.candidate]);
    obstacle_of_trials(&trials.collect::<Vec<_>>(), metric, is_measured)
}

/// Why trials say nothing about a metric, whatever their number. Those of a group count as one.
pub(crate) fn obstacle_of_trials<const N: usize>(
    groups: &[[&TrialRecord; N]],
    metric: Metric,
    is_measured: bool,
) -> Option<NoFinding> {
    let number = |has: &dyn Fn(&TrialRecord) -> bool| {
        groups
            .iter()
            .filter(|group| group.iter().any(|record| has(record)))
            .count()
    };
    let flagged = |flag: Flag| number(&|record: &TrialRecord| record.flags.contains(&flag));
    if flagged(Flag::DebugBuild) > 0 {
        Some(NoFinding::DebugBuild)
    } else if 2 * number(&TrialRecord::is_disturbed) > groups.len() {
        Some(NoFinding::Disturbed)
    } else if !is_measured {
        Some(NoFinding::NotMeasured)
    } else if metric.unit() == Unit::BitsPerSecond && 2 * flagged(Flag::WindowLimited) > groups.len() {
        Some(NoFinding::WindowLimited)
    } else {
        None
    }
}

/// The comparison of a pair of cells by a metric.
pub(crate) fn comparison(
    plan: &Plan,
    cell_pair: CellPair,
    hypothesis: &Hypothesis,
    pairs: &[Pair<'_>],
    found: &TestResult,
) -> Comparison {
    let counting = || pairs.iter().filter(|pair| pair.status == PairStatus::Counts);
    let middle = |records: Vec<&TrialRecord>| {
        let values = records
            .into_iter()
            .filter_map(|record| pairs::value(record, hypothesis.metric));
        Some(median(&values.collect::<Vec<_>>())).filter(|median| median.is_finite())
    };
    let medians = [
        middle(counting().map(|pair| pair.baseline).collect()),
        middle(counting().map(|pair| pair.candidate).collect()),
    ];
    let undisturbed = || pairs.iter().filter(|pair| pair.status != PairStatus::Disturbed);
    let [baseline, candidate] = [cell_pair.baseline, cell_pair.candidate].map(|cell| cell_id(plan, cell));
    let blank = blank(baseline, candidate, hypothesis);
    Comparison {
        excluded_pairs: count(pairs.len() - found.differences.len()),
        failed: [
            count(
                undisturbed()
                    .filter(|pair| pairs::has_failure_of_stack(pair.baseline))
                    .count(),
            ),
            count(
                undisturbed()
                    .filter(|pair| pairs::has_failure_of_stack(pair.candidate))
                    .count(),
            ),
        ],
        medians: match medians {
            [Some(baseline), Some(candidate)] => Some([baseline, candidate]),
            _ => None,
        },
        ..with_result(blank, found)
    }
}

/// The id of a cell. Empty if the plan has no such cell.
pub(crate) fn cell_id(plan: &Plan, cell: usize) -> String {
    let cell = plan.cells.get(cell);
    cell.map(|cell| cell.id.clone()).unwrap_or_default()
}

/// A comparison of two cells, given by their ids, without a finding.
pub(crate) fn blank(baseline: String, candidate: String, hypothesis: &Hypothesis) -> Comparison {
    Comparison {
        baseline,
        candidate,
        metric: hypothesis.metric,
        pairs: 0,
        excluded_pairs: 0,
        failed: [0, 0],
        tolerance: hypothesis.tolerance,
        medians: None,
        ratio: None,
        p_adjusted: None,
        finding: Finding::Inconclusive,
        reason: None,
        detectable_difference: None,
        pairs_needed: None,
    }
}

/// A comparison with what was found. What the comparison could have shown matters only if it is inconclusive.
pub(crate) fn with_result(blank: Comparison, found: &TestResult) -> Comparison {
    let is_inconclusive = found.finding == Finding::Inconclusive;
    Comparison {
        pairs: count(found.differences.len()),
        ratio: found.location.and_then(|location| ratio(blank.metric, location)),
        p_adjusted: (!found.differences.is_empty()).then_some(found.p_adjusted),
        finding: found.finding,
        reason: found.reason,
        detectable_difference: found.detectable_difference.filter(|_| is_inconclusive),
        pairs_needed: found.pairs_needed.filter(|_| is_inconclusive),
        ..blank
    }
}

/// Differences of a metric as ratios of its values. `None` if failures leave the estimate open.
pub(crate) fn ratio(metric: Metric, location: Location) -> Option<Ratio> {
    let direction = pairs::direction(metric)?;
    let finite = |difference: f64| difference.is_finite().then(|| (direction * difference).exp());
    let (low, high) = match location.interval {
        Some((worse, better)) if direction < 0.0 => (finite(better), finite(worse)),
        Some((worse, better)) => (finite(worse), finite(better)),
        None => (None, None),
    };
    Some(Ratio {
        value: finite(location.estimate)?,
        low,
        high,
    })
}

/// A number of trials, in the type that results have.
pub(crate) fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
