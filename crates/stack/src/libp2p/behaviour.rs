//! One protocol, and ping beside it if requested, whose streams are passed on unchanged.
//!
//! Not `libp2p-stream`, which drops inbound streams while their receiver lags and negotiates one outbound
//! stream at a time: a burst of opens would measure it instead of the stack.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    convert::Infallible,
    future::{Ready, ready},
    task::{Context, Poll},
};

use libp2p::{
    Multiaddr, PeerId,
    core::{
        Endpoint, UpgradeInfo,
        multiaddr::Protocol,
        transport::PortUse,
        upgrade::{InboundUpgrade, ReadyUpgrade},
    },
    swarm::{
        ConnectionDenied, ConnectionHandler, ConnectionHandlerEvent, ConnectionId, FromSwarm,
        NetworkBehaviour, NotifyHandler, Stream, StreamProtocol, StreamUpgradeError, SubstreamProtocol,
        ToSwarm,
        handler::{ConnectionEvent, DialUpgradeError, FullyNegotiatedInbound, FullyNegotiatedOutbound},
    },
};
use perfrun_contract::matrix::Transport;
use tokio::sync::{mpsc, oneshot};
use tokio_util::compat::FuturesAsyncReadCompatExt;

use super::{circuits::Circuits, command::Publication, exchanges::Exchanges};
use crate::{BoxStream, CONNECTIONS_MAX, Inbound, OPEN_TIMEOUT, webrtc};

/// The protocol beside a host's own.
const PING: StreamProtocol = StreamProtocol::new("/ipfs/ping/1.0.0");

/// A protocol of a host.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum ProtocolKind {
    Own,
    Ping,
}

/// A request for a stream, with the channel for the stream.
pub(super) struct OpenRequest {
    pub kind: ProtocolKind,
    pub reply: oneshot::Sender<Result<BoxStream, OpenError>>,
}

/// Why a stream was not opened.
pub(super) enum OpenError {
    /// The peer does not speak the protocol.
    NotSupported,
    Failed(String),
}

/// A behaviour that contains [`Behaviour`].
pub(super) trait StreamHost: NetworkBehaviour<ToSwarm: Send> + Send {
    fn inner(&mut self) -> &mut Behaviour;

    /// Handles an event of the other behaviours.
    fn on_event(&mut self, event: Self::ToSwarm);

    /// Publishes a message. Without gossipsub, the lost reply is the answer.
    fn publish(&mut self, _: Publication) {}
}

impl StreamHost for Behaviour {
    fn inner(&mut self) -> &mut Behaviour {
        self
    }

    fn on_event(&mut self, event: Infallible) {
        match event {}
    }
}

/// Speaks one protocol with every peer, and ping if requested.
pub(super) struct Behaviour {
    transport: Transport,
    protocol: StreamProtocol,
    pings: bool,
    inbound: mpsc::UnboundedSender<Inbound>,
    /// Dialled connections that were not reported to their dialler yet.
    openers: HashMap<ConnectionId, mpsc::UnboundedSender<OpenRequest>>,
    /// Accepted connections, whether established or not.
    accepted: HashSet<ConnectionId>,
    /// Relays whose connections must be polled again, see [`PollAgain`].
    relays: VecDeque<PeerId>,
    /// The exchanges of messages by gossipsub.
    pub(super) exchanges: Exchanges,
    /// Circuits of a relay.
    pub(super) circuits: Circuits,
}

/// Has a connection with a relay polled again. libp2p-relay passes one circuit to its listener in each poll
/// of that connection, and does not ask for another poll if more of them wait. A circuit that arrives
/// together with another one would wait until the connection has something else to do: on QUIC, for ever.
#[derive(Debug)]
pub(super) struct PollAgain;

/// The relay of a circuit, from the address at which the circuit arrived.
fn relay_of(local: &Multiaddr) -> Option<PeerId> {
    let mut parts = local.iter().take_while(|part| *part != Protocol::P2pCircuit);
    let has_circuit = local.iter().any(|part| part == Protocol::P2pCircuit);
    let relay = parts.find_map(|part| match part {
        Protocol::P2p(peer) => Some(peer),
        _ => None,
    });
    relay.filter(|_| has_circuit)
}

