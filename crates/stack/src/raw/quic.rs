//! QUIC by quinn, with the settings of libp2p, which also uses quinn: the difference is the cost of libp2p.

mod tls;

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::Arc,
    time::{Duration, Instant},
};

use async_trait::async_trait;
use futures::TryFutureExt;
use perfrun_contract::matrix::{Stack, Transport};
use quinn::{ClientConfig, Endpoint, IdleTimeout, ServerConfig, TransportConfig, VarInt};
use tokio::{sync::mpsc, time::timeout};
use tokio_util::sync::DropGuard;

use crate::{
    BoxStream, CLOSE_TIMEOUT, CONNECTIONS_MAX, Connection, DIAL_TIMEOUT, DialPhases, Error, Host, HostConfig,
    Inbound, OPEN_TIMEOUT, Reservation, UsedCongestion, address, congestion, error::describe, interfaces,
    tasks::Tasks, with_spare, within,
};

/// The value of libp2p-quic, raised when a run needs more streams.
const STREAMS_DEFAULT: usize = 256;
// These are the values of libp2p-quic: windows in bytes, and a time in milliseconds.
const STREAM_WINDOW: u32 = 10_000_000;
const CONNECTION_WINDOW: u32 = 15_000_000;
const IDLE_MILLISECONDS: u32 = 10_000;
const KEEP_ALIVE: Duration = Duration::from_secs(5);

/// quinn needs a name in certificates, although the client does not check them.
const SERVER_NAME: &str = "perfrun";

pub(super) fn start(
    config: HostConfig,
    inbound: mpsc::UnboundedSender<Inbound>,
) -> Result<Box<dyn Host>, Error> {
    let tasks = Tasks::default();
    let stop = tasks.stop_on_drop();
    let transport = Arc::new(transport(&config)?);
    let mut client = ClientConfig::new(Arc::new(tls::client().map_err(setup)?));
    client.transport_config(Arc::clone(&transport));
    let (mut addresses, mut listener) = (Vec::new(), None);
    if let Some(listen) = config.listen {
        let failed = address::cannot_listen(Transport::QuicV1, listen);
        let mut server = ServerConfig::with_crypto(Arc::new(tls::server(SERVER_NAME).map_err(setup)?));
        server.transport_config(transport).migration(false);
        let endpoint = Endpoint::server(server, listen.into()).map_err(&failed)?;
        let bound = endpoint.local_addr().map_err(&failed)?;
        addresses = interfaces::dialable(Transport::QuicV1, bound).map_err(&failed)?;
        tasks.spawn(accept(
            endpoint.clone(),
            inbound,
            config.congestion.clone(),
            tasks.clone(),
        ));
        listener = Some(Listener { endpoint, bound });
    }
    Ok(Box::new(Quic {
        addresses,
        client,
        congestion: config.congestion,
        listener,
        tasks,
        _stop: stop,
    }))
}

fn transport(host: &HostConfig) -> Result<TransportConfig, Error> {
    let max_streams = host.max_streams;
    let streams = with_spare(max_streams).max(STREAMS_DEFAULT);
    let streams = u32::try_from(streams).map_err(|_| {
        Error::unsupported(
            Stack::Raw,
            format!("{max_streams} streams on one QUIC connection"),
        )
    })?;
    let mut config = TransportConfig::default();
    config
        .max_concurrent_bidi_streams(streams.into())
        .max_concurrent_uni_streams(VarInt::from_u32(0))
        .datagram_receive_buffer_size(None)
        .stream_receive_window(STREAM_WINDOW.into())
        .receive_window(CONNECTION_WINDOW.into())
        .max_idle_timeout(Some(IdleTimeout::from(VarInt::from_u32(IDLE_MILLISECONDS))))
        .keep_alive_interval(Some(KEEP_ALIVE))
        .allow_spin(false);
    if let Some(wanted) = host.settings.quic_congestion {
        config.congestion_controller_factory(congestion::factory(wanted));
    }
    Ok(config)
}

async fn accept(
    endpoint: Endpoint,
    inbound: mpsc::UnboundedSender<Inbound>,
    used: UsedCongestion,
    tasks: Tasks,
) {
    while let Some(incoming) = endpoint.accept().await {
        if endpoint.open_connections() > CONNECTIONS_MAX {
            incoming.refuse();
            continue;
        }
        // Each in its own task, so that a slow handshake does not delay the others.
        tasks.spawn(serve(incoming, inbound.clone(), used.clone()));
    }
}

