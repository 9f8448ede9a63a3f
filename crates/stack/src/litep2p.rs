//! litep2p: a driver task for its connections, a task for the protocol, a task for notifications, and streams
//! in the tasks of their users.
//!
//! litep2p knows peers, not connections: a host has at most two connections with a peer and uses the first.
//! Each connection of a workload therefore needs its own host and identity.
//!
//! Its QUIC has no keep-alive and gives up after 10 s of silence, which is not configurable. A libp2p peer
//! keeps the connection alive.

mod driver;
mod notifications;
mod pause;
mod protocol;

use std::{io, net::IpAddr, sync::Arc, time::Instant};

use ::litep2p::{
    Litep2p, PeerId,
    config::ConfigBuilder,
    crypto::ed25519::{Keypair, SecretKey},
    executor::Executor,
    transport::{ConnectionLimitsConfig, quic, tcp, websocket},
    types::multiaddr::Multiaddr as LiteMultiaddr,
    yamux,
};
use async_trait::async_trait;
use futures::future::BoxFuture;
use libp2p::Multiaddr;
use perfrun_contract::{
    matrix::{Identity, Messaging, Stack, Transport},
    support::{LITEP2P_QUIC_STREAMS, YAMUX_STREAM},
};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::DropGuard;
use tracing::instrument::WithSubscriber;

use self::{
    driver::Dial,
    notifications::Notifications,
    pause::Pausing,
    protocol::{Command, RawProtocol},
};
use super::{
    BoxStream, CONNECTIONS_MAX, Connection, DIAL_TIMEOUT, DialPhases, Error, Host, HostConfig, IDLE_TIMEOUT,
    Inbound, Keys, OPEN_TIMEOUT, Reservation, address, interfaces,
    tasks::{self, Tasks},
    with_spare,
};
use crate::{error::describe, messenger::BoxMessenger};

const YAMUX_STREAMS_DEFAULT: usize = 512;
const YAMUX_WINDOWS_DEFAULT: usize = 1 << 30;

pub(super) async fn start(
    config: HostConfig,
    inbound: mpsc::UnboundedSender<Inbound>,
) -> Result<Box<dyn Host>, Error> {
    check_streams(&config)?;
    if let Some(listen) = config.listen {
        address::check_free(config.transport, listen)?;
    }
    let tasks = Tasks::default();
    let stop = tasks.stop_on_drop();
    let (commands, requests) = mpsc::unbounded_channel();
    let protocol = RawProtocol::new(&config, inbound.clone(), requests);
    let mut builder = ConfigBuilder::new()
        .with_keypair(identity(config.identity)?)
        .with_user_protocol(Box::new(protocol))
        .with_keep_alive_timeout(IDLE_TIMEOUT)
        // This limits established connections. litep2p drops others after `DIAL_TIMEOUT` and has no limit for
        // them.
        .with_connection_limits(
            ConnectionLimitsConfig::default().max_incoming_connections(Some(CONNECTIONS_MAX)),
        )
        .with_executor(Arc::new(TasksExecutor(tasks.clone())));
    let mut notifications = None;
    if let (Some(load), Messaging::Notifications) =
        (config.parameters.messages(), config.settings.messaging())
    {
        let (started, protocol) = Notifications::start(load, inbound, &tasks);
        builder = builder.with_notification_protocol(protocol);
        notifications = Some(started);
    }
    let litep2p = Litep2p::new(with_transport(builder, &config)?.build()).map_err(setup)?;
    let listening = bound(&litep2p, &config)?;
    let addresses = addresses(&litep2p, config.transport, listening)?;
    let (dials, dial_requests) = mpsc::unbounded_channel();
    let driver = driver::run(litep2p, dial_requests);
    match config.transport {
        Transport::WebrtcDirect => tasks.spawn(driver.with_subscriber(Pausing::new())),
        _ => tasks.spawn(driver),
    }
    Ok(Box::new(Lite {
        transport: config.transport,
        addresses,
        listening,
        commands,
        notifications,
        dials,
        tasks,
        _stop: stop,
    }))
}

