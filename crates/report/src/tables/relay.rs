//! Transfers through a relay beside those without one, what the relay cost, and how much it can carry.

use std::collections::BTreeMap;

use perfrun_contract::{
    metric::Metric,
    parameters::Parameters,
    plan::{Cell, StackPair},
    role::Role,
    workload::RelayPath,
};

use super::{FAILURES, Notes, ResultsIndex, detail, header};
use crate::{
    order::grouped,
    path::Path,
    table::{self, Kind, NOTHING, Table},
    units,
};

pub(super) fn tables(index: &ResultsIndex<'_>) -> Vec<Table> {
    let transfers = index.cells(|parameters| matches!(parameters, Parameters::Relay(_)));
    let levels = levels(index);
    let mut tables = vec![];
    if !transfers.is_empty() {
        tables.push(times(index, &transfers));
        tables.extend(relays(index, &transfers));
    }
    if !levels.is_empty() {
        tables.push(stress(index, &levels));
        tables.extend(refusals(index, &levels));
    }
    tables
}

/// The cells of stress tests.
fn levels<'a>(index: &ResultsIndex<'a>) -> Vec<&'a Cell> {
    index.cells(|parameters| parameters.sinks_and_sources().is_some())
}

/// The key fields of a transfer: its path, its stacks, whether it goes through a relay, and its size.
fn transfer_key(cell: &Cell) -> Vec<table::Field> {
    let Parameters::Relay(load) = &cell.parameters else {
        return vec![];
    };
    let path = match (load.path, cell.is_raw()) {
        (RelayPath::Direct, _) => "direct",
        (RelayPath::Relayed, false) => "relay",
        (RelayPath::Relayed, true) => "proxy",
    };
    vec![
        Path::of(cell).to_string().into(),
        header(cell.stack_pair()).into(),
        path.into(),
        units::size(load.bytes).into(),
    ]
}

const TRANSFER_KEY: [&str; 4] = ["Transport", "Stacks", "Path", "Size"];

fn times(index: &ResultsIndex<'_>, cells: &[&Cell]) -> Table {
    let columns = [
        ("Relay\nconn.", Metric::RelayConnectSeconds),
        ("Reserv.", Metric::ReservationSeconds),
        ("Connect", Metric::ConnectSeconds),
        ("Open", Metric::OpenP50),
        ("1st\nbyte", Metric::FirstByteP50),
        ("Transfer", Metric::DownloadSeconds),
        ("Goodput", Metric::DownloadGoodput),
        ("RTT\nrelay", Metric::RelayRoundTripP50),
        ("RTT\nsource", Metric::RoundTripP50),
    ];
    let caption = "from a source (server) to a sink (client). Connections with the relay (Relay conn.) and with the source \
                   (Connect) count from the dial. Open and 1st byte count from the request of the stream, Transfer \
                   from when it is open. RTT are round trips with the relay and with the source";
    Table {
        kind: Kind::Main,
        ..detail(index, cells, &TRANSFER_KEY, transfer_key, &columns).called("Transfers", caption)
    }
}

/// A row for each relayed cell: how it compares with the same without a relay, and what the relay used.
fn relays(index: &ResultsIndex<'_>, cells: &[&Cell]) -> Option<Table> {
    let mut notes = Notes::default();
    let relayed = cells.iter().filter(|cell| cell.parameters.is_relayed());
    let relayed = relayed.filter(|cell| index.row(cell, Metric::RelayPeakRss).is_some());
    let rows = relayed.map(|cell| {
        let goodput = Metric::DownloadGoodput;
        let of_direct = direct(cell, cells).and_then(|direct| {
            let share = index.ratio(cell, direct, goodput)?;
            Some(index.share_of(&mut notes, cell, ("direct", direct), goodput, share))
        });
        let of_raw = index.share(&mut notes, cell, goodput);
        let used = [
            Metric::RelayCpu,
            Metric::RelayCpuSecondsPerGiB,
            Metric::RelayPeakRss,
            Metric::RelayBytesPerByte,
        ];
        let used = used.map(|metric| index.value(&mut notes, cell, metric));
        let values = [of_direct, of_raw].into_iter().chain(used);
        let mut row = transfer_key(cell);
        row.remove(2);
        row.extend(values.map(|value| value.unwrap_or_else(|| NOTHING.into())));
        row
    });
    let others = [
        "Of\ndirect",
        "Of raw\nproxy",
        "Relay\nCPUs",
        "Relay CPU\nper GiB",
        "Relay\nRSS",
        "Bytes\nper byte",
    ];
    let caption = "goodput as a share of that without a relay, and of that through a plain TCP proxy in its place. Relay \
                   CPUs are what the relay kept busy during the transfer. Bytes per byte are what its interfaces received \
                   and sent for each byte of payload";
    Table::new(Kind::Detail, &["Transport", "Stacks", "Size"], others, rows)
        .called("Relays", caption)
        .with_footnotes(notes)
        .unless_empty()
}

/// The cell that does the same without a relay.
fn direct<'a>(cell: &Cell, cells: &[&'a Cell]) -> Option<&'a Cell> {
    let mut wanted = cell.parameters.clone();
    if let Parameters::Relay(load) = &mut wanted {
        load.path = RelayPath::Direct;
    }
    let same = |other: &&&Cell| {
        other.stack_pair() == cell.stack_pair()
            && Path::of(other) == Path::of(cell)
            && other.parameters == wanted
    };
    cells.iter().find(same).copied()
}

