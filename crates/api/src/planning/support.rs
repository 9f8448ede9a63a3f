//! What cells need besides stacks that can do it ([`perfrun_contract::support`]).

use perfrun_contract::parameters::Parameters;

use crate::{network::NONE, plan::Cell};

/// What a transport within one process needs besides the stacks.
pub(super) fn apart(cell: &Cell) -> Option<String> {
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
pub(super) fn uneven(cell: &Cell) -> Option<String> {
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
