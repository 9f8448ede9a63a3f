//! Plans of documents: cells, nodes and trials.

use std::collections::BTreeSet;

use perfrun_api::planning::{self, Error};
use perfrun_contract::{
    matrix::{IpFamily, NodeProgramKind, Stack, StackName},
    parameters::{Parameters, RelayStress},
    plan::{Plan, PlannedNode},
    role::Role,
};
use perfrun_test_kit::records::trial;

use crate::fixtures::{PING, cell_ids, ping, plan, spec};

fn node(name: &str, role: Role, variant: Option<&str>) -> PlannedNode {
    PlannedNode {
        name: name.into(),
        role,
        variant: variant.map(Into::into),
        program: NodeProgramKind::Rust,
        ip_family: IpFamily::IPv4,
    }
}

#[test]
fn interleaved_trials_run_one_iteration_of_every_cell_after_the_other() {
    let plan = ping("matrix: {servers: [libp2p], rawReference: false}\niterations: 2\nwarmup: 1");
    assert_eq!(
        cell_ids(&plan),
        ["libp2p.libp2p.tcp.ping-1000", "litep2p.libp2p.tcp.ping-1000"]
    );
    assert_eq!(
        plan.trials,
        [
            trial("c0.w0"),
            trial("c1.w0"),
            trial("c0.i0"),
            trial("c1.i0"),
            trial("c0.i1"),
            trial("c1.i1"),
        ]
    );
}

#[test]
fn sequential_trials_finish_a_cell_before_the_next() {
    let plan =
        ping("matrix: {servers: [libp2p], rawReference: false}\niterations: 2\nwarmup: 1\norder: sequential");
    assert_eq!(
        plan.trials,
        [
            trial("c0.w0"),
            trial("c0.i0"),
            trial("c0.i1"),
            trial("c1.w0"),
            trial("c1.i0"),
            trial("c1.i1"),
        ]
    );
}

#[test]
fn without_warm_up_every_trial_counts() {
    let plan = ping("warmup: 0\niterations: 3");
    assert!(plan.trials.iter().all(|trial| !trial.warmup));
    assert_eq!(plan.trials.len(), 3 * plan.cells.len());
}

#[test]
fn the_raw_reference_comes_first_and_once_for_every_kind_of_transport() {
    let plan = ping("matrix: {clients: [libp2p], servers: [libp2p], transports: [quic-v1, tcp, tcp-tls]}");
    assert_eq!(
        cell_ids(&plan),
        [
            "raw.raw.quic-v1.ping-1000",
            "raw.raw.tcp.ping-1000",
            "libp2p.libp2p.quic-v1.ping-1000",
            "libp2p.libp2p.tcp.ping-1000",
            "libp2p.libp2p.tcp-tls.ping-1000",
        ]
    );
    assert_eq!(plan.cells[0].stack_pair().to_string(), "raw");
    assert!(plan.cells[0].is_raw() && !plan.cells[2].is_raw());
}

#[test]
fn raw_in_the_matrix_is_not_measured_twice() {
    let plan = ping("matrix: {clients: [libp2p, raw], servers: [libp2p, raw]}");
    assert_eq!(
        cell_ids(&plan),
        ["raw.raw.tcp.ping-1000", "libp2p.libp2p.tcp.ping-1000"]
    );
}

#[test]
fn the_raw_reference_has_only_cells_that_others_are_compared_with() {
    // litep2p has no TLS over TCP: only libp2p to libp2p runs.
    let plan = ping("matrix: {transports: [tcp-tls]}");
    assert_eq!(
        cell_ids(&plan),
        ["raw.raw.tcp.ping-1000", "libp2p.libp2p.tcp-tls.ping-1000"]
    );
    // A raw reference of 200 streams on QUIC would have no other cell to compare with.
    let plan = self::plan(
        "workload: {bandwidth: {sizes: [1Ki], streams: [100, 200], directions: [upload]}}\n\
         matrix: {clients: [libp2p], servers: [litep2p], transports: [quic-v1]}",
    );
    assert_eq!(
        cell_ids(&plan),
        [
            "raw.raw.quic-v1.upload-1Ki-x100",
            "libp2p.litep2p.quic-v1.upload-1Ki-x100"
        ]
    );
}

