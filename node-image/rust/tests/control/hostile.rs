//! Peers that violate the protocol.

use std::time::Duration;

use futures::future::join_all;
use perfrun_contract::{
    matrix::{Protocol, Stack, Transport},
    node::{Outcome, Reason},
    parameters::{Amount, Parameters},
    workload::Direction,
};
use reqwest::StatusCode;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream, UdpSocket},
    time::timeout,
};

use crate::support::*;

const ENDLESS: [u8; 8] = [0xff; 8];

fn socket(address: &str) -> String {
    let parts: Vec<&str> = address.split('/').collect();
    format!("{}:{}", parts[2], parts[4])
}

/// Checks that the node still works.
async fn is_fine(node: &Node) {
    let other = Node::start();
    for (stack, transport) in STACKS_WITH_THEMSELVES {
        let addresses = node.serve("fine", stack, transport, &ping(1, 0.0)).await;
        other
            .run("fine", &dialler(stack, transport, ping(1, 0.0), addresses, 1))
            .await;
        assert_eq!(other.outcome("fine").await.failure, None, "{stack} {transport}");
        node.finish("fine").await;
        assert_eq!(node.outcome("fine").await.failure, None, "{stack} {transport}");
        assert_eq!(node.delete("fine").await, StatusCode::NO_CONTENT);
        other.delete("fine").await;
    }
}

/// Connections that a node has counted in all its trials.
async fn connections(node: &Node) -> f64 {
    let metrics = node.metrics().await;
    let counted = metrics
        .lines()
        .filter(|line| line.starts_with("perfrun_connections_total"));
    counted
        .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
        .sum()
}

/// The outcome of the trial, which the node forgets.
async fn collected(node: &Node) -> Outcome {
    let outcome = timeout(Duration::from_secs(30), node.outcome("a")).await;
    node.delete("a").await;
    outcome.expect("it does not hang")
}

/// The outcome of a raw server whose only connection sends `bytes` and then behaves in one way.
async fn served<F: Future<Output = ()>>(
    node: &Node,
    protocol: Protocol,
    says: &[u8],
    does: impl FnOnce(TcpStream) -> F,
) -> Outcome {
    let parameters = bandwidth(protocol, Direction::Both, Amount::Count(1), 1);
    let addresses = node.serve("a", Stack::Raw, Transport::Tcp, &parameters).await;
    let before = connections(node).await;
    let mut stream = TcpStream::connect(socket(&addresses[0])).await.unwrap();
    stream.write_all(says).await.unwrap();
    does(stream).await;
    eventually("the connection", async || connections(node).await > before).await;
    node.finish("a").await;
    collected(node).await
}

#[tokio::test]
async fn a_server_reports_how_a_peer_violated_the_protocol() {
    let node = Node::start();
    let leave = async |stream: TcpStream| drop(stream);
    let too_few = [
        &[0; 7][..],
        &[0, 0, 0, 0, 0, 0, 0, 9, 0, 0],
        &[ENDLESS.as_slice(), &[0; 100]].concat(),
    ];
    for says in too_few {
        let outcome = served(&node, Protocol::Litep2pPerf, says, leave).await;
        assert_eq!(
            reason(&outcome),
            Some(Reason::TooFewBytes),
            "{says:?}: {outcome:?}"
        );
        let payload = says.len().saturating_sub(8) as u64;
        assert_eq!(outcome.measured.bytes_received, payload, "{outcome:?}");
    }
    let outcome = served(&node, Protocol::Perf, &[0; 7], leave).await;
    assert_eq!(reason(&outcome), Some(Reason::TooFewBytes), "{outcome:?}");
    let too_many = served(&node, Protocol::Litep2pPerf, &[0; 20], leave).await;
    assert_eq!(reason(&too_many), Some(Reason::UnexpectedBytes), "{too_many:?}");
    is_fine(&node).await;
}

#[tokio::test]
async fn a_server_does_not_wait_for_a_peer_that_neither_reads_nor_ends() {
    let node = Node::start();
    // Before its first answer, the process may not even have loaded its program.
    is_fine(&node).await;
    let before = node.proc_status("VmRSS");
    let mut held = vec![];
    // In both protocols, the client requests an endless download and reads nothing.
    let endless = [&[0; 8][..], &ENDLESS].concat();
    for (protocol, says) in [
        (Protocol::Litep2pPerf, &endless[..]),
        (Protocol::Perf, &ENDLESS[..]),
    ] {
        let hold = async |mut stream: TcpStream| {
            stream.shutdown().await.unwrap();
            node.moved("a").await;
            held.push(stream);
        };
        let outcome = served(&node, protocol, says, hold).await;
        // In perf, only the client ends an endless download. Its end is lost, which is counted.
        let (fails, lost) = match protocol {
            Protocol::Perf => (None, 1),
            _ => (Some(Reason::Timeout), 0),
        };
        assert_eq!(reason(&outcome), fails, "{outcome:?}");
        assert_eq!(outcome.measured.failures, lost, "{outcome:?}");
        assert!(outcome.measured.bytes_sent > 0);
    }
    // The client announces an endless upload, and then sends nothing.
    let outcome = served(&node, Protocol::Litep2pPerf, &ENDLESS, async |stream| {
        held.push(stream);
    })
    .await;
    assert_eq!(reason(&outcome), Some(Reason::Timeout), "{outcome:?}");
    let grown = node.proc_status("VmRSS").saturating_sub(before);
    assert!(
        grown < 32 << 10,
        "{grown} KiB for lengths that were only announced"
    );
    is_fine(&node).await;
}

