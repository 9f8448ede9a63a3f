//! The task that polls a swarm.

use std::{
    collections::HashMap,
    error::Error,
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    sync::Arc,
};

use futures::StreamExt;
use libp2p::{
    Swarm,
    core::transport::{ListenerId, TransportError},
    multiaddr::{Multiaddr, Protocol},
    swarm::{ConnectionId, DialError, SwarmEvent, dial_opts::DialOpts},
};
use perfrun_contract::matrix::Transport;
use tokio::sync::{mpsc, oneshot};

use super::{
    Established,
    behaviour::StreamHost,
    circuits,
    command::{Command, Failure},
    transport::{Connected, DialClock},
};
use crate::{StackMetrics, address, error::describe};

pub(super) struct Driver<B: StreamHost> {
    swarm: Swarm<B>,
    transport: Transport,
    requests: mpsc::UnboundedReceiver<Command>,
    clock: DialClock,
    metrics: Arc<StackMetrics>,
    listeners: Vec<ListenerId>,
    dialling: HashMap<ConnectionId, oneshot::Sender<Result<Established, Failure>>>,
    reserving: HashMap<ListenerId, oneshot::Sender<Result<Multiaddr, Failure>>>,
    closing: HashMap<ConnectionId, oneshot::Sender<()>>,
}

impl<B: StreamHost> Driver<B> {
    pub(super) fn new(
        swarm: Swarm<B>,
        transport: Transport,
        listener: Option<ListenerId>,
        requests: mpsc::UnboundedReceiver<Command>,
        clock: DialClock,
        metrics: Arc<StackMetrics>,
    ) -> Self {
        let (dialling, reserving, closing) = Default::default();
        Self {
            swarm,
            transport,
            requests,
            clock,
            metrics,
            listeners: listener.into_iter().collect(),
            dialling,
            reserving,
            closing,
        }
    }

    pub(super) async fn run(mut self) {
        loop {
            tokio::select! {
                request = self.requests.recv() => match request {
                    Some(Command::Dial { address, connected, reply }) => self.dial(address, connected, reply),
                    Some(Command::Reserve { relay, reply }) => self.reserve(relay, reply),
                    Some(Command::Join { peer, reply }) => {
                        self.swarm.behaviour_mut().inner().exchanges.join(peer, reply);
                    }
                    Some(Command::Publish(publication)) => self.swarm.behaviour_mut().publish(publication),
                    Some(Command::Close { id, reply }) => self.close(id, reply),
                    Some(Command::Shutdown { reply }) => {
                        self.shut_down().await;
                        drop(self);
                        let _ = reply.send(());
                        return;
                    }
                    None => return,
                },
                event = self.swarm.select_next_some() => self.on_event(event),
            }
        }
    }

    fn dial(
        &mut self,
        address: Multiaddr,
        connected: Connected,
        reply: oneshot::Sender<Result<Established, Failure>>,
    ) {
        if let Err(error) = self.listen_to_dial(&address) {
            let _ = reply.send(Err(failure(&error)));
            return;
        }
        // Every dial makes a new connection, even if the peer already has one.
        let is_tcp = address.iter().any(|part| matches!(part, Protocol::Tcp(_)));
        let options = DialOpts::unknown_peer_id().address(address);
        // From the port of a listener, a dial may fail: the address is in use.
        let options = match is_tcp {
            true => options.allocate_new_port().build(),
            false => options.build(),
        };
        let id = options.connection_id();
        self.clock.expect(Some(connected));
        let dialled = self.swarm.dial(options);
        self.clock.expect(None);
        match dialled {
            Ok(()) => {
                self.dialling.insert(id, reply);
            }
            Err(error) => {
                let _ = reply.send(Err(failure(&error)));
            }
        }
    }

    fn reserve(&mut self, relay: Multiaddr, reply: oneshot::Sender<Result<Multiaddr, Failure>>) {
        match self.swarm.listen_on(relay.with(Protocol::P2pCircuit)) {
            Ok(id) => {
                self.listeners.push(id);
                self.reserving.insert(id, reply);
            }
            Err(error) => {
                let _ = reply.send(Err(failure(&error)));
            }
        }
    }

