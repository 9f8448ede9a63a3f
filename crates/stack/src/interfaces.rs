//! The addresses of this machine.

use std::{
    io,
    net::{IpAddr, Ipv6Addr, SocketAddr},
};

use perfrun_contract::matrix::Transport;

use crate::address;

/// The addresses at which peers reach a socket: `bound`, or one address per interface if it is bound to all
/// of them. libp2p and litep2p's TCP report them themselves.
pub(super) fn dialable(transport: Transport, bound: SocketAddr) -> io::Result<Vec<String>> {
    let ips = match bound.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => v4(&std::fs::read_to_string("/proc/net/fib_trie")?),
        IpAddr::V6(ip) if ip.is_unspecified() => v6(&std::fs::read_to_string("/proc/net/if_inet6")?),
        ip => vec![ip],
    };
    Ok(ips
        .into_iter()
        .map(|ip| address::socket_address(transport, SocketAddr::new(ip, bound.port())))
        .collect())
}

/// The local addresses in the kernel's routing trie, each above a line `/32 host LOCAL`.
fn v4(trie: &str) -> Vec<IpAddr> {
    let mut ips = Vec::new();
    let mut last = None;
    for line in trie.lines() {
        let line = line.trim();
        if let Some(leaf) = line.strip_prefix("|-- ") {
            last = leaf.parse::<IpAddr>().ok();
        } else if line == "/32 host LOCAL"
            && let Some(ip) = last
            // The kernel prints the trie once per routing table.
            && !ips.contains(&ip)
        {
            ips.push(ip);
        }
    }
    ips
}

/// The addresses in `if_inet6`, each with 32 hexadecimal digits at the start of a line. Link-local addresses
/// need a scope, which a multiaddr cannot have.
fn v6(interfaces: &str) -> Vec<IpAddr> {
    interfaces
        .lines()
        .filter_map(|line| u128::from_str_radix(line.split_whitespace().next()?, 16).ok())
        .map(Ipv6Addr::from)
        .filter(|ip| !ip.is_unicast_link_local())
        .map(IpAddr::from)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_addresses_of_the_trie_count_once_and_others_do_not() {
        let table = "Main:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 0.0.0.0\n        /0 universe UNICAST\n     +-- 10.1.2.0/24 2 0 2\n        \
                     |-- 10.1.2.0\n           /24 link UNICAST\n        |-- 10.1.2.3\n           /32 host LOCAL\n        \
                     |-- 10.1.2.255\n           /32 link BROADCAST\n     |-- 127.0.0.1\n        /32 host LOCAL\n";
        let expected: Vec<IpAddr> = vec!["10.1.2.3".parse().expect("v4"), "127.0.0.1".parse().expect("v4")];
        assert_eq!(v4(&format!("{table}{table}")), expected);
    }

    #[test]
    fn link_local_addresses_cannot_be_dialled() {
        let interfaces = "00000000000000000000000000000001 01 80 10 80       lo\n\
                          fe80000000000000021122fffe334455 02 40 20 80     eth0\n\
                          fd000000000000000000000000000007 02 40 00 80     eth0\n";
        let expected: Vec<IpAddr> = vec!["::1".parse().expect("v6"), "fd00::7".parse().expect("v6")];
        assert_eq!(v6(interfaces), expected);
    }
}
