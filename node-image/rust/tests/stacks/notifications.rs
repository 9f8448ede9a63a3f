//! Messages by litep2p's notification protocol.

use std::{future::poll_fn, time::Duration};

use futures::future::join_all;
use perfrun_contract::{
    histogram::recorder,
    matrix::{Messaging, Stack, StackSettings, Transport},
    parameters::{Amount, Messages, Parameters},
    quantity::ByteSize,
    workload::MessageMode,
};
use perfrun_node::wire::{Counters, messages};
use perfrun_stack::{
    self as stack, Connection, Error, Host, HostConfig, Inbound,
    messenger::{BoxMessenger, Message},
};
use tokio::{
    sync::mpsc,
    time::{sleep, timeout},
};

use crate::support::*;

const TRANSPORTS: [Transport; 3] = [Transport::Tcp, Transport::Ws, Transport::QuicV1];

fn load(mode: MessageMode, bytes: u64, window: u32, count: u64) -> Messages {
    Messages {
        mode,
        message_bytes: ByteSize(bytes),
        amount: Amount::Count(count),
        window,
        rate: None,
        priority: false,
        receivers: 1,
    }
}

fn notified(load: Messages, config: HostConfig) -> HostConfig {
    let messaging = Some(Messaging::Notifications);
    HostConfig {
        settings: StackSettings {
            messaging,
            ..config.settings
        },
        parameters: Parameters::Messages(load),
        ..config
    }
}

struct Server {
    host: Box<dyn Host>,
    events: mpsc::UnboundedReceiver<Inbound>,
}

impl Server {
    async fn start(transport: Transport, load: Messages) -> Self {
        let (inbound, events) = mpsc::unbounded_channel();
        let config = notified(load, listener(transport));
        let host = stack::start(Stack::Litep2p, config, inbound).await.unwrap();
        Self { host, events }
    }

    /// The next peer's messenger.
    async fn messenger(&mut self) -> BoxMessenger {
        loop {
            match self.events.recv().await.unwrap() {
                Inbound::Messenger(messenger) => return messenger,
                Inbound::Connection => {}
                _ => panic!("nobody opens a stream"),
            }
        }
    }
}

/// A client, its connection and the messengers of both ends.
struct Pair {
    client: Box<dyn Host>,
    connection: Box<dyn Connection>,
    ours: BoxMessenger,
    theirs: BoxMessenger,
}

impl Pair {
    async fn open(transport: Transport, load: Messages, server: &mut Server) -> Self {
        let client = start(Stack::Litep2p, notified(load, host(transport))).await;
        let connection = client.dial(&server.host.addresses()[0]).await.unwrap();
        let ours = connection.messenger().await.unwrap().unwrap();
        let theirs = server.messenger().await;
        Self {
            client,
            connection,
            ours,
            theirs,
        }
    }
}

