//! From trials to one row for every metric of every cell.

use std::collections::BTreeSet;

use perfrun_contract::{
    account::Account,
    matrix::{Negotiation, Transport},
    parameters::Parameters,
    plan::{Cell, Plan},
    record::{Flag, Metric, TrialRecord},
    summary::SummaryRow,
    tally::counting,
};

use crate::statistics::Statistics;

const COLUMNS: [&str; 17] = [
    "cell",
    "client",
    "server",
    "transport",
    "network",
    "load",
    "metric",
    "unit",
    "trials",
    "median",
    "ci95_low",
    "ci95_high",
    "mean",
    "min",
    "max",
    "share_of_raw",
    "flags",
];

/// Statistics of the completed trials that are not warm-up, in the order of the plan's cells, then of the
/// metrics.
///
/// A cell without such a trial has no row, and a metric that no trial of the cell has, has none either.
pub fn summarize(plan: &Plan, trials: &[TrialRecord]) -> Vec<SummaryRow> {
    let mut cells = vec![vec![]; plan.cells.len()];
    for record in counting(trials).filter(|record| record.failure.is_none() && !record.trial.warmup) {
        if let Some(cell) = cells.get_mut(record.trial.cell) {
            cell.push(record);
        }
    }
    let mut rows = vec![];
    for (cell, counted) in plan.cells.iter().zip(&cells) {
        let raw = baseline(plan, cell).and_then(|index| cells.get(index));
        let metrics: BTreeSet<Metric> = counted
            .iter()
            .flat_map(|trial| trial.metrics.keys().copied())
            .collect();
        let flags: BTreeSet<Flag> = counted
            .iter()
            .flat_map(|trial| trial.flags.iter().copied())
            .collect();
        for metric in metrics {
            let Some(statistics) = statistics(counted, metric) else {
                continue;
            };
            let raw = raw
                .filter(|_| metric.higher_is_better())
                .and_then(|raw| self::statistics(raw, metric));
            rows.push(SummaryRow {
                cell: cell.id.clone(),
                metric,
                unit: metric.unit(),
                count: u32::try_from(statistics.count).unwrap_or(u32::MAX),
                median: statistics.median,
                mean: statistics.mean,
                ci95_low: statistics.ci95.map(|(low, _)| low),
                ci95_high: statistics.ci95.map(|(_, high)| high),
                min: statistics.min,
                max: statistics.max,
                share_of_raw: raw
                    .map(|raw| statistics.median / raw.median)
                    .filter(|share| share.is_finite()),
                flags: flags.iter().copied().collect(),
            });
        }
    }
    rows
}

/// `summary.csv`: one line for every row of the summary, under a header. Units are those of the metrics;
/// empty fields are not known, for example ends of intervals of fewer than six trials.
pub fn summary_csv(results: &Account<'_>) -> String {
    let mut writer = csv::WriterBuilder::new().has_headers(false).from_writer(vec![]);
    writer
        .write_record(COLUMNS)
        .expect("memory takes whatever is written");
    for row in results.summary {
        let Some(cell) = results.plan.cells.iter().find(|cell| cell.id == row.cell) else {
            continue;
        };
        let load = cell.parameters.to_string();
        let axes = (&cell.client, &cell.server, cell.transport, &cell.network, load);
        let flags: Vec<&str> = row.flags.iter().map(Flag::as_ref).collect();
        let interval = (row.ci95_low, row.ci95_high);
        let rest = (row.mean, row.min, row.max, row.share_of_raw, flags.join(" "));
        let what = (row.metric, row.unit.to_string(), row.count, row.median, interval);
        writer
            .serialize((&row.cell, axes, what, rest))
            .expect("every line has the columns of the header");
    }
    let bytes = writer.into_inner().expect("memory takes whatever is written");
    String::from_utf8(bytes).expect("only text was written")
}

fn statistics(trials: &[&TrialRecord], metric: Metric) -> Option<Statistics> {
    Statistics::of(
        trials
            .iter()
            .filter_map(|trial| trial.metrics.get(&metric).copied()),
    )
}

/// The index of the raw cell that a cell is held against; none for the baseline itself.
pub(crate) fn baseline(plan: &Plan, cell: &Cell) -> Option<usize> {
    if cell.is_raw() {
        return None;
    }
    let wanted = load(cell, cell.transport.raw());
    plan.cells
        .iter()
        .position(|other| other.is_raw() && load(other, other.transport) == wanted)
}

/// The load on the link: equal for cells that can be compared with each other. It does not include how the
/// protocol is negotiated, since raw streams have nothing to negotiate.
fn load(cell: &Cell, transport: Transport) -> impl PartialEq {
    let mut parameters = cell.parameters.clone();
    if let Parameters::Bandwidth { negotiation, .. } | Parameters::Substreams { negotiation, .. } =
        &mut parameters
    {
        *negotiation = Negotiation::V1;
    }
    (
        transport,
        cell.network.clone(),
        parameters,
        cell.clients.len(),
        cell.servers.len(),
        cell.peers_per_client,
    )
}
