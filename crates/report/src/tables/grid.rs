//! Tables of cells: what is across, what is down, and a row for each cell.

use perfrun_contract::{
    metric::Metric,
    parameters::Parameters,
    plan::{Cell, StackPair},
    summary::SummaryRow,
};

use super::{notes::Notes, results_index::ResultsIndex};
use crate::{
    order::distinct,
    path::Path,
    table::{self, Kind, NOTHING, Table},
};

/// Columns and rows of a table that has a column for each pair.
pub(crate) struct Grid<'a> {
    pub(crate) stack_pairs: Vec<StackPair<'a>>,
    pub(crate) lines: Vec<(Path<'a>, &'a Parameters)>,
}

impl<'a> Grid<'a> {
    /// Pairs in the plan's order, which begins with the raw reference; a line for each set of parameters
    /// and transport.
    pub(crate) fn new(cells: &[&'a Cell]) -> Self {
        let paths = paths(cells);
        let parameters = distinct(cells.iter().map(|cell| &cell.parameters)).into_iter();
        Self {
            stack_pairs: distinct(cells.iter().map(|cell| cell.stack_pair())),
            lines: parameters
                .flat_map(|p| paths.iter().map(move |&path| (path, p)))
                .collect(),
        }
    }

    /// The names of the columns.
    pub(crate) fn names(&self) -> impl Iterator<Item = String> {
        self.stack_pairs.iter().map(|pair| header(*pair))
    }
}

/// A pair of stacks as it heads a column, broken after the arrow: columns are narrow.
pub(super) fn header(pair: StackPair<'_>) -> String {
    pair.to_string().replace(" → ", " →\n")
}

/// The paths of these cells. That of the raw reference is one of them only where nothing stands beside it.
pub(crate) fn paths<'a>(cells: &[&'a Cell]) -> Vec<Path<'a>> {
    let compared = cells.iter().filter(|cell| !cell.is_raw());
    let mut paths: Vec<Path<'a>> = distinct(compared.map(|cell| Path::of(cell)));
    for cell in cells.iter().filter(|cell| cell.is_raw()) {
        if !paths.iter().any(|path| path.raw() == Path::of(cell)) {
            paths.push(Path::of(cell));
        }
    }
    paths
}

/// The key fields of a cell in most tables: the path, something about the load, and the pair.
pub(super) fn key_fields(cell: &Cell, load: impl Into<table::Field>) -> Vec<table::Field> {
    vec![
        Path::of(cell).to_string().into(),
        load.into(),
        header(cell.stack_pair()).into(),
    ]
}

/// A column of a table that has a row for each cell: its name and its metric.
pub(super) type Column = (&'static str, Metric);

/// What failed at clients. The table of failed operations has those of servers, too.
pub(super) const FAILURES: Column = ("Client\nfailures", Metric::Failures);

/// A table with a row for each cell: its key fields, then metrics. Pairs that can be compared
/// stand together; columns without any value, or without any failure, are left out.
pub(super) fn detail<'a>(
    index: &ResultsIndex<'a>,
    cells: &[&'a Cell],
    keys: &[&str],
    key: impl Fn(&Cell) -> Vec<table::Field>,
    columns: &[Column],
) -> Table {
    let grid = Grid::new(cells);
    let mut cells = cells.to_vec();
    cells.sort_by_cached_key(|cell| {
        let is_of_cell =
            |line: &(Path<'_>, &Parameters)| line.0 == Path::of(cell) && *line.1 == cell.parameters;
        let path = grid.lines.iter().position(|line| line.0 == Path::of(cell));
        (path, grid.lines.iter().position(is_of_cell))
    });
    // A column of failures that never happened would only take the room of others.
    let says = |row: &SummaryRow| row.metric != Metric::Failures || row.max != 0.0;
    let has_values = |(_, metric): &&Column| {
        let mut rows = cells.iter().filter_map(|cell| index.row(cell, *metric));
        rows.any(says)
    };
    let columns: Vec<&Column> = columns.iter().filter(has_values).collect();
    let mut notes = Notes::default();
    let rows = cells.iter().map(|cell| {
        let values = columns.iter().map(|(_, metric)| {
            let missing = || index.missing(cell.stack_pair(), Path::of(cell), &cell.parameters);
            let measured = index.row(cell, Metric::ClientPeakRss).is_some();
            index
                .value(&mut notes, cell, *metric)
                .unwrap_or_else(|| if measured { NOTHING.into() } else { missing() })
        });
        key(cell).into_iter().chain(values).collect()
    });
    let names = columns.iter().map(|(name, _)| *name);
    Table::new(Kind::Detail, keys, names, rows).with_footnotes(notes)
}
