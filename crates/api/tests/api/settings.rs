//! Settings of stack variants in plans.

use perfrun_contract::{matrix::Cups, plan::Cell, role::Role};

use crate::fixtures::{ping, plan};

#[test]
fn settings_of_a_variant_are_in_its_cells_and_peers_that_differ_are_skipped() {
    let plan = ping(
        "stacks: [{name: old, stack: commonware, settings: {cups: v0}}, {name: new, stack: commonware, \
         settings: {cups: v1}}]\n\
         matrix: {clients: [commonware, old, new], servers: [commonware, old, new], rawReference: false}",
    );
    let settings = |cell: &Cell| (cell.client_settings.cups(), cell.server_settings.cups());
    let planned: Vec<_> = plan
        .cells
        .iter()
        .map(|cell| (cell.stack_pair().to_string(), settings(cell)))
        .collect();
    let (v0, v1) = ((Cups::V0, Cups::V0), (Cups::V1, Cups::V1));
    let expected = [
        ("commonware → commonware", v1),
        ("commonware → new", v1),
        ("old → old", v0),
        ("new → commonware", v1),
        ("new → new", v1),
    ];
    assert_eq!(
        planned,
        expected.map(|(pair, settings)| (pair.to_owned(), settings))
    );
    let reasons: Vec<_> = plan
        .skipped
        .iter()
        .map(|skipped| skipped.reason.as_str())
        .collect();
    let reason = |client, server| {
        format!("peers of commonware with different versions of cups cannot talk: {client} and {server}")
    };
    let (to_old, from_old) = (reason("v1", "v0"), reason("v0", "v1"));
    assert_eq!(reasons, [&to_old, &from_old, &from_old, &to_old]);
    // Cells without settings keep the form that they had before settings existed.
    let written = serde_json::to_string(&plan.cells[0]).unwrap();
    assert!(!written.contains("ettings"), "{written}");
}

/// Each variant with itself, on two transports.
fn with_settings(stack: &str, settings: &str) -> (Vec<String>, Vec<(String, String)>) {
    let plan = plan(&format!(
        "workload: {{bandwidth: {{sizes: [1Mi], directions: [upload], streams: [4]}}}}\n\
         matrix: {{clients: [tuned], servers: [tuned], transports: [tcp, quic-v1], rawReference: false}}\n\
         stacks: [{{name: tuned, stack: {stack}, settings: {{{settings}}}}}]"
    ));
    let planned = plan.cells.iter().map(|cell| cell.transport.to_string()).collect();
    let skipped = plan.skipped.into_iter().map(|cell| (cell.id, cell.reason));
    (planned, skipped.collect())
}

#[test]
fn a_variant_without_access_to_a_setting_is_skipped_where_the_setting_has_an_effect() {
    let all = "tcpCongestion: reno, quicCongestion: bbr";
    assert_eq!(
        with_settings("raw", all),
        (vec!["tcp".to_owned(), "quic-v1".to_owned()], vec![])
    );
    for (stack, settings, remaining, reason) in [
        (
            "libp2p",
            all,
            "tcp",
            "libp2p's QUIC always uses quinn's default, cubic: remove quicCongestion",
        ),
        (
            "litep2p",
            "tcpCongestion: bbr",
            "quic-v1",
            "litep2p gives no access to its TCP sockets: remove tcpCongestion, and set the default of the machine",
        ),
        (
            "libp2p",
            "yamuxWindow: 1Mi",
            "quic-v1",
            "libp2p's yamux sets its windows itself, up to 1Gi for each connection: remove yamuxWindow",
        ),
        (
            "litep2p",
            "yamuxWindow: 1000Ki",
            "quic-v1",
            "a window of 1000Ki is too small: yamux gives each of 4 streams at least 256Ki, set yamuxWindow to 1Mi",
        ),
    ] {
        let (planned, skipped) = with_settings(stack, settings);
        assert_eq!(planned, [remaining], "{stack} {settings}");
        let [(_, given)] = &skipped[..] else {
            panic!("{skipped:?}")
        };
        assert_eq!(given, reason);
    }
    for stack in ["litep2p", "go-libp2p"] {
        assert_eq!(with_settings(stack, "yamuxWindow: 1Mi").1, []);
    }
}

#[test]
fn a_relay_has_room_in_its_window_for_the_circuits_of_a_source() {
    let with_window = |window: &str| -> (usize, Vec<String>) {
        let plan = plan(&format!(
            "workload: {{relayStress: {{sinks: [2, 8], sinksPerSource: 4}}}}\n\
             matrix: {{clients: [libp2p], servers: [libp2p], rawReference: false}}\n\
             topology: {{relay: tuned}}\n\
             stacks: [{{name: tuned, stack: go-libp2p, settings: {{yamuxWindow: {window}}}}}]"
        ));
        let skipped = plan.skipped.into_iter().map(|cell| cell.reason);
        (plan.cells.len(), skipped.collect())
    };
    assert_eq!(with_window("1Mi"), (2, vec![]));
    let reason = "a window of 512Ki is too small: yamux gives each of 4 streams at least 256Ki, set yamuxWindow to 1Mi";
    assert_eq!(with_window("512Ki"), (1, vec![reason.to_owned()]));
}

