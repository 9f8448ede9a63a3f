//! Paced echo: our own figures, and the published ones.

use perfrun_contract::{
    matrix::Transport,
    metric::Metric,
    parameters::{Echo, Pace, Parameters},
    plan::Cell,
    units::Unit,
};

use super::{FAILURES, Notes, ResultsIndex, detail, header, key_fields};
use crate::{
    order::{distinct, grouped},
    path::Path,
    published::{self, Row},
    table::{self, Kind, NOTHING, Table},
    units::{self, Scale},
};

pub(super) fn tables(index: &ResultsIndex<'_>) -> Vec<Table> {
    let all = index.cells(|parameters| matches!(parameters, Parameters::Echo(_)));
    let cells: Vec<(&Cell, &Echo)> = all.iter().filter_map(|&cell| Some((cell, load(cell)?))).collect();
    let Some((_, first)) = cells.first() else {
        return vec![];
    };
    let against = OTHERS.map(|(name, transport)| webrtc_against(index, &all, name, transport));
    let mut tables = vec![own(index, &all, first)];
    tables.extend(against.into_iter().flatten());
    let whole = published_rows(index, &cells, |_, _| true);
    tables.extend(published_table(
        whole,
        "Echo as published: the whole time",
        "minimum / integer mean / maximum over the samples of all measured trials, ramp included",
    ));
    let plateau = published_rows(index, &cells, |load, row| row.active_streams == load.streams());
    tables.extend(published_table(
        plateau,
        "Echo as published: all streams",
        "minimum / integer mean / maximum over the samples with exactly as many active streams as the load has",
    ));
    tables
}

fn load(cell: &Cell) -> Option<&Echo> {
    match &cell.parameters {
        Parameters::Echo(load) => Some(load),
        _ => None,
    }
}

/// What tells cells apart.
fn key(cell: &Cell) -> Vec<table::Field> {
    let text = |load: &Echo| format!("{} × {}", load.connections, load.streams_per_connection);
    key_fields(cell, load(cell).map_or_else(String::new, text))
}

const KEY: [&str; 3] = ["Transport", "Load", "Stacks"];

fn own(index: &ResultsIndex<'_>, cells: &[&Cell], load: &Echo) -> Table {
    let columns = [
        ("Achieved", Metric::AchievedShare),
        ("Rate", Metric::RoundTripsPerSecond),
        ("Echoing\nstreams", Metric::EchoingStreams),
        ("p50", Metric::RoundTripP50),
        ("p99", Metric::RoundTripP99),
        ("CPU per\nround trip", Metric::CpuSecondsPerOperation),
        ("Ramp\nlate", Metric::RampLateness),
        FAILURES,
    ];
    let seconds = |seconds| units::text(Unit::Seconds, seconds);
    let (when, each, counted) = match load.pace {
        Pace::Pause(_) => ("", "pause", ""),
        Pace::Period(_) => (
            ", at fixed times",
            "period",
            ". The round trip of a late line counts from when it was due, except for what the timer added, at most 2 ms",
        ),
    };
    let caption = format!(
        "lines of {} every {} on each stream{when}, {} with the ramp. Achieved are the round trips on the plateau, from \
         the end of the ramp on, as a share of one per {each} and stream. Echoing streams are the fewest in any sample \
         of the plateau{counted}",
        units::size(load.message_bytes.0),
        seconds(load.pace.seconds()),
        seconds(load.duration_seconds),
    );
    detail(index, cells, &KEY, key, &columns).called("Echo", caption)
}

/// The transports that the published benchmark compares WebRTC with. Its goal is at most twice the cost of
/// QUIC.
const OTHERS: [(&str, Transport); 2] = [("QUIC", Transport::QuicV1), ("TCP", Transport::Tcp)];