fn with_transport(builder: ConfigBuilder, config: &HostConfig) -> Result<ConfigBuilder, Error> {
    // With the default configurations, a dialler would listen, too.
    let listen_addresses: Vec<_> = config
        .listen
        .map(|listen| translate(&address::multiaddr(config.transport, listen.into())))
        .transpose()?
        .into_iter()
        .collect();
    Ok(match config.transport {
        Transport::QuicV1 => builder.with_quic(quic::config::Config {
            listen_addresses,
            connection_open_timeout: DIAL_TIMEOUT,
            substream_open_timeout: OPEN_TIMEOUT,
        }),
        // The contract has refused the others.
        Transport::Tcp | Transport::TcpTls | Transport::Memory | Transport::Webtransport => {
            builder.with_tcp(tcp::config::Config {
                listen_addresses,
                // If another process listens on the port, that must be an error and not share its peers.
                reuse_port: false,
                // By default, a delayed acknowledgement stalls each message.
                nodelay: true,
                yamux_config: yamux_config(config),
                connection_open_timeout: DIAL_TIMEOUT,
                substream_open_timeout: OPEN_TIMEOUT,
                ..Default::default()
            })
        }
        Transport::Ws => builder.with_websocket(websocket::config::Config {
            listen_addresses,
            // `reuse_port` and `nodelay` as on TCP, for the reasons given there.
            reuse_port: false,
            nodelay: true,
            yamux_config: yamux_config(config),
            connection_open_timeout: DIAL_TIMEOUT,
            substream_open_timeout: OPEN_TIMEOUT,
            ..Default::default()
        }),
        Transport::WebrtcDirect => with_webrtc(builder, listen_addresses)?,
    })
}

/// [`HostConfig::listen`] with the port that was bound.
fn bound(litep2p: &Litep2p, config: &HostConfig) -> Result<Option<(IpAddr, u16)>, Error> {
    let Some((ip, port)) = config.listen else {
        return Ok(None);
    };
    // litep2p only logs that it failed to listen.
    let Some(bound) = litep2p.listen_addresses().next() else {
        let failed = address::cannot_listen(config.transport, (ip, port));
        return Err(failed(io::Error::other("litep2p did not listen")));
    };
    Ok(address::port(&address::parse(&bound.to_string())?).map(|port| (ip, port)))
}

/// Addresses that peers can dial.
fn addresses(
    litep2p: &Litep2p,
    transport: Transport,
    listening: Option<(IpAddr, u16)>,
) -> Result<Vec<String>, Error> {
    match listening {
        // Its QUIC reports the wildcard address, which peers cannot dial.
        Some(listening) if transport == Transport::QuicV1 && listening.0.is_unspecified() => {
            let dialable = interfaces::dialable(transport, listening.into())
                .map_err(address::cannot_listen(transport, listening))?;
            let peer = litep2p.local_peer_id();
            let with_peer = dialable
                .into_iter()
                .map(|address| format!("{address}/p2p/{peer}"));
            Ok(with_peer.collect())
        }
        _ => Ok(litep2p.listen_addresses().map(ToString::to_string).collect()),
    }
}

#[cfg(feature = "webrtc")]
fn with_webrtc(builder: ConfigBuilder, listen_addresses: Vec<LiteMultiaddr>) -> Result<ConfigBuilder, Error> {
    // Its certificate is new for each host, as with libp2p. Its timeouts are not configurable.
    Ok(builder.with_webrtc(::litep2p::transport::webrtc::config::Config {
        listen_addresses,
        ..Default::default()
    }))
}

#[cfg(not(feature = "webrtc"))]
fn with_webrtc(_: ConfigBuilder, _: Vec<LiteMultiaddr>) -> Result<ConfigBuilder, Error> {
    Err(Error::without_webrtc(Stack::Litep2p))
}

/// Checks that streams fit. The contract does not know how many a server from a shell lets its peers open.
fn check_streams(config: &HostConfig) -> Result<(), Error> {
    let unsupported = |what: String| Err(Error::unsupported(Stack::Litep2p, what));
    if config.transport == Transport::QuicV1
        && config.listen.is_some()
        && config.max_streams > LITEP2P_QUIC_STREAMS as usize
    {
        return unsupported(format!("{} streams on one QUIC connection", config.max_streams));
    }
    // yamux panics if a window cannot hold all streams.
    let least = YAMUX_STREAM.saturating_mul(config.max_streams as u64);
    let window = config.settings.yamux_window.filter(|_| config.transport.is_tcp());
    if let Some(window) = window.filter(|window| window.0 < least) {
        return unsupported(format!(
            "{} streams in a yamux window of {window}",
            config.max_streams
        ));
    }
    Ok(())
}

