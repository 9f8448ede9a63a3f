//! Paced echo: what streams do, and how peers that violate the protocol are counted.

use std::collections::BTreeMap;

use futures::future::join_all;
use perfrun_contract::{
    distribution::Distribution,
    matrix::{Identity, Protocol, Stack, Transport},
    node::{Measured, Reason},
    parameters::{Amount, Echo, Pace, Parameters},
    quantity::ByteSize,
    workload::Direction,
};
use reqwest::StatusCode;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinSet,
};

use crate::support::*;

fn most_active(measured: &Measured) -> u64 {
    let echoes = measured.samples.iter().filter_map(|sample| sample.echo);
    echoes.map(|echo| echo.active_streams).max().unwrap()
}

fn most_echoing(measured: &Measured) -> u64 {
    let echoes = measured.samples.iter().filter_map(|sample| sample.echo);
    echoes.map(|echo| echo.echoing_streams).max().unwrap()
}

/// The ramp may last half of a load's time. A machine that is slow or busy needs no more.
const SECONDS: f64 = 16.0;

#[tokio::test]
async fn every_stream_of_every_connection_echoes_whole_lines() {
    let each = async |(pair, stacks): (Pair, (Stack, Stack, Transport))| {
        for (connections, streams, message, pace) in [
            (3, 8, 1024, Pace::Pause(0.25)),
            (3, 8, 1024, Pace::Period(0.25)),
            (2, 1, 100_001, Pace::Pause(0.25)),
        ] {
            let load = Echo {
                message_bytes: ByteSize(message),
                pace,
                // Every stream echoes in one of the intervals, even if the machine is busy.
                sample_interval_seconds: 2.0,
                ..echo(connections, streams, SECONDS)
            };
            let what = format!("{stacks:?} {connections}x{streams} of {message}, {pace:?}");
            let (client, server) = pair
                .trial(stacks, &Parameters::Echo(load), 1)
                .await
                .completed(&what);
            let all = load.streams();
            assert_eq!((client.streams, server.streams), (all, all), "{what}");
            assert_eq!(client.connections, u64::from(connections), "{what}");
            let trips = client.histograms[&Distribution::RoundTrip]
                .decode()
                .unwrap()
                .len();
            let plateau = client.plateau.unwrap();
            assert!(trips >= all + plateau.round_trips, "{what}");
            let bytes = trips * message;
            for counted in [
                client.bytes_sent,
                client.bytes_received,
                server.bytes_sent,
                server.bytes_received,
            ] {
                assert_eq!(counted, bytes, "{what}");
            }
            for end in [&client, &server] {
                assert_eq!((most_active(end), most_echoing(end)), (all, all), "{what}");
                assert_eq!(
                    end.samples.iter().map(|s| s.operations).sum::<u64>(),
                    trips,
                    "{what}"
                );
            }
            assert!(
                client.resources.allocated_peak_bytes.unwrap() > 100 << 10,
                "{what}"
            );
            let served = server.resources.allocated_peak_bytes;
            assert_eq!(served.is_none(), stacks.2.is_in_process(), "{what}");
            let percentiles = client.samples.iter().filter_map(|sample| sample.echo);
            for echo in percentiles.filter(|echo| echo.echoing_streams > 0) {
                assert!(
                    echo.round_trip_p50_seconds.unwrap() <= echo.round_trip_p99_seconds.unwrap(),
                    "{what}"
                );
            }
            // The trial lasts as long as requested, and ramp and plateau are all of it.
            let parts = plateau.ramp_seconds + plateau.seconds;
            assert!(
                (SECONDS..=client.seconds).contains(&parts),
                "{what}: {plateau:?} of {}",
                client.seconds
            );
            assert!(plateau.ramp_lateness_seconds < parts, "{what}: {plateau:?}");
        }
    };
    // They are beside each other, because they mostly wait. All programs are loaded before the first ramp.
    let pairs = PAIRS.map(|stacks| (Pair::start(), stacks));
    for (Pair { client, server }, _) in &pairs {
        tokio::join!(client.metrics(), server.metrics());
    }
    join_all(pairs.map(each)).await;
}

/// The ramp may last half of a load's time, and a lost dial fails after 10 s: in this time a dial that is
/// still pending when the ramp ends is a lost one, not a slow one.
const UNLESS_A_DIAL_IS_LOST: f64 = 16.0;

