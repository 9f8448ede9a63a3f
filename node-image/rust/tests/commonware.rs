//! Hosts of commonware-p2p over loopback.
#![cfg(feature = "commonware")]
#![allow(clippy::unwrap_used)]

use std::{
    collections::BTreeSet,
    fs,
    future::poll_fn,
    io::ErrorKind,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    process,
    sync::Arc,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use commonware_cryptography::{Signer, ed25519::PrivateKey};
use futures::future::join_all;
use perfrun_contract::{
    matrix::{Cups, Identity, Stack, StackSettings, Transport},
    parameters::{Amount, Messages, Parameters, Ping, Relay},
    quantity::ByteSize,
    workload::{MessageMode, RelayLimits, RelayPath},
};
use perfrun_stack::{
    self as stack, Connection, Error, Host, HostConfig, Inbound, Keys, Relaying, StackMetrics,
    UsedCongestion,
    messenger::{BoxMessenger, Message},
};
use prometheus_client::registry::Registry;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::{Mutex, mpsc},
    time::{sleep, timeout},
};

/// Tests hold it, because one counts the threads and folders of all.
static ALONE: Mutex<()> = Mutex::const_new(());

const V4: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// What takes longer hangs, even on a slow machine.
const TEST_TIMEOUT: Duration = Duration::from_secs(20);

fn messages(bytes: usize, window: u32) -> Messages {
    Messages {
        mode: MessageMode::Stream,
        message_bytes: ByteSize(bytes as u64),
        amount: Amount::Count(1),
        window,
        rate: None,
        priority: false,
        receivers: 1,
    }
}

fn config(bytes: usize, window: u32) -> HostConfig {
    HostConfig {
        settings: StackSettings::default(),
        transport: Transport::Tcp,
        parameters: Parameters::Messages(messages(bytes, window)),
        listen: None,
        identity: Keys::New(Identity::Ed25519),
        max_streams: 1,
        relaying: Relaying::No,
        metrics: Arc::new(StackMetrics::new(&mut Registry::default())),
        congestion: UsedCongestion::default(),
    }
}

/// The configuration of a host whose peers are in this process.
fn in_process(bytes: usize, window: u32) -> HostConfig {
    HostConfig {
        parameters: Parameters::Messages(Messages {
            mode: MessageMode::Serial,
            ..messages(bytes, window)
        }),
        ..config(bytes, window)
    }
}

async fn start(config: HostConfig) -> Box<dyn Host> {
    stack::start(Stack::Commonware, config, mpsc::unbounded_channel().0)
        .await
        .unwrap()
}

struct Server {
    host: Box<dyn Host>,
    events: mpsc::UnboundedReceiver<Inbound>,
}

impl Server {
    async fn start(config: HostConfig) -> Self {
        let (inbound, events) = mpsc::unbounded_channel();
        let config = HostConfig {
            listen: Some((V4, 0)),
            ..config
        };
        let host = stack::start(Stack::Commonware, config, inbound).await.unwrap();
        Self { host, events }
    }

    fn address(&self) -> &str {
        &self.host.addresses()[0]
    }

    fn introductions(&self) -> SocketAddr {
        let port = self.address().rsplit('/').next().unwrap();
        (V4, port.parse().unwrap()).into()
    }

    /// The next peer's messenger.
    async fn messenger(&mut self) -> BoxMessenger {
        let connected = self.events.recv().await.unwrap();
        assert!(matches!(connected, Inbound::Connection));
        match self.events.recv().await.unwrap() {
            Inbound::Messenger(messenger) => messenger,
            _ => panic!("a connection is followed by its messenger"),
        }
    }
}

struct Client {
    host: Box<dyn Host>,
    connection: Box<dyn Connection>,
    messenger: BoxMessenger,
}

impl Client {
    async fn dial(config: HostConfig, address: &str) -> Self {
        let host = start(config).await;
        let connection = host.dial(address).await.unwrap();
        let messenger = connection.messenger().await.unwrap().unwrap();
        Self {
            host,
            connection,
            messenger,
        }
    }
}

fn numbered(sequence: u64, bytes: usize) -> Message {
    Message {
        bytes,
        ..Message::bare(sequence)
    }
}

async fn send(messenger: &mut BoxMessenger, message: Message) {
    let is_accepted = poll_fn(|cx| messenger.poll_send(cx, message)).await.unwrap();
    assert!(is_accepted, "{message:?} was refused");
}

async fn receive(messenger: &mut BoxMessenger) -> Option<Message> {
    let received = poll_fn(|cx| messenger.poll_receive(cx));
    timeout(TEST_TIMEOUT, received).await.expect("a message").unwrap()
}

