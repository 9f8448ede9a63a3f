//! `perfrun conformance` with nodes that conform, and with nodes that have one fault each.

use std::{path::Path, process::Command};

use perfrun_test_kit::{Need, skip};

use crate::{
    go::go_program,
    perfrun::{PERFRUN, node_program},
};

/// Makes the checks, and returns whether the node conforms, with what was printed.
fn conformance(node: &str, args: &[&str]) -> (bool, String) {
    let mut command = Command::new(PERFRUN);
    command.args(["conformance", "--node", node]).args(args);
    let output = command.output().unwrap();
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    (output.status.success(), text)
}

fn passes(node: &str, args: &[&str]) {
    let (conforms, text) = conformance(node, args);
    assert!(conforms && !text.contains("FAILED"), "{text}");
}

/// The repository.
fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// Whether Python is there.
fn has_python() -> bool {
    let found = Command::new("python3").arg("--version").output().is_ok();
    if !found {
        skip(Need::Programs, "all", "there is no python3");
    }
    found
}

#[test]
fn our_node_conforms() {
    // WebRTC takes most of the time, and its stacks lose dials.
    let node = node_program();
    passes(
        node.to_str().unwrap(),
        &["--skip", "webrtc-direct", "--skip", "v1lazy"],
    );
}

#[test]
fn the_go_node_conforms() {
    let Some(program) = go_program() else { return };
    passes(program.to_str().unwrap(), &["--skip", "webrtc-direct"]);
}

#[test]
fn the_python_node_conforms_and_the_outcome_is_junit_too() {
    if !has_python() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("junit.xml");
    let node = format!(
        "python3 {}",
        root().join("examples/python-node/node.py").display()
    );
    passes(&node, &["--junit", file.to_str().unwrap()]);
    let xml = std::fs::read_to_string(file).unwrap();
    assert!(xml.contains("<testsuite ") && xml.contains("calls/info"), "{xml}");
}

#[test]
fn each_fault_of_a_node_fails_the_check_that_is_about_it() {
    if !has_python() {
        return;
    }
    let script = root().join("crates/cli/tests/e2e/faulty/node.py");
    let folder = root().join("examples/python-node");
    for (fault, check) in [
        ("none", None),
        ("another-contract", Some("calls/info")),
        ("claims-too-much", Some("python-tcp.quic-v1.with-itself.ping")),
        ("any-token", Some("token/required")),
        ("any-epoch", Some("token/epoch")),
        ("too-few-bytes", Some("tcp.as-client.bandwidth.perf")),
        ("too-many-bytes", Some("tcp.as-server.bandwidth.perf")),
        ("miscounts", Some("tcp.as-server.bandwidth.perf")),
        ("hangs", Some("states/order")),
        ("floods", Some("calls/unknown")),
        ("leaves-streams-open", Some("tcp.as-server.ping")),
        ("dies", Some("tcp.as-client.ping")),
        ("never-cancels", Some("states/cancelled")),
        ("early", Some("states/start")),
        ("wrong-histogram", Some("tcp.as-client.ping")),
    ] {
        let node = format!("python3 {} {} {fault}", script.display(), folder.display());
        let (conforms, text) = conformance(&node, &["--filter", check.unwrap_or("calls")]);
        assert_eq!(conforms, check.is_none(), "{fault}: {text}");
        if let Some(check) = check {
            let failed = text.lines().find(|line| line.starts_with("FAILED"));
            assert!(failed.is_some_and(|line| line.contains(check)), "{fault}: {text}");
        }
    }
}

#[test]
fn a_program_that_is_not_a_node_is_refused_with_the_end_of_its_log() {
    let (conforms, text) = conformance("/bin/sh -c false", &[]);
    assert!(
        !conforms && text.contains("the node ended before it was ready: exit status: 1"),
        "{text}"
    );
    let (conforms, text) = conformance("no-such-program", &[]);
    assert!(
        !conforms && text.contains("unable to run no-such-program"),
        "{text}"
    );
}
