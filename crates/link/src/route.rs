//! Which peers are reached over which link.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    str::FromStr,
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::impairment::{Impairment, InvalidImpairment, Mode};

/// All links that begin at one interface. Packets to the peers named here are impaired, all others are not.
///
/// They can only be built from parameters that are possible.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(try_from = "Vec<Route>", into = "Vec<Route>")]
pub struct OutgoingLinks(Vec<Route>);

/// Peers that share a link: its rate, its queue, its good and bad states.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Route {
    /// The destinations of packets. If two prefixes contain an address, the longer one counts.
    pub peers: Vec<Prefix>,
    /// What happens to packets on the way to these peers.
    pub impairment: Impairment,
}

/// Addresses that begin with the same bits. In JSON text, `10.99.0.2` or `fd00::/64`.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, JsonSchema, PartialEq, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct Prefix {
    address: IpAddr,
    length: u8,
}

/// Why a text or an address is not a prefix of peers.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
pub enum InvalidPrefix {
    /// The text is neither an address nor an address with a length.
    #[error("unable to read {0:?} as peers: write an address, or a prefix such as 10.0.0.0/24")]
    Unreadable(String),
    /// The length is more than the bits of an address.
    #[error("{address}/{length} is longer than an address: write at most /{}", bits(*.address))]
    TooLong {
        /// The address.
        address: IpAddr,
        /// The length of the prefix in bits.
        length: u8,
    },
    /// Bits behind the length are set: the length or the address is a mistake.
    #[error("{address}/{length} has bits set behind its length: write {prefix}, or a longer prefix")]
    BitsBehindLength {
        /// The address.
        address: IpAddr,
        /// The length of the prefix in bits.
        length: u8,
        /// The prefix without those bits.
        prefix: Prefix,
    },
    /// The prefix contains every address: control traffic, DNS and the kubelet's probes would be impaired,
    /// too.
    #[error("{0}/0 contains every address: name the peers, so that control traffic is not impaired")]
    EveryAddress(IpAddr),
    /// The address is not a unicast address of a peer.
    #[error("{0} is not the address of a peer: name a unicast address that is not loopback")]
    NotAPeer(IpAddr),
}

/// Why routes are not [`OutgoingLinks`].
#[derive(Clone, Debug, Error, PartialEq)]
pub enum InvalidOutgoingLinks {
    /// An impairment has an impossible parameter.
    #[error("unable to impair the link to {peer}")]
    Impairment {
        /// The first peer of the link.
        peer: Prefix,
        /// What is wrong with the impairment.
        source: InvalidImpairment,
    },
    /// A link names no peers.
    #[error("an impairment without peers changes nothing: name peers, or remove the impairment")]
    NoPeers,
    /// Two links name the same peers.
    #[error("{0} is named by two links: name it once")]
    DuplicatePeers(Prefix),
}

impl OutgoingLinks {
    /// Puts links together if they are possible. An empty list impairs nothing.
    pub fn new(routes: Vec<Route>) -> Result<Self, InvalidOutgoingLinks> {
        let mut seen = std::collections::HashSet::new();
        for Route { peers, impairment } in &routes {
            let peer = *peers.first().ok_or(InvalidOutgoingLinks::NoPeers)?;
            impairment
                .check()
                .map_err(|source| InvalidOutgoingLinks::Impairment { peer, source })?;
            if let Some(twice) = peers.iter().find(|peer| !seen.insert(**peer)) {
                return Err(InvalidOutgoingLinks::DuplicatePeers(*twice));
            }
        }
        Ok(Self(routes))
    }

    /// Makes one link that all peers share.
    pub fn to(
        peers: impl IntoIterator<Item = Prefix>,
        impairment: Impairment,
    ) -> Result<Self, InvalidOutgoingLinks> {
        Self::new(vec![Route {
            peers: peers.into_iter().collect(),
            impairment,
        }])
    }

    /// Whether packets to any peer are impaired.
    pub fn impairs(&self) -> bool {
        self.0.iter().any(|route| !route.impairment.is_none())
    }

    /// The routes, in the order in which they were given.
    pub fn routes(&self) -> &[Route] {
        &self.0
    }

    /// Peers and the number of their route, longer prefixes first: the first prefix that contains an address
    /// counts.
    pub fn peers(&self) -> Vec<(Prefix, usize)> {
        let mut peers: Vec<_> = self
            .0
            .iter()
            .enumerate()
            .flat_map(|(number, route)| route.peers.iter().map(move |peer| (*peer, number)))
            .collect();
        peers.sort_by_key(|(peer, _)| std::cmp::Reverse(peer.length));
        peers
    }

    /// Whether merged packets stay merged. An interface has one mode, so one link that decides about packets
    /// decides for all.
    pub fn mode(&self) -> Mode {
        let per_packet = self
            .0
            .iter()
            .any(|route| route.impairment.mode() == Mode::PerPacket);
        if per_packet {
            Mode::PerPacket
        } else {
            Mode::SuperPackets
        }
    }
}

impl TryFrom<Vec<Route>> for OutgoingLinks {
    type Error = InvalidOutgoingLinks;

    fn try_from(routes: Vec<Route>) -> Result<Self, InvalidOutgoingLinks> {
        Self::new(routes)
    }
}

impl From<OutgoingLinks> for Vec<Route> {
    fn from(links: OutgoingLinks) -> Self {
        links.0
    }
}

impl Prefix {
    /// The addresses that share the first `length` bits with this address.
    pub fn new(address: IpAddr, length: u8) -> Result<Self, InvalidPrefix> {
        if length > bits(address) {
            return Err(InvalidPrefix::TooLong { address, length });
        }
        if length == 0 {
            return Err(InvalidPrefix::EveryAddress(address));
        }
        if address.is_loopback() || address.is_multicast() || address.is_unspecified() {
            return Err(InvalidPrefix::NotAPeer(address));
        }
        let prefix = Self {
            address: masked(address, length),
            length,
        };
        if prefix.address != address {
            return Err(InvalidPrefix::BitsBehindLength {
                address,
                length,
                prefix,
            });
        }
        Ok(prefix)
    }

