//! What hosts and connections request of the task that polls their swarm.

use std::io;

use libp2p::{PeerId, multiaddr::Multiaddr, swarm::ConnectionId};
use tokio::sync::{mpsc, oneshot};

use super::{Established, transport::Connected};
use crate::messenger::Message;

/// A request of a host or a connection to the swarm.
pub(super) enum Command {
    /// Dial, and record when the socket is connected.
    Dial {
        address: Multiaddr,
        connected: Connected,
        reply: oneshot::Sender<Result<Established, Failure>>,
    },
    /// Reserve a place at a relay. The reply is the address behind that relay.
    Reserve {
        relay: Multiaddr,
        reply: oneshot::Sender<Result<Multiaddr, Failure>>,
    },
    /// Exchange messages with a peer by gossipsub.
    Join { peer: PeerId, reply: Join },
    /// Publish a message by gossipsub.
    Publish(Publication),
    /// Close a connection. The reply follows when it is closed.
    Close {
        id: ConnectionId,
        reply: Option<oneshot::Sender<()>>,
    },
    /// Close listeners and connections. The reply follows when they are closed.
    Shutdown { reply: oneshot::Sender<()> },
}

/// Why a dial or a reservation failed.
pub(super) struct Failure {
    pub reason: String,
    /// The status of a refusal by a relay. `None` for other failures.
    pub refused: Option<&'static str>,
}

/// The reply to a request for an exchange: the messages of the peer.
pub(super) type Join = oneshot::Sender<mpsc::Receiver<Message>>;

/// A message for gossipsub.
pub(super) struct Publication {
    /// The peer that the message is for. `None` if it is for all listeners.
    pub to: Option<PeerId>,
    pub message: Message,
    /// The number of peers whose queues have the message.
    pub reply: oneshot::Sender<io::Result<u64>>,
}
