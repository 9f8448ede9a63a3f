//! What a host refuses, survives and leaves behind.

use std::time::{Duration, Instant};

use perfrun_contract::matrix::{Negotiation, Stack, Transport};
use perfrun_stack::{self as stack, Error, HostConfig};
use tokio::{
    io::AsyncWriteExt,
    net::TcpStream,
    sync::mpsc,
    time::{sleep, timeout},
};

use crate::support::*;

#[tokio::test]
async fn a_port_in_use_is_refused_with_the_error_of_the_system() {
    let _shared = DESCRIPTORS.read().await;
    for (stack, transport) in all() {
        let first = start(stack, listener(transport)).await;
        let taken = Some((V4, port(&*first)));
        let second = stack::start(
            stack,
            HostConfig {
                listen: taken,
                ..host(transport)
            },
            mpsc::unbounded_channel().0,
        )
        .await;
        let error = second.err().expect("the port is in use");
        assert!(
            matches!(&error, Error::Listen { .. }),
            "{stack} {transport}: {error}"
        );
        assert!(
            error.to_string().contains("in use"),
            "{stack} {transport}: {error}"
        );
    }
}

#[tokio::test]
async fn a_port_can_be_used_again_as_soon_as_its_host_is_closed() {
    let _shared = DESCRIPTORS.read().await;
    for (stack, transport) in all() {
        let mut config = listener(transport);
        let mut quickest = Duration::MAX;
        for _ in 0..3 {
            let server = echo_server(stack, config.clone()).await;
            config.listen = Some((V4, port(&*server)));
            let client = start(stack, host(transport)).await;
            let _kept = exchange(&*client, &server.addresses()[0]).await;
            let began = Instant::now();
            server.close().await;
            quickest = quickest.min(began.elapsed());
        }
        // A close that gets stuck is given up after 5 s.
        assert!(
            quickest < Duration::from_secs(5),
            "{stack} {transport}: {quickest:?}"
        );
    }
}

#[tokio::test]
async fn a_dial_to_a_closed_port_fails_with_a_reason() {
    let _shared = DESCRIPTORS.read().await;
    for (stack, transport) in all().filter(|(_, transport)| *transport != Transport::QuicV1) {
        let server = start(stack, listener(transport)).await;
        let address = server.addresses()[0].clone();
        server.close().await;
        let error = start(stack, host(transport))
            .await
            .dial(&address)
            .await
            .err()
            .expect("nobody listens");
        assert!(
            matches!(&error, Error::Dial { .. }),
            "{stack} {transport}: {error}"
        );
        assert!(
            error.to_string().to_lowercase().contains("refused"),
            "{stack} {transport}: {error}"
        );
    }
}

#[tokio::test]
async fn an_address_that_makes_no_sense_is_refused() {
    let _shared = DESCRIPTORS.read().await;
    for (stack, transport) in all() {
        let client = start(stack, host(transport)).await;
        for address in [
            "",
            "nonsense",
            "/ip4/127.0.0.1",
            "/ip4/127.0.0.1/tcp/1/ws",
            "/ip4/127.0.0.1/udp/1",
        ] {
            let error = client
                .dial(address)
                .await
                .err()
                .expect("not an address of this stack");
            assert!(
                matches!(error, Error::Address { .. } | Error::Dial { .. }),
                "{stack} {transport}: {error}"
            );
        }
    }
}

#[tokio::test]
async fn settings_that_litep2p_lacks_are_refused_before_a_host_starts() {
    let unsupported = [
        listener(Transport::TcpTls),
        host(Transport::WebrtcDirect),
        HostConfig {
            parameters: load(Negotiation::V1Lazy),
            ..host(Transport::Tcp)
        },
        HostConfig {
            max_streams: 101,
            ..listener(Transport::QuicV1)
        },
    ];
    for config in unsupported {
        let started = stack::start(Stack::Litep2p, config, mpsc::unbounded_channel().0).await;
        assert!(matches!(started, Err(Error::Unsupported { .. })));
    }
}

#[tokio::test]
async fn a_closed_connection_opens_no_streams() {
    let _shared = DESCRIPTORS.read().await;
    for (stack, transport) in all() {
        let server = echo_server(stack, listener(transport)).await;
        let client = start(stack, host(transport)).await;
        let connection = exchange(&*client, &server.addresses()[0]).await;
        server.close().await;
        // Until the client notices the end of the connection.
        let until_closed = async {
            loop {
                if let Err(error) = connection.open().await {
                    return error;
                }
                sleep(Duration::from_millis(20)).await;
            }
        };
        let error = timeout(TEST_TIMEOUT, until_closed).await.expect("it is noticed");
        assert!(matches!(error, Error::Open(_)), "{stack} {transport}: {error}");
    }
}

#[tokio::test]
async fn peers_that_talk_nonsense_or_nothing_do_not_disturb_the_others() {
    let _shared = DESCRIPTORS.read().await;
    for (stack, transport) in all() {
        let server = echo_server(stack, listener(transport)).await;
        let mut rude = Vec::new();
        for _ in 0..8 {
            if transport == Transport::QuicV1 {
                let socket = tokio::net::UdpSocket::bind((V4, 0)).await.unwrap();
                socket.send_to(&[0xc3; 1200], (V4, port(&*server))).await.unwrap();
            } else {
                let mut socket = TcpStream::connect((V4, port(&*server))).await.unwrap();
                socket.write_all(&[0xff; 4096]).await.unwrap();
                rude.push(socket);
                rude.push(TcpStream::connect((V4, port(&*server))).await.unwrap());
            }
        }
        exchange(&*start(stack, host(transport)).await, &server.addresses()[0]).await;
        server.close().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_hosts_of_each_stack_leave_no_descriptor_and_no_task() {
    let _alone = DESCRIPTORS.write().await;
    for (stack, transport) in all() {
        // commonware has one open file for all hosts of a process.
        start(stack, host(transport)).await.close().await;
        for close in [true, false] {
            let before = settled().await;
            for _ in 0..25 {
                let server = echo_server(stack, listener(transport)).await;
                let client = start(stack, host(transport)).await;
                let connection = client.dial(&server.addresses()[0]).await.unwrap();
                echo(connection.open().await.unwrap(), 1000).await;
                if close {
                    connection.close().await;
                    client.close().await;
                    server.close().await;
                }
            }
            let mut after = (descriptors(), tasks());
            let began = Instant::now();
            // QUIC sockets of diallers stay open until their connection is drained.
            while (after.0 > before.0 || after.1 > before.1) && began.elapsed() < 3 * TEST_TIMEOUT {
                sleep(Duration::from_millis(50)).await;
                after = (descriptors(), tasks());
            }
            println!(
                "{stack} {transport} close={close}: {before:?} then {after:?} after {:?}",
                began.elapsed()
            );
            assert!(
                after.0 <= before.0 && after.1 <= before.1,
                "{stack} {transport}: {before:?} grew to {after:?}"
            );
        }
    }
}

/// Descriptors and tasks, once their numbers stay the same.
async fn settled() -> (usize, usize) {
    let mut before = (descriptors(), tasks());
    loop {
        sleep(Duration::from_millis(100)).await;
        let now = (descriptors(), tasks());
        if now == before {
            return now;
        }
        before = now;
    }
}
