//! What cells need besides stacks that can do it ([`perfrun_contract::support`]).

use perfrun_contract::{network::NONE, parameters::Parameters, plan::Cell, support};

/// Why a cell cannot be measured, if so.
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

/// What a transport within one process needs besides the stacks.
fn apart(cell: &Cell) -> Option<String> {
    let reason = if !cell.transport.is_in_process() {
        return None;
    } else if cell.client != cell.server {
        "peers of one process are of one build: memory joins no two variants"
    } else if cell.network != NONE {
        "what goes through memory crosses no link that could be impaired"
    } else {
        return None;
    };
    Some(reason.into())
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
