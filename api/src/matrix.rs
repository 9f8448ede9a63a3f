//! The axes of a run's matrix: stacks, transports and how protocols are negotiated.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::{AsRefStr, Display, EnumIter, EnumString, IntoStaticStr};

/// A networking stack that our benchmark node can speak.
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
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Stack {
    /// rust-libp2p.
    Libp2p,
    /// litep2p.
    Litep2p,
    /// Plain TCP, or plain QUIC by quinn, without a peer-to-peer layer: what the link and the kernel give.
    Raw,
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
    /// TCP secured by Noise, multiplexed by yamux. For the raw stack: plain TCP.
    Tcp,
    /// TCP secured by TLS 1.3, multiplexed by yamux. For the raw stack: plain TCP.
    TcpTls,
    /// QUIC version 1 (RFC 9000). For the raw stack: quinn without libp2p.
    QuicV1,
    /// WebSocket over TCP, secured by Noise, multiplexed by yamux. Its raw counterpart is plain TCP.
    Ws,
    /// WebRTC data channels without a signalling server: SCTP over DTLS over UDP, peers authenticated by Noise. Its raw
    /// counterpart is QUIC, the other secure transport over UDP.
    WebrtcDirect,
}

impl Transport {
    /// The transport that the raw stack uses to show what this one could reach at best.
    pub fn raw(self) -> Self {
        match self {
            Self::Tcp | Self::TcpTls | Self::Ws => Self::Tcp,
            Self::QuicV1 | Self::WebrtcDirect => Self::QuicV1,
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
}
