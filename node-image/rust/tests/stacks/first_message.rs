//! The first message of a WebRTC connection: libp2p loses a dial whose first message it handles before it has
//! opened its channel (webrtc-rs issue 821), so a listener of litep2p pauses before it.

use std::time::{Duration, Instant};

use perfrun_contract::matrix::{Stack, Transport};
use perfrun_stack::Error;
use tokio::{net::UdpSocket, sync::oneshot, task::JoinSet};

use crate::support::*;

const WEBRTC: Transport = Transport::WebrtcDirect;

/// The type of a DTLS record with application data.
const APPLICATION_DATA: u8 = 23;
/// Which datagram with application data from the server has the chunk that opens the SCTP association. The
/// first has the INIT ACK.
const COOKIE_ACK: u32 = 2;
const FIRST_MESSAGE: u32 = 3;

/// Which of the two comes first at the client.
#[derive(Clone, Copy, PartialEq)]
enum First {
    CookieAck,
    Message,
}

/// Relays the datagrams of one connection.
struct Relay {
    /// The address of the server, with the port of the relay.
    address: String,
    /// How long after the COOKIE ACK the first message came.
    gap: oneshot::Receiver<Duration>,
    _tasks: JoinSet<()>,
}

async fn relay(address: &str, first: First) -> Relay {
    let server: u16 = address.split('/').nth(4).unwrap().parse().unwrap();
    let (outer, inner) = (bound().await, bound().await);
    inner.connect((V4, server)).await.unwrap();
    let port = outer.local_addr().unwrap().port();
    let (measured, gap) = oneshot::channel();
    let mut tasks = JoinSet::new();
    tasks.spawn(pass(outer, inner, first, measured));
    Relay {
        address: address.replace(&format!("/udp/{server}/"), &format!("/udp/{port}/")),
        gap,
        _tasks: tasks,
    }
}

async fn pass(outer: UdpSocket, inner: UdpSocket, first: First, gap: oneshot::Sender<Duration>) {
    let (mut from_client, mut from_server) = ([0; 2048], [0; 2048]);
    let (mut client, mut gap) = (None, Some(gap));
    let (mut records, mut opened, mut held) = (0, Instant::now(), None);
    loop {
        tokio::select! {
            received = outer.recv_from(&mut from_client) => {
                let (length, sender) = received.unwrap();
                client = Some(sender);
                inner.send(&from_client[..length]).await.unwrap();
            }
            received = inner.recv(&mut from_server) => {
                let datagram = &from_server[..received.unwrap()];
                let has_data = datagram[0] == APPLICATION_DATA;
                records += u32::from(has_data);
                if has_data && records == COOKIE_ACK {
                    opened = Instant::now();
                    if first == First::Message {
                        held = Some(datagram.to_vec());
                        continue;
                    }
                }
                outer.send_to(datagram, client.unwrap()).await.unwrap();
                if has_data && records == FIRST_MESSAGE {
                    let _ = gap.take().unwrap().send(opened.elapsed());
                    if let Some(cookie_ack) = held.take() {
                        outer.send_to(&cookie_ack, client.unwrap()).await.unwrap();
                    }
                }
            }
        }
    }
}

async fn bound() -> UdpSocket {
    UdpSocket::bind((V4, 0)).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn litep2p_pauses_before_the_first_message() {
    let _shared = DESCRIPTORS.read().await;
    let server = start(Stack::Litep2p, listener(WEBRTC)).await;
    let mut gaps = vec![];
    for _ in 0..5 {
        let relay = relay(&server.addresses()[0], First::CookieAck).await;
        let client = start(Stack::Libp2p, host(WEBRTC)).await;
        let (_, gap) = tokio::join!(client.dial(&relay.address), relay.gap);
        gaps.push(gap.unwrap());
        client.close().await;
    }
    gaps.sort();
    // The pause takes 1 ms. A busy machine may let this test see the COOKIE ACK late.
    assert!(gaps[2] > Duration::from_micros(500), "{gaps:?}");
}

/// If the dial succeeds, upstream has fixed the race: remove the pause.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn libp2p_loses_a_dial_whose_first_message_comes_first() {
    let _shared = DESCRIPTORS.read().await;
    let server = start(Stack::Litep2p, listener(WEBRTC)).await;
    let relay = relay(&server.addresses()[0], First::Message).await;
    let client = start(Stack::Libp2p, host(WEBRTC)).await;
    let Err(Error::Dial { reason, .. }) = client.dial(&relay.address).await else {
        panic!("the dial is not lost");
    };
    assert!(
        reason.contains("data channel opening took longer than 10 seconds"),
        "{reason}"
    );
}
