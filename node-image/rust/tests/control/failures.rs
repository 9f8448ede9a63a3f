//! Peers that die, and nodes that survive.

use std::time::Duration;

use futures::future::join_all;
use perfrun_contract::{
    matrix::{Messaging, Protocol, Stack, StackSettings, Transport},
    node::{Reason, TrialRequest, TrialState},
    parameters::{Amount, Handshakes, Messages, Parameters},
    workload::{Direction, MessageMode},
};
use reqwest::StatusCode;
use rustix::process::Signal;
use tokio::{sync::Semaphore, time::timeout};

use crate::{support::*, workloads::messages};

/// How long a client may take to notice: QUIC gives up after 10 s of silence, a dial too.
const NOTICE_TIMEOUT: Duration = Duration::from_secs(45);

/// Kills the server in the middle of a trial; the client must end with a failure, and run the next one.
async fn killed(stack: Stack, transport: Transport, parameters: Parameters) {
    killed_with(StackSettings::default(), stack, transport, parameters).await;
}

async fn killed_with(settings: StackSettings, stack: Stack, transport: Transport, parameters: Parameters) {
    /// Clients that notice something do so beside each other. Of loads that use all CPUs there are few, so
    /// that no dial takes too long.
    static LOADS: Semaphore = Semaphore::const_new(4);
    let what = format!("{stack} {transport} {parameters} {settings:?}");
    let load = LOADS.acquire().await.unwrap();
    let Pair { client, server } = Pair::start();
    let request = TrialRequest {
        settings: settings.clone(),
        ..crate::support::server(stack, transport, parameters.clone())
    };
    let addresses = server.serve_request("a", &request).await;
    let request = TrialRequest {
        settings,
        ..dialler(stack, transport, parameters.clone(), addresses, 1)
    };
    client.run("a", &request).await;
    client.moved("a").await;
    server.signal(Signal::KILL);
    drop(load);
    let outcome = timeout(NOTICE_TIMEOUT, client.outcome("a"))
        .await
        .unwrap_or_else(|_| panic!("{what} hangs"));
    let failed = reason(&outcome).unwrap_or_else(|| panic!("{what} completed: {outcome:?}"));
    let mut broken = vec![
        Reason::StreamFailed,
        Reason::TooFewBytes,
        Reason::OpenFailed,
        Reason::DialFailed,
    ];
    // An echo misses its deadline before QUIC gives up.
    broken.extend(matches!(parameters, Parameters::Echo(_)).then_some(Reason::Timeout));
    assert!(broken.contains(&failed), "{what}: {outcome:?}");
    assert!(outcome.measured.bytes_sent > 0, "{what}: {outcome:?}");
    let next = Node::start();
    let addresses = next.serve("b", stack, transport, &ping(3, 0.0)).await;
    client
        .run("b", &dialler(stack, transport, ping(3, 0.0), addresses, 1))
        .await;
    assert_eq!(client.outcome("b").await.failure, None, "{what}");
}

/// Loads that last until something ends them.
fn lasting() -> [Parameters; 5] {
    [
        endless_ping(),
        Parameters::Handshakes(Handshakes {
            amount: Amount::Seconds(1000.0),
            in_flight: 2,
        }),
        bandwidth(Protocol::Perf, Direction::Upload, Amount::Seconds(1000.0), 2),
        bandwidth(Protocol::Litep2pPerf, Direction::Both, Amount::Count(1 << 40), 1),
        messages(MessageMode::Stream, 1024, Amount::Seconds(1000.0)),
    ]
}

#[tokio::test]
async fn a_client_notices_that_its_server_was_killed_whatever_it_does() {
    let loads = lasting()
        .into_iter()
        .chain([Parameters::Echo(echo(2, 2, 1000.0))]);
    join_all(loads.flat_map(|load| {
        STACKS_WITH_THEMSELVES.map(|(stack, transport)| killed(stack, transport, load.clone()))
    }))
    .await;
}

#[tokio::test]
async fn a_client_of_commonware_notices_that_its_server_was_killed() {
    let one_at_a_time = messages(MessageMode::SerialAck, 1024, Amount::Seconds(1000.0));
    let loads = lasting().into_iter().chain([one_at_a_time]);
    let pairs = loads.flat_map(|load| Some((load, commonware()?)));
    join_all(pairs.map(|(load, (stack, _, transport))| killed(stack, transport, load))).await;
}

#[tokio::test]
async fn a_broadcast_by_gossip_notices_that_its_server_was_killed() {
    let settings = StackSettings {
        messaging: Some(Messaging::Gossipsub),
        ..StackSettings::default()
    };
    let Parameters::Messages(load) = messages(MessageMode::Broadcast, 1024, Amount::Seconds(1000.0)) else {
        unreachable!("they are messages")
    };
    // Without a rate, gossipsub refuses most messages.
    for rate in [None, Some(1000)] {
        let load = Parameters::Messages(Messages { rate, ..load });
        killed_with(settings.clone(), Stack::Libp2p, Transport::Tcp, load).await;
    }
}

