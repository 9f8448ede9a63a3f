//! Options that would have no effect, or that contradict each other.

use crate::{node, run};

/// Programs with options, and words of the advice.
type Refused<'a> = (&'a [&'a str], &'a [&'a str], &'a str);

fn are_refused(all: &[Refused<'_>]) {
    for (command, options, words) in all {
        let output = run(&[*command, *options].concat());
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{command:?} {options:?}");
        assert!(output.stdout.is_empty(), "{command:?} {options:?}");
        assert!(stderr.contains(*words), "{command:?} {options:?}: {stderr}");
    }
}

#[test]
fn options_of_clients_without_effect_are_refused_with_advice() {
    const CLIENT: [&str; 5] = ["client", "--server", "127.0.0.1:1", "--upload-bytes", "1"];
    const SUBSTREAMS: [&str; 3] = ["client-substream", "--server", "127.0.0.1:1"];
    are_refused(&[
        (&CLIENT, &["--chunk-bytes", "0"], "must be 1 to 16Mi"),
        (&CLIENT, &["--chunk-bytes", "17Mi"], "must be 1 to 16Mi"),
        (&CLIENT, &["--streams", "1025"], "must be 1 to 1024"),
        (&CLIENT, &["--timeout", "0"], "must be more than 0"),
        (
            &CLIENT,
            &["--stack", "raw", "--negotiation", "v1lazy"],
            "omit --negotiation",
        ),
        (&CLIENT, &["--negotiation", "v1lazy"], "use --stack libp2p"),
        (&SUBSTREAMS, &["--substreams", "1025"], "must be 1 to 1024"),
        (&SUBSTREAMS, &["--chunk-bytes", "1Ki"], "--chunk-bytes"),
        (&SUBSTREAMS, &["--stack", "raw"], "use another --stack"),
    ]);
}

#[test]
fn options_of_relays_and_their_peers_without_effect_are_refused_with_advice() {
    are_refused(&[
        (
            &["relay"],
            &["--listen", "0.0.0.0:0"],
            "so it must be one that they can dial",
        ),
        (
            &["relay", "--listen", "127.0.0.1:0"],
            &["--transport", "webrtc-direct"],
            "Choose another --transport\n",
        ),
        (
            &["source"],
            &["--relay", "/ip4/127.0.0.1/tcp/1"],
            "use the address that the relay printed",
        ),
        (
            &["sink"],
            &["--source", "/ip4/127.0.0.1/tcp/1"],
            "which has /p2p-circuit/",
        ),
    ]);
}

#[test]
fn options_without_effect_are_refused_with_advice() {
    const QUIC: &str = "/ip4/127.0.0.1/udp/0/quic-v1";
    are_refused(&[
        (
            &["server"],
            &["--transport", "tcp", "--listen", QUIC],
            "omit --transport",
        ),
        (
            &["server"],
            &["--listen", "/ip4/127.0.0.1/udp/0"],
            "/ip4/0.0.0.0/tcp/33333",
        ),
        (
            &["server"],
            &["--stack", "raw", "--node-key", "secret"],
            "omit --node-key",
        ),
        (
            &["server"],
            &["--stack", "raw", "--node-key-seed", "0"],
            "omit --node-key",
        ),
        (
            &["server"],
            &["--node-key", "secret", "--node-key-seed", "0"],
            "cannot be used with",
        ),
        (&["server"], &["--node-key-seed", "256"], "256"),
        (&["server"], &["--chunk-bytes", "0"], "must be 1 to 16Mi"),
        (&["perf"], &["--server-address", "127.0.0.1:1"], "--transport"),
        (
            &["server"],
            &["--log", "]["],
            "unable to read --log, or RUST_LOG in the environment",
        ),
        (
            &["perf", "--server-address", "127.0.0.1:1"],
            &["--transport", "ws"],
            "must be tcp or quic-v1",
        ),
        (
            &["perf", "--server-address", "127.0.0.1:1"],
            &["--run-server", "--upload-bytes", "1"],
            "cannot be used with",
        ),
        (
            &["perf", "--server-address", "127.0.0.1:1"],
            &["--run-server", "--timeout", "1"],
            "cannot be used with",
        ),
    ]);
}

#[test]
fn an_error_is_a_sentence_also_where_backtraces_are_wanted() {
    let client = ["client", "--server", "127.0.0.1:1", "--upload-bytes", "1"];
    let output = node(&client).env("RUST_BACKTRACE", "1").output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    let last = stderr.lines().last().unwrap_or_default();
    assert!(last.starts_with("perfrun-node: unable to dial"), "{stderr}");
}
