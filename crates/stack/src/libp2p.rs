//! rust-libp2p: a swarm in its own task, and streams in the tasks of their users.

mod behaviour;
mod circuits;
mod command;
mod driver;
mod exchanges;
mod gossip;
mod relay;
mod transport;

use std::{
    net::IpAddr,
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

use async_trait::async_trait;
use aws_lc_rs::{
    encoding::{AsDer, Pkcs8V1Der},
    rsa::{self, KeySize},
};
use futures::StreamExt;
use libp2p::{
    PeerId, Swarm,
    core::{
        muxing::StreamMuxerBox,
        transport::{Boxed, ListenerId},
        upgrade::Version,
    },
    identity::Keypair,
    multiaddr::{Multiaddr, Protocol},
    swarm::{ConnectionId, StreamProtocol, SwarmEvent},
};
use perfrun_contract::{
    matrix::{Identity, Messaging, Negotiation, Stack, Transport},
    parameters::Messages,
};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::DropGuard;

use self::{
    behaviour::{Behaviour, OpenError, OpenRequest, ProtocolKind, StreamHost},
    command::Command,
    driver::Driver,
    exchanges::{Exchange, GossipBroadcaster},
    gossip::Gossip,
    transport::Limits,
};
use super::{
    BoxStream, Connection, DIAL_TIMEOUT, DialPhases, Error, Host, HostConfig, IDLE_TIMEOUT, Inbound, Keys,
    OPEN_TIMEOUT, PingTarget, Relaying, Reservation, address, congestion,
    tasks::{self, Tasks},
};
use crate::{
    error::describe,
    messenger::{BoxMessenger, Broadcaster},
};

/// Interfaces report their addresses one by one. After this time without another address, all have reported.
const ADDRESSES_SETTLE_TIME: Duration = Duration::from_millis(100);

/// How long resets of dropped streams take to leave a WebRTC connection. Its close does not wait for them,
/// and a libp2p peer does not end the streams of a closed connection: without the resets they would stay
/// open.
const RESETS_SEND_TIME: Duration = Duration::from_millis(50);

pub(super) async fn start(
    config: HostConfig,
    inbound: mpsc::UnboundedSender<Inbound>,
) -> Result<Box<dyn Host>, Error> {
    let tasks = Tasks::default();
    let stop = tasks.stop_on_drop();
    let limits = Limits::new(config.transport, config.max_streams)?;
    let keypair = identity(config.identity).await?;
    let protocol =
        StreamProtocol::try_from_owned(config.parameters.protocol().as_ref().to_owned()).map_err(setup)?;
    let clock = transport::DialClock::default();
    let carrier = transport::build(config.transport, &keypair, limits, &congestion::Tcp::of(&config))?;
    let (commands, requests) = mpsc::unbounded_channel();
    let pings = config.relaying != Relaying::No;
    let swarm_setup = SwarmSetup {
        config,
        limits,
        clock,
        requests,
        tasks: tasks.clone(),
    };
    let (transport, local) = (swarm_setup.config.transport, keypair.public().to_peer_id());
    let behaviour = Behaviour::new(transport, protocol, pings, inbound);
    let gossips = gossiped(&swarm_setup.config).is_some();
    let (addresses, listening) = match swarm_setup.config.relaying {
        Relaying::No => match gossiped(&swarm_setup.config) {
            None => swarm_setup.run(carrier, behaviour, local).await?,
            Some(load) => {
                let listener = swarm_setup.config.listen.map(|_| commands.clone());
                let gossip = Gossip::new(behaviour, keypair, &load, listener)?;
                swarm_setup.run(carrier, gossip, local).await?
            }
        },
        Relaying::Relay(limits) => {
            let relay = relay::Relay::new(behaviour, local, limits);
            swarm_setup.run(carrier, relay, local).await?
        }
        Relaying::Peer => {
            let (circuits, client) = libp2p::relay::client::new(local);
            let both = relay::with_circuits(carrier, circuits, &keypair, limits)?;
            swarm_setup
                .run(both, relay::RelayClient::new(behaviour, client), local)
                .await?
        }
    };
    Ok(Box::new(Libp2p {
        transport,
        gossips,
        addresses,
        listening,
        commands,
        tasks,
        _stop: stop,
    }))
}

/// The load whose messages pass by gossipsub. `None` without one.
fn gossiped(config: &HostConfig) -> Option<Messages> {
    config
        .parameters
        .messages()
        .copied()
        .filter(|_| config.settings.messaging() == Messaging::Gossipsub)
}

/// What a swarm needs besides its transport and behaviour.
struct SwarmSetup {
    config: HostConfig,
    limits: Limits,
    clock: transport::DialClock,
    requests: mpsc::UnboundedReceiver<Command>,
    tasks: Tasks,
}

impl SwarmSetup {
    /// Runs a swarm in its own task. Returns the addresses that peers can dial, and where the swarm listens.
    async fn run<B: StreamHost>(
        self,
        transport: Boxed<(PeerId, StreamMuxerBox)>,
        behaviour: B,
        local: PeerId,
    ) -> Result<(Vec<String>, Option<(IpAddr, u16)>), Error> {
        let config = self.config;
        let (executor, dials) = (self.tasks.clone(), self.clock.clone());
        let mut swarm = Swarm::new(
            transport,
            behaviour,
            local,
            libp2p::swarm::Config::with_executor(move |task| executor.spawn(dials.run(task)))
                .with_substream_upgrade_protocol_override(match config.parameters.negotiation() {
                    Negotiation::V1 => Version::V1,
                    Negotiation::V1Lazy => Version::V1Lazy,
                })
                .with_max_negotiating_inbound_streams(self.limits.negotiating_streams)
                .with_idle_connection_timeout(IDLE_TIMEOUT),
        );
        let (mut addresses, mut listening, mut listener) = (Vec::new(), None, None);
        if let Some((ip, port)) = config.listen {
            let (id, bound) = listen(&mut swarm, config.transport, (ip, port)).await?;
            listening = bound.first().and_then(address::port).map(|port| (ip, port));
            listener = Some(id);
            if let Relaying::Relay(_) = config.relaying {
                // libp2p's relay refuses reservations while it has no external address.
                bound
                    .iter()
                    .for_each(|bound| swarm.add_external_address(bound.clone()));
            }
            addresses = bound
                .into_iter()
                .map(|bound| bound.with(Protocol::P2p(local)).to_string())
                .collect();
        }
        let driver = Driver::new(
            swarm,
            config.transport,
            listener,
            self.requests,
            self.clock,
            config.metrics,
        );
        self.tasks.spawn(driver.run());
        Ok((addresses, listening))
    }
}

struct Libp2p {
    transport: Transport,
    /// Whether messages pass by gossipsub.
    gossips: bool,
    addresses: Vec<String>,
    /// [`HostConfig::listen`] with the port that was bound.
    listening: Option<(IpAddr, u16)>,
    commands: mpsc::UnboundedSender<Command>,
    tasks: Tasks,
    _stop: DropGuard,
}

#[async_trait]
impl Host for Libp2p {
    fn addresses(&self) -> &[String] {
        &self.addresses
    }

    async fn dial(&self, address: &str) -> Result<Box<dyn Connection>, Error> {
        let target = address::parse(address)?;
        let has_certificate = target.iter().any(|part| matches!(part, Protocol::Certhash(_)));
        if self.transport == Transport::WebrtcDirect && !has_certificate {
            let reason =
                "it has no /certhash/…, the server's certificate: use the address that the server printed";
            return Err(Error::address(address, reason));
        }
        let started = Instant::now();
        // The relay first, to measure the time of its connection, which the circuit then uses.
        let relay = match relay_of(&target) {
            Some(relay) => Some(self.establish(&relay).await?),
            None => None,
        };
        let relay_connected = relay.as_ref().map(|_| started.elapsed());
        let (established, connected) = self.establish(&target).await?;
        let phases = DialPhases {
            transport: connected.map(|at| at.duration_since(started)),
            relay: relay_connected,
            established: started.elapsed(),
        };
        Ok(Box::new(Dialled {
            transport: self.transport,
            gossips: self.gossips,
            established,
            relay: relay.map(|(established, _)| established),
            phases,
            commands: self.commands.clone(),
        }))
    }

    async fn reserve(&self, relay: &str) -> Result<Reservation, Error> {
        let target = address::parse(relay)?;
        let started = Instant::now();
        let (established, _) = self.establish(&target).await?;
        let relay_connected = started.elapsed();
        let phases = DialPhases::of(relay_connected);
        // Already here, so that a refusal closes the connection.
        let connection = Dialled {
            transport: self.transport,
            gossips: self.gossips,
            established,
            relay: None,
            phases,
            commands: self.commands.clone(),
        };
        let failed = |reason: String| Error::dial(relay, reason);
        let (reply, reserved) = oneshot::channel();
        let command = Command::Reserve { relay: target, reply };
        self.commands
            .send(command)
            .map_err(|_| failed("the host is closed".to_owned()))?;
        let answer = tokio::time::timeout(DIAL_TIMEOUT, reserved)
            .await
            .map_err(|_| failed("the relay did not answer a reservation in time".to_owned()))?
            .map_err(|_| failed("the host was closed".to_owned()))?;
        let address = answer.map_err(|failure| match failure.refused {
            Some(status) => Error::Refused {
                relay: relay.to_owned(),
                what: "reservation",
                status,
            },
            None => failed(failure.reason),
        })?;
        Ok(Reservation {
            address: address.to_string(),
            relay_connected: Some(relay_connected),
            granted: started.elapsed() - relay_connected,
            connection: Some(Box::new(connection)),
        })
    }

    fn broadcaster(&self) -> Option<Box<dyn Broadcaster>> {
        self.gossips
            .then(|| Box::new(GossipBroadcaster::new(self.commands.clone())) as Box<dyn Broadcaster>)
    }

    async fn close(self: Box<Self>) {
        tasks::close(&self.commands, |reply| Command::Shutdown { reply }).await;
        self.tasks.end().await;
        if let Some(listening) = self.listening {
            address::until_free(self.transport, listening).await;
        }
    }
}

impl Libp2p {
    /// Dials. Also returns when the socket was connected, if the transport has one.
    async fn establish(&self, target: &Multiaddr) -> Result<(Established, Option<Instant>), Error> {
        let failed = |reason: String| Error::dial(target, reason);
        let connected = Arc::new(OnceLock::new());
        let (reply, established) = oneshot::channel();
        let command = Command::Dial {
            address: target.clone(),
            connected: Arc::clone(&connected),
            reply,
        };
        // The swarm ends only with the host, so a lost reply means that the host is closed.
        self.commands
            .send(command)
            .map_err(|_| failed("the host is closed".to_owned()))?;
        let answer = established
            .await
            .map_err(|_| failed("the host was closed".to_owned()))?;
        let established = answer.map_err(|failure| match (failure.refused, relay_of(target)) {
            (Some(status), Some(relay)) => Error::Refused {
                relay: relay.to_string(),
                what: "circuit",
                status,
            },
            _ => failed(failure.reason),
        })?;
        Ok((established, connected.get().copied()))
    }
}

/// The relay of an address. `None` if the address is direct.
fn relay_of(address: &Multiaddr) -> Option<Multiaddr> {
    let is_circuit = |part: &Protocol<'_>| *part == Protocol::P2pCircuit;
    address
        .iter()
        .any(|part| is_circuit(&part))
        .then(|| address.iter().take_while(|part| !is_circuit(part)).collect())
}

/// A connection that the swarm has dialled.
struct Established {
    id: ConnectionId,
    peer: PeerId,
    /// Leads directly to the connection's handler: opening a stream does not pass through the swarm.
    opener: mpsc::UnboundedSender<OpenRequest>,
}

impl Established {
    /// Opens a stream. `None` if the peer does not speak the protocol.
    async fn open(&self, kind: ProtocolKind) -> Result<Option<BoxStream>, Error> {
        let closed = || Error::Open("the connection is closed".to_owned());
        let (reply, opened) = oneshot::channel();
        self.opener
            .send(OpenRequest { kind, reply })
            .map_err(|_| closed())?;
        match opened.await.map_err(|_| closed())? {
            Ok(stream) => Ok(Some(stream)),
            Err(OpenError::NotSupported) => Ok(None),
            Err(OpenError::Failed(reason)) => Err(Error::Open(reason)),
        }
    }
}

struct Dialled {
    transport: Transport,
    gossips: bool,
    established: Established,
    /// The connection with the relay. `None` without a relay.
    relay: Option<Established>,
    phases: DialPhases,
    commands: mpsc::UnboundedSender<Command>,
}

#[async_trait]
impl Connection for Dialled {
    fn phases(&self) -> DialPhases {
        self.phases
    }

    async fn open(&self) -> Result<BoxStream, Error> {
        let opened = self.established.open(ProtocolKind::Own).await?;
        opened.ok_or_else(|| Error::Open("the peer does not speak the protocol".to_owned()))
    }

    async fn ping(&self, target: PingTarget) -> Result<Option<BoxStream>, Error> {
        let connection = match target {
            PingTarget::Peer => Some(&self.established),
            PingTarget::Relay => self.relay.as_ref(),
        };
        match connection {
            Some(connection) => connection.open(ProtocolKind::Ping).await,
            None => Ok(None),
        }
    }

    async fn messenger(&self) -> Result<Option<BoxMessenger>, Error> {
        if !self.gossips {
            return Ok(None);
        }
        let peer = self.established.peer;
        let (reply, joined) = oneshot::channel();
        // A lost reply means that the connection is closed.
        let _ = self.commands.send(Command::Join { peer, reply });
        match tokio::time::timeout(OPEN_TIMEOUT, joined).await {
            Ok(Ok(inbox)) => Ok(Some(Box::new(Exchange::new(peer, self.commands.clone(), inbox)))),
            Ok(Err(_)) => Err(Error::Open("the connection is closed".to_owned())),
            Err(_) => Err(Error::Open("the peer does not subscribe by gossipsub".to_owned())),
        }
    }

    async fn close(self: Box<Self>) {
        if self.transport == Transport::WebrtcDirect {
            tokio::time::sleep(RESETS_SEND_TIME).await;
        }
        let id = self.established.id;
        let command = |reply| Command::Close {
            id,
            reply: Some(reply),
        };
        tasks::close(&self.commands, command).await;
    }
}

impl Drop for Dialled {
    fn drop(&mut self) {
        for connection in [Some(&self.established), self.relay.as_ref()]
            .into_iter()
            .flatten()
        {
            // This has no effect after `close`, or when the host is gone.
            let _ = self.commands.send(Command::Close {
                id: connection.id,
                reply: None,
            });
        }
    }
}

async fn identity(keys: Keys) -> Result<Keypair, Error> {
    match keys {
        Keys::Seeded(seed) => Keypair::ed25519_from_bytes(seed).map_err(setup),
        Keys::New(Identity::Ed25519) => Ok(Keypair::generate_ed25519()),
        // Finding prime numbers takes a while.
        Keys::New(Identity::Rsa2048) => tokio::task::spawn_blocking(|| {
            let made = rsa::KeyPair::generate(KeySize::Rsa2048).map_err(setup)?;
            let encoded: Pkcs8V1Der<'_> = made.as_der().map_err(setup)?;
            Keypair::rsa_from_pkcs8(&mut encoded.as_ref().to_vec()).map_err(setup)
        })
        .await
        .map_err(setup)?,
    }
}

/// Listens, and waits until the swarm has reported its addresses.
async fn listen<B: StreamHost>(
    swarm: &mut Swarm<B>,
    transport: Transport,
    listen: (IpAddr, u16),
) -> Result<(ListenerId, Vec<Multiaddr>), Error> {
    let failed = |reason: String| Error::Listen {
        address: address::socket_address(transport, listen.into()),
        reason,
    };
    address::check_free(transport, listen)?;
    let id = swarm
        .listen_on(address::multiaddr(transport, listen.into()))
        .map_err(|error| failed(describe(&error)))?;
    let mut addresses = Vec::new();
    let mut patience = DIAL_TIMEOUT;
    loop {
        match tokio::time::timeout(patience, swarm.select_next_some()).await {
            Ok(SwarmEvent::NewListenAddr { address, .. }) => {
                addresses.push(address);
                if !listen.0.is_unspecified() {
                    return Ok((id, addresses));
                }
                patience = ADDRESSES_SETTLE_TIME;
            }
            Ok(
                SwarmEvent::ListenerError { error, .. }
                | SwarmEvent::ListenerClosed {
                    reason: Err(error), ..
                },
            ) => {
                return Err(failed(describe(&error)));
            }
            // A peer may connect before the last address is reported.
            Ok(_) => {}
            Err(_) if addresses.is_empty() => return Err(failed("no address was reported".to_owned())),
            Err(_) => return Ok((id, addresses)),
        }
    }
}

fn setup(error: impl std::error::Error + 'static) -> Error {
    Error::setup(Stack::Libp2p, describe(&error))
}
