//! Plain TCP, where each stream is a connection.

use std::{
    io,
    net::SocketAddr,
    pin::Pin,
    task::{Context, Poll},
    time::{Duration, Instant},
};

use async_trait::async_trait;
use perfrun_contract::matrix::{Stack, Transport};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpSocket, TcpStream},
    sync::{OwnedSemaphorePermit, mpsc},
};
use tokio_util::sync::DropGuard;

use super::target::{self, Nonce};
use crate::{
    CONNECTIONS_MAX, Connection, DIAL_TIMEOUT, DialPhases, Error, Host, HostConfig, Inbound, Reservation,
    accept, address, congestion, interfaces, stream_per_connection::StreamPerConnection, tasks::Tasks,
    within,
};

pub(super) async fn start(
    config: HostConfig,
    inbound: mpsc::UnboundedSender<Inbound>,
) -> Result<Box<dyn Host>, Error> {
    let tasks = Tasks::default();
    let stop = tasks.stop_on_drop();
    let congestion = congestion::Tcp::of(&config);
    let mut addresses = Vec::new();
    if let Some(listen) = config.listen {
        let failed = address::cannot_listen(Transport::Tcp, listen);
        let listener = bind(listen.into()).map_err(&failed)?;
        let bound = listener.local_addr().map_err(&failed)?;
        addresses = interfaces::dialable(Transport::Tcp, bound).map_err(&failed)?;
        tasks.spawn(accept(listener, congestion.clone(), inbound));
    }
    Ok(Box::new(Tcp {
        congestion,
        addresses,
        tasks,
        _stop: stop,
    }))
}

/// Connections that may wait until they are accepted, as with libp2p and litep2p. With tokio's 128, a burst
/// of connections would wait a second, until its first packets are retransmitted.
const BACKLOG: u32 = 1024;

pub(super) fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() {
        TcpSocket::new_v4()?
    } else {
        TcpSocket::new_v6()?
    };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

async fn accept(listener: TcpListener, congestion: congestion::Tcp, inbound: mpsc::UnboundedSender<Inbound>) {
    let take = |stream: TcpStream, _, counted| {
        if let Err(error) = stream.set_nodelay(true).and_then(|()| congestion.set_up(&stream)) {
            // The peer is already gone.
            tracing::debug!(%error, "failed to set up an accepted connection");
            return;
        }
        // Without a receiver, the connection is dropped, which the peer notices.
        let _ = inbound.send(Inbound::Connection);
        let _ = inbound.send(Inbound::Stream(Box::new(Accepted {
            stream,
            _counted: counted,
        })));
    };
    accept::accept(listener, CONNECTIONS_MAX, "a connection", take).await;
}

/// An accepted connection, which counts against the limit until it is dropped.
struct Accepted {
    stream: TcpStream,
    _counted: OwnedSemaphorePermit,
}

impl AsyncRead for Accepted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Accepted {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

struct Tcp {
    congestion: congestion::Tcp,
    addresses: Vec<String>,
    tasks: Tasks,
    _stop: DropGuard,
}

#[async_trait]
impl Host for Tcp {
    fn addresses(&self) -> &[String] {
        &self.addresses
    }

    async fn dial(&self, address: &str) -> Result<Box<dyn Connection>, Error> {
        let target = DialTarget::parse(address)?;
        let congestion = self.congestion.clone();
        let connect = move || connect(target, congestion.clone());
        let started = Instant::now();
        let dialled = within(DIAL_TIMEOUT, connect()).await;
        let first = dialled.map_err(|reason| Error::dial(address, reason))?;
        let established = started.elapsed();
        let phases = DialPhases {
            transport: Some(established),
            relay: target.behind.map(|_| established),
            established,
        };
        Ok(Box::new(StreamPerConnection::new(first, phases, connect)))
    }

    /// A proxy keeps no reservations, because each connection names its target.
    async fn reserve(&self, relay: &str) -> Result<Reservation, Error> {
        let own = self
            .addresses
            .first()
            .ok_or_else(|| Error::setup(Stack::Raw, "a host behind a relay must listen"))?;
        Ok(Reservation {
            address: format!("{relay}{CIRCUIT}{own}"),
            relay_connected: None,
            granted: Duration::ZERO,
            connection: None,
        })
    }

    async fn close(self: Box<Self>) {
        self.tasks.end().await;
    }
}

/// Separates the address of a proxy and that of the peer behind it.
const CIRCUIT: &str = "/p2p-circuit";

/// What a host dials: a peer, or a proxy with a peer behind it.
#[derive(Clone, Copy)]
struct DialTarget {
    socket: SocketAddr,
    /// The nonce of the proxy at `socket`, and the peer behind it. `None` without a proxy.
    behind: Option<(Nonce, SocketAddr)>,
}

impl DialTarget {
    fn parse(text: &str) -> Result<Self, Error> {
        let (socket, behind) = match text.split_once(CIRCUIT) {
            Some((relay, behind)) => {
                let (socket, nonce) = target::parse(relay)?;
                (socket, Some((nonce, address::socket(Transport::Tcp, behind)?)))
            }
            None => (address::socket(Transport::Tcp, text)?, None),
        };
        Ok(Self { socket, behind })
    }
}

async fn connect(target: DialTarget, congestion: congestion::Tcp) -> Result<TcpStream, String> {
    let connected = async {
        let mut stream = TcpStream::connect(target.socket).await?;
        stream.set_nodelay(true)?;
        congestion.set_up(&stream)?;
        if let Some((nonce, behind)) = target.behind {
            target::write_target(&mut stream, nonce, behind).await?;
        }
        Ok(stream)
    };
    connected.await.map_err(|error: io::Error| error.to_string())
}
