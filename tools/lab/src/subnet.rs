//! The addresses of a lab. One number determines them all, so that labs side by side differ in one byte.
//!
//! ```text
//!   10.S.0.1        this host's link into the lab
//!   10.S.0.10       the control plane: API server, DNS
//!   10.S.0.10+N     node N
//!   10.S.N.0/24     pods of node N
//!   10.S.240.0/20   services
//! ```
//!
//! A dual-stack lab also has addresses of IPv6, where `fd6c:6162:S:N::F`, in hexadecimal, stands for
//! 10.S.N.F.

use std::{
    net::{Ipv4Addr, Ipv6Addr},
    ops::RangeInclusive,
};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

/// Pod ranges must stay below those of services, and addresses of nodes inside their own /24.
pub(crate) const NODES_MAX: u8 = 100;

/// The port of the API server.
pub(crate) const API_PORT: u16 = 6443;

/// The second byte of the addresses. Its range avoids those of Docker, kind and the usual pod networks.
const CANDIDATES: RangeInclusive<u8> = 88..=119;

/// The third byte of the addresses of services.
const SERVICES: u8 = 240;

#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) struct Subnet {
    /// The second byte of the addresses.
    #[serde(rename = "subnet")]
    number: u8,
    /// Whether there are addresses of IPv6.
    #[serde(default)]
    pub(crate) dual_stack: bool,
}

impl Subnet {
    /// The first subnet that does not overlap `routes` (the output of `ip -4 route show table all`) and is
    /// not `taken` by another lab.
    pub(crate) fn choose(routes: &str, taken: &[Self]) -> Result<Self> {
        let routes: Vec<_> = routes.lines().filter_map(destination).collect();
        CANDIDATES
            .map(Self::of)
            .find(|subnet| {
                let is_taken = taken.iter().any(|other| other.number == subnet.number);
                !is_taken && !routes.iter().any(|route| subnet.overlaps(*route))
            })
            .with_context(|| {
                format!(
                    "unable to find addresses for a lab: 10.{}.0.0/16 to 10.{}.0.0/16 are all in use; \
                     take a lab down with `cargo xtask lab --name NAME down`",
                    CANDIDATES.start(),
                    CANDIDATES.end()
                )
            })
    }

    fn of(number: u8) -> Self {
        Self {
            number,
            dual_stack: false,
        }
    }

    pub(crate) fn with_dual_stack(self, dual_stack: bool) -> Self {
        Self { dual_stack, ..self }
    }

    pub(crate) fn number(self) -> u8 {
        self.number
    }

    pub(crate) fn host(self) -> Ipv4Addr {
        self.address(0, 1)
    }

    pub(crate) fn control_plane(self) -> Ipv4Addr {
        self.address(0, 10)
    }

    pub(crate) fn node(self, node: u8) -> Ipv4Addr {
        self.address(0, 10 + node)
    }

    /// The ranges of a node's pods, one of each IP family.
    pub(crate) fn pods(self, node: u8) -> Vec<String> {
        self.each(
            format!("{}/24", self.address(node, 0)),
            format!("{}/64", self.address_v6(node, 0)),
        )
    }

    /// The ranges of services, one of each IP family.
    pub(crate) fn services(self) -> Vec<String> {
        self.each(
            format!("{}/20", self.address(SERVICES, 0)),
            format!("{}/112", self.address_v6(SERVICES, 0)),
        )
    }

    /// The addresses of a node, one of each IP family.
    pub(crate) fn node_ips(self, node: u8) -> Vec<String> {
        let host = 10 + node;
        self.each(self.node(node).to_string(), self.address_v6(0, host).to_string())
    }

    /// What `ip address add` takes to give a link this address, and that of IPv6 beside it.
    pub(crate) fn on_link(self, address: Ipv4Addr) -> Vec<String> {
        let [.., host] = address.octets();
        // Duplicates are impossible here, and detecting them takes a second.
        let v6 = format!("{}/64 nodad", self.address_v6(0, host));
        self.each(format!("{address}/24"), v6)
    }

    fn each(self, v4: String, v6: String) -> Vec<String> {
        if self.dual_stack { vec![v4, v6] } else { vec![v4] }
    }

