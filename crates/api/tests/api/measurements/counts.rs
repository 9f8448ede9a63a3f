//! What both ends of a trial counted.

use super::*;

/// The mismatch of an upload with these bytes sent and received.
fn mismatch(cell: &Cell, sent: u64, received: u64) -> Option<String> {
    let client = Measured {
        bytes_sent: sent,
        ..Measured::default()
    };
    let server = Measured {
        bytes_received: received,
        ..Measured::default()
    };
    count_mismatch(cell, &nodes(vec![client], vec![server]))
}

#[test]
fn bytes_that_differ_from_those_due_at_either_end_are_a_mismatch() {
    let cell = cell(
        "{bandwidth: {sizes: [10], directions: [upload], streams: [3]}}",
        "{peersPerClient: 2}",
    );
    assert_eq!(mismatch(&cell, 60, 60), None);
    assert_eq!(
        mismatch(&cell, 60, 59).as_deref(),
        Some("upload: 60 bytes were sent, 59 received of 60 due")
    );
    assert_eq!(
        mismatch(&cell, 30, 30).as_deref(),
        Some("upload: 30 bytes were sent, 30 received of 60 due")
    );
    assert_eq!(
        mismatch(&cell, 61, 61).as_deref(),
        Some("upload: 61 bytes were sent, 61 received of 60 due")
    );
}

#[test]
fn every_message_must_arrive() {
    let counted = cell(
        "{messages: {modes: [stream], sizes: [64], count: 10}}",
        "{peersPerClient: 2}",
    );
    assert_eq!(mismatch(&counted, 1280, 1280), None);
    assert_eq!(
        mismatch(&counted, 1280, 1216).as_deref(),
        Some("upload: 1280 bytes were sent, 1216 received of 1280 due")
    );
    let timed = cell("{messages: {modes: [stream], sizes: [64], duration: 1s}}", "{}");
    assert_eq!(mismatch(&timed, 128, 128), None);
    assert_eq!(
        mismatch(&timed, 128, 64).as_deref(),
        Some("upload: 128 bytes were sent, 64 received")
    );
}

#[test]
fn counts_are_summed_over_nodes() {
    let cell = cell(
        "{bandwidth: {sizes: [10], directions: [upload]}}",
        "{clients: 3, servers: 2}",
    );
    let client = || Measured {
        bytes_sent: 10,
        ..Measured::default()
    };
    let server = |bytes_received| Measured {
        bytes_received,
        ..Measured::default()
    };
    let clients = || vec![client(), client(), client()];
    assert_eq!(
        count_mismatch(&cell, &nodes(clients(), vec![server(20), server(10)])),
        None
    );
    assert!(count_mismatch(&cell, &nodes(clients(), vec![server(20), server(11)])).is_some());
}

#[test]
fn both_directions_are_compared() {
    let cell = cell("{bandwidth: {sizes: [10], directions: [both]}}", "{}");
    let ends = |up: (u64, u64), down: (u64, u64)| {
        let client = Measured {
            bytes_sent: up.0,
            bytes_received: down.1,
            ..Measured::default()
        };
        let server = Measured {
            bytes_sent: down.0,
            bytes_received: up.1,
            ..Measured::default()
        };
        count_mismatch(&cell, &nodes(vec![client], vec![server]))
    };
    assert_eq!(ends((10, 10), (10, 10)), None);
    assert!(
        ends((10, 9), (10, 10))
            .unwrap()
            .starts_with("upload: 10 bytes were sent, 9 received")
    );
    assert!(
        ends((10, 10), (10, 9))
            .unwrap()
            .starts_with("download: 10 bytes were sent, 9 received")
    );
}

#[test]
fn a_download_that_was_cut_off_may_lose_bytes_in_flight() {
    let cell = cell("{bandwidth: {duration: 1s, directions: [download]}}", "{}");
    let ends = |sent, received| {
        let client = Measured {
            bytes_received: received,
            ..Measured::default()
        };
        let server = Measured {
            bytes_sent: sent,
            ..Measured::default()
        };
        count_mismatch(&cell, &nodes(vec![client], vec![server]))
    };
    assert_eq!(ends(100, 100), None);
    assert_eq!(ends(100, 90), None);
    assert_eq!(
        ends(90, 100).as_deref(),
        Some("download: 90 bytes were sent, 100 received")
    );
}

#[test]
fn a_time_in_which_nothing_arrived_is_a_failure() {
    let cell = cell("{bandwidth: {duration: 1s, directions: [upload]}}", "{}");
    assert_eq!(
        mismatch(&cell, 100, 0).as_deref(),
        Some("upload: nothing arrived within `duration`, of 100 bytes that were sent: use a longer duration")
    );
    assert!(mismatch(&cell, 0, 0).is_some());
}

