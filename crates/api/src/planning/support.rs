//! Requirements of cells beyond those of their stacks ([`perfrun_contract::support`]).

use perfrun_contract::{
    matrix::{Cups, IpFamily, Setting},
    network::NONE,
    plan::Cell,
    quantity::ByteSize,
    role::Role,
    support::{CellStack, CellStacks, YAMUX_STREAM, most_peers, why_unsupported},
};

use super::points::Point;

/// Why a cell of a point is skipped; `None` if it can be measured.
pub(super) fn why_skipped(point: &Point<'_>, cell: &Cell) -> Option<String> {
    let stacks = CellStacks {
        client: point.client.cell_stack(),
        server: point.server.cell_stack(),
        relay: cell.relay_stack.map(|_| point.relay().cell_stack()),
    };
    why_unsupported(stacks, cell.transport, &cell.parameters)
        .or_else(|| why_settings_unsupported(stacks, cell))
        .or_else(|| why_settings_differ(cell))
        .or_else(|| why_window_too_small(cell))
        .or_else(|| (cell.parameters).why_messaging_unsupported(cell.client_settings.messaging()))
        .or_else(|| why_too_many_peers(cell))
        .or_else(|| why_not_in_one_process(cell))
        .or_else(|| why_uneven_peers(cell))
}

/// Why a cell is skipped whose variants have settings that their stacks lack.
fn why_settings_unsupported(stacks: CellStacks<'_>, cell: &Cell) -> Option<String> {
    let by = |cell_stack: CellStack<'_>, role| {
        cell_stack.why_settings_unsupported(cell.stack_of(role).1, cell.transport)
    };
    by(stacks.client, Role::Client)
        .or_else(|| by(stacks.server, Role::Server))
        .or_else(|| by(stacks.relay?, Role::Relay))
}

/// Why a cell is skipped whose window of yamux does not have room for all of its streams.
fn why_window_too_small(cell: &Cell) -> Option<String> {
    let least = YAMUX_STREAM * u64::from(cell.parameters.streams());
    let mut windows = [Role::Client, Role::Server, Role::Relay]
        .into_iter()
        .map(|role| cell.stack_of(role).1)
        .filter(|settings| {
            settings
                .effective_on(cell.transport)
                .any(|set| set == Setting::YamuxWindow)
        })
        .filter_map(|settings| settings.yamux_window);
    let window = windows.find(|window| window.0 < least)?;
    Some(format!(
        "a window of {window} is too small: yamux gives each of {} streams at least {}, set yamuxWindow to {}",
        cell.parameters.streams(),
        ByteSize(YAMUX_STREAM),
        ByteSize(least)
    ))
}

/// Why a cell with different settings at both ends is skipped.
fn why_settings_differ(cell: &Cell) -> Option<String> {
    let settings = [&cell.client_settings, &cell.server_settings];
    let [client, server] = settings.map(|settings| settings.cups());
    if client != server {
        return Some(format!(
            "peers of {} with different versions of cups cannot talk: {client} and {server}",
            Cups::STACK
        ));
    }
    let [client, server] = settings.map(|settings| settings.messaging());
    (client != server).then(|| format!("peers that pass messages by {client} and by {server} cannot talk"))
}

/// Why a cell is skipped that has more peers than a server of its stack takes.
fn why_too_many_peers(cell: &Cell) -> Option<String> {
    let stack = cell.server_stack;
    let most = most_peers(stack, &cell.parameters)?;
    let peers = match cell.is_in_process() {
        true => cell.peers_per_client.into(),
        false => {
            let dialled = cell.peers() * cell.parameters.servers_of_peer() as u64;
            dialled.div_ceil(cell.servers.len() as u64)
        }
    };
    (peers > u64::from(most)).then(|| {
        format!(
            "a server of {stack} takes {most} peers that send such messages, not {peers}: lower their number or the window"
        )
    })
}

/// Why a cell with both peers in one process is skipped.
fn why_not_in_one_process(cell: &Cell) -> Option<String> {
    let reason = if !cell.is_in_process() {
        return None;
    } else if cell.client != cell.server {
        "peers of one process, which memory and mode serial need, have the same variant"
    } else if cell.network != NONE {
        "peers of one process, which memory and mode serial need, have no link that could be impaired"
    } else if cell.transport.is_in_process() && cell.ip_family != IpFamily::IPv4 {
        "peers of one process that share memory have no addresses: add IPv4 to ipFamilies"
    } else {
        return None;
    };
    Some(reason.into())
}

/// Why a stress test is skipped: without an equal number of peers, nodes could not be compared with each
/// other.
fn why_uneven_peers(cell: &Cell) -> Option<String> {
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
