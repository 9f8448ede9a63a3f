//! The protocol inside litep2p, which passes on substreams unchanged.

use std::collections::{HashMap, HashSet, VecDeque};

use async_trait::async_trait;
use futures::StreamExt;
use litep2p::{
    Error, PeerId, ProtocolName,
    codec::ProtocolCodec,
    error::SubstreamError,
    protocol::{Direction, TransportEvent, TransportService, UserProtocol},
    transport::Endpoint,
    types::SubstreamId,
};
use perfrun_contract::matrix::Transport;
use tokio::sync::{mpsc, oneshot};

use crate::{BoxStream, HostConfig, Inbound, webrtc};

/// Most opens in progress on a yamux connection. The others wait here.
///
/// yamux allows 256 streams that the peer has not acknowledged. litep2p 0.16 requests one more and does not
/// read the connection until it gets that (`yamux/control.rs`, `OpeningNewStream`): the acknowledgements
/// never arrive and the connection is stuck for ever. Negotiation acknowledges a stream, so only opens in
/// progress count.
const YAMUX_OPENS: usize = 256;

type OpenReply = oneshot::Sender<Result<BoxStream, String>>;

/// A request of a host or a connection to the protocol.
pub(super) enum Command {
    /// Expect a dial to `peer`. The reply follows when the connection is established.
    Expect {
        peer: PeerId,
        reply: oneshot::Sender<()>,
    },
    /// Open a substream.
    Open { peer: PeerId, reply: OpenReply },
    /// Close the connections with a peer. The reply follows when they are closed.
    Close {
        peer: PeerId,
        reply: Option<oneshot::Sender<()>>,
    },
    /// Close all connections. The reply follows when they are closed.
    Shutdown { reply: oneshot::Sender<()> },
}

pub(super) struct RawProtocol {
    name: ProtocolName,
    transport: Transport,
    inbound: mpsc::UnboundedSender<Inbound>,
    requests: mpsc::UnboundedReceiver<Command>,
}

impl RawProtocol {
    pub(super) fn new(
        config: &HostConfig,
        inbound: mpsc::UnboundedSender<Inbound>,
        requests: mpsc::UnboundedReceiver<Command>,
    ) -> Self {
        Self {
            name: ProtocolName::from(config.parameters.protocol().as_ref().to_owned()),
            transport: config.transport,
            inbound,
            requests,
        }
    }
}

#[async_trait]
impl UserProtocol for RawProtocol {
    fn protocol(&self) -> ProtocolName {
        self.name.clone()
    }

    /// No codec, which only serves `Sink` and `Stream`: `AsyncRead` and `AsyncWrite` carry bytes unchanged.
    fn codec(&self) -> ProtocolCodec {
        ProtocolCodec::Unspecified
    }

    async fn run(self: Box<Self>, service: TransportService) -> litep2p::Result<()> {
        let Self {
            transport,
            inbound,
            mut requests,
            ..
        } = *self;
        let mut peers = Peers::new(service, transport, inbound);
        loop {
            let clogged = peers.proceed();
            if peers.is_shut_down() {
                return Ok(());
            }
            tokio::select! {
                request = requests.recv() => match request {
                    Some(request) => peers.on_request(request),
                    None => return Ok(()),
                },
                event = peers.service.next() => match event {
                    Some(event) => {
                        // Requests from before the event come first: a dial whose connection is reported
                        // before it is expected has no outcome. On a busy machine this task may pause after
                        // it has looked for requests, for long enough to miss such a request.
                        while let Ok(request) = requests.try_recv() {
                            peers.on_request(request);
                        }
                        peers.on_event(event);
                    }
                    None => return Ok(()),
                },
                // Until the connection's task has taken something from its queue.
                () = tokio::task::yield_now(), if clogged => {}
            }
        }
    }
}

/// The opens of one peer.
#[derive(Default)]
struct Opens {
    in_progress: usize,
    waiting: VecDeque<OpenReply>,
}

struct Peers {
    service: TransportService,
    transport: Transport,
    most_opens: usize,
    inbound: mpsc::UnboundedSender<Inbound>,
    connected: HashSet<PeerId>,
    dialling: HashMap<PeerId, oneshot::Sender<()>>,
    /// Only of peers with opens.
    opens: HashMap<PeerId, Opens>,
    opening: HashMap<SubstreamId, (PeerId, OpenReply)>,
    to_close: VecDeque<(PeerId, Option<oneshot::Sender<()>>)>,
    closing: HashMap<PeerId, oneshot::Sender<()>>,
    shutdown: Option<oneshot::Sender<()>>,
}

