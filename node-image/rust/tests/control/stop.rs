//! Nodes that receive SIGTERM.

use std::{process::Stdio, time::Duration};

use perfrun_contract::{
    matrix::{Protocol, Stack, Transport},
    node::{EPOCH_HEADER, Info, Reason},
    parameters::Amount,
    workload::Direction,
};
use reqwest::{Method, StatusCode};
use rustix::process::Signal;
use tokio::time::timeout;

use crate::support::*;

/// The grace period of a pod. A stop takes a few seconds of it, even if nobody collects an outcome.
const GRACE: Duration = Duration::from_secs(30);

#[tokio::test]
async fn an_idle_node_stops_immediately() {
    for signal in [Signal::TERM, Signal::INT] {
        let node = Node::start();
        assert_eq!(
            node.bare(Method::GET, "/readyz").send().await.unwrap().status(),
            StatusCode::OK
        );
        node.signal(signal);
        assert_eq!(timeout(GRACE, node.exit()).await.expect("it stops"), Some(0));
    }
}

#[tokio::test]
async fn a_node_restarts_in_its_process_unless_a_trial_or_outcome_is_pending() {
    restarts(&Node::start(), Stack::Litep2p).await;
    if let Some(pair) = Pair::start_go() {
        restarts(&pair.server, Stack::GoLibp2p).await;
    }
}

async fn restarts(node: &Node, stack: Stack) {
    let call = async |method: Method, path: &str, epoch: u64| {
        let call = node.call(method, path).header(EPOCH_HEADER, epoch);
        call.send().await
    };
    let instance = async |epoch| {
        let info: Info = call(Method::GET, "/v1/info", epoch).await?.json().await?;
        reqwest::Result::Ok(info.instance.unwrap())
    };
    let renew = async |epoch| call(Method::PUT, "/v1/renew", epoch).await.unwrap().status();
    node.serve("a", stack, Transport::Tcp, &endless_ping()).await;
    assert_eq!(renew(0).await, StatusCode::LOCKED);
    node.delete("a").await;
    eventually("cancelled", async || renew(0).await == StatusCode::CONFLICT).await;
    node.outcome("a").await;
    let before = instance(7).await.unwrap();
    assert_eq!(renew(7).await, StatusCode::NO_CONTENT);
    // Metrics need no epoch, from which the new start could learn it.
    let has_restarted = async || match node.bare(Method::GET, "/metrics").send().await {
        Ok(page) => page
            .text()
            .await
            .is_ok_and(|page| !page.contains("perfrun_trials_total{")),
        Err(_) => false,
    };
    eventually("a restart", has_restarted).await;
    let late = call(Method::GET, "/v1/clock", 6).await.unwrap();
    assert_eq!(late.status(), StatusCode::PRECONDITION_FAILED);
    let again = instance(7).await.unwrap();
    assert_ne!(again, before);
    assert_eq!(renew(7).await, StatusCode::NO_CONTENT);
    let is_another = async || instance(7).await.is_ok_and(|instance| instance != again);
    eventually("another instance", is_another).await;
    // In the process that the test has started.
    node.signal(Signal::TERM);
    assert_eq!(timeout(GRACE, node.exit()).await.expect("it stops"), Some(0));
}

#[tokio::test]
async fn the_outcome_of_a_stopped_trial_can_be_collected() {
    let pair = Pair::start();
    let upload = bandwidth(Protocol::Perf, Direction::Upload, Amount::Seconds(1000.0), 1);
    let addresses = pair
        .server
        .serve("a", Stack::Libp2p, Transport::Tcp, &upload)
        .await;
    pair.client
        .run(
            "a",
            &dialler(Stack::Libp2p, Transport::Tcp, upload.clone(), addresses, 1),
        )
        .await;
    pair.client.moved("a").await;
    // One call waits before the signal, another arrives after it.
    let hanging = pair.client.outcome("a");
    let stop = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        pair.client.signal(Signal::TERM);
    };
    let (outcome, ()) = tokio::join!(hanging, stop);
    assert_eq!(reason(&outcome), Some(Reason::Stopped), "{outcome:?}");
    assert!(outcome.measured.bytes_sent > 0);
    assert_eq!(
        timeout(GRACE, pair.client.exit()).await.expect("it stops"),
        Some(0)
    );

    pair.server.signal(Signal::TERM);
    eventually("stopping", async || {
        pair.server
            .bare(Method::GET, "/readyz")
            .send()
            .await
            .unwrap()
            .status()
            == StatusCode::SERVICE_UNAVAILABLE
    })
    .await;
    let next = server(Stack::Libp2p, Transport::Tcp, upload);
    assert_eq!(pair.server.put("b", &next).await, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(reason(&pair.server.outcome("a").await), Some(Reason::Stopped));
    assert_eq!(
        timeout(GRACE, pair.server.exit()).await.expect("it stops"),
        Some(0)
    );
}

#[tokio::test]
async fn waiting_calls_and_uncollected_outcomes_do_not_delay_a_stop() {
    let node = Node::start_as("server", Stdio::piped());
    node.serve("a", Stack::Litep2p, Transport::QuicV1, &endless_ping())
        .await;
    let hang = node
        .call(Method::GET, "/v1/trials/a?wait=60&after=finished")
        .send();
    let stop = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        node.signal(Signal::TERM);
        timeout(GRACE, node.exit()).await.expect("it stops")
    };
    let (_, code) = tokio::join!(hang, stop);
    assert_eq!(code, Some(0));
    // The record is on standard output nevertheless.
    let output = node.output();
    let record: serde_json::Value = serde_json::from_str(output.trim()).unwrap();
    assert_eq!(record["type"], "trial");
    assert_eq!(record["id"], "a");
    assert_eq!(record["outcome"]["failure"]["reason"], "Stopped");
}
