//! Addresses as people give them to servers and clients.

use std::net::TcpListener;

use crate::{Server, lines};

#[test]
fn a_multiaddr_selects_the_transport_of_both_sides() {
    for (stack, listen, transport) in [
        ("libp2p", "/ip4/127.0.0.1/udp/0/quic-v1", "/quic-v1"),
        ("litep2p", "/ip4/127.0.0.1/udp/0/quic-v1", "/quic-v1"),
        ("raw", "/ip4/127.0.0.1/udp/0/quic-v1", "/quic-v1"),
        ("libp2p", "/ip4/127.0.0.1/tcp/0/ws", "/ws"),
        ("litep2p", "/ip4/127.0.0.1/tcp/0/ws", "/ws"),
        ("litep2p", "/ip4/127.0.0.1/tcp/0", "/tcp/"),
    ] {
        let server = Server::listening_on(listen, &["--stack", stack]);
        assert!(server.address.contains(transport), "{stack}: {}", server.address);
        let client = ["client", "--stack", stack, "--server", &server.address];
        let lines = lines(&[&client[..], &["--upload-bytes", "9", "--download-bytes", "70001"]].concat());
        assert!(lines[0].contains(r#""downloadBytes":70001"#), "{lines:?}");
    }
}

#[test]
fn a_server_listens_on_all_addresses_of_ipv6() {
    if let Err(error) = TcpListener::bind("[::1]:0") {
        perfrun_test_kit::skip(
            perfrun_test_kit::Need::Ipv6,
            "::1",
            &format!("this machine has no IPv6: {error}"),
        );
        return;
    }
    for stack in ["libp2p", "litep2p", "raw"] {
        let server = Server::listening_on("/ip6/::/tcp/0", &["--stack", stack]);
        let local = |address: &&String| address.starts_with("/ip6/::1/tcp/");
        let address = server.addresses.iter().find(local).unwrap_or_else(|| {
            panic!("{stack} prints no address of ::1: {:?}", server.addresses);
        });
        let client = ["client", "--stack", stack, "--server-address", address];
        let sizes = ["--upload-bytes", "64Ki", "--download-bytes", "1Ki"];
        let lines = lines(&[&client[..], &sizes].concat());
        assert!(lines[0].contains(r#""uploadBytes":65536"#), "{stack}: {lines:?}");
    }
}