#[tokio::test]
async fn garbage_does_not_disturb_a_trial() {
    let Pair { client, server } = Pair::start();
    for (stack, transport) in STACKS_WITH_THEMSELVES
        .into_iter()
        .filter(|(stack, _)| *stack != Stack::Raw)
    {
        let addresses = server.serve("a", stack, transport, &ping(20, 0.01)).await;
        let target = socket(&addresses[0]);
        let mut silent = vec![];
        if transport == Transport::QuicV1 {
            let garbage = UdpSocket::bind("127.0.0.1:0").await.unwrap();
            for length in [1, 100, 1200, 1400] {
                garbage.send_to(&vec![0xc5; length], &target).await.unwrap();
            }
        } else {
            for garbage in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0xff; 5000], &[0; 5000]] {
                let mut stream = TcpStream::connect(&target).await.unwrap();
                // The node may close the connection before everything is sent.
                let _ = stream.write_all(garbage).await;
            }
            for _ in 0..50 {
                silent.push(TcpStream::connect(&target).await.unwrap());
            }
        }
        client
            .run("a", &dialler(stack, transport, ping(20, 0.01), addresses, 1))
            .await;
        assert_eq!(client.outcome("a").await.failure, None, "{stack} {transport}");
        server.finish("a").await;
        let outcome = server.outcome("a").await;
        assert_eq!(outcome.failure, None, "{stack} {transport}");
        assert_eq!(
            (outcome.measured.connections, outcome.measured.streams),
            (1, 1),
            "{stack} {transport}"
        );
        client.delete("a").await;
        server.delete("a").await;
    }
}

/// The outcome of a raw client whose server treats its only connection in one way.
async fn dialled<F: Future<Output = ()>>(
    node: &Node,
    parameters: Parameters,
    timeout_seconds: f64,
    does: impl FnOnce(TcpStream) -> F,
) -> Outcome {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("/ip4/127.0.0.1/tcp/{}", listener.local_addr().unwrap().port());
    let mut request = dialler(Stack::Raw, Transport::Tcp, parameters, vec![address], 1);
    request.timeout_seconds = timeout_seconds;
    node.run("a", &request).await;
    does(listener.accept().await.unwrap().0).await;
    collected(node).await
}

#[tokio::test]
async fn a_client_reports_how_a_peer_violated_the_protocol() {
    let node = Node::start();
    let both = |protocol, bytes| bandwidth(protocol, Direction::Both, Amount::Count(bytes), 1);
    let answer = |header: usize, bytes: usize| {
        async move |mut stream: TcpStream| {
            stream.read_exact(&mut vec![0; header + 100]).await.unwrap();
            stream.write_all(&vec![0; bytes]).await.unwrap();
            let _ = stream.shutdown().await;
            let _ = stream.read_to_end(&mut vec![]).await;
        }
    };
    for (protocol, header) in [(Protocol::Perf, 8), (Protocol::Litep2pPerf, 16)] {
        for (bytes, expected) in [
            (0, Some(Reason::TooFewBytes)),
            (99, Some(Reason::TooFewBytes)),
            (100, None),
            (101, Some(Reason::UnexpectedBytes)),
        ] {
            let outcome = dialled(&node, both(protocol, 100), 20.0, answer(header, bytes)).await;
            assert_eq!(reason(&outcome), expected, "{protocol:?} {bytes}: {outcome:?}");
        }
    }
    let echo = async |mut stream: TcpStream| {
        stream.read_exact(&mut [0; 32]).await.unwrap();
        stream.write_all(&[7; 32]).await.unwrap();
        let _ = stream.read_to_end(&mut vec![]).await;
    };
    let outcome = dialled(&node, ping(1, 0.0), 20.0, echo).await;
    assert_eq!(reason(&outcome), Some(Reason::WrongEcho), "{outcome:?}");
}

#[tokio::test]
async fn a_client_whose_server_stops_reading_times_out() {
    join_all([Protocol::Perf, Protocol::Litep2pPerf].map(async |protocol| {
        let node = Node::start();
        let upload = bandwidth(protocol, Direction::Upload, Amount::Count(1 << 40), 1);
        let mut held = vec![];
        let outcome = dialled(&node, upload, 5.0, async |stream| held.push(stream)).await;
        assert_eq!(reason(&outcome), Some(Reason::Timeout), "{outcome:?}");
        assert!(outcome.measured.bytes_sent > 0);
        is_fine(&node).await;
    }))
    .await;
}

#[tokio::test]
async fn a_dial_without_an_answer_fails() {
    let tcp = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let udp = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let peer = "12D3KooWBpZHDZu7YSbvPaPXKhkRNJvR7MkTJMQQAVBKx9mCqz3q";
    let tcp = format!(
        "/ip4/127.0.0.1/tcp/{}/p2p/{peer}",
        tcp.local_addr().unwrap().port()
    );
    let udp = format!(
        "/ip4/127.0.0.1/udp/{}/quic-v1/p2p/{peer}",
        udp.local_addr().unwrap().port()
    );
    let (tcp, udp) = (&tcp, &udp);
    join_all(
        STACKS_WITH_THEMSELVES
            .into_iter()
            .filter(|(stack, _)| *stack != Stack::Raw)
            .map(|(stack, transport)| async move {
                let node = Node::start();
                let address = if transport == Transport::QuicV1 { udp } else { tcp };
                node.run(
                    "a",
                    &dialler(stack, transport, ping(1, 0.0), vec![address.clone()], 1),
                )
                .await;
                let outcome = timeout(Duration::from_secs(45), node.outcome("a"))
                    .await
                    .expect("it does not hang");
                assert_eq!(
                    reason(&outcome),
                    Some(Reason::DialFailed),
                    "{stack} {transport}: {outcome:?}"
                );
            }),
    )
    .await;
}
