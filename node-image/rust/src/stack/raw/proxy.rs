//! A plain TCP proxy: what a relay costs without a peer-to-peer stack.
//!
//! Whoever connects first says in 18 bytes where to go: an IPv6 address, or an IPv4 address mapped into one, and a port,
//! both in network order. From then on bytes pass both ways as they are.

use std::{
    io,
    net::{IpAddr, Ipv6Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use perfrun_contract::matrix::{Stack, Transport};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional_with_sizes},
    net::{TcpListener, TcpStream},
    sync::{Semaphore, mpsc},
    time::timeout,
};
use tokio_util::sync::DropGuard;

use super::tcp;
use crate::stack::{
    Connection, DIAL_TIMEOUT, Error, Host, HostConfig, Inbound, MOST_INBOUND, RelayEvent, Reservation,
    address, interfaces, tasks::Tasks,
};

/// An address and a port.
const ASKED: usize = 18;

/// Bytes that pass at once in one direction: what nodes write and read at once.
const BUFFER: usize = 64 << 10;

pub(super) fn start(
    config: HostConfig,
    inbound: mpsc::UnboundedSender<Inbound>,
) -> Result<Box<dyn Host>, Error> {
    let tasks = Tasks::default();
    let stop = tasks.stop_on_drop();
    let mut addresses = vec![];
    if let Some(listen) = config.listen {
        let failed = |error: io::Error| Error::Listen {
            address: address::text(Transport::Tcp, listen),
            reason: address::describe(&error),
        };
        let listener = tcp::bind(listen.into()).map_err(failed)?;
        let bound = listener.local_addr().map_err(failed)?;
        addresses = interfaces::dialable(Transport::Tcp, bound).map_err(failed)?;
        tasks.spawn(accept(listener, inbound, tasks.clone()));
    }
    Ok(Box::new(Proxy {
        addresses,
        tasks,
        _stop: stop,
    }))
}

/// Tells a proxy where to go.
pub(super) async fn ask(stream: &mut TcpStream, target: SocketAddr) -> io::Result<()> {
    let mut asked = [0; ASKED];
    let ip = match target.ip() {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    asked[..16].copy_from_slice(&ip.octets());
    asked[16..].copy_from_slice(&target.port().to_be_bytes());
    stream.write_all(&asked).await
}

async fn asked(stream: &mut TcpStream) -> io::Result<SocketAddr> {
    let mut asked = [0; ASKED];
    stream.read_exact(&mut asked).await?;
    let mut ip = [0; 16];
    ip.copy_from_slice(&asked[..16]);
    let port = u16::from_be_bytes([asked[16], asked[17]]);
    Ok(SocketAddr::new(Ipv6Addr::from(ip).to_canonical(), port))
}

async fn accept(listener: TcpListener, inbound: mpsc::UnboundedSender<Inbound>, tasks: Tasks) {
    let room = Arc::new(Semaphore::new(MOST_INBOUND));
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let Ok(counted) = Arc::clone(&room).try_acquire_owned() else {
                    tracing::debug!("a connection too many was refused");
                    continue;
                };
                let inbound = inbound.clone();
                tasks.spawn(async move {
                    if let Err(error) = pass(stream, &inbound).await {
                        tracing::debug!(%error, "a proxied connection broke");
                    }
                    drop(counted);
                });
            }
            Err(error) => {
                // Out of file descriptors, usually; they come back when connections close.
                tracing::warn!(%error, "failed to accept a connection");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

/// Passes bytes until both sides have ended.
async fn pass(mut near: TcpStream, inbound: &mpsc::UnboundedSender<Inbound>) -> io::Result<()> {
    near.set_nodelay(true)?;
    // A receiver that is gone no longer wants to know.
    let tell = |event| {
        let _ = inbound.send(event);
    };
    tell(Inbound::Connection);
    let target = timeout(DIAL_TIMEOUT, asked(&mut near)).await??;
    let mut far = timeout(DIAL_TIMEOUT, TcpStream::connect(target)).await??;
    far.set_nodelay(true)?;
    tell(Inbound::Relay(RelayEvent::CircuitOpened));
    let passed = copy_bidirectional_with_sizes(&mut near, &mut far, BUFFER, BUFFER).await;
    tell(Inbound::Relay(RelayEvent::CircuitClosed));
    passed.map(drop)
}

struct Proxy {
    addresses: Vec<String>,
    tasks: Tasks,
    _stop: DropGuard,
}

#[async_trait]
impl Host for Proxy {
    fn addresses(&self) -> &[String] {
        &self.addresses
    }

    async fn dial(&self, _: &str) -> Result<Box<dyn Connection>, Error> {
        Err(unsupported("dial as a proxy"))
    }

    async fn reserve(&self, _: &str) -> Result<Reservation, Error> {
        Err(unsupported("reserve as a proxy"))
    }

    async fn close(self: Box<Self>) {
        self.tasks.end().await;
    }
}

fn unsupported(what: &str) -> Error {
    Error::Unsupported {
        stack: Stack::Raw,
        what: what.to_owned(),
    }
}