impl Behaviour {
    pub(super) fn new(
        transport: Transport,
        protocol: StreamProtocol,
        pings: bool,
        inbound: mpsc::UnboundedSender<Inbound>,
    ) -> Self {
        Self {
            transport,
            protocol,
            pings,
            inbound,
            openers: HashMap::new(),
            accepted: HashSet::new(),
            relays: VecDeque::new(),
            exchanges: Exchanges::default(),
            circuits: Circuits::default(),
        }
    }

    /// The channel to the handler of a connection that was just dialled.
    pub(super) fn take_opener(&mut self, id: ConnectionId) -> Option<mpsc::UnboundedSender<OpenRequest>> {
        self.openers.remove(&id)
    }

    /// Reports an event of another behaviour. Without a receiver, the event is of no use.
    pub(super) fn report(&self, event: Inbound) {
        let _ = self.inbound.send(event);
    }

    fn handler(&self, requests: Option<mpsc::UnboundedReceiver<OpenRequest>>) -> Handler {
        Handler {
            transport: self.transport,
            protocol: self.protocol.clone(),
            pings: self.pings,
            inbound: self.inbound.clone(),
            requests,
        }
    }
}

#[derive(Debug, thiserror::Error)]
#[error("the host already has {CONNECTIONS_MAX} inbound connections")]
struct TooManyConnections;

impl NetworkBehaviour for Behaviour {
    type ConnectionHandler = Handler;
    type ToSwarm = Infallible;

    fn handle_pending_inbound_connection(
        &mut self,
        id: ConnectionId,
        local: &Multiaddr,
        _: &Multiaddr,
    ) -> Result<(), ConnectionDenied> {
        // The listener has taken a circuit, and has room for the next one.
        self.relays.extend(relay_of(local));
        if self.accepted.len() >= CONNECTIONS_MAX {
            return Err(ConnectionDenied::new(TooManyConnections));
        }
        self.accepted.insert(id);
        Ok(())
    }

    fn handle_established_inbound_connection(
        &mut self,
        _: ConnectionId,
        _: PeerId,
        _: &Multiaddr,
        _: &Multiaddr,
    ) -> Result<Handler, ConnectionDenied> {
        // Before the connection runs, so that it is always reported before its first stream. Without a
        // receiver, the event is of no use.
        let _ = self.inbound.send(Inbound::Connection);
        Ok(self.handler(None))
    }

    fn handle_established_outbound_connection(
        &mut self,
        id: ConnectionId,
        _: PeerId,
        _: &Multiaddr,
        _: Endpoint,
        _: PortUse,
    ) -> Result<Handler, ConnectionDenied> {
        let (opener, requests) = mpsc::unbounded_channel();
        self.openers.insert(id, opener);
        Ok(self.handler(Some(requests)))
    }

    fn on_swarm_event(&mut self, event: FromSwarm<'_>) {
        match event {
            FromSwarm::ConnectionClosed(closed) => {
                self.openers.remove(&closed.connection_id);
                self.accepted.remove(&closed.connection_id);
                self.exchanges.end(closed.peer_id);
            }
            FromSwarm::ListenFailure(failure) => {
                self.accepted.remove(&failure.connection_id);
            }
            _ => {}
        }
    }

    fn on_connection_handler_event(&mut self, _: PeerId, _: ConnectionId, event: Infallible) {
        match event {}
    }

    fn poll(&mut self, _: &mut Context<'_>) -> Poll<ToSwarm<Infallible, PollAgain>> {
        // The swarm polls behaviours after each connection that it was offered.
        match self.relays.pop_front() {
            Some(peer_id) => Poll::Ready(ToSwarm::NotifyHandler {
                peer_id,
                handler: NotifyHandler::Any,
                event: PollAgain,
            }),
            None => Poll::Pending,
        }
    }
}

/// The protocol on one connection, in the task of that connection.
pub(super) struct Handler {
    transport: Transport,
    protocol: StreamProtocol,
    pings: bool,
    /// An unbounded channel, because the muxer limits the streams that a peer may have open.
    inbound: mpsc::UnboundedSender<Inbound>,
    /// `None` on an inbound connection, and after the dialler has dropped its side.
    requests: Option<mpsc::UnboundedReceiver<OpenRequest>>,
}

