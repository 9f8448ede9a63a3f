//! The axes of a run's matrix: stacks, transports and how protocols are negotiated.

use std::{fmt, net::IpAddr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::{AsRefStr, Display, EnumIter, EnumString, IntoEnumIterator, IntoStaticStr};

use crate::quantity::ByteSize;

/// A networking stack that a benchmark node can speak.
#[derive(
    AsRefStr,
    IntoStaticStr,
    Clone,
    Copy,
    Debug,
    Deserialize,
    Display,
    EnumIter,
    EnumString,
    Eq,
    Hash,
    JsonSchema,
    Ord,
    PartialEq,
    PartialOrd,
    Serialize,
)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum Stack {
    /// rust-libp2p.
    Libp2p,
    /// litep2p.
    Litep2p,
    /// go-libp2p, which has a node program of its own.
    #[serde(rename = "go-libp2p")]
    #[strum(serialize = "go-libp2p")]
    GoLibp2p,
    /// commonware-p2p with authenticated peers (lookup) for messages, and its stream layer for other
    /// workloads.
    Commonware,
    /// Plain TCP, or plain QUIC by quinn, without a peer-to-peer layer: what the link and the kernel give.
    Raw,
    /// A stack that perfrun does not know, in any program that speaks the node contract. Only an entry of
    /// `stacks` can be it, with its capabilities.
    External,
}

impl Stack {
    /// The stacks that a matrix may name without an entry in `stacks`.
    pub fn built_in() -> impl Iterator<Item = Self> {
        Self::iter().filter(|stack| *stack != Self::External)
    }

    /// The built-in stack with a name.
    pub fn named(name: &str) -> Option<Self> {
        Self::built_in().find(|stack| stack.as_ref() == name)
    }

    /// The program that speaks it.
    pub fn program(self) -> NodeProgramKind {
        match self {
            Self::Libp2p | Self::Litep2p | Self::Commonware | Self::Raw => NodeProgramKind::Rust,
            Self::GoLibp2p => NodeProgramKind::Go,
            Self::External => NodeProgramKind::External,
        }
    }

    /// What it speaks with its peers: stacks with the same wire can be paired. `None` if only its
    /// capabilities say.
    pub fn wire(self) -> Option<&'static str> {
        match self {
            Self::Libp2p | Self::Litep2p | Self::GoLibp2p => Some("libp2p"),
            Self::Commonware => Some("commonware"),
            Self::Raw => Some("raw"),
            Self::External => None,
        }
    }
}

/// Kinds of node programs.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, Hash, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum NodeProgramKind {
    /// `perfrun-node`.
    #[default]
    Rust,
    /// `perfrun-node-go`.
    Go,
    /// A program that the document names.
    External,
}

impl NodeProgramKind {
    /// Whether this is the default.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// Settings of a stack.
#[serde_with_macros::skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, Eq, Hash, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StackSettings {
    /// How commonware frames what it encrypts. Default: `v1`.
    pub cups: Option<Cups>,
    /// How messages pass from peer to peer, for the workload `messages`. Default: `streams`.
    pub messaging: Option<Messaging>,
    /// The congestion control of TCP, by the name that the kernel has for it, for example `bbr` or `cubic`.
    /// Default: that of the kernel (`net.ipv4.tcp_congestion_control`).
    pub tcp_congestion: Option<TcpCongestion>,
    /// The congestion control of QUIC. Default: that of the stack.
    pub quic_congestion: Option<QuicCongestion>,
    /// The window of yamux over TCP: bytes that the streams of a connection may receive, together, before the
    /// application reads them. Each stream begins with 256Ki, and its window grows up to what the others
    /// leave (litep2p) or to an equal part for each stream of the cell (go-libp2p). Default: that of the
    /// stack.
    pub yamux_window: Option<ByteSize>,
}

impl StackSettings {
    /// Whether nothing is set.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// The version of CUPS, also if it is not set.
    pub fn cups(&self) -> Cups {
        self.cups.unwrap_or_default()
    }

    /// How messages pass, also if it is not set.
    pub fn messaging(&self) -> Messaging {
        self.messaging.unwrap_or_default()
    }

    /// What is set and has an effect on a transport.
    pub fn effective_on(&self, transport: Transport) -> impl Iterator<Item = Setting> {
        Setting::iter().filter(move |setting| match setting {
            Setting::TcpCongestion => self.tcp_congestion.is_some() && transport.is_tcp(),
            Setting::QuicCongestion => self.quic_congestion.is_some() && transport.is_quic(),
            Setting::YamuxWindow => {
                self.yamux_window.is_some() && (transport.is_tcp() || transport.is_in_process())
            }
        })
    }
}

