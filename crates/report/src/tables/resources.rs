//! What trials cost, of all workloads whose own tables do not say it.

use perfrun_contract::{metric::Metric, parameters::Parameters, plan::Cell};

use super::source::{Column, Pair, Source, detail};
use crate::{
    path::Path,
    table::{Kind, Table},
};

pub(super) fn tables(source: &Source<'_>) -> Vec<Table> {
    let cells: Vec<&Cell> = source
        .plan()
        .cells
        .iter()
        .filter(|cell| !matches!(cell.parameters, Parameters::Bandwidth(_)))
        .collect();
    let key = |cell: &Cell| {
        vec![
            Path::of(cell).to_string().into(),
            cell.parameters.to_string().into(),
            Pair::of(cell).header().into(),
        ]
    };
    let column = |name, metric| Column { name, metric };
    let time = [
        column("Client\ncores", Metric::ClientCpuCores),
        column("Server\ncores", Metric::ServerCpuCores),
        column("CPU time\nper GiB", Metric::CpuSecondsPerGiB),
        column("Cycles\nper byte", Metric::CpuCyclesPerByte),
    ];
    let memory = [
        column("Client\nRSS", Metric::ClientPeakRss),
        column("Server\nRSS", Metric::ServerPeakRss),
        column("Client\nallocated", Metric::ClientPeakAllocated),
        column("Server\nallocated", Metric::ServerPeakAllocated),
        column("Relay\nallocated", Metric::RelayPeakAllocated),
        column("Client\nper stream", Metric::ClientAllocatedPerStream),
        column("Server\nper stream", Metric::ServerAllocatedPerStream),
    ];
    let table = |title: &str, caption: &str, columns: &[Column]| Table {
        title: title.to_owned(),
        caption: caption.to_owned(),
        kind: Kind::Companion,
        ..detail(source, &cells, &["Transport", "Load", "Stacks"], key, columns)
    };
    let tables = [
        table(
            "CPU",
            "cores that the busiest node kept busy; CPU time of all nodes for each GiB of payload, either way; where \
             both peers are in one process, the client is both",
            &time,
        ),
        table(
            "Memory",
            "the peak of a node in a trial: resident, and allocated by the program; for each stream, what was allocated with \
             all of them, less the least of the trial. Where both peers are in one process, the client is both",
            &memory,
        ),
    ];
    let has_values = |table: &Table| table.header.len() > table.keys && !table.rows.is_empty();
    tables.into_iter().filter(has_values).collect()
}
