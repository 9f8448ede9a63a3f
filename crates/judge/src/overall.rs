//! All pairs of cells of a metric together.

use std::collections::BTreeMap;

use perfrun_contract::{
    compare::{ALPHA, Finding, Overall, PAIRS_MIN},
    metric::Metric,
    plan::Plan,
};

use crate::{
    analysis::{Analysis, CellPairState, ComparisonState},
    comparison::{count, ratio},
    hypothesis_tests::TestResult,
    signed_rank::{Location, mean},
};

/// One for each metric that several pairs of cells are compared by, in the order of the comparisons. In each
/// iteration the mean of their differences is taken: it varies less than each of them. A metric with fewer
/// than [`PAIRS_MIN`] such iterations has none. Neither has one whose pairs of cells have several baselines
/// or candidates: their mean would say nothing about any of these.
pub(crate) fn overall(plan: &Plan, analysis: &Analysis<'_>) -> Vec<Overall> {
    let mut metrics: Vec<Metric> = vec![];
    for ComparisonState { hypothesis, .. } in &analysis.comparisons {
        if !metrics.contains(&hypothesis.metric) {
            metrics.push(hypothesis.metric);
        }
    }
    metrics
        .into_iter()
        .filter_map(|metric| of_metric(plan, analysis, metric))
        .collect()
}

fn of_metric(plan: &Plan, analysis: &Analysis<'_>, metric: Metric) -> Option<Overall> {
    let is_compared = |found: &Option<TestResult>| {
        found
            .as_ref()
            .is_some_and(|found| found.finding != Finding::NotComparable)
    };
    let all = analysis.comparisons.iter();
    let compared: Vec<usize> = all
        .filter(|ComparisonState { hypothesis, found }| hypothesis.metric == metric && is_compared(found))
        .map(|compared| compared.hypothesis.cell_pair)
        .collect();
    let mut pairs = compared
        .iter()
        .map(|cell_pair| plan.compared_variants(plan.judging.cell_pairs[*cell_pair]));
    let first = pairs.next()?;
    if !pairs.all(|pair| pair == first) {
        return None;
    }
    let cell_pairs: Vec<&CellPairState<'_>> = compared
        .iter()
        .map(|cell_pair| &analysis.cell_pairs[*cell_pair])
        .collect();
    // Pairs of cells that were settled early have no more iterations.
    let check = cell_pairs
        .iter()
        .map(|cell_pair| cell_pair.check)
        .min_by_key(|check| check.iterations)?;
    let by_iteration: Vec<BTreeMap<u32, f64>> = cell_pairs
        .iter()
        .map(|cell_pair| {
            let pairs = cell_pair
                .pairs
                .iter()
                .take_while(|pair| pair.iteration < check.iterations);
            pairs
                .filter_map(|pair| Some((pair.iteration, pair.difference(metric)?)))
                .collect()
        })
        .collect();
    let (first, _) = by_iteration
        .split_first()
        .filter(|(_, others)| !others.is_empty())?;
    let means: Vec<f64> = first
        .keys()
        .filter_map(|iteration| {
            let all: Option<Vec<f64>> = by_iteration
                .iter()
                .map(|iterations| iterations.get(iteration).copied())
                .collect();
            all.map(mean)
        })
        .collect();
    let location = Location::of(&means, ALPHA * check.share)?;
    if means.len() < PAIRS_MIN as usize {
        return None;
    }
    Some(Overall {
        metric,
        cell_pairs: count(cell_pairs.len()),
        iterations: count(means.len()),
        ratio: ratio(metric, location)?,
    })
}
