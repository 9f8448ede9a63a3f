//! Messages by gossipsub: those to all listeners, and those to one peer.
//!
//! Each host subscribes to a topic of its own, by which its peers reach it alone: the beginning, the end and
//! acknowledgements of an exchange. Listeners also subscribe to the topic of messages to all. gossipsub has
//! one queue for each peer, so that an end arrives after all that was published before it.
//!
//! gossipsub has its defaults, except that it takes messages of the load's size: it signs and verifies each
//! message, sends it to all subscribers that it is connected to, and drops it if a peer's queue is full.

use std::{convert::Infallible, io};

use libp2p::{
    PeerId,
    gossipsub::{self, ConfigBuilder, MessageAuthenticity, PublishError, TopicHash},
    identity::Keypair,
    swarm::NetworkBehaviour,
};
use perfrun_contract::parameters::Messages;
use tokio::sync::mpsc;

use super::{
    behaviour::{Behaviour, StreamHost},
    command::{Command, Publication},
    setup,
};
use crate::{Inbound, messenger::Message};

/// The topic of messages to all listeners.
const ALL: &str = "/perfrun/messages/1.0.0";

/// Bytes that gossipsub adds to a message, at most: topic, author, signature and an RSA key.
const ENVELOPE: usize = 4096;

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
    /// Gossip of a load. `listener` is the sender that a listener gives its exchanges, to publish by.
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

impl StreamHost for Gossip {
    fn inner(&mut self) -> &mut Behaviour {
        &mut self.inner
    }

    fn on_event(&mut self, Event(event): Event) {
        match event {
            gossipsub::Event::Subscribed { peer_id, topic } if topic == topic_of(peer_id) => {
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
            Some(peer) => (topic_of(peer), 1),
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

/// The topic to which one peer subscribes.
fn topic_of(peer: PeerId) -> TopicHash {
    TopicHash::from_raw(peer.to_base58())
}

/// A message as gossipsub takes it, which is in memory of its own.
fn bytes(message: Message) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(message.bytes);
    message.write_head(&mut bytes);
    bytes.resize(message.bytes, 0);
    bytes
}