    /// The first address of the prefix.
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// The number of bits that the addresses have in common.
    pub fn length(&self) -> u8 {
        self.length
    }

    /// Whether the prefix is a single address.
    pub fn is_host(&self) -> bool {
        self.length == bits(self.address)
    }

    /// Whether the prefix contains the address.
    pub fn contains(&self, address: IpAddr) -> bool {
        address.is_ipv4() == self.address.is_ipv4() && masked(address, self.length) == self.address
    }
}

impl TryFrom<IpAddr> for Prefix {
    type Error = InvalidPrefix;

    fn try_from(address: IpAddr) -> Result<Self, InvalidPrefix> {
        Self::new(address, bits(address))
    }
}

impl FromStr for Prefix {
    type Err = InvalidPrefix;

    fn from_str(text: &str) -> Result<Self, InvalidPrefix> {
        let unreadable = || InvalidPrefix::Unreadable(text.to_owned());
        let (address, length) = match text.split_once('/') {
            Some((address, length)) => (address, Some(length.parse().map_err(|_| unreadable())?)),
            None => (text, None),
        };
        let address = address.parse().map_err(|_| unreadable())?;
        Self::new(address, length.unwrap_or(bits(address)))
    }
}

impl TryFrom<String> for Prefix {
    type Error = InvalidPrefix;

    fn try_from(text: String) -> Result<Self, InvalidPrefix> {
        text.parse()
    }
}

impl From<Prefix> for String {
    fn from(prefix: Prefix) -> Self {
        prefix.to_string()
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_host() {
            write!(f, "{}", self.address)
        } else {
            write!(f, "{}/{}", self.address, self.length)
        }
    }
}

fn bits(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(_) => 32,
        IpAddr::V6(_) => 128,
    }
}

/// The first `length` bits, which must be at most those of an address, and the rest zero.
fn masked(address: IpAddr, length: u8) -> IpAddr {
    match address {
        IpAddr::V4(v4) => Ipv4Addr::from_bits(v4.to_bits() & mask_v4(length)).into(),
        IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() & mask_v6(length)).into(),
    }
}

/// The netmask of an IPv4 prefix of this length.
pub fn mask_v4(length: u8) -> u32 {
    u32::MAX.checked_shl(32 - u32::from(length)).unwrap_or(0)
}

/// The netmask of an IPv6 prefix of this length.
pub fn mask_v6(length: u8) -> u128 {
    u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix(text: &str) -> Prefix {
        text.parse().unwrap()
    }

    #[test]
    fn prefixes_are_read_as_they_are_written() {
        for text in ["10.99.0.2", "10.99.0.0/24", "fd00::1", "fd00:1::/32"] {
            assert_eq!(prefix(text).to_string(), text);
        }
        assert_eq!(prefix("10.99.0.2/32"), prefix("10.99.0.2"));
        assert!(prefix("10.99.0.0/24").contains("10.99.0.200".parse().unwrap()));
        assert!(!prefix("10.99.0.0/24").contains("10.99.1.0".parse().unwrap()));
        assert!(!prefix("10.99.0.0/24").contains("::ffff:10.99.0.1".parse().unwrap()));
        assert!(prefix("fd00:1::/32").contains("fd00:1:ffff::9".parse().unwrap()));
    }

    #[test]
    fn text_that_is_not_a_peer_is_refused_with_advice() {
        let cases = [
            ("10.99.0.1/33", "write at most /32"),
            ("10.99.0.1/24", "write 10.99.0.0/24"),
            ("0.0.0.0/0", "name the peers"),
            ("::/0", "name the peers"),
            ("127.0.0.1", "not loopback"),
            ("224.0.0.1", "unicast"),
            ("peer-1", "write an address"),
        ];
        for (text, words) in cases {
            let problem = text.parse::<Prefix>().unwrap_err().to_string();
            assert!(problem.contains(words), "{problem}");
        }
    }

    #[test]
    fn links_that_contradict_themselves_are_refused() {
        let route = |peers: &[&str]| Route {
            peers: peers.iter().map(|peer| prefix(peer)).collect(),
            impairment: Impairment::default(),
        };
        let twice = OutgoingLinks::new(vec![route(&["10.0.0.1"]), route(&["10.0.0.2", "10.0.0.1"])]);
        assert_eq!(
            twice,
            Err(InvalidOutgoingLinks::DuplicatePeers(prefix("10.0.0.1")))
        );
        assert_eq!(
            OutgoingLinks::new(vec![route(&[])]),
            Err(InvalidOutgoingLinks::NoPeers)
        );
        let wrong = r#"[{"peers": ["10.0.0.1"], "impairment": {"rateBitsPerSecond": 1}}]"#;
        let problem = serde_json::from_str::<OutgoingLinks>(wrong)
            .unwrap_err()
            .to_string();
        assert!(
            problem.contains("unable to impair the link to 10.0.0.1"),
            "{problem}"
        );
    }

    #[test]
    fn longer_prefixes_come_first() {
        let route = |peer| Route {
            peers: vec![prefix(peer)],
            impairment: Impairment::default(),
        };
        let link =
            OutgoingLinks::new(vec![route("10.0.0.0/8"), route("10.0.0.1"), route("fd00::/64")]).unwrap();
        let order: Vec<_> = link.peers().into_iter().map(|(_, number)| number).collect();
        assert_eq!(order, [2, 1, 0]);
    }
}
