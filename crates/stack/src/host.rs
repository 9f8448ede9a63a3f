//! What all stacks look like: a host, its connections and streams, and what it is started with.

use std::{
    net::IpAddr,
    sync::{Arc, OnceLock},
    time::Duration,
};

use async_trait::async_trait;
use perfrun_contract::{
    matrix::{Identity, StackSettings, Transport},
    parameters::Parameters,
    role::Role,
    workload::RelayLimits,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    runtime::Handle,
};

use crate::{
    StackMetrics,
    error::Error,
    messenger::{BoxMessenger, Broadcaster},
};

/// A bidirectional byte stream of any stack.
///
/// Stacks differ in what an exchange has to know:
///
/// - A write that returned is queued, not delivered, and `flush` does not change that. A shutdown waits for
///   the peer's acknowledgement on litep2p's QUIC only. Only a reply or the peer's end of stream proves
///   delivery.
/// - Dropping a stream that was not shut down *resets* it on yamux, where the peer reads a plain end of
///   stream (0 bytes, no error), and *finishes* it on QUIC. An end of stream therefore never proves
///   completeness: count bytes. On raw TCP, dropping a socket with unread data resets the connection and
///   destroys what was sent.
/// - Dropping the reading half of a QUIC stream before its end makes the peer's writes and litep2p's shutdown
///   fail.
/// - On commonware, an empty message is the end of stream, and dropping a stream without one resets it.
/// - Read and write from one task: litep2p's yamux loses wake-ups when two tasks poll one stream.
/// - Write in chunks of any size: a stack takes what fits (yamux 16 KiB at a time).
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// An owned stream.
pub type BoxStream = Box<dyn Stream>;

/// Everything a host needs to know before it starts.
#[derive(Clone)]
pub struct HostConfig {
    /// Settings of the stack.
    pub settings: StackSettings,
    /// The transport of its connections.
    pub transport: Transport,
    /// The load. It has the protocol of the host's streams, how a dialler negotiates it, and messages, by
    /// which stacks that pass messages size their queues. commonware and raw negotiate nothing.
    pub parameters: Parameters,
    /// Address and port to listen on; port 0 takes a free one. `None` if the host only dials.
    pub listen: Option<(IpAddr, u16)>,
    /// The keys that name the host to its peers.
    pub identity: Keys,
    /// Streams that one connection must be able to have open.
    pub max_streams: usize,
    /// The host's part in a workload with a relay.
    pub relaying: Relaying,
    /// Metrics that stacks keep of themselves.
    pub metrics: Arc<StackMetrics>,
    /// Takes the congestion control of the host's connections.
    pub congestion: UsedCongestion,
}

impl HostConfig {
    /// The host's role in the trial.
    pub(crate) fn role(&self) -> Role {
        match (self.relaying, self.listen) {
            (Relaying::Relay(_), _) => Role::Relay,
            (_, Some(_)) => Role::Server,
            (_, None) => Role::Client,
        }
    }
}

/// The congestion control that connections of a trial use, once that is known.
pub type UsedCongestion = Arc<OnceLock<String>>;

/// The keys of a host.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Keys {
    /// New ones.
    New(Identity),
    /// The Ed25519 keys of this seed.
    Seeded([u8; 32]),
}

/// A host's part in a workload with a relay.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Relaying {
    /// No part.
    #[default]
    No,
    /// The host is the relay, with these limits. The raw stack's relay, a plain proxy, has none.
    Relay(RelayLimits),
    /// The host may [reserve](Host::reserve) a place at a relay, and dial others through a relay.
    Peer,
}

/// An event at a listening host.
pub enum Inbound {
    /// A peer's connection is established, secured and multiplexed.
    Connection,
    /// A peer opened a stream and its protocol is negotiated.
    Stream(BoxStream),
    /// A peer opened a stream of `/ipfs/ping/1.0.0` beside the host's own protocol.
    Ping(BoxStream),
    /// A peer of a stack that passes messages is connected.
    Messenger(BoxMessenger),
    /// An event at a relay.
    Relay(RelayEvent),
}

