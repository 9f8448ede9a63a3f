//! Which peers are reached over which link.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::impairment::{Impairment, Mode, Problem};

/// All links that begin at one interface: what is sent to the peers named here is impaired, everything else is not.
///
/// That a `Link` exists means that its figures are possible.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(try_from = "Vec<Route>", into = "Vec<Route>")]
pub struct Link(Vec<Route>);

/// Peers that share a link: its rate, its queue, its good and bad times.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Route {
    /// Destinations of packets. Of two prefixes that hold an address, the longer one counts.
    pub peers: Vec<Prefix>,
    /// What happens on the way to them.
    pub impairment: Impairment,
}

/// Addresses that begin with the same bits. In JSON text, `10.99.0.2` or `fd00::/64`.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, JsonSchema, PartialEq, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct Prefix {
    address: IpAddr,
    length: u8,
}

/// No prefix that peers can have.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
pub enum BadPrefix {
    /// Neither an address nor one with a length.
    #[error("unable to read {0:?} as peers: write an address, or a prefix such as 10.0.0.0/24")]
    Unreadable(String),
    /// More bits than an address has.
    #[error("{address}/{length} is longer than an address: write at most /{}", bits(*.address))]
    TooLong {
        /// The address.
        address: IpAddr,
        /// Its bits that count.
        length: u8,
    },
    /// The length or the address is a mistake.
    #[error("{address}/{length} has bits set behind its length: write {prefix}, or a longer prefix")]
    BitsBehindLength {
        /// The address.
        address: IpAddr,
        /// Its bits that count.
        length: u8,
        /// Without those bits.
        prefix: Prefix,
    },
    /// Control traffic, DNS and probes of the kubelet would be impaired, too.
    #[error("{0}/0 is everybody: name the peers, so that control traffic is not impaired")]
    Everybody(IpAddr),
    /// Never sent through an interface to one peer.
    #[error("{0} is no address of a peer: name a unicast address that is not loopback")]
    NotAPeer(IpAddr),
}

/// Links that contradict themselves.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum BadLink {
    /// A figure.
    #[error("unable to impair the link to {peer}")]
    Impairment {
        /// The first of its peers.
        peer: Prefix,
        /// What is wrong.
        source: Problem,
    },
    /// A link to nobody.
    #[error("an impairment without peers changes nothing: name peers, or leave it out")]
    NoPeers,
    /// Which of the two would count is anybody's guess.
    #[error("{0} is reached over two links: name it once")]
    TwoLinks(Prefix),
}

impl Link {
    /// Puts links together, if they are possible. None at all impair nothing.
    pub fn new(routes: Vec<Route>) -> Result<Self, BadLink> {
        let mut seen = std::collections::HashSet::new();
        for Route { peers, impairment } in &routes {
            let peer = *peers.first().ok_or(BadLink::NoPeers)?;
            impairment
                .check()
                .map_err(|source| BadLink::Impairment { peer, source })?;
            if let Some(twice) = peers.iter().find(|peer| !seen.insert(**peer)) {
                return Err(BadLink::TwoLinks(*twice));
            }
        }
        Ok(Self(routes))
    }

    /// One link that all of the peers share.
    pub fn to(peers: impl IntoIterator<Item = Prefix>, impairment: Impairment) -> Result<Self, BadLink> {
        Self::new(vec![Route {
            peers: peers.into_iter().collect(),
            impairment,
        }])
    }

    /// Whether anything happens to packets to anybody.
    pub fn impairs(&self) -> bool {
        self.0.iter().any(|route| !route.impairment.is_none())
    }

    /// The links, as they were given.
    pub fn routes(&self) -> &[Route] {
        &self.0
    }

    /// Peers and the number of their link, longer prefixes first: the first that holds an address is the one.
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

    /// How packets pass: an interface has one mode, so one link that decides about packets decides for all.
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

impl TryFrom<Vec<Route>> for Link {
    type Error = BadLink;

    fn try_from(routes: Vec<Route>) -> Result<Self, BadLink> {
        Self::new(routes)
    }
}

impl From<Link> for Vec<Route> {
    fn from(link: Link) -> Self {
        link.0
    }
}

impl Prefix {
    /// The addresses that share the first `length` bits with this one.
    pub fn new(address: IpAddr, length: u8) -> Result<Self, BadPrefix> {
        if length > bits(address) {
            return Err(BadPrefix::TooLong { address, length });
        }
        if length == 0 {
            return Err(BadPrefix::Everybody(address));
        }
        if address.is_loopback() || address.is_multicast() || address.is_unspecified() {
            return Err(BadPrefix::NotAPeer(address));
        }
        let prefix = Self {
            address: masked(address, length),
            length,
        };
        if prefix.address != address {
            return Err(BadPrefix::BitsBehindLength {
                address,
                length,
                prefix,
            });
        }
        Ok(prefix)
    }

    /// Its first address.
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// Bits that its addresses have in common.
    pub fn length(&self) -> u8 {
        self.length
    }

    /// Whether it is a single address.
    pub fn is_host(&self) -> bool {
        self.length == bits(self.address)
    }

    /// Whether the address is one of them.
    pub fn contains(&self, address: IpAddr) -> bool {
        address.is_ipv4() == self.address.is_ipv4() && masked(address, self.length) == self.address
    }
}

impl TryFrom<IpAddr> for Prefix {
    type Error = BadPrefix;

    fn try_from(address: IpAddr) -> Result<Self, BadPrefix> {
        Self::new(address, bits(address))
    }
}

impl FromStr for Prefix {
    type Err = BadPrefix;

    fn from_str(text: &str) -> Result<Self, BadPrefix> {
        let unreadable = || BadPrefix::Unreadable(text.to_owned());
        let (address, length) = match text.split_once('/') {
            Some((address, length)) => (address, Some(length.parse().map_err(|_| unreadable())?)),
            None => (text, None),
        };
        let address = address.parse().map_err(|_| unreadable())?;
        Self::new(address, length.unwrap_or(bits(address)))
    }
}

impl TryFrom<String> for Prefix {
    type Error = BadPrefix;

    fn try_from(text: String) -> Result<Self, BadPrefix> {
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

/// A netmask.
pub fn mask_v4(length: u8) -> u32 {
    u32::MAX.checked_shl(32 - u32::from(length)).unwrap_or(0)
}

/// A netmask.
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
    fn what_is_no_peer_is_refused_with_what_to_write() {
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
        let twice = Link::new(vec![route(&["10.0.0.1"]), route(&["10.0.0.2", "10.0.0.1"])]);
        assert_eq!(twice, Err(BadLink::TwoLinks(prefix("10.0.0.1"))));
        assert_eq!(Link::new(vec![route(&[])]), Err(BadLink::NoPeers));
        let wrong = r#"[{"peers": ["10.0.0.1"], "impairment": {"rateBitsPerSecond": 1}}]"#;
        let problem = serde_json::from_str::<Link>(wrong).unwrap_err().to_string();
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
        let link = Link::new(vec![route("10.0.0.0/8"), route("10.0.0.1"), route("fd00::/64")]).unwrap();
        let order: Vec<_> = link.peers().into_iter().map(|(_, number)| number).collect();
        assert_eq!(order, [2, 1, 0]);
    }
}
