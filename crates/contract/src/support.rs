//! What stacks cannot do, in their current releases.

mod built_in;
mod uses;

pub use self::{
    built_in::capabilities,
    uses::{USES, Use},
};
use crate::{
    capabilities::Capabilities,
    distribution::Distribution,
    matrix::{Identity, Negotiation, Protocol, Setting, Stack, StackSettings, Transport},
    parameters::{Amount, Messages, Parameters},
    role::Role,
    workload::{Direction, MessageMode},
};

/// Streams that litep2p's QUIC lets a peer open: quinn's default, which litep2p does not change.
pub const LITEP2P_QUIC_STREAMS: u32 = 100;

/// Bytes that yamux lets a peer send on each stream before they are read (`DEFAULT_CREDIT`).
pub const YAMUX_STREAM: u64 = 256 << 10;

/// Data channels that libp2p holds until its connection takes them. libp2p closes any more.
const LIBP2P_WEBRTC_BURST: u32 = 10;

/// Connections that a server accepts at the same time.
const MOST_CONNECTIONS: u64 = 8192;

/// Most peers of a listening host of commonware, whatever its load.
const COMMONWARE_PEERS: u32 = 64;

/// Messages that all peers of a host of commonware may send at the same moment. commonware allocates room for
/// each of them, about 500 bytes, when a host starts.
const COMMONWARE_ROOM: u32 = 1 << 16;

/// Messages of a peer of commonware that need room beside its window: greetings, and the first message.
pub const COMMONWARE_SPARE: u32 = 64;

/// Most messages of a broadcast of commonware that wait for a peer.
const COMMONWARE_BROADCAST: u32 = 4096;

/// Messages that a peer of commonware may send at the same moment: its window, so that no queue limits it. A
/// broadcast waits for nothing, so its queues have the most room that a host's memory allows.
pub fn commonware_burst(load: &Messages) -> u32 {
    let messages = match load.mode {
        MessageMode::Broadcast => (COMMONWARE_ROOM / (load.receivers + 1)).min(COMMONWARE_BROADCAST),
        MessageMode::Serial | MessageMode::SerialAck | MessageMode::Stream => load.window + COMMONWARE_SPARE,
    };
    messages + 1
}

/// Peers that a listening host of commonware can have.
pub fn commonware_peers(load: &Messages) -> u32 {
    COMMONWARE_PEERS.min(COMMONWARE_ROOM / commonware_burst(load))
}

/// Streams that go-libp2p takes on a QUIC connection.
const GO_QUIC_STREAMS: u32 = 256;

/// Streams that go-libp2p takes on a WebTransport session: the session and its handshake are streams as well.
const GO_WEBTRANSPORT_STREAMS: u32 = 254;

/// Streams that go-libp2p takes on webrtc-direct at the same moment without a loss.
const GO_WEBRTC_BURST: u32 = 50;

/// The stack at one end of a cell.
#[derive(Clone, Copy, Debug)]
pub struct End<'a> {
    /// The name in the matrix.
    pub name: &'a str,
    /// The stack.
    pub stack: Stack,
    /// What the stack can do. None for built-in stacks.
    pub capabilities: Option<&'a Capabilities>,
}

impl<'a> End<'a> {
    fn wire(&self) -> &'a str {
        let built_in = self.stack.wire();
        built_in
            .or_else(|| self.capabilities.map(|own| own.wire.as_str()))
            .unwrap_or(self.name)
    }

    fn lack(&self, role: Role, transport: Transport, parameters: &Parameters) -> Option<String> {
        self.capabilities?.lack(self.name, role, transport, parameters)
    }

    /// Why the stack cannot apply settings on a transport. `None` if it can.
    pub fn unsettable(&self, settings: &StackSettings, transport: Transport) -> Option<String> {
        match self.capabilities {
            Some(own) => own.lack_of_settings(self.name, settings, transport),
            None => settings
                .effective_on(transport)
                .find_map(|setting| unsettable(self.stack, setting))
                .map(str::to_owned),
        }
    }
}

/// Why a built-in stack does not have a setting. `None` if it does, or if the stack is not built in.
pub fn unsettable(stack: Stack, setting: Setting) -> Option<&'static str> {
    Some(match (setting, stack) {
        (_, Stack::External)
        | (Setting::TcpCongestion, Stack::Libp2p | Stack::Raw)
        | (Setting::QuicCongestion, Stack::Raw)
        | (Setting::YamuxWindow, Stack::Litep2p | Stack::GoLibp2p) => return None,
        (Setting::TcpCongestion, Stack::Litep2p) => {
            "litep2p gives no access to its TCP sockets: remove tcpCongestion, and set the default of the machine"
        }
        (Setting::TcpCongestion, Stack::GoLibp2p) => {
            "go-libp2p gives no access to the TCP sockets that it accepts: remove tcpCongestion, and set the default \
             of the machine"
        }
        (Setting::TcpCongestion, Stack::Commonware) => {
            "commonware gives no access to its TCP sockets: remove tcpCongestion, and set the default of the machine"
        }
        (Setting::QuicCongestion, Stack::Libp2p) => {
            "libp2p's QUIC always uses quinn's default, cubic: remove quicCongestion"
        }
        (Setting::QuicCongestion, Stack::Litep2p) => {
            "litep2p's QUIC always uses quinn's default, cubic: remove quicCongestion"
        }
        (Setting::QuicCongestion, Stack::GoLibp2p) => {
            "go-libp2p's QUIC (quic-go) always uses newReno: remove quicCongestion"
        }
        (Setting::QuicCongestion, Stack::Commonware) => "commonware has no QUIC: remove quicCongestion",
        (Setting::YamuxWindow, Stack::Libp2p) => {
            "libp2p's yamux sets its windows itself, up to 1Gi for each connection: remove yamuxWindow"
        }
        (Setting::YamuxWindow, Stack::Commonware | Stack::Raw) => {
            "raw and commonware have no yamux: remove yamuxWindow"
        }
    })
}