#[test]
fn included_combinations_come_after_the_cross_product_and_excluded_ones_go() {
    let plan = ping(
        "matrix:
  transports: [tcp, quic-v1]
  exclude: [{client: litep2p, transport: quic-v1}, {server: litep2p, transport: tcp}]
  include: [{client: litep2p, server: litep2p, transport: quic-v1}, {client: libp2p, server: libp2p, transport: tcp}]
  rawReference: false",
    );
    assert_eq!(
        cell_ids(&plan),
        [
            "libp2p.libp2p.tcp.ping-1000",
            "litep2p.libp2p.tcp.ping-1000",
            "libp2p.libp2p.quic-v1.ping-1000",
            "libp2p.litep2p.quic-v1.ping-1000",
            "litep2p.litep2p.quic-v1.ping-1000",
        ]
    );
}

#[test]
fn repeated_entries_are_measured_once() {
    let plan = plan(
        "workload: {bandwidth: {sizes: [1Ki, 1024, '1024'], directions: [upload, upload], streams: [1, 1]}}\n\
         matrix: {clients: [libp2p, libp2p], servers: [libp2p], transports: [tcp, tcp], rawReference: false}",
    );
    assert_eq!(cell_ids(&plan), ["libp2p.libp2p.tcp.upload-1Ki"]);
}

#[test]
fn parameters_go_through_directions_streams_and_sizes() {
    let plan = plan(
        "workload: {bandwidth: {sizes: [1Ki, 1M], streams: [1, 4], directions: [upload, both]}}\n\
         matrix: {clients: [libp2p], servers: [libp2p], rawReference: false}",
    );
    let ids: Vec<&str> = cell_ids(&plan)
        .iter()
        .map(|id| id.rsplit_once("tcp.").unwrap().1)
        .collect();
    assert_eq!(
        ids,
        [
            "upload-1Ki",
            "upload-1M",
            "upload-1Ki-x4",
            "upload-1M-x4",
            "both-1Ki",
            "both-1M",
            "both-1Ki-x4",
            "both-1M-x4",
        ]
    );
}

#[test]
fn all_cells_share_the_nodes() {
    let plan =
        ping("topology: {servers: 2, clients: 3, peersPerClient: 7}\nmatrix: {transports: [tcp, quic-v1]}");
    assert_eq!(
        plan.nodes,
        [
            node("server-0", Role::Server, None),
            node("server-1", Role::Server, None),
            node("client-0", Role::Client, None),
            node("client-1", Role::Client, None),
            node("client-2", Role::Client, None),
        ]
    );
    for cell in &plan.cells {
        assert_eq!(cell.servers[..], ["server-0", "server-1"]);
        assert_eq!(cell.clients[..], ["client-0", "client-1", "client-2"]);
        assert_eq!(cell.peers_per_client, 7);
    }
}

#[test]
fn a_variant_has_nodes_of_its_own() {
    let plan = ping(
        "stacks: [{name: next, stack: libp2p}]\n\
         matrix: {clients: [libp2p, next], servers: [next], rawReference: false}",
    );
    assert_eq!(
        plan.nodes,
        [
            node("server-0-next", Role::Server, Some("next")),
            node("client-0", Role::Client, None),
            node("client-0-next", Role::Client, Some("next")),
        ]
    );
    assert_eq!(
        cell_ids(&plan),
        ["libp2p.next.tcp.ping-1000", "next.next.tcp.ping-1000"]
    );
    assert_eq!(plan.cells[0].stack_pair().to_string(), "libp2p → next");
    assert_eq!(
        (plan.cells[0].client_stack, plan.cells[0].server_stack),
        (Stack::Libp2p, Stack::Libp2p)
    );
    assert_eq!(plan.cells[1].clients[..], ["client-0-next"]);
}

