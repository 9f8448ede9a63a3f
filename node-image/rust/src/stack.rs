//! The stacks under test, behind one small interface.
//!
//! An adapter only sets up a host, dials, and delivers streams. What is sent on a stream, what is timed and what is
//! counted is written once, in `crate::workload`, and is the same for every stack.

mod address;
mod interfaces;
mod libp2p;
mod litep2p;
mod metrics;
mod raw;
mod tasks;
mod webrtc;

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use perfrun_contract::{
    matrix::{Identity, Negotiation, Protocol, Stack, Transport},
    workload::RelayLimits,
};
use thiserror::Error;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::mpsc,
};

pub use self::metrics::StackMetrics;

/// How long a dial may take. The default of libp2p and litep2p on TCP, given to all stacks and transports alike.
const DIAL_TIMEOUT: Duration = Duration::from_secs(10);

/// How long opening a stream may take. The stacks' defaults differ (libp2p 10 s, litep2p 5 s), so that a burst of
/// opens on a slow link would fail on one of them only.
const OPEN_TIMEOUT: Duration = Duration::from_secs(30);

/// How long an unused connection is kept: a workload may pause, and only it decides when a connection ends.
const IDLE_TIMEOUT: Duration = Duration::from_secs(3600);

/// Connections that peers may have with a listening host at the same time, established or not; more are refused. Ten
/// times what a large run needs, and less than would fill memory.
const MOST_INBOUND: usize = 8192;

/// How long a graceful close may take before what is left is dropped.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// A bidirectional byte stream of any stack.
///
/// What the exchange has to know, because stacks differ in it:
///
/// - A write that returned is queued, not delivered, and `flush` does not change that. Shutting down waits for the
///   peer's acknowledgement on litep2p's QUIC only. Delivery is proved by a reply or by the peer's end of stream.
/// - Dropping a stream that was not shut down *resets* it on yamux, where the peer reads that as a plain end of
///   stream (0 bytes, no error), and *finishes* it on QUIC. So an end of stream never proves completeness: count
///   bytes. On raw TCP, dropping a socket with unread data resets the connection and destroys what was sent.
/// - Dropping the reading half of a QUIC stream before its end makes the peer's writes and litep2p's shutdown fail.
/// - Read and write from one task: litep2p's yamux loses wake-ups when two tasks poll one stream.
/// - Write in chunks of any size; a stack takes what fits (yamux 16 KiB at a time).
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// An owned stream.
pub type BoxStream = Box<dyn Stream>;

/// Everything a host needs to know before it starts.
#[derive(Clone)]
pub struct HostConfig {
    /// What carries connections.
    pub transport: Transport,
    /// The one protocol that streams of this host speak.
    pub protocol: Protocol,
    /// How the dialler negotiates [`Self::protocol`]. litep2p refuses what it cannot do; raw negotiates nothing, so that it
    /// is the baseline of either way.
    pub negotiation: Negotiation,
    /// Address and port to listen on; port 0 takes a free one. `None`: this host only dials.
    pub listen: Option<(IpAddr, u16)>,
    /// Who it is.
    pub identity: Keys,
    /// Streams that one connection must be able to hold open.
    pub max_streams: usize,
    /// Its part where peers meet through a relay.
    pub relaying: Relaying,
    /// Where stacks that keep metrics of their own register events.
    pub metrics: Arc<StackMetrics>,
}

/// The keys of a host.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Keys {
    /// New ones.
    New(Identity),
    /// The Ed25519 keys of this seed.
    Seeded([u8; 32]),
}

/// A host's part where peers meet through a relay.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Relaying {
    /// None.
    #[default]
    No,
    /// It is the relay, and grants so much. The raw stack's, a plain proxy, grants all.
    Relay(RelayLimits),
    /// It may [reserve](Host::reserve) a place at a relay, and dial others through one.
    Peer,
}

/// What happens at a listening host.
pub enum Inbound {
    /// A peer's connection is established, secured and multiplexed.
    Connection,
    /// A peer opened a stream and its protocol is negotiated.
    Stream(BoxStream),
    /// A peer opened a stream of `/ipfs/ping/1.0.0` beside the host's own protocol.
    Ping(BoxStream),
    /// What happened at a relay.
    Relay(RelayEvent),
}

/// What happens at a relay.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum RelayEvent {
    /// A circuit is up.
    CircuitOpened,
    /// A circuit is gone.
    CircuitClosed,
    /// Something was refused; in the words of the circuit relay v2 specification, with its number.
    Refused {
        /// `reservation` or `circuit`.
        what: &'static str,
        /// The status.
        status: &'static str,
    },
}

/// A place at a relay; it ends when this is dropped.
pub struct Reservation {
    /// The address under which peers reach the host through the relay.
    pub address: String,
    /// Until the connection with the relay was established, if there is one.
    pub relay_connected: Option<Duration>,
    /// From then on until the relay granted the reservation.
    pub granted: Duration,
    /// The connection with the relay.
    pub connection: Option<Box<dyn Connection>>,
}

