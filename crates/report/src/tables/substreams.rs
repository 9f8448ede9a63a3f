//! Opening of substreams.

use perfrun_contract::{
    matrix::Negotiation, metric::Metric, parameters::Parameters, plan::Cell, workload::OpenMode,
};

use super::{FAILURES, Grid, Notes, ResultsIndex, detail, key_fields};
use crate::{
    order::{distinct, grouped},
    table::{self, Kind, Table},
};

pub(super) fn tables(index: &ResultsIndex<'_>) -> Vec<Table> {
    let cells = index.cells(|parameters| matches!(parameters, Parameters::Substreams(_)));
    let groups = grouped(cells.into_iter().map(|cell| (caption(&cell.parameters), cell)));
    groups
        .iter()
        .flat_map(|(caption, cells)| [means(index, cells, caption), details(index, cells, caption)])
        .collect()
}

fn caption(parameters: &Parameters) -> String {
    let Parameters::Substreams(load) = parameters else {
        return String::new();
    };
    let mode = match (load.mode, load.rate) {
        (OpenMode::Burst, _) => "all requested at the same time".to_owned(),
        (OpenMode::Paced, Some(rate)) => format!("{rate} requested per second"),
        (OpenMode::Paced, None) => "requested at a steady rate".to_owned(),
    };
    let open = match load.negotiation {
        Negotiation::V1 => "open once the peer confirmed the protocol (v1)",
        Negotiation::V1Lazy => "open before the peer answered (v1lazy): not comparable with v1",
    };
    format!("{mode}; {open}")
}

/// What the times count from.
fn clock(cells: &[&Cell]) -> &'static str {
    let paced = cells
        .iter()
        .any(|cell| matches!(&cell.parameters, Parameters::Substreams(load) if load.rate.is_some()));
    if paced {
        "each from its own request"
    } else {
        "from before the first request"
    }
}

/// The published shape: counts down, pairs of stacks across.
fn means(index: &ResultsIndex<'_>, cells: &[&Cell], caption: &str) -> Table {
    let mut grid = Grid::new(cells);
    let paths = distinct(grid.lines.iter().map(|line| line.0));
    grid.lines
        .sort_by_key(|line| paths.iter().position(|path| *path == line.0));
    let mut notes = Notes::default();
    let rows = grid.lines.iter().map(|&(path, parameters)| {
        let count = parameters.streams();
        let values = grid.stack_pairs.iter().map(|&pair| {
            let cell = index.cell(pair, path, parameters);
            cell.and_then(|cell| index.value(&mut notes, cell, Metric::OpenMean))
                .unwrap_or_else(|| index.missing(pair, path, parameters))
        });
        [path.to_string().into(), count.to_string().into()]
            .into_iter()
            .chain(values)
            .collect()
    });
    Table {
        has_pairs_across: true,
        ..Table::new(Kind::Main, &["Transport", "Substreams"], grid.names(), rows)
    }
    .called(
        "Mean time to open a substream",
        format!("{caption}; {}", clock(cells)),
    )
    .with_footnotes(notes)
    .with_rows_where_any(table::Field::is_planned)
}

fn details(index: &ResultsIndex<'_>, cells: &[&Cell], caption: &str) -> Table {
    let key = |cell: &Cell| key_fields(cell, cell.parameters.streams().to_string());
    let columns = [
        ("p50", Metric::OpenP50),
        ("p90", Metric::OpenP90),
        ("p99", Metric::OpenP99),
        ("Max", Metric::OpenMax),
        ("Mean\n(compat)", Metric::OpenMeanCompat),
        ("Opens", Metric::OpensPerSecond),
        ("CPU\nper open", Metric::CpuSecondsPerOperation),
        FAILURES,
    ];
    let caption = format!("{caption}; compat: from after the last request, as the published tools count");
    detail(index, cells, &["Transport", "Count", "Stacks"], key, &columns)
        .called("Substreams in detail", caption)
}
