//! Plans in words, and rows in columns.

use std::collections::BTreeMap;

use perfrun_contract::{
    compare::{ALPHA, PAIRS_MIN, interval_min},
    plan::Plan,
};

/// A number and a noun in singular or plural.
pub(crate) fn counted(count: usize, what: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {what}{plural}")
}

/// The most names of a list in a message.
const NAMED_MAX: usize = 4;

/// Names without repetitions, in the order in which they first come up.
pub(crate) fn distinct<T: Into<String>>(names: impl IntoIterator<Item = T>) -> Vec<String> {
    let mut all: Vec<String> = vec![];
    for name in names.into_iter().map(Into::into) {
        if !all.contains(&name) {
            all.push(name);
        }
    }
    all
}

/// Different names, or the first of them and how many more there are.
pub(crate) fn named(names: impl Iterator<Item = String>) -> String {
    let mut all = distinct(names);
    let more = all.len().saturating_sub(NAMED_MAX);
    all.truncate(NAMED_MAX);
    match (all.join(", "), more) {
        (names, 0) => names,
        (names, more) => format!("{names} and {more} more"),
    }
}

/// Rows in columns of the least width, in the format of kubectl.
pub(crate) fn columns(rows: &[Vec<String>]) -> String {
    let count = rows.iter().map(Vec::len).max().unwrap_or_default();
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or_default()
    };
    let widths: Vec<usize> = (0..count).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let cells = row.iter().zip(&widths);
        let line: String = cells.map(|(cell, width)| format!("{cell:<width$}   ")).collect();
        text += line.trim_end();
        text.push('\n');
    }
    text
}

/// The number of trials of a plan, in words. Interim checks may make some of them unnecessary.
pub(crate) fn trials(plan: &Plan) -> String {
    let most = if plan.judging.interim_checks.len() > 1 {
        "up to "
    } else {
        ""
    };
    format!("{most}{}", counted(plan.trials.len(), "trial"))
}

/// The least time of a plan, in words. `None` if nothing is known of it.
pub(crate) fn least_time(plan: &Plan) -> Option<String> {
    let least = plan.least_time();
    (!least.time.is_zero()).then(|| least.to_string())
}

/// The least time of a plan, in words, also if nothing is known of it.
pub(crate) fn least_time_if_known(plan: &Plan) -> String {
    least_time(plan).unwrap_or_else(|| "has a duration that is not known before the run".to_owned())
}

/// Why nothing can be found of what a plan compares, or expects of single cells, and what to change.
pub(crate) fn too_few_iterations(plan: &Plan) -> Vec<String> {
    let measured = plan.trials.iter().filter(|trial| !trial.warmup);
    let Some(iterations) = measured.map(|trial| trial.iteration + 1).max() else {
        return vec![];
    };
    let judging = &plan.judging;
    let least = interval_min(ALPHA * judging.share_of_check(iterations));
    let has_bounds = judging.expect.iter().any(|one| one.bound.is_of_one_cell());
    let note = |what: &str, takes: &str, least: u32| {
        format!(
            "note: {what}: {takes} {least} iterations or more, and this run has {iterations}; increase `iterations`"
        )
    };
    let of_comparisons = (!judging.cell_pairs.is_empty() && iterations < PAIRS_MIN)
        .then(|| note("nothing will be found better or worse", "that takes", PAIRS_MIN));
    let of_bounds = (has_bounds && iterations < least).then(|| {
        let what = "`min`, `max` and `minShareOfRaw` will be inconclusive";
        note(what, "a verdict takes", least)
    });
    of_comparisons.into_iter().chain(of_bounds).collect()
}

/// Cells that are not measured, by the reason.
pub(crate) fn skipped(plan: &Plan, is_all: bool) -> Vec<String> {
    let skipped = &plan.skipped;
    if skipped.is_empty() {
        return vec![];
    }
    let head = format!("  {} skipped:", counted(skipped.len(), "cell"));
    if is_all {
        let rows = skipped
            .iter()
            .map(|cell| format!("    {}  {}", cell.id, cell.reason));
        return [head].into_iter().chain(rows).collect();
    }
    let mut reasons: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for cell in skipped {
        reasons.entry(&cell.reason).or_default().push(&cell.id);
    }
    let rows = reasons.into_iter().map(|(reason, ids)| {
        let more = match ids.len() - 1 {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        format!("    {}{more}: {reason}", ids[0])
    });
    [head].into_iter().chain(rows).collect()
}