/// An event at a relay.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum RelayEvent {
    /// A circuit was opened.
    CircuitOpened,
    /// A circuit was closed.
    CircuitClosed,
    /// The relay refused a request.
    Refused {
        /// `reservation` or `circuit`.
        what: &'static str,
        /// The name and number of the status in the circuit relay v2 specification.
        status: &'static str,
    },
}

/// A place at a relay, which ends when this value is dropped.
pub struct Reservation {
    /// The address under which peers reach the host through the relay.
    pub address: String,
    /// Time until the connection with the relay was established. `None` without such a connection.
    pub relay_connected: Option<Duration>,
    /// Time from that moment until the relay granted the reservation.
    pub granted: Duration,
    /// The connection with the relay. `None` for a proxy, which needs none.
    pub connection: Option<Box<dyn Connection>>,
}

/// Which end of a connection answers a ping.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum PingTarget {
    /// The peer that was dialled.
    Peer,
    /// The relay through which it was dialled.
    Relay,
}

/// A peer: an identity, a transport and, if it listens, a socket.
///
/// Dropping a host ends its tasks; [`Host::close`] also waits for them.
#[async_trait]
pub trait Host: Send + Sync {
    /// The addresses peers can dial, complete with `/p2p/<peer id>` where the stack has one. Empty for a
    /// dialler.
    fn addresses(&self) -> &[String];

    /// Opens a connection and waits until it is established, secured and multiplexed.
    async fn dial(&self, address: &str) -> Result<Box<dyn Connection>, Error>;

    /// What the stack did that spoils a measurement, although no exchange failed. `None` if nothing did.
    fn fault(&self) -> Option<String> {
        None
    }

    /// Reserves a place at a relay, so that peers can dial this host through it.
    async fn reserve(&self, relay: &str) -> Result<Reservation, Error>;

    /// What gives the stack a message for all peers that this host has dialled. `None` if a message is sent
    /// to each of them.
    fn broadcaster(&self) -> Option<Box<dyn Broadcaster>> {
        None
    }

    /// Where the stack's own tasks run. An exchange that is in one process runs there, too, so that a message
    /// costs no switch between runtimes.
    fn runtime(&self) -> Handle {
        Handle::current()
    }

    /// Closes listeners and connections, and waits until sockets and tasks are gone.
    ///
    /// Drop all streams first. A raw TCP stream is its own connection, and a QUIC connection stays open while
    /// one of its streams is held.
    async fn close(self: Box<Self>);
}

/// An established connection, on the dialling side. Dropping it closes it, without waiting.
#[async_trait]
pub trait Connection: Send + Sync {
    /// How long each step of the dial took, as far as the stack reports it.
    fn phases(&self) -> DialPhases;

    /// Opens a stream and negotiates its protocol. May be called concurrently.
    async fn open(&self) -> Result<BoxStream, Error>;

    /// Opens a stream of `/ipfs/ping/1.0.0`. `None` if the stack does not speak it, or without a relay.
    async fn ping(&self, _: PingTarget) -> Result<Option<BoxStream>, Error> {
        Ok(None)
    }

    /// Returns this end of the exchange of messages, once. `None` if the stack has streams instead.
    async fn messenger(&self) -> Result<Option<BoxMessenger>, Error> {
        Ok(None)
    }

    /// Closes the connection and waits until the stack reports that it is closed.
    async fn close(self: Box<Self>);
}

/// The steps of a dial, each measured from the beginning of the dial.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct DialPhases {
    /// Until the transport's socket is connected. `None` except on TCP: QUIC secures while it connects.
    pub transport: Option<Duration>,
    /// Until the connection with the relay is established. `None` without a relay.
    pub relay: Option<Duration>,
    /// Until the connection is established, secured and multiplexed.
    pub established: Duration,
}

impl DialPhases {
    /// The phases of a dial by a stack that reports nothing but the last step.
    pub(crate) fn of(established: Duration) -> Self {
        Self {
            established,
            ..Self::default()
        }
    }
}