#[test]
fn a_variant_that_is_not_in_the_matrix_has_no_nodes() {
    let plan = ping("stacks: [{name: next, stack: libp2p}]");
    assert!(plan.nodes.iter().all(|node| node.variant.is_none()));
}

#[test]
fn more_peers_than_a_server_of_commonware_takes_are_skipped() {
    let skipped = |mode: &str, topology: &str| -> Vec<String> {
        let plan = plan(&format!(
            "workload: {{messages: {{modes: [{mode}], sizes: [64], count: 10, window: 1024}}}}\n\
             matrix: {{clients: [commonware, raw], servers: [commonware, raw]}}\ntopology: {{{topology}}}"
        ));
        plan.skipped.into_iter().map(|skipped| skipped.reason).collect()
    };
    // A window of 1024 and 64 more, 65536 in all.
    let crowded = |most, peers| {
        format!(
            "a server of commonware takes {most} peers that send such messages, not {peers}: lower their number \
             or the window"
        )
    };
    for (mode, topology, reason) in [
        ("stream", "clients: 2, servers: 1, peersPerClient: 30", None),
        (
            "stream",
            "clients: 2, servers: 1, peersPerClient: 31",
            Some(crowded(60, 62)),
        ),
        ("stream", "clients: 4, servers: 2, peersPerClient: 30", None),
        (
            "stream",
            "clients: 5, servers: 2, peersPerClient: 30",
            Some(crowded(60, 75)),
        ),
        ("broadcast", "clients: 1, servers: 4, peersPerClient: 15", None),
        (
            "broadcast",
            "clients: 2, servers: 4, peersPerClient: 16",
            Some(crowded(15, 32)),
        ),
    ] {
        let reasons = skipped(mode, topology);
        let found = reasons.iter().find(|reason| reason.contains("such messages"));
        assert_eq!(found, reason.as_ref(), "{mode}, {topology}: {reasons:?}");
    }
}

#[test]
fn variants_of_raw_have_cells_with_different_ids() {
    let plan = ping(
        "stacks: [{name: raw-tuned, stack: raw, env: {A: b}}]\nmatrix: {clients: [raw, raw-tuned], servers: [raw]}",
    );
    let pairs = |plan: &Plan| -> Vec<String> {
        let pairs = plan.cells.iter().map(|cell| cell.stack_pair().to_string());
        pairs.collect()
    };
    assert_eq!(pairs(&plan), ["raw", "raw-tuned → raw"]);
    let alone = ping(
        "stacks: [{name: raw-tuned, stack: raw, env: {A: b}}]\n\
         matrix: {clients: [raw-tuned], servers: [raw-tuned], rawReference: false}",
    );
    assert_eq!(pairs(&alone), ["raw-tuned → raw-tuned"]);
}

#[test]
fn a_matrix_without_a_runnable_cell_is_refused_with_all_reasons() {
    let spec = spec(
        "workload: {substreams: {counts: [1, 101]}}\nmatrix: {clients: [litep2p, raw], servers: [litep2p, raw], transports: [tcp-tls]}",
    );
    let error = planning::plan(&spec).unwrap_err();
    let Error::NoRunnableCell(skipped) = &error else {
        panic!("{error}")
    };
    assert_eq!(skipped.len(), 8);
    assert_eq!(
        error.to_string(),
        "nothing to run: every cell of the matrix is skipped: \
         litep2p secures TCP by Noise only, it has no TLS; \
         raw has no TLS over TCP: the raw reference is plain tcp; \
         raw speaks only to raw: it has no peer-to-peer handshake; \
         name other stacks or transports, or another workload"
    );
}

#[test]
fn a_matrix_with_only_the_raw_reference_runnable_is_refused() {
    let spec = spec(&format!(
        "{PING}\nmatrix: {{clients: [litep2p], servers: [litep2p], transports: [tcp-tls]}}"
    ));
    assert!(matches!(planning::plan(&spec), Err(Error::NoRunnableCell(_))));
}

