//! Trials that are cancelled, stopped or out of time.

use perfrun_contract::{
    distribution::Distribution,
    matrix::{Protocol, Stack, Transport},
    node::{Reason, TrialState},
    parameters::{Amount, Handshakes, Parameters},
    workload::Direction,
};
use reqwest::{Method, StatusCode};

use crate::support::*;

#[tokio::test]
async fn a_start_that_never_comes_is_cancelled_or_times_out() {
    let Pair { client, server } = Pair::start();
    let addresses = server
        .serve("a", Stack::Raw, Transport::Tcp, &endless_ping())
        .await;
    let mut request = dialler(Stack::Raw, Transport::Tcp, endless_ping(), addresses, 1);
    assert_eq!(client.put("a", &request).await, StatusCode::CREATED);
    let call = client.call(Method::PUT, "/v1/trials/a/start");
    call.json(&serde_json::json!({"atNanoseconds": u64::MAX}))
        .send()
        .await
        .unwrap();
    assert_eq!(
        client.later_than("a", TrialState::Preparing).await.state,
        TrialState::Ready
    );
    assert_eq!(client.delete("a").await, StatusCode::NO_CONTENT);
    assert_eq!(reason(&client.outcome("a").await), Some(Reason::Cancelled));
    request.timeout_seconds = 0.3;
    assert_eq!(client.put("b", &request).await, StatusCode::CREATED);
    let outcome = client.outcome("b").await;
    assert_eq!(reason(&outcome), Some(Reason::Timeout));
    assert_eq!(outcome.measured.started_nanoseconds, None);
}

#[tokio::test]
async fn a_trial_cut_short_keeps_what_it_measured() {
    let pair = Pair::start();
    for (stack, transport) in STACKS_WITH_THEMSELVES {
        let parameters = bandwidth(Protocol::Perf, Direction::Upload, Amount::Seconds(1000.0), 2);
        let addresses = pair.server.serve("a", stack, transport, &parameters).await;
        let request = dialler(stack, transport, parameters, addresses, 1);
        pair.client.run("a", &request).await;
        pair.server.moved("a").await;
        pair.client.delete("a").await;
        let client = pair.client.outcome("a").await;
        // The conductor finishes the server after the client has failed.
        pair.server.delete("a").await;
        let server = pair.server.outcome("a").await;
        assert_eq!(reason(&client), Some(Reason::Cancelled), "{stack} {transport}");
        assert_eq!(reason(&server), Some(Reason::Cancelled), "{stack} {transport}");
        for (outcome, end) in [(&client, "client"), (&server, "server")] {
            let measured = &outcome.measured;
            let sampled: u64 = measured
                .samples
                .iter()
                .map(|s| s.bytes_sent + s.bytes_received)
                .sum();
            assert_eq!(
                sampled,
                measured.bytes_sent + measured.bytes_received,
                "{stack} {transport} {end}"
            );
            assert_eq!(
                (measured.connections > 0, measured.streams > 0),
                (true, true),
                "{stack} {transport} {end}"
            );
        }
        assert!(
            client.measured.bytes_sent > 0 && client.measured.seconds > 0.0,
            "{stack} {transport}"
        );
        assert!(
            client.measured.started_nanoseconds.is_some(),
            "{stack} {transport}"
        );
        assert!(server.measured.bytes_received > 0, "{stack} {transport}");
        for node in [&pair.client, &pair.server] {
            node.delete("a").await;
        }
    }
}

#[tokio::test]
async fn times_until_the_cut_are_kept() {
    let pair = Pair::start();
    let handshakes = Parameters::Handshakes(Handshakes {
        amount: Amount::Seconds(1000.0),
        in_flight: 2,
    });
    for (parameters, distribution) in [
        (ping(10_000_000, 0.001), Distribution::RoundTrip),
        (handshakes, Distribution::HandshakeFirstByte),
    ] {
        let (stack, transport) = (Stack::Raw, Transport::Tcp);
        let addresses = pair.server.serve("a", stack, transport, &parameters).await;
        let request = dialler(stack, transport, parameters, addresses, 2);
        pair.client.run("a", &request).await;
        eventually("some operations", async || {
            pair.client.status("a").await.bytes_received > 32 * 20
        })
        .await;
        pair.client.delete("a").await;
        let outcome = pair.client.outcome("a").await;
        assert_eq!(reason(&outcome), Some(Reason::Cancelled), "{outcome:?}");
        let timed = outcome.measured.histograms[&distribution].decode().unwrap();
        assert!(timed.len() >= 10, "{distribution}: {}", timed.len());
        pair.server.finish("a").await;
        pair.server.outcome("a").await;
        for node in [&pair.client, &pair.server] {
            node.delete("a").await;
        }
    }
}
