//! Bandwidth in the shape of the published tables: operation and size down, pairs of stacks across.

use perfrun_contract::{
    matrix::Negotiation,
    metric::Metric,
    parameters::{Amount, Bandwidth, Parameters},
    plan::{Cell, StackPair},
    workload::{Direction, Timing},
};

use super::{Grid, Notes, ResultsIndex, header};
use crate::{
    order::{distinct, grouped},
    path::Path,
    table::{self, Kind, NOTHING, Table},
    units,
};

pub(super) fn tables(index: &ResultsIndex<'_>) -> Vec<Table> {
    let cells = index.cells(|parameters| matches!(parameters, Parameters::Bandwidth(_)));
    let groups = grouped(cells.into_iter().map(|cell| (caption(&cell.parameters), cell)));
    let tables = |(caption, cells): &(String, Vec<&Cell>)| group_tables(index, cells, caption);
    groups.iter().flat_map(tables).collect()
}

/// What a document sets once for all cells.
fn caption(parameters: &Parameters) -> String {
    let Parameters::Bandwidth(Bandwidth {
        protocol,
        chunk_bytes,
        timing,
        negotiation,
        ..
    }) = parameters
    else {
        return String::new();
    };
    let lazy = if *negotiation == Negotiation::V1Lazy {
        ", negotiated by v1lazy"
    } else {
        ""
    };
    format!(
        "{protocol}, {timing} timing, {} chunks{lazy}",
        units::size(chunk_bytes.0),
        protocol = protocol.as_ref()
    )
}

fn group_tables(index: &ResultsIndex<'_>, cells: &[&Cell], caption: &str) -> Vec<Table> {
    let grid = Grid::new(cells);
    let layout = Layout::new(&grid);
    let value = |notes: &mut Notes, cell: &Cell, line: &Line<'_>| {
        let goodput = index.value(notes, cell, line.goodput);
        goodput.or_else(|| index.value(notes, cell, line.seconds))
    };
    // The published tools print a rate for every size, and so does `compat`.
    let times = grid
        .lines
        .iter()
        .any(|line| is_small(line.1) && is_strict(line.1));
    let explained = if times {
        format!("{caption}; below 1 MiB a rate says little, so the time")
    } else {
        caption.to_owned()
    };
    let main = layout.table(index, "Goodput", &explained, &layout.operations, value);
    // The main table also says what was skipped or failed; the others have nothing to add to that.
    let main = Table {
        kind: Kind::Main,
        ..main.with_rows_where_any(table::Field::is_planned)
    };
    let shares = layout.without_raw().table(
        index,
        "Share of raw",
        &format!("goodput as a share of that of raw over the same kind of transport in the same iteration; {caption}"),
        &layout.operations,
        |notes, cell, line| index.share(notes, cell, line.goodput),
    );
    let cpu = layout.table(
        index,
        "CPU per GiB",
        "user and system time of all nodes together, for each GiB of payload",
        &layout.transfers,
        |notes, cell, _| index.value(notes, cell, Metric::CpuSecondsPerGiB),
    );
    let rss = layout.table(
        index,
        "Peak RSS",
        "most resident memory, client / server; one value, where both are one process",
        &layout.transfers,
        |notes, cell, _| index.both(notes, cell, [Metric::ClientPeakRss, Metric::ServerPeakRss]),
    );
    let allocated = layout.table(
        index,
        "Allocated memory",
        "most memory that the program had allocated, client / server; one value, where both are one process",
        &layout.transfers,
        |notes, cell, _| {
            let metrics = [Metric::ClientPeakAllocated, Metric::ServerPeakAllocated];
            index.both(notes, cell, metrics)
        },
    );
    let cycles = layout.table(
        index,
        "CPU cycles per byte",
        "cycles in user mode of all nodes together, for each byte of payload",
        &layout.transfers,
        |notes, cell, _| index.value(notes, cell, Metric::CpuCyclesPerByte),
    );
    let companions =
        [shares, cpu, cycles, rss, allocated].map(|table| table.with_rows_where_any(table::Field::is_value));
    let companions = companions.into_iter().filter(|table| !table.rows.is_empty());
    [main]
        .into_iter()
        .chain(latency(index, &grid, caption))
        .chain(companions)
        .collect()
}

/// One row of a table.
#[derive(Clone)]
struct Line<'a> {
    operation: String,
    path: Path<'a>,
    parameters: &'a Parameters,
    goodput: Metric,
    seconds: Metric,
}

/// Rows and columns that the tables of a group share.
struct Layout<'a> {
    stack_pairs: Vec<StackPair<'a>>,
    /// A line for each operation: `both` is an upload and a download.
    operations: Vec<Line<'a>>,
    /// A line for each cell, for what is measured once in it.
    transfers: Vec<Line<'a>>,
    has_streams: bool,
    amount: &'static str,
}

