//! What was not measured, and why.

use perfrun_contract::{record::TrialFailure, reported_run::ReportedRun};

use crate::{
    order::grouped,
    table::{Kind, Table},
};

/// Cells or trials named for one reason; results.json has all of them.
const NAMED_MAX: usize = 4;

pub(super) fn tables(results: &ReportedRun<'_>) -> Vec<Table> {
    [skipped(results), failures(results)]
        .into_iter()
        .flatten()
        .collect()
}

fn skipped(results: &ReportedRun<'_>) -> Option<Table> {
    let skipped = results.plan.skipped.iter();
    let reasons = grouped(skipped.map(|cell| (cell.reason.as_str(), cell.id.as_str())));
    let row = |(reason, cells): &(&str, Vec<&str>)| {
        vec![
            (*reason).into(),
            cells.len().to_string().into(),
            named(cells).into(),
        ]
    };
    Table::new(
        Kind::Prose,
        &["Reason"],
        ["Cells", "Which"],
        reasons.iter().map(row),
    )
    .called("Skipped", "")
    .unless_empty()
}

/// Trials that failed for the same reason in one line.
fn failures(results: &ReportedRun<'_>) -> Option<Table> {
    let failures = results.trials.iter().filter_map(|record| {
        let failure = record.failure.as_ref()?;
        let again = results.tally.has_completed(&record.trial.id);
        let warmup = if record.trial.warmup { " (warm-up)" } else { "" };
        let trial = format!("{}{warmup}", record.trial.id);
        Some(((record.trial.cell, failure, again), trial))
    });
    let groups = grouped(failures);
    let row = |((cell, failure, again), trials): &((usize, &TrialFailure, bool), Vec<String>)| {
        let cell = results.plan.cells.get(*cell).map_or("?", |cell| cell.id.as_str());
        let node = failure
            .node
            .as_ref()
            .map(|node| format!("{node}: "))
            .unwrap_or_default();
        let again = if *again { "; tried again and completed" } else { "" };
        let trials: Vec<&str> = trials.iter().map(String::as_str).collect();
        vec![
            cell.into(),
            named(&trials).into(),
            failure.reason.as_ref().into(),
            format!(
                "{node}{}{again}",
                failure.message_of_node().trim().replace(char::is_control, " ")
            )
            .into(),
        ]
    };
    let others = ["Trials", "Reason", "Message"];
    Table::new(Kind::Prose, &["Cell"], others, groups.iter().map(row))
        .called("Failed trials", "")
        .unless_empty()
}

fn named(all: &[&str]) -> String {
    let named = all.iter().take(NAMED_MAX).copied().collect::<Vec<_>>().join(", ");
    match all.len().saturating_sub(NAMED_MAX) {
        0 => named,
        more => format!("{named} and {more} more"),
    }
}
