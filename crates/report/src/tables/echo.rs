//! Paced echo: our own figures, and the published ones.

use perfrun_contract::{
    matrix::Transport,
    metric::Metric,
    parameters::{Echo, Pace, Parameters},
    plan::Cell,
    units::Unit,
};

use super::source::{Column, Notes, Pair, Ratios, Source, detail, push_new};
use crate::{
    path::Path,
    published::{self, Row},
    table::{self, Kind, NOTHING, Table},
    units::{self, Scale},
};

pub(super) fn tables(source: &Source<'_>) -> Vec<Table> {
    let cells: Vec<(&Cell, &Echo)> = source
        .plan()
        .cells
        .iter()
        .filter_map(|cell| match &cell.parameters {
            Parameters::Echo(load) => Some((cell, load)),
            _ => None,
        })
        .collect();
    let Some((_, load)) = cells.first() else {
        return vec![];
    };
    let all: Vec<&Cell> = cells.iter().map(|(cell, _)| *cell).collect();
    let mut tables = vec![own(source, &all, load)];
    tables.extend(
        OTHERS
            .map(|(name, transport)| webrtc_against(source, &all, name, transport))
            .into_iter()
            .flatten(),
    );
    let whole = published_rows(source, &cells, |_, _| true);
    tables.extend(published_table(
        whole,
        "Echo as published: the whole time",
        "minimum / integer mean / maximum over the samples of all measured trials, ramp included",
    ));
    let plateau = published_rows(source, &cells, |load, row| row.active_streams == load.streams());
    tables.extend(published_table(
        plateau,
        "Echo as published: all streams",
        "minimum / integer mean / maximum over the samples with exactly as many active streams as the load has",
    ));
    tables
}

/// What tells cells apart.
fn key(cell: &Cell) -> Vec<table::Cell> {
    let Parameters::Echo(load) = &cell.parameters else {
        return vec![];
    };
    vec![
        Path::of(cell).to_string().into(),
        format!("{} × {}", load.connections, load.streams_per_connection).into(),
        Pair::of(cell).header().into(),
    ]
}

const KEY: [&str; 3] = ["Transport", "Load", "Stacks"];

fn own(source: &Source<'_>, cells: &[&Cell], load: &Echo) -> Table {
    let column = |name, metric| Column { name, metric };
    let columns = [
        column("Achieved", Metric::AchievedShare),
        column("Rate", Metric::RoundTripsPerSecond),
        column("Echoing\nstreams", Metric::EchoingStreams),
        column("p50", Metric::RoundTripP50),
        column("p99", Metric::RoundTripP99),
        column("CPU per\nround trip", Metric::CpuSecondsPerOperation),
        column("Ramp\nlate", Metric::RampLateness),
        column("Failures", Metric::Failures),
    ];
    let seconds = |seconds| units::text(Unit::Seconds, seconds);
    let table = detail(source, cells, &KEY, key, &columns);
    let (when, each, counted) = match load.pace {
        Pace::Pause(_) => ("", "pause", ""),
        Pace::Period(_) => (
            ", at fixed times",
            "period",
            ". The round trip of a late line counts from when it was due, except for what the timer added, at most 2 ms",
        ),
    };
    Table {
        title: "Echo".to_owned(),
        caption: format!(
            "lines of {} every {} on each stream{when}, {} with the ramp. Achieved are the round trips on the plateau, from \
             the end of the ramp on, as a share of one per {each} and stream. Echoing streams are the fewest in any sample \
             of the plateau{counted}",
            units::size(load.message_bytes.0),
            seconds(load.pace.seconds()),
            seconds(load.duration_seconds),
        ),
        ..table
    }
}

/// The transports that the published benchmark compares WebRTC with. Its goal is at most twice the cost of
/// QUIC.
const OTHERS: [(&str, Transport); 2] = [("QUIC", Transport::QuicV1), ("TCP", Transport::Tcp)];

