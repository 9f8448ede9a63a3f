//! Exchanges of messages by gossipsub.

use std::{
    collections::{HashMap, HashSet},
    io,
    task::{Context, Poll, ready},
};

use futures::FutureExt;
use libp2p::{PeerId, gossipsub};
use tokio::sync::{mpsc, oneshot};

use super::command::{Command, Join, Publication};
use crate::messenger::{BoxMessenger, Broadcaster, Message, Messenger};

/// Messages of a peer that wait until they are taken. gossipsub does not wait for its user, so one above is
/// dropped, which shows as a gap in the numbers. Only heads of messages wait: they take 1.5 MiB.
const WAITING_MAX: usize = 1 << 16;

/// The exchanges of a host.
#[derive(Default)]
pub(super) struct Exchanges {
    /// For the exchanges of a listener. `None` at a dialler.
    pub(super) listener: Option<mpsc::UnboundedSender<Command>>,
    /// Who takes the messages of an author.
    pub(super) open: HashMap<PeerId, mpsc::Sender<Message>>,
    /// Peers that can be reached.
    subscribed: HashSet<PeerId>,
    /// Diallers that wait until they can reach their peer.
    joining: HashMap<PeerId, Join>,
}

impl Exchanges {
    /// Begins an exchange with a peer, as soon as that can be reached.
    pub(super) fn join(&mut self, peer: PeerId, reply: Join) {
        match self.subscribed.contains(&peer) {
            // Without a receiver, the dialler no longer waits.
            true => drop(reply.send(self.open(peer))),
            false => drop(self.joining.insert(peer, reply)),
        }
    }

    /// Notes that a peer can be reached. Returns a listener's end of the exchange.
    pub(super) fn subscribed(&mut self, peer: PeerId) -> Option<BoxMessenger> {
        if !self.subscribed.insert(peer) {
            return None;
        }
        if let Some(reply) = self.joining.remove(&peer) {
            self.join(peer, reply);
        }
        let commands = self.listener.clone()?;
        Some(Box::new(Exchange::new(peer, commands, self.open(peer))))
    }

    fn open(&mut self, peer: PeerId) -> mpsc::Receiver<Message> {
        let (give, take) = mpsc::channel(WAITING_MAX);
        self.open.insert(peer, give);
        take
    }

    /// Gives a message to the exchange with its author.
    pub(super) fn deliver(&self, message: &gossipsub::Message) {
        let exchange = message.source.and_then(|author| self.open.get(&author));
        let parsed = Message::parsed(&message.data, message.data.len());
        match exchange.zip(parsed) {
            Some((exchange, (message, _))) if exchange.try_send(message).is_ok() => {}
            _ => tracing::debug!(author = ?message.source, "dropped a message"),
        }
    }

    /// Ends the exchange with a peer that has disconnected.
    pub(super) fn end(&mut self, peer: PeerId) {
        self.open.remove(&peer);
        self.subscribed.remove(&peer);
        self.joining.remove(&peer);
    }
}

/// Gives the swarm one message after the other.
struct Publisher {
    to: Option<PeerId>,
    commands: mpsc::UnboundedSender<Command>,
    /// The result of the message that the swarm has.
    pending: Option<oneshot::Receiver<io::Result<u64>>>,
}

impl Publisher {
    fn poll(&mut self, cx: &mut Context<'_>, message: Message) -> Poll<io::Result<u64>> {
        let (to, commands) = (self.to, &self.commands);
        let pending = self.pending.get_or_insert_with(|| {
            let (reply, pending) = oneshot::channel();
            // If the swarm has ended, the lost reply is the error.
            let _ = commands.send(Command::Publish(Publication { to, message, reply }));
            pending
        });
        let accepted = ready!(pending.poll_unpin(cx));
        self.pending = None;
        Poll::Ready(accepted.unwrap_or_else(|_| Err(io::ErrorKind::NotConnected.into())))
    }
}

/// An exchange with one peer.
pub(super) struct Exchange {
    publisher: Publisher,
    inbox: mpsc::Receiver<Message>,
}

impl Exchange {
    pub(super) fn new(
        peer: PeerId,
        commands: mpsc::UnboundedSender<Command>,
        inbox: mpsc::Receiver<Message>,
    ) -> Self {
        let publisher = Publisher {
            to: Some(peer),
            commands,
            pending: None,
        };
        Self { publisher, inbox }
    }
}

impl Messenger for Exchange {
    fn poll_send(&mut self, cx: &mut Context<'_>, message: Message) -> Poll<io::Result<bool>> {
        let accepted = ready!(self.publisher.poll(cx, message))?;
        Poll::Ready(Ok(accepted > 0))
    }

    fn poll_flush(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        // gossipsub sends what it is given.
        Poll::Ready(Ok(()))
    }

    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Message>>> {
        self.inbox.poll_recv(cx).map(Ok)
    }

    fn poll_ended(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while ready!(self.inbox.poll_recv(cx)).is_some() {}
        Poll::Ready(())
    }
}

/// Publishes messages to all listeners.
pub(super) struct GossipBroadcaster(Publisher);

impl GossipBroadcaster {
    pub(super) fn new(commands: mpsc::UnboundedSender<Command>) -> Self {
        Self(Publisher {
            to: None,
            commands,
            pending: None,
        })
    }
}

impl Broadcaster for GossipBroadcaster {
    fn poll_broadcast(&mut self, cx: &mut Context<'_>, message: Message) -> Poll<io::Result<u64>> {
        self.0.poll(cx, message)
    }
}
