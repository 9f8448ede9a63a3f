//! New connections, phase by phase.

use perfrun_contract::{metric::Metric, parameters::Parameters, plan::Cell};

use super::source::{Column, Pair, Source, detail};
use crate::{path::Path, table::Table};

pub(super) fn tables(source: &Source<'_>) -> Vec<Table> {
    let cells: Vec<&Cell> = source
        .plan()
        .cells
        .iter()
        .filter(|c| matches!(c.parameters, Parameters::Handshakes(_)))
        .collect();
    let key = |cell: &Cell| {
        vec![
            Path::of(cell).to_string().into(),
            cell.parameters.hosts_of_peer().to_string().into(),
            Pair::of(cell).header().into(),
        ]
    };
    let columns = [
        Column {
            name: "TCP\np50",
            metric: Metric::HandshakeTransportP50,
        },
        Column {
            name: "Estab.\np50",
            metric: Metric::HandshakeEstablishedP50,
        },
        Column {
            name: "Estab.\np99",
            metric: Metric::HandshakeEstablishedP99,
        },
        Column {
            name: "1st byte\np50",
            metric: Metric::HandshakeFirstByteP50,
        },
        Column {
            name: "1st byte\np99",
            metric: Metric::HandshakeFirstByteP99,
        },
        Column {
            name: "Rate",
            metric: Metric::HandshakesPerSecond,
        },
        Column {
            name: "CPU per\nconn.",
            metric: Metric::CpuSecondsPerOperation,
        },
        Column {
            name: "Failures",
            metric: Metric::Failures,
        },
    ];
    if cells.is_empty() {
        return vec![];
    }
    let table = detail(
        source,
        &cells,
        &["Transport", "In\nflight", "Stacks"],
        key,
        &columns,
    );
    vec![Table {
        title: "Handshakes".to_owned(),
        caption: "from the dial until TCP is connected, the connection is established (secured and multiplexed), and \
                  the first byte came back on a stream; the rate includes closing"
            .to_owned(),
        ..table
    }]
}
