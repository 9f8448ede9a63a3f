//! Requirements of cells beyond those of their stacks ([`perfrun_contract::support`]).

use perfrun_contract::{network::NONE, plan::Cell, support};

/// Why a cell is skipped; `None` if it can be measured.
pub(super) fn unsupported(cell: &Cell) -> Option<String> {
    support::unsupported(
        cell.client_stack,
        cell.server_stack,
        cell.transport,
        &cell.parameters,
    )
    .or_else(|| apart(cell))
    .or_else(|| uneven(cell))
}

/// Why a cell with a transport within one process is skipped.
fn apart(cell: &Cell) -> Option<String> {
    let reason = if !cell.transport.is_in_process() {
        return None;
    } else if cell.client != cell.server {
        "memory connects peers of one process, which have the same variant"
    } else if cell.network != NONE {
        "memory has no link that could be impaired"
    } else {
        return None;
    };
    Some(reason.into())
}

/// Why a stress test is skipped: without an equal number of peers, nodes could not be compared with each
/// other.
fn uneven(cell: &Cell) -> Option<String> {
    let (sinks, sources) = cell.parameters.sinks_and_sources()?;
    let (clients, servers) = (cell.clients.len() as u32, cell.servers.len() as u32);
    if clients > 0 && sinks % clients != 0 {
        return Some(format!(
            "{sinks} sinks cannot be shared evenly by {clients} client nodes"
        ));
    }
    (servers > 0 && sources % servers != 0)
        .then(|| format!("{sources} sources cannot be shared evenly by {servers} server nodes"))
}
