//! What perfrun knows of each built-in stack, in its current release. A new stack has its rows here.

use crate::{
    capabilities::TransportLimits,
    distribution::Distribution,
    limits::CONNECTIONS_MAX,
    matrix::{
        Identity, Negotiation, Setting,
        Stack::{self, Commonware, External, GoLibp2p, Libp2p, Litep2p, Raw},
        Transport::{self, Memory, QuicV1, Tcp, TcpTls, WebrtcDirect, Webtransport, Ws},
    },
    parameters::{Messages, Parameters},
    role::Role,
    workload::MessageMode,
};

/// Streams that litep2p's QUIC lets a peer open: quinn's default, which litep2p does not change.
pub const LITEP2P_QUIC_STREAMS: u32 = 100;

/// Most peers of a listening host of commonware, whatever its load.
const COMMONWARE_PEERS: u32 = 64;

/// Messages that all peers of a host of commonware may send at the same moment. commonware allocates room for
/// each of them, about 500 bytes, when a host starts.
const COMMONWARE_ROOM: u32 = 1 << 16;

/// Messages of a peer of commonware that need room beside its window: greetings, and the first message.
pub const COMMONWARE_SPARE: u32 = 64;

/// Most messages of a broadcast of commonware that wait for a peer.
const COMMONWARE_BROADCAST: u32 = 4096;

/// Why a stack of a wire of its own speaks to no other. `None` if it shares its wire.
pub(super) fn why_no_shared_wire(stack: Stack) -> Option<&'static str> {
    match stack {
        Commonware => Some("commonware speaks only to commonware: its handshake is its own"),
        Raw => Some("raw speaks only to raw: it has no peer-to-peer handshake"),
        Libp2p | Litep2p | GoLibp2p | External => None,
    }
}

/// Why a stack cannot play a role in a trial, whatever the other stacks are. `None` if it can, or if only
/// [`limits`] forbid it.
pub fn why_role_unsupported(
    stack: Stack,
    role: Role,
    transport: Transport,
    parameters: &Parameters,
) -> Option<String> {
    let reason = match (stack, transport) {
        (Litep2p, _) if role == Role::Relay => "litep2p has no circuit relay",
        (Litep2p, _) if parameters.identity() == Identity::Rsa2048 => "litep2p has Ed25519 identities only",
        (Litep2p, Memory) => "litep2p has no transport in memory",
        (Litep2p, TcpTls) => "litep2p secures TCP by Noise only, it has no TLS",
        (Libp2p | Litep2p, Webtransport) => {
            "of the built-in stacks only go-libp2p has webtransport outside a browser"
        }
        (Litep2p, _) if parameters.is_relayed() => "litep2p has no circuit relay",
        (Litep2p, WebrtcDirect) if role == Role::Client => {
            "litep2p listens on webrtc-direct, but cannot dial"
        }
        (Litep2p, _) if role == Role::Client && parameters.negotiation() == Negotiation::V1Lazy => {
            "litep2p cannot negotiate v1lazy as a client"
        }
        (GoLibp2p, Memory) => "go-libp2p has no transport in memory",
        (GoLibp2p, _) if role == Role::Relay && parameters.limits().circuits.is_some() => {
            "go-libp2p's relay limits the circuits of each peer (circuitsPerPeer), not all of them"
        }
        (Commonware, Tcp) if parameters.is_about_streams() => {
            "commonware has one stream for each connection: its stream layer has no muxer"
        }
        (Commonware, Tcp) if parameters.has_relayed_path() => "commonware has no relay",
        (Commonware, _) if transport != Tcp => {
            "commonware speaks its own protocol over TCP only: name it with the transport tcp"
        }
        (Raw, Memory) => "raw has no transport in memory: without a link there is nothing to compare with",
        (Raw, TcpTls) => "raw has no TLS over TCP: the raw reference is plain tcp",
        (Raw, Ws) => "raw has no WebSocket: the raw reference is plain tcp",
        (Raw, WebrtcDirect) => "raw has no WebRTC: the raw reference is quic-v1",
        (Raw, Webtransport) => "raw has no WebTransport: the raw reference is quic-v1",
        (Raw, _) if parameters.operation() == Some(Distribution::Open) => {
            "raw opens streams without a round trip, so its opens cannot be compared"
        }
        (Raw, QuicV1) if parameters.has_relayed_path() => {
            "raw has no reference for this workload on QUIC: its server does not notice a stream on which the client sends nothing"
        }
        (Raw, Tcp)
            if parameters.has_own_peers()
                && parameters.hosts(1) * u64::from(parameters.streams()) > CONNECTIONS_MAX as u64 =>
        {
            return Some(format!(
                "raw has a TCP connection for each stream, and a server accepts {CONNECTIONS_MAX}"
            ));
        }
        _ => return None,
    };
    Some(reason.into())
}

