//! Addresses as people type them, and their transports.

use std::net::{IpAddr, SocketAddr};

use anyhow::{Context, bail, ensure};
use libp2p::{Multiaddr, multiaddr::Protocol};
use perfrun_contract::matrix::Transport;
use perfrun_stack as stack;

/// The transport of `ADDRESS:PORT` and of addresses of an unknown form.
const DEFAULT: Transport = Transport::Tcp;

/// Parses where a server listens: `ADDRESS:PORT`, or a multiaddr, which also names the transport.
pub(crate) fn listen(text: &str, given: Option<Transport>) -> anyhow::Result<(Transport, SocketAddr)> {
    if let Ok(socket) = text.parse() {
        return Ok((given.unwrap_or(DEFAULT), socket));
    }
    let wrong = || {
        format!(
            "unable to listen on {text:?}: use ADDRESS:PORT with an IP address, or a multiaddr that ends with its transport, such as \
             /ip4/0.0.0.0/tcp/33333 or /ip4/0.0.0.0/udp/33333/quic-v1"
        )
    };
    let address: Multiaddr = text.parse().with_context(wrong)?;
    let mut parts = address.iter();
    let (ip, port) = match (parts.next(), parts.next()) {
        (Some(Protocol::Ip4(ip)), Some(Protocol::Tcp(port) | Protocol::Udp(port))) => {
            (IpAddr::from(ip), port)
        }
        (Some(Protocol::Ip6(ip)), Some(Protocol::Tcp(port) | Protocol::Udp(port))) => {
            (IpAddr::from(ip), port)
        }
        _ => bail!(wrong()),
    };
    let transport = named_transport(text, &address, given)?.with_context(wrong)?;
    let socket = SocketAddr::new(ip, port);
    let plain = stack::socket_address(transport, socket);
    ensure!(
        plain == address.to_string(),
        "unable to listen on {text:?}: the server adds its peer id and certificate, use {plain}"
    );
    Ok((transport, socket))
}

/// Parses the address to dial: a multiaddr, or `ADDRESS:PORT` as in the published perf tools.
pub(crate) fn dial(text: &str, given: Option<Transport>) -> anyhow::Result<(Transport, String)> {
    if let Ok(socket) = text.parse() {
        let transport = given.unwrap_or(DEFAULT);
        return Ok((transport, stack::socket_address(transport, socket)));
    }
    let address: Multiaddr = stack::multiaddr_part(text).parse().with_context(|| {
        format!(
            "unable to dial {text:?}: use the address that the server printed, ADDRESS:PORT with an IP address, or \
             a multiaddr, such as /dns4/localhost/tcp/33333"
        )
    })?;
    let transport = named_transport(text, &address, given)?
        .or(given)
        .unwrap_or(DEFAULT);
    Ok((transport, text.to_owned()))
}

/// The transport that an address names, which must not contradict `given`. `None` if the form is unknown.
fn named_transport(
    text: &str,
    address: &Multiaddr,
    given: Option<Transport>,
) -> anyhow::Result<Option<Transport>> {
    let named = transports(address);
    if let (Some(given), Some(first)) = (given, named.first()) {
        ensure!(
            named.contains(&given),
            "--transport {given} contradicts {text}, an address of {first}: omit --transport, or use an address of {given}"
        );
        return Ok(Some(given));
    }
    Ok(named.first().copied())
}

