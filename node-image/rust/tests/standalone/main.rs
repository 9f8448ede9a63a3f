//! The node from a shell: a server and a client, without a conductor.
#![allow(clippy::unwrap_used)]

mod addresses;
mod published;
mod refused;
mod relay;
mod terminal;

use std::{
    io::{BufRead, BufReader, Read},
    process::{Child, ChildStdout, Command, Output, Stdio},
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

fn node(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_perfrun-node"));
    command.args(args).env_remove("RUST_LOG").stdin(Stdio::null());
    command
}

/// A server process, which is killed when dropped.
struct Server {
    child: Child,
    stdout: BufReader<ChildStdout>,
    address: String,
    addresses: Vec<String>,
}

impl Server {
    fn start(args: &[&str]) -> Self {
        Self::listening_on("127.0.0.1:0", args)
    }

    fn listening_on(listen: &str, args: &[&str]) -> Self {
        Self::called(&[&["server", "--listen-address", listen], args].concat())
    }

    /// Starts a command that prints where it listens.
    fn called(command: &[&str]) -> Self {
        let mut child = node(command)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let addresses = listening(&mut stdout);
        Self {
            child,
            stdout,
            address: addresses[0].clone(),
            addresses,
        }
    }

    /// Stops the server with SIGTERM. Returns its exit status and the rest of its output.
    fn stop(mut self) -> (Option<i32>, String) {
        kill_process(Pid::from_child(&self.child), Signal::TERM).unwrap();
        let code = self.child.wait().unwrap().code();
        let mut rest = String::new();
        self.stdout.read_to_string(&mut rest).unwrap();
        (code, rest)
    }
}

/// The addresses in the next line.
fn listening(stdout: &mut impl BufRead) -> Vec<String> {
    let mut line = String::new();
    stdout.read_line(&mut line).unwrap();
    let listening: Value = serde_json::from_str(&line).unwrap();
    assert_eq!(listening["type"], "listening");
    serde_json::from_value(listening["addresses"].clone()).unwrap()
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn run(args: &[&str]) -> Output {
    node(args).output().unwrap()
}

/// The lines of a client that succeeded.
fn lines(args: &[&str]) -> Vec<String> {
    let output = run(args);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?}: {stderr}");
    assert_eq!(stderr, "", "{args:?}");
    String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .map(str::to_owned)
        .collect()
}

/// Keys of a flat JSON object, in their order in the text.
fn keys(line: &str) -> Vec<&str> {
    line.split('"')
        .skip(1)
        .step_by(2)
        .filter(|word| !["final", "intermediate"].contains(word))
        .collect()
}

const PUBLISHED: [&str; 4] = ["type", "timeSeconds", "uploadBytes", "downloadBytes"];

#[test]
fn clients_and_servers_speak_both_protocols_with_each_other() {
    for (client, server, transport) in [
        ("libp2p", "libp2p", "tcp"),
        ("libp2p", "litep2p", "tcp"),
        ("litep2p", "libp2p", "tcp"),
        ("litep2p", "litep2p", "tcp"),
        ("libp2p", "libp2p", "tcp-tls"),
        ("libp2p", "litep2p", "quic-v1"),
        ("litep2p", "libp2p", "quic-v1"),
        ("raw", "raw", "tcp"),
        ("raw", "raw", "quic-v1"),
        #[cfg(feature = "commonware")]
        ("commonware", "commonware", "tcp"),
    ] {
        for protocol in ["perf", "litep2p-perf"] {
            let link = ["--transport", transport, "--protocol", protocol];
            let serving = Server::start(&[&["--stack", server][..], &link].concat());
            // Different sizes in one run, as in the published tools, and one direction only.
            for (up, down) in [("100001", "70003"), ("1", "1Mi"), ("64Ki", "0"), ("0", "3")] {
                let sizes = [
                    "--server",
                    &serving.address,
                    "--upload-bytes",
                    up,
                    "--download-bytes",
                    down,
                ];
                let lines = lines(&[&["client", "--stack", client][..], &link, &sizes].concat());
                let last: Value = serde_json::from_str(lines.last().unwrap()).unwrap();
                let number = |text: &str| match text {
                    "1Mi" => 1 << 20,
                    "64Ki" => 1 << 16,
                    number => number.parse::<u64>().unwrap(),
                };
                let what = format!("{client} to {server} on {transport}, {protocol}: {last}");
                assert_eq!(last["type"], "final", "{what}");
                assert_eq!(last["uploadBytes"], number(up), "{what}");
                assert_eq!(last["downloadBytes"], number(down), "{what}");
                assert!(last["timeSeconds"].as_f64().unwrap() > 0.0, "{what}");
            }
            assert_eq!(
                serving.stop(),
                (Some(0), String::new()),
                "{client} to {server} on {transport}"
            );
        }
    }
}

#[test]
fn lines_have_exactly_the_published_keys_and_come_once_a_second() {
    let server = Server::start(&["--stack", "raw", "--protocol", "perf"]);
    let sizes = [
        "--server",
        &server.address,
        "--upload-bytes",
        "1Pi",
        "--timeout",
        "4.5",
    ];
    let output = run(&[&["client", "--stack", "raw", "--protocol", "perf"][..], &sizes].concat());
    // The transfer cannot complete in time, which is a failure. Until then, there is a line for each second.
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("not completed after"));
    let text = String::from_utf8(output.stdout).unwrap();
    let (mut uploaded, mut seconds) = (0, vec![]);
    for line in text.lines() {
        assert_eq!(keys(line), PUBLISHED, "{line}");
        let line: Value = serde_json::from_str(line).unwrap();
        assert_eq!(line["type"], "intermediate");
        assert_eq!(line["downloadBytes"], 0);
        uploaded += line["uploadBytes"].as_u64().unwrap();
        seconds.push(line["timeSeconds"].as_f64().unwrap());
    }
    assert!(uploaded > 0, "{text}");
    // No line is early. A line that a busy machine delays does not delay the next one.
    assert!(seconds.iter().sum::<f64>() >= seconds.len() as f64, "{text}");
    assert!(seconds.iter().any(|seconds| *seconds < 2.0), "{text}");
    let both = [
        "--server",
        &server.address,
        "--upload-bytes",
        "5",
        "--download-bytes",
        "6",
    ];
    let client = ["client", "--stack", "raw", "--protocol", "perf"];
    let plain = lines(&[&client[..], &both].concat());
    assert_eq!(keys(&plain[0]), PUBLISHED, "{plain:?}");
    let details = lines(&[&client[..], &both, &["--details"]].concat());
    assert_eq!(keys(&details[0])[..4], PUBLISHED, "{details:?}");
    let details: Value = serde_json::from_str(&details[0]).unwrap();
    assert_eq!(
        (&details["upload"]["bytes"], &details["download"]["bytes"]),
        (&5.into(), &6.into())
    );
    // With --timing, the line has its details, because only the transfers depend on the timing.
    let timed = lines(&[&client[..], &both, &["--timing", "compat"]].concat());
    let timed: Value = serde_json::from_str(&timed[0]).unwrap();
    assert_eq!(timed["timing"], "compat", "{timed}");
    assert!(timed["upload"]["seconds"].is_f64(), "{timed}");
}

