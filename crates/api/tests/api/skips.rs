//! What stacks support, and the reasons for skipped cells.

use perfrun_contract::{matrix::StackName, plan::Skipped};
use serde_json::json;

use crate::fixtures::plan;

const NO_TLS: &str = "litep2p secures TCP by Noise only, it has no TLS";
const NO_LAZY: &str = "litep2p cannot negotiate v1lazy as a client";
const QUIC_STREAMS: &str =
    "litep2p as a server allows 100 streams on a QUIC connection, which is not configurable";
const WEBRTC_LISTENS: &str = "litep2p listens on webrtc-direct, but cannot dial";
const WEBRTC_BURST: &str =
    "libp2p as a server on webrtc-direct closes all but 10 streams that are opened at the same time";
const WEBRTC_STUCK: &str =
    "litep2p as a server on webrtc-direct gets stuck when it sends on several streams at the same time";
const LITEP2P_MEMORY: &str = "litep2p has no transport in memory";
const LITEP2P_RSA: &str = "litep2p has Ed25519 identities only";
const COMMONWARE_STREAMS: &str =
    "commonware has one stream for each connection: its stream layer has no muxer";
const COMMONWARE_RELAY: &str = "commonware has no relay";
const COMMONWARE_TCP: &str =
    "commonware speaks its own protocol over TCP only: name it with the transport tcp";
const RAW_MEMORY: &str = "raw has no transport in memory: without a link there is nothing to compare with";
const RAW_ALONE: &str = "raw speaks only to raw: it has no peer-to-peer handshake";
const RAW_OPENS: &str = "raw opens streams without a round trip, so its opens cannot be compared";
const RAW_WS: &str = "raw has no WebSocket: the raw reference is plain tcp";
const RAW_WEBRTC: &str = "raw has no WebRTC: the raw reference is quic-v1";
const RAW_TLS: &str = "raw has no TLS over TCP: the raw reference is plain tcp";

/// The reason why a pair cannot run a workload; `None` if it can. The matrix has another pair that can, so
/// that there is a plan.
fn reason(workload: &str, client: &str, server: &str, transport: &str) -> Option<String> {
    let plan = plan(&format!(
        "workload: {workload}\n\
         matrix: {{clients: [{client}], servers: [{server}], transports: [{transport}], rawReference: false, \
         include: [{{client: libp2p, server: libp2p, transport: tcp}}]}}"
    ));
    let of_pair = format!("{client}.{server}.{transport}.");
    let mut reasons = plan
        .skipped
        .into_iter()
        .filter(|skipped| skipped.id.starts_with(&of_pair));
    let reason = reasons.next().map(|skipped| skipped.reason);
    assert_eq!(
        reason.is_none(),
        plan.cells.iter().any(|cell| cell.id.starts_with(&of_pair))
    );
    reason
}

const PING: &str = "{ping: {}}";

#[test]
fn all_pairs_speak_over_tcp_websocket_and_quic() {
    for workload in [
        PING,
        "{handshakes: {count: 1}}",
        "{bandwidth: {sizes: [1Ki]}}",
        "{substreams: {counts: [100]}}",
        "{messages: {count: 1}}",
    ] {
        for client in ["libp2p", "litep2p"] {
            for server in ["libp2p", "litep2p"] {
                for transport in ["tcp", "ws", "quic-v1"] {
                    assert_eq!(
                        reason(workload, client, server, transport),
                        None,
                        "{workload} {client} {server}"
                    );
                }
            }
        }
    }
}

#[test]
fn commonware_has_messages_and_a_stream_layer_on_tcp() {
    let reason_on = |transport, workload| reason(workload, "commonware", "commonware", transport);
    for workload in [
        PING,
        "{handshakes: {count: 1}}",
        "{bandwidth: {sizes: [1Ki], streams: [64], negotiation: v1lazy}}",
        "{bandwidth: {protocol: litep2p-perf, sizes: [1Ki]}}",
        "{messages: {modes: [serial, stream], count: 1}}",
    ] {
        assert_eq!(reason_on("tcp", workload), None, "{workload}");
        for transport in ["tcp-tls", "quic-v1", "ws", "webrtc-direct", "memory"] {
            let reason = reason_on(transport, workload);
            assert_eq!(reason.as_deref(), Some(COMMONWARE_TCP), "{workload} {transport}");
        }
        for (client, server) in [("commonware", "raw"), ("libp2p", "commonware")] {
            assert!(reason(workload, client, server, "tcp").is_some(), "{workload}");
        }
    }
    for (workload, expected) in [
        ("{substreams: {counts: [1]}}", COMMONWARE_STREAMS),
        ("{echo: {loads: [{preset: scenario-2}]}}", COMMONWARE_STREAMS),
        ("{relay: {sizes: [1Mi]}}", COMMONWARE_RELAY),
    ] {
        assert_eq!(
            reason_on("tcp", workload).as_deref(),
            Some(expected),
            "{workload}"
        );
    }
}

