//! All twins of a metric together.

use std::collections::BTreeMap;

use perfrun_contract::{
    compare::{ALPHA, LEAST_PAIRS, Overall, Word},
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
/// [`LEAST_PAIRS`] such rounds.
pub(crate) fn overall(known: &Known<'_>) -> Vec<Overall> {
    let mut metrics: Vec<Metric> = vec![];
    for member in &known.family {
        if !metrics.contains(&member.metric) {
            metrics.push(member.metric);
        }
    }
    metrics
        .into_iter()
        .filter_map(|metric| of_metric(known, metric))
        .collect()
}

fn of_metric(known: &Known<'_>, metric: Metric) -> Option<Overall> {
    let is_compared = |found: &Option<Found>| {
        found
            .as_ref()
            .is_some_and(|found| found.word != Word::NotComparable)
    };
    let members = known.family.iter().zip(&known.found);
    let twins: Vec<&TwinState<'_>> = members
        .filter(|(member, found)| member.metric == metric && is_compared(found))
        .map(|(member, _)| &known.twins[member.twin])
        .collect();
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