/// The key fields of a level of a stress test.
fn level_key(cell: &Cell) -> Vec<table::Field> {
    let Some((sinks, sources)) = cell.parameters.sinks_and_sources() else {
        return vec![];
    };
    vec![
        Path::of(cell).to_string().into(),
        header(cell.stack_pair()).into(),
        sinks.to_string().into(),
        sources.to_string().into(),
    ]
}

const LEVEL_KEY: [&str; 4] = ["Transport", "Stacks", "Sinks", "Sources"];

fn stress(index: &ResultsIndex<'_>, cells: &[&Cell]) -> Table {
    let columns = [
        ("Goodput", Metric::DownloadGoodput),
        ("Transfers", Metric::TransfersPerSecond),
        ("Transfer\np50", Metric::TransferP50),
        ("Transfer\np99", Metric::TransferP99),
        ("Connect\np50", Metric::ConnectSeconds),
        ("Relay\nCPUs", Metric::RelayCpu),
        ("Relay CPU\nper GiB", Metric::RelayCpuSecondsPerGiB),
        ("Relay\nRSS", Metric::RelayPeakRss),
        ("Most\ncircuits", Metric::Circuits),
        ("Refused", Metric::Refused),
        ("Ramp\nlate", Metric::RampLateness),
        FAILURES,
    ];
    let caption = "sinks (clients) that fetch again and again from sources (servers) through one relay; goodput and CPU \
                   while all of them fetch";
    Table {
        kind: Kind::Main,
        ..detail(index, cells, &LEVEL_KEY, level_key, &columns).called("Relay stress", caption)
    }
}

/// What relays refused: a row for each kind, with how often it was in all trials of a level together.
fn refusals(index: &ResultsIndex<'_>, cells: &[&Cell]) -> Option<Table> {
    let mut rows = vec![];
    for cell in cells {
        let nodes = index.trials(cell).flat_map(|record| record.nodes.values());
        let mut counts = BTreeMap::<&str, u64>::new();
        for (what, count) in nodes
            .filter(|node| node.role == Role::Relay)
            .flat_map(|node| &node.measured.refused)
        {
            *counts.entry(what).or_default() += count;
        }
        rows.extend(counts.into_iter().map(|(what, count)| {
            let mut row = level_key(cell);
            row.extend([what.into(), count.to_string().into()]);
            row
        }));
    }
    let [transport, stacks, sinks, sources] = LEVEL_KEY;
    let keys = [transport, stacks, sinks, sources, "Refused"];
    Table::new(Kind::Detail, &keys, ["Times"], rows)
        .called(
            "Refusals",
            "what the relay refused, by the status that it gave, in all trials together",
        )
        .unless_empty()
}

/// Goodputs of two levels are compared if the later one has at least this many times the sinks.
const MORE_SINKS: f64 = 1.25;
/// A later level with less than this many times the goodput says that the relay carries no more: perhaps if
/// the estimate is below it, and certainly if the whole interval is.
const MORE_GOODPUT: f64 = 1.1;

/// A level of a stress test, with medians.
struct Level<'a> {
    cell: &'a Cell,
    sinks: u32,
    goodput: f64,
    cpus: Option<f64>,
}

/// A sentence for each pair and path of a stress test: from which level on more sinks do not bring more
/// goodput.
pub(super) fn saturation(index: &ResultsIndex<'_>) -> Vec<String> {
    let cells = levels(index).into_iter();
    let groups = grouped(cells.map(|cell| ((cell.stack_pair(), Path::of(cell)), cell)));
    let says = |((pair, path), cells): &((StackPair<'_>, Path<'_>), Vec<&Cell>)| {
        let levels = cells.iter().filter_map(|cell| {
            let (sinks, _) = cell.parameters.sinks_and_sources()?;
            let value = |metric| Some(index.row(cell, metric)?.median);
            Some(Level {
                cell,
                sinks,
                goodput: value(Metric::DownloadGoodput)?,
                cpus: value(Metric::RelayCpu),
            })
        });
        let mut levels: Vec<_> = levels.collect();
        levels.sort_by_key(|level| level.sinks);
        let whose = format!("Saturation over {path}: {pair}");
        let saturated = levels.array_windows().find_map(|[few, many]| {
            let more = index.ratio(many.cell, few.cell, Metric::DownloadGoodput)?;
            let is_saturated =
                f64::from(many.sinks) >= f64::from(few.sinks) * MORE_SINKS && more.value < MORE_GOODPUT;
            is_saturated.then_some((few, many, more.high))
        });
        match saturated {
            Some((few, many, most)) => {
                let is_sure = most.is_some_and(|most| most < MORE_GOODPUT);
                let word = if is_sure { "is" } else { "may be" };
                let goodput = |level: &Level<'_>| units::text(units::Unit::BitsPerSecond, level.goodput);
                let cpus = few
                    .cpus
                    .map(|cpus| format!(", and its relay keeps {cpus:.2} CPUs busy"));
                Some(format!(
                    "{whose} {word} saturated by {} sinks with {}{}; at {} sinks it carries {}.",
                    few.sinks,
                    goodput(few),
                    cpus.unwrap_or_default(),
                    many.sinks,
                    goodput(many),
                ))
            }
            None if levels.len() > 1 => Some(format!("{whose} shows no sign of it at these levels.")),
            None => None,
        }
    };
    groups.iter().filter_map(says).collect()
}
