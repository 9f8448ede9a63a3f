//! What was not measured, and why.

use perfrun_contract::{account::Account, record::TrialFailure};

use super::source::push_new;
use crate::table::{Cell, Kind, Table};

/// Cells or trials named for one reason; results.json has all of them.
const NAMED: usize = 4;

pub(super) fn tables(results: &Account<'_>) -> Vec<Table> {
    [skipped(results), failures(results)]
        .into_iter()
        .flatten()
        .collect()
}

fn skipped(results: &Account<'_>) -> Option<Table> {
    let skipped = &results.plan.skipped;
    let mut reasons: Vec<&str> = vec![];
    skipped
        .iter()
        .for_each(|cell| push_new(&mut reasons, &cell.reason));
    let of = |reason: &str| {
        skipped
            .iter()
            .filter(|c| c.reason == reason)
            .map(|c| c.id.as_str())
            .collect::<Vec<_>>()
    };
    let row = |reason: &&str| {
        vec![
            (*reason).into(),
            of(reason).len().to_string().into(),
            named(&of(reason)).into(),
        ]
    };
    table(
        "Skipped",
        ["Reason", "Cells", "Which"],
        reasons.iter().map(row).collect(),
    )
}

/// Trials that failed for the same reason in one line.
fn failures(results: &Account<'_>) -> Option<Table> {
    let mut groups: Vec<(_, Vec<String>)> = vec![];
    for (record, failure) in results
        .trials
        .iter()
        .filter_map(|r| Some((r, r.failure.as_ref()?)))
    {
        let again = results.tally.has_completed(&record.trial.id);
        let warmup = if record.trial.warmup { " (warm-up)" } else { "" };
        let trial = format!("{}{warmup}", record.trial.id);
        match groups
            .iter_mut()
            .find(|(known, _)| *known == (record.trial.cell, failure, again))
        {
            Some((_, trials)) => trials.push(trial),
            None => groups.push(((record.trial.cell, failure, again), vec![trial])),
        }
    }
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
                failure.message.trim().replace(char::is_control, " ")
            )
            .into(),
        ]
    };
    table(
        "Failed trials",
        ["Cell", "Trials", "Reason", "Message"],
        groups.iter().map(row).collect(),
    )
}

fn named(all: &[&str]) -> String {
    let named = all.iter().take(NAMED).copied().collect::<Vec<_>>().join(", ");
    match all.len().saturating_sub(NAMED) {
        0 => named,
        more => format!("{named} and {more} more"),
    }
}

fn table<const N: usize>(title: &str, header: [&str; N], rows: Vec<Vec<Cell>>) -> Option<Table> {
    (!rows.is_empty()).then(|| Table {
        title: title.to_owned(),
        keys: 1,
        header: header.map(str::to_owned).to_vec(),
        rows,
        kind: Kind::Prose,
        ..Table::default()
    })
}