    /// The address at which pods find the API server.
    pub(crate) fn api_service(self) -> Ipv4Addr {
        self.address(SERVICES, 1)
    }

    /// The address at which pods look for DNS by convention.
    pub(crate) fn dns_service(self) -> Ipv4Addr {
        self.address(SERVICES, 10)
    }

    fn address(self, third: u8, fourth: u8) -> Ipv4Addr {
        Ipv4Addr::new(10, self.number, third, fourth)
    }

    fn address_v6(self, third: u8, fourth: u8) -> Ipv6Addr {
        let [number, third, fourth] = [self.number, third, fourth].map(u16::from);
        Ipv6Addr::new(0xfd6c, 0x6162, number, third, 0, 0, 0, fourth)
    }

    fn overlaps(self, (address, bits): (u32, u8)) -> bool {
        let common = bits.min(16);
        let mask = u32::MAX.checked_shl(32 - u32::from(common)).unwrap_or(0);
        self.address(0, 0).to_bits() & mask == address & mask
    }
}

/// Network and prefix length of a line of `ip route`. `None` for a default route, which occupies no
/// addresses.
fn destination(line: &str) -> Option<(u32, u8)> {
    let kinds = [
        "local",
        "broadcast",
        "unreachable",
        "blackhole",
        "prohibit",
        "multicast",
    ];
    let word = line.split_whitespace().find(|word| !kinds.contains(word))?;
    let (address, bits) = word.split_once('/').unwrap_or((word, "32"));
    let bits = bits.parse().ok().filter(|bits| (1..=32).contains(bits))?;
    Some((address.parse::<Ipv4Addr>().ok()?.to_bits(), bits))
}

#[cfg(test)]
mod tests {
    use super::{NODES_MAX, Subnet};

    #[test]
    fn addresses_follow_from_one_number() {
        let subnet = Subnet::of(88);
        assert_eq!(subnet.host().to_string(), "10.88.0.1");
        assert_eq!(subnet.control_plane().to_string(), "10.88.0.10");
        assert_eq!(subnet.node(3).to_string(), "10.88.0.13");
        assert_eq!(subnet.pods(3), ["10.88.3.0/24"]);
        assert_eq!(subnet.services(), ["10.88.240.0/20"]);
        assert_eq!(subnet.api_service().to_string(), "10.88.240.1");
        assert!(subnet.node(NODES_MAX).octets()[3] < 255);
    }

    #[test]
    fn addresses_of_ipv6_are_beside_those_of_ipv4() {
        let subnet = Subnet::of(88).with_dual_stack(true);
        assert_eq!(subnet.pods(3), ["10.88.3.0/24", "fd6c:6162:58:3::/64"]);
        assert_eq!(subnet.services(), ["10.88.240.0/20", "fd6c:6162:58:f0::/112"]);
        assert_eq!(subnet.node_ips(3), ["10.88.0.13", "fd6c:6162:58::d"]);
        assert_eq!(
            subnet.on_link(subnet.control_plane()),
            ["10.88.0.10/24", "fd6c:6162:58::a/64 nodad"]
        );
    }

    #[test]
    fn a_lab_keeps_clear_of_routes_and_other_labs() {
        let choose = |routes, taken: &[Subnet]| Subnet::choose(routes, taken).unwrap().number();
        assert_eq!(choose("", &[]), 88);
        assert_eq!(choose("", &[Subnet::of(88), Subnet::of(90)]), 89);
        assert_eq!(choose("default via 10.88.0.2 dev eth0\n", &[]), 88);
        assert_eq!(choose("10.88.3.0/24 dev docker0 scope link\n", &[]), 89);
        assert_eq!(choose("local 10.88.0.10 dev lo table local\n", &[]), 89);
        assert_eq!(choose("10.88.0.0/14 via 192.0.2.1 dev eth0\n", &[]), 92);
    }

    #[test]
    fn a_full_range_is_refused_with_advice() {
        let error = Subnet::choose("10.0.0.0/8 dev tun0\n", &[]).unwrap_err();
        assert!(error.to_string().contains("down"), "{error}");
    }
}
