//! Hosts over loopback, and a server that answers.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    sync::Arc,
    time::Duration,
};

use futures::future::join_all;
use perfrun_contract::{
    matrix::{Identity, Negotiation, Protocol, Stack, StackSettings, Transport},
    parameters::{Amount, Bandwidth, Parameters},
    workload::Direction,
};
use perfrun_stack::{
    self as stack, BoxStream, Connection, Host, HostConfig, Inbound, Keys, Relaying, StackMetrics,
    UsedCongestion,
};
use perfrun_test_kit::records::STACKS_WITH_THEMSELVES;
use prometheus_client::registry::Registry;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    sync::{RwLock, mpsc},
    time::timeout,
};

pub(crate) const V4: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
pub(crate) const V6: IpAddr = IpAddr::V6(Ipv6Addr::LOCALHOST);
pub(crate) const AWKWARD: [usize; 6] = [0, 1, 65535, 65536, 65537, 1 << 20];

/// [`STACKS_WITH_THEMSELVES`], and commonware.
pub(crate) fn all() -> impl Iterator<Item = (Stack, Transport)> {
    let commonware = (Stack::Commonware, Transport::Tcp);
    STACKS_WITH_THEMSELVES
        .into_iter()
        .chain(cfg!(feature = "commonware").then_some(commonware))
}

/// What takes longer hangs, even on a slow machine.
pub(crate) const TEST_TIMEOUT: Duration = Duration::from_secs(20);

/// Tests that count file descriptors hold this lock for writing, all others for reading.
pub(crate) static DESCRIPTORS: RwLock<()> = RwLock::const_new(());

/// A load whose diallers negotiate its protocol so.
pub(crate) fn load(negotiation: Negotiation) -> Parameters {
    Parameters::Bandwidth(Bandwidth {
        negotiation,
        ..Bandwidth::new(Protocol::Perf, Direction::Both, Amount::Count(1))
    })
}

pub(crate) fn host(transport: Transport) -> HostConfig {
    HostConfig {
        settings: StackSettings::default(),
        transport,
        parameters: load(Negotiation::V1),
        listen: None,
        identity: Keys::New(Identity::Ed25519),
        max_streams: 64,
        relaying: Relaying::No,
        metrics: Arc::new(StackMetrics::new(&mut Registry::default())),
        congestion: UsedCongestion::default(),
    }
}

pub(crate) fn listener(transport: Transport) -> HostConfig {
    HostConfig {
        listen: Some((V4, 0)),
        ..host(transport)
    }
}

pub(crate) async fn start(stack: Stack, config: HostConfig) -> Box<dyn Host> {
    stack::start(stack, config, mpsc::unbounded_channel().0)
        .await
        .unwrap()
}

/// The address on loopback of a host that listens on all interfaces.
pub(crate) fn on_loopback(host: &dyn Host) -> &str {
    let addresses = host.addresses();
    assert!(
        !addresses.iter().any(|address| address.contains("0.0.0.0")),
        "{addresses:?}"
    );
    addresses
        .iter()
        .find(|address| address.contains("/127.0.0.1/"))
        .unwrap()
}

/// A listener that reads each stream to its end and then echoes it.
pub(crate) async fn echo_server(stack: Stack, config: HostConfig) -> Box<dyn Host> {
    let (inbound, mut events) = mpsc::unbounded_channel();
    let host = stack::start(stack, config, inbound).await.unwrap();
    tokio::spawn(async move {
        while let Some(event) = events.recv().await {
            if let Inbound::Stream(mut stream) = event {
                tokio::spawn(async move {
                    let mut said = Vec::new();
                    stream.read_to_end(&mut said).await?;
                    stream.write_all(&said).await?;
                    stream.shutdown().await
                });
            }
        }
    });
    host
}

pub(crate) async fn echo(mut stream: BoxStream, size: usize) {
    let said: Vec<u8> = (0..size).map(|i| (i % 251) as u8).collect();
    stream.write_all(&said).await.unwrap();
    stream.shutdown().await.unwrap();
    let mut heard = Vec::new();
    timeout(TEST_TIMEOUT, stream.read_to_end(&mut heard))
        .await
        .expect("an answer")
        .unwrap();
    assert_eq!(heard.len(), size);
    assert!(heard == said, "the answer differs");
}

/// Half-closes with every awkward size, first one after the other and then all at the same time.
pub(crate) async fn exchange(dialler: &dyn Host, address: &str) -> Box<dyn Connection> {
    let connection = dialler.dial(address).await.unwrap();
    exchange_over(&*connection).await;
    connection
}

pub(crate) async fn exchange_over(connection: &dyn Connection) {
    for size in AWKWARD {
        echo(connection.open().await.unwrap(), size).await;
    }
    join_all(AWKWARD.map(async |size| echo(connection.open().await.unwrap(), size).await)).await;
}

pub(crate) fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

pub(crate) fn tasks() -> usize {
    tokio::runtime::Handle::current().metrics().num_alive_tasks()
}

pub(crate) fn port(host: &dyn Host) -> u16 {
    let address = &host.addresses()[0];
    address.split('/').nth(4).unwrap().parse().unwrap()
}