fn yamux_config(host: &HostConfig) -> yamux::Config {
    let mut config = yamux::Config::default();
    let max_streams = host.max_streams;
    let streams = with_spare(max_streams);
    if let Some(window) = host.settings.yamux_window {
        // Spare streams, because a stream counts until both sides have seen its end. yamux reserves part of
        // the window for each stream that may be opened. With the reserve of the spare streams added, the
        // requested streams have all of the window.
        let spare = (max_streams / 4).max(1);
        let reserve = spare.saturating_mul(yamux::DEFAULT_CREDIT as usize);
        config.set_max_num_streams(max_streams.saturating_add(spare));
        config.set_max_connection_receive_window(Some((window.0 as usize).saturating_add(reserve)));
    } else if streams > YAMUX_STREAMS_DEFAULT {
        // yamux panics if windows cannot hold all streams, and takes the reserve from the growth of windows.
        let reserved = streams.saturating_mul(yamux::DEFAULT_CREDIT as usize);
        config.set_max_connection_receive_window(Some(reserved.saturating_add(YAMUX_WINDOWS_DEFAULT)));
        config.set_max_num_streams(streams);
    }
    config
}

struct Lite {
    transport: Transport,
    addresses: Vec<String>,
    /// [`HostConfig::listen`] with the port that was bound.
    listening: Option<(IpAddr, u16)>,
    commands: mpsc::UnboundedSender<Command>,
    /// `None` if messages pass on streams.
    notifications: Option<Notifications>,
    dials: mpsc::UnboundedSender<Dial>,
    tasks: Tasks,
    _stop: DropGuard,
}

#[async_trait]
impl Host for Lite {
    fn addresses(&self) -> &[String] {
        &self.addresses
    }

    async fn dial(&self, address: &str) -> Result<Box<dyn Connection>, Error> {
        let target = translate(&address::parse(address)?)?;
        let Some(peer) = PeerId::try_from_multiaddr(&target) else {
            let reason =
                "it has no /p2p/<peer id>, which litep2p needs: use the address that the server printed";
            return Err(Error::address(address, reason));
        };
        let failed = |reason: &str| Error::dial(address, reason);
        let closed = || failed("the host is closed");
        let (connected, established) = oneshot::channel();
        let (failure, not_established) = oneshot::channel();
        let started = Instant::now();
        // In this order: the protocol must expect the connection before it is established.
        self.commands
            .send(Command::Expect {
                peer,
                reply: connected,
            })
            .map_err(|_| closed())?;
        self.dials
            .send(Dial {
                address: target,
                peer,
                failed: failure,
            })
            .map_err(|_| closed())?;
        let outcome = async {
            tokio::select! {
                Ok(()) = established => Ok(()),
                Ok(reason) = not_established => Err(failed(&reason)),
                else => Err(closed()),
            }
        };
        // Longer than litep2p's own timeout, whose error has the reason.
        match tokio::time::timeout(2 * DIAL_TIMEOUT, outcome).await {
            Ok(outcome) => outcome?,
            Err(_) => return Err(failed("litep2p reported no outcome")),
        }
        let phases = DialPhases::of(started.elapsed());
        Ok(Box::new(Dialled {
            peer,
            phases,
            commands: self.commands.clone(),
            notifications: self.notifications.clone(),
        }))
    }

    async fn reserve(&self, _: &str) -> Result<Reservation, Error> {
        Err(Error::unsupported(Stack::Litep2p, "circuit relay"))
    }

    async fn close(self: Box<Self>) {
        tasks::close(&self.commands, |reply| Command::Shutdown { reply }).await;
        self.tasks.end().await;
        if let Some(listening) = self.listening {
            address::until_free(self.transport, listening).await;
        }
    }
}

struct Dialled {
    peer: PeerId,
    phases: DialPhases,
    commands: mpsc::UnboundedSender<Command>,
    notifications: Option<Notifications>,
}

#[async_trait]
impl Connection for Dialled {
    fn phases(&self) -> DialPhases {
        self.phases
    }

    async fn open(&self) -> Result<BoxStream, Error> {
        let closed = || Error::Open("the connection is closed".to_owned());
        let (reply, opened) = oneshot::channel();
        self.commands
            .send(Command::Open {
                peer: self.peer,
                reply,
            })
            .map_err(|_| closed())?;
        // Longer than litep2p's own timeout, which its QUIC transport does not report.
        match tokio::time::timeout(OPEN_TIMEOUT + DIAL_TIMEOUT, opened).await {
            Ok(opened) => opened.map_err(|_| closed())?.map_err(Error::Open),
            Err(_) => Err(Error::Open("timed out".to_owned())),
        }
    }

