//! New connections, phase by phase.

use perfrun_contract::{metric::Metric, parameters::Parameters, plan::Cell};

use super::{FAILURES, Source, detail, told_apart};
use crate::table::Table;

pub(super) fn table(source: &Source<'_>) -> Option<Table> {
    let cells = source.cells(|parameters| matches!(parameters, Parameters::Handshakes(_)));
    let key = |cell: &Cell| told_apart(cell, cell.parameters.hosts_of_peer().to_string());
    let columns = [
        ("TCP\np50", Metric::HandshakeTransportP50),
        ("Estab.\np50", Metric::HandshakeEstablishedP50),
        ("Estab.\np99", Metric::HandshakeEstablishedP99),
        ("1st byte\np50", Metric::HandshakeFirstByteP50),
        ("1st byte\np99", Metric::HandshakeFirstByteP99),
        ("Rate", Metric::HandshakesPerSecond),
        ("CPU per\nconn.", Metric::CpuSecondsPerOperation),
        FAILURES,
    ];
    let caption = "from the dial until TCP is connected, the connection is established (secured and multiplexed), and \
                   the first byte came back on a stream; the rate includes closing";
    let keys = ["Transport", "In\nflight", "Stacks"];
    let table = detail(source, &cells, &keys, key, &columns).called("Handshakes", caption);
    table.unless_empty()
}
