//! One protocol, whose streams are handed on as they are.
//!
//! `libp2p-stream` is not used: it drops inbound streams while their receiver lags and negotiates one outbound stream
//! at a time, so that a burst of opens would measure it instead of the stack.

use std::{
    collections::{HashMap, HashSet},
    convert::Infallible,
    task::{Context, Poll},
};

use libp2p::{
    Multiaddr, PeerId,
    core::{Endpoint, transport::PortUse, upgrade::ReadyUpgrade},
    swarm::{
        ConnectionDenied, ConnectionHandler, ConnectionHandlerEvent, ConnectionId, FromSwarm,
        NetworkBehaviour, StreamProtocol, SubstreamProtocol, ToSwarm,
        handler::{ConnectionEvent, DialUpgradeError, FullyNegotiatedInbound, FullyNegotiatedOutbound},
    },
};
use perfrun_api::matrix::Transport;
use tokio::sync::{mpsc, oneshot};
use tokio_util::compat::FuturesAsyncReadCompatExt;

use crate::stack::{BoxStream, Inbound, MOST_INBOUND, OPEN_TIMEOUT, webrtc};

/// A request for a stream; whoever asked waits for it here.
pub(super) type OpenRequest = oneshot::Sender<Result<BoxStream, String>>;

/// Speaks one protocol with every peer.
pub(super) struct Behaviour {
    transport: Transport,
    protocol: StreamProtocol,
    inbound: mpsc::UnboundedSender<Inbound>,
    /// Dialled connections whose dialler has not been told yet.
    openers: HashMap<ConnectionId, mpsc::UnboundedSender<OpenRequest>>,
    /// Connections of peers, from their acceptance on.
    accepted: HashSet<ConnectionId>,
}

impl Behaviour {
    pub(super) fn new(
        transport: Transport,
        protocol: StreamProtocol,
        inbound: mpsc::UnboundedSender<Inbound>,
    ) -> Self {
        Self {
            transport,
            protocol,
            inbound,
            openers: HashMap::new(),
            accepted: HashSet::new(),
        }
    }

    /// The way to the handler of a connection that was just dialled.
    pub(super) fn take_opener(&mut self, id: ConnectionId) -> Option<mpsc::UnboundedSender<OpenRequest>> {
        self.openers.remove(&id)
    }

    fn handler(&self, requests: Option<mpsc::UnboundedReceiver<OpenRequest>>) -> Handler {
        Handler {
            transport: self.transport,
            protocol: self.protocol.clone(),
            inbound: self.inbound.clone(),
            requests,
        }
    }
}

#[derive(Debug, thiserror::Error)]
#[error("there are {MOST_INBOUND} inbound connections already")]
struct TooManyConnections;

impl NetworkBehaviour for Behaviour {
    type ConnectionHandler = Handler;
    type ToSwarm = Infallible;

    fn handle_pending_inbound_connection(
        &mut self,
        id: ConnectionId,
        _: &Multiaddr,
        _: &Multiaddr,
    ) -> Result<(), ConnectionDenied> {
        if self.accepted.len() >= MOST_INBOUND {
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
        // Here, before the connection runs, so that it is always reported before its first stream. A receiver that
        // is gone no longer wants to know.
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

    fn poll(&mut self, _: &mut Context<'_>) -> Poll<ToSwarm<Infallible, Infallible>> {
        Poll::Pending
    }
}

/// The protocol on one connection; runs in the task of that connection.
pub(super) struct Handler {
    transport: Transport,
    protocol: StreamProtocol,
    /// Unbounded, but not without a bound: the muxer limits the streams a peer may have open.
    inbound: mpsc::UnboundedSender<Inbound>,
    /// `None` on an inbound connection, and once the dialler has dropped its side.
    requests: Option<mpsc::UnboundedReceiver<OpenRequest>>,
}

impl ConnectionHandler for Handler {
    type FromBehaviour = Infallible;
    type ToBehaviour = Infallible;
    type InboundProtocol = ReadyUpgrade<StreamProtocol>;
    type OutboundProtocol = ReadyUpgrade<StreamProtocol>;
    type InboundOpenInfo = ();
    type OutboundOpenInfo = OpenRequest;

    fn listen_protocol(&self) -> SubstreamProtocol<Self::InboundProtocol> {
        SubstreamProtocol::new(ReadyUpgrade::new(self.protocol.clone()), ()).with_timeout(OPEN_TIMEOUT)
    }

    fn connection_keep_alive(&self) -> bool {
        // Only the workload decides when a connection ends.
        true
    }

    fn poll(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<ConnectionHandlerEvent<Self::OutboundProtocol, OpenRequest, Infallible>> {
        while let Some(requests) = &mut self.requests {
            match requests.poll_recv(cx) {
                // Nobody waits for it any more.
                Poll::Ready(Some(request)) if request.is_closed() => {}
                Poll::Ready(Some(request)) => {
                    let protocol = SubstreamProtocol::new(ReadyUpgrade::new(self.protocol.clone()), request)
                        .with_timeout(OPEN_TIMEOUT);
                    return Poll::Ready(ConnectionHandlerEvent::OutboundSubstreamRequest { protocol });
                }
                Poll::Ready(None) => self.requests = None,
                Poll::Pending => return Poll::Pending,
            }
        }
        Poll::Pending
    }

    fn on_behaviour_event(&mut self, event: Infallible) {
        match event {}
    }

    fn on_connection_event(
        &mut self,
        event: ConnectionEvent<'_, Self::InboundProtocol, Self::OutboundProtocol, (), OpenRequest>,
    ) {
        // A receiver that is gone drops the stream, which tells the peer.
        match event {
            ConnectionEvent::FullyNegotiatedInbound(FullyNegotiatedInbound { protocol: stream, .. }) => {
                let _ = self
                    .inbound
                    .send(Inbound::Stream(webrtc::boxed(self.transport, stream.compat())));
            }
            ConnectionEvent::FullyNegotiatedOutbound(FullyNegotiatedOutbound {
                protocol: stream,
                info,
            }) => {
                let _ = info.send(Ok(webrtc::boxed(self.transport, stream.compat())));
            }
            ConnectionEvent::DialUpgradeError(DialUpgradeError { info, error }) => {
                let _ = info.send(Err(error.to_string()));
            }
            _ => {}
        }
    }
}