impl<'a> Layout<'a> {
    fn new(grid: &Grid<'a>) -> Self {
        let direction = |parameters: &Parameters| {
            let transfer = parameters.transfer();
            transfer.map_or(Direction::Upload, |(direction, ..)| direction)
        };
        let (mut operations, mut transfers) = (vec![], vec![]);
        let mixed = grid.lines.iter().any(|line| direction(line.1) != Direction::Both);
        for &(path, parameters) in &grid.lines {
            let line = |operation: &str, goodput, seconds| Line {
                operation: operation.to_owned(),
                path,
                parameters,
                goodput,
                seconds,
            };
            let up = |name: &str| line(name, Metric::UploadGoodput, Metric::UploadSeconds);
            let down = |name: &str| line(name, Metric::DownloadGoodput, Metric::DownloadSeconds);
            match direction(parameters) {
                Direction::Upload => {
                    operations.push(up("upload"));
                    transfers.push(up("upload"));
                }
                Direction::Download => {
                    operations.push(down("download"));
                    transfers.push(down("download"));
                }
                Direction::Both => {
                    let name = |name: &str| {
                        if mixed {
                            format!("both: {name}")
                        } else {
                            name.to_owned()
                        }
                    };
                    operations.push(up(&name("upload")));
                    operations.push(down(&name("download")));
                    transfers.push(up("both"));
                }
            }
        }
        // All uploads, then all downloads, as in the published tables.
        let names = distinct(operations.iter().map(|line: &Line<'_>| line.operation.clone()));
        operations.sort_by_key(|line: &Line<'_>| names.iter().position(|name| *name == line.operation));
        let timed = |p: &Parameters| matches!(p.transfer(), Some((_, Amount::Seconds(_), _)));
        Self {
            stack_pairs: grid.stack_pairs.clone(),
            operations,
            transfers,
            has_streams: grid.lines.iter().any(|line| line.1.streams() > 1),
            amount: if grid.lines.iter().any(|line| timed(line.1)) {
                "Duration"
            } else {
                "Size"
            },
        }
    }

    fn without_raw(&self) -> Self {
        let stack_pairs = self
            .stack_pairs
            .iter()
            .copied()
            .filter(|pair| !pair.is_raw)
            .collect();
        Self {
            stack_pairs,
            operations: vec![],
            transfers: vec![],
            ..*self
        }
    }

    fn table(
        &self,
        index: &ResultsIndex<'_>,
        title: &str,
        caption: &str,
        lines: &[Line<'_>],
        value: impl Fn(&mut Notes, &Cell, &Line<'_>) -> Option<table::Field>,
    ) -> Table {
        let mut notes = Notes::default();
        let mut keys = vec!["Operation", self.amount];
        keys.extend(self.has_streams.then_some("Streams"));
        keys.push("Transport");
        let rows = lines.iter().map(|line| {
            let values = self.stack_pairs.iter().map(|&pair| {
                let cell = index.cell(pair, line.path, line.parameters);
                cell.and_then(|cell| value(&mut notes, cell, line))
                    .unwrap_or_else(|| {
                        let measured = cell.is_some_and(|cell| index.row(cell, line.seconds).is_some());
                        let missing = || index.missing(pair, line.path, line.parameters);
                        if measured { NOTHING.into() } else { missing() }
                    })
            });
            self.keys(line).into_iter().chain(values).collect()
        });
        let names = self.stack_pairs.iter().map(|pair| header(*pair));
        Table {
            has_pairs_across: true,
            ..Table::new(Kind::Companion, &keys, names, rows)
        }
        .called(title, caption)
        .with_footnotes(notes)
    }

    fn keys(&self, line: &Line<'_>) -> Vec<table::Field> {
        let Some((_, amount, streams)) = line.parameters.transfer() else {
            return vec![];
        };
        let mut keys: Vec<table::Field> = vec![line.operation.as_str().into(), amount_text(amount).into()];
        keys.extend(self.has_streams.then(|| streams.to_string().into()));
        keys.push(line.path.to_string().into());
        keys
    }
}

fn amount_text(amount: Amount) -> String {
    match amount {
        Amount::Count(bytes) => units::size(bytes),
        Amount::Seconds(seconds) => format!("{seconds} s"),
    }
}

fn is_strict(parameters: &Parameters) -> bool {
    matches!(
        parameters,
        Parameters::Bandwidth(Bandwidth {
            timing: Timing::Strict,
            ..
        })
    )
}

fn is_small(parameters: &Parameters) -> bool {
    let least = perfrun_contract::node::BYTES_FOR_A_RATE_MIN;
    matches!(parameters.transfer(), Some((_, Amount::Count(bytes), streams))
        if bytes.saturating_mul(streams.into()) < least)
}

/// A transfer of next to nothing both ways is the latency test of libp2p's perf: dial, then one round trip.
fn latency(index: &ResultsIndex<'_>, grid: &Grid<'_>, caption: &str) -> Option<Table> {
    let mut notes = Notes::default();
    let mut rows = vec![];
    let is_latency =
        |p: &Parameters| matches!(p.transfer(), Some((Direction::Both, Amount::Count(..1024), _)));
    for &(path, parameters) in grid.lines.iter().filter(|line| is_latency(line.1)) {
        let Some((_, amount, _)) = parameters.transfer() else {
            continue;
        };
        for (name, metric) in [
            ("connect", Metric::ConnectSeconds),
            ("total", Metric::TotalSeconds),
        ] {
            let values: Vec<Option<table::Field>> = grid
                .stack_pairs
                .iter()
                .map(|&pair| {
                    let cell = index.cell(pair, path, parameters)?;
                    index.value(&mut notes, cell, metric)
                })
                .collect();
            if values.iter().any(Option::is_some) {
                let keys = [name.into(), amount_text(amount).into(), path.to_string().into()];
                rows.push(
                    keys.into_iter()
                        .chain(values.into_iter().map(Option::unwrap_or_default))
                        .collect(),
                );
            }
        }
    }
    let caption = format!("{caption}; from the dial until connected, and until the exchange was complete");
    Table {
        has_pairs_across: true,
        ..Table::new(Kind::Main, &["Until", "Size", "Transport"], grid.names(), rows)
    }
    .called("Latency", caption)
    .with_footnotes(notes)
    .unless_empty()
}