/// What WebRTC costs, where the document has another transport as well.
fn webrtc_against(
    index: &ResultsIndex<'_>,
    cells: &[&Cell],
    name: &str,
    transport: Transport,
) -> Option<Table> {
    let columns = [
        ("CPU per\nround trip", Metric::CpuSecondsPerOperation),
        ("Client\nallocated", Metric::ClientPeakAllocated),
        ("Server\nallocated", Metric::ServerPeakAllocated),
    ];
    let mut notes = Notes::default();
    let webrtc = cells
        .iter()
        .filter(|cell| cell.transport == Transport::WebrtcDirect);
    let rows = webrtc.filter_map(|cell| {
        let path = Path {
            transport,
            ..Path::of(cell)
        };
        let other = index.cell(cell.stack_pair(), path, &cell.parameters)?;
        let shares = columns.map(|(_, metric)| {
            let share = index.ratio(cell, other, metric)?;
            Some(index.share_of(&mut notes, cell, (transport.as_ref(), other), metric, share))
        });
        shares.iter().any(Option::is_some).then(|| {
            let shares = shares.into_iter();
            let shares = shares.map(|share| share.unwrap_or_else(|| NOTHING.into()));
            key(cell).into_iter().chain(shares).collect()
        })
    });
    let caption = format!(
        "CPU time of both nodes for each round trip, and the most that a node had allocated, as shares of those over \
         {transport} with the same pair and load. With 200 %, WebRTC costs twice as much"
    );
    Table::new(Kind::Companion, &KEY, columns.map(|(name, _)| name), rows)
        .called(format!("WebRTC against {name}"), caption)
        .with_footnotes(notes)
        .unless_empty()
}

/// A published column: its name, its values and their unit.
type Figure = (&'static str, fn(&Row) -> u64, Unit);

/// A cell, the published word for the side, and the published rows of the samples.
type Side<'a> = (&'a Cell, &'static str, Vec<Row>);

fn published_rows<'a>(
    index: &ResultsIndex<'a>,
    cells: &[(&'a Cell, &Echo)],
    counts: impl Fn(&Echo, &Row) -> bool,
) -> Vec<Side<'a>> {
    let sides = published::node_samples(index.results).filter_map(|samples| {
        let (cell, load) = cells.iter().find(|(cell, _)| cell.id == samples.cell.id)?;
        let side = samples.side();
        let rows = samples.rows.into_iter().filter(|row| counts(load, row));
        Some(((*cell, side), rows.collect::<Vec<Row>>()))
    });
    let sides = grouped(sides).into_iter();
    let mut sides: Vec<Side<'a>> = sides
        .map(|((cell, side), rows)| (cell, side, rows.concat()))
        .collect();
    sides.retain(|(.., rows)| !rows.is_empty());
    sides
}

fn published_table(mut sides: Vec<Side<'_>>, title: &str, caption: &str) -> Option<Table> {
    let columns: [Figure; 5] = [
        ("Active\nstreams", |row| row.active_streams, Unit::Count),
        ("CPU %", |row| row.cpu_percent, Unit::Count),
        ("Allocated", |row| row.heap_bytes, Unit::Bytes),
        ("Bytes\nread", |row| row.bytes_read, Unit::Bytes),
        ("Bytes\nwritten", |row| row.bytes_written, Unit::Bytes),
    ];
    let paths = distinct(sides.iter().map(|(cell, ..)| Path::of(cell)));
    sides.sort_by_key(|(cell, ..)| paths.iter().position(|path| *path == Path::of(cell)));
    let rows = sides.iter().map(|(cell, side, rows)| {
        let keys = [
            Path::of(cell).to_string().into(),
            header(cell.stack_pair()).into(),
            format!("{}\n{side}", cell.parameters).into(),
        ];
        let values = columns.iter().map(|(_, of, unit)| {
            let [least, mean, most] = published::spread(rows.iter().map(of));
            // All in the unit of the largest.
            let scale = Scale::of(*unit, most as f64);
            let text = |value: u64| match unit {
                Unit::Count => value.to_string(),
                _ => scale.number(value as f64),
            };
            let text = format!("{} /\n{} /\n{}", text(least), text(mean), text(most));
            format!("{text} {}", scale.name).trim_end().into()
        });
        keys.into_iter().chain(values).collect()
    });
    let caption = format!(
        "{caption}. CPU % is of all CPUs, and bytes are of payload in a sample. Allocated is what the program has \
         allocated: by its allocator, which is jemalloc in the published figures, or on Go's heap"
    );
    let names = columns.iter().map(|column| column.0);
    Table::new(
        Kind::Companion,
        &["Transport", "Stacks", "Load,\nside"],
        names,
        rows,
    )
    .called(title, caption)
    .unless_empty()
}
