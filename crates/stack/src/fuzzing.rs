//! Entry points of fuzz targets: parsers of bytes that another program wrote.

use std::net::{Ipv4Addr, SocketAddr};

use perfrun_contract::matrix::Transport;
use tokio::io::AsyncRead;

use crate::{
    address::{socket, socket_address},
    raw::{
        proxy::Gate,
        target::{self, Nonce},
    },
};

/// An address as a conductor passes it on, or as people type it. Panics if it is another one after
/// conversion to text and back.
pub fn address(text: &str) {
    for transport in [Transport::Tcp, Transport::QuicV1] {
        if let Ok(known) = socket(transport, text) {
            let again = socket_address(transport, known);
            assert_eq!(socket(transport, &again).ok(), Some(known), "{text}");
        }
    }
    if let Ok((known, nonce)) = target::parse(text) {
        let again = socket_address(Transport::Tcp, known) + &nonce.suffix();
        let read = target::parse(&again).ok();
        let read = read.map(|(socket, nonce)| (socket, nonce.suffix()));
        assert_eq!(read, Some((known, nonce.suffix())), "{text}");
    }
    #[cfg(feature = "commonware")]
    {
        use crate::commonware::address::Address;

        if let Ok(known) = Address::parse(text) {
            assert_eq!(Address::parse(&known.to_string()).ok(), Some(known), "{text}");
        }
    }
}

/// Where a raw relay at 10.0.0.1 connects for a peer that sends these bytes. `None` if it closes the
/// connection.
pub async fn relay_target(nonce: [u8; 16], mut stream: impl AsyncRead + Unpin) -> Option<SocketAddr> {
    let gate = Gate {
        nonce: Nonce(nonce),
        own: Ipv4Addr::new(10, 0, 0, 1).into(),
    };
    gate.read_target(&mut stream).await.ok()
}

/// The key and the port of a peer that introduces itself to a host of commonware-p2p with these bytes. `None`
/// if the host closes the connection.
#[cfg(feature = "commonware")]
pub async fn introduced(mut stream: impl AsyncRead + Unpin) -> Option<(Vec<u8>, u16)> {
    use crate::commonware::introduction::{Introduction, read};

    let (Introduction { key, port }, _) = read(&mut stream).await.ok()?;
    Some((key.to_vec(), port))
}
