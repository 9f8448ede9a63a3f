//! Addresses of hosts, for example `/ip4/192.0.2.1/tcp/4001/commonware/<key>/introduction/4002`. Hosts of the
//! stream layer take no introductions.

use std::{fmt, net::SocketAddr};

use commonware_codec::DecodeExt;
use commonware_cryptography::ed25519::PublicKey;
use perfrun_contract::matrix::Transport;

use crate::{
    Error,
    address::{self, BEFORE_KEY},
};

/// Where a host listens, who it is, and where it takes introductions, if it does.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Address {
    pub(super) socket: SocketAddr,
    pub(super) key: PublicKey,
    pub(super) introduction: Option<SocketAddr>,
}

impl Address {
    /// The part after the socket.
    pub(super) fn suffix(key: &PublicKey, introduction: Option<u16>) -> String {
        let introduction = introduction.map_or(String::new(), |port| format!("/introduction/{port}"));
        format!("{BEFORE_KEY}{key}{introduction}")
    }

    /// The inverse of [`fmt::Display`].
    pub(crate) fn parse(text: &str) -> Result<Self, Error> {
        let refuse = |reason: &str| Error::address(text, reason);
        let parts = text.split_once(BEFORE_KEY);
        let (socket, rest) = parts.ok_or_else(|| refuse("it has no /commonware/<key>"))?;
        let (key, port) = match rest.split_once("/introduction/") {
            Some((key, port)) => (key, Some(port)),
            None => (rest, None),
        };
        let socket = address::socket(Transport::Tcp, socket)?;
        let key =
            key_of(key).ok_or_else(|| refuse("its key is not an Ed25519 key of 64 hexadecimal digits"))?;
        let port = port
            .map(|port| port.parse().map_err(|_| refuse("its introduction is not a port")))
            .transpose()?;
        Ok(Self {
            socket,
            key,
            introduction: port.map(|port| SocketAddr::new(socket.ip(), port)),
        })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let socket = address::multiaddr(Transport::Tcp, self.socket);
        let suffix = Self::suffix(&self.key, self.introduction.map(|socket| socket.port()));
        write!(f, "{socket}{suffix}")
    }
}

fn key_of(digits: &str) -> Option<PublicKey> {
    let digits = digits.as_bytes();
    if digits.len() != 64 || !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    let bytes: Vec<u8> = digits
        .chunks(2)
        .filter_map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok())
        .collect();
    PublicKey::decode(bytes).ok()
}

#[cfg(test)]
mod tests {
    use commonware_cryptography::{Signer, ed25519::PrivateKey};

    use super::*;

    #[test]
    fn an_address_is_the_same_after_conversion_to_text_and_back() {
        for socket in ["127.0.0.1:4001", "[::1]:4002"] {
            let socket: SocketAddr = socket.parse().expect("a socket address");
            for introduction in [None, Some(SocketAddr::new(socket.ip(), 5000))] {
                let given = Address {
                    socket,
                    key: PrivateKey::from_seed(7).public_key(),
                    introduction,
                };
                assert_eq!(Address::parse(&given.to_string()).expect("its own text"), given);
            }
        }
    }

    #[test]
    fn addresses_of_others_are_refused() {
        let key = PrivateKey::from_seed(7).public_key().to_string();
        let after = |text: &str| format!("/ip4/127.0.0.1/tcp/1/commonware/{text}");
        for text in [
            String::new(),
            "/ip4/127.0.0.1/tcp/1".to_owned(),
            after(""),
            after(&key[1..]),
            after(&format!("{key}/introduction/")),
            after("/introduction/1"),
            after(&format!("{}/introduction/1", &key[1..])),
            after(&format!("{}é/introduction/1", &key[2..])),
            after(&format!("+{}/introduction/1", &key[1..])),
            after(&format!("{key}/introduction/65536")),
            format!("/ip4/127.0.0.1/udp/1/quic-v1/commonware/{key}/introduction/1"),
            format!("/dns4/a.example/tcp/1/commonware/{key}/introduction/1"),
        ] {
            let parsed = Address::parse(&text);
            assert!(matches!(parsed, Err(Error::Address { .. })), "{text}: {parsed:?}");
        }
    }
}
