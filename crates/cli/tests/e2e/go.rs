//! The node of go-libp2p with itself, with libp2p and with litep2p. Each cell either completes, or is skipped
//! with a reason.

use std::path::PathBuf;

use perfrun_contract::{matrix::Stack, metric::Metric, node::UdpBuffers, record::Flag, support};
use perfrun_test_kit::{Need, skip};
use serde_json::{Value, json};

use crate::{
    document,
    links::is_impaired,
    perfrun::{Mode, Scratch, node_program, results},
};

/// The program, if it was built: tests do not build it, and not everybody has Go.
pub(crate) fn go_program() -> Option<PathBuf> {
    let program = node_program().with_file_name("perfrun-node-go");
    if program.is_file() {
        return Some(program);
    }
    skip(
        Need::Go,
        "all",
        "perfrun-node-go was not built: run `cargo xtask go`",
    );
    None
}

/// Runs a workload on all transports with go-libp2p at one end or at both, and expects every trial to
/// complete.
fn completes(workload: &Value) {
    completes_with(workload, &json!({}), &PAIRS);
}

/// Pairs that plans must have on tcp, quic-v1 and ws.
const PAIRS: [(&str, &str); 3] = [
    ("go-libp2p", "libp2p"),
    ("libp2p", "go-libp2p"),
    ("go-libp2p", "litep2p"),
];

/// [`completes`] with a topology, and with other pairs.
fn completes_with(workload: &Value, topology: &Value, pairs: &[(&str, &str)]) {
    let Some(mode) = go_program().and_then(|_| Mode::available().next()) else {
        return;
    };
    let rust = ["libp2p", "litep2p"];
    let rust_pairs = rust
        .iter()
        .flat_map(|client| rust.iter().map(move |server| (client, server)));
    let exclude: Vec<Value> = rust_pairs
        .map(|(client, server)| json!({"client": client, "server": server}))
        .collect();
    let stacks = ["libp2p", "litep2p", "go-libp2p"];
    let document = document::run("go")
        .with("workload", workload.clone())
        .with("topology", topology.clone())
        .with(
            "matrix",
            json!({
                "clients": stacks,
                "servers": stacks,
                "transports": ["tcp", "tcp-tls", "quic-v1", "ws", "webrtc-direct", "webtransport"],
                "exclude": exclude,
                "rawReference": false,
            }),
        );
    let scratch = Scratch::new();
    let run = scratch.run(mode, &document, &[]);
    run.expect(0);
    let results = results(&scratch.only_run());
    let of = |client: &str, server: &str, transport: &str| {
        let prefix = format!("{client}.{server}.{transport}.");
        results
            .plan
            .cells
            .iter()
            .filter(|cell| cell.id.starts_with(&prefix))
            .count()
    };
    for (client, server) in pairs {
        for transport in ["tcp", "quic-v1", "ws"] {
            assert!(
                of(client, server, transport) > 0,
                "{client} to {server} on {transport}"
            );
        }
    }
    assert!(of("go-libp2p", "go-libp2p", "webtransport") > 0);
}

#[test]
fn go_libp2p_transfers_bytes_with_every_stack_on_every_transport() {
    completes(&json!({"bandwidth": {"sizes": [1, "1Mi"], "directions": ["upload", "download", "both"]}}));
    completes(&json!({"bandwidth": {"sizes": ["100001"], "protocol": "litep2p-perf", "streams": [3]}}));
    completes(&json!({"bandwidth": {"duration": "1s"}}));
}

#[test]
fn go_libp2p_opens_substreams_with_every_stack_on_every_transport() {
    completes(&json!({"substreams": {"counts": [1, 10]}}));
    completes(&json!({"substreams": {"counts": [10], "negotiation": "v1lazy"}}));
    completes(&json!({"substreams": {"counts": [5], "mode": "paced", "rate": 50}}));
}

#[test]
fn go_libp2p_shakes_hands_with_every_stack_and_pings_it_on_every_transport() {
    completes(&json!({"handshakes": {"count": 6, "inFlight": [3]}}));
    completes(&json!({"ping": {"count": 20}}));
}

#[test]
fn go_libp2p_echoes_lines_of_every_stack_on_every_transport() {
    let loads = json!([{"connections": 2, "streamsPerConnection": 5}]);
    let echo = json!({"loads": loads, "connectionInterval": "50ms", "streamInterval": "10ms", "pause": "50ms", "duration": "5s"});
    completes(&json!({"echo": echo}));
}

