//! Finding results by the row and the column of a table.

use std::{borrow::Cow, collections::HashMap};

use perfrun_contract::{
    compare::Ratio,
    metric::Metric,
    parameters::Parameters,
    plan::{Cell, CellKey, Plan, StackPair},
    record::{Flag, TrialRecord},
    reported_run::ReportedRun,
    role::Role,
    summary::SummaryRow,
    support::STREAM_LAYER_NOTE,
};
use perfrun_judge::{VALUES_MIN, measured, needs, share, summarize};

use super::notes::{BUSY, LOST_ENDS, Notes, Standstills, busy, explained, lost_ends};
use crate::{
    order::distinct,
    path::Path,
    table::{self, NOTHING, Origin, SKIPPED},
    units::{self, PERCENT, SECONDS, Scale},
};

/// Results, by what tables have as rows and columns.
pub(crate) struct ResultsIndex<'a> {
    pub(crate) results: &'a ReportedRun<'a>,
    summary: Cow<'a, [SummaryRow]>,
    /// In the plan's order.
    by_cell: Vec<CellResults<'a>>,
    /// The index in the plan of the cell with each id.
    cell_indices: HashMap<&'a str, usize>,
    /// Pairs that are not the raw reference, in the plan's order.
    stack_pairs: Vec<StackPair<'a>>,
    /// How many measured trials completed, and how many of them something disturbed. The tally of the results
    /// counts warm-up as well.
    completed: usize,
    disturbed: usize,
    /// Flags of which a note at each value would say no more than the warning at the top.
    everywhere: Vec<Flag>,
}

/// The results of a cell.
#[derive(Default)]
struct CellResults<'a> {
    /// Rows of the summary, by metric.
    rows: HashMap<Metric, usize>,
    /// The number of measured trials that the run needs.
    needed: u32,
    /// The records of its measured trials, of every attempt.
    records: Vec<&'a TrialRecord>,
    /// Those of its measured trials that completed: of each the last attempt.
    completed: Vec<&'a TrialRecord>,
}

impl<'a> ResultsIndex<'a> {
    pub(crate) fn new(results: &'a ReportedRun<'a>) -> Self {
        // A run that ended early may have left no summary, but its trials are there.
        let summary = if results.summary.is_empty() {
            Cow::Owned(summarize(results.plan, results.trials))
        } else {
            Cow::Borrowed(results.summary)
        };
        let cells = &results.plan.cells;
        let cell_indices: HashMap<&str, usize> = cells
            .iter()
            .enumerate()
            .map(|(cell_index, cell)| (cell.id.as_str(), cell_index))
            .collect();
        let completed = measured(results.plan, results.trials).into_iter();
        let mut by_cell: Vec<CellResults<'_>> = completed
            .map(|completed| CellResults {
                completed,
                ..CellResults::default()
            })
            .collect();
        for (i, row) in summary.iter().enumerate() {
            if let Some(cell_index) = cell_indices.get(row.cell.as_str()) {
                by_cell[*cell_index].rows.insert(row.metric, i);
            }
        }
        let iterations = needs(results.plan, results.trials).iterations;
        for trial in results.plan.trials.iter().filter(|trial| !trial.warmup) {
            let is_needed = iterations
                .get(trial.cell)
                .is_some_and(|iterations| trial.iteration < *iterations);
            if let (Some(own), true) = (by_cell.get_mut(trial.cell), is_needed) {
                own.needed += 1;
            }
        }
        for record in results.trials.iter().filter(|record| !record.trial.warmup) {
            if let Some(own) = by_cell.get_mut(record.trial.cell) {
                own.records.push(record);
            }
        }
        let compared = cells.iter().filter(|cell| !cell.is_raw());
        let completed = || by_cell.iter().flat_map(|own| &own.completed);
        let is_disturbed = |record: &&&TrialRecord| record.flags.contains(&Flag::Disturbed);
        let (all, disturbed) = (completed().count(), completed().filter(is_disturbed).count());
        let mut index = Self {
            results,
            summary,
            by_cell,
            cell_indices,
            stack_pairs: distinct(compared.map(Cell::stack_pair)),
            completed: all,
            disturbed,
            everywhere: vec![],
        };
        let is_everywhere = |flag: &Flag| match flag {
            Flag::Disturbed => index.disturbed == index.completed,
            _ => index.limited(*flag) == cells.len(),
        };
        index.everywhere = BUSY.into_iter().filter(is_everywhere).collect();
        index
    }