#[test]
fn a_matrix_that_excludes_everything_is_refused() {
    let spec = spec(&format!("{PING}\nmatrix: {{exclude: [{{transport: tcp}}]}}"));
    assert_eq!(planning::plan(&spec), Err(Error::NoCell));
}

#[test]
fn cells_with_the_same_nodes_share_their_names() {
    let plan = ping("topology: {clients: 100}\nmatrix: {transports: [tcp, quic-v1]}");
    let first = plan.cells[0].clients.as_ptr();
    assert!(plan.cells.iter().all(|cell| cell.clients.as_ptr() == first));
}

#[test]
fn names_that_validation_would_refuse_are_refused_again() {
    let mut spec = spec(PING);
    spec.matrix.clients = vec![StackName("rust-libp2p".into())];
    assert_eq!(
        planning::plan(&spec),
        Err(Error::UnknownStack(StackName("rust-libp2p".into())))
    );
    spec.workload.ping = None;
    assert_eq!(planning::plan(&spec), Err(Error::NoWorkload));
}

#[test]
fn a_plan_is_the_same_every_time_and_survives_json() {
    let document = spec(
        "workload: {handshakes: {duration: 500ms, inFlight: [1, 10]}}\nmatrix: {transports: [tcp, tcp-tls]}",
    );
    let once = planning::plan(&document).unwrap();
    let twice: Plan = serde_json::from_str(&serde_json::to_string(&once).unwrap()).unwrap();
    assert_eq!(once, planning::plan(&document).unwrap());
    assert_eq!(once, twice);
}

#[test]
fn ids_are_unique() {
    let document = "
workload: {bandwidth: {sizes: [1, 1Ki, 1000, 1k, 1M, 1Mi], streams: [1, 2, 16], directions: [upload, download, both]}}
stacks: [{name: a, stack: libp2p}, {name: a-b, stack: libp2p}, {name: b, stack: litep2p}, {name: 0-a, stack: raw}]
matrix: {clients: [a, a-b, b, libp2p, 0-a], servers: [b, a-b, litep2p, 0-a], transports: [tcp, tcp-tls, quic-v1]}
topology: {servers: 2, clients: 2}
iterations: 2
";
    let plan = plan(document);
    let distinct = |all: Vec<&str>| all.iter().collect::<BTreeSet<_>>().len() == all.len();
    let skipped = plan.skipped.iter().map(|skipped| skipped.id.as_str());
    assert!(distinct(cell_ids(&plan).into_iter().chain(skipped).collect()));
    assert!(distinct(
        plan.nodes.iter().map(|node| node.name.as_str()).collect()
    ));
    assert!(distinct(
        plan.trials.iter().map(|trial| trial.id.as_str()).collect()
    ));
    for cell in &plan.cells {
        for name in cell.nodes() {
            assert!(plan.nodes.iter().any(|node| node.name == *name), "{name}");
        }
    }
    let trials_of = |index| plan.trials.iter().filter(|trial| trial.cell == index).count();
    assert!((0..plan.cells.len()).all(|index| trials_of(index) == 3));
}

#[test]
fn an_echo_that_ends_on_its_ramp_is_refused() {
    let spec = |duration: &str| {
        spec(&format!(
            "workload: {{echo: {{loads: [{{preset: published-effective}}, {{preset: scenario-1}}], duration: {duration}}}}}\n\
             timeouts: {{run: 24h}}"
        ))
    };
    let refused = planning::plan(&spec("100s")).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "workload.echo.duration is too short: echo-10x1000 takes 108.9 s to start all streams, one after the \
         other, but the duration is 100 s"
    );
    assert!(planning::plan(&spec("110s")).is_ok());
}

