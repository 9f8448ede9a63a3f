//! What was not measured, and why.

use std::collections::HashSet;

use perfrun_api::results::{Results, TrialRecord};

use super::source::push_new;
use crate::table::Table;

/// Longer lists end here; results.json has all of it.
const LONGEST_LIST: usize = 50;
/// Cells named for one reason.
const NAMED_CELLS: usize = 4;

pub(super) fn tables(results: &Results) -> Vec<Table> {
    [skipped(results), failures(results)].into_iter().flatten().collect()
}

/// Trials of the plan that have an end, good or bad.
pub(super) fn ended(results: &Results) -> usize {
    results.trials.iter().map(|record| &record.trial.id).collect::<HashSet<_>>().len()
}

/// Trials of which no attempt completed.
pub(super) fn failed(results: &Results) -> usize {
    let completed: HashSet<&str> = ids(results, |record| record.failure.is_none());
    ids(results, |record| record.failure.is_some()).difference(&completed).count()
}

fn ids(results: &Results, filter: impl Fn(&TrialRecord) -> bool) -> HashSet<&str> {
    results.trials.iter().filter(|record| filter(record)).map(|record| record.trial.id.as_str()).collect()
}

fn skipped(results: &Results) -> Option<Table> {
    let skipped = &results.plan.skipped;
    let mut reasons: Vec<&str> = vec![];
    skipped.iter().for_each(|cell| push_new(&mut reasons, &cell.reason));
    let rows: Vec<_> = reasons
        .iter()
        .map(|reason| {
            let ids: Vec<&str> = skipped.iter().filter(|c| c.reason == *reason).map(|c| c.id.as_str()).collect();
            let named = ids.iter().take(NAMED_CELLS).copied().collect::<Vec<_>>().join(", ");
            let more = match ids.len().saturating_sub(NAMED_CELLS) {
                0 => String::new(),
                n => format!(" and {n} more"),
            };
            vec![(*reason).into(), ids.len().to_string().into(), format!("{named}{more}").into()]
        })
        .collect();
    (!rows.is_empty()).then(|| Table {
        title: "Skipped".to_owned(),
        keys: 1,
        header: ["Reason", "Cells", "Which"].map(str::to_owned).to_vec(),
        rows,
        ..Table::default()
    })
}

fn failures(results: &Results) -> Option<Table> {
    let completed = ids(results, |record| record.failure.is_none());
    let all: Vec<_> = results.trials.iter().filter_map(|r| Some((r, r.failure.as_ref()?))).collect();
    let rows: Vec<_> = all
        .iter()
        .take(LONGEST_LIST)
        .map(|(record, failure)| {
            let cell = results.plan.cells.get(record.trial.cell).map_or("?", |cell| cell.id.as_str());
            let again = if completed.contains(record.trial.id.as_str()) { "; tried again and completed" } else { "" };
            let node = failure.node.as_ref().map(|node| format!("{node}: ")).unwrap_or_default();
            let warmup = if record.trial.warmup { " (warm-up)" } else { "" };
            vec![
                format!("{}{warmup}", record.trial.id).into(),
                cell.into(),
                failure.reason.as_ref().into(),
                format!("{node}{}{again}", failure.message).into(),
            ]
        })
        .collect();
    let more = all.len().saturating_sub(LONGEST_LIST);
    (!rows.is_empty()).then(|| Table {
        title: "Failed trials".to_owned(),
        caption: if more > 0 { format!("the first {LONGEST_LIST}; results.json has {more} more") } else { String::new() },
        keys: 1,
        header: ["Trial", "Cell", "Reason", "Message"].map(str::to_owned).to_vec(),
        rows,
        ..Table::default()
    })
}
