//! All twins of a metric together.

use std::collections::BTreeMap;

use perfrun_contract::{
    compare::{ALPHA, LEAST_PAIRS, Overall, Word},
    matrix::StackName,
    plan::Plan,
    record::Metric,
};

use crate::{
    comparison::{count, ratio},
    looks::{Known, TwinState},
    signed_rank::{Location, mean},
    words::Found,
};

/// One for each metric that several twins are compared by, in the order of the comparisons. In each round the
/// mean of their differences is taken: it varies less than each of them. Nothing of a metric with fewer than
/// [`LEAST_PAIRS`] such rounds. Nothing either if the twins have several baselines or candidates: their mean
/// would say nothing about any of these.
pub(crate) fn overall(plan: &Plan, known: &Known<'_>) -> Vec<Overall> {
    let mut metrics: Vec<Metric> = vec![];
    for member in &known.family {
        if !metrics.contains(&member.metric) {
            metrics.push(member.metric);
        }
    }
    metrics
        .into_iter()
        .filter_map(|metric| of_metric(plan, known, metric))
        .collect()
}

fn of_metric(plan: &Plan, known: &Known<'_>, metric: Metric) -> Option<Overall> {
    let is_compared = |found: &Option<Found>| {
        found
            .as_ref()
            .is_some_and(|found| found.word != Word::NotComparable)
    };
    let members = known.family.iter().zip(&known.found);
    let compared: Vec<usize> = members
        .filter(|(member, found)| member.metric == metric && is_compared(found))
        .map(|(member, _)| member.twin)
        .collect();
    let mut pairs = compared.iter().map(|twin| variants(plan, *twin));
    let first = pairs.next()?;
    if !pairs.all(|pair| pair == first) {
        return None;
    }
    let twins: Vec<&TwinState<'_>> = compared.iter().map(|twin| &known.twins[*twin]).collect();
    // Twins that were decided early have no more rounds.
    let look = twins
        .iter()
        .map(|twin| twin.look)
        .min_by_key(|look| look.rounds)?;
    let by_round: Vec<BTreeMap<u32, f64>> = twins
        .iter()
        .map(|twin| {
            let pairs = twin.pairs.iter().take_while(|pair| pair.round < look.rounds);
            pairs
                .filter_map(|pair| Some((pair.round, pair.difference(metric)?)))
                .collect()
        })
        .collect();
    let (first, _) = by_round.split_first().filter(|(_, others)| !others.is_empty())?;
    let means: Vec<f64> = first
        .keys()
        .filter_map(|round| {
            let all: Option<Vec<f64>> = by_round.iter().map(|rounds| rounds.get(round).copied()).collect();
            all.map(mean)
        })
        .collect();
    let location = Location::of(&means, ALPHA * look.share)?;
    if means.len() < LEAST_PAIRS as usize {
        return None;
    }
    Some(Overall {
        metric,
        twins: count(twins.len()),
        rounds: count(means.len()),
        ratio: ratio(metric, location)?,
    })
}

/// The variant that a twin compares with, and the one in its place.
fn variants(plan: &Plan, twin: usize) -> Option<(&StackName, &StackName)> {
    let twin = plan.judging.twins.get(twin)?;
    let (baseline, candidate) = plan
        .cells
        .get(twin.baseline)
        .zip(plan.cells.get(twin.candidate))?;
    let ends = [
        (&baseline.client, &candidate.client),
        (&baseline.server, &candidate.server),
    ];
    ends.into_iter()
        .find(|(baseline, candidate)| baseline != candidate)
}