#[tokio::test]
async fn a_client_of_notifications_notices_that_its_server_was_killed() {
    let settings = StackSettings {
        messaging: Some(Messaging::Notifications),
        ..StackSettings::default()
    };
    let modes = [
        MessageMode::SerialAck,
        MessageMode::Stream,
        MessageMode::Broadcast,
    ];
    let loads = modes.map(|mode| messages(mode, 1024, Amount::Seconds(1000.0)));
    let transports = [Transport::Tcp, Transport::Ws, Transport::QuicV1];
    let pairs = loads
        .iter()
        .flat_map(|load| transports.map(|on| (on, load.clone())));
    join_all(pairs.map(|(transport, load)| killed_with(settings.clone(), Stack::Litep2p, transport, load)))
        .await;
}

#[tokio::test]
async fn a_server_survives_a_client_that_was_killed() {
    join_all(STACKS_WITH_THEMSELVES.map(async |(stack, transport)| {
        let Pair { client, server } = Pair::start();
        let parameters = bandwidth(
            Protocol::Litep2pPerf,
            Direction::Upload,
            Amount::Count(1 << 40),
            1,
        );
        let addresses = server.serve("a", stack, transport, &parameters).await;
        client
            .run("a", &dialler(stack, transport, parameters, addresses, 1))
            .await;
        server.moved("a").await;
        client.signal(Signal::KILL);
        assert_eq!(server.finish("a").await, StatusCode::NO_CONTENT);
        let outcome = timeout(NOTICE_TIMEOUT, server.outcome("a"))
            .await
            .expect("it does not hang");
        let ended = reason(&outcome).expect("the transfer was not complete");
        // QUIC has not noticed yet when the server finishes.
        let expected = [Reason::TooFewBytes, Reason::StreamFailed, Reason::Timeout];
        assert!(expected.contains(&ended), "{stack} {transport}: {outcome:?}");
        assert!(outcome.measured.bytes_received > 0, "{stack} {transport}");
        server.serve("b", stack, transport, &ping(1, 0.0)).await;
    }))
    .await;
}

/// Dials a server that was there a moment ago.
async fn dead(stack: Stack, transport: Transport, parameters: Parameters) {
    let Pair { client, server } = Pair::start();
    let addresses = server.serve("a", stack, transport, &parameters).await;
    server.signal(Signal::KILL);
    server.exit().await;
    client
        .run("a", &dialler(stack, transport, parameters.clone(), addresses, 1))
        .await;
    let outcome = timeout(NOTICE_TIMEOUT, client.outcome("a"))
        .await
        .expect("it does not hang");
    let what = format!("{stack} {transport} {parameters}: {outcome:?}");
    assert_eq!(reason(&outcome), Some(Reason::DialFailed), "{what}");
}

#[tokio::test]
async fn a_dial_to_a_dead_server_fails() {
    let handshake = || {
        Parameters::Handshakes(Handshakes {
            amount: Amount::Count(1),
            in_flight: 1,
        })
    };
    let pings = STACKS_WITH_THEMSELVES.map(|(stack, transport)| dead(stack, transport, ping(1, 0.0)));
    let connections = STACKS_WITH_THEMSELVES.map(|(stack, transport)| dead(stack, transport, handshake()));
    tokio::join!(join_all(pings), join_all(connections));
}

#[tokio::test]
async fn an_unsupported_cell_is_reported_and_no_trial_starts() {
    let node = Node::start();
    for (id, stack, transport, parameters) in [
        ("tls", Stack::Litep2p, Transport::TcpTls, ping(1, 0.0)),
        ("streams", Stack::Litep2p, Transport::QuicV1, substreams(101)),
    ] {
        assert_eq!(
            node.put(id, &server(stack, transport, parameters)).await,
            StatusCode::CREATED
        );
        let outcome = node.outcome(id).await;
        assert_eq!(reason(&outcome), Some(Reason::Unsupported), "{outcome:?}");
    }
    for address in ["", "nonsense", "/ip4/127.0.0.1/tcp/1/ws"] {
        for (stack, transport) in STACKS_WITH_THEMSELVES {
            let request = dialler(stack, transport, ping(1, 0.0), vec![address.into()], 1);
            assert_eq!(node.put("dial", &request).await, StatusCode::CREATED);
            let outcome = node.outcome("dial").await;
            assert_eq!(
                reason(&outcome),
                Some(Reason::DialFailed),
                "{stack} {transport} {address}: {outcome:?}"
            );
            node.delete("dial").await;
        }
    }
}

#[tokio::test]
async fn a_server_without_a_finish_times_out() {
    let node = Node::start();
    for (stack, transport) in STACKS_WITH_THEMSELVES {
        let mut request = server(stack, transport, ping(1, 0.0));
        request.timeout_seconds = 0.2;
        assert_eq!(node.put("a", &request).await, StatusCode::CREATED);
        let outcome = node.later_than("a", TrialState::Running).await.outcome.unwrap();
        assert_eq!(reason(&outcome), Some(Reason::Timeout), "{stack} {transport}");
        node.delete("a").await;
    }
}