#[test]
fn a_key_in_ascii_gives_the_published_peer_id() {
    for stack in ["libp2p", "litep2p"] {
        let server = Server::start(&["--stack", stack, "--node-key", "secret"]);
        let peer = "/p2p/12D3KooWBpZHDZu7YSbvPaPXKhkRNJvR7MkTJMQQAVBKx9mCqz3q";
        assert!(server.address.ends_with(peer), "{stack}: {}", server.address);
    }
}

#[test]
fn a_number_gives_the_peer_id_that_published_perf_clients_expect() {
    let expected = "/p2p/12D3KooWDpJ7As7BWAwRMfu1VU2WCqNjvq387JEYKDBj4kx6nXTN";
    for (stack, transport) in [
        ("libp2p", "tcp-tls"),
        ("libp2p", "quic-v1"),
        ("litep2p", "tcp"),
        ("litep2p", "quic-v1"),
    ] {
        let link = ["--stack", stack, "--transport", transport, "--node-key-seed"];
        let server = Server::start(&[&link[..], &["0"]].concat());
        assert!(server.address.ends_with(expected), "{stack}: {}", server.address);
        let other = Server::start(&[&link[..], &["1"]].concat());
        assert!(!other.address.ends_with(expected), "{stack}: {}", other.address);
    }
}

#[test]
fn the_options_of_libp2ps_perf_serve_and_measure_both_transports() {
    let mut server = Server::called(&["perf", "--run-server", "--server-address", "127.0.0.1:0"]);
    let second = listening(&mut server.stdout).remove(0);
    let mut transports = vec![];
    for address in [server.address.clone(), second] {
        let peer = "/p2p/12D3KooWDpJ7As7BWAwRMfu1VU2WCqNjvq387JEYKDBj4kx6nXTN";
        assert!(address.ends_with(peer), "{address}");
        let transport = match address.contains("/quic-v1/") {
            true => "quic-v1",
            false => "tcp",
        };
        transports.push(transport);
        let port = address.split('/').nth(4).unwrap();
        let server = format!("127.0.0.1:{port}");
        let link = ["perf", "--server-address", &server, "--transport", transport];
        let sizes = ["--upload-bytes", "100001", "--download-bytes", "70003"];
        let lines = lines(&[&link[..], &sizes].concat());
        assert_eq!(keys(lines.last().unwrap()), PUBLISHED, "{lines:?}");
        let last: Value = serde_json::from_str(lines.last().unwrap()).unwrap();
        assert_eq!(
            (&last["uploadBytes"], &last["downloadBytes"]),
            (&100_001.into(), &70_003.into())
        );
    }
    transports.sort_unstable();
    assert_eq!(transports, ["quic-v1", "tcp"]);
    assert_eq!(server.stop(), (Some(0), String::new()));
}

