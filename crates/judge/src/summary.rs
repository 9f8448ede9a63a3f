//! From trials to one row for every metric of every cell.

use std::collections::{BTreeMap, BTreeSet};

use perfrun_contract::{
    compare::Ratio,
    metric::{Better, Metric},
    plan::{Cell, Plan},
    record::{Flag, TrialRecord},
    summary::SummaryRow,
    tally::counting,
};

use crate::{
    comparison::count,
    signed_rank::Location,
    statistics::{CONFIDENCE, Statistics},
};

/// The trials of a cell.
struct CellTrials<'a> {
    cell: &'a Cell,
    counted: Vec<&'a TrialRecord>,
    /// Flags of all completed attempts.
    seen: BTreeSet<Flag>,
}

impl<'a> CellTrials<'a> {
    fn of(plan: &'a Plan, trials: &'a [TrialRecord]) -> Vec<Self> {
        let cells = plan.cells.iter().zip(measured(plan, trials));
        let mut cells: Vec<Self> = cells
            .map(|(cell, counted)| Self {
                cell,
                counted,
                seen: BTreeSet::new(),
            })
            .collect();
        for record in trials.iter().filter(|record| is_measured(record)) {
            if let Some(own) = cells.get_mut(record.trial.cell) {
                own.seen.extend(&record.flags);
            }
        }
        cells
    }
}

/// Statistics of the completed trials that are not warm-up, in the order of the plan's cells, then of the
/// metrics.
///
/// A cell without such a trial has no row, and a metric that no trial of the cell has, has none either.
pub fn summarize(plan: &Plan, trials: &[TrialRecord]) -> Vec<SummaryRow> {
    let mut rows = vec![];
    let cells = CellTrials::of(plan, trials);
    for CellTrials { cell, counted, seen } in &cells {
        let raw = plan.raw_of(cell).and_then(|index| cells.get(index));
        let metrics: BTreeSet<Metric> = counted
            .iter()
            .flat_map(|trial| trial.metrics.keys().copied())
            .collect();
        for metric in metrics {
            let Some(statistics) = statistics(counted, metric) else {
                continue;
            };
            let share = raw
                .filter(|_| metric.better() == Better::Higher)
                .and_then(|raw| share(counted, &raw.counted, metric));
            rows.push(SummaryRow {
                cell: cell.id.clone(),
                metric,
                unit: metric.unit(),
                count: count(statistics.count),
                median: statistics.median,
                mean: statistics.mean,
                ci95_low: statistics.ci95.map(|(low, _)| low),
                ci95_high: statistics.ci95.map(|(_, high)| high),
                min: statistics.min,
                max: statistics.max,
                share_of_raw: share.map(|share| share.value),
                share_of_raw_low: share.and_then(|share| share.low),
                share_of_raw_high: share.and_then(|share| share.high),
                flags: flags(counted, metric, seen),
            });
        }
    }
    rows
}

/// The completed trials of each cell that are not warm-up.
pub fn measured<'a>(plan: &Plan, trials: &'a [TrialRecord]) -> Vec<Vec<&'a TrialRecord>> {
    let mut cells = vec![vec![]; plan.cells.len()];
    for record in counting(trials).filter(|record| is_measured(record)) {
        if let Some(cell) = cells.get_mut(record.trial.cell) {
            cell.push(record);
        }
    }
    cells
}

/// Whether a record has values that count.
pub fn is_measured(record: &TrialRecord) -> bool {
    record.failure.is_none() && !record.trial.warmup
}

/// A cell's rate as a share of another's: the ratios within each iteration, whose trials saw the machine in
/// much the same state, and their centre and interval by Hodges and Lehmann. `None` without an iteration in
/// which both have the metric.
pub fn share(trials: &[&TrialRecord], of: &[&TrialRecord], metric: Metric) -> Option<Ratio> {
    let values = |trials: &[&TrialRecord]| -> BTreeMap<u32, f64> {
        let value = |trial: &&TrialRecord| Some((trial.trial.iteration, *trial.metrics.get(&metric)?));
        trials.iter().filter_map(value).collect()
    };
    let of = values(of);
    let ratios: Vec<f64> = values(trials)
        .into_iter()
        .filter_map(|(iteration, value)| Some((value / of.get(&iteration)?).ln()))
        .filter(|ratio| ratio.is_finite())
        .collect();
    let Location { estimate, interval } = Location::of(&ratios, 1.0 - CONFIDENCE)?;
    Some(Ratio {
        value: estimate.exp(),
        low: interval.map(|(low, _)| low.exp()),
        high: interval.map(|(_, high)| high.exp()),
    })
}

/// How many of the trials that have a metric have each flag that was seen.
fn flags(trials: &[&TrialRecord], metric: Metric, seen: &BTreeSet<Flag>) -> BTreeMap<Flag, u32> {
    let counted = trials.iter().filter(|trial| trial.metrics.contains_key(&metric));
    let mut flags: BTreeMap<Flag, u32> = seen.iter().map(|flag| (*flag, 0)).collect();
    for flag in counted.flat_map(|trial| &trial.flags) {
        *flags.entry(*flag).or_default() += 1;
    }
    flags
}

fn statistics(trials: &[&TrialRecord], metric: Metric) -> Option<Statistics> {
    Statistics::of(
        trials
            .iter()
            .filter_map(|trial| trial.metrics.get(&metric).copied()),
    )
}
