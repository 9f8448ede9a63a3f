//! Messages: how many per second, how long each takes, and what it costs.

use perfrun_contract::{
    metric::Metric,
    parameters::{Amount, Messages, Parameters},
    plan::Cell,
    units::Unit,
    workload::MessageMode,
};

use super::{Column, FAILURES, Grid, Notes, ResultsIndex, detail, header};
use crate::{
    path::Path,
    table::{self, Kind, Table},
    units,
};

pub(super) fn tables(index: &ResultsIndex<'_>) -> Vec<Table> {
    let cells = index.cells(|parameters| parameters.messages().is_some());
    let [mut acknowledged, mut in_process, mut broadcast] = [vec![], vec![], vec![]];
    for cell in &cells {
        match cell.parameters.messages().map(|load| load.mode) {
            Some(MessageMode::Serial) => in_process.push(*cell),
            Some(MessageMode::Broadcast) => broadcast.push(*cell),
            Some(MessageMode::SerialAck | MessageMode::Stream) | None => acknowledged.push(*cell),
        }
    }
    let tables = [
        table(
            index,
            &acknowledged,
            "Messages with acknowledgements",
            &ACKNOWLEDGED,
        ),
        table(index, &in_process, "Messages in one process", &IN_PROCESS),
        table(index, &broadcast, "Messages to all", &BROADCAST),
    ];
    tables
        .into_iter()
        .flatten()
        .chain(shares(index, &cells))
        .collect()
}

const ACKNOWLEDGED: [Column; 7] = [
    ("Messages", Metric::MessagesPerSecond),
    ("Goodput", Metric::UploadGoodput),
    ("Round trip\np50", Metric::RoundTripP50),
    ("Round trip\np99", Metric::RoundTripP99),
    ("One way\np50", Metric::OneWayP50),
    CPU,
    FAILURES,
];
const IN_PROCESS: [Column; 6] = [
    ("Messages", Metric::MessagesPerSecond),
    ("Goodput", Metric::UploadGoodput),
    ("One way\np50", Metric::OneWayP50),
    ("One way\np99", Metric::OneWayP99),
    CPU,
    FAILURES,
];
const BROADCAST: [Column; 8] = [
    ("Delivered", Metric::MessagesPerSecond),
    ("Share\ndelivered", Metric::DeliveryRatio),
    ("Lost", Metric::MessagesLost),
    ("Refused", Metric::Refused),
    ("Propagation\np50", Metric::OneWayP50),
    ("Propagation\np99", Metric::OneWayP99),
    CPU,
    FAILURES,
];
const CPU: Column = ("CPU per\nmessage", Metric::CpuSecondsPerMessage);

/// A row for each cell. `None` without cells.
fn table(index: &ResultsIndex<'_>, cells: &[&Cell], title: &str, columns: &[Column]) -> Option<Table> {
    let first = cells.first()?.parameters.messages()?;
    let caption = format!("{}. {}", sent(first), method(cells));
    let key = |cell: &Cell| {
        let [mode, size] = keys(&cell.parameters);
        let (path, pair) = (Path::of(cell).to_string(), header(cell.stack_pair()));
        vec![path.into(), mode, size, pair.into()]
    };
    let names = ["Transport", "Mode", "Size", "Stacks"];
    Some(detail(index, cells, &names, key, columns).called(title, caption))
}

/// What a document sets once for all cells.
fn sent(load: &Messages) -> String {
    let amount = match load.amount {
        Amount::Count(1) => "1 message of each peer in each trial".to_owned(),
        Amount::Count(count) => format!("{count} messages of each peer in each trial"),
        Amount::Seconds(seconds) => format!(
            "each peer sends for {} in each trial",
            units::text(Unit::Seconds, seconds)
        ),
    };
    let rate = load.rate.map(|rate| {
        format!(", {rate} per second, and times count from the moment at which a message is due")
    });
    let priority = if load.priority { ", with priority" } else { "" };
    amount + &rate.unwrap_or_default() + priority
}

/// How these cells measure.
fn method(cells: &[&Cell]) -> String {
    let of = |mode| {
        let loads = || cells.iter().filter_map(|cell| cell.parameters.messages());
        loads().find(|load| load.mode == mode)
    };
    let serial = of(MessageMode::Serial).map(|_| {
        "Mode serial sends one message at a time, with both peers in one process. One way is from sending a message \
         until the peer had it, and CPU is that of both peers"
            .to_owned()
    });
    let serial_ack = of(MessageMode::SerialAck)
        .map(|_| "Mode serialAck sends one message at a time, each acknowledged".to_owned());
    let stream = of(MessageMode::Stream).map(|load| {
        let timed = match load.acknowledged_each() {
            1 => "every message".to_owned(),
            each => format!("one message in {each}, which an acknowledgement names"),
        };
        format!(
            "Mode stream has {} messages in flight, and its round trips are of {timed}",
            load.window
        )
    });
    let broadcast = of(MessageMode::Broadcast).map(|load| {
        format!(
            "Mode broadcast sends each message to {} server{}. Values are of all receivers together; propagation is \
             from sending a message until a receiver had it",
            load.receivers,
            if load.receivers == 1 { "" } else { "s" }
        )
    });
    let modes = [serial, serial_ack, stream, broadcast];
    let modes: Vec<String> = modes.into_iter().flatten().collect();
    modes.join(". ")
}

/// Rates as shares of those of the raw reference, with a column for each pair. `None` without that.
fn shares(index: &ResultsIndex<'_>, cells: &[&Cell]) -> Option<Table> {
    let measured: Vec<&Cell> = cells.iter().copied().filter(|cell| !cell.is_raw()).collect();
    let grid = Grid::new(&measured);
    let mut notes = Notes::default();
    let rows = grid.lines.iter().map(|&(path, parameters)| {
        let values = grid.stack_pairs.iter().map(|&pair| {
            let share = index
                .cell(pair, path, parameters)
                .and_then(|cell| index.share(&mut notes, cell, Metric::MessagesPerSecond));
            share.unwrap_or_else(|| index.missing(pair, path, parameters))
        });
        let [mode, size] = keys(parameters);
        let keys = [mode, size, path.to_string().into()];
        keys.into_iter().chain(values).collect()
    });
    Table::new(Kind::Companion, &["Mode", "Size", "Transport"], grid.names(), rows)
        .called(
            "Share of raw",
            "messages per second as a share of those of raw over the same kind of transport in the same iteration",
        )
        .with_footnotes(notes)
        .with_rows_where_any(table::Field::is_value)
        .unless_empty()
}

/// Mode and size.
fn keys(parameters: &Parameters) -> [table::Field; 2] {
    parameters.messages().map_or_else(Default::default, |load| {
        [
            load.mode.to_string().into(),
            units::size(load.message_bytes.0).into(),
        ]
    })
}
