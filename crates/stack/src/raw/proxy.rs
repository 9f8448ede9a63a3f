//! A plain TCP proxy, the raw reference of relays.
//!
//! A proxy that connected for everybody would be a way into whatever its machine reaches. So each trial's
//! proxy has a nonce, which is part of its address: `/ip4/10.0.0.1/tcp/4001/nonce/HEX`. Only nodes of the
//! trial learn the address, from the conductor.
//!
//! A connection starts with 34 bytes: the nonce, 16 bytes, and the target, an IPv6 address, or an IPv4
//! address mapped into one, and a port, both in network order. After that, bytes pass unchanged in both
//! directions. The proxy closes a connection with another nonce, and one to an address that means another
//! host at the proxy than at its peer: see [`may_connect`].

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
};

use async_trait::async_trait;
use perfrun_contract::matrix::{Stack, Transport};
use subtle::ConstantTimeEq;
use tokio::{
    io::{AsyncRead, AsyncReadExt, copy_bidirectional_with_sizes},
    net::{TcpListener, TcpStream},
    sync::mpsc,
    time::timeout,
};
use tokio_util::sync::DropGuard;

use super::{
    target::{NONCE, Nonce, TARGET},
    tcp,
};
use crate::{
    CONNECTIONS_MAX, Connection, DIAL_TIMEOUT, Error, Host, HostConfig, Inbound, RelayEvent, Reservation,
    accept, address, congestion, interfaces, tasks::Tasks,
};

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
        let failed = address::cannot_listen(Transport::Tcp, listen);
        let listener = tcp::bind(listen.into()).map_err(&failed)?;
        let bound = listener.local_addr().map_err(&failed)?;
        let nonce = Nonce(rand::random());
        addresses = interfaces::dialable(Transport::Tcp, bound).map_err(&failed)?;
        for address in &mut addresses {
            address.push_str(&nonce.suffix());
        }
        let gate = Gate {
            nonce,
            own: bound.ip(),
        };
        let congestion = congestion::Tcp::of(&config);
        tasks.spawn(accept(listener, gate, congestion, inbound, tasks.clone()));
    }
    Ok(Box::new(Proxy {
        addresses,
        tasks,
        _stop: stop,
    }))
}

/// Decides where a proxy connects.
#[derive(Clone, Copy)]
pub(crate) struct Gate {
    pub(crate) nonce: Nonce,
    /// The address that the proxy listens on.
    pub(crate) own: IpAddr,
}

impl Gate {
    /// Reads the first bytes of a connection.
    pub(crate) async fn read_target(self, stream: &mut (impl AsyncRead + Unpin)) -> io::Result<SocketAddr> {
        let (mut nonce, mut ip) = ([0; NONCE], [0; TARGET - 2]);
        stream.read_exact(&mut nonce).await?;
        if !bool::from(nonce.ct_eq(&self.nonce.0)) {
            let what = "a peer does not know the nonce of this trial's relay";
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, what));
        }
        stream.read_exact(&mut ip).await?;
        let ip = Ipv6Addr::from(ip).to_canonical();
        let port = stream.read_u16().await?;
        if !may_connect(self.own, ip) {
            let what = format!("a relay at {} does not connect to {ip}", self.own);
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, what));
        }
        Ok(SocketAddr::new(ip, port))
    }
}

/// Whether a proxy that listens on `own` may connect to `target`. Loopback and link-local addresses are those
/// of the proxy's own machine and link, which trust what comes from there, unless its peers are there as
/// well.
fn may_connect(own: IpAddr, target: IpAddr) -> bool {
    let is_link_local = |ip| match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    };
    let is_one_host =
        !target.is_unspecified() && !target.is_multicast() && target != IpAddr::V4(Ipv4Addr::BROADCAST);
    is_one_host
        && (own.is_loopback() || !target.is_loopback())
        && (is_link_local(own) || !is_link_local(target))
}

async fn accept(
    listener: TcpListener,
    gate: Gate,
    congestion: congestion::Tcp,
    inbound: mpsc::UnboundedSender<Inbound>,
    tasks: Tasks,
) {
    let take = |stream, _, counted| {
        let (inbound, congestion) = (inbound.clone(), congestion.clone());
        tasks.spawn(async move {
            if let Err(error) = pass(stream, gate, &congestion, &inbound).await {
                tracing::debug!(%error, "a proxied connection broke");
            }
            drop(counted);
        });
    };
    accept::accept(listener, CONNECTIONS_MAX, "a connection", take).await;
}

/// Passes bytes until both sides have ended.
async fn pass(
    mut near: TcpStream,
    gate: Gate,
    congestion: &congestion::Tcp,
    inbound: &mpsc::UnboundedSender<Inbound>,
) -> io::Result<()> {
    near.set_nodelay(true)?;
    congestion.set_up(&near)?;
    // Without a receiver, the event is of no use.
    let report = |event| {
        let _ = inbound.send(event);
    };
    report(Inbound::Connection);
    let target = timeout(DIAL_TIMEOUT, gate.read_target(&mut near)).await??;
    let mut far = timeout(DIAL_TIMEOUT, TcpStream::connect(target)).await??;
    far.set_nodelay(true)?;
    congestion.set_up(&far)?;
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
        Err(Error::unsupported(Stack::Raw, "dials of a proxy"))
    }

    async fn reserve(&self, _: &str) -> Result<Reservation, Error> {
        Err(Error::unsupported(Stack::Raw, "reservations of a proxy"))
    }

    async fn close(self: Box<Self>) {
        self.tasks.end().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proxy_connects_to_its_own_machine_and_link_only_if_its_peers_are_there() {
        let may = |own: &str, target: &str| may_connect(own.parse().unwrap(), target.parse().unwrap());
        for own in ["10.0.0.1", "fd00::1", "0.0.0.0", "::"] {
            for target in ["10.0.0.2", "192.168.1.1", "fd00::2", "2001:db8::1"] {
                assert!(may(own, target), "{own} {target}");
            }
            for target in ["127.0.0.1", "127.8.8.8", "::1", "169.254.169.254", "fe80::1"] {
                assert!(!may(own, target), "{own} {target}");
            }
        }
        assert!(may("127.0.1.3", "127.0.1.2") && may("::1", "::1"));
        assert!(may("169.254.0.1", "169.254.0.2") && may("fe80::1", "fe80::2"));
        assert!(!may("127.0.1.3", "169.254.169.254") && !may("169.254.0.1", "127.0.0.1"));
        for target in ["0.0.0.0", "::", "224.0.0.1", "ff02::1", "255.255.255.255"] {
            assert!(!may("127.0.0.1", target), "{target}");
        }
    }
}