/// What is set, with its names in documents, e.g. `tcpCongestion bbr, yamuxWindow 1Mi`.
impl fmt::Display for StackSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            cups,
            messaging,
            tcp_congestion,
            quic_congestion,
            yamux_window,
        } = self;
        let all = [
            cups.map(|cups| format!("cups {cups}")),
            messaging.map(|messaging| format!("messaging {messaging}")),
            tcp_congestion
                .as_ref()
                .map(|name| format!("tcpCongestion {name}")),
            quic_congestion.map(|name| format!("quicCongestion {name}")),
            yamux_window.map(|window| format!("yamuxWindow {window}")),
        ];
        f.write_str(&all.into_iter().flatten().collect::<Vec<_>>().join(", "))
    }
}

/// A setting that a node must know: another node ignores it, and measures something else.
#[derive(AsRefStr, Clone, Copy, Debug, Display, EnumIter, Eq, PartialEq)]
#[strum(serialize_all = "camelCase")]
pub enum Setting {
    /// [`StackSettings::tcp_congestion`].
    TcpCongestion,
    /// [`StackSettings::quic_congestion`].
    QuicCongestion,
    /// [`StackSettings::yamux_window`].
    YamuxWindow,
}

/// The kernel's name of a congestion control of TCP.
#[derive(Clone, Debug, Deserialize, Eq, Hash, JsonSchema, PartialEq, Serialize)]
#[serde(transparent)]
pub struct TcpCongestion(#[schemars(length(min = 1, max = 15))] pub String);

impl TcpCongestion {
    /// Longest name, in bytes (`TCP_CA_NAME_MAX` of Linux, less the zero at its end).
    pub const LONGEST: usize = 15;
}

impl fmt::Display for TcpCongestion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Congestion controls of QUIC, as quinn has them.
#[derive(AsRefStr, Clone, Copy, Debug, Deserialize, Display, Eq, Hash, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[strum(serialize_all = "camelCase")]
pub enum QuicCongestion {
    /// CUBIC (RFC 9438).
    Cubic,
    /// NewReno (RFC 9002, section 7).
    NewReno,
    /// BBR, which quinn calls experimental.
    Bbr,
}

/// How messages pass from peer to peer.
#[derive(
    AsRefStr, Clone, Copy, Debug, Default, Deserialize, Display, Eq, Hash, JsonSchema, PartialEq, Serialize,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Messaging {
    /// On one stream to each peer, each after its length. commonware passes messages itself.
    #[default]
    Streams,
    /// By litep2p's notification protocol.
    Notifications,
    /// By libp2p's gossipsub, to all peers (mode `broadcast`).
    Gossipsub,
}

/// Versions of CUPS, by which commonware frames what it encrypts.
#[derive(
    AsRefStr, Clone, Copy, Debug, Default, Deserialize, Display, Eq, Hash, JsonSchema, PartialEq, Serialize,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Cups {
    /// Lengths of messages are visible, in 1 to 5 bytes.
    V0,
    /// Lengths of messages are encrypted, in 20 bytes.
    #[default]
    V1,
}

impl Cups {
    /// The only stack that uses it.
    pub const STACK: Stack = Stack::Commonware;
}

/// The name of a stack: `libp2p`, `litep2p`, `go-libp2p`, `commonware`, `raw`, or an entry of `stacks`.
#[derive(Clone, Debug, Deserialize, Eq, Hash, JsonSchema, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(transparent)]
pub struct StackName(#[schemars(length(min = 1, max = 63))] pub String);

impl fmt::Display for StackName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What carries a connection between two peers, security and muxer included.
#[derive(
    AsRefStr,
    IntoStaticStr,
    Clone,
    Copy,
    Debug,
    Deserialize,
    Display,
    EnumIter,
    EnumString,
    Eq,
    Hash,
    JsonSchema,
    Ord,
    PartialEq,
    PartialOrd,
    Serialize,
)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum Transport {
    /// TCP secured by Noise, multiplexed by yamux. For the raw stack: plain TCP. For commonware: TCP secured
    /// by its own handshake, without a muxer.
    Tcp,
    /// TCP secured by TLS 1.3, multiplexed by yamux. For the raw stack: plain TCP.
    TcpTls,
    /// QUIC version 1 (RFC 9000). For the raw stack: quinn without libp2p.
    QuicV1,
    /// WebSocket over TCP, secured by Noise, multiplexed by yamux. Its raw counterpart is plain TCP.
    Ws,
    /// WebRTC data channels without a signalling server: SCTP over DTLS over UDP, peers authenticated by
    /// Noise. Its raw counterpart is QUIC, the other secure transport over UDP.
    WebrtcDirect,
    /// WebTransport: HTTP/3 over QUIC, peers authenticated by Noise. Its raw counterpart is QUIC.
    Webtransport,
    /// Channels in memory, secured by Noise, multiplexed by yamux: what the stack costs when nothing carries
    /// its bytes. Both peers are in one process, so each client node is its own server, `topology.servers` is
    /// ignored, and no network but `none` makes sense.
    Memory,
}

impl Transport {
    /// The transport that the raw stack uses to show what this one could reach at best.
    pub fn raw(self) -> Self {
        match self {
            Self::Tcp | Self::TcpTls | Self::Ws => Self::Tcp,
            Self::QuicV1 | Self::WebrtcDirect | Self::Webtransport => Self::QuicV1,
            Self::Memory => Self::Memory,
        }
    }

    /// Whether TCP carries it.
    pub fn is_tcp(self) -> bool {
        matches!(self, Self::Tcp | Self::TcpTls | Self::Ws)
    }

    /// Whether QUIC carries it.
    pub fn is_quic(self) -> bool {
        matches!(self, Self::QuicV1 | Self::Webtransport)
    }

    /// Whether it joins peers of one process only.
    pub fn is_in_process(self) -> bool {
        self == Self::Memory
    }
}

/// Versions of the Internet Protocol, by the names that Kubernetes has for them.
#[derive(
    AsRefStr,
    Clone,
    Copy,
    Debug,
    Default,
    Deserialize,
    Display,
    EnumIter,
    EnumString,
    Eq,
    Hash,
    JsonSchema,
    PartialEq,
    Serialize,
)]
pub enum IpFamily {
    /// Addresses of 32 bits.
    #[default]
    IPv4,
    /// Addresses of 128 bits.
    IPv6,
}

