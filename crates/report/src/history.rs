//! `perfrun history`: medians of many runs, for tools that look for trends.

use std::collections::BTreeSet;

use perfrun_contract::{metric::Metric, node::Info, reported_run::ReportedRun};

use crate::csv::{self, columns};

columns! {
    struct Line<'a> {
        run: &'a str,
        when: String,
        label: String,
        commit: String,
        cell: &'a str,
        metric: Metric,
        unit: String,
        median: f64,
        ci95_low: Option<f64>,
        ci95_high: Option<f64>,
    }
}

/// The header of the lines of [`history_lines`].
pub fn history_header() -> String {
    csv::text(Some(Line::COLUMNS), [] as [Line<'_>; 0])
}

/// One line for each cell and metric that stands for the cell's workload. Units are those of the metrics.
/// Ends of intervals are empty below six trials.
pub fn history_lines(run: &ReportedRun<'_>) -> String {
    let label = distinct_answers(run, |node| node.label.as_ref());
    let commit = distinct_answers(run, |node| node.commit.as_ref());
    let mut lines = vec![];
    for cell in &run.plan.cells {
        let metrics = cell.parameters.primary();
        let rows = run.summary.iter();
        for row in rows.filter(|row| row.cell == cell.id && metrics.contains(&row.metric)) {
            lines.push(Line {
                run: run.name,
                when: run.started.to_string(),
                label: label.clone(),
                commit: commit.clone(),
                cell: &row.cell,
                metric: row.metric,
                unit: csv::unit(row.unit),
                median: row.median,
                ci95_low: row.ci95_low,
                ci95_high: row.ci95_high,
            });
        }
    }
    csv::text(None, lines)
}

/// What the nodes of a run answer, without repetition.
fn distinct_answers(run: &ReportedRun<'_>, what: impl Fn(&Info) -> Option<&String>) -> String {
    let nodes = run.environment.nodes.values();
    let distinct: BTreeSet<&str> = nodes.filter_map(what).map(String::as_str).collect();
    as_text(distinct.into_iter().collect::<Vec<_>>().join(" "))
}

/// Text for a spreadsheet, which would take what begins with one of these characters for a formula.
fn as_text(text: String) -> String {
    if text.starts_with(['=', '+', '-', '@', '\t', '\r']) {
        format!("'{text}")
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_a_node_does_not_become_a_formula() {
        for formula in ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1"] {
            assert_eq!(as_text(formula.to_owned()), format!("'{formula}"));
        }
        assert_eq!(as_text("v1.2=3".to_owned()), "v1.2=3");
    }
}