#[test]
fn the_raw_reference_keeps_its_proxy_when_the_relay_is_another_stack() {
    let plan = plan(
        "workload: {relay: {sizes: [1M]}}\ntopology: {relay: go-libp2p}\n\
         matrix: {clients: [libp2p], servers: [libp2p], transports: [tcp]}",
    );
    let relayed = plan.cells.iter().filter(|cell| cell.parameters.is_relayed());
    let relays: Vec<_> = relayed
        .map(|cell| (cell.server.0.as_str(), cell.relay_stack))
        .collect();
    assert_eq!(
        relays,
        [("raw", Some(Stack::Raw)), ("libp2p", Some(Stack::GoLibp2p))]
    );
}

#[test]
fn a_relayed_cell_has_a_relay_of_the_build_that_serves() {
    let plan = plan(
        "workload: {relay: {sizes: [1M]}}\nstacks: [{name: next, stack: libp2p}]\n\
         matrix: {clients: [libp2p, litep2p], servers: [next], rawReference: false}",
    );
    assert_eq!(
        cell_ids(&plan),
        [
            "libp2p.next.tcp.direct-1M",
            "libp2p.next.tcp.relayed-1M",
            "litep2p.next.tcp.direct-1M"
        ]
    );
    let relays: Vec<_> = plan.cells.iter().map(|cell| cell.relays.len()).collect();
    assert_eq!(relays, [0, 1, 0]);
    assert!(
        plan.nodes
            .contains(&node("relay-0-next", Role::Relay, Some("next")))
    );
    assert_eq!(plan.skipped[0].reason, "litep2p has no circuit relay");
}

#[test]
fn a_stress_level_is_shared_by_its_nodes() {
    let plan = plan(
        "workload: {relayStress: {sinks: [100, 150], sinksPerSource: 50, sinkInterval: 1s, plateau: 10s}}\n\
         topology: {clients: 4, servers: 2}\nmatrix: {clients: [libp2p], servers: [libp2p], rawReference: false}",
    );
    assert_eq!(cell_ids(&plan), ["libp2p.libp2p.tcp.sinks-100"]);
    assert_eq!(
        plan.skipped[0].reason,
        "150 sinks cannot be shared evenly by 4 client nodes"
    );
    let cell = &plan.cells[0];
    assert_eq!((cell.peers_per_client, cell.sources_per_server()), (25, 1));
    let Parameters::RelayStress(RelayStress {
        sources,
        start_interval_seconds,
        ramp_seconds,
        ..
    }) = cell.parameters
    else {
        panic!("{cell:?}")
    };
    // Two sources start one sink each per second, so that each of the four client nodes starts one every two
    // seconds.
    assert_eq!((sources, start_interval_seconds, ramp_seconds), (2, 2.0, 48.0));
    assert_eq!(cell.parameters.duration().as_secs_f64(), 58.0);
}

#[test]
fn in_memory_a_client_is_its_own_server() {
    let plan = plan(
        "workload: {ping: {}}\n\
         matrix: {clients: [libp2p], servers: [libp2p], transports: [memory], networks: [none, wan]}\n\
         topology: {clients: 2, servers: 3}",
    );
    let ids: Vec<&str> = plan.cells.iter().map(|cell| cell.id.as_str()).collect();
    assert_eq!(ids, ["libp2p.libp2p.memory.ping-1000"], "no raw reference either");
    assert_eq!(plan.cells[0].clients[..], ["client-0", "client-1"]);
    assert!(plan.cells[0].servers.is_empty());
    let nodes: Vec<&str> = plan.nodes.iter().map(|node| node.name.as_str()).collect();
    assert_eq!(nodes, ["client-0", "client-1"]);
    let reasons: Vec<&str> = plan
        .skipped
        .iter()
        .map(|skipped| skipped.reason.as_str())
        .collect();
    assert_eq!(
        reasons,
        ["peers of one process, which memory and mode serial need, have no link that could be impaired"]
    );
}

#[test]
fn peers_in_memory_are_of_one_variant() {
    let plan = plan(
        "workload: {ping: {}}\n\
         stacks: [{name: new, stack: libp2p, env: {A: b}}]\n\
         matrix: {clients: [new], servers: [new, libp2p], transports: [memory]}",
    );
    assert_eq!(plan.cells.len(), 1);
    assert_eq!(plan.cells[0].stack_pair().to_string(), "new → new");
    assert!(
        plan.skipped[0].reason.contains("the same variant"),
        "{:?}",
        plan.skipped
    );
}

