//! New connections, phase by phase.

use perfrun_contract::{metric::Metric, parameters::Parameters, plan::Cell};

use super::{FAILURES, ResultsIndex, detail, key_fields};
use crate::table::Table;

pub(super) fn table(index: &ResultsIndex<'_>) -> Option<Table> {
    let cells = index.cells(|parameters| matches!(parameters, Parameters::Handshakes(_)));
    let key = |cell: &Cell| key_fields(cell, cell.parameters.hosts_of_peer().to_string());
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
    let table = detail(index, &cells, &keys, key, &columns).called("Handshakes", caption);
    table.unless_empty()
}
