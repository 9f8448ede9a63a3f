//! WebRTC: libp2p dials and both stacks accept, as far as they are compatible.

use std::{
    io::ErrorKind,
    net::{IpAddr, Ipv4Addr},
    time::{Duration, Instant},
};

use futures::future::{join_all, try_join_all};
use perfrun_contract::matrix::{Negotiation, Stack, Transport};
use perfrun_stack::{self as stack, BoxStream, Connection, Error, Host, HostConfig, Inbound};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    sync::mpsc,
    time::{sleep, timeout},
};

use crate::support::*;

const WEBRTC: Transport = Transport::WebrtcDirect;
const SERVERS: [Stack; 2] = [Stack::Libp2p, Stack::Litep2p];

/// A connection of a new host. libp2p may lose a dial (webrtc-rs issue 821), which a node counts as a
/// failure.
async fn connect(config: HostConfig, address: &str) -> (Box<dyn Host>, Box<dyn Connection>) {
    let mut failures = vec![];
    for _ in 0..3 {
        let client = start(Stack::Libp2p, config.clone()).await;
        match client.dial(address).await {
            Ok(connection) => return (client, connection),
            Err(error) => failures.push(error.to_string()),
        }
        client.close().await;
    }
    panic!("three dials failed: {failures:#?}");
}

/// A listener that reads and then echoes the number of bytes that the first eight bytes of a stream declare.
async fn counting_server(stack: Stack, config: HostConfig) -> Box<dyn Host> {
    let (inbound, mut events) = mpsc::unbounded_channel();
    let host = stack::start(stack, config, inbound).await.unwrap();
    tokio::spawn(async move {
        while let Some(event) = events.recv().await {
            if let Inbound::Stream(mut stream) = event {
                tokio::spawn(async move {
                    let mut said = vec![0; stream.read_u64().await? as usize];
                    stream.read_exact(&mut said).await?;
                    stream.write_all(&said).await?;
                    stream.flush().await?;
                    // The client leaves first.
                    stream.read_to_end(&mut said).await
                });
            }
        }
    });
    host
}

