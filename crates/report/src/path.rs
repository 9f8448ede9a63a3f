//! What a cell's bytes go over.

use std::fmt;

use perfrun_contract::{
    matrix::{IpFamily, Transport},
    network::NONE,
    plan::Cell,
};

/// A transport, over an IP family, on a network.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Path<'a> {
    pub(crate) transport: Transport,
    pub(crate) network: &'a str,
    pub(crate) ip_family: IpFamily,
}

impl<'a> Path<'a> {
    pub(crate) fn of(cell: &'a Cell) -> Self {
        Self {
            transport: cell.transport,
            network: &cell.network,
            ip_family: cell.ip_family,
        }
    }

    /// The path of the raw reference that this path is compared with.
    pub(crate) fn raw(self) -> Self {
        Self {
            transport: self.transport.raw(),
            ..self
        }
    }

    /// What follows the transport in its text: the IP family and the network, unless they are defaults.
    pub(crate) fn suffix(self) -> String {
        let mut suffix = String::new();
        if !self.ip_family.is_default() {
            suffix += &format!(" over {}", self.ip_family);
        }
        if self.network != NONE {
            suffix += &format!(" on {}", self.network);
        }
        suffix
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.transport, self.suffix())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_names_its_network_and_ip_family_unless_they_are_defaults() {
        let named = |ip_family, network| {
            let path = Path {
                transport: Transport::QuicV1,
                network,
                ip_family,
            };
            path.to_string()
        };
        assert_eq!(named(IpFamily::IPv4, NONE), "quic-v1");
        assert_eq!(named(IpFamily::IPv4, "wan"), "quic-v1 on wan");
        assert_eq!(named(IpFamily::IPv6, NONE), "quic-v1 over IPv6");
        assert_eq!(named(IpFamily::IPv6, "wan"), "quic-v1 over IPv6 on wan");
    }
}