/// Whom to ask for a round trip.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Whom {
    /// The peer that was dialled.
    Peer,
    /// The relay through which it was dialled.
    Relay,
}

/// One peer: an identity, a transport and, when it listens, a socket.
///
/// Dropping a host ends its tasks; [`Host::close`] also waits for them.
#[async_trait]
pub trait Host: Send + Sync {
    /// The addresses peers can dial, complete with `/p2p/<peer id>` where the stack has one. Empty for a dialler.
    fn addresses(&self) -> &[String];

    /// Opens a connection and waits until it is established, secured and multiplexed.
    async fn dial(&self, address: &str) -> Result<Box<dyn Connection>, Error>;

    /// Reserves a place at a relay, so that peers can dial this host through it.
    async fn reserve(&self, relay: &str) -> Result<Reservation, Error>;

    /// Closes listeners and connections, and waits until sockets and tasks are gone.
    ///
    /// Streams are the caller's: drop them first. A raw TCP stream is its own connection, and a QUIC connection
    /// lives on while one of its streams is held.
    async fn close(self: Box<Self>);
}

/// An established connection, on the dialling side. Dropping it closes it, without waiting.
#[async_trait]
pub trait Connection: Send + Sync {
    /// How long each step of the dial took, as far as the stack lets one see.
    fn phases(&self) -> DialPhases;

    /// Opens a stream and negotiates its protocol. May be called concurrently.
    async fn open(&self) -> Result<BoxStream, Error>;

    /// Opens a stream of `/ipfs/ping/1.0.0`; nothing, where the stack has none or there is no relay.
    async fn ping(&self, _: Whom) -> Result<Option<BoxStream>, Error> {
        Ok(None)
    }

    /// Closes the connection and waits until the stack says that it is closed.
    async fn close(self: Box<Self>);
}

/// The steps of a dial, each measured from its beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct DialPhases {
    /// Until the transport's socket is connected (TCP only: QUIC secures while it connects).
    pub transport: Option<Duration>,
    /// Until the connection with the relay is established, where there is one.
    pub relay: Option<Duration>,
    /// Until the connection is established, secured and multiplexed.
    pub established: Duration,
}

/// Starts a host; what peers do at a listening host is sent to `inbound`.
pub async fn start(
    stack: Stack,
    config: HostConfig,
    inbound: mpsc::UnboundedSender<Inbound>,
) -> Result<Box<dyn Host>, Error> {
    match stack {
        Stack::Libp2p => libp2p::start(config, inbound).await,
        Stack::Litep2p => litep2p::start(config, inbound).await,
        Stack::Raw => raw::start(config, inbound).await,
    }
}

/// The multiaddr of a socket, for example `/ip4/127.0.0.1/udp/4001/quic-v1`.
pub fn socket_address(transport: Transport, socket: SocketAddr) -> String {
    address::multiaddr(transport, socket).to_string()
}

/// Why a stack could not do what it was asked.
#[derive(Debug, Error)]
pub enum Error {
    /// This stack has no such transport or negotiation; the plan should have skipped it.
    #[error("{stack} cannot do {what}")]
    Unsupported {
        /// The stack.
        stack: Stack,
        /// What it lacks.
        what: String,
    },
    /// The listener could not be bound.
    #[error("failed to listen on {address}: {reason}")]
    Listen {
        /// The address asked for.
        address: String,
        /// What the stack said.
        reason: String,
    },
    /// The address is not one that this stack can dial.
    #[error("unable to dial {address}: {reason}")]
    Address {
        /// The address asked for.
        address: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The peer could not be reached, or the handshake failed.
    #[error("failed to dial {address}: {reason}")]
    Dial {
        /// The address dialled.
        address: String,
        /// What the stack said.
        reason: String,
    },
    /// A relay refused a reservation or a circuit.
    #[error("the relay {relay} refused the {what}: {status}")]
    Refused {
        /// The relay's address.
        relay: String,
        /// `reservation` or `circuit`.
        what: &'static str,
        /// In the words of the circuit relay v2 specification, with its number.
        status: &'static str,
    },
    /// A stream could not be opened.
    #[error("failed to open a stream: {0}")]
    Open(String),
    /// The stack's own set-up failed (keys, certificates, runtime).
    #[error("failed to set up {stack}: {reason}")]
    Setup {
        /// The stack.
        stack: Stack,
        /// What failed.
        reason: String,
    },
}

#[cfg(not(feature = "webrtc"))]
impl Error {
    fn without_webrtc(stack: Stack) -> Self {
        let what = "webrtc-direct, because this perfrun-node was built without it; \
            `cargo build --release -p perfrun-node` builds all of it";
        Self::Unsupported {
            stack,
            what: what.to_owned(),
        }
    }
}
