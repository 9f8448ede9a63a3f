//! What stacks cannot do, in their current releases: each on its own, and two with each other.

mod built_in;
mod facts;

pub use self::{built_in::capabilities, facts::*};
use crate::{
    capabilities::Capabilities,
    matrix::{Protocol, Stack, StackSettings, Transport},
    parameters::{Amount, Parameters},
    role::Role,
    workload::Direction,
};

/// Bytes that yamux lets a peer send on each stream before they are read (`DEFAULT_CREDIT`).
pub const YAMUX_STREAM: u64 = 256 << 10;

/// A stack of a cell, and what it can do.
#[derive(Clone, Copy, Debug)]
pub struct CellStack<'a> {
    /// The name in the matrix.
    pub name: &'a str,
    /// The stack.
    pub stack: Stack,
    /// What the stack can do. `None` for built-in stacks.
    pub capabilities: Option<&'a Capabilities>,
}

impl<'a> CellStack<'a> {
    fn wire(&self) -> &'a str {
        let built_in = self.stack.wire();
        built_in
            .or_else(|| self.capabilities.map(|own| own.wire.as_str()))
            .unwrap_or(self.name)
    }

    fn why_role_unsupported(
        &self,
        role: Role,
        transport: Transport,
        parameters: &Parameters,
    ) -> Option<String> {
        self.capabilities?
            .why_role_unsupported(self.name, role, transport, parameters)
    }

    /// Why the stack cannot apply settings on a transport. `None` if it can.
    pub fn why_settings_unsupported(&self, settings: &StackSettings, transport: Transport) -> Option<String> {
        match self.capabilities {
            Some(own) => own.why_settings_unsupported(self.name, settings, transport),
            None => settings
                .effective_on(transport)
                .find_map(|setting| why_setting_unsupported(self.stack, setting))
                .map(str::to_owned),
        }
    }
}

/// The stacks of a cell.
#[derive(Clone, Copy, Debug)]
pub struct CellStacks<'a> {
    /// The stack that dials.
    pub client: CellStack<'a>,
    /// The stack that listens.
    pub server: CellStack<'a>,
    /// The stack of the relay. `None` if it is the server's.
    pub relay: Option<CellStack<'a>>,
}

/// Why stacks, any of which may be external, cannot run a workload over a transport. `None` if they can.
pub fn why_unsupported(
    stacks: CellStacks<'_>,
    transport: Transport,
    parameters: &Parameters,
) -> Option<String> {
    let CellStacks {
        client,
        server,
        relay,
    } = stacks;
    if client.wire() != server.wire() {
        return Some(different_wires(client, server));
    }
    let relay = parameters.is_relayed().then(|| relay.unwrap_or(server));
    if let Some(relay) = relay.filter(|relay| relay.wire() != server.wire()) {
        return Some(different_wires(relay, server));
    }
    client
        .why_role_unsupported(Role::Client, transport, parameters)
        .or_else(|| server.why_role_unsupported(Role::Server, transport, parameters))
        .or_else(|| relay?.why_role_unsupported(Role::Relay, transport, parameters))
        .or_else(|| {
            let is_libp2p = Some(client.wire()) == Stack::Libp2p.wire();
            let (client, server, relay) = (client.stack, server.stack, relay.map(|relay| relay.stack));
            let mut pair = [(server, Role::Server), (client, Role::Client)];
            // litep2p lacks most. Its reason stands for both directions of a pair.
            pair.sort_by_key(|(stack, _)| *stack != Stack::Litep2p);
            let relay_with_role = relay.map(|relay| (relay, Role::Relay));
            let first = relay_with_role.filter(|(relay, _)| *relay == Stack::Litep2p);
            let last = relay_with_role.filter(|_| is_libp2p && !transport.is_in_process());
            let mut stacks_with_roles = first.into_iter().chain(pair).chain(last);
            let lacking = stacks_with_roles
                .find_map(|(stack, role)| why_role_unsupported(stack, role, transport, parameters));
            let of_pair = || why_unsupported_by_libp2p(client, server, relay, transport, parameters);
            lacking.or_else(|| is_libp2p.then(of_pair)?)
        })
}

/// Why a pair of built-in stacks cannot run a workload over a transport. `None` if it can.
pub fn why_pair_unsupported(
    client: Stack,
    server: Stack,
    transport: Transport,
    parameters: &Parameters,
) -> Option<String> {
    let cell_stack = |stack: Stack| CellStack {
        name: stack.into(),
        stack,
        capabilities: None,
    };
    let stacks = CellStacks {
        client: cell_stack(client),
        server: cell_stack(server),
        relay: None,
    };
    why_unsupported(stacks, transport, parameters)
}