#[test]
fn memory_is_for_libp2p_without_a_relay() {
    for workload in [
        PING,
        "{handshakes: {count: 1}}",
        "{bandwidth: {sizes: [1Ki], streams: [64]}}",
        "{substreams: {counts: [256]}}",
        "{echo: {loads: [{preset: scenario-2}]}}",
        "{messages: {modes: [serial, stream], count: 1}}",
    ] {
        assert_eq!(reason(workload, "libp2p", "libp2p", "memory"), None, "{workload}");
        for (client, server) in [
            ("libp2p", "litep2p"),
            ("litep2p", "libp2p"),
            ("litep2p", "litep2p"),
        ] {
            let refused = reason(workload, client, server, "memory");
            assert_eq!(refused.as_deref(), Some(LITEP2P_MEMORY), "{workload}");
        }
        let refused = reason(workload, "raw", "raw", "memory");
        assert_eq!(refused.as_deref(), Some(RAW_MEMORY), "{workload}");
    }
    for workload in [
        "{relay: {paths: [direct]}}",
        "{relay: {paths: [relayed]}}",
        "{relayStress: {sinks: [1]}}",
    ] {
        let refused = reason(workload, "libp2p", "libp2p", "memory").unwrap();
        assert!(refused.contains("separate processes"), "{workload}: {refused}");
    }
}

#[test]
fn rsa_identities_are_for_libp2p_and_raw_has_none() {
    let workload = "{echo: {loads: [{preset: scenario-2}], identity: rsa2048}}";
    for transport in ["tcp", "ws", "quic-v1", "webrtc-direct"] {
        assert_eq!(
            reason(workload, "libp2p", "libp2p", transport),
            None,
            "{transport}"
        );
        for (client, server) in [("libp2p", "litep2p"), ("litep2p", "libp2p")] {
            let refused = reason(workload, client, server, transport);
            assert_eq!(refused.as_deref(), Some(LITEP2P_RSA), "{transport}");
        }
    }
    assert_eq!(reason(workload, "raw", "raw", "quic-v1"), None);
}

#[test]
fn an_echo_needs_as_many_streams_as_it_has_on_a_connection() {
    let load =
        |streams: u32| format!("{{echo: {{loads: [{{connections: 2, streamsPerConnection: {streams}}}]}}}}");
    for (client, server, transport) in [
        ("libp2p", "libp2p", "tcp"),
        ("libp2p", "litep2p", "tcp"),
        ("libp2p", "libp2p", "quic-v1"),
        ("litep2p", "libp2p", "quic-v1"),
    ] {
        assert_eq!(reason(&load(1000), client, server, transport), None);
    }
    assert_eq!(reason(&load(100), "libp2p", "litep2p", "quic-v1"), None);
    let refused = reason(&load(101), "libp2p", "litep2p", "quic-v1");
    assert_eq!(refused.as_deref(), Some(QUIC_STREAMS));
}

#[test]
fn raw_echoes_on_as_many_connections_as_a_server_takes() {
    let load = |connections: u32| {
        format!("{{echo: {{loads: [{{connections: {connections}, streamsPerConnection: 4096}}]}}}}")
    };
    // Their ramp alone is longer than the default duration.
    let slow = |load: String| load.replace("]}", "], duration: 1h}");
    assert_eq!(reason(&slow(load(2)), "raw", "raw", "tcp"), None);
    assert_eq!(
        reason(&slow(load(3)), "raw", "raw", "tcp").as_deref(),
        Some("raw has a TCP connection for each stream, and a server accepts 8192")
    );
    assert_eq!(reason(&slow(load(3)), "raw", "raw", "quic-v1"), None);
}

#[test]
fn litep2p_has_no_tls_over_tcp() {
    assert_eq!(reason(PING, "libp2p", "libp2p", "tcp-tls"), None);
    assert_eq!(
        reason(PING, "litep2p", "libp2p", "tcp-tls").as_deref(),
        Some(NO_TLS)
    );
    assert_eq!(
        reason(PING, "libp2p", "litep2p", "tcp-tls").as_deref(),
        Some(NO_TLS)
    );
    assert_eq!(
        reason(PING, "litep2p", "litep2p", "tcp-tls").as_deref(),
        Some(NO_TLS)
    );
}