#[test]
fn messages_have_a_cell_for_each_mode_and_size() {
    let plan = plan(
        "workload: {messages: {modes: [serialAck, stream], sizes: [64, 1Ki], duration: 1s}}\n\
         matrix: {clients: [libp2p], servers: [libp2p]}",
    );
    assert_eq!(
        cell_ids(&plan),
        [
            "raw.raw.tcp.serialAck-64",
            "raw.raw.tcp.serialAck-1Ki",
            "raw.raw.tcp.stream-64",
            "raw.raw.tcp.stream-1Ki",
            "libp2p.libp2p.tcp.serialAck-64",
            "libp2p.libp2p.tcp.serialAck-1Ki",
            "libp2p.libp2p.tcp.stream-64",
            "libp2p.libp2p.tcp.stream-1Ki",
        ]
    );
    assert!(plan.cells.iter().all(|cell| cell.servers[..] == ["server-0"]));
}

#[test]
fn serial_messages_stay_in_one_process() {
    let plan = plan(
        "workload: {messages: {modes: [serial], sizes: [64], count: 10}}\n\
         matrix: {servers: [libp2p], networks: [none, wan]}",
    );
    assert_eq!(
        cell_ids(&plan),
        ["raw.raw.tcp.serial-64", "libp2p.libp2p.tcp.serial-64"]
    );
    assert!(plan.cells.iter().all(|cell| cell.servers.is_empty()));
    assert_eq!(plan.nodes, [node("client-0", Role::Client, None)]);
    let skipped: Vec<(&str, &str)> = plan
        .skipped
        .iter()
        .map(|skipped| (skipped.id.as_str(), skipped.reason.as_str()))
        .collect();
    let variant = "peers of one process, which memory and mode serial need, have the same variant";
    let link = "peers of one process, which memory and mode serial need, have no link that could be impaired";
    assert_eq!(
        skipped,
        [
            ("litep2p.libp2p.tcp.serial-64", variant),
            ("libp2p.libp2p.tcp.serial-64.wan", link),
            ("litep2p.libp2p.tcp.serial-64.wan", variant),
        ]
    );
}

#[test]
fn a_cell_with_serial_messages_has_servers_in_other_modes() {
    let plan = plan(
        "workload: {messages: {modes: [serial, serialAck], sizes: [64], count: 10}}\n\
         matrix: {clients: [libp2p], servers: [libp2p], rawReference: false}",
    );
    let servers: Vec<usize> = plan.cells.iter().map(|cell| cell.servers.len()).collect();
    assert_eq!(servers, [0, 1]);
}

#[test]
fn a_window_of_more_bytes_than_stacks_hold_is_refused() {
    let spec = |window: u32| {
        spec(&format!(
            "workload: {{messages: {{modes: [serialAck, stream], sizes: [64, 1Mi], window: {window}, count: 1}}}}"
        ))
    };
    assert!(planning::plan(&spec(64)).is_ok());
    assert_eq!(
        planning::plan(&spec(65)).unwrap_err().to_string(),
        "nodes refuse the workload: a window of 65 messages of 1Mi has more than 64Mi in flight"
    );
}