/// An echo without a half-close.
async fn counted(mut stream: BoxStream, size: usize) {
    let said: Vec<u8> = (0..size).map(|i| (i % 251) as u8).collect();
    stream.write_u64(size as u64).await.unwrap();
    stream.write_all(&said).await.unwrap();
    stream.flush().await.unwrap();
    let mut heard = vec![0; size];
    timeout(Duration::from_secs(20), stream.read_exact(&mut heard))
        .await
        .expect("an answer")
        .unwrap();
    assert!(heard == said, "the answer differs");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn libp2p_half_closes_towards_libp2p_with_messages_of_every_size() {
    let _shared = DESCRIPTORS.read().await;
    for negotiation in [Negotiation::V1, Negotiation::V1Lazy] {
        let server = echo_server(Stack::Libp2p, listener(WEBRTC)).await;
        let config = HostConfig {
            parameters: load(negotiation),
            ..host(WEBRTC)
        };
        let (client, connection) = connect(config, &server.addresses()[0]).await;
        assert!(
            client.addresses().is_empty(),
            "a dialler tells nobody that it listens"
        );
        exchange_over(&*connection).await;
        connection.close().await;
        client.close().await;
        server.close().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn libp2p_talks_to_both_one_stream_at_a_time_without_half_closes() {
    let _shared = DESCRIPTORS.read().await;
    for stack in SERVERS {
        for negotiation in [Negotiation::V1, Negotiation::V1Lazy] {
            let server = counting_server(stack, listener(WEBRTC)).await;
            let config = HostConfig {
                parameters: load(negotiation),
                ..host(WEBRTC)
            };
            let (client, connection) = connect(config, &server.addresses()[0]).await;
            // By default, litep2p sends messages of 16 KiB, which libp2p does not receive.
            for size in AWKWARD {
                counted(connection.open().await.unwrap(), size).await;
            }
            connection.close().await;
            client.close().await;
            server.close().await;
        }
    }
}

/// Why the plan skips /perf/1.0.0 for this pair.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn libp2p_cannot_half_close_towards_litep2p() {
    let _shared = DESCRIPTORS.read().await;
    let server = echo_server(Stack::Litep2p, listener(WEBRTC)).await;
    let (_client, connection) = connect(host(WEBRTC), &server.addresses()[0]).await;
    let mut stream = connection.open().await.unwrap();
    stream.write_all(b"half a conversation").await.unwrap();
    stream.shutdown().await.unwrap();
    let answer = timeout(Duration::from_secs(15), stream.read_to_end(&mut vec![])).await;
    let error = answer
        .expect("an end")
        .expect_err("an acknowledgement that libp2p does not know");
    assert_eq!(error.kind(), ErrorKind::InvalidData, "{error}");
}

/// Opens `streams` at the same time, keeps all of them, and then uses each. litep2p's are used one after the
/// other.
async fn burst(server: Stack, streams: usize) {
    let limits = |config: HostConfig| HostConfig {
        max_streams: streams,
        ..config
    };
    let host_of_server = counting_server(server, limits(listener(WEBRTC))).await;
    let (client, connection) = connect(limits(host(WEBRTC)), &host_of_server.addresses()[0]).await;
    let opened = try_join_all((0..streams).map(|_| connection.open()))
        .await
        .unwrap();
    if server == Stack::Litep2p {
        for stream in opened {
            counted(stream, 1000).await;
        }
    } else {
        join_all(opened.into_iter().map(|stream| counted(stream, 1000))).await;
    }
    connection.close().await;
    client.close().await;
    host_of_server.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn libp2p_accepts_a_burst_of_ten_streams_and_litep2p_of_256() {
    let _shared = DESCRIPTORS.read().await;
    burst(Stack::Libp2p, 10).await;
    burst(Stack::Litep2p, 256).await;
}

#[tokio::test]
async fn libp2p_and_litep2p_report_addresses_that_peers_can_dial_when_they_listen_on_all_interfaces() {
    let _shared = DESCRIPTORS.read().await;
    for stack in SERVERS {
        let any = HostConfig {
            listen: Some((Ipv4Addr::UNSPECIFIED.into(), 0)),
            ..host(WEBRTC)
        };
        let server = counting_server(stack, any).await;
        let (_client, connection) = connect(host(WEBRTC), on_loopback(&*server)).await;
        counted(connection.open().await.unwrap(), 1).await;
    }
}

#[tokio::test]
async fn a_port_is_refused_while_it_is_used_and_free_once_its_host_is_closed() {
    let _shared = DESCRIPTORS.read().await;
    for stack in SERVERS {
        let mut config = listener(WEBRTC);
        for _ in 0..2 {
            let server = counting_server(stack, config.clone()).await;
            config.listen = Some((V4, port(&*server)));
            let second = stack::start(stack, config.clone(), mpsc::unbounded_channel().0).await;
            let error = second.err().expect("the port is in use").to_string();
            assert!(error.contains("in use"), "{stack}: {error}");
            let (_client, connection) = connect(host(WEBRTC), &server.addresses()[0]).await;
            counted(connection.open().await.unwrap(), 1000).await;
            let began = Instant::now();
            server.close().await;
            // A close that is stuck is given up after five seconds.
            assert!(
                began.elapsed() < Duration::from_secs(5),
                "{stack}: {:?}",
                began.elapsed()
            );
        }
    }
}

#[tokio::test]
async fn an_address_without_the_hash_of_a_certificate_is_refused_with_advice() {
    let client = start(Stack::Libp2p, host(WEBRTC)).await;
    let error = client
        .dial("/ip4/127.0.0.1/udp/1/webrtc-direct")
        .await
        .err()
        .unwrap();
    assert!(matches!(error, Error::Address { .. }), "{error}");
    assert!(
        error
            .to_string()
            .contains("use the address that the server printed"),
        "{error}"
    );
}

#[tokio::test]
async fn a_webrtc_dial_to_a_closed_port_fails_within_the_dial_timeout() {
    let _shared = DESCRIPTORS.read().await;
    let server = start(Stack::Libp2p, listener(WEBRTC)).await;
    let address = server.addresses()[0].clone();
    server.close().await;
    let client = start(Stack::Libp2p, host(WEBRTC)).await;
    let dialled = timeout(Duration::from_secs(15), client.dial(&address))
        .await
        .expect("it ends");
    assert!(matches!(dialled.err(), Some(Error::Dial { .. })));
}

/// Only after successful dials: webrtc-rs keeps tasks and sockets of a dial that it loses.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hosts_that_are_closed_leave_no_descriptor_and_no_task() {
    let _alone = DESCRIPTORS.write().await;
    'stacks: for stack in SERVERS {
        let mut rounds = 0;
        // A busy machine may lose dials.
        for _ in 0..30 {
            sleep(Duration::from_millis(500)).await;
            let before = (descriptors(), tasks());
            if !two_connections(stack).await {
                continue;
            }
            let began = Instant::now();
            let mut after = (descriptors(), tasks());
            while (after.0 > before.0 || after.1 > before.1) && began.elapsed() < Duration::from_secs(15) {
                sleep(Duration::from_millis(50)).await;
                after = (descriptors(), tasks());
            }
            assert!(
                after.0 <= before.0 && after.1 <= before.1,
                "{stack}: {before:?} grew to {after:?}"
            );
            rounds += 1;
            if rounds == 5 {
                continue 'stacks;
            }
        }
        panic!("{stack}: all dials succeeded in only {rounds} of 30 rounds");
    }
}

/// Whether all dials succeeded.
async fn two_connections(stack: Stack) -> bool {
    for _ in 0..2 {
        let server = counting_server(stack, listener(WEBRTC)).await;
        let client = start(Stack::Libp2p, host(WEBRTC)).await;
        let dialled = client.dial(&server.addresses()[0]).await;
        let succeeded = dialled.is_ok();
        if let Ok(connection) = dialled {
            counted(connection.open().await.unwrap(), 1000).await;
            connection.close().await;
        }
        client.close().await;
        server.close().await;
        if !succeeded {
            return false;
        }
    }
    true
}

/// An address of this machine, as in a document or a shell.
#[test]
fn a_socket_is_written_as_a_multiaddr() {
    let socket = (IpAddr::from(Ipv4Addr::LOCALHOST), 7).into();
    assert_eq!(
        stack::socket_address(WEBRTC, socket),
        "/ip4/127.0.0.1/udp/7/webrtc-direct"
    );
    assert_eq!(
        stack::socket_address(Transport::Ws, socket),
        "/ip4/127.0.0.1/tcp/7/ws"
    );
}