#[test]
fn a_time_in_which_one_read_brought_everything_has_no_rate_and_is_a_failure() {
    let of_upload = |timing: &str, arrived: Vec<Option<Transfer>>| {
        let cell = cell(
            &format!("{{bandwidth: {{duration: 1s, directions: [upload], timing: {timing}}}}}"),
            "{}",
        );
        let client = Measured {
            bytes_sent: 3000,
            upload: sent(3000, 1.0),
            ..Measured::default()
        };
        let bytes = |transfer: Option<Transfer>| transfer.map_or(0, |transfer| transfer.bytes);
        let servers = arrived.into_iter().map(|upload| Measured {
            bytes_received: bytes(upload),
            upload,
            ..Measured::default()
        });
        let nodes = nodes(vec![client], servers.collect());
        let rate = metrics(&cell, &nodes).get(&Metric::UploadGoodput).copied();
        (count_mismatch(&cell, &nodes), rate)
    };
    let too_little = "upload: too little arrived within `duration` to measure a rate, 3000 bytes in one read: use a \
                      longer duration";
    let one_read = received(3000, 3000, 0.3);
    assert_eq!(
        of_upload("strict", vec![one_read]),
        (Some(too_little.into()), None)
    );
    let two_servers = vec![received(1000, 1000, 0.3), received(2000, 2000, 0.3)];
    assert_eq!(of_upload("strict", two_servers), (Some(too_little.into()), None));
    // One of the servers can measure.
    let one_can = vec![received(1000, 1000, 0.5), received(2000, 1000, 0.5)];
    assert_eq!(of_upload("strict", one_can), (None, Some(16_000.0)));
    // The published tools time the sender.
    assert_eq!(of_upload("compat", vec![one_read]), (None, Some(24_000.0)));

    let cell = cell("{bandwidth: {duration: 1s, directions: [download]}}", "{}");
    let client = Measured {
        bytes_received: 16_384,
        download: received(16_384, 16_384, 0.2),
        ..Measured::default()
    };
    let server = Measured {
        bytes_sent: 65_536,
        ..Measured::default()
    };
    let nodes = nodes(vec![client], vec![server]);
    let found = count_mismatch(&cell, &nodes).unwrap();
    assert!(found.starts_with("download: too little arrived"), "{found}");
    assert!(!metrics(&cell, &nodes).contains_key(&Metric::DownloadGoodput));
}

#[test]
fn a_slow_transfer_by_time_counts_with_its_low_rate() {
    let cell = cell("{bandwidth: {duration: 1s, directions: [upload]}}", "{}");
    let client = Measured {
        upload: sent(3000, 1.0),
        ..Measured::default()
    };
    let server = Measured {
        upload: received(3000, 1000, 1.0),
        ..Measured::default()
    };
    let found = metrics(&cell, &nodes(vec![client], vec![server]));
    assert_eq!(found[&Metric::UploadGoodput], 16_000.0);
}

#[test]
fn an_upload_by_time_loses_nothing() {
    let cell = cell("{bandwidth: {duration: 1s, directions: [upload]}}", "{}");
    assert_eq!(mismatch(&cell, 100, 100), None);
    assert_eq!(
        mismatch(&cell, 100, 90).as_deref(),
        Some("upload: 100 bytes were sent, 90 received")
    );
}

#[test]
fn the_largest_document_does_not_overflow() {
    let cell = cell(
        "{bandwidth: {sizes: [1Pi], directions: [upload], streams: [1024]}}",
        "{clients: 100, peersPerClient: 1000}",
    );
    assert!(mismatch(&cell, 1, 1).is_some());
}

#[test]
fn other_workloads_have_no_counts_to_compare() {
    assert_eq!(mismatch(&cell("{substreams: {counts: [1]}}", "{}"), 1, 2), None);
}

#[test]
fn every_ping_and_its_answer_arrives_even_if_the_end_of_a_stream_is_lost() {
    for workload in ["{ping: {count: 1}}", "{handshakes: {count: 1}}"] {
        let cell = cell(workload, "{}");
        let mismatch = |failures, received, sent| {
            let client = Measured {
                bytes_sent: 64,
                bytes_received: 64,
                failures,
                ..Measured::default()
            };
            let server = Measured {
                bytes_received: received,
                bytes_sent: sent,
                failures: 1,
                ..Measured::default()
            };
            count_mismatch(&cell, &nodes(vec![client], vec![server]))
        };
        assert_eq!(mismatch(0, 64, 64), None);
        // A server that served nothing.
        assert_eq!(
            mismatch(0, 0, 0).as_deref(),
            Some("pings: 64 bytes were sent, 0 received")
        );
        assert_eq!(
            mismatch(0, 64, 32).as_deref(),
            Some("answers to pings: 32 bytes were sent, 64 received")
        );
        // It is unknown what the client had sent when it failed.
        assert_eq!(mismatch(1, 32, 0), None);
    }
}
