//! The rows of the summary, flat.

use std::collections::HashMap;

use perfrun_contract::{account::Account, plan::Cell};

const COLUMNS: [&str; 20] = [
    "cell",
    "client",
    "server",
    "transport",
    "network",
    "ip_family",
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
    "share_of_raw_low",
    "share_of_raw_high",
    "flags",
];

/// `summary.csv`: one line for every row of the summary, under a header. Units are those of the metrics;
/// empty fields are not known, for example ends of intervals of fewer than six trials.
pub fn summary_csv(results: &Account<'_>) -> String {
    let mut writer = csv::WriterBuilder::new().has_headers(false).from_writer(vec![]);
    writer
        .write_record(COLUMNS)
        .expect("memory takes whatever is written");
    let cells: HashMap<&str, &Cell> = results
        .plan
        .cells
        .iter()
        .map(|cell| (cell.id.as_str(), cell))
        .collect();
    for row in results.summary {
        let Some(cell) = cells.get(row.cell.as_str()) else {
            continue;
        };
        let load = cell.parameters.to_string();
        let path = (cell.transport, &cell.network, cell.ip_family);
        let axes = (&cell.client, &cell.server, path, load);
        let flags: Vec<String> = row
            .flags
            .iter()
            .filter(|(_, count)| **count > 0)
            .map(|(flag, count)| format!("{flag}={count}"))
            .collect();
        let interval = (row.ci95_low, row.ci95_high);
        let share = (row.share_of_raw, row.share_of_raw_low, row.share_of_raw_high);
        let rest = (row.mean, row.min, row.max, share, flags.join(" "));
        let what = (row.metric, row.unit.to_string(), row.count, row.median, interval);
        writer
            .serialize((&row.cell, axes, what, rest))
            .expect("every line has the columns of the header");
    }
    let bytes = writer.into_inner().expect("memory takes whatever is written");
    String::from_utf8(bytes).expect("only text was written")
}