fn different_wires(client: CellStack<'_>, server: CellStack<'_>) -> String {
    let both = [client.stack, server.stack];
    let built_in = Stack::built_in().filter(|stack| both.contains(stack));
    match built_in.filter_map(why_no_shared_wire).last() {
        Some(reason) => reason.into(),
        None => format!(
            "{} speaks {}, and {} speaks {}",
            client.name,
            client.wire(),
            server.name,
            server.wire()
        ),
    }
}

/// The rules for several stacks that speak libp2p's protocols. External stacks have none of their own here.
fn why_unsupported_by_libp2p(
    client: Stack,
    server: Stack,
    relay: Option<Stack>,
    transport: Transport,
    parameters: &Parameters,
) -> Option<String> {
    if transport.is_in_process() {
        return parameters.why_not_in_process().map(str::to_owned);
    }
    if transport == Transport::WebrtcDirect {
        let has_libp2p = [client, server].contains(&Stack::Libp2p);
        if relay.is_some_and(|relay| relay == Stack::Libp2p || has_libp2p) {
            let reason = "a relay passes on messages of 16 KiB, of which libp2p's webrtc-direct takes 8 KiB (rust-libp2p \
                          issue 4049)";
            return Some(reason.into());
        }
        return why_unsupported_by_webrtc(client, server, parameters);
    }
    // The client opens all streams, and the server grants the credit for them.
    let most = limits(server, transport).max_streams;
    let most = most.filter(|most| parameters.streams() > *most)?;
    let carrier = match transport {
        Transport::QuicV1 => "QUIC connection",
        _ => "WebTransport session",
    };
    Some(format!(
        "{server} as a server allows {most} streams on a {carrier}, which is not configurable"
    ))
}

fn why_unsupported_by_webrtc(client: Stack, server: Stack, parameters: &Parameters) -> Option<String> {
    if let (Stack::GoLibp2p, Stack::Libp2p) | (Stack::Libp2p, Stack::GoLibp2p) = (client, server) {
        let reason = "go-libp2p and libp2p lose dials and streams of each other on webrtc-direct, and go-libp2p sends messages \
                      of 16 KiB, of which libp2p takes 8 KiB (rust-libp2p issue 4049)";
        return Some(reason.into());
    }
    let protocol = parameters.protocol();
    let needs_end = matches!(protocol, Protocol::Perf | Protocol::TestData);
    let other = [client, server].into_iter().find(|stack| *stack != Stack::Libp2p);
    if let Some(other) = other
        && needs_end
        && [client, server].contains(&Stack::Libp2p)
    {
        return Some(format!(
            "{other} acknowledges the end of a webrtc-direct stream, which libp2p treats as an error (rust-libp2p issue \
             4600): {} needs that end, litep2p-perf does not",
            protocol.as_ref()
        ));
    }
    let download = parameters
        .transfer()
        .filter(|(direction, ..)| *direction != Direction::Upload);
    if (client, server) == (Stack::GoLibp2p, Stack::Litep2p) && download.is_some() {
        let reason = "go-libp2p ends streams of litep2p on webrtc-direct that carry more than some KiB with the error: short \
                      buffer";
        return Some(reason.into());
    }
    let most = limits(server, Transport::WebrtcDirect).stream_burst;
    match (server, most.filter(|most| parameters.burst() > *most)) {
        (Stack::Litep2p, _) if matches!(download, Some((_, _, 2..))) => Some(
            "litep2p as a server on webrtc-direct gets stuck when it sends on several streams at the same time"
                .into(),
        ),
        (Stack::Libp2p, _) if matches!(download, Some((_, Amount::Seconds(_), _))) => {
            let reason = "libp2p as a server on webrtc-direct does not notice that a download is cut off at its time: set \
                          sizes instead of a duration";
            Some(reason.into())
        }
        (Stack::Libp2p, Some(most)) => Some(format!(
            "libp2p as a server on webrtc-direct closes all but {most} streams that are opened at the same time"
        )),
        (Stack::GoLibp2p, Some(most)) => Some(format!(
            "go-libp2p as a server on webrtc-direct loses streams without an error when more than {most} are \
             opened at the same time"
        )),
        _ => None,
    }
}