/// What WebRTC costs, where the document has another transport as well.
fn webrtc_against(source: &Source<'_>, cells: &[&Cell], name: &str, transport: Transport) -> Option<Table> {
    let columns = [
        ("CPU per\nround trip", Metric::CpuSecondsPerOperation),
        ("Client\nallocated", Metric::ClientPeakAllocated),
        ("Server\nallocated", Metric::ServerPeakAllocated),
    ];
    let mut notes = Notes::default();
    let ratios = Ratios::new(source);
    let webrtc = cells
        .iter()
        .filter(|cell| cell.transport == Transport::WebrtcDirect);
    let rows: Vec<Vec<table::Cell>> = webrtc
        .filter_map(|cell| {
            let path = Path {
                transport,
                ..Path::of(cell)
            };
            let other = source.cell(Pair::of(cell), path, &cell.parameters)?;
            let shares = columns.map(|(_, metric)| {
                let share = ratios.share(cell, other, metric)?;
                Some(source.share_of(&mut notes, cell, (transport.as_ref(), other), metric, share))
            });
            shares.iter().any(Option::is_some).then(|| {
                let shares = shares.into_iter();
                let shares = shares.map(|share| share.unwrap_or_else(|| NOTHING.into()));
                key(cell).into_iter().chain(shares).collect()
            })
        })
        .collect();
    (!rows.is_empty()).then(|| Table {
        title: format!("WebRTC against {name}"),
        caption: format!(
            "CPU time of both nodes for each round trip, and the most that a node had allocated, as shares of those over \
             {transport} with the same pair and load. With 200 %, WebRTC costs twice as much"
        ),
        keys: KEY.len(),
        header: KEY
            .into_iter()
            .chain(columns.map(|(name, _)| name))
            .map(str::to_owned)
            .collect(),
        rows,
        footnotes: notes.into_footnotes(),
        kind: Kind::Companion,
        ..Table::default()
    })
}

/// A published column: its name, its values and their unit.
type Figure = (&'static str, fn(&Row) -> u64, Unit);

/// Who, and the published columns of its samples.
type Side<'a> = (&'a Cell, &'static str, Vec<Row>);

fn published_rows<'a>(
    source: &Source<'a>,
    cells: &[(&'a Cell, &Echo)],
    counts: impl Fn(&Echo, &Row) -> bool,
) -> Vec<Side<'a>> {
    let mut sides: Vec<Side<'a>> = vec![];
    for series in published::series(source.results) {
        let Some((cell, load)) = cells.iter().find(|(cell, _)| cell.id == series.cell.id) else {
            continue;
        };
        let side = series.side();
        let rows = series.rows.into_iter().filter(|row| counts(load, row));
        match sides.iter_mut().find(|(c, s, _)| c.id == cell.id && *s == side) {
            Some((.., known)) => known.extend(rows),
            None => sides.push((cell, side, rows.collect())),
        }
    }
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
    let mut paths = vec![];
    sides
        .iter()
        .for_each(|(cell, ..)| push_new(&mut paths, Path::of(cell)));
    sides.sort_by_key(|(cell, ..)| paths.iter().position(|path| *path == Path::of(cell)));
    let rows: Vec<Vec<table::Cell>> = sides
        .iter()
        .map(|(cell, side, rows)| {
            let keys = [
                Path::of(cell).to_string().into(),
                Pair::of(cell).header().into(),
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
        })
        .collect();
    (!rows.is_empty()).then(|| Table {
        title: title.to_owned(),
        caption: format!(
            "{caption}. CPU % is of all CPUs, and bytes are of payload in a sample. Allocated is what the program has \
             allocated: by its allocator, which is jemalloc in the published figures, or on Go's heap"
        ),
        keys: 3,
        header: ["Transport", "Stacks", "Load,\nside"]
            .into_iter()
            .chain(columns.iter().map(|column| column.0))
            .map(str::to_owned)
            .collect(),
        rows,
        kind: Kind::Companion,
        ..Table::default()
    })
}
