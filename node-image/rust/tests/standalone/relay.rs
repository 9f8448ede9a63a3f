//! A relay, a source and a sink.

use serde_json::Value;

use crate::{Server, lines, run};

/// What a sink that fails says.
fn failed(args: &[&str]) -> String {
    let output = run(args);
    // Lines of the first seconds may come before the failure.
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(
        !output.status.success() && !printed.contains("\"final\""),
        "{output:?}"
    );
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_sink_fetches_from_a_source_through_a_relay() {
    for (listen, options) in [
        ("127.0.0.1:0", &["--transport", "tcp-tls"][..]),
        ("/ip4/127.0.0.1/tcp/0", &[]),
        ("/ip4/127.0.0.1/udp/0/quic-v1", &[]),
    ] {
        let relay = Server::called(&[&["relay", "--listen", listen], options].concat());
        let size = ["--bytes", "3000001"];
        let source = ["source", "--relay", &relay.address];
        let source = Server::called(&[&source[..], options, &size].concat());
        let behind = format!("{}/p2p-circuit/p2p/", relay.address);
        assert!(source.address.starts_with(&behind), "{}", source.address);

        let sink = ["sink", "--source", &source.address];
        let lines = lines(&[&sink[..], options, &size].concat());
        let last: Value = serde_json::from_str(lines.last().unwrap()).unwrap();
        assert_eq!(last["type"], "final", "{last}");
        assert_eq!(last["downloadBytes"], 3_000_001, "{last}");
        assert_eq!(last["uploadBytes"], 0, "{last}");
        for field in ["connectSeconds", "relayRoundTripSeconds", "roundTripSeconds"] {
            assert!(last[field].as_f64().unwrap() > 0.0, "{field}: {last}");
        }
        assert_eq!(last["download"]["bytes"], 3_000_001, "{last}");

        // Another size is a failure, which is nothing to the source.
        let stderr = failed(&[&sink[..], options, &["--bytes", "3000000"]].concat());
        let words = "(UnexpectedBytes). Give the source and the sink the same --bytes";
        assert!(stderr.contains(words), "{stderr}");

        assert_eq!(source.stop(), (Some(0), String::new()), "{listen}");
        assert_eq!(relay.stop(), (Some(0), String::new()), "{listen}");
    }
}

#[test]
fn a_sink_without_its_source_prints_the_reason() {
    let relay = Server::called(&["relay", "--listen", "/ip4/127.0.0.1/tcp/0"]);
    let source = Server::called(&["source", "--relay", &relay.address]);
    let address = source.address.clone();
    assert_eq!(source.stop().0, Some(0));
    let stderr = failed(&["sink", "--source", &address]);
    assert!(stderr.contains("(Refused)"), "{stderr}");
}
