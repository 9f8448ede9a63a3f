//! The task that polls a swarm.

use std::{
    collections::HashMap,
    convert::Infallible,
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    sync::Arc,
};

use futures::StreamExt;
use libp2p::{
    Swarm,
    core::transport::{ListenerId, TransportError},
    multiaddr::{Multiaddr, Protocol},
    swarm::{ConnectionId, SwarmEvent, dial_opts::DialOpts},
};
use perfrun_api::matrix::Transport;
use tokio::sync::{mpsc, oneshot};

use super::{
    Established,
    behaviour::Behaviour,
    transport::{Connected, DialClock},
};
use crate::stack::{
    StackMetrics,
    address::{self, describe},
};

/// What a host or a connection asks of the swarm.
pub(super) enum Command {
    /// Dial, and note when the socket is connected.
    Dial {
        address: Multiaddr,
        connected: Connected,
        reply: oneshot::Sender<Result<Established, String>>,
    },
    /// Close a connection; answered when it is closed.
    Close {
        id: ConnectionId,
        reply: Option<oneshot::Sender<()>>,
    },
    /// Close listeners and connections; answered when they are.
    Shutdown { reply: oneshot::Sender<()> },
}

pub(super) struct Driver {
    swarm: Swarm<Behaviour>,
    transport: Transport,
    requests: mpsc::UnboundedReceiver<Command>,
    clock: DialClock,
    metrics: Arc<StackMetrics>,
    listener: Option<ListenerId>,
    dialling: HashMap<ConnectionId, oneshot::Sender<Result<Established, String>>>,
    closing: HashMap<ConnectionId, oneshot::Sender<()>>,
}

impl Driver {
    pub(super) fn new(
        swarm: Swarm<Behaviour>,
        transport: Transport,
        listener: Option<ListenerId>,
        requests: mpsc::UnboundedReceiver<Command>,
        clock: DialClock,
        metrics: Arc<StackMetrics>,
    ) -> Self {
        let (dialling, closing) = Default::default();
        Self {
            swarm,
            transport,
            requests,
            clock,
            metrics,
            listener,
            dialling,
            closing,
        }
    }

    pub(super) async fn run(mut self) {
        loop {
            tokio::select! {
                request = self.requests.recv() => match request {
                    Some(Command::Dial { address, connected, reply }) => self.dial(address, connected, reply),
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
        reply: oneshot::Sender<Result<Established, String>>,
    ) {
        if let Err(error) = self.listen_to_dial(&address) {
            let _ = reply.send(Err(describe(&error)));
            return;
        }
        // Every dial is a connection of its own, also to a peer that already has one.
        let options = DialOpts::unknown_peer_id().address(address).build();
        let id = options.connection_id();
        self.clock.expect(Some(connected));
        let dialled = self.swarm.dial(options);
        self.clock.expect(None);
        match dialled {
            Ok(()) => {
                self.dialling.insert(id, reply);
            }
            Err(error) => {
                let _ = reply.send(Err(error.to_string()));
            }
        }
    }

    /// libp2p's WebRTC dials from the socket of a listener, which has to be there and of the same family.
    fn listen_to_dial(&mut self, peer: &Multiaddr) -> Result<(), TransportError<io::Error>> {
        if self.transport == Transport::WebrtcDirect && self.listener.is_none() {
            let any = match peer.iter().next() {
                Some(Protocol::Ip6(_)) => IpAddr::from(Ipv6Addr::UNSPECIFIED),
                _ => Ipv4Addr::UNSPECIFIED.into(),
            };
            let any = address::multiaddr(self.transport, (any, 0).into());
            self.listener = Some(self.swarm.listen_on(any)?);
        }
        Ok(())
    }

    fn close(&mut self, id: ConnectionId, reply: Option<oneshot::Sender<()>>) {
        // A connection that is already closed answers by the drop of `reply`.
        if self.swarm.close_connection(id)
            && let Some(reply) = reply
        {
            self.closing.insert(id, reply);
        }
    }

    fn on_event(&mut self, event: SwarmEvent<Infallible>) {
        self.metrics.record(&event);
        match event {
            SwarmEvent::ConnectionEstablished {
                connection_id: id, ..
            } => {
                let Some(opener) = self.swarm.behaviour_mut().take_opener(id) else {
                    return;
                };
                let reply = self.dialling.remove(&id);
                if reply.is_none_or(|reply| reply.send(Ok(Established { id, opener })).is_err()) {
                    // The dialler gave up waiting.
                    self.swarm.close_connection(id);
                }
            }
            SwarmEvent::OutgoingConnectionError {
                connection_id: id,
                error,
                ..
            } => {
                if let Some(reply) = self.dialling.remove(&id) {
                    let _ = reply.send(Err(error.to_string()));
                }
            }
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
        // First, so that nobody connects while the others are told to go; WebRTC tells them by the listener's socket.
        if self.transport != Transport::WebrtcDirect
            && let Some(listener) = self.listener.take()
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