/// Transports with addresses of this form, the default first.
fn transports(address: &Multiaddr) -> &'static [Transport] {
    let after_host: Vec<_> = address
        .iter()
        .skip(1)
        .take_while(|part| !matches!(part, Protocol::Certhash(_) | Protocol::P2p(_)))
        .collect();
    match after_host.as_slice() {
        [Protocol::Tcp(_)] => &[Transport::Tcp, Transport::TcpTls],
        [Protocol::Tcp(_), Protocol::Ws(_)] => &[Transport::Ws],
        [Protocol::Udp(_), Protocol::QuicV1] => &[Transport::QuicV1],
        [Protocol::Udp(_), Protocol::WebRTCDirect] => &[Transport::WebrtcDirect],
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEER: &str = "12D3KooWBpZHDZu7YSbvPaPXKhkRNJvR7MkTJMQQAVBKx9mCqz3q";

    #[test]
    fn the_transport_of_a_listen_address_counts() {
        use Transport::{QuicV1, Tcp, TcpTls, WebrtcDirect, Ws};
        for (text, given, transport, socket) in [
            ("0.0.0.0:33333", None, Tcp, "0.0.0.0:33333"),
            ("0.0.0.0:33333", Some(QuicV1), QuicV1, "0.0.0.0:33333"),
            ("/ip4/0.0.0.0/tcp/33333", None, Tcp, "0.0.0.0:33333"),
            ("/ip4/0.0.0.0/tcp/33333", Some(TcpTls), TcpTls, "0.0.0.0:33333"),
            ("/ip6/::/tcp/33333", None, Tcp, "[::]:33333"),
            ("/ip4/127.0.0.1/udp/1/quic-v1", None, QuicV1, "127.0.0.1:1"),
            (
                "/ip4/127.0.0.1/udp/1/quic-v1",
                Some(QuicV1),
                QuicV1,
                "127.0.0.1:1",
            ),
            ("/ip4/127.0.0.1/tcp/1/ws", None, Ws, "127.0.0.1:1"),
            ("/ip6/::1/udp/1/webrtc-direct", None, WebrtcDirect, "[::1]:1"),
        ] {
            let expected = (transport, socket.parse().unwrap());
            assert_eq!(listen(text, given).unwrap(), expected, "{text} {given:?}");
        }
    }

    #[test]
    fn an_address_that_contradicts_the_transport_is_refused() {
        for (text, given) in [
            ("/ip4/127.0.0.1/udp/1/quic-v1", Transport::Tcp),
            ("/ip4/127.0.0.1/tcp/1/ws", Transport::Tcp),
            ("/ip4/127.0.0.1/tcp/1", Transport::Ws),
            ("/ip4/127.0.0.1/tcp/1", Transport::QuicV1),
            ("/ip4/127.0.0.1/udp/1/webrtc-direct", Transport::QuicV1),
        ] {
            for refused in [
                listen(text, Some(given)).unwrap_err(),
                dial(text, Some(given)).unwrap_err(),
            ] {
                let words = format!("--transport {given} contradicts {text}");
                assert!(refused.to_string().contains(&words), "{refused}");
            }
        }
    }

    #[test]
    fn a_listen_address_without_a_transport_is_refused_with_an_example() {
        for text in [
            "/dns/host/tcp/1",
            "/ip4/127.0.0.1/udp/1",
            "/ip4/127.0.0.1/tcp/1/wss",
            "/ip4/127.0.0.1",
            "33333",
        ] {
            let refused = listen(text, None).unwrap_err().to_string();
            assert!(refused.contains("/ip4/0.0.0.0/tcp/33333"), "{text}: {refused}");
        }
        let refused = listen(&format!("/ip4/127.0.0.1/tcp/1/p2p/{PEER}"), None).unwrap_err();
        assert!(
            refused.to_string().ends_with("use /ip4/127.0.0.1/tcp/1"),
            "{refused}"
        );
    }

    #[test]
    fn servers_are_dialled_by_the_transport_of_their_address() {
        use Transport::{QuicV1, Tcp, TcpTls};
        let commonware = "/ip4/10.1.2.3/tcp/7/commonware/02d6";
        let quic = format!("/ip4/10.1.2.3/udp/7/quic-v1/p2p/{PEER}");
        for (text, given, transport, address) in [
            ("10.1.2.3:7", None, Tcp, "/ip4/10.1.2.3/tcp/7"),
            ("[::1]:7", Some(QuicV1), QuicV1, "/ip6/::1/udp/7/quic-v1"),
            ("/dns4/host/tcp/7", None, Tcp, "/dns4/host/tcp/7"),
            ("/dns4/host/tcp/7", Some(TcpTls), TcpTls, "/dns4/host/tcp/7"),
            (&quic, None, QuicV1, &quic),
            (commonware, None, Tcp, commonware),
            // The stack decides about unknown forms.
            ("/dnsaddr/host", Some(QuicV1), QuicV1, "/dnsaddr/host"),
        ] {
            let expected = (transport, address.to_owned());
            assert_eq!(dial(text, given).unwrap(), expected, "{text} {given:?}");
        }
        let refused = dial("localhost:7", None).unwrap_err().to_string();
        assert!(
            refused.contains("the address that the server printed"),
            "{refused}"
        );
    }
}