#[test]
fn go_libp2p_takes_and_sends_messages_of_every_stack_on_every_transport() {
    let sizes = json!([8, 1000, "1Mi"]);
    completes(&json!({"messages": {"modes": ["serialAck", "stream"], "sizes": sizes, "count": 50}}));
    // Both peers of mode serial are in one process.
    completes_with(
        &json!({"messages": {"modes": ["serial"], "sizes": sizes, "count": 20}}),
        &json!({}),
        &[("go-libp2p", "go-libp2p")],
    );
    completes_with(
        &json!({"messages": {"modes": ["broadcast"], "sizes": [1000], "count": 200, "rate": 2000}}),
        &json!({"servers": 2}),
        &PAIRS,
    );
}

/// The relay is the server's stack, and then the client's.
#[test]
fn go_libp2p_relays_and_is_relayed_with_every_stack_on_every_transport() {
    let relay = json!({"relay": {"sizes": ["300k"], "pings": 3}});
    for stack in ["libp2p", "go-libp2p"] {
        completes_with(&relay, &json!({"relay": stack}), &PAIRS);
    }
    let stress = json!({"relayStress": {
        "sinks": [4], "sinksPerSource": 2, "sinkInterval": "50ms", "plateau": "3s", "transferBytes": "100k",
    }});
    // litep2p has no relay.
    completes_with(&stress, &json!({}), &PAIRS[..2]);
}

#[test]
fn the_go_node_reports_the_capabilities_that_plans_rely_on() {
    let Some(mode) = go_program().and_then(|_| Mode::available().next()) else {
        return;
    };
    let stacks = json!(["go-libp2p"]);
    let document = document::run("go").with(
        "matrix",
        json!({"clients": stacks, "servers": stacks, "transports": ["tcp"], "rawReference": false}),
    );
    let scratch = Scratch::new();
    scratch.run(mode, &document, &[]).expect(0);
    let results = results(&scratch.only_run());
    let info = &results.environment.nodes["client-0-go-libp2p"];
    assert_eq!(
        info.capabilities.get("go-libp2p"),
        support::capabilities(Stack::GoLibp2p).as_ref()
    );
}

/// A sender has at most a window on its way, so each window takes a round trip. The default window grows up
/// to 16 MiB, and a few round trips would be enough.
#[test]
fn go_libp2p_sends_no_more_in_a_round_trip_than_the_window_of_yamux() {
    if go_program().is_none() || !Mode::available().any(|mode| mode == Mode::Namespaces) {
        return;
    }
    let narrow = json!({"name": "narrow", "stack": "go-libp2p", "settings": {"yamuxWindow": "256Ki"}});
    let document = document::run("window")
        .with(
            "workload",
            json!({"bandwidth": {"sizes": ["8Mi"], "directions": ["download"]}}),
        )
        .with("stacks", json!([narrow]))
        .with("networks", json!([{"name": "far", "delay": "50ms"}]))
        .with(
            "matrix",
            json!({"clients": ["narrow"], "servers": ["go-libp2p"], "networks": ["far"], "rawReference": false}),
        );
    let scratch = Scratch::new();
    let ended = scratch.run(Mode::Namespaces, &document, &[]);
    if !is_impaired(&ended) {
        return;
    }
    ended.expect(0);
    let results = results(&scratch.only_run());
    let goodput = results.trials[0].metrics[&Metric::DownloadGoodput];
    // 31 of the 32 windows are read, a round trip before the next, until the last one can be sent. The probe
    // lets a round trip be a hundredth shorter than 100 ms.
    let most = f64::from(8 << 20) * 8.0 / (31.0 * 0.099);
    assert!(goodput < most, "{goodput} bit/s");
}

#[test]
fn a_trial_with_go_libp2p_is_flagged_if_udp_buffers_are_too_small() {
    let Some(mode) = go_program().and_then(|_| Mode::available().next()) else {
        return;
    };
    let stacks = json!(["go-libp2p"]);
    let document = document::run("go").with(
        "matrix",
        json!({"clients": stacks, "servers": stacks, "transports": ["quic-v1"], "rawReference": false}),
    );
    let scratch = Scratch::new();
    scratch.run(mode, &document, &[]).expect(0);
    for trial in results(&scratch.only_run()).trials {
        let buffers: Vec<UdpBuffers> = trial
            .nodes
            .values()
            .map(|node| node.measured.udp_buffers.unwrap())
            .collect();
        assert!(buffers.iter().all(|b| b.wanted_bytes == 7 << 20), "{buffers:?}");
        assert_eq!(
            trial.flags.contains(&Flag::UdpBuffersLimited),
            buffers.iter().any(UdpBuffers::are_limited),
            "{buffers:?}"
        );
    }
}
