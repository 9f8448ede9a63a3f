//! Our protocol inside litep2p: hands on substreams as they are.

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

use crate::stack::{BoxStream, HostConfig, Inbound, webrtc};

/// Opens that may be under way at once on a yamux connection; the others wait here.
///
/// yamux has at most 256 streams that the peer has not acknowledged. litep2p 0.16 asks it for one more and, until it
/// gets that, does not read the connection (`yamux/control.rs`, `OpeningNewStream`): the acknowledgements never arrive
/// and the connection is stuck for good. Negotiation acknowledges, so that opens under way are all that counts.
const YAMUX_OPENS: usize = 256;

type OpenReply = oneshot::Sender<Result<BoxStream, String>>;

/// What a host or a connection asks of the protocol.
pub(super) enum Command {
    /// A dial to `peer` begins; answered when the connection is up.
    Expect {
        peer: PeerId,
        reply: oneshot::Sender<()>,
    },
    /// Open a substream.
    Open { peer: PeerId, reply: OpenReply },
    /// Close the connections with a peer; answered when they are closed.
    Close {
        peer: PeerId,
        reply: Option<oneshot::Sender<()>>,
    },
    /// Close all connections; answered when they are.
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
            name: ProtocolName::from(config.protocol.as_ref().to_owned()),
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

    /// None: the codec only serves `Sink` and `Stream`; `AsyncRead` and `AsyncWrite` carry bytes as they are.
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
            if peers.shut_down() {
                return Ok(());
            }
            tokio::select! {
                // Requests first: a dial must be expected before its connection is reported.
                biased;
                request = requests.recv() => match request {
                    Some(request) => peers.on_request(request),
                    None => return Ok(()),
                },
                event = peers.service.next() => match event {
                    Some(event) => peers.on_event(event),
                    None => return Ok(()),
                },
                // Until the connection's task has taken something off its queue.
                () = tokio::task::yield_now(), if clogged => {}
            }
        }
    }
}

/// The opens of one peer.
#[derive(Default)]
struct Opens {
    under_way: usize,
    waiting: VecDeque<OpenReply>,
}

struct Peers {
    service: TransportService,
    transport: Transport,
    opens_at_once: usize,
    inbound: mpsc::UnboundedSender<Inbound>,
    connected: HashSet<PeerId>,
    dialling: HashMap<PeerId, oneshot::Sender<()>>,
    /// Only of peers that have any.
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
            opens_at_once: match transport {
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
                // The driver refuses a second dial to a peer, so the first one must stay.
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

    /// Passes on what waits. Returns whether litep2p's queue to a connection, of 256, had no room for it.
    fn proceed(&mut self) -> bool {
        let mut clogged = false;
        for (peer, opens) in &mut self.opens {
            while opens.under_way < self.opens_at_once
                && let Some(reply) = opens.waiting.pop_front()
            {
                if reply.is_closed() {
                    // Nobody waits for it any more.
                    continue;
                }
                match self.service.open_substream(*peer) {
                    Ok(id) => {
                        opens.under_way += 1;
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
            .retain(|_, opens| opens.under_way > 0 || !opens.waiting.is_empty());
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
                // It is closed already; `reply` answers by its drop.
                Err(_) => {}
            }
        }
        clogged
    }

    /// Whether a shutdown was asked for and is complete. It is answered by the drop of the reply.
    fn shut_down(&self) -> bool {
        self.shutdown.is_some() && self.connected.is_empty()
    }

    fn on_event(&mut self, event: TransportEvent) {
        // A receiver that is gone drops the substream, which tells the peer.
        match event {
            TransportEvent::ConnectionEstablished { peer, endpoint } => self.on_established(peer, &endpoint),
            TransportEvent::ConnectionClosed { peer } => {
                self.connected.remove(&peer);
                // Answers whoever waits for it.
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
            // The driver knows why, and says so.
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
                    // The dialler gave up waiting.
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
            opens.under_way = opens.under_way.saturating_sub(1);
        }
        let _ = reply.send(opened);
    }
}