/// Runs a load on libp2p's WebRTC, which may lose a dial (webrtc-rs issue 821). A trial with a lost dial says
/// nothing about echoes, so another trial takes its place. `workload::peer` tests that a lost dial is
/// repeated.
async fn echoed_on_webrtc(stacks: (Stack, Stack, Transport), load: Echo) -> (Measured, Measured) {
    for _ in 0..5 {
        let ends = Pair::start().trial(stacks, &Parameters::Echo(load), 1).await;
        let dialled = ends.client.measured.connections;
        if reason(&ends.client) != Some(Reason::Timeout) || dialled == u64::from(load.connections) {
            return ends.completed(&format!("{stacks:?}"));
        }
    }
    panic!("{stacks:?}: each of five trials lost a dial");
}

async fn all_echo_on_webrtc(load: Echo) {
    let on_webrtc = |stacks: &(Stack, Stack, Transport)| stacks.2 == Transport::WebrtcDirect;
    for stacks in all_pairs().filter(on_webrtc) {
        let what = format!("{stacks:?}");
        let (client, server) = echoed_on_webrtc(stacks, load).await;
        let all = load.streams();
        assert_eq!((client.streams, server.streams), (all, all), "{what}");
        assert_eq!(
            (most_echoing(&client), most_echoing(&server)),
            (all, all),
            "{what}"
        );
        assert_eq!(client.bytes_received, server.bytes_sent, "{what}");
        assert!(client.bytes_received >= all * load.message_bytes.0, "{what}");
        assert!(
            client.errors.keys().all(|kind| *kind == Reason::DialFailed),
            "{what}: {client:?}"
        );
    }
}

#[tokio::test]
async fn every_stream_echoes_on_webrtc() {
    all_echo_on_webrtc(echo(3, 8, UNLESS_A_DIAL_IS_LOST)).await;
}

/// WebRTC's messages have at most 16 KiB.
#[tokio::test]
async fn lines_longer_than_a_message_of_webrtc_go_in_several() {
    // Four messages. Lines of 1 MiB stall for more than ten seconds in SCTP if the machine is busy.
    let long = Echo {
        message_bytes: ByteSize(64 << 10),
        pace: Pace::Pause(1.0),
        deadline_seconds: 20.0,
        sample_interval_seconds: 5.0,
        ..echo(2, 1, UNLESS_A_DIAL_IS_LOST)
    };
    all_echo_on_webrtc(long).await;
}

#[tokio::test]
async fn each_of_ten_thousand_streams_echoes() {
    let load = Echo {
        pace: Pace::Pause(5.0),
        deadline_seconds: 60.0,
        stream_interval_seconds: 0.002,
        sample_interval_seconds: 15.0,
        ..echo(10, 1000, 60.0)
    };
    let stacks = (Stack::Libp2p, Stack::Libp2p, Transport::Tcp);
    let ends = Pair::start().trial(stacks, &Parameters::Echo(load), 1).await;
    let (client, server) = ends.completed("10 x 1000");
    assert_eq!((client.streams, server.streams), (10_000, 10_000));
    assert_eq!((most_echoing(&client), most_echoing(&server)), (10_000, 10_000));
    assert_eq!(server.failures, 0, "{:?}", server.errors);
}

#[tokio::test]
async fn peers_with_rsa_keys_echo_too() {
    let load = Echo {
        identity: Identity::Rsa2048,
        ..echo(2, 2, SECONDS)
    };
    let transports = [Transport::Tcp, Transport::QuicV1, Transport::Memory];
    join_all(transports.map(async |transport| {
        let what = transport.to_string();
        let stacks = (Stack::Libp2p, Stack::Libp2p, transport);
        let ends = Pair::start().trial(stacks, &Parameters::Echo(load), 1).await;
        let (client, server) = ends.completed(&what);
        assert_eq!((client.streams, server.streams), (4, 4), "{what}");
        assert_eq!(client.bytes_received, server.bytes_sent, "{what}");
    }))
    .await;
    // A stack without RSA keys refuses the request, so the identity reaches the stack.
    let node = Node::start();
    let request = server(Stack::Litep2p, Transport::Tcp, Parameters::Echo(load));
    assert_eq!(node.put("a", &request).await, StatusCode::CREATED);
    let refused = node.outcome("a").await;
    assert_eq!(reason(&refused), Some(Reason::Unsupported), "{refused:?}");
}

