//! Reports of some cells.

use std::collections::HashSet;

use perfrun_contract::{
    compare::Judging,
    plan::{Cell, Plan},
    record::TrialRecord,
    reported_run::ReportedRun,
    summary::SummaryRow,
};
use perfrun_judge::needs;

/// Results to show.
#[derive(Clone, Copy, Debug)]
pub struct ShownResults<'a> {
    /// All of them, or those of [some cells](select_cells).
    pub results: &'a ReportedRun<'a>,
    /// The verdict of the whole run, in words, if the results are of some cells.
    pub verdict_of_whole_run: Option<&'a str>,
}

impl<'a> From<&'a ReportedRun<'a>> for ShownResults<'a> {
    fn from(results: &'a ReportedRun<'a>) -> Self {
        Self {
            results,
            verdict_of_whole_run: None,
        }
    }
}

/// Keeps the wanted cells of a run, and the raw cells that they are compared with. The plan then compares and
/// expects nothing, because findings are of all cells together.
pub fn select_cells(
    plan: &mut Plan,
    trials: &mut Vec<TrialRecord>,
    summary: &mut Vec<SummaryRow>,
    is_wanted: impl Fn(&Cell) -> bool,
) {
    // Interim checks of all cells have decided which trials the run needs.
    let iterations = needs(plan, trials).iterations;
    plan.trials.retain(|trial| {
        let iterations = iterations.get(trial.cell).copied().unwrap_or_default();
        trial.warmup || trial.iteration < iterations
    });
    plan.judging = Judging::default();

    let wanted = plan.cells.iter().filter(|cell| is_wanted(cell));
    let raw: HashSet<usize> = wanted.filter_map(|cell| plan.raw_of(cell)).collect();
    let numbered = plan.cells.iter().enumerate();
    let kept = numbered.filter(|(index, cell)| is_wanted(cell) || raw.contains(index));
    let (places, cells): (Vec<usize>, Vec<Cell>) = kept.map(|(index, cell)| (index, cell.clone())).unzip();
    plan.cells = cells;
    let is_moved = |cell: &mut usize| match places.binary_search(cell) {
        Ok(place) => {
            *cell = place;
            true
        }
        Err(_) => false,
    };
    plan.trials.retain_mut(|trial| is_moved(&mut trial.cell));
    trials.retain_mut(|record| is_moved(&mut record.trial.cell));
    let ids: HashSet<&str> = plan.cells.iter().map(|cell| cell.id.as_str()).collect();
    summary.retain(|row| ids.contains(row.cell.as_str()));
}
