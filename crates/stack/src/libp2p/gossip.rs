//! Messages by gossipsub: those to all listeners, and those to one peer.
//!
//! Each host subscribes to a topic of its own, by which its peers reach it alone: the beginning, the end and
//! acknowledgements of an exchange. Listeners also subscribe to the topic of messages to all. gossipsub has
//! one queue for each peer, so that an end arrives after all that was published before it.
//!
//! gossipsub has its defaults, except that it takes messages of the load's size: it signs and verifies each
//! message, sends it to all subscribers that it is connected to, and drops it if a peer's queue is full.

use std::{
    collections::{HashMap, HashSet},
    convert::Infallible,
    io,
    task::{Context, Poll, ready},
};

use futures::FutureExt;
use libp2p::{
    PeerId,
    gossipsub::{self, ConfigBuilder, MessageAuthenticity, PublishError, TopicHash},
    identity::Keypair,
    swarm::NetworkBehaviour,
};
use perfrun_contract::parameters::Messages;
use tokio::sync::{mpsc, oneshot};

use super::{
    behaviour::{Behaviour, Speaks},
    driver::Command,
    setup,
};
use crate::{
    Inbound,
    messenger::{BoxMessenger, Broadcaster, Message, Messenger},
};

/// The topic of messages to all listeners.
const ALL: &str = "/perfrun/messages/1.0.0";

/// Bytes that gossipsub adds to a message, at most: topic, author, signature and an RSA key.
const ENVELOPE: usize = 4096;

/// Messages of a peer that wait until they are taken. gossipsub does not wait for its user, so one above is
/// dropped, which shows as a gap in the numbers. Only heads of messages wait: they take 1.5 MiB.
const MOST_WAITING: usize = 1 << 16;

/// The behaviour of a host that passes messages.
#[derive(NetworkBehaviour)]
#[behaviour(to_swarm = "Event", prelude = "libp2p::swarm::derive_prelude")]
pub(super) struct Gossip {
    inner: Behaviour,
    gossipsub: gossipsub::Behaviour,
}

/// An event of gossipsub. The other behaviour has none.
#[derive(Debug)]
pub(super) struct Event(gossipsub::Event);

impl From<Infallible> for Event {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}

impl From<gossipsub::Event> for Event {
    fn from(event: gossipsub::Event) -> Self {
        Self(event)
    }
}

impl Gossip {
    /// A listener gives its exchanges `commands`, to publish by.
    pub(super) fn new(
        mut inner: Behaviour,
        keypair: Keypair,
        load: &Messages,
        listener: Option<mpsc::UnboundedSender<Command>>,
    ) -> Result<Self, crate::Error> {
        let largest = load.message_bytes.0 as usize + ENVELOPE;
        let config = ConfigBuilder::default()
            .max_transmit_size(largest.max(gossipsub::Config::default_max_transmit_size()))
            .build()
            .map_err(setup)?;
        let local = keypair.public().to_peer_id();
        let mut gossipsub = gossipsub::Behaviour::new(MessageAuthenticity::Signed(keypair), config)
            .map_err(|error| setup(io::Error::other(error)))?;
        let all = listener.is_some().then(|| gossipsub::IdentTopic::new(ALL));
        for topic in [Some(gossipsub::IdentTopic::new(local.to_base58())), all]
            .into_iter()
            .flatten()
        {
            gossipsub.subscribe(&topic).map_err(setup)?;
        }
        inner.exchanges.listener = listener;
        Ok(Self { inner, gossipsub })
    }
}

impl Speaks for Gossip {
    fn inner(&mut self) -> &mut Behaviour {
        &mut self.inner
    }

    fn on_event(&mut self, Event(event): Event) {
        match event {
            gossipsub::Event::Subscribed { peer_id, topic } if topic == own(peer_id) => {
                if let Some(messenger) = self.inner.exchanges.subscribed(peer_id) {
                    self.inner.report(Inbound::Messenger(messenger));
                }
            }
            gossipsub::Event::Message { message, .. } => self.inner.exchanges.deliver(&message),
            gossipsub::Event::SlowPeer {
                peer_id,
                failed_messages,
            } => tracing::debug!(%peer_id, ?failed_messages, "gossipsub dropped messages"),
            _ => {}
        }
    }

    fn publish(&mut self, publication: Publication) {
        let Publication { to, message, reply } = publication;
        let (topic, receivers) = match to {
            Some(peer) => (own(peer), 1),
            None => (TopicHash::from_raw(ALL), self.inner.exchanges.open.len() as u64),
        };
        let accepted = match self.gossipsub.publish(topic, bytes(message)) {
            Ok(_) => Ok(receivers),
            Err(PublishError::AllQueuesFull(_)) => Ok(0),
            Err(error) => Err(io::Error::other(error)),
        };
        // Without a receiver, the result is of no use.
        let _ = reply.send(accepted);
    }
}

/// The topic of one peer.
fn own(peer: PeerId) -> TopicHash {
    TopicHash::from_raw(peer.to_base58())
}

/// A message as gossipsub takes it, which is in memory of its own.
fn bytes(message: Message) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(message.bytes);
    message.write_head(&mut bytes);
    bytes.resize(message.bytes, 0);
    bytes
}

/// The exchanges of a host.
#[derive(Default)]
pub(super) struct Exchanges {
    /// For the exchanges of a listener. `None` at a dialler.
    listener: Option<mpsc::UnboundedSender<Command>>,
    /// Who takes the messages of an author.
    open: HashMap<PeerId, mpsc::Sender<Message>>,
    /// Peers that can be reached.
    subscribed: HashSet<PeerId>,
    /// Diallers that wait until they can reach their peer.
    joining: HashMap<PeerId, Join>,
}

/// The reply to a request for an exchange: the messages of the peer.
pub(super) type Join = oneshot::Sender<mpsc::Receiver<Message>>;

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
    fn subscribed(&mut self, peer: PeerId) -> Option<BoxMessenger> {
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
        let (give, take) = mpsc::channel(MOST_WAITING);
        self.open.insert(peer, give);
        take
    }

    /// Gives a message to the exchange with its author.
    fn deliver(&self, message: &gossipsub::Message) {
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

/// A message for gossipsub.
pub(super) struct Publication {
    /// The peer that the message is for. `None` if it is for all listeners.
    to: Option<PeerId>,
    message: Message,
    /// The number of peers whose queues have the message.
    reply: oneshot::Sender<io::Result<u64>>,
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
pub(super) struct All(Publisher);

impl All {
    pub(super) fn new(commands: mpsc::UnboundedSender<Command>) -> Self {
        Self(Publisher {
            to: None,
            commands,
            pending: None,
        })
    }
}

impl Broadcaster for All {
    fn poll_broadcast(&mut self, cx: &mut Context<'_>, message: Message) -> Poll<io::Result<u64>> {
        self.0.poll(cx, message)
    }
}
