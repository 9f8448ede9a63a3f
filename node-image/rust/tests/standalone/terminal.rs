//! The output for people, on a terminal that script(1) provides.

use std::process::{Command, Stdio};

use crate::Server;

/// The lines that a command prints on a terminal. `None` without script(1).
fn on_a_terminal(args: &[&str]) -> Option<Vec<String>> {
    let command = [&[env!("CARGO_BIN_EXE_perfrun-node")], args].concat().join(" ");
    let script = Command::new("script")
        .args(["--quiet", "--return", "--command", &command, "/dev/null"])
        .env_remove("RUST_LOG")
        .stdin(Stdio::null())
        .output();
    let output = match script {
        Ok(output) => output,
        Err(error) => {
            perfrun_test_kit::skip(
                perfrun_test_kit::Need::Programs,
                "terminal",
                &format!("needs script(1), which could not be started: {error}"),
            );
            return None;
        }
    };
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{command}: {text}");
    Some(text.lines().map(|line| line.trim_end().to_owned()).collect())
}

#[test]
fn a_terminal_gets_sentences_unless_json_is_requested() {
    for (stack, listen) in [
        ("libp2p", "/ip4/127.0.0.1/tcp/0"),
        ("litep2p", "/ip4/127.0.0.1/udp/0/quic-v1"),
        ("raw", "/ip4/127.0.0.1/tcp/0"),
        ("raw", "/ip4/127.0.0.1/udp/0/quic-v1"),
    ] {
        let server = Server::listening_on(listen, &["--stack", stack]);
        let sizes = ["--upload-bytes", "4Mi", "--download-bytes", "2Mi"];
        let client = [
            &["client", "--stack", stack, "--server", &server.address][..],
            &sizes,
        ]
        .concat();
        let Some(lines) = on_a_terminal(&client) else {
            return;
        };
        let [connected, uploaded, downloaded] = &lines[lines.len() - 3..] else {
            panic!("{stack}: {lines:?}")
        };
        assert!(connected.starts_with("Connected in "), "{stack}: {lines:?}");
        for (line, begin) in [
            (uploaded, "Uploaded 4 MiB in "),
            (downloaded, "Downloaded 2 MiB in "),
        ] {
            assert!(line.starts_with(begin), "{stack}: {lines:?}");
            assert!(line.contains("bit/s (strict, "), "{stack}: {lines:?}");
        }
        for option in ["--json", "--details"] {
            let lines = on_a_terminal(&[&client[..], &[option]].concat()).unwrap();
            let last = lines.last().unwrap();
            assert!(last.contains(r#""type":"final""#), "{stack} {option}: {lines:?}");
            assert_eq!(
                last.contains("connectSeconds"),
                option == "--details",
                "{lines:?}"
            );
        }
        if stack != "raw" {
            let opens = ["client-substream", "--stack", stack, "--server", &server.address];
            let opens = [&opens[..], &["--substreams", "32"]].concat();
            let lines = on_a_terminal(&opens).unwrap();
            let [opened, counted] = &lines[lines.len() - 2..] else {
                panic!("{stack}: {lines:?}")
            };
            assert!(opened.starts_with("Opened 32 substreams in "), "{lines:?}");
            assert!(counted.ends_with(" on average."), "{lines:?}");
        }
    }
}