#[test]
fn a_port_in_use_is_reported_and_ends_the_server() {
    for (stack, transport) in [
        ("libp2p", "tcp"),
        ("libp2p", "quic-v1"),
        ("litep2p", "tcp"),
        ("litep2p", "quic-v1"),
        ("raw", "tcp"),
        ("raw", "quic-v1"),
    ] {
        let link = ["--stack", stack, "--transport", transport];
        let first = Server::start(&link);
        let port = first.address.split('/').nth(4).unwrap();
        let listen = format!("127.0.0.1:{port}");
        let output = run(&[&["server", "--listen", &listen][..], &link].concat());
        assert!(!output.status.success(), "{stack} {transport}");
        assert!(output.stdout.is_empty(), "{stack} {transport}");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(
            stderr.contains("in use") && stderr.contains(port),
            "{stack} {transport}: {stderr}"
        );
    }
}

#[test]
fn substreams_are_opened_and_timed() {
    for (stack, transport, count) in [
        ("libp2p", "tcp", "256"),
        ("litep2p", "tcp", "256"),
        ("litep2p", "quic-v1", "100"),
        // The most that clients request and servers hold.
        ("libp2p", "tcp", "1024"),
        ("litep2p", "tcp", "1024"),
    ] {
        let link = ["--stack", stack, "--transport", transport];
        let server = Server::start(&link);
        let opens = [
            "client-substream",
            "--server",
            &server.address,
            "--substreams",
            count,
        ];
        let lines = lines(&[&opens[..], &link].concat());
        assert_eq!(lines.len(), 1, "{lines:?}");
        let line: Value = serde_json::from_str(&lines[0]).unwrap();
        assert_eq!(line["type"], "substreams");
        assert_eq!(line["substreams"].to_string(), count);
        assert_eq!(line["failures"], 0);
        let seconds = |key: &str| line[key].as_f64().unwrap();
        assert!(
            seconds("p50Seconds") > 0.0 && seconds("p50Seconds") <= seconds("maxSeconds"),
            "{line}"
        );
        assert!(seconds("meanCompatSeconds") <= seconds("meanSeconds"), "{line}");
        assert_eq!(server.stop().0, Some(0));
    }
}

#[test]
fn a_client_that_fails_prints_the_reason_and_no_final_line() {
    let mut server = Server::start(&["--stack", "litep2p"]);
    for (args, words) in [
        (
            &["--stack", "litep2p", "--upload-bytes", "1", "--protocol", "perf"][..],
            "stream",
        ),
        (&["--stack", "litep2p"], "nothing to measure"),
        (
            &[
                "--stack",
                "litep2p",
                "--transport",
                "tcp-tls",
                "--upload-bytes",
                "1",
            ],
            "it has no TLS",
        ),
    ] {
        let output = run(&[&["client", "--server", &server.address][..], args].concat());
        assert!(!output.status.success(), "{args:?}");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(stderr.contains(words), "{args:?}: {stderr}");
        assert!(output.stdout.is_empty(), "{args:?}");
    }
    server.child.kill().unwrap();
    server.child.wait().unwrap();
    let output = run(&["client", "--server", &server.address, "--upload-bytes", "1"]);
    assert!(!output.status.success());
    assert!(
        String::from_utf8_lossy(&output.stderr).contains("DialFailed"),
        "{output:?}"
    );
}

#[test]
fn a_server_continues_after_its_client_was_killed() {
    let server = Server::start(&["--stack", "libp2p"]);
    let upload = [
        "client",
        "--stack",
        "libp2p",
        "--server",
        &server.address,
        "--upload-bytes",
        "1Pi",
    ];
    let mut client = node(&upload).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(client.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    client.kill().unwrap();
    client.wait().unwrap();
    let again = [
        "client",
        "--stack",
        "libp2p",
        "--server",
        &server.address,
        "--upload-bytes",
        "7",
    ];
    assert_eq!(lines(&again).len(), 1);
    assert_eq!(server.stop().0, Some(0));
}
