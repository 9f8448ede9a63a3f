//! Opening of substreams.

use perfrun_contract::{
    matrix::Negotiation, metric::Metric, parameters::Parameters, plan::Cell, workload::OpenMode,
};

use super::source::{Column, Grid, Notes, Pair, Source, Style, detail, push_new};
use crate::{
    path::Path,
    table::{self, Kind, Table},
};

pub(super) fn tables(source: &Source<'_>) -> Vec<Table> {
    let cells: Vec<&Cell> = source
        .plan()
        .cells
        .iter()
        .filter(|c| matches!(c.parameters, Parameters::Substreams(_)))
        .collect();
    let mut groups: Vec<String> = vec![];
    cells
        .iter()
        .for_each(|cell| push_new(&mut groups, caption(&cell.parameters)));
    let of = |group: &String| {
        cells
            .iter()
            .copied()
            .filter(|c| caption(&c.parameters) == *group)
            .collect::<Vec<_>>()
    };
    groups
        .iter()
        .flat_map(|group| {
            [
                means(source, &of(group), group),
                details(source, &of(group), group),
            ]
        })
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

/// The published shape: counts down, pairs across.
fn means(source: &Source<'_>, cells: &[&Cell], caption: &str) -> Table {
    let caption = format!("{caption}; {}", clock(cells));
    let mut grid = Grid::new(cells);
    let paths: Vec<Path<'_>> = grid.lines.iter().map(|line| line.0).collect();
    grid.lines
        .sort_by_key(|line| paths.iter().position(|path| *path == line.0));
    let mut notes = Notes::default();
    let rows = grid.lines.iter().map(|&(path, parameters)| {
        let count = parameters.streams();
        let values = grid.pairs.iter().map(|&pair| {
            let cell = source.cell(pair, path, parameters);
            cell.and_then(|cell| source.value(&mut notes, cell, Metric::OpenMean, Style::Scaled))
                .unwrap_or_else(|| source.missing(pair, path, parameters))
        });
        [path.to_string().into(), count.to_string().into()]
            .into_iter()
            .chain(values)
            .collect()
    });
    let rows = rows.collect();
    Table {
        title: "Mean time to open a substream".to_owned(),
        caption,
        keys: 2,
        header: grid.header(&["Transport", "Substreams"]),
        rows,
        footnotes: notes.into_footnotes(),
        kind: Kind::Main,
        has_pairs_across: true,
    }
    .with_rows_where_any(table::Cell::is_planned)
}

fn details(source: &Source<'_>, cells: &[&Cell], caption: &str) -> Table {
    let key = |cell: &Cell| {
        vec![
            Path::of(cell).to_string().into(),
            cell.parameters.streams().to_string().into(),
            Pair::of(cell).header().into(),
        ]
    };
    let columns = [
        Column {
            name: "p50",
            metric: Metric::OpenP50,
        },
        Column {
            name: "p90",
            metric: Metric::OpenP90,
        },
        Column {
            name: "p99",
            metric: Metric::OpenP99,
        },
        Column {
            name: "Max",
            metric: Metric::OpenMax,
        },
        Column {
            name: "Mean\n(compat)",
            metric: Metric::OpenMeanCompat,
        },
        Column {
            name: "Opens",
            metric: Metric::OpensPerSecond,
        },
        Column {
            name: "CPU\nper open",
            metric: Metric::CpuSecondsPerOperation,
        },
        Column {
            name: "Failures",
            metric: Metric::Failures,
        },
    ];
    let table = detail(source, cells, &["Transport", "Count", "Stacks"], key, &columns);
    Table {
        title: "Substreams in detail".to_owned(),
        caption: format!("{caption}; compat: from after the last request, as the published tools count"),
        ..table
    }
}
