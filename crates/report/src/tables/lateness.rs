//! How late packets left impaired links.

use perfrun_contract::{plan::Cell, units::Unit};
use perfrun_judge::Statistics;

use super::{ResultsIndex, key_fields};
use crate::{
    order::distinct,
    table::{self, Kind, Table},
    units,
};

/// A row for each cell whose packets perfrun itself delayed. `None` if there is none: netem reports no
/// lateness.
pub(super) fn table(index: &ResultsIndex<'_>) -> Option<Table> {
    let cells = index.plan().cells.iter();
    let rows = cells.filter_map(|cell| row(index, cell));
    let keys = ["Transport", "Load", "Stacks", "Scheduling"];
    let others = ["p99,\nmedian trial", "p99,\nworst trial", "Latest\npacket"];
    let caption = "how much later than configured packets left impaired links: the 99th percentile in the median and in the \
                   worst trial, and the latest packet of all trials; in each trial at the end of the link that was later";
    Table::new(Kind::Companion, &keys, others, rows)
        .called("Lateness", caption)
        .unless_empty()
}

fn row(index: &ResultsIndex<'_>, cell: &Cell) -> Option<Vec<table::Field>> {
    let mut scheduling = vec![];
    let (mut p99, mut latest) = (vec![], vec![]);
    for record in index.completed_trials(cell) {
        let links = record.nodes.values().filter_map(|node| node.link.as_ref());
        let workers: Vec<_> = links.filter_map(|link| link.worker.as_ref()).collect();
        let late = workers.iter().map(|worker| &worker.lateness);
        p99.extend(late.clone().map(|late| late.p99_ns).max());
        latest.extend(late.map(|late| late.max_ns).max());
        scheduling.extend(workers.iter().map(|worker| worker.scheduling.to_string()));
    }
    let text = |nanoseconds: f64| table::Field::from(units::text(Unit::Seconds, nanoseconds / 1e9));
    let p99 = Statistics::of(p99.into_iter().map(|late| late as f64))?;
    let mut row = key_fields(cell, cell.parameters.to_string());
    row.extend([
        distinct(scheduling).join(", ").into(),
        text(p99.median),
        text(p99.max),
        text(latest.into_iter().max()? as f64),
    ]);
    Some(row)
}