/// The stacks of a cell.
#[derive(Clone, Copy, Debug)]
pub struct Ends<'a> {
    /// The stack that dials.
    pub client: End<'a>,
    /// The stack that listens.
    pub server: End<'a>,
    /// The stack of the relay. None if it is the server's.
    pub relay: Option<End<'a>>,
}

/// Why stacks, any of which may be external, cannot run a workload over a transport. `None` if they can.
pub fn unsupported_by_ends(ends: Ends<'_>, transport: Transport, parameters: &Parameters) -> Option<String> {
    let Ends {
        client,
        server,
        relay,
    } = ends;
    if client.wire() != server.wire() {
        return Some(different_wires(client, server));
    }
    let relay = parameters.is_relayed().then(|| relay.unwrap_or(server));
    if let Some(relay) = relay.filter(|relay| relay.wire() != server.wire()) {
        return Some(different_wires(relay, server));
    }
    client
        .lack(Role::Client, transport, parameters)
        .or_else(|| server.lack(Role::Server, transport, parameters))
        .or_else(|| relay?.lack(Role::Relay, transport, parameters))
        .or_else(|| match client.wire() {
            "raw" if [client.stack, server.stack].contains(&Stack::Raw) => {
                unsupported_by_raw(transport, parameters)
            }
            "commonware" if [client.stack, server.stack].contains(&Stack::Commonware) => {
                unsupported_by_commonware(transport, parameters)
            }
            "libp2p" if relay.is_some_and(|relay| relay.stack == Stack::Litep2p) => {
                Some("litep2p has no circuit relay".into())
            }
            "libp2p" => {
                let relay = relay.map(|relay| relay.stack);
                unsupported_by_libp2p(client.stack, server.stack, relay, transport, parameters)
            }
            _ => None,
        })
}

/// Why a pair of built-in stacks cannot run a workload over a transport. `None` if it can.
pub fn unsupported(
    client: Stack,
    server: Stack,
    transport: Transport,
    parameters: &Parameters,
) -> Option<String> {
    let end = |stack: Stack| End {
        name: stack.into(),
        stack,
        capabilities: None,
    };
    let ends = Ends {
        client: end(client),
        server: end(server),
        relay: None,
    };
    unsupported_by_ends(ends, transport, parameters)
}

fn different_wires(client: End<'_>, server: End<'_>) -> String {
    let stacks = [client.stack, server.stack];
    if stacks.contains(&Stack::Raw) {
        "raw speaks only to raw: it has no peer-to-peer handshake".into()
    } else if stacks.contains(&Stack::Commonware) {
        "commonware speaks only to commonware: its handshake is its own".into()
    } else {
        format!(
            "{} speaks {}, and {} speaks {}",
            client.name,
            client.wire(),
            server.name,
            server.wire()
        )
    }
}

