//! What trials cost, of all workloads whose own tables do not say it.

use perfrun_contract::{metric::Metric, parameters::Parameters, plan::Cell};

use super::{Column, ResultsIndex, detail, key_fields};
use crate::table::{Kind, Table};

pub(super) fn tables(index: &ResultsIndex<'_>) -> Vec<Table> {
    let cells = index.cells(|parameters| !matches!(parameters, Parameters::Bandwidth(_)));
    let key = |cell: &Cell| key_fields(cell, cell.parameters.to_string());
    let time = [
        ("Client\ncores", Metric::ClientCpuCores),
        ("Server\ncores", Metric::ServerCpuCores),
        ("CPU time\nper GiB", Metric::CpuSecondsPerGiB),
        ("Cycles\nper byte", Metric::CpuCyclesPerByte),
    ];
    let memory = [
        ("Client\nRSS", Metric::ClientPeakRss),
        ("Server\nRSS", Metric::ServerPeakRss),
        ("Client\nallocated", Metric::ClientPeakAllocated),
        ("Server\nallocated", Metric::ServerPeakAllocated),
        ("Relay\nallocated", Metric::RelayPeakAllocated),
        ("Client\nper stream", Metric::ClientAllocatedPerStream),
        ("Server\nper stream", Metric::ServerAllocatedPerStream),
    ];
    let table = |title: &str, caption: &str, columns: &[Column]| Table {
        kind: Kind::Companion,
        ..detail(index, &cells, &["Transport", "Load", "Stacks"], key, columns).called(title, caption)
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
