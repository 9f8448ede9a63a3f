//! What trials cost, of all workloads whose own tables do not say it.

use perfrun_contract::{metric::Metric, parameters::Parameters, plan::Cell, role::Role};

use super::{Column, ResultsIndex, detail, key_fields};
use crate::table::{Kind, Table};

pub(super) fn tables(index: &ResultsIndex<'_>) -> Vec<Table> {
    let cells = index.cells(|parameters| !matches!(parameters, Parameters::Bandwidth(_)));
    let key = |cell: &Cell| key_fields(cell, cell.parameters.to_string());
    let time = [
        ("Client\nCPUs", Metric::ClientCpuCores),
        ("Server\nCPUs", Metric::ServerCpuCores),
        ("CPU\nper GiB", Metric::CpuSecondsPerGiB),
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
    // A caption explains only the columns that the table has.
    let explained = |says: bool, text: &'static str| if says { text } else { "" };
    let is_measured = |metric| cells.iter().any(|cell| index.row(cell, metric).is_some());
    let both = explained(
        cells.iter().any(|cell| !cell.has_process(Role::Server)),
        ". Where both peers are in one process, the client is both",
    );
    let per_gib = explained(
        is_measured(Metric::CpuSecondsPerGiB),
        "; CPU time of all nodes for each GiB of payload, either way",
    );
    let per_stream = explained(
        is_measured(Metric::ClientAllocatedPerStream),
        "; for each stream, what was allocated with all of them, less the least of the trial",
    );
    let table = |title: &str, caption: String, columns: &[Column]| Table {
        kind: Kind::Companion,
        ..detail(index, &cells, &["Transport", "Load", "Stacks"], key, columns).called(title, caption)
    };
    let tables = [
        table(
            "CPU",
            format!("CPUs that the busiest node kept busy{per_gib}{both}"),
            &time,
        ),
        table(
            "Memory",
            format!(
                "the peak of a node in a trial: resident, and allocated by the program{per_stream}{both}"
            ),
            &memory,
        ),
    ];
    let has_values = |table: &Table| table.header.len() > table.keys && !table.rows.is_empty();
    tables.into_iter().filter(has_values).collect()
}