/// What limits the streams of a server.
pub fn limits(stack: Stack, transport: Transport) -> TransportLimits {
    let (max_streams, stream_burst) = match (stack, transport) {
        // libp2p holds these data channels until its connection takes them, and closes any more.
        (Libp2p, WebrtcDirect) => (None, Some(10)),
        (Litep2p, QuicV1) => (Some(LITEP2P_QUIC_STREAMS), None),
        (GoLibp2p, QuicV1) => (Some(256), None),
        // The session and its handshake are streams as well.
        (GoLibp2p, Webtransport) => (Some(254), None),
        // What it takes without a loss.
        (GoLibp2p, WebrtcDirect) => (None, Some(50)),
        _ => (None, None),
    };
    TransportLimits {
        max_streams,
        stream_burst,
    }
}

/// Why a built-in stack does not have a setting. `None` if it does, or if the stack is not built in.
pub fn why_setting_unsupported(stack: Stack, setting: Setting) -> Option<&'static str> {
    Some(match (setting, stack) {
        (_, External)
        | (Setting::TcpCongestion, Libp2p | Raw)
        | (Setting::QuicCongestion, Raw)
        | (Setting::YamuxWindow, Litep2p | GoLibp2p) => return None,
        (Setting::TcpCongestion, Litep2p) => {
            "litep2p gives no access to its TCP sockets: remove tcpCongestion, and set the default of the machine"
        }
        (Setting::TcpCongestion, GoLibp2p) => {
            "go-libp2p gives no access to the TCP sockets that it accepts: remove tcpCongestion, and set the default \
             of the machine"
        }
        (Setting::TcpCongestion, Commonware) => {
            "commonware gives no access to its TCP sockets: remove tcpCongestion, and set the default of the machine"
        }
        (Setting::QuicCongestion, Libp2p) => {
            "libp2p's QUIC always uses quinn's default, cubic: remove quicCongestion"
        }
        (Setting::QuicCongestion, Litep2p) => {
            "litep2p's QUIC always uses quinn's default, cubic: remove quicCongestion"
        }
        (Setting::QuicCongestion, GoLibp2p) => {
            "go-libp2p's QUIC (quic-go) always uses newReno: remove quicCongestion"
        }
        (Setting::QuicCongestion, Commonware) => "commonware has no QUIC: remove quicCongestion",
        (Setting::YamuxWindow, Libp2p) => {
            "libp2p's yamux sets its windows itself, up to 1Gi for each connection: remove yamuxWindow"
        }
        (Setting::YamuxWindow, Commonware | Raw) => "raw and commonware have no yamux: remove yamuxWindow",
    })
}

/// Round trips of a dial that one [`DIAL_TIMEOUT`](crate::limits::DIAL_TIMEOUT) spans. For stacks and
/// transports that are not named, it is one: they need at least that.
pub fn dial_round_trips(stack: Stack, transport: Transport) -> u32 {
    match (stack, transport) {
        // It waits for the answer of each negotiation, and libp2p for none. Over TCP, it has connected
        // before.
        (Litep2p, Tcp) => 3,
        (Litep2p, Ws) => 5,
        (Libp2p, Tcp | TcpTls) | (Commonware, Tcp) => 2,
        (Libp2p, Ws) => 3,
        (Libp2p, WebrtcDirect) => 6,
        _ => 1,
    }
}

/// Whether a workload has the stream layer of commonware, below commonware-p2p.
pub fn is_stream_layer(stack: Stack, parameters: &Parameters) -> bool {
    stack == Commonware && parameters.messages().is_none()
}

/// What cells of [`is_stream_layer`] are called beside their pair of stacks.
pub const STREAM_LAYER: &str = "commonware: its stream layer";

/// What a note says of their values.
pub const STREAM_LAYER_NOTE: &str = "of commonware's stream layer, which commonware-p2p is built on: each stream is an encrypted TCP connection";

/// Whether each stream is a connection of its own.
pub fn stream_is_connection(stack: Stack, transport: Transport, parameters: &Parameters) -> bool {
    (stack == Raw && transport == Tcp) || is_stream_layer(stack, parameters)
}

/// Peers that a server can have. `None` if no limit is known.
pub fn most_peers(stack: Stack, parameters: &Parameters) -> Option<u32> {
    let load = parameters.messages().filter(|_| stack == Commonware);
    load.map(commonware_peers)
}

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
