//! The rows of the summary, flat.

use std::collections::HashMap;

use perfrun_contract::{
    matrix::{IpFamily, Transport},
    metric::Metric,
    plan::Cell,
    reported_run::ReportedRun,
};

use crate::csv::{self, columns};

columns! {
    struct Line<'a> {
        cell: &'a str,
        client: &'a str,
        server: &'a str,
        transport: Transport,
        network: &'a str,
        ip_family: IpFamily,
        load: String,
        metric: Metric,
        unit: String,
        trials: u32,
        median: f64,
        ci95_low: Option<f64>,
        ci95_high: Option<f64>,
        mean: f64,
        min: f64,
        max: f64,
        share_of_raw: Option<f64>,
        share_of_raw_low: Option<f64>,
        share_of_raw_high: Option<f64>,
        flags: String,
    }
}

/// `summary.csv`: one line for every row of the summary, under a header. Units are those of the metrics;
/// empty fields are not known, for example ends of intervals of fewer than six trials.
pub fn summary_csv(results: &ReportedRun<'_>) -> String {
    let cells: HashMap<&str, &Cell> = results
        .plan
        .cells
        .iter()
        .map(|cell| (cell.id.as_str(), cell))
        .collect();
    let lines = results.summary.iter().filter_map(|row| {
        let cell = cells.get(row.cell.as_str())?;
        let flags: Vec<String> = row
            .flags
            .iter()
            .filter(|(_, count)| **count > 0)
            .map(|(flag, count)| format!("{flag}={count}"))
            .collect();
        Some(Line {
            cell: &row.cell,
            client: &cell.client.0,
            server: &cell.server.0,
            transport: cell.transport,
            network: &cell.network,
            ip_family: cell.ip_family,
            load: cell.parameters.to_string(),
            metric: row.metric,
            unit: csv::unit(row.unit),
            trials: row.count,
            median: row.median,
            ci95_low: row.ci95_low,
            ci95_high: row.ci95_high,
            mean: row.mean,
            min: row.min,
            max: row.max,
            share_of_raw: row.share_of_raw,
            share_of_raw_low: row.share_of_raw_low,
            share_of_raw_high: row.share_of_raw_high,
            flags: flags.join(" "),
        })
    });
    csv::text(Some(Line::COLUMNS), lines)
}
