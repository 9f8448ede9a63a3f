//! rust-libp2p: a swarm in its own task, streams in the tasks of their users.

mod behaviour;
mod driver;
mod transport;

use std::{
    net::IpAddr,
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

use async_trait::async_trait;
use futures::StreamExt;
use libp2p::{
    Swarm,
    core::{transport::ListenerId, upgrade::Version},
    identity::Keypair,
    multiaddr::{Multiaddr, Protocol},
    swarm::{ConnectionId, StreamProtocol, SwarmEvent},
};
use perfrun_api::matrix::{Negotiation, Stack, Transport};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::DropGuard;

use self::{
    behaviour::{Behaviour, OpenRequest},
    driver::{Command, Driver},
    transport::Limits,
};
use super::{
    BoxStream, CLOSE_TIMEOUT, Connection, DIAL_TIMEOUT, DialPhases, Error, Host, HostConfig, IDLE_TIMEOUT,
    Inbound, address, tasks::Tasks,
};

/// Interfaces report their addresses one by one; this long without another one means that all have.
const ADDRESSES_SETTLED: Duration = Duration::from_millis(100);

/// Resets of streams that were just dropped leave a WebRTC connection within this time. Neither does closing it wait for
/// them, nor does a libp2p peer end the streams of a connection that was closed: without them its streams would stay.
const RESETS_LEAVE: Duration = Duration::from_millis(50);

pub(super) async fn start(
    config: HostConfig,
    inbound: mpsc::UnboundedSender<Inbound>,
) -> Result<Box<dyn Host>, Error> {
    let tasks = Tasks::default();
    let stop = tasks.stop_on_drop();
    let limits = Limits::new(config.transport, config.max_streams)?;
    let keypair = identity(config.identity)?;
    let protocol = StreamProtocol::try_from_owned(config.protocol.as_ref().to_owned()).map_err(setup)?;
    let clock = transport::DialClock::default();
    let (executor, dials) = (tasks.clone(), clock.clone());
    let mut swarm = Swarm::new(
        transport::build(config.transport, &keypair, limits)?,
        Behaviour::new(config.transport, protocol, inbound),
        keypair.public().to_peer_id(),
        libp2p::swarm::Config::with_executor(move |task| executor.spawn(dials.run(task)))
            .with_substream_upgrade_protocol_override(match config.negotiation {
                Negotiation::V1 => Version::V1,
                Negotiation::V1Lazy => Version::V1Lazy,
            })
            .with_max_negotiating_inbound_streams(limits.negotiating_streams)
            .with_idle_connection_timeout(IDLE_TIMEOUT),
    );
    let (mut addresses, mut listening, mut listener) = (Vec::new(), None, None);
    if let Some((ip, port)) = config.listen {
        let (id, bound) = listen(&mut swarm, config.transport, (ip, port)).await?;
        listening = bound.first().and_then(address::port).map(|port| (ip, port));
        listener = Some(id);
        let peer = *swarm.local_peer_id();
        addresses = bound
            .into_iter()
            .map(|bound| bound.with(Protocol::P2p(peer)).to_string())
            .collect();
    }
    let (commands, requests) = mpsc::unbounded_channel();
    tasks.spawn(Driver::new(swarm, config.transport, listener, requests, clock, config.metrics).run());
    Ok(Box::new(Libp2p {
        transport: config.transport,
        addresses,
        listening,
        commands,
        tasks,
        _stop: stop,
    }))
}

struct Libp2p {
    transport: Transport,
    addresses: Vec<String>,
    /// What [`HostConfig::listen`] asked for, with the real port.
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
            return Err(Error::Address {
                address: address.to_owned(),
                reason: "it has no /certhash/…, the server's certificate: give the address that the server printed"
                    .to_owned(),
            });
        }
        let failed = |reason: String| Error::Dial {
            address: address.to_owned(),
            reason,
        };
        let connected = Arc::new(OnceLock::new());
        let (reply, established) = oneshot::channel();
        let started = Instant::now();
        let command = Command::Dial {
            address: target,
            connected: Arc::clone(&connected),
            reply,
        };
        // The swarm ends only with the host, so a lost reply means that.
        self.commands
            .send(command)
            .map_err(|_| failed("the host is closed".to_owned()))?;
        let established = established
            .await
            .map_err(|_| failed("the host was closed".to_owned()))?
            .map_err(failed)?;
        let phases = DialPhases {
            transport: connected.get().map(|at| at.duration_since(started)),
            established: started.elapsed(),
        };
        Ok(Box::new(Dialled {
            transport: self.transport,
            established,
            phases,
            commands: self.commands.clone(),
        }))
    }

    async fn close(self: Box<Self>) {
        let (reply, closed) = oneshot::channel();
        if self.commands.send(Command::Shutdown { reply }).is_ok() {
            // An unresponsive peer must not hold up the next trial; what is still open is dropped.
            let _ = tokio::time::timeout(CLOSE_TIMEOUT, closed).await;
        }
        self.tasks.end().await;
        if let Some(listening) = self.listening {
            address::until_free(self.transport, listening).await;
        }
    }
}