/// Sends numbers from 0 with a window of them in flight, each of which must be acknowledged in order.
async fn send_all(messenger: &mut BoxMessenger, count: u64, bytes: usize, window: u64) {
    let mut sent = 0;
    for acknowledged in 0..count {
        while sent < count.min(acknowledged + window) {
            send(messenger, numbered(sent, bytes)).await;
            sent += 1;
        }
        assert_eq!(receive(messenger).await, Some(Message::bare(acknowledged)));
    }
}

/// Acknowledges what [`send_all`] sends from the other end.
async fn acknowledge_all(messenger: &mut BoxMessenger, count: u64, bytes: usize) {
    for sequence in 0..count {
        assert_eq!(receive(messenger).await, Some(numbered(sequence, bytes)));
        send(messenger, Message::bare(sequence)).await;
    }
}

async fn exchange(
    client: &mut BoxMessenger,
    server: &mut BoxMessenger,
    count: u64,
    bytes: usize,
    window: u64,
) {
    tokio::join!(
        send_all(client, count, bytes, window),
        acknowledge_all(server, count, bytes)
    );
}

#[tokio::test]
async fn messages_of_all_sizes_arrive_whole_and_in_order_both_ways() {
    let _alone = ALONE.lock().await;
    for (bytes, window, count) in [
        (Message::LEAST, 1, 100),
        (64, 64, 20_000),
        (1024, 64, 5_000),
        (16 << 10, 64, 1_000),
        (1 << 20, 16, 60),
        (64, 4096, 20_000),
    ] {
        let mut server = Server::start(config(bytes, window)).await;
        let mut client = Client::dial(config(bytes, window), server.address()).await;
        let mut accepted = server.messenger().await;
        exchange(&mut client.messenger, &mut accepted, count, bytes, window.into()).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn peers_of_one_server_get_their_own_messages() {
    let _alone = ALONE.lock().await;
    let mut server = Server::start(config(64, 16)).await;
    let mut clients = Vec::new();
    for peer in 1..=3 {
        let client = Client::dial(config(64, 16), server.address()).await;
        clients.push((peer * 1000, client, server.messenger().await));
    }
    let exchanges = clients
        .iter_mut()
        .map(|(count, client, accepted)| exchange(&mut client.messenger, accepted, *count, 64, 16));
    join_all(exchanges).await;
    assert!(server.events.try_recv().is_err(), "each peer is reported once");
}

#[tokio::test]
async fn introductions_of_strangers_do_not_disturb_peers() {
    let _alone = ALONE.lock().await;
    let mut server = Server::start(config(64, 1)).await;
    let mut rude = Vec::new();
    for bytes in [&[][..], &[0xff; 4096], &[7; 16], &[0; 42], &[0xff; 42]] {
        let mut stream = TcpStream::connect(server.introductions()).await.unwrap();
        stream.write_all(bytes).await.unwrap();
        rude.push(stream);
    }
    let mut closed = TcpStream::connect(server.introductions()).await.unwrap();
    closed.write_all(&[1; 16]).await.unwrap();
    drop(closed);
    let mut client = Client::dial(config(64, 1), server.address()).await;
    let mut accepted = server.messenger().await;
    exchange(&mut client.messenger, &mut accepted, 100, 64, 1).await;
    // The server has given up on those who did not say who they are.
    for mut stream in rude.drain(..3) {
        let end = timeout(TEST_TIMEOUT, stream.read_to_end(&mut Vec::new())).await;
        assert!(end.is_ok(), "the server waits for more");
    }
}

#[tokio::test]
async fn one_peer_too_many_gets_the_reason_and_a_place_when_another_leaves() {
    let _alone = ALONE.lock().await;
    // Its window leaves room for 15 peers.
    let server = Server::start(config(64, 4096)).await;
    let mut introduced = Vec::new();
    for seed in 0..15 {
        let mut stream = TcpStream::connect(server.introductions()).await.unwrap();
        let key = PrivateKey::from_seed(seed).public_key();
        stream.write_all(key.as_ref()).await.unwrap();
        stream.write_all(&[0, 0]).await.unwrap();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        stream.write_u64(now.as_millis() as u64).await.unwrap();
        assert_eq!(stream.read_u8().await.unwrap(), 1);
        introduced.push(stream);
    }
    let host = start(config(64, 4096)).await;
    let error = host.dial(server.address()).await.err().unwrap();
    assert!(matches!(error, Error::Dial { .. }), "{error}");
    assert!(
        error.to_string().ends_with("as many peers as it can have"),
        "{error}"
    );
    introduced.pop();
    let began = Instant::now();
    while let Err(error) = host.dial(server.address()).await {
        assert!(began.elapsed() < TEST_TIMEOUT, "{error}");
    }
}

#[tokio::test]
async fn a_dial_to_a_closed_commonware_host_fails_in_time() {
    let _alone = ALONE.lock().await;
    let server = Server::start(config(64, 1)).await;
    let (address, introductions) = (server.address().to_owned(), server.introductions());
    server.host.close().await;
    let host = start(config(64, 1)).await;
    let error = host.dial(&address).await.err().unwrap();
    assert!(matches!(error, Error::Dial { .. }), "{error}");
    assert!(error.to_string().contains("refused"), "{error}");

    let _silent = TcpListener::bind(introductions).await.unwrap();
    // After 10 s.
    let dialled = timeout(2 * TEST_TIMEOUT, host.dial(&address)).await.unwrap();
    let error = dialled.err().unwrap();
    assert!(matches!(error, Error::Dial { .. }), "{error}");

    for address in ["", "/ip4/127.0.0.1/tcp/1", "nonsense/commonware/introduction/"] {
        let error = host.dial(address).await.err().unwrap();
        assert!(matches!(error, Error::Address { .. }), "{error}");
    }
}

#[tokio::test]
async fn each_end_notices_that_the_other_has_ended() {
    let _alone = ALONE.lock().await;
    let mut server = Server::start(config(64, 1)).await;
    let ended = |mut messenger: BoxMessenger| async move {
        let ended = poll_fn(|cx| messenger.poll_ended(cx));
        timeout(TEST_TIMEOUT, ended).await.expect("it is reported");
        assert_eq!(receive(&mut messenger).await, None);
    };
    let client = Client::dial(config(64, 1), server.address()).await;
    let accepted = server.messenger().await;
    drop(client.messenger);
    ended(accepted).await;
    client.connection.close().await;

    let client = Client::dial(config(64, 1), server.address()).await;
    let _accepted = server.messenger().await;
    server.host.close().await;
    ended(client.messenger).await;
}

fn with_cups(version: Cups, config: HostConfig) -> HostConfig {
    let settings = StackSettings {
        cups: Some(version),
        ..StackSettings::default()
    };
    HostConfig { settings, ..config }
}

#[tokio::test]
async fn peers_with_the_same_version_of_cups_understand_each_other() {
    let _alone = ALONE.lock().await;
    for version in [Cups::V0, Cups::V1] {
        let mut server = Server::start(with_cups(version, config(64, 16))).await;
        let mut client = Client::dial(with_cups(version, config(64, 16)), server.address()).await;
        let mut accepted = server.messenger().await;
        exchange(&mut client.messenger, &mut accepted, 100, 64, 16).await;
    }
}

/// A host without messages has streams.
fn with_streams(version: Cups) -> HostConfig {
    with_cups(
        version,
        HostConfig {
            parameters: Parameters::Ping(Ping {
                count: 1,
                interval_seconds: 0.0,
            }),
            ..config(64, 1)
        },
    )
}

#[tokio::test]
async fn streams_need_the_same_version_of_cups_at_both_ends() {
    for (dialler, listener) in [
        (Cups::V0, Cups::V0),
        (Cups::V1, Cups::V1),
        (Cups::V0, Cups::V1),
        (Cups::V1, Cups::V0),
    ] {
        let mut server = Server::start(with_streams(listener)).await;
        let client = start(with_streams(dialler)).await;
        let connection = client.dial(server.address()).await.unwrap();
        let mut stream = connection.open().await.unwrap();
        assert!(matches!(server.events.recv().await, Some(Inbound::Connection)));
        let Some(Inbound::Stream(mut accepted)) = server.events.recv().await else {
            panic!("a connection is followed by its stream");
        };
        stream.write_all(&[7; 100]).await.unwrap();
        stream.shutdown().await.unwrap();
        let mut received = Vec::new();
        let read = timeout(TEST_TIMEOUT, accepted.read_to_end(&mut received))
            .await
            .unwrap();
        if dialler == listener {
            assert_eq!((read.unwrap(), received), (100, vec![7; 100]));
        } else {
            // Version 0 may take what it reads for a message of which more is to come.
            let expected = [ErrorKind::InvalidData, ErrorKind::ConnectionReset];
            assert!(expected.contains(&read.unwrap_err().kind()));
            assert!(received.is_empty());
        }
    }
}

#[tokio::test]
async fn a_message_longer_than_announced_is_refused() {
    let _alone = ALONE.lock().await;
    let mut server = Server::start(config(64, 1)).await;
    let mut client = Client::dial(config(64, 1), server.address()).await;
    let mut accepted = server.messenger().await;
    for bytes in [65, 7, usize::MAX] {
        let message = numbered(0, bytes);
        let sent = poll_fn(|cx| client.messenger.poll_send(cx, message)).await;
        assert_eq!(sent.unwrap_err().kind(), ErrorKind::InvalidInput);
    }
    exchange(&mut client.messenger, &mut accepted, 10, 64, 1).await;
}

#[tokio::test]
async fn settings_that_commonware_lacks_are_refused() {
    let _alone = ALONE.lock().await;
    for lacking in [
        HostConfig {
            parameters: Parameters::Relay(Relay {
                path: RelayPath::Direct,
                bytes: 1,
                chunk_bytes: ByteSize(1),
                pings: 0,
                limits: RelayLimits::default(),
            }),
            ..config(64, 1)
        },
        HostConfig {
            relaying: Relaying::Relay(RelayLimits::default()),
            ..config(64, 1)
        },
        HostConfig {
            transport: Transport::QuicV1,
            ..config(64, 1)
        },
        HostConfig {
            identity: Keys::New(Identity::Rsa2048),
            ..config(64, 1)
        },
    ] {
        let started = stack::start(Stack::Commonware, lacking, mpsc::unbounded_channel().0).await;
        assert!(matches!(started, Err(Error::Unsupported { .. })));
    }
    let server = Server::start(config(64, 1)).await;
    let client = Client::dial(config(64, 1), server.address()).await;
    assert!(client.connection.open().await.is_err());
    assert!(client.host.reserve(server.address()).await.is_err());
    let port = server.address().split('/').nth(4).unwrap().parse().unwrap();
    let taken = HostConfig {
        listen: Some((V4, port)),
        ..config(64, 1)
    };
    let second = stack::start(Stack::Commonware, taken, mpsc::unbounded_channel().0).await;
    let error = second.err().expect("the port is in use").to_string();
    assert!(error.contains("in use"), "{error}");
}

/// Names of this process's threads and folders of commonware.
fn left() -> (usize, BTreeSet<String>) {
    let threads = fs::read_dir("/proc/self/task").unwrap().flatten();
    let threads = threads.filter(|thread| {
        fs::read_to_string(thread.path().join("comm")).is_ok_and(|name| name.trim() == "commonware")
    });
    let own = format!("perfrun-commonware-{}-", process::id());
    let folders = ["/dev/shm".into(), std::env::temp_dir()].into_iter();
    let folders = folders
        .flat_map(|folder: std::path::PathBuf| fs::read_dir(folder).into_iter().flatten().flatten())
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| name.starts_with(&own))
        .collect();
    (threads.count(), folders)
}

/// Waits until threads and folders are as they were.
async fn until_left(before: &(usize, BTreeSet<String>)) {
    // The kernel lists a thread for a moment after it was joined.
    let began = Instant::now();
    while left() != *before && began.elapsed() < TEST_TIMEOUT {
        sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(left(), *before);
}

/// Waits until what tests before left has ended.
async fn nothing_left() -> (usize, BTreeSet<String>) {
    let nothing = (0, BTreeSet::new());
    until_left(&nothing).await;
    nothing
}

#[tokio::test]
async fn hosts_leave_no_thread_and_no_folder() {
    let _alone = ALONE.lock().await;
    let before = nothing_left().await;
    for (config, runtimes) in [(config(64, 1), 2), (in_process(64, 1), 1)] {
        for is_closed in [true, false] {
            let server = Server::start(config.clone()).await;
            let client = Client::dial(config.clone(), server.address()).await;
            assert_eq!(left().0, before.0 + runtimes, "{:?}", left());
            if is_closed {
                client.host.close().await;
                server.host.close().await;
            } else {
                drop((client, server));
            }
            until_left(&before).await;
        }
    }
}

#[tokio::test]
async fn peers_of_one_process_keep_their_runtime_until_the_last_ends() {
    let _alone = ALONE.lock().await;
    let before = nothing_left().await;
    let mut server = Server::start(in_process(64, 1)).await;
    for _ in 0..2 {
        let mut client = Client::dial(in_process(64, 1), server.address()).await;
        let mut accepted = server.messenger().await;
        exchange(&mut client.messenger, &mut accepted, 100, 64, 1).await;
        drop(client.messenger);
        client.host.close().await;
        assert_eq!(left().0, before.0 + 1);
    }
    server.host.close().await;
    until_left(&before).await;
}