/// The rules for stacks that speak libp2p's protocols. External stacks have none of their own here.
fn unsupported_by_libp2p(
    client: Stack,
    server: Stack,
    relay: Option<Stack>,
    transport: Transport,
    parameters: &Parameters,
) -> Option<String> {
    let pair = [client, server];
    let has = |stack| pair.contains(&stack);
    if parameters.identity() == Identity::Rsa2048 && has(Stack::Litep2p) {
        return Some("litep2p has Ed25519 identities only".into());
    }
    if transport.is_in_process() {
        return unsupported_in_process(pair, parameters);
    }
    if transport == Transport::TcpTls && has(Stack::Litep2p) {
        return Some("litep2p secures TCP by Noise only, it has no TLS".into());
    }
    let only_go = |stack| matches!(stack, Stack::GoLibp2p | Stack::External);
    if transport == Transport::Webtransport && !pair.into_iter().chain(relay).all(only_go) {
        return Some("of the built-in stacks only go-libp2p has webtransport outside a browser".into());
    }
    if parameters.is_relayed() && has(Stack::Litep2p) {
        return Some("litep2p has no circuit relay".into());
    }
    if relay == Some(Stack::GoLibp2p) && parameters.limits().circuits.is_some() {
        return Some(
            "go-libp2p's relay limits the circuits of each peer (circuitsPerPeer), not all of them".into(),
        );
    }
    if transport == Transport::WebrtcDirect
        && (relay == Some(Stack::Libp2p) || relay.is_some() && has(Stack::Libp2p))
    {
        let reason = "a relay passes on messages of 16 KiB, of which libp2p's webrtc-direct takes 8 KiB (rust-libp2p \
                      issue 4049)";
        return Some(reason.into());
    }
    if transport == Transport::WebrtcDirect && client == Stack::Litep2p {
        return Some("litep2p listens on webrtc-direct, but cannot dial".into());
    }
    if parameters.negotiation() == Negotiation::V1Lazy && client == Stack::Litep2p {
        return Some("litep2p cannot negotiate v1lazy as a client".into());
    }
    if transport == Transport::WebrtcDirect
        && let Some(reason) = unsupported_by_webrtc(client, server, parameters)
    {
        return Some(reason);
    }
    // The client opens all streams, and the server grants the credit for them.
    let most = match (transport, server) {
        (Transport::QuicV1, Stack::Litep2p) => LITEP2P_QUIC_STREAMS,
        (Transport::QuicV1, Stack::GoLibp2p) => GO_QUIC_STREAMS,
        (Transport::Webtransport, Stack::GoLibp2p) => GO_WEBTRANSPORT_STREAMS,
        _ => return None,
    };
    (parameters.streams() > most).then(|| {
        let carrier = match transport {
            Transport::QuicV1 => "QUIC connection",
            _ => "WebTransport session",
        };
        format!("{server} as a server allows {most} streams on a {carrier}, which is not configurable")
    })
}

fn unsupported_by_commonware(transport: Transport, parameters: &Parameters) -> Option<String> {
    let reason = match transport {
        Transport::Tcp if parameters.is_about_streams() => {
            "commonware has one stream for each connection: its stream layer has no muxer"
        }
        Transport::Tcp if parameters.has_relayed_path() => "commonware has no relay",
        Transport::Tcp => return None,
        _ => "commonware speaks its own protocol over TCP only: name it with the transport tcp",
    };
    Some(reason.into())
}

fn unsupported_in_process(pair: [Stack; 2], parameters: &Parameters) -> Option<String> {
    if pair.contains(&Stack::Litep2p) {
        return Some("litep2p has no transport in memory".into());
    }
    if pair.contains(&Stack::GoLibp2p) {
        return Some("go-libp2p has no transport in memory".into());
    }
    if parameters
        .messages()
        .is_some_and(|load| load.mode == MessageMode::Broadcast)
    {
        return Some("a broadcast goes to separate processes, which memory cannot connect".into());
    }
    parameters
        .has_relayed_path()
        .then(|| "peers of a relay are separate processes, which memory cannot connect".into())
}

fn unsupported_by_webrtc(client: Stack, server: Stack, parameters: &Parameters) -> Option<String> {
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
    match server {
        Stack::Litep2p if matches!(download, Some((_, _, 2..))) => Some(
            "litep2p as a server on webrtc-direct gets stuck when it sends on several streams at the same time"
                .into(),
        ),
        Stack::Libp2p if matches!(download, Some((_, Amount::Seconds(_), _))) => {
            let reason = "libp2p as a server on webrtc-direct does not notice that a download is cut off at its time: set \
                          sizes instead of a duration";
            Some(reason.into())
        }
        Stack::Libp2p if parameters.burst() > LIBP2P_WEBRTC_BURST => Some(format!(
            "libp2p as a server on webrtc-direct closes all but {LIBP2P_WEBRTC_BURST} streams that are opened at the same time"
        )),
        Stack::GoLibp2p if parameters.burst() > GO_WEBRTC_BURST => Some(format!(
            "go-libp2p as a server on webrtc-direct loses streams without an error when more than {GO_WEBRTC_BURST} are \
             opened at the same time"
        )),
        _ => None,
    }
}

fn unsupported_by_raw(transport: Transport, parameters: &Parameters) -> Option<String> {
    let reason = match transport {
        Transport::Memory => {
            "raw has no transport in memory: without a link there is nothing to compare with"
        }
        Transport::TcpTls => "raw has no TLS over TCP: the raw reference is plain tcp",
        Transport::Ws => "raw has no WebSocket: the raw reference is plain tcp",
        Transport::WebrtcDirect => "raw has no WebRTC: the raw reference is quic-v1",
        Transport::Webtransport => "raw has no WebTransport: the raw reference is quic-v1",
        _ if parameters.operation() == Some(Distribution::Open) => {
            "raw opens streams without a round trip, so its opens cannot be compared"
        }
        Transport::QuicV1 if parameters.has_relayed_path() => {
            "raw has no reference for this workload on QUIC: its server does not notice a stream on which the client sends nothing"
        }
        Transport::Tcp
            if parameters.has_own_peers()
                && parameters.hosts(1) * u64::from(parameters.streams()) > MOST_CONNECTIONS =>
        {
            return Some(format!(
                "raw has a TCP connection for each stream, and a server accepts {MOST_CONNECTIONS}"
            ));
        }
        _ => return None,
    };
    Some(reason.into())
}