#[test]
fn only_the_client_needs_lazy_negotiation() {
    for workload in [
        "{bandwidth: {sizes: [1Ki], negotiation: v1lazy}}",
        "{substreams: {counts: [1], negotiation: v1lazy}}",
    ] {
        assert_eq!(reason(workload, "libp2p", "libp2p", "tcp"), None);
        assert_eq!(reason(workload, "libp2p", "litep2p", "tcp"), None);
        assert_eq!(
            reason(workload, "litep2p", "libp2p", "tcp").as_deref(),
            Some(NO_LAZY)
        );
    }
}

#[test]
fn raw_accepts_every_negotiation_because_it_negotiates_none() {
    let workload = "{bandwidth: {sizes: [1Ki], negotiation: v1lazy}}";
    assert_eq!(reason(workload, "raw", "raw", "tcp"), None);
}

#[test]
fn litep2p_limits_streams_on_quic_as_a_server() {
    for workload in [
        "{substreams: {counts: [101]}}",
        "{bandwidth: {sizes: [1Ki], streams: [101]}}",
    ] {
        for client in ["libp2p", "litep2p"] {
            assert_eq!(
                reason(workload, client, "litep2p", "quic-v1").as_deref(),
                Some(QUIC_STREAMS)
            );
            assert_eq!(reason(workload, client, "libp2p", "quic-v1"), None);
            assert_eq!(reason(workload, client, "litep2p", "tcp"), None);
        }
    }
}

#[test]
fn yamux_opens_thousands_of_substreams() {
    for (client, server) in [
        ("libp2p", "litep2p"),
        ("litep2p", "libp2p"),
        ("litep2p", "litep2p"),
    ] {
        for count in [257, 1000, 4096] {
            assert_eq!(
                reason(
                    &format!("{{substreams: {{counts: [{count}]}}}}"),
                    client,
                    server,
                    "tcp"
                ),
                None
            );
        }
    }
}

#[test]
fn more_than_ten_concurrent_streams_of_libp2p_on_webrtc_are_skipped() {
    let reason = |workload| reason(workload, "libp2p", "libp2p", "webrtc-direct");
    for possible in [
        PING,
        "{handshakes: {count: 1}}",
        "{bandwidth: {sizes: [1Ki], streams: [10]}}",
        "{substreams: {counts: [10]}}",
        "{substreams: {counts: [11], mode: paced, rate: 10}}",
    ] {
        assert_eq!(reason(possible), None, "{possible}");
    }
    for too_many in [
        "{bandwidth: {sizes: [1Ki], streams: [11]}}",
        "{substreams: {counts: [11]}}",
    ] {
        assert_eq!(reason(too_many).as_deref(), Some(WEBRTC_BURST), "{too_many}");
    }
}

#[test]
fn a_download_on_webrtc_has_a_size_and_no_duration() {
    let reason = |direction| {
        let workload = format!("{{bandwidth: {{duration: 1s, directions: [{direction}]}}}}");
        reason(&workload, "libp2p", "libp2p", "webrtc-direct")
    };
    assert_eq!(reason("upload"), None);
    let cut_off = reason("download").unwrap_or_default();
    assert!(cut_off.ends_with("set sizes instead of a duration"), "{cut_off}");
}

#[test]
fn loads_that_litep2p_cannot_do_on_webrtc_are_skipped_with_their_reason() {
    for server in ["libp2p", "litep2p"] {
        assert_eq!(
            reason(PING, "litep2p", server, "webrtc-direct").as_deref(),
            Some(WEBRTC_LISTENS)
        );
    }
    let reason = |workload| reason(workload, "libp2p", "litep2p", "webrtc-direct");
    for possible in [
        PING,
        "{handshakes: {count: 1}}",
        "{bandwidth: {sizes: [1Ki], protocol: litep2p-perf}}",
        "{bandwidth: {sizes: [1Ki], protocol: litep2p-perf, directions: [upload], streams: [10]}}",
        "{substreams: {counts: [256]}}",
    ] {
        assert_eq!(reason(possible), None, "{possible}");
    }
    let half_close = reason("{bandwidth: {sizes: [1Ki]}}").unwrap_or_default();
    assert!(half_close.contains("rust-libp2p issue 4600"), "{half_close}");
    assert_eq!(
        reason("{bandwidth: {sizes: [1Ki], protocol: litep2p-perf, directions: [download], streams: [2]}}")
            .as_deref(),
        Some(WEBRTC_STUCK)
    );
}

#[test]
fn the_raw_reference_of_webrtc_is_quic() {
    let plan = plan(
        "workload: {ping: {}}\nmatrix: {clients: [libp2p], servers: [libp2p], transports: [webrtc-direct]}",
    );
    let ids: Vec<_> = plan.cells.iter().map(|cell| cell.id.as_str()).collect();
    assert_eq!(
        ids,
        [
            "raw.raw.quic-v1.ping-1000",
            "libp2p.libp2p.webrtc-direct.ping-1000"
        ]
    );
}