#[test]
fn each_ip_family_has_cells_a_raw_reference_and_nodes_of_its_own() {
    let plan = ping(
        "matrix: {clients: [libp2p], servers: [libp2p], networks: [none, wan], ipFamilies: [IPv4, IPv6]}",
    );
    assert_eq!(
        cell_ids(&plan),
        [
            "raw.raw.tcp.ping-1000",
            "raw.raw.tcp.ping-1000.IPv6",
            "libp2p.libp2p.tcp.ping-1000",
            "libp2p.libp2p.tcp.ping-1000.IPv6",
            "raw.raw.tcp.ping-1000.wan",
            "raw.raw.tcp.ping-1000.wan.IPv6",
            "libp2p.libp2p.tcp.ping-1000.wan",
            "libp2p.libp2p.tcp.ping-1000.wan.IPv6",
        ]
    );
    let references: Vec<_> = plan.cells.iter().map(|cell| plan.raw_of(cell)).collect();
    assert_eq!(
        references,
        [None, None, Some(0), Some(1), None, None, Some(4), Some(5)]
    );
    let nodes: Vec<_> = plan
        .nodes
        .iter()
        .map(|node| (node.name.as_str(), node.ip_family))
        .collect();
    assert_eq!(
        nodes,
        [
            ("server-0", IpFamily::IPv4),
            ("client-0", IpFamily::IPv4),
            ("server6-0", IpFamily::IPv6),
            ("client6-0", IpFamily::IPv6),
        ]
    );
    for cell in &plan.cells {
        let is_v6 = cell.nodes().all(|name| name.contains('6'));
        assert_eq!(is_v6, cell.ip_family == IpFamily::IPv6, "{}", cell.id);
    }
}

#[test]
fn combinations_may_name_an_ip_family() {
    let matrix = "clients: [libp2p], servers: [libp2p], rawReference: false";
    let added = ping(&format!(
        "matrix: {{{matrix}, include: [{{client: libp2p, server: libp2p, transport: tcp, ipFamily: IPv6}}]}}"
    ));
    assert_eq!(
        cell_ids(&added),
        ["libp2p.libp2p.tcp.ping-1000", "libp2p.libp2p.tcp.ping-1000.IPv6"]
    );
    let removed = ping(&format!(
        "matrix: {{{matrix}, transports: [tcp, quic-v1], ipFamilies: [IPv4, IPv6], \
         exclude: [{{transport: tcp, ipFamily: IPv6}}]}}"
    ));
    assert_eq!(
        cell_ids(&removed),
        [
            "libp2p.libp2p.tcp.ping-1000",
            "libp2p.libp2p.quic-v1.ping-1000",
            "libp2p.libp2p.quic-v1.ping-1000.IPv6",
        ]
    );
}

#[test]
fn variants_are_compared_within_an_ip_family() {
    let plan = ping(
        "stacks: [{name: main, stack: libp2p}, {name: pr, stack: libp2p}]\n\
         compare: [{baseline: main, candidate: pr, control: true}]\n\
         matrix: {clients: [main], servers: [main], ipFamilies: [IPv6, IPv4], rawReference: false}",
    );
    let ids = |index: usize| plan.cells[index].id.as_str();
    let cell_pairs: Vec<_> = plan
        .judging
        .cell_pairs
        .iter()
        .map(|cell_pair| (ids(cell_pair.baseline), ids(cell_pair.candidate)))
        .collect();
    assert_eq!(
        cell_pairs,
        [
            ("main.main.tcp.ping-1000.IPv6", "pr.pr.tcp.ping-1000.IPv6"),
            ("main.main.tcp.ping-1000", "pr.pr.tcp.ping-1000"),
        ]
    );
    let names: BTreeSet<_> = plan.nodes.iter().map(|node| node.name.as_str()).collect();
    for name in [
        "client6-0-main",
        "client6-0-pr",
        "client6c0-main",
        "client-0c-main",
    ] {
        assert!(names.contains(name), "{name}: {names:?}");
    }
}

#[test]
fn memory_has_no_ipv6() {
    let plan = ping(
        "matrix: {clients: [libp2p], servers: [libp2p], transports: [memory], ipFamilies: [IPv4, IPv6], rawReference: false}",
    );
    assert_eq!(cell_ids(&plan), ["libp2p.libp2p.memory.ping-1000"]);
    let skipped: Vec<_> = plan.skipped.iter().map(|skipped| skipped.id.as_str()).collect();
    assert_eq!(skipped, ["libp2p.libp2p.memory.ping-1000.IPv6"]);
}