impl ConnectionHandler for Handler {
    type FromBehaviour = PollAgain;
    type ToBehaviour = Infallible;
    type InboundProtocol = Accepted;
    type OutboundProtocol = ReadyUpgrade<StreamProtocol>;
    type InboundOpenInfo = ();
    type OutboundOpenInfo = OpenRequest;

    fn listen_protocol(&self) -> SubstreamProtocol<Self::InboundProtocol> {
        let accepted = Accepted {
            own: self.protocol.clone(),
            pings: self.pings,
        };
        SubstreamProtocol::new(accepted, ()).with_timeout(OPEN_TIMEOUT)
    }

    fn connection_keep_alive(&self) -> bool {
        // Only workloads decide when a connection ends.
        true
    }

    fn poll(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<ConnectionHandlerEvent<Self::OutboundProtocol, OpenRequest, Infallible>> {
        while let Some(requests) = &mut self.requests {
            match requests.poll_recv(cx) {
                // The opener no longer waits.
                Poll::Ready(Some(request)) if request.reply.is_closed() => {}
                Poll::Ready(Some(request)) => {
                    let name = match request.kind {
                        ProtocolKind::Own => self.protocol.clone(),
                        ProtocolKind::Ping => PING,
                    };
                    let protocol =
                        SubstreamProtocol::new(ReadyUpgrade::new(name), request).with_timeout(OPEN_TIMEOUT);
                    return Poll::Ready(ConnectionHandlerEvent::OutboundSubstreamRequest { protocol });
                }
                Poll::Ready(None) => self.requests = None,
                Poll::Pending => return Poll::Pending,
            }
        }
        Poll::Pending
    }

    fn on_behaviour_event(&mut self, _: PollAgain) {
        // The task of the connection polls all handlers after an event.
    }

    fn on_connection_event(
        &mut self,
        event: ConnectionEvent<'_, Self::InboundProtocol, Self::OutboundProtocol, (), OpenRequest>,
    ) {
        // Without a receiver, the stream is dropped, which the peer notices.
        match event {
            ConnectionEvent::FullyNegotiatedInbound(FullyNegotiatedInbound {
                protocol: (kind, stream),
                ..
            }) => {
                let stream = webrtc::boxed(self.transport, stream.compat());
                let _ = self.inbound.send(match kind {
                    ProtocolKind::Own => Inbound::Stream(stream),
                    ProtocolKind::Ping => Inbound::Ping(stream),
                });
            }
            ConnectionEvent::FullyNegotiatedOutbound(FullyNegotiatedOutbound {
                protocol: stream,
                info,
            }) => {
                let _ = info
                    .reply
                    .send(Ok(webrtc::boxed(self.transport, stream.compat())));
            }
            ConnectionEvent::DialUpgradeError(DialUpgradeError { info, error }) => {
                let _ = info.reply.send(Err(match error {
                    StreamUpgradeError::NegotiationFailed if info.kind == ProtocolKind::Ping => {
                        OpenError::NotSupported
                    }
                    error => OpenError::Failed(error.to_string()),
                }));
            }
            _ => {}
        }
    }
}

/// The protocols that a host accepts.
pub(super) struct Accepted {
    own: StreamProtocol,
    pings: bool,
}

impl UpgradeInfo for Accepted {
    type Info = StreamProtocol;
    type InfoIter = std::iter::Chain<std::iter::Once<StreamProtocol>, std::option::IntoIter<StreamProtocol>>;

    fn protocol_info(&self) -> Self::InfoIter {
        std::iter::once(self.own.clone()).chain(self.pings.then_some(PING))
    }
}

impl InboundUpgrade<Stream> for Accepted {
    type Output = (ProtocolKind, Stream);
    type Error = Infallible;
    type Future = Ready<Result<Self::Output, Infallible>>;

    fn upgrade_inbound(self, stream: Stream, name: StreamProtocol) -> Self::Future {
        let kind = if name == self.own {
            ProtocolKind::Own
        } else {
            ProtocolKind::Ping
        };
        ready(Ok((kind, stream)))
    }
}