#[test]
fn raw_speaks_only_to_raw() {
    assert_eq!(reason(PING, "raw", "libp2p", "tcp").as_deref(), Some(RAW_ALONE));
    assert_eq!(
        reason(PING, "litep2p", "raw", "quic-v1").as_deref(),
        Some(RAW_ALONE)
    );
    assert_eq!(reason(PING, "raw", "raw", "quic-v1"), None);
}

#[test]
fn raw_has_no_substreams_and_only_plain_transports() {
    assert_eq!(
        reason("{substreams: {counts: [1]}}", "raw", "raw", "quic-v1").as_deref(),
        Some(RAW_OPENS)
    );
    assert_eq!(reason(PING, "raw", "raw", "tcp-tls").as_deref(), Some(RAW_TLS));
    assert_eq!(reason(PING, "raw", "raw", "ws").as_deref(), Some(RAW_WS));
    assert_eq!(
        reason(PING, "raw", "raw", "webrtc-direct").as_deref(),
        Some(RAW_WEBRTC)
    );
}

#[test]
fn a_variant_has_the_capabilities_of_its_stack() {
    let plan = plan(
        "workload: {ping: {}}\nstacks: [{name: next, stack: litep2p}, {name: other, stack: libp2p}]\n\
         matrix: {clients: [other], servers: [next, other], transports: [tcp-tls], rawReference: false}",
    );
    assert_eq!(plan.cells.len(), 1);
    assert_eq!(plan.skipped.len(), 1);
    assert_eq!(
        (plan.skipped[0].id.as_str(), plan.skipped[0].reason.as_str()),
        ("other.next.tcp-tls.ping-1000", NO_TLS)
    );
    let named = |name: &str| Some(StackName(name.to_owned()));
    let Skipped { client, server, .. } = &plan.skipped[0];
    assert_eq!([client, server], [&named("other"), &named("next")]);
}

#[test]
fn a_skipped_cell_of_earlier_results_is_read_without_its_stacks() {
    let written = json!({"id": "other.next.tcp-tls.ping-1000", "reason": NO_TLS});
    let read: Skipped = serde_json::from_value(written.clone()).unwrap();
    assert_eq!([&read.client, &read.server], [&None; 2]);
    assert_eq!(serde_json::to_value(read).unwrap(), written);
}

/// The reasons for which a relayed transfer is skipped.
fn relayed(ends: &str, relay: &str, transport: &str, limits: &str) -> Vec<String> {
    let plan = plan(&format!(
        "workload: {{relay: {{sizes: [1M], limits: {limits}}}}}\ntopology: {{relay: {relay}}}\n\
         matrix: {{clients: [{ends}], servers: [{ends}], transports: [{transport}], rawReference: false, \
         include: [{{client: libp2p, server: libp2p, transport: tcp}}]}}"
    ));
    let id = format!("{ends}.{ends}.{transport}.relayed-1M");
    let reasons = plan.skipped.into_iter().filter(|skipped| skipped.id == id);
    reasons.map(|skipped| skipped.reason).collect()
}

#[test]
fn a_relay_must_have_the_transport_and_the_limits_of_its_cell() {
    for (ends, relay, transport, limits, reason) in [
        ("go-libp2p", "go-libp2p", "webtransport", "{}", None),
        (
            "go-libp2p",
            "libp2p",
            "webtransport",
            "{}",
            Some("only go-libp2p has webtransport"),
        ),
        ("go-libp2p", "go-libp2p", "webrtc-direct", "{}", None),
        (
            "go-libp2p",
            "libp2p",
            "webrtc-direct",
            "{}",
            Some("a relay passes on messages of 16 KiB"),
        ),
        (
            "libp2p",
            "go-libp2p",
            "webrtc-direct",
            "{}",
            Some("a relay passes on messages of 16 KiB"),
        ),
        ("libp2p", "go-libp2p", "quic-v1", "{circuitsPerPeer: 1}", None),
        (
            "libp2p",
            "go-libp2p",
            "quic-v1",
            "{circuits: 1}",
            Some("limits the circuits of each peer"),
        ),
        ("go-libp2p", "libp2p", "quic-v1", "{circuits: 1}", None),
    ] {
        let reasons = relayed(ends, relay, transport, limits);
        let is_right = match reason {
            None => reasons.is_empty(),
            Some(reason) => matches!(&*reasons, [found] if found.contains(reason)),
        };
        assert!(
            is_right,
            "{ends} by {relay} on {transport} with {limits}: {reasons:?}"
        );
    }
}
