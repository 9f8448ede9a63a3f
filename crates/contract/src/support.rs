//! What stacks cannot do, in their current releases.

use crate::{
    matrix::{Identity, Negotiation, Protocol, Stack, Transport},
    parameters::{Amount, Messages, Parameters},
    workload::{Direction, MessageMode, OpenMode},
};

/// Streams that litep2p's QUIC lets a peer open: quinn's default, which litep2p does not change.
pub const LITEP2P_QUIC_STREAMS: u32 = 100;

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

/// Why a pair of stacks cannot run a workload over a transport. `None` if it can.
pub fn unsupported(
    client: Stack,
    server: Stack,
    transport: Transport,
    parameters: &Parameters,
) -> Option<String> {
    match (client, server) {
        (Stack::Raw, Stack::Raw) => return unsupported_by_raw(transport, parameters),
        (Stack::Raw, _) | (_, Stack::Raw) => {
            return Some("raw speaks only to raw: it has no peer-to-peer handshake".into());
        }
        (Stack::Commonware, Stack::Commonware) => return unsupported_by_commonware(transport, parameters),
        (Stack::Commonware, _) | (_, Stack::Commonware) => {
            return Some("commonware speaks only to commonware: its handshake is its own".into());
        }
        _ => {}
    }
    if parameters.identity() == Identity::Rsa2048 && [client, server].contains(&Stack::Litep2p) {
        return Some("litep2p has Ed25519 identities only".into());
    }
    if transport.is_in_process() {
        return unsupported_in_process([client, server], parameters);
    }
    if transport == Transport::TcpTls && [client, server].contains(&Stack::Litep2p) {
        return Some("litep2p secures TCP by Noise only, it has no TLS".into());
    }
    if parameters.is_relayed() && [client, server].contains(&Stack::Litep2p) {
        return Some("litep2p has no circuit relay".into());
    }
    if parameters.is_relayed() && transport == Transport::WebrtcDirect {
        let reason = "libp2p's relay passes on messages of 16 KiB, of which libp2p's webrtc-direct takes 8 KiB (rust-libp2p \
                      issue 4049)";
        return Some(reason.into());
    }
    if transport == Transport::WebrtcDirect && client == Stack::Litep2p {
        return Some("litep2p listens on webrtc-direct, but cannot dial".into());
    }
    if parameters.negotiation() == Negotiation::V1Lazy && client == Stack::Litep2p {
        return Some("litep2p cannot negotiate v1lazy as a client".into());
    }
    // The client opens all streams, and the server grants the credit for them.
    match (transport, server) {
        (Transport::QuicV1, Stack::Litep2p) if parameters.streams() > LITEP2P_QUIC_STREAMS => Some(format!(
            "litep2p as a server allows {LITEP2P_QUIC_STREAMS} streams on a QUIC connection, which is not configurable"
        )),
        (Transport::WebrtcDirect, Stack::Litep2p) => unsupported_by_litep2p_webrtc(parameters),
        (Transport::WebrtcDirect, _) if is_cut_off(parameters) => {
            let reason = "libp2p as a server on webrtc-direct does not notice that a download is cut off at its time: set \
                          sizes instead of a duration";
            Some(reason.into())
        }
        (Transport::WebrtcDirect, _) if burst(parameters) > LIBP2P_WEBRTC_BURST => Some(format!(
            "libp2p as a server on webrtc-direct closes all but {LIBP2P_WEBRTC_BURST} streams that are opened at the same time"
        )),
        _ => None,
    }
}

fn unsupported_by_commonware(transport: Transport, parameters: &Parameters) -> Option<String> {
    let reason = match (transport, parameters) {
        (Transport::Tcp, Parameters::Substreams { .. } | Parameters::Echo(_)) => {
            "commonware has one stream for each connection: its stream layer has no muxer"
        }
        (Transport::Tcp, Parameters::Relay { .. } | Parameters::RelayStress { .. }) => {
            "commonware has no relay"
        }
        (Transport::Tcp, _) => return None,
        _ => "commonware speaks its own protocol over TCP only: name it with the transport tcp",
    };
    Some(reason.into())
}

fn unsupported_in_process(pair: [Stack; 2], parameters: &Parameters) -> Option<String> {
    if pair.contains(&Stack::Litep2p) {
        return Some("litep2p has no transport in memory".into());
    }
    if matches!(parameters, Parameters::Messages(load) if load.mode == MessageMode::Broadcast) {
        return Some("a broadcast goes to separate processes, which memory cannot connect".into());
    }
    parameters
        .has_relayed_path()
        .then(|| "peers of a relay are separate processes, which memory cannot connect".into())
}

fn unsupported_by_litep2p_webrtc(parameters: &Parameters) -> Option<String> {
    let protocol = parameters.protocol();
    if matches!(protocol, Protocol::Perf | Protocol::TestData) {
        return Some(format!(
            "litep2p acknowledges the end of a webrtc-direct stream, which libp2p treats as an error (rust-libp2p issue \
             4600): {} needs that end, litep2p-perf does not",
            protocol.as_ref()
        ));
    }
    let many = matches!(parameters, Parameters::Bandwidth { streams: 2.., direction, .. } if *direction != Direction::Upload);
    many.then(|| {
        "litep2p as a server on webrtc-direct gets stuck when it sends on several streams at the same time"
            .into()
    })
}

/// Whether the client stops the server while the server sends.
fn is_cut_off(parameters: &Parameters) -> bool {
    match parameters {
        Parameters::Bandwidth {
            amount: Amount::Seconds(_),
            direction,
            ..
        } => *direction != Direction::Upload,
        _ => false,
    }
}

/// Streams that are opened at the same time on one connection.
fn burst(parameters: &Parameters) -> u32 {
    match parameters {
        Parameters::Substreams {
            mode: OpenMode::Paced,
            ..
        } => 1,
        Parameters::Echo(echo) if echo.stream_interval_seconds > 0.0 => 1,
        _ => parameters.streams(),
    }
}

fn unsupported_by_raw(transport: Transport, parameters: &Parameters) -> Option<String> {
    let reason = match (transport, parameters) {
        (Transport::Memory, _) => {
            "raw has no transport in memory: without a link there is nothing to compare with"
        }
        (Transport::TcpTls, _) => "raw has no TLS over TCP: its baseline is plain tcp",
        (Transport::Ws, _) => "raw has no WebSocket: its baseline is plain tcp",
        (Transport::WebrtcDirect, _) => "raw has no WebRTC: its baseline is quic-v1",
        (_, Parameters::Substreams { .. }) => {
            "raw opens streams without a round trip, so its opens cannot be compared"
        }
        (Transport::QuicV1, parameters) if parameters.has_relayed_path() => {
            "raw has no baseline for this on QUIC: its server does not notice a stream on which the client sends nothing"
        }
        (Transport::Tcp, Parameters::Echo(echo)) if echo.streams() > MOST_CONNECTIONS => {
            return Some(format!(
                "raw has a TCP connection for each stream, and a server accepts {MOST_CONNECTIONS}"
            ));
        }
        _ => return None,
    };
    Some(reason.into())
}
