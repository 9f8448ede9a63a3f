//! What a peer reports to a proxy: the nonce that its peers know, and the target of a connection.

use std::{
    io,
    net::{IpAddr, SocketAddr},
};

use perfrun_contract::matrix::Transport;
use tokio::{io::AsyncWriteExt, net::TcpStream};

use crate::{Error, address};

/// Bytes of a nonce.
pub(super) const NONCE: usize = 16;
/// Bytes of an address and a port.
pub(super) const TARGET: usize = 18;
/// Separates the socket of a proxy and its nonce.
const NONCE_SEPARATOR: &str = "/nonce/";

/// What a proxy's peers know, and others do not.
#[derive(Clone, Copy)]
pub(crate) struct Nonce(pub(crate) [u8; NONCE]);

impl Nonce {
    /// The end of the proxy's address.
    pub(crate) fn suffix(self) -> String {
        format!("{NONCE_SEPARATOR}{:032x}", u128::from_be_bytes(self.0))
    }
}

/// The socket and the nonce in the address of a proxy.
pub(crate) fn parse(address: &str) -> Result<(SocketAddr, Nonce), Error> {
    let parts = address.split_once(NONCE_SEPARATOR);
    let nonce = parts.and_then(|(_, nonce)| u128::from_str_radix(nonce, 16).ok());
    let (Some((socket, _)), Some(nonce)) = (parts, nonce) else {
        return Err(Error::address(
            address,
            "it is not that of a proxy: it does not end with /nonce/ and 32 hexadecimal digits",
        ));
    };
    let socket = address::socket(Transport::Tcp, socket)?;
    Ok((socket, Nonce(nonce.to_be_bytes())))
}

/// Tells a proxy the target of a connection.
pub(super) async fn write_target(
    stream: &mut TcpStream,
    Nonce(nonce): Nonce,
    target: SocketAddr,
) -> io::Result<()> {
    let ip = match target.ip() {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    let bytes = [&nonce[..], &ip.octets(), &target.port().to_be_bytes()].concat();
    stream.write_all(&bytes).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_of_a_proxy_is_its_socket_and_its_nonce() {
        let given = Nonce([7; NONCE]);
        let text = format!("/ip4/10.0.0.1/tcp/4001{}", given.suffix());
        assert_eq!(
            text,
            "/ip4/10.0.0.1/tcp/4001/nonce/07070707070707070707070707070707"
        );
        let (socket, nonce) = parse(&text).unwrap();
        assert_eq!((socket.to_string().as_str(), nonce.0), ("10.0.0.1:4001", given.0));
        for other in [
            "/ip4/10.0.0.1/tcp/4001",
            "/ip4/10.0.0.1/tcp/4001/nonce/",
            "/nonce/07",
        ] {
            assert!(matches!(parse(other), Err(Error::Address { .. })), "{other}");
        }
    }
}
