//! Messages: how many per second, how long each takes, and what it costs.

use perfrun_contract::{
    parameters::{Amount, Messages, Parameters},
    plan::Cell,
    record::Metric,
    units::Unit,
    workload::MessageMode,
};

use super::source::{Column, Grid, Notes, Pair, Source, detail};
use crate::{
    path::Path,
    table::{self, Kind, Table},
    units,
};

pub(super) fn tables(source: &Source<'_>) -> Vec<Table> {
    let cells = source.plan().cells.iter();
    let cells: Vec<&Cell> = cells.filter(|cell| load(&cell.parameters).is_some()).collect();
    let (one_way, acknowledged): (Vec<&Cell>, Vec<&Cell>) =
        cells.iter().partition(|cell| cell.parameters.is_in_process());
    let both = [
        table(
            source,
            &acknowledged,
            "Messages with acknowledgements",
            &ROUND_TRIP,
        ),
        table(source, &one_way, "Messages in one process", &ONE_WAY),
    ];
    both.into_iter().flatten().chain(shares(source, &cells)).collect()
}

/// Columns of times, with names that tell them from those of the other table.
type Times = [(&'static str, Metric); 2];

const ROUND_TRIP: Times = [
    ("Round trip\np50", Metric::RoundTripP50),
    ("Round trip\np99", Metric::RoundTripP99),
];
const ONE_WAY: Times = [
    ("One way\np50", Metric::OneWayP50),
    ("One way\np99", Metric::OneWayP99),
];

/// A row for each cell. `None` without cells.
fn table(source: &Source<'_>, cells: &[&Cell], title: &str, times: &Times) -> Option<Table> {
    let amount = load(&cells.first()?.parameters)?.amount;
    let caption = format!("{}; {}", sent(amount), method(cells));
    let key = |cell: &Cell| {
        let [mode, size] = keys(&cell.parameters);
        let (path, pair) = (Path::of(cell).to_string(), Pair::of(cell).header());
        vec![path.into(), mode, size, pair.into()]
    };
    let column = |name, metric| Column { name, metric };
    let [p50, p99] = times.map(|(name, metric)| column(name, metric));
    let columns = [
        column("Messages", Metric::MessagesPerSecond),
        column("Goodput", Metric::UploadGoodput),
        p50,
        p99,
        column("CPU per\nmessage", Metric::CpuSecondsPerMessage),
        column("Failures", Metric::Failures),
    ];
    Some(Table {
        title: title.to_owned(),
        caption,
        ..detail(
            source,
            cells,
            &["Transport", "Mode", "Size", "Pair"],
            key,
            &columns,
        )
    })
}

/// What a document sets once for all cells.
fn sent(amount: Amount) -> String {
    match amount {
        Amount::Count(1) => "1 message of each peer in each trial".to_owned(),
        Amount::Count(count) => format!("{count} messages of each peer in each trial"),
        Amount::Seconds(seconds) => format!(
            "each peer sends for {} in each trial",
            units::text(Unit::Seconds, seconds)
        ),
    }
}

/// How these cells measure.
fn method(cells: &[&Cell]) -> String {
    let of = |mode| {
        let loads = || cells.iter().filter_map(|cell| load(&cell.parameters));
        loads().find(|load| load.mode == mode)
    };
    let serial = of(MessageMode::Serial).map(|_| {
        "serial: one message at a time, both peers in one process: one way is from sending a message until the peer \
         had it, and CPU is that of both peers"
            .to_owned()
    });
    let serial_ack =
        of(MessageMode::SerialAck).map(|_| "serialAck: one message at a time, each acknowledged".to_owned());
    let stream = of(MessageMode::Stream).map(|load| {
        let timed = match load.acknowledged_each() {
            1 => "of every message".to_owned(),
            each => format!("of one message in {each}, which an acknowledgement names"),
        };
        format!("stream: {} in flight, round trips {timed}", load.window)
    });
    let modes: Vec<String> = [serial, serial_ack, stream].into_iter().flatten().collect();
    modes.join("; ")
}

/// Rates as shares of the baseline's, with a column for each pair. `None` without a baseline.
fn shares(source: &Source<'_>, cells: &[&Cell]) -> Option<Table> {
    let measured: Vec<&Cell> = cells.iter().copied().filter(|cell| !cell.is_raw()).collect();
    let grid = Grid::new(&measured);
    let mut notes = Notes::default();
    let rows = grid.lines.iter().map(|&(path, parameters)| {
        let values = grid.pairs.iter().map(|&pair| {
            let share = source
                .cell(pair, path, parameters)
                .and_then(|cell| source.share(&mut notes, cell, Metric::MessagesPerSecond));
            share.unwrap_or_else(|| source.missing(pair, path, parameters))
        });
        let [mode, size] = keys(parameters);
        let keys = [mode, size, path.to_string().into()];
        keys.into_iter().chain(values).collect()
    });
    let rows = rows.collect();
    let table = Table {
        title: "Share of raw".to_owned(),
        caption: "median messages per second as a share of that of raw over the same kind of transport"
            .to_owned(),
        keys: 3,
        header: grid.header(&["Mode", "Size", "Transport"]),
        rows,
        footnotes: notes.into_footnotes(),
        kind: Kind::Companion,
    };
    let table = table.with_rows_where_any(table::Cell::is_value);
    (!table.rows.is_empty()).then_some(table)
}

/// Mode and size.
fn keys(parameters: &Parameters) -> [table::Cell; 2] {
    load(parameters).map_or_else(Default::default, |load| {
        [
            load.mode.to_string().into(),
            units::size(load.message_bytes.0).into(),
        ]
    })
}

fn load(parameters: &Parameters) -> Option<&Messages> {
    match parameters {
        Parameters::Messages(load) => Some(load),
        _ => None,
    }
}