    /// libp2p's WebRTC dials from the socket of a listener, which must exist and have the same family.
    fn listen_to_dial(&mut self, peer: &Multiaddr) -> Result<(), TransportError<io::Error>> {
        if self.transport == Transport::WebrtcDirect && self.listeners.is_empty() {
            let any = match peer.iter().next() {
                Some(Protocol::Ip6(_)) => IpAddr::from(Ipv6Addr::UNSPECIFIED),
                _ => Ipv4Addr::UNSPECIFIED.into(),
            };
            let any = address::multiaddr(self.transport, (any, 0).into());
            self.listeners.push(self.swarm.listen_on(any)?);
        }
        Ok(())
    }

    fn close(&mut self, id: ConnectionId, reply: Option<oneshot::Sender<()>>) {
        // For a connection that is already closed, dropping `reply` is the answer.
        if self.swarm.close_connection(id)
            && let Some(reply) = reply
        {
            self.closing.insert(id, reply);
        }
    }

    fn on_event(&mut self, event: SwarmEvent<B::ToSwarm>) {
        self.metrics.record(&event);
        match event {
            SwarmEvent::ConnectionEstablished {
                connection_id: id,
                peer_id: peer,
                ..
            } => {
                let Some(opener) = self.swarm.behaviour_mut().inner().take_opener(id) else {
                    return;
                };
                let reply = self.dialling.remove(&id);
                if reply.is_none_or(|reply| reply.send(Ok(Established { id, peer, opener })).is_err()) {
                    // The dialler no longer waits.
                    self.swarm.close_connection(id);
                }
            }
            SwarmEvent::OutgoingConnectionError {
                connection_id: id,
                error,
                ..
            } => {
                if let Some(reply) = self.dialling.remove(&id) {
                    let _ = reply.send(Err(dial_failure(&error)));
                }
            }
            SwarmEvent::NewListenAddr { listener_id, address } => {
                if let Some(reply) = self.reserving.remove(&listener_id) {
                    let _ = reply.send(Ok(address));
                }
            }
            SwarmEvent::ListenerClosed {
                listener_id, reason, ..
            } => {
                self.listeners.retain(|id| *id != listener_id);
                if let Some(reply) = self.reserving.remove(&listener_id) {
                    let _ = reply.send(Err(match reason {
                        Err(error) => failure(&error),
                        Ok(()) => Failure {
                            reason: "the relay ended the reservation".to_owned(),
                            refused: None,
                        },
                    }));
                }
            }
            SwarmEvent::Behaviour(event) => self.swarm.behaviour_mut().on_event(event),
            SwarmEvent::ConnectionClosed {
                connection_id: id,
                cause,
                ..
            } => {
                tracing::debug!(?cause, "connection closed");
                self.closing.remove(&id).map(|reply| reply.send(()));
            }
            _ => {}
        }
    }

    async fn shut_down(&mut self) {
        // First, so that no peer connects while the others are disconnected. WebRTC needs the listener's
        // socket to disconnect them.
        let listeners = std::mem::take(&mut self.listeners);
        for listener in listeners
            .into_iter()
            .filter(|_| self.transport != Transport::WebrtcDirect)
        {
            self.swarm.remove_listener(listener);
        }
        let peers: Vec<_> = self.swarm.connected_peers().copied().collect();
        for peer in peers {
            let _ = self.swarm.disconnect_peer_id(peer);
        }
        while self.swarm.connected_peers().next().is_some() {
            let event = self.swarm.select_next_some().await;
            self.on_event(event);
        }
    }
}

/// The failure of a dial. The swarm wraps the errors of transports and hides them from `source`.
fn dial_failure(error: &DialError) -> Failure {
    let refused = match error {
        DialError::Transport(attempts) => attempts.iter().find_map(|(_, error)| match error {
            TransportError::Other(error) => refusal(error),
            TransportError::MultiaddrNotSupported(_) => None,
        }),
        _ => None,
    };
    Failure {
        reason: error.to_string(),
        refused,
    }
}

fn failure<E: Error + 'static>(error: &E) -> Failure {
    Failure {
        reason: describe(error),
        refused: refusal(error),
    }
}

/// The status of a relay's refusal. `None` if the error has another cause.
fn refusal(error: &(dyn Error + 'static)) -> Option<&'static str> {
    let inner = match error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
        Some(inner) => Some(inner as &(dyn Error + 'static)),
        None => error.source(),
    };
    circuits::status(error).or_else(|| refusal(inner?))
}
