//! Where to listen, as people write it.

use std::net::SocketAddr;

/// Reads where to listen: an IP address and a port.
pub fn listening_address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| {
        let after_colon = text.rsplit_once(':').map_or(text, |(_, port)| port);
        let port = after_colon.parse::<u16>().unwrap_or(9400);
        format!("write an IP address and a port, for example 127.0.0.1:{port}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_without_an_ip_address_is_refused_with_an_example() {
        assert_eq!(
            listening_address("[::1]:80"),
            Ok(([0, 0, 0, 0, 0, 0, 0, 1], 80).into())
        );
        for (text, example) in [
            (":9090", "127.0.0.1:9090"),
            ("localhost:9090", "127.0.0.1:9090"),
            ("9090", "127.0.0.1:9090"),
            ("localhost", "127.0.0.1:9400"),
        ] {
            let refused = listening_address(text).unwrap_err();
            assert!(refused.ends_with(example), "{text}: {refused}");
        }
    }
}