#[test]
fn two_congestion_controls_of_a_stack_are_compared() {
    let plan = plan(
        "workload: {bandwidth: {sizes: [1Mi], directions: [upload]}}\n\
         iterations: 10\n\
         matrix: {clients: [cubic], servers: [cubic], transports: [tcp, quic-v1], rawReference: false}\n\
         stacks: [{name: cubic, stack: raw, settings: {tcpCongestion: cubic, quicCongestion: cubic}}, \
         {name: bbr, stack: raw, settings: {tcpCongestion: bbr, quicCongestion: bbr}}]\n\
         compare: [{baseline: cubic, candidate: bbr}]\n\
         expect: [{metric: uploadGoodput, maxRegression: 10%}]",
    );
    let settings: Vec<_> = plan
        .settings()
        .into_iter()
        .map(|(name, settings)| format!("{name}: {settings}"))
        .collect();
    assert_eq!(
        settings,
        [
            "bbr: tcpCongestion bbr, quicCongestion bbr",
            "cubic: tcpCongestion cubic, quicCongestion cubic"
        ]
    );
    assert_eq!(plan.judging.cell_pairs.len(), 2);
}

#[test]
fn messages_pass_by_one_protocol_at_both_ends() {
    let reasons = |workload: &str, stacks: &str| {
        let plan = plan(&format!(
            "workload: {{{workload}}}\nmatrix: {{clients: [{stacks}], servers: [{stacks}], rawReference: false}}\n\
             stacks: [{{name: notified, stack: litep2p, settings: {{messaging: notifications}}}}, \
             {{name: gossip, stack: libp2p, settings: {{messaging: gossipsub}}}}]"
        ));
        let pairs = plan.cells.iter().map(|cell| cell.stack_pair().to_string());
        let pairs: Vec<String> = pairs.collect();
        let reasons = plan.skipped.into_iter().map(|skipped| skipped.reason);
        (pairs, reasons.collect::<Vec<_>>())
    };
    let messages = |mode| format!("messages: {{modes: [{mode}], sizes: [64], count: 10}}");
    let (pairs, skipped) = reasons(&messages("broadcast"), "notified, gossip");
    assert_eq!(pairs, ["notified → notified", "gossip → gossip"]);
    assert_eq!(
        skipped,
        [
            "peers that pass messages by notifications and by gossipsub cannot talk",
            "peers that pass messages by gossipsub and by notifications cannot talk"
        ]
    );
    let (pairs, skipped) = reasons(&messages("stream"), "libp2p, gossip");
    assert_eq!(pairs, ["libp2p → libp2p"]);
    let other_mode = "gossipsub passes messages to all peers only: set the mode broadcast";
    assert_eq!(skipped[2], other_mode, "{skipped:?}");
    let (pairs, skipped) = reasons("ping: {}", "litep2p, notified");
    assert_eq!(pairs, ["litep2p → litep2p"]);
    let other_workload = "notifications is a setting for the workload messages only";
    assert_eq!(skipped[2], other_workload, "{skipped:?}");
}

#[test]
fn a_relay_has_the_settings_of_its_variant_and_not_those_of_the_server() {
    let plan = plan(
        "workload: {relay: {sizes: [1M]}}\ntopology: {relay: tuned}\n\
         stacks: [{name: tuned, stack: libp2p, settings: {tcpCongestion: reno}}]\n\
         matrix: {clients: [libp2p], servers: [libp2p], transports: [tcp], rawReference: false}",
    );
    let relayed = plan.cells.iter().find(|cell| cell.parameters.is_relayed());
    let settings = |role| relayed.unwrap().stack_of(role).1.to_string();
    assert_eq!(settings(Role::Relay), "tcpCongestion reno");
    assert_eq!(settings(Role::Server), "");
    let named: Vec<_> = plan.settings().into_keys().collect();
    assert_eq!(named, ["tuned"]);
}

#[test]
fn only_the_raw_reference_is_raw_to_others() {
    let plan = plan(
        "workload: {bandwidth: {sizes: [1Mi], directions: [upload]}}\n\
         stacks: [{name: reno, stack: libp2p, settings: {tcpCongestion: reno}}, \
         {name: raw-reno, stack: raw, settings: {tcpCongestion: reno}}]\n\
         matrix: {clients: [libp2p, reno], servers: [libp2p], transports: [tcp], \
         include: [{client: raw-reno, server: raw-reno, transport: tcp}]}",
    );
    let raw = plan.cells.iter().position(Cell::is_raw_reference);
    let held = |name: &str| {
        let cell = plan.cells.iter().find(|cell| cell.client.0 == name).unwrap();
        plan.raw_of(cell)
    };
    assert_eq!(
        (held("libp2p"), held("reno"), held("raw-reno")),
        (raw, None, None)
    );
    assert!(raw.is_some());
}