    async fn messenger(&self) -> Result<Option<BoxMessenger>, Error> {
        match &self.notifications {
            Some(notifications) => notifications.open(self.peer).await.map(Some),
            None => Ok(None),
        }
    }

    async fn close(self: Box<Self>) {
        let peer = self.peer;
        let command = |reply| Command::Close {
            peer,
            reply: Some(reply),
        };
        tasks::close(&self.commands, command).await;
    }
}

impl Drop for Dialled {
    fn drop(&mut self) {
        // This has no effect after `close`, or when the host is gone.
        let _ = self.commands.send(Command::Close {
            peer: self.peer,
            reply: None,
        });
    }
}

/// Runs litep2p's tasks as tasks of the host, so that they end with the host.
struct TasksExecutor(Tasks);

impl Executor for TasksExecutor {
    fn run(&self, task: BoxFuture<'static, ()>) {
        self.0.spawn(task);
    }

    fn run_with_name(&self, _: &'static str, task: BoxFuture<'static, ()>) {
        self.0.spawn(task);
    }
}

fn identity(keys: Keys) -> Result<Keypair, Error> {
    match keys {
        Keys::Seeded(seed) => SecretKey::try_from_bytes(seed).map(Keypair::from).map_err(setup),
        Keys::New(Identity::Ed25519) => Ok(Keypair::generate()),
        Keys::New(identity) => Err(Error::unsupported(
            Stack::Litep2p,
            format!("an {identity} identity"),
        )),
    }
}

/// Converts an address: litep2p uses another version of the multiaddr crate.
fn translate(address: &Multiaddr) -> Result<LiteMultiaddr, Error> {
    let text = address.to_string();
    text.parse()
        .map_err(|error: ::litep2p::types::multiaddr::Error| Error::address(&text, error.to_string()))
}

fn setup(error: ::litep2p::Error) -> Error {
    Error::setup(Stack::Litep2p, describe(&error))
}

#[cfg(test)]
mod tests {
    use perfrun_contract::{
        matrix::StackSettings,
        parameters::{Parameters, Ping},
        quantity::ByteSize,
    };
    use prometheus_client::registry::Registry;

    use super::*;
    use crate::{Relaying, StackMetrics, UsedCongestion};

    fn with_window(max_streams: usize, yamux_window: Option<ByteSize>) -> HostConfig {
        HostConfig {
            settings: StackSettings {
                yamux_window,
                ..StackSettings::default()
            },
            transport: Transport::Tcp,
            parameters: Parameters::Ping(Ping {
                count: 1,
                interval_seconds: 0.0,
            }),
            listen: None,
            identity: Keys::New(Identity::Ed25519),
            max_streams,
            relaying: Relaying::No,
            metrics: Arc::new(StackMetrics::new(&mut Registry::default())),
            congestion: UsedCongestion::default(),
        }
    }

    /// What the fields of yamux are set to: only its debug output shows them.
    fn limits(max_streams: usize, window: Option<ByteSize>) -> String {
        let text = format!("{:?}", yamux_config(&with_window(max_streams, window)));
        let (_, fields) = text.split_once("max_connection_receive_window: ").unwrap();
        let (fields, _) = fields.split_once(", read_after_close").unwrap();
        fields.to_owned()
    }

    #[test]
    fn the_requested_streams_share_the_requested_window() {
        let kib = |count: usize| count << 10;
        for (streams, window, spare) in [(1, kib(256), 1), (1, kib(1024), 1), (8, kib(4096), 2)] {
            let all = window + spare * kib(256);
            assert_eq!(
                limits(streams, Some(ByteSize(window as u64))),
                format!("Some({all}), max_num_streams: {}", streams + spare)
            );
        }
        assert_eq!(limits(1, None), "Some(1073741824), max_num_streams: 512");
    }

    #[test]
    fn a_window_without_room_for_all_streams_is_refused() {
        let window = Some(ByteSize(1 << 20));
        assert!(check_streams(&with_window(4, window)).is_ok());
        let refused = check_streams(&with_window(5, window)).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "litep2p cannot do 5 streams in a yamux window of 1Mi"
        );
        let without_yamux = HostConfig {
            transport: Transport::QuicV1,
            ..with_window(5, window)
        };
        assert!(check_streams(&without_yamux).is_ok());
    }
}