/// A peer that answers the first `good` lines of each connection with the result of `answer`, and no others.
async fn peer(good: usize, answer: fn(usize, Vec<u8>) -> Option<Vec<u8>>) -> (String, JoinSet<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("/ip4/127.0.0.1/tcp/{}", listener.local_addr().unwrap().port());
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let mut connections = JoinSet::new();
        for number in 0.. {
            let (mut stream, _) = listener.accept().await.unwrap();
            connections.spawn(async move {
                let mut line = vec![0; 1024];
                for _ in 0..good {
                    if stream.read_exact(&mut line).await.is_err() {
                        return;
                    }
                    let Some(answer) = answer(number, line.clone()) else {
                        break;
                    };
                    let _ = stream.write_all(&answer).await;
                }
                // Keeps the connection open, and stays silent.
                std::future::pending::<()>().await;
            });
        }
    });
    (address, tasks)
}

async fn against(address: String, load: Echo) -> perfrun_contract::node::Outcome {
    let client = Node::start_as("client", std::process::Stdio::null());
    let request = dialler(
        Stack::Raw,
        Transport::Tcp,
        Parameters::Echo(load),
        vec![address],
        1,
    );
    client.run("a", &request).await;
    client.outcome("a").await
}

#[tokio::test]
async fn a_peer_that_answers_wrong_bytes_fails_the_trial() {
    let (address, _peer) = peer(usize::MAX, |number, mut line| {
        // One wrong byte on one stream.
        line[700] += u8::from(number == 2);
        Some(line)
    })
    .await;
    let outcome = against(address, echo(1, 3, 60.0)).await;
    assert_eq!(reason(&outcome), Some(Reason::WrongEcho), "{outcome:?}");
}

#[tokio::test]
async fn streams_that_miss_their_deadline_are_counted_and_the_others_continue() {
    let (address, _peer) = peer(usize::MAX, |number, line| (number != 1).then_some(line)).await;
    // A pause of the machine must not make the other streams miss their deadline.
    let load = Echo {
        deadline_seconds: 2.0,
        ..echo(1, 3, 8.0)
    };
    let Measured {
        failures,
        errors,
        samples,
        plateau,
        ..
    } = {
        let outcome = against(address, load).await;
        assert_eq!(reason(&outcome), None, "{outcome:?}");
        outcome.measured
    };
    assert_eq!((failures, errors), (1, BTreeMap::from([(Reason::Timeout, 1)])));
    // Long after one stream has failed, and before the others end.
    let late = samples.iter().rfind(|s| s.at_seconds < 7.5).unwrap();
    assert_eq!(late.echo.unwrap().active_streams, 2, "{samples:?}");
    assert!(samples.iter().any(|s| s.errors.get(&Reason::Timeout) == Some(&1)));
    // The ramp waits for the stream until it has failed.
    assert!(plateau.unwrap().ramp_seconds >= 2.0, "{plateau:?}");
}

#[tokio::test]
async fn a_ramp_that_leaves_no_time_fails_the_trial() {
    let (address, _peer) = peer(usize::MAX, |number, line| (number != 1).then_some(line)).await;
    let load = Echo {
        deadline_seconds: 60.0,
        ..echo(1, 2, 8.0)
    };
    let outcome = against(address, load).await;
    assert_eq!(reason(&outcome), Some(Reason::Timeout), "{outcome:?}");
    let message = outcome.failure.unwrap().message;
    assert!(message.starts_with("1 of 2 streams"), "{message}");
}

#[tokio::test]
async fn a_trial_ends_when_its_last_stream_has_failed() {
    let (address, _peer) = peer(2, |_, line| Some(line)).await;
    let load = Echo {
        deadline_seconds: 0.3,
        ..echo(2, 2, 60.0)
    };
    let outcome = against(address, load).await;
    assert_eq!(reason(&outcome), Some(Reason::Timeout), "{outcome:?}");
    assert!(outcome.measured.seconds < 30.0, "{outcome:?}");
    assert_eq!(outcome.measured.errors, BTreeMap::from([(Reason::Timeout, 4)]));
}

#[tokio::test]
async fn a_server_counts_the_faults_of_its_peers_by_reason() {
    let node = Node::start();
    let load = Echo {
        deadline_seconds: 0.3,
        ..echo(1, 1, 60.0)
    };
    let addresses = node
        .serve("a", Stack::Raw, Transport::Tcp, &Parameters::Echo(load))
        .await;
    let port: u16 = addresses[0].rsplit('/').next().unwrap().parse().unwrap();
    // One peer leaves within a line, the other stalls within a line. The server accepts them in this order.
    let mut left = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    left.write_all(&[b'0'; 10]).await.unwrap();
    drop(left);
    let mut stalled = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    stalled.write_all(&[b'0'; 10]).await.unwrap();
    // The server gives up and ends the stream.
    assert_eq!(stalled.read_to_end(&mut vec![]).await.unwrap_or(0), 0);
    assert_eq!(node.finish("a").await, StatusCode::NO_CONTENT);
    let outcome = node.outcome("a").await;
    assert_eq!(reason(&outcome), None, "{outcome:?}");
    let expected = BTreeMap::from([(Reason::TooFewBytes, 1), (Reason::Timeout, 1)]);
    assert_eq!(outcome.measured.errors, expected);
}