impl IpFamily {
    /// Whether this is the default.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

impl From<IpAddr> for IpFamily {
    fn from(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(_) => Self::IPv4,
            IpAddr::V6(_) => Self::IPv6,
        }
    }
}

/// How a stream's protocol is agreed on (multistream-select).
#[derive(
    AsRefStr,
    Clone,
    Copy,
    Debug,
    Default,
    Deserialize,
    Display,
    EnumString,
    Eq,
    Hash,
    JsonSchema,
    PartialEq,
    Serialize,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Negotiation {
    /// The stream is open once the peer has confirmed the protocol: one round trip.
    #[default]
    V1,
    /// The stream is handed out before the peer has answered; the first read completes the negotiation.
    V1Lazy,
}

/// The kind of keys that a peer is known and authenticated by.
#[derive(
    AsRefStr, Clone, Copy, Debug, Default, Deserialize, Display, Eq, Hash, JsonSchema, PartialEq, Serialize,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Identity {
    /// Ed25519, which stacks take by default.
    #[default]
    Ed25519,
    /// RSA with 2048 bits, as in the published WebRTC benchmarks. libp2p and go-libp2p only.
    Rsa2048,
}

/// What is spoken on a stream.
#[derive(AsRefStr, Clone, Copy, Debug, Deserialize, Display, Eq, Hash, JsonSchema, PartialEq, Serialize)]
pub enum Protocol {
    /// The libp2p perf protocol (libp2p specs, `perf/perf.md`).
    #[serde(rename = "/perf/1.0.0")]
    #[strum(serialize = "/perf/1.0.0")]
    Perf,
    /// The Litep2p Performance Protocol (litep2p-perf README).
    #[serde(rename = "/litep2p-perf/1.0.0")]
    #[strum(serialize = "/litep2p-perf/1.0.0")]
    Litep2pPerf,
    /// libp2p ping (libp2p specs, `ping/ping.md`): 32 bytes, echoed.
    #[serde(rename = "/ipfs/ping/1.0.0")]
    #[strum(serialize = "/ipfs/ping/1.0.0")]
    Ping,
    /// Of the published relay test (libp2p-relay-test): the listener writes all it has, and closes.
    #[serde(rename = "/libp2p/test/data")]
    #[strum(serialize = "/libp2p/test/data")]
    TestData,
    /// Echo (WebRTC transport benchmarks): a line, echoed.
    #[serde(rename = "/echo/1.0.0")]
    #[strum(serialize = "/echo/1.0.0")]
    Echo,
    /// Messages with sequence numbers, each after its length in four bytes.
    #[serde(rename = "/perfrun/messages/1.0.0")]
    #[strum(serialize = "/perfrun/messages/1.0.0")]
    Messages,
}