impl Peers {
    fn new(service: TransportService, transport: Transport, inbound: mpsc::UnboundedSender<Inbound>) -> Self {
        Self {
            service,
            transport,
            most_opens: match transport {
                Transport::QuicV1 | Transport::WebrtcDirect => usize::MAX,
                _ => YAMUX_OPENS,
            },
            inbound,
            connected: HashSet::new(),
            dialling: HashMap::new(),
            opens: HashMap::new(),
            opening: HashMap::new(),
            to_close: VecDeque::new(),
            closing: HashMap::new(),
            shutdown: None,
        }
    }

    fn on_request(&mut self, request: Command) {
        match request {
            Command::Expect { peer, reply } => {
                // The driver refuses a second dial to a peer, so the first must stay.
                self.dialling.retain(|_, reply| !reply.is_closed());
                self.dialling.entry(peer).or_insert(reply);
            }
            Command::Open { peer, reply } => self.opens.entry(peer).or_default().waiting.push_back(reply),
            Command::Close { peer, reply } => self.to_close.push_back((peer, reply)),
            Command::Shutdown { reply } => {
                self.shutdown = Some(reply);
                self.to_close
                    .extend(self.connected.iter().map(|peer| (*peer, None)));
            }
        }
    }

    /// Passes on waiting requests. `true` if litep2p's queue of 256 to a connection was full.
    fn proceed(&mut self) -> bool {
        let mut clogged = false;
        for (peer, opens) in &mut self.opens {
            while opens.in_progress < self.most_opens
                && let Some(reply) = opens.waiting.pop_front()
            {
                if reply.is_closed() {
                    // The opener no longer waits.
                    continue;
                }
                match self.service.open_substream(*peer) {
                    Ok(id) => {
                        opens.in_progress += 1;
                        self.opening.insert(id, (*peer, reply));
                    }
                    Err(SubstreamError::ChannelClogged) => {
                        opens.waiting.push_front(reply);
                        clogged = true;
                        break;
                    }
                    Err(error) => {
                        let _ = reply.send(Err(error.to_string()));
                    }
                }
            }
        }
        self.opens
            .retain(|_, opens| opens.in_progress > 0 || !opens.waiting.is_empty());
        for _ in 0..self.to_close.len() {
            let Some((peer, reply)) = self.to_close.pop_front() else {
                break;
            };
            match self.service.force_close(peer) {
                Ok(()) => {
                    if let Some(reply) = reply {
                        self.closing.insert(peer, reply);
                    }
                }
                Err(Error::ChannelClogged) => {
                    self.to_close.push_back((peer, reply));
                    clogged = true;
                }
                // The connection is already closed; dropping `reply` is the answer.
                Err(_) => {}
            }
        }
        clogged
    }

    /// Whether a requested shutdown is complete. Dropping the reply is the answer.
    fn is_shut_down(&self) -> bool {
        self.shutdown.is_some() && self.connected.is_empty()
    }

    fn on_event(&mut self, event: TransportEvent) {
        // Without a receiver, the substream is dropped, which the peer notices.
        match event {
            TransportEvent::ConnectionEstablished { peer, endpoint } => self.on_established(peer, &endpoint),
            TransportEvent::ConnectionClosed { peer } => {
                self.connected.remove(&peer);
                // Dropping the reply is the answer.
                self.closing.remove(&peer);
            }
            TransportEvent::SubstreamOpened {
                direction: Direction::Inbound,
                substream,
                ..
            } => {
                let _ = self
                    .inbound
                    .send(Inbound::Stream(webrtc::boxed(self.transport, substream)));
            }
            TransportEvent::SubstreamOpened {
                direction: Direction::Outbound(id),
                substream,
                ..
            } => {
                self.answer(id, Ok(webrtc::boxed(self.transport, substream)));
            }
            TransportEvent::SubstreamOpenFailure { substream: id, error } => {
                self.answer(id, Err(error.to_string()));
            }
            // The driver reports the failure with its reason.
            TransportEvent::DialFailure { peer, .. } => {
                self.dialling.remove(&peer);
            }
        }
    }

    fn on_established(&mut self, peer: PeerId, endpoint: &Endpoint) {
        self.connected.insert(peer);
        if self.shutdown.is_some() {
            return self.to_close.push_back((peer, None));
        }
        match endpoint {
            Endpoint::Listener { .. } => {
                let _ = self.inbound.send(Inbound::Connection);
            }
            Endpoint::Dialer { .. } => {
                let reply = self.dialling.remove(&peer);
                if reply.is_none_or(|reply| reply.send(()).is_err()) {
                    // The dialler no longer waits.
                    self.to_close.push_back((peer, None));
                }
            }
        }
    }

    fn answer(&mut self, id: SubstreamId, opened: Result<BoxStream, String>) {
        let Some((peer, reply)) = self.opening.remove(&id) else {
            return;
        };
        if let Some(opens) = self.opens.get_mut(&peer) {
            opens.in_progress = opens.in_progress.saturating_sub(1);
        }
        let _ = reply.send(opened);
    }
}