async fn serve(incoming: quinn::Incoming, inbound: mpsc::UnboundedSender<Inbound>, used: UsedCongestion) {
    // quinn's idle timeout ends this when the peer falls silent.
    let connection = match incoming.await {
        Ok(connection) => connection,
        Err(error) => {
            tracing::debug!(%error, "an inbound connection failed");
            return;
        }
    };
    congestion::note_quic(&used, &connection);
    // Without a receiver, the stream is dropped, which the peer notices.
    let _ = inbound.send(Inbound::Connection);
    while let Ok((send, receive)) = connection.accept_bi().await {
        let _ = inbound.send(Inbound::Stream(Box::new(tokio::io::join(receive, send))));
    }
}

struct Listener {
    endpoint: Endpoint,
    bound: SocketAddr,
}

struct Quic {
    addresses: Vec<String>,
    client: ClientConfig,
    congestion: UsedCongestion,
    listener: Option<Listener>,
    tasks: Tasks,
    _stop: DropGuard,
}

#[async_trait]
impl Host for Quic {
    fn addresses(&self) -> &[String] {
        &self.addresses
    }

    async fn dial(&self, address: &str) -> Result<Box<dyn Connection>, Error> {
        let peer = address::socket(Transport::QuicV1, address)?;
        let failed = |reason: String| Error::dial(address, reason);
        let started = Instant::now();
        // A socket per connection, as on TCP: connections of one host must not share the buffer of a socket.
        let local: IpAddr = if peer.is_ipv4() {
            Ipv4Addr::UNSPECIFIED.into()
        } else {
            Ipv6Addr::UNSPECIFIED.into()
        };
        let endpoint =
            Endpoint::client(SocketAddr::new(local, 0)).map_err(|error| failed(error.to_string()))?;
        let connecting = endpoint
            .connect_with(self.client.clone(), peer, SERVER_NAME)
            .map_err(|error| failed(describe(&error)))?;
        let connecting = connecting.map_err(|error| describe(&error));
        let connection = within(DIAL_TIMEOUT, connecting).await.map_err(failed)?;
        let phases = DialPhases::of(started.elapsed());
        congestion::note_quic(&self.congestion, &connection);
        // The endpoint stays alive in its driver's task until the connection is closed and drained.
        Ok(Box::new(Dialled { connection, phases }))
    }

    async fn reserve(&self, _: &str) -> Result<Reservation, Error> {
        Err(Error::unsupported(Stack::Raw, "relayed QUIC"))
    }

    async fn close(self: Box<Self>) {
        if let Some(Listener { endpoint, .. }) = &self.listener {
            close(endpoint).await;
        }
        self.tasks.end().await;
        let Self { listener, .. } = *self;
        if let Some(Listener { endpoint, bound }) = listener {
            drop(endpoint);
            address::until_free(Transport::QuicV1, (bound.ip(), bound.port())).await;
        }
    }
}

struct Dialled {
    connection: quinn::Connection,
    phases: DialPhases,
}

#[async_trait]
impl Connection for Dialled {
    fn phases(&self) -> DialPhases {
        self.phases
    }

    /// Returns before the peer notices the stream, which it does with the first bytes.
    async fn open(&self) -> Result<BoxStream, Error> {
        let opening = self.connection.open_bi();
        let opening = opening.map_err(|error| describe(&error));
        let (send, receive) = within(OPEN_TIMEOUT, opening).await.map_err(Error::Open)?;
        Ok(Box::new(tokio::io::join(receive, send)))
    }

    /// Does not wait until the connection is drained, three probe timeouts later, and neither do the other
    /// stacks.
    async fn close(self: Box<Self>) {}
}

impl Drop for Dialled {
    fn drop(&mut self) {
        // Otherwise streams that are still held would keep the connection open.
        self.connection.close(VarInt::from_u32(0), &[]);
    }
}

/// Closes all connections of an endpoint and waits, for a limited time, until peers could notice.
async fn close(endpoint: &Endpoint) {
    endpoint.close(VarInt::from_u32(0), &[]);
    let _ = timeout(CLOSE_TIMEOUT, endpoint.wait_idle()).await;
}

fn setup(error: impl std::error::Error + 'static) -> Error {
    Error::setup(Stack::Raw, describe(&error))
}
