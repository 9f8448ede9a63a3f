//! Many trials in one node leave nothing behind.

use std::net::{TcpListener, UdpSocket};

use perfrun_contract::{
    matrix::{Protocol, Stack, Transport},
    node::Reason,
    parameters::{Amount, Handshakes, Parameters},
    workload::Direction,
};
use reqwest::StatusCode;

use crate::support::*;

fn port(address: &str) -> u16 {
    address.split('/').nth(4).unwrap().parse().unwrap()
}

/// Files and threads of both nodes.
fn held(pair: &Pair) -> [u64; 4] {
    let of = |node: &Node| [node.descriptors() as u64, node.proc_status("Threads")];
    let ([a, b], [c, d]) = (of(&pair.client), of(&pair.server));
    [a, b, c, d]
}

#[tokio::test]
async fn a_hundred_trials_leave_no_file_no_thread_and_no_memory() {
    let pair = Pair::start();
    let parameters = [
        bandwidth(Protocol::Perf, Direction::Both, Amount::Count(100_000), 4),
        bandwidth(Protocol::Litep2pPerf, Direction::Both, Amount::Count(100_000), 1),
        ping(5, 0.0),
        Parameters::Handshakes(Handshakes {
            amount: Amount::Count(3),
            in_flight: 2,
        }),
    ];
    let round = async || {
        for stacks in PAIRS {
            for parameters in &parameters {
                pair.trial(stacks, parameters, 1)
                    .await
                    .completed(&format!("{stacks:?} {parameters}"));
            }
        }
    };
    round().await;
    let memory = || pair.client.proc_status("VmRSS") + pair.server.proc_status("VmRSS");
    let (files_before, memory_before) = (held(&pair), memory());
    round().await;
    round().await;
    // QUIC sockets of diallers stay open until their connection is drained. Idle threads for blocking calls
    // end after 10 s.
    eventually("as many files and threads as before", async || {
        held(&pair)
            .iter()
            .zip(&files_before)
            .all(|(now, before)| now <= before)
    })
    .await;
    let grown = memory().saturating_sub(memory_before);
    assert!(grown < 24 << 10, "{grown} KiB more after 88 more trials");
}

#[tokio::test]
async fn ports_are_free_when_a_trial_has_ended_however_it_ended() {
    let node = Node::start();
    for (stack, transport) in STACKS_WITH_THEMSELVES {
        for cancelled in [false, true] {
            let addresses = node.serve("a", stack, transport, &ping(1, 0.0)).await;
            let address = ("127.0.0.1", port(&addresses[0]));
            let end = if cancelled {
                node.delete("a").await
            } else {
                node.finish("a").await
            };
            assert_eq!(end, StatusCode::NO_CONTENT);
            assert_eq!(
                reason(&node.outcome("a").await),
                cancelled.then_some(Reason::Cancelled)
            );
            eventually("a free port", async || match transport {
                Transport::QuicV1 => UdpSocket::bind(address).is_ok(),
                _ => TcpListener::bind(address).is_ok(),
            })
            .await;
            node.delete("a").await;
        }
    }
}

#[tokio::test]
async fn a_node_may_open_as_many_files_as_the_system_allows() {
    let node = Node::start();
    node.metrics().await;
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", node.pid())).unwrap();
    let line = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"))
        .unwrap();
    let numbers: Vec<&str> = line.split_whitespace().collect();
    assert_eq!(numbers[0], numbers[1], "{line}");
}

#[tokio::test]
async fn the_number_of_records_is_limited() {
    let node = Node::start();
    let invalid = dialler(
        Stack::Raw,
        Transport::Tcp,
        ping(1, 0.0),
        vec!["nowhere".into()],
        1,
    );
    let put = async |i: u32| {
        let status = node.put(&format!("t{i}"), &invalid).await;
        if status == StatusCode::CREATED {
            node.outcome(&format!("t{i}")).await;
        }
        status
    };
    for i in 0..1024 {
        assert_eq!(put(i).await, StatusCode::CREATED, "{i}");
    }
    assert_eq!(put(1024).await, StatusCode::INSUFFICIENT_STORAGE);
    assert_eq!(node.delete("t7").await, StatusCode::NO_CONTENT);
    assert_eq!(put(1024).await, StatusCode::CREATED);
}
