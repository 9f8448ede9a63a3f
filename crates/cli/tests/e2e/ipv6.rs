//! Runs over IPv6, alone and beside IPv4.

use std::{collections::BTreeSet, fs};

use perfrun_api::results::Results;
use perfrun_contract::{
    matrix::{Stack, Transport},
    run::RunState,
};
use perfrun_test_kit::{Need, skip};
use serde_json::{Value, json};

use crate::{
    document::{self, Document},
    go::go_program,
    links::{checks, is_impaired, round_trip},
    perfrun::{Mode, Running, Scratch, results, unshared},
    workloads::{in_all_modes, records},
};

/// Whether nodes have IPv6 addresses here; says so if not.
fn have_ipv6() -> bool {
    let have = fs::read_to_string("/proc/net/if_inet6").is_ok_and(|addresses| !addresses.is_empty());
    if !have {
        skip(Need::Ipv6, "all", "this network namespace has no IPv6 address");
    }
    have
}

/// The document's pings, and transfers both ways, of all of these stacks with each other over IPv6.
fn documents(stacks: &Value, transports: &Value) -> [Document; 2] {
    let matrix = json!({
        "clients": stacks, "servers": stacks, "transports": transports, "ipFamilies": ["IPv6"],
    });
    let transfers = json!({ "bandwidth": { "sizes": [1, 1 << 20], "directions": ["both"] } });
    let pings = document::run("pings").with("matrix", matrix.clone());
    let transfers = document::run("transfers")
        .with("matrix", matrix)
        .with("workload", transfers);
    [pings, transfers]
}

/// Checks that all nodes of a run listened on IPv6.
fn check_addresses(results: &Results) {
    for (name, node) in &results.environment.nodes {
        assert!(node.listen_ip.is_ipv6(), "{name}: {}", node.listen_ip);
        assert!(node.mtu_bytes.is_some(), "{name}");
    }
    for cell in &results.plan.cells {
        assert!(cell.id.ends_with(".IPv6"), "{}", cell.id);
    }
}

#[test]
fn every_stack_measures_over_ipv6() {
    if !have_ipv6() {
        return;
    }
    let stacks = json!(["libp2p", "litep2p", "commonware"]);
    let transports = json!(["tcp", "tcp-tls", "quic-v1", "ws", "webrtc-direct"]);
    for document in documents(&stacks, &transports) {
        for results in in_all_modes(&document) {
            check_addresses(&results);
            let measured: BTreeSet<(Stack, Transport)> = records(&results)
                .map(|(cell, _)| (cell.client_stack, cell.transport))
                .collect();
            for (stack, transport) in [
                (Stack::Raw, Transport::Tcp),
                (Stack::Raw, Transport::QuicV1),
                (Stack::Commonware, Transport::Tcp),
                (Stack::Libp2p, Transport::TcpTls),
                (Stack::Libp2p, Transport::Ws),
                (Stack::Litep2p, Transport::QuicV1),
                (Stack::Libp2p, Transport::WebrtcDirect),
            ] {
                assert!(measured.contains(&(stack, transport)), "{stack} {transport}");
            }
        }
    }
}

#[test]
fn relays_measure_over_ipv6() {
    if !have_ipv6() {
        return;
    }
    let document = document::run("relay")
        .with("workload", json!({ "relay": { "sizes": ["64Ki"] } }))
        .with(
            "matrix",
            json!({ "clients": ["libp2p"], "servers": ["libp2p"], "ipFamilies": ["IPv6"] }),
        );
    for results in in_all_modes(&document) {
        check_addresses(&results);
        let relayed = results.plan.cells.iter().filter(|cell| !cell.relays.is_empty());
        let stacks: BTreeSet<Stack> = relayed.map(|cell| cell.client_stack).collect();
        assert_eq!(stacks, [Stack::Libp2p, Stack::Raw].into());
    }
}

#[test]
fn go_libp2p_measures_over_ipv6() {
    if go_program().is_none() || !have_ipv6() {
        return;
    }
    let stacks = json!(["libp2p", "go-libp2p"]);
    let transports = json!(["tcp", "quic-v1", "ws", "webrtc-direct", "webtransport"]);
    for document in documents(&stacks, &transports) {
        for results in in_all_modes(&document) {
            check_addresses(&results);
        }
    }
}

#[test]
fn both_ip_families_have_the_delay_of_the_network() {
    if !have_ipv6() || !Mode::available().any(|mode| mode == Mode::Namespaces) {
        return;
    }
    // The emulator in user space reads packets itself; netem does not.
    for backend in ["kernel", "userspace"] {
        let scratch = Scratch::alone();
        let document = document::run("delayed")
            .with("workload", json!({ "ping": { "count": 5 } }))
            .with(
                "networks",
                json!([{ "name": "far", "delay": "100ms", "loss": "1%", "backend": backend }]),
            )
            .with(
                "matrix",
                json!({
                    "clients": ["raw"], "servers": ["raw"], "transports": ["tcp"],
                    "networks": ["far"], "ipFamilies": ["IPv4", "IPv6"],
                }),
            );
        let ended = scratch.run(Mode::Namespaces, &document, &[]);
        if !is_impaired(&ended) {
            continue;
        }
        if backend == "kernel" && ended.stderr.contains("this kernel has no netem") {
            skip(Need::Netem, backend, "this kernel has no netem");
            continue;
        }
        let ended = ended.expect(0);
        let results = results(&scratch.only_run());
        assert_eq!(results.state, RunState::Complete, "{ended}");
        for cell in ["raw.raw.tcp.ping-5.far", "raw.raw.tcp.ping-5.far.IPv6"] {
            // What is lost is sent again.
            let milliseconds = round_trip(&results, cell);
            assert!(milliseconds >= 200.0, "{backend} {cell}: {milliseconds} ms");
        }
        let checks = checks(&results);
        assert!(checks[0].is_effective(), "{:?}", checks[0]);
        let pairs: Vec<_> = checks[0]
            .legs
            .iter()
            .map(|leg| (leg.client.as_str(), leg.server.as_str()))
            .collect();
        assert_eq!(pairs, [("client-0", "server-0"), ("client6-0", "server6-0")]);
        let shown = ended.stdout.replace('\n', " ");
        assert!(
            shown.contains("Nodes spoke IPv4, and IPv6 where a transport is over IPv6.")
                && shown.contains("tcp over IPv6 on far"),
            "{ended}"
        );
        let families = |is_v6: bool| {
            let nodes = results.environment.nodes.values();
            nodes.filter(|node| node.listen_ip.is_ipv6() == is_v6).count()
        };
        assert_eq!([families(false), families(true)], [2, 2]);
    }
}

#[test]
fn a_machine_without_ipv6_is_refused() {
    let scratch = Scratch::new();
    let matrix =
        json!({ "clients": ["raw"], "servers": ["raw"], "transports": ["tcp"], "ipFamilies": ["IPv6"] });
    let perfrun = scratch.command(Mode::Loopback, &document::run("none").with("matrix", matrix), &[]);
    // The loopback interface of a new network namespace is down, and has no address.
    let ended = Running::start(unshared(&["--net"], &perfrun)).ended();
    if ended.stderr.starts_with("unshare: ") {
        return skip(Need::Namespaces, "all", ended.stderr.trim());
    }
    let ended = ended.expect(1);
    assert!(
        ended
            .stderr
            .contains("nodes cannot have IPv6 addresses here: the kernel has no IPv6"),
        "{ended}"
    );
}
