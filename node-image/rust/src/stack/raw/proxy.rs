//! A plain TCP proxy, the baseline of a relay without a peer-to-peer stack.
//!
//! A connection starts with 18 bytes for its target: an IPv6 address, or an IPv4 address mapped into one, and
//! a port, both in network order. After that, bytes pass unchanged in both directions.

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

/// Bytes of an address and a port.
const TARGET: usize = 18;

/// Bytes that pass in one read and write: the chunk of nodes.
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

/// Sends a proxy the target of a connection.
pub(super) async fn write_target(stream: &mut TcpStream, target: SocketAddr) -> io::Result<()> {
    let mut bytes = [0; TARGET];
    let ip = match target.ip() {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    bytes[..16].copy_from_slice(&ip.octets());
    bytes[16..].copy_from_slice(&target.port().to_be_bytes());
    stream.write_all(&bytes).await
}

async fn read_target(stream: &mut TcpStream) -> io::Result<SocketAddr> {
    let mut bytes = [0; TARGET];
    stream.read_exact(&mut bytes).await?;
    let mut ip = [0; 16];
    ip.copy_from_slice(&bytes[..16]);
    let port = u16::from_be_bytes([bytes[16], bytes[17]]);
    Ok(SocketAddr::new(Ipv6Addr::from(ip).to_canonical(), port))
}

async fn accept(listener: TcpListener, inbound: mpsc::UnboundedSender<Inbound>, tasks: Tasks) {
    let room = Arc::new(Semaphore::new(MOST_INBOUND));
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let Ok(counted) = Arc::clone(&room).try_acquire_owned() else {
                    tracing::debug!("refused a connection above the limit");
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
                // Usually the process is out of file descriptors, which closing connections return.
                tracing::warn!(%error, "failed to accept a connection");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

/// Passes bytes until both sides have ended.
async fn pass(mut near: TcpStream, inbound: &mpsc::UnboundedSender<Inbound>) -> io::Result<()> {
    near.set_nodelay(true)?;
    // Without a receiver, the event is of no use.
    let report = |event| {
        let _ = inbound.send(event);
    };
    report(Inbound::Connection);
    let target = timeout(DIAL_TIMEOUT, read_target(&mut near)).await??;
    let mut far = timeout(DIAL_TIMEOUT, TcpStream::connect(target)).await??;
    far.set_nodelay(true)?;
    report(Inbound::Relay(RelayEvent::CircuitOpened));
    let passed = copy_bidirectional_with_sizes(&mut near, &mut far, BUFFER, BUFFER).await;
    report(Inbound::Relay(RelayEvent::CircuitClosed));
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