#[tokio::test]
async fn streams_that_outlive_their_client_are_counted() {
    let node = Node::start();
    let load = Echo {
        deadline_seconds: 60.0,
        ..echo(1, 1, 60.0)
    };
    let addresses = node
        .serve("a", Stack::Raw, Transport::Tcp, &Parameters::Echo(load))
        .await;
    let port: u16 = addresses[0].rsplit('/').next().unwrap().parse().unwrap();
    let mut stays = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    let mut line = [b'0'; 1024];
    line[1023] = b'\n';
    stays.write_all(&line).await.unwrap();
    stays.read_exact(&mut line).await.unwrap();
    assert_eq!(node.finish("a").await, StatusCode::NO_CONTENT);
    let outcome = node.outcome("a").await;
    assert_eq!(reason(&outcome), None, "{outcome:?}");
    assert_eq!(outcome.measured.errors, BTreeMap::from([(Reason::Timeout, 1)]));
}

#[tokio::test]
async fn a_server_that_is_sent_another_line_fails() {
    let node = Node::start();
    let addresses = node
        .serve(
            "a",
            Stack::Raw,
            Transport::Tcp,
            &Parameters::Echo(echo(1, 1, 60.0)),
        )
        .await;
    let port: u16 = addresses[0].rsplit('/').next().unwrap().parse().unwrap();
    let mut other = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    other.write_all(b"hello\n").await.unwrap();
    // The server ends the stream, perhaps with a reset if it has not read everything.
    let _ = other.read_to_end(&mut vec![]).await;
    node.finish("a").await;
    let outcome = node.outcome("a").await;
    assert_eq!(reason(&outcome), Some(Reason::UnexpectedBytes), "{outcome:?}");
}

#[tokio::test]
async fn too_few_open_files_are_reported_before_anything_starts() {
    let rust = [Stack::Libp2p, Stack::Litep2p].map(|stack| (stack, Pair::start()));
    let go = Pair::start_go().map(|pair| (Stack::GoLibp2p, pair));
    for (stack, Pair { client, server }) in rust.into_iter().chain(go) {
        let parameters = Parameters::Echo(echo(100, 1, 60.0));
        let addresses = server.serve("a", stack, Transport::Tcp, &parameters).await;
        client.limit_descriptors(399);
        let request = dialler(stack, Transport::Tcp, parameters.clone(), addresses, 1);
        client.run("a", &request).await;
        let failure = client.outcome("a").await.failure.unwrap();
        assert_eq!(failure.reason, Reason::LimitTooLow);
        assert!(
            failure
                .message
                .contains("needs 400 open files, and the system allows the node 399"),
            "{failure:?}"
        );
        assert_eq!(server.status("a").await.bytes_received, 0);

        server.delete("a").await;
        server.outcome("a").await;
        server.limit_descriptors(399);
        let request = crate::support::server(stack, Transport::Tcp, parameters);
        assert_eq!(server.put("b", &request).await, StatusCode::CREATED);
        let outcome = server.outcome("b").await;
        assert_eq!(reason(&outcome), Some(Reason::LimitTooLow), "{outcome:?}");
    }
}

#[tokio::test]
async fn a_connection_for_each_stream_needs_as_many_files_as_reported() {
    let parameters = bandwidth(Protocol::Perf, Direction::Upload, Amount::Count(1000), 200);
    let Pair { client, server } = Pair::start();
    let addresses = server.serve("a", Stack::Raw, Transport::Tcp, &parameters).await;
    let request = dialler(Stack::Raw, Transport::Tcp, parameters, addresses, 1);
    client.limit_descriptors(200 + 64 - 1);
    client.run("a", &request).await;
    let failure = client.outcome("a").await.failure.unwrap();
    assert_eq!(failure.reason, Reason::LimitTooLow);
    assert!(failure.message.contains("needs 264 open files"), "{failure:?}");
    let another = Node::start_as("client", std::process::Stdio::null());
    another.limit_descriptors(200 + 64);
    another.run("a", &request).await;
    assert_eq!(reason(&another.outcome("a").await), None);
}
