//! The calls on their own.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use perfrun_conductor::{
    AgentClient, NodeClient, NodeHandle,
    client::{AnswerBudget, BoxError, Epoch, Error, Request, Requester, Response},
};
use perfrun_contract::node::ProbeRequest;
use perfrun_link::{Impairment, probe::ProbePlan};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
    time::Instant,
};

use crate::node::{Script, ScriptedNode};

/// Fails this number of times, then answers with a status.
struct Flaky(Arc<AtomicUsize>, usize, u16);

#[async_trait]
impl Requester for Flaky {
    async fn request(&self, _: Request<'_>) -> Result<Response, BoxError> {
        if self.0.fetch_add(1, Ordering::Relaxed) < self.1 {
            return Err("connection reset".into());
        }
        Ok(Response::new(self.2, br#"{"message":"why"}"#.to_vec()))
    }
}

#[tokio::test]
async fn calls_are_retried_when_the_transport_fails() {
    let calls = Arc::new(AtomicUsize::new(0));
    NodeClient::over(Arc::new(Flaky(calls.clone(), 3, 204)))
        .finish("x")
        .await
        .unwrap();
    assert_eq!(calls.load(Ordering::Relaxed), 4);
}

#[tokio::test]
async fn answers_are_not_requested_again() {
    let calls = Arc::new(AtomicUsize::new(0));
    let error = NodeClient::over(Arc::new(Flaky(calls.clone(), 0, 409)))
        .finish("x")
        .await
        .unwrap_err();
    assert!(
        matches!(&error, Error::Conflict(why) if why == "why"),
        "{error:?}"
    );
    assert_eq!(calls.load(Ordering::Relaxed), 1);
}

/// A node whose program restarts some calls after the request, or cannot.
struct Restarting {
    calls: AtomicUsize,
    renewed_at: AtomicUsize,
    can: bool,
}

#[async_trait]
impl Requester for Restarting {
    async fn request(&self, request: Request<'_>) -> Result<Response, BoxError> {
        let call = self.calls.fetch_add(1, Ordering::Relaxed);
        if request.path == "/v1/renew" {
            self.renewed_at.store(call, Ordering::Relaxed);
            let status = if self.can { 204 } else { 404 };
            return Ok(Response::new(status, vec![]));
        }
        let since = call.saturating_sub(self.renewed_at.load(Ordering::Relaxed));
        // Between its two programs, nothing answers.
        if since == 3 {
            return Err("connection refused".into());
        }
        let mut info = json!({"version": "1", "stacks": {}, "profile": "release", "listenIp": "127.0.0.1",
            "host": "here", "kernel": "6.1", "cpu": "abacus", "cpus": 1});
        info["instance"] = json!(if since > 3 { 2 } else { 1 });
        Ok(Response::new(200, info.to_string().into_bytes()))
    }
}

#[tokio::test(start_paused = true)]
async fn a_renewed_node_is_another_instance() {
    let renew = async |can, within| {
        let node = Restarting {
            calls: AtomicUsize::new(0),
            renewed_at: AtomicUsize::new(usize::MAX),
            can,
        };
        NodeClient::over(Arc::new(node)).renew(within).await
    };
    assert!(renew(true, Duration::from_secs(5)).await.unwrap());
    assert!(!renew(false, Duration::from_secs(5)).await.unwrap());
    let error = renew(true, Duration::ZERO).await.unwrap_err();
    assert!(matches!(error, Error::Unreachable(_)), "{error:?}");
}

#[tokio::test]
async fn statuses_become_errors_of_their_kinds() {
    let kinds = [
        (401, "Unauthorized"),
        (404, "NotFound"),
        (409, "Conflict"),
        (400, "Refused"),
        (200, "Malformed"),
    ];
    for (status, kind) in kinds {
        let error = NodeClient::over(Arc::new(Flaky(Arc::default(), 0, status)))
            .info()
            .await
            .unwrap_err();
        assert_eq!(error.category(), kind, "{status}");
    }
}

#[tokio::test]
async fn calls_of_a_superseded_conductor_never_return() {
    let epoch = Epoch::new(1);
    let node = NodeClient::over(Arc::new(Flaky(Arc::default(), 0, 412)));
    let node = NodeHandle::from(node).with_epoch(&epoch).node;
    tokio::select! {
        biased;
        answer = node.finish("x") => panic!("{answer:?}"),
        () = epoch.superseded() => {}
    }
    // A conductor without an epoch has no successor.
    let node = NodeClient::over(Arc::new(Flaky(Arc::default(), 0, 412)));
    let answer = node.finish("x").await;
    assert!(
        matches!(answer, Err(Error::Refused { status: 412, .. })),
        "{answer:?}"
    );
}

#[tokio::test]
async fn a_gateway_without_a_node_is_an_unreachable_node() {
    let error = NodeClient::over(Arc::new(Flaky(Arc::default(), 0, 503)))
        .info()
        .await
        .unwrap_err();
    assert_eq!(error.describe(), "failed to reach the node: status 503: why");
}

#[tokio::test]
async fn a_node_that_is_gone_is_unreachable() {
    let client = {
        let node = ScriptedNode::start(Script::default());
        let client = node.client();
        client.info().await.unwrap();
        client
    };
    let error = client.info().await.unwrap_err();
    assert_eq!(error.category(), "Unreachable", "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn a_node_that_stays_away_is_given_up_after_a_second() {
    let began = Instant::now();
    let never = Flaky(Arc::default(), usize::MAX, 204);
    let error = NodeClient::over(Arc::new(never)).finish("x").await.unwrap_err();
    assert_eq!(error.category(), "Unreachable", "{error:?}");
    assert!(began.elapsed() <= Duration::from_secs(1), "{:?}", began.elapsed());
}

/// Answers calls with bodies that never end, and tells how much of the first was taken.
async fn endless(listener: TcpListener) -> u64 {
    let (mut stream, _) = listener.accept().await.unwrap();
    // An answer before the request would break the connection.
    let _ = stream.read(&mut [0; 4096]).await.unwrap();
    stream
        .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000000\r\n\r\n")
        .await
        .unwrap();
    let mut sent = 0;
    while let Ok(bytes) = stream.write(&[b' '; 1 << 16]).await {
        sent += bytes as u64;
    }
    sent
}

#[tokio::test]
async fn an_answer_without_an_end_is_given_up() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = NodeClient::new(&format!("http://{}", listener.local_addr().unwrap()), "x").unwrap();
    let answered = tokio::spawn(endless(listener));
    let error = client.info().await.unwrap_err();
    assert_eq!(
        error.describe(),
        "unable to read the node's answer: it is longer than 16384 bytes"
    );
    // The rest fits the buffers of two sockets.
    let sent = answered.await.unwrap();
    assert!(sent < 64 << 20, "{sent} bytes");
}

/// Answers each call with a mebibyte of text, and counts connections.
async fn talkative(listener: TcpListener, connections: Arc<AtomicUsize>) {
    loop {
        let (mut stream, _) = listener.accept().await.unwrap();
        connections.fetch_add(1, Ordering::Relaxed);
        tokio::spawn(async move {
            let head = b"HTTP/1.1 200 OK\r\nContent-Length: 1048576\r\n\r\n".to_vec();
            let answer = [head, vec![b'x'; 1 << 20]].concat();
            while stream.read(&mut [0; 4096]).await.is_ok_and(|read| read > 0) {
                if stream.write_all(&answer).await.is_err() {
                    return;
                }
            }
        });
    }
}

#[tokio::test]
async fn a_connection_with_a_long_answer_is_not_used_again() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = NodeClient::new(&format!("http://{}", listener.local_addr().unwrap()), "x").unwrap();
    let client = NodeHandle::from(client)
        .with_answer_budget(&AnswerBudget::of_process())
        .node;
    let connections = Arc::new(AtomicUsize::new(0));
    tokio::spawn(talkative(listener, connections.clone()));
    for calls in 1..=5 {
        assert_eq!(client.metrics().await.unwrap().len(), 1 << 20);
        assert_eq!(connections.load(Ordering::Relaxed), calls);
    }
}

#[tokio::test]
async fn a_measurement_of_more_datagrams_than_were_sent_is_not_judged() {
    struct Liar;
    #[async_trait]
    impl Requester for Liar {
        async fn request(&self, _: Request<'_>) -> Result<Response, BoxError> {
            let delivery = serde_json::json!({"sent": u32::MAX, "received": 0});
            let measured = serde_json::json!({"forward": delivery, "backward": delivery});
            Ok(Response::new(200, serde_json::to_vec(&measured).unwrap()))
        }
    }
    let none = Impairment::default();
    let request = ProbeRequest {
        server: "10.99.0.2:9091".parse().unwrap(),
        plan: ProbePlan::new(&none, &none),
    };
    let error = AgentClient::over(Arc::new(Liar))
        .probe(&request)
        .await
        .unwrap_err();
    assert_eq!(
        error.describe(),
        "unable to understand the node's answer: it counts more datagrams than the plan has"
    );
}

#[tokio::test]
async fn messages_of_a_node_are_cut_and_cannot_control_a_terminal() {
    struct Loud;
    #[async_trait]
    impl Requester for Loud {
        async fn request(&self, _: Request<'_>) -> Result<Response, BoxError> {
            let message = format!("\x1b]52;c;AA\x07{}", "x".repeat(10_000));
            let body = serde_json::json!({"message": message, "trial": message});
            Ok(Response::new(423, serde_json::to_vec(&body).unwrap()))
        }
    }
    let error = NodeClient::over(Arc::new(Loud))
        .finish("x")
        .await
        .unwrap_err()
        .describe();
    assert!(
        error.starts_with("the node is busy with trial  ]52;c;AA x"),
        "{error}"
    );
    assert!(error.len() < 1100, "{error}");
}

#[tokio::test]
async fn the_token_is_shown_nowhere() {
    let client = NodeClient::new("http://127.0.0.1:1", "secret").unwrap();
    let error = client.clock().await.unwrap_err();
    let shown = format!("{client:?} {error:?} {}", error.describe());
    assert!(!shown.contains("secret"), "{shown}");
}

#[test]
fn an_invalid_address_or_token_is_refused() {
    assert!(NodeClient::new("10.0.0.7", "token").is_err());
    assert!(NodeClient::new("http://10.0.0.7:9090/", "line\nbreak").is_err());
}
