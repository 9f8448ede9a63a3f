//! Addresses as text, the only form that all stacks share.

use std::{
    io,
    net::{IpAddr, SocketAddr, TcpListener, UdpSocket},
    time::Duration,
};

use libp2p::{Multiaddr, multiaddr::Protocol};
use perfrun_contract::matrix::Transport;

use super::{CLOSE_TIMEOUT, Error, error::describe};

/// The multiaddr of a socket, for example `/ip4/127.0.0.1/udp/4001/quic-v1`. An address in memory only has a
/// port.
pub(super) fn multiaddr(transport: Transport, socket: SocketAddr) -> Multiaddr {
    let address = Multiaddr::from(socket.ip());
    match transport {
        Transport::Memory => Multiaddr::empty().with(Protocol::Memory(socket.port().into())),
        Transport::Tcp | Transport::TcpTls => address.with(Protocol::Tcp(socket.port())),
        Transport::Ws => address
            .with(Protocol::Tcp(socket.port()))
            .with(Protocol::Ws("/".into())),
        Transport::QuicV1 => address.with(Protocol::Udp(socket.port())).with(Protocol::QuicV1),
        Transport::WebrtcDirect => address
            .with(Protocol::Udp(socket.port()))
            .with(Protocol::WebRTCDirect),
        Transport::Webtransport => address
            .with(Protocol::Udp(socket.port()))
            .with(Protocol::QuicV1)
            .with(Protocol::WebTransport),
    }
}

/// The multiaddr of a socket as text, for example `/ip4/127.0.0.1/udp/4001/quic-v1`.
pub fn socket_address(transport: Transport, socket: SocketAddr) -> String {
    multiaddr(transport, socket).to_string()
}

/// What stands before the key of a host of commonware.
pub(super) const BEFORE_KEY: &str = "/commonware/";

/// An address without the key of a host of commonware and what follows it, which no multiaddr has.
pub fn multiaddr_part(address: &str) -> &str {
    address
        .split_once(BEFORE_KEY)
        .map_or(address, |(multiaddr, _)| multiaddr)
}

/// The socket of an address of the raw stack, which has no peer id. The inverse of [`socket_address`].
pub(crate) fn socket(transport: Transport, address: &str) -> Result<SocketAddr, Error> {
    let refuse = |reason: &str| Error::address(address, reason);
    let parsed = parse(address)?;
    let mut parts = parsed.iter();
    let ip = match parts.next() {
        Some(Protocol::Ip4(ip)) => IpAddr::from(ip),
        Some(Protocol::Ip6(ip)) => IpAddr::from(ip),
        _ => return Err(refuse("it does not start with /ip4 or /ip6")),
    };
    let port = match (transport, parts.next(), parts.next(), parts.next()) {
        (Transport::Tcp, Some(Protocol::Tcp(port)), None, None) => port,
        (Transport::QuicV1, Some(Protocol::Udp(port)), Some(Protocol::QuicV1), None) => port,
        (Transport::QuicV1, ..) => return Err(refuse("it is not /ip…/udp/<port>/quic-v1")),
        _ => return Err(refuse("it is not /ip…/tcp/<port>")),
    };
    Ok(SocketAddr::new(ip, port))
}

/// Parses any multiaddr.
pub(super) fn parse(address: &str) -> Result<Multiaddr, Error> {
    address
        .parse()
        .map_err(|error| Error::address(address, describe(&error)))
}

/// Checks that a socket can be bound, with the error of the operating system.
///
/// Call it before a stack listens. litep2p drops the error, and libp2p shares a TCP port with any other
/// process that also sets `SO_REUSEPORT`, so that two nodes would each get half of the peers.
pub(super) fn check_free(transport: Transport, listen: (IpAddr, u16)) -> Result<(), Error> {
    bind(transport, listen.into()).map_err(cannot_listen(transport, listen))
}

/// Waits until a listener's port can be bound again.
///
/// A QUIC socket outlives its host while its connections drain (three probe timeouts, RFC 9000 §10.2), and no
/// stack waits for that. The next trial may listen on the same port.
pub(super) async fn until_free(transport: Transport, listen: (IpAddr, u16)) {
    let free = async {
        while bind(transport, listen.into()).is_err() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    if tokio::time::timeout(CLOSE_TIMEOUT, free).await.is_err() {
        tracing::warn!(
            address = socket_address(transport, listen.into()),
            "port is still in use after its host closed"
        );
    }
}

fn bind(transport: Transport, socket: SocketAddr) -> io::Result<()> {
    match transport {
        Transport::Tcp | Transport::TcpTls | Transport::Ws => TcpListener::bind(socket).map(drop),
        Transport::QuicV1 | Transport::WebrtcDirect | Transport::Webtransport => {
            UdpSocket::bind(socket).map(drop)
        }
        // Memory has no sockets.
        Transport::Memory => Ok(()),
    }
}

/// What makes an error of the operating system that of a listener.
pub(super) fn cannot_listen(
    transport: Transport,
    listen: impl Into<SocketAddr>,
) -> impl Fn(io::Error) -> Error {
    let address = socket_address(transport, listen.into());
    move |error| Error::Listen {
        address: address.clone(),
        reason: describe(&error),
    }
}

/// The port of a listener, once it is bound.
pub(super) fn port(address: &Multiaddr) -> Option<u16> {
    address.iter().find_map(|part| match part {
        Protocol::Tcp(port) | Protocol::Udp(port) => Some(port),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_is_the_same_after_conversion_to_text_and_back() {
        for transport in [Transport::Tcp, Transport::QuicV1] {
            for given in ["127.0.0.1:4001", "[::1]:4002"] {
                let given: SocketAddr = given.parse().expect("a socket address");
                let text = socket_address(transport, given);
                assert_eq!(socket(transport, &text).expect("its own text"), given);
            }
        }
    }

    #[test]
    fn an_address_of_another_transport_is_refused() {
        for address in [
            "/ip4/127.0.0.1/udp/1/quic-v1",
            "/ip4/127.0.0.1/tcp/1/ws",
            "/dns4/a.example/tcp/1",
            "127.0.0.1:1",
            "",
        ] {
            assert!(
                matches!(socket(Transport::Tcp, address), Err(Error::Address { .. })),
                "{address}"
            );
        }
    }
}