/// What the swarm tells about a connection that it has dialled.
struct Established {
    id: ConnectionId,
    /// Straight to the connection's handler: opening a stream does not pass through the swarm.
    opener: mpsc::UnboundedSender<OpenRequest>,
}

struct Dialled {
    transport: Transport,
    established: Established,
    phases: DialPhases,
    commands: mpsc::UnboundedSender<Command>,
}

#[async_trait]
impl Connection for Dialled {
    fn phases(&self) -> DialPhases {
        self.phases
    }

    async fn open(&self) -> Result<BoxStream, Error> {
        let closed = || Error::Open("the connection is closed".to_owned());
        let (reply, opened) = oneshot::channel();
        self.established.opener.send(reply).map_err(|_| closed())?;
        opened.await.map_err(|_| closed())?.map_err(Error::Open)
    }

    async fn close(self: Box<Self>) {
        if self.transport == Transport::WebrtcDirect {
            tokio::time::sleep(RESETS_LEAVE).await;
        }
        let (reply, closed) = oneshot::channel();
        let command = Command::Close {
            id: self.established.id,
            reply: Some(reply),
        };
        if self.commands.send(command).is_ok() {
            let _ = tokio::time::timeout(CLOSE_TIMEOUT, closed).await;
        }
    }
}

impl Drop for Dialled {
    fn drop(&mut self) {
        // Harmless after `close`, and when the host is gone.
        let _ = self.commands.send(Command::Close {
            id: self.established.id,
            reply: None,
        });
    }
}

fn identity(seed: Option<[u8; 32]>) -> Result<Keypair, Error> {
    match seed {
        Some(seed) => Keypair::ed25519_from_bytes(seed).map_err(setup),
        None => Ok(Keypair::generate_ed25519()),
    }
}

/// Listens, and waits until the swarm has said where.
async fn listen(
    swarm: &mut Swarm<Behaviour>,
    transport: Transport,
    listen: (IpAddr, u16),
) -> Result<(ListenerId, Vec<Multiaddr>), Error> {
    let failed = |reason: String| Error::Listen {
        address: address::text(transport, listen),
        reason,
    };
    address::check_free(transport, listen)?;
    let id = swarm
        .listen_on(address::multiaddr(transport, listen.into()))
        .map_err(|error| failed(address::describe(&error)))?;
    let mut addresses = Vec::new();
    let mut patience = DIAL_TIMEOUT;
    loop {
        match tokio::time::timeout(patience, swarm.select_next_some()).await {
            Ok(SwarmEvent::NewListenAddr { address, .. }) => {
                addresses.push(address);
                if !listen.0.is_unspecified() {
                    return Ok((id, addresses));
                }
                patience = ADDRESSES_SETTLED;
            }
            Ok(
                SwarmEvent::ListenerError { error, .. }
                | SwarmEvent::ListenerClosed {
                    reason: Err(error), ..
                },
            ) => {
                return Err(failed(address::describe(&error)));
            }
            // A peer may connect before the last address is reported.
            Ok(_) => {}
            Err(_) if addresses.is_empty() => return Err(failed("no address was reported".to_owned())),
            Err(_) => return Ok((id, addresses)),
        }
    }
}

fn setup(error: impl std::error::Error + 'static) -> Error {
    Error::Setup {
        stack: Stack::Libp2p,
        reason: address::describe(&error),
    }
}
