//! What stacks cannot do. The facts are those of the stacks' current releases.

use crate::{
    matrix::{Negotiation, Stack, Transport},
    plan::{Cell, Parameters},
};

/// quinn's default stream credit, which litep2p does not change.
const LITEP2P_QUIC_STREAMS: u32 = 100;

/// Connections that a server has with peers at the same time.
const MOST_CONNECTIONS: u64 = 8192;

/// Why a cell cannot be measured, if so.
pub(super) fn unsupported(cell: &Cell) -> Option<String> {
    let stacks = [cell.client_stack, cell.server_stack];
    if stacks.contains(&Stack::Raw) && !cell.is_raw() {
        return Some("raw speaks only to raw: it has no peer-to-peer handshake".into());
    }
    if let Some(reason) = uneven(cell) {
        return Some(reason);
    }
    if cell.is_raw() {
        return unsupported_by_raw(cell);
    }
    if cell.transport == Transport::TcpTls && stacks.contains(&Stack::Litep2p) {
        return Some("litep2p secures TCP by Noise only, it has no TLS".into());
    }
    if cell.parameters.is_relayed() && stacks.contains(&Stack::Litep2p) {
        return Some("litep2p has no circuit relay".into());
    }
    if cell.parameters.negotiation() == Negotiation::V1Lazy && cell.client_stack == Stack::Litep2p {
        return Some("litep2p cannot negotiate v1lazy as a client".into());
    }
    // The client opens all streams, and the server grants the credit for them.
    let many = cell.parameters.streams() > LITEP2P_QUIC_STREAMS;
    if many && cell.transport == Transport::QuicV1 && cell.server_stack == Stack::Litep2p {
        return Some(format!(
            "litep2p as a server allows {LITEP2P_QUIC_STREAMS} streams on a QUIC connection, fixed"
        ));
    }
    None
}

/// Peers of a stress test are shared evenly, or nodes would compare with each other only by luck.
fn uneven(cell: &Cell) -> Option<String> {
    let Parameters::RelayStress { sinks, sources, .. } = &cell.parameters else {
        return None;
    };
    let (clients, servers) = (cell.clients.len() as u32, cell.servers.len() as u32);
    if clients > 0 && sinks % clients != 0 {
        return Some(format!(
            "{sinks} sinks cannot be shared evenly by {clients} client nodes"
        ));
    }
    (servers > 0 && sources % servers != 0)
        .then(|| format!("{sources} sources cannot be shared evenly by {servers} server nodes"))
}

fn unsupported_by_raw(cell: &Cell) -> Option<String> {
    match (cell.transport, &cell.parameters) {
        (Transport::TcpTls, _) => Some("raw has no TLS over TCP: its baseline is plain tcp".into()),
        (Transport::Ws, _) => Some("raw has no WebSocket: its baseline is plain tcp".into()),
        (_, Parameters::Substreams { .. }) => {
            Some("raw opens streams without a round trip: there is nothing to compare with".into())
        }
        (Transport::QuicV1, Parameters::Relay { .. } | Parameters::RelayStress { .. }) => Some(
            "raw has no baseline for this on QUIC: its server would not learn of a stream on which the client sends nothing"
                .into(),
        ),
        (Transport::Tcp, Parameters::Echo(echo)) if echo.streams() > MOST_CONNECTIONS => Some(format!(
            "raw has a TCP connection for each stream, and a server takes {MOST_CONNECTIONS}"
        )),
        _ => None,
    }
}