    pub(crate) fn plan(&self) -> &'a Plan {
        self.results.plan
    }

    /// The cells with parameters like these.
    pub(crate) fn cells(&self, is_wanted: impl Fn(&Parameters) -> bool) -> Vec<&'a Cell> {
        let cells = self.plan().cells.iter();
        cells.filter(|cell| is_wanted(&cell.parameters)).collect()
    }

    /// How many of the completed trials something disturbed, in words. `None` if nothing did.
    pub(crate) fn disturbed(&self) -> Option<String> {
        match self.disturbed {
            0 => None,
            1 if self.completed == 1 => Some("the only trial".to_owned()),
            all if all == self.completed => Some(format!("all {all} trials that count")),
            some => Some(format!("{some} of {} trials that count", self.completed)),
        }
    }

    /// How many cells have a flag in more than half of their completed trials.
    pub(crate) fn limited(&self, flag: Flag) -> usize {
        let cells = self.plan().cells.iter();
        cells.filter(|cell| self.is_limited(cell, flag)).count()
    }

    /// Whether a cell has a flag in more than half of its completed trials.
    pub(crate) fn is_limited(&self, cell: &Cell, flag: Flag) -> bool {
        self.of_cell(cell).is_some_and(|CellResults { completed, .. }| {
            let flagged = completed.iter().filter(|record| record.flags.contains(&flag));
            flagged.count() * 2 > completed.len()
        })
    }

    pub(crate) fn row(&self, cell: &Cell, metric: Metric) -> Option<&SummaryRow> {
        let row = self.of_cell(cell)?.rows.get(&metric)?;
        self.summary.get(*row)
    }

    /// The records of the measured trials of a cell, of every attempt.
    pub(crate) fn trials(&self, cell: &Cell) -> impl Iterator<Item = &'a TrialRecord> {
        let records = self.of_cell(cell).map(|own| &own.records);
        records.into_iter().flatten().copied()
    }

    /// The records of the measured trials of a cell that count: of each the last attempt.
    pub(crate) fn counting(&self, cell: &Cell) -> impl Iterator<Item = &'a TrialRecord> {
        let tally = &self.results.tally;
        self.trials(cell).filter(move |record| {
            let last = tally.last_attempt(&record.trial.id);
            last.is_some_and(|(attempt, _)| attempt == record.attempt)
        })
    }

    /// Those of them that completed.
    pub(crate) fn completed_trials(&self, cell: &Cell) -> impl Iterator<Item = &'a TrialRecord> {
        let completed = self.of_cell(cell).map(|own| &own.completed);
        completed.into_iter().flatten().copied()
    }

    /// The metrics that stand for the workload of these cells.
    pub(crate) fn headlines<'c>(&self, cells: impl IntoIterator<Item = &'c Cell>) -> Vec<Metric> {
        let records = cells.into_iter().flat_map(|cell| self.counting(cell));
        distinct(records.flat_map(TrialRecord::headlines).map(|(metric, _)| metric))
    }

    /// The fewest and the most completed trials of a cell that has any.
    pub(crate) fn completed(&self) -> [usize; 2] {
        let counts = self.by_cell.iter().map(|own| own.completed.len());
        let counts = counts.filter(|count| *count > 0);
        [counts.clone().min(), counts.max()].map(Option::unwrap_or_default)
    }

    pub(crate) fn has_completed(&self) -> bool {
        self.completed() != [0, 0]
    }

    /// The index of a pair among those that are not the raw reference.
    pub(crate) fn stack_pair_index(&self, pair: StackPair<'_>) -> Option<usize> {
        self.stack_pairs.iter().position(|known| *known == pair)
    }

    fn cell_index(&self, id: &str) -> Option<usize> {
        self.cell_indices.get(id).copied()
    }

    fn of_cell(&self, cell: &Cell) -> Option<&CellResults<'a>> {
        self.by_cell.get(self.cell_index(&cell.id)?)
    }

    /// The cell with this id.
    pub(crate) fn cell_called(&self, id: &str) -> Option<&'a Cell> {
        self.plan().cells.get(self.cell_index(id)?)
    }

    /// The cell of a table's row and column. The raw reference stands beside every transport that
    /// is compared with it.
    pub(crate) fn cell(
        &self,
        pair: StackPair<'_>,
        path: Path<'_>,
        parameters: &Parameters,
    ) -> Option<&'a Cell> {
        self.cell_called(&id(pair, path, parameters))
    }

    /// A value with its interval and notes.
    pub(crate) fn value(&self, notes: &mut Notes, cell: &Cell, metric: Metric) -> Option<table::Field> {
        let row = self.row(cell, metric)?;
        // Always in seconds, so that values compare at a glance.
        let is_in_seconds = matches!(metric, Metric::CpuSecondsPerGiB | Metric::RelayCpuSecondsPerGiB);
        let scale = match is_in_seconds {
            true => SECONDS,
            false => Scale::of(row.unit, row.median),
        };
        let ends = row.interval().filter(|_| !metric.is_whole());
        let scale = ends.map_or(scale, |ends| scale.resolving(row.median, ends));
        let text = match is_in_seconds || ends.is_some() {
            true => scale.text(row.median),
            false => units::text(row.unit, row.median),
        };
        Some(table::Field {
            text,
            interval: ends.map(|(low, high)| scale.interval(low, high)),
            notes: self.notes(notes, cell, row),
            origin: Some(Origin {
                cell: cell.id.clone(),
                metric,
                value: row.median,
            }),
            ..table::Field::default()
        })
    }

    /// The share of the raw reference, if there is one to compare with.
    pub(crate) fn share(&self, notes: &mut Notes, cell: &Cell, metric: Metric) -> Option<table::Field> {
        let row = self.row(cell, metric)?;
        let share = Ratio {
            value: row.share_of_raw?,
            low: row.share_of_raw_low,
            high: row.share_of_raw_high,
        };
        let raw = self.plan().cells.get(self.plan().raw_of(cell)?)?;
        Some(self.share_of(notes, cell, ("raw", raw), metric, share))
    }

    /// A metric of a cell as a share of another's, in the same iterations.
    pub(crate) fn ratio(&self, cell: &Cell, of: &Cell, metric: Metric) -> Option<Ratio> {
        share(
            &self.of_cell(cell)?.completed,
            &self.of_cell(of)?.completed,
            metric,
        )
    }

    /// A share of another cell, whose notes it has as well, after its name.
    pub(crate) fn share_of(
        &self,
        notes: &mut Notes,
        cell: &Cell,
        (name, other): (&str, &Cell),
        metric: Metric,
        share: Ratio,
    ) -> table::Field {
        let ends = share.low.zip(share.high);
        let scale = ends.map_or(PERCENT, |ends| PERCENT.resolving(share.value, ends));
        let row = self.row(cell, metric);
        let mut marks = row.map_or_else(Vec::new, |row| self.notes(notes, cell, row));
        let others = self.row(other, metric).map(|row| self.remarks(other, row));
        marks.extend(
            others
                .into_iter()
                .flatten()
                .map(|text| notes.index(format!("{name}: {text}"))),
        );
        marks.sort_unstable();
        table::Field {
            text: scale.text(share.value),
            interval: ends.map(|(low, high)| scale.interval(low, high)),
            notes: marks,
            ..table::Field::default()
        }
    }

    /// What the client used and what the server did, in one unit, without intervals, as `a / b`; one value
    /// where one process is both.
    pub(crate) fn both(&self, notes: &mut Notes, cell: &Cell, metrics: [Metric; 2]) -> Option<table::Field> {
        let [client, server] = metrics.map(|metric| self.row(cell, metric));
        let client = client?;
        let text = if cell.has_process(Role::Server) {
            let (a, b) = (client.median, server?.median);
            let scale = Scale::of(client.unit, a.max(b));
            format!("{} /\n{}", scale.number(a), scale.text(b))
        } else {
            Scale::of(client.unit, client.median).text(client.median)
        };
        Some(table::Field {
            text,
            notes: self.notes(notes, cell, client),
            ..table::Field::default()
        })
    }

    /// Why there is no value. A dash for a cell with a trial that completed: it was measured, and the value
    /// does not apply.
    pub(crate) fn missing(
        &self,
        pair: StackPair<'_>,
        path: Path<'_>,
        parameters: &Parameters,
    ) -> table::Field {
        let id = id(pair, path, parameters);
        match self.cell_index(&id) {
            Some(cell_index) if !self.by_cell[cell_index].completed.is_empty() => NOTHING.into(),
            Some(cell_index) if self.results.tally.failed_of_cell(cell_index) > 0 => "failed".into(),
            Some(_) => "not run".into(),
            None if self.plan().skipped.iter().any(|skipped| skipped.id == id) => SKIPPED.into(),
            None => NOTHING.into(),
        }
    }

    fn notes(&self, notes: &mut Notes, cell: &Cell, row: &SummaryRow) -> Vec<usize> {
        let layer = cell.is_stream_layer().then(|| STREAM_LAYER_NOTE.to_owned());
        let texts = self.remarks(cell, row).chain(layer);
        let mut marks: Vec<usize> = texts.map(|text| notes.index(text)).collect();
        marks.sort_unstable();
        marks
    }

    /// What limits the trust in a value: flags, and trials without it.
    fn remarks(&self, cell: &Cell, row: &SummaryRow) -> impl Iterator<Item = String> {
        let of_all = move |count: u32, text: String| {
            let plural = if row.count == 1 { "" } else { "s" };
            format!("{count} of {} trial{plural}: {text}", row.count)
        };
        let Standstills {
            trials,
            only,
            longest,
        } = Standstills::of(self.completed_trials(cell));
        let flagged = row.flags.get(&Flag::PartialFailures);
        let ends = flagged.map_or(0, |count| lost_ends(self.completed_trials(cell)).min(*count));
        // The note at the top already reports a debug build.
        let flags = row
            .flags
            .iter()
            .filter(move |(flag, _)| **flag != Flag::DebugBuild && !self.everywhere.contains(flag))
            .filter_map(move |(flag, count)| {
                let explained_below = match flag {
                    Flag::Disturbed => only,
                    Flag::PartialFailures => ends,
                    _ => 0,
                };
                match count.saturating_sub(explained_below) {
                    0 => None,
                    count if BUSY.contains(flag) => Some(busy(*flag, count, row.count)),
                    count => Some(of_all(count, explained(*flag))),
                }
            });
        let lost = (ends > 0).then(|| of_all(ends, LOST_ENDS.to_owned()));
        let stood_still = longest.map(|longest| match trials {
            1 => of_all(1, longest.to_string()),
            more => of_all(more, format!("a node stood still; in the worst, {longest}")),
        });
        flags.chain(lost).chain(stood_still).chain(self.fewer(cell, row))
    }

    /// Why a value is of fewer trials than were needed. `None` if it is of all.
    fn fewer(&self, cell: &Cell, row: &SummaryRow) -> Option<String> {
        let own = self.of_cell(cell).filter(|own| row.count < own.needed)?;
        let [needed, count] = [own.needed, row.count].map(|number| number as usize);
        let (ended, completed) = (self.counting(cell).count(), own.completed.len());
        let [has_none, have_none] = ["has", "have"].map(|verb| format!("{verb} no value of {}", row.metric));
        let others = [
            (ended.saturating_sub(completed), "failed", "failed"),
            (needed.saturating_sub(ended), "was not run", "were not run"),
            (
                completed.saturating_sub(count),
                has_none.as_str(),
                have_none.as_str(),
            ),
        ];
        let others = others.into_iter().filter(|(number, ..)| *number > 0);
        let others = others.map(|(number, one, several)| match number {
            1 => format!("1 {one}"),
            _ => format!("{number} {several}"),
        });
        let interval = match row.ci95_low.is_none() && own.needed >= VALUES_MIN {
            true => "; too few for an interval",
            false => "",
        };
        let others = Vec::from_iter(others).join(", ");
        Some(format!("over {count} of {needed} trials: {others}{interval}"))
    }
}

/// The id that a cell with this pair, path and load has, whether or not the plan has the cell.
fn id(pair: StackPair<'_>, path: Path<'_>, parameters: &Parameters) -> String {
    let path = if pair.is_raw { path.raw() } else { path };
    let key = CellKey {
        client: pair.client,
        server: pair.server,
        transport: path.transport,
        parameters,
        network: path.network,
        ip_family: path.ip_family,
    };
    key.id()
}