/// Runs an exchange as the workload does, and returns how many bytes arrived.
async fn exchange(load: Messages, mut ours: BoxMessenger, mut theirs: BoxMessenger) -> u64 {
    let (client, server) = (Counters::default(), Counters::default());
    if load.mode == MessageMode::Serial {
        messages::begin(&mut *ours, None).await.unwrap();
        let mut times = recorder();
        let both = messages::serial(&mut *ours, &mut *theirs, &load, [&client, &server], &mut times);
        return both.await.unwrap().1.bytes;
    }
    let dial = async {
        messages::open(&mut *ours, Some(0)).await.unwrap();
        if load.mode == MessageMode::Broadcast {
            let mut all = [ours];
            let sent = messages::broadcast(&mut all, None, &load, &client).await;
            assert_eq!(sent.unwrap().refused, 0);
        } else {
            messages::run(&mut *ours, &load, &client, &mut recorder())
                .await
                .unwrap();
        }
    };
    let listen = async {
        let mut times = recorder();
        match load.mode {
            MessageMode::Broadcast => {
                messages::serve_broadcast(&mut *theirs, &load, &server, &mut times).await
            }
            _ => messages::serve(&mut *theirs, &load, &server, &mut times).await,
        }
    };
    let ((), served) = tokio::join!(dial, listen);
    served.unwrap().bytes
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn notifications_arrive_in_every_mode_and_size() {
    let _shared = DESCRIPTORS.read().await;
    let loads = [
        (MessageMode::Serial, 8, 1, 50),
        (MessageMode::Serial, 1 << 20, 1, 5),
        (MessageMode::SerialAck, 8, 1, 50),
        (MessageMode::SerialAck, 1 << 20, 1, 5),
        (MessageMode::Stream, 64, 4096, 20_000),
        (MessageMode::Stream, 16 << 10, 64, 1000),
        (MessageMode::Stream, 1 << 20, 16, 40),
        (MessageMode::Broadcast, 64, 1, 20_000),
        (MessageMode::Broadcast, 1 << 20, 1, 40),
    ];
    for transport in TRANSPORTS {
        for (mode, bytes, window, count) in loads {
            let load = load(mode, bytes, window, count);
            let mut server = Server::start(transport, load).await;
            let Pair {
                client,
                connection,
                ours,
                theirs,
            } = Pair::open(transport, load, &mut server).await;
            let arrived = timeout(TEST_TIMEOUT, exchange(load, ours, theirs)).await;
            assert_eq!(arrived, Ok(bytes * count), "{transport} {mode} {bytes}");
            connection.close().await;
            client.close().await;
            server.host.close().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn peers_of_one_server_get_their_own_notifications() {
    let _shared = DESCRIPTORS.read().await;
    for transport in TRANSPORTS {
        let most = load(MessageMode::Stream, 64, 16, 0);
        let mut server = Server::start(transport, most).await;
        let mut pairs = vec![];
        for count in (1..=10).map(|i| i * 100) {
            pairs.push((count, Pair::open(transport, most, &mut server).await));
        }
        let exchanges = pairs.into_iter().map(async |(count, pair)| {
            let Pair {
                client: _client,
                connection: _connection,
                ours,
                theirs,
            } = pair;
            let load = load(MessageMode::Stream, 64, 16, count);
            let arrived = timeout(TEST_TIMEOUT, exchange(load, ours, theirs)).await;
            assert_eq!(arrived, Ok(64 * count), "{transport}");
        });
        join_all(exchanges).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_end_notices_that_the_other_end_has_ended() {
    let _shared = DESCRIPTORS.read().await;
    let load = load(MessageMode::SerialAck, 64, 1, 1);
    for transport in TRANSPORTS {
        let mut server = Server::start(transport, load).await;
        let Pair {
            client: _client,
            connection,
            ours,
            mut theirs,
        } = Pair::open(transport, load, &mut server).await;
        drop(ours);
        let ended = poll_fn(|cx| theirs.poll_ended(cx));
        timeout(TEST_TIMEOUT, ended).await.expect("the end is reported");
        let received = poll_fn(|cx| theirs.poll_receive(cx)).await;
        assert_eq!(received.unwrap(), None, "{transport}");
        // The connection outlives the exchange, and takes another one when both ends have forgotten the
        // first.
        drop(theirs);
        let another = async {
            loop {
                sleep(Duration::from_millis(100)).await;
                if let Ok(messenger) = connection.messenger().await {
                    return messenger.unwrap();
                }
            }
        };
        let mut ours = timeout(TEST_TIMEOUT, another)
            .await
            .expect("it takes another one");
        let mut theirs = server.messenger().await;
        let message = Message::bare(7);
        assert!(poll_fn(|cx| ours.poll_send(cx, message)).await.unwrap());
        let received = poll_fn(|cx| theirs.poll_receive(cx)).await;
        assert_eq!(received.unwrap(), Some(message), "{transport}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_closes_fails_its_clients_exchange() {
    let _shared = DESCRIPTORS.read().await;
    for transport in TRANSPORTS {
        let load = Messages {
            amount: Amount::Seconds(1000.0),
            ..load(MessageMode::Stream, 1024, 16, 0)
        };
        let mut server = Server::start(transport, load).await;
        let Pair {
            client: _client,
            connection,
            mut ours,
            mut theirs,
        } = Pair::open(transport, load, &mut server).await;
        tokio::spawn(async move {
            let counters = Counters::default();
            messages::serve(&mut *theirs, &load, &counters, &mut recorder()).await
        });
        messages::open(&mut *ours, None).await.unwrap();
        let counters = Counters::default();
        let mut trips = recorder();
        let run = messages::run(&mut *ours, &load, &counters, &mut trips);
        let close = async {
            sleep(Duration::from_millis(200)).await;
            server.host.close().await;
        };
        let (ended, ()) = tokio::join!(timeout(TEST_TIMEOUT, run), close);
        let ended = ended.expect("it does not hang");
        assert!(ended.is_err(), "{transport}: {ended:?}");
        let error = timeout(TEST_TIMEOUT, connection.messenger())
            .await
            .expect("it does not hang");
        let error = error.err().expect("the server is gone");
        assert!(matches!(error, Error::Open(_)), "{transport}: {error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_without_notifications_refuses_them() {
    let _shared = DESCRIPTORS.read().await;
    let load = load(MessageMode::SerialAck, 64, 1, 1);
    for transport in TRANSPORTS {
        let server = start(Stack::Litep2p, listener(transport)).await;
        let client = start(Stack::Litep2p, notified(load, host(transport))).await;
        let connection = client.dial(&server.addresses()[0]).await.unwrap();
        let error = timeout(TEST_TIMEOUT, connection.messenger())
            .await
            .unwrap()
            .err()
            .unwrap();
        assert!(matches!(error, Error::Open(_)), "{transport}: {error}");
    }
}

/// litep2p takes notifications while a substream takes none, and would take any number of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broadcast_waits_for_a_receiver_that_takes_nothing() {
    let _shared = DESCRIPTORS.read().await;
    let bytes = 64 << 10;
    // 16 MiB on their way, and as many messages at the receiver, which keeps no payload.
    let most = 2 * ((16 << 20) / bytes as u64) + 1;
    let message = |sequence| Message {
        bytes,
        ..Message::bare(sequence)
    };
    for transport in TRANSPORTS {
        let load = load(MessageMode::Broadcast, bytes as u64, 1, 1);
        let mut server = Server::start(transport, load).await;
        let mut pair = Pair::open(transport, load, &mut server).await;
        let mut sent = 0;
        let pause = Duration::from_secs(1);
        while let Ok(accepted) = timeout(pause, poll_fn(|cx| pair.ours.poll_send(cx, message(sent)))).await {
            assert!(accepted.unwrap(), "{transport}");
            sent += 1;
            assert!(sent <= most, "{transport}: there is no limit");
        }
        // Each that arrives makes room for another one.
        for sequence in 0..3 * sent {
            let send = async {
                if sequence >= sent {
                    let accepted = poll_fn(|cx| pair.ours.poll_send(cx, message(sequence))).await;
                    assert!(accepted.unwrap(), "{transport}");
                }
            };
            let receive = poll_fn(|cx| pair.theirs.poll_receive(cx));
            let both = timeout(TEST_TIMEOUT, async { tokio::join!(send, receive) }).await;
            let ((), received) = both.expect("it does not hang");
            assert_eq!(received.unwrap(), Some(message(sequence)), "{transport}");
        }
        // A sender that waits for room notices the end.
        let fill = async { while poll_fn(|cx| pair.ours.poll_send(cx, message(0))).await.is_ok() {} };
        let close = async {
            sleep(Duration::from_millis(500)).await;
            server.host.close().await;
        };
        let ended = timeout(TEST_TIMEOUT, async { tokio::join!(fill, close) }).await;
        assert!(ended.is_ok(), "{transport}: it hangs");
    }
}
