//! Calls and their answers.

use std::time::{Duration, Instant};

use perfrun_contract::{
    matrix::{Stack, Transport},
    node::{Clock, EPOCH_HEADER, Info, Problem, Reason, TOKEN_HEADER, TrialState},
};
use reqwest::{Method, StatusCode};

use crate::support::*;

#[tokio::test]
async fn without_the_token_calls_reveal_nothing() {
    let node = Node::start();
    let known = server(Stack::Raw, Transport::Tcp, endless_ping());
    assert_eq!(node.put("known", &known).await, StatusCode::CREATED);
    let mut answers = vec![];
    let wrong = ["", "wrong", "a token of this tes", "a token of this test2"];
    let bearer = wrong.map(|token| Some(("authorization", format!("Bearer {token}"))));
    let plain = wrong.map(|token| Some((TOKEN_HEADER, token.to_owned())));
    // Each header has its own format.
    let swapped = [
        Some(("authorization", TOKEN.to_owned())),
        Some((TOKEN_HEADER, format!("Bearer {TOKEN}"))),
    ];
    for header in [None].into_iter().chain(bearer).chain(plain).chain(swapped) {
        for (method, path) in [
            (Method::GET, "/v1/info"),
            (Method::GET, "/v1/clock"),
            (Method::GET, "/v1/trials/known"),
            (Method::GET, "/v1/trials/unknown"),
            (Method::GET, "/v1/trials/known?wait=nonsense"),
            (Method::PUT, "/v1/trials/known"),
            (Method::PUT, "/v1/trials/known/start"),
            (Method::PUT, "/v1/trials/known/finish"),
            (Method::DELETE, "/v1/trials/known"),
            (Method::POST, "/v1/info"),
            (Method::GET, "/v1/no-such-call"),
            (Method::GET, "/v1/"),
            (Method::GET, "/no-such-page"),
        ] {
            let call = node.bare(method.clone(), path);
            let call = match &header {
                Some((name, value)) => call.header(*name, value),
                None => call,
            };
            let response = call.send().await.unwrap();
            assert_eq!(
                response.status(),
                StatusCode::UNAUTHORIZED,
                "{method} {path} with {header:?}"
            );
            answers.push(response.text().await.unwrap());
        }
    }
    assert!(answers.iter().all(|answer| *answer == answers[0]), "{answers:?}");
    assert!(answers[0].contains("Authorization: Bearer") && !answers[0].contains(TOKEN));
    assert_eq!(node.status("known").await.state, TrialState::Ready);
}

#[tokio::test]
async fn a_conductor_that_another_has_taken_over_from_is_refused() {
    let node = Node::start();
    let put = async |id: &str, epoch: Option<&str>| {
        let call = node.call(Method::PUT, &format!("/v1/trials/{id}"));
        let call = match epoch {
            Some(epoch) => call.header(EPOCH_HEADER, epoch),
            None => call,
        };
        let request = server(Stack::Raw, Transport::Tcp, endless_ping());
        let response = call.json(&request).send().await.unwrap();
        let status = response.status();
        let problem = response.json::<Problem>().await;
        (status, problem.map(|problem| problem.message).unwrap_or_default())
    };
    // A local conductor has no epoch.
    assert_eq!(put("a", None).await.0, StatusCode::CREATED);
    assert_eq!(put("a", Some("7")).await.0, StatusCode::OK);
    assert_eq!(put("a", Some("7")).await.0, StatusCode::OK);
    for (epoch, number) in [(Some("6"), 6), (None, 0)] {
        // Not even that the node is busy.
        let (status, why) = put("b", epoch).await;
        assert_eq!(status, StatusCode::PRECONDITION_FAILED);
        let says = format!("this call is of epoch {number}, and a conductor of epoch 7 has taken over");
        assert!(why.starts_with(&says), "{why}");
    }
    for method in [Method::GET, Method::DELETE] {
        let call = node.call(method, "/v1/trials/a").header(EPOCH_HEADER, "6");
        assert_eq!(
            call.send().await.unwrap().status(),
            StatusCode::PRECONDITION_FAILED
        );
    }
    for wrong in ["", "-1", "7.5", "9223372036854775808"] {
        assert_eq!(put("b", Some(wrong)).await.0, StatusCode::BAD_REQUEST, "{wrong}");
    }
    // A stranger cannot raise it.
    let stranger = node.bare(Method::GET, "/v1/info").header(EPOCH_HEADER, "9");
    assert_eq!(stranger.send().await.unwrap().status(), StatusCode::UNAUTHORIZED);
    assert_eq!(put("b", Some("8")).await.0, StatusCode::LOCKED);
}

#[tokio::test]
async fn either_header_with_the_token_suffices() {
    let node = Node::start();
    for other in [None, Some("Bearer wrong"), Some("Basic YTpi")] {
        let mut call = node.bare(Method::GET, "/v1/info").header(TOKEN_HEADER, TOKEN);
        if let Some(other) = other {
            call = call.header("authorization", other);
        }
        assert_eq!(call.send().await.unwrap().status(), StatusCode::OK, "{other:?}");
    }
    let call = node.call(Method::GET, "/v1/info").header(TOKEN_HEADER, "wrong");
    assert_eq!(call.send().await.unwrap().status(), StatusCode::OK);
}

#[tokio::test]
async fn probes_and_metrics_need_no_token() {
    let node = Node::start();
    for path in ["/healthz", "/readyz", "/metrics"] {
        assert_eq!(
            node.bare(Method::GET, path).send().await.unwrap().status(),
            StatusCode::OK,
            "{path}"
        );
    }
}

#[tokio::test]
async fn a_node_reports_its_properties_and_its_clock_only_grows() {
    let node = Node::start();
    let info: Info = node.get("/v1/info").await;
    assert_eq!(info.stacks.len(), 3 + usize::from(cfg!(feature = "commonware")));
    assert!(info.listen_ip.is_loopback());
    let mut last = 0;
    for _ in 0..20 {
        let clock: Clock = node.get("/v1/clock").await;
        assert!(clock.nanoseconds > last);
        last = clock.nanoseconds;
    }
}

#[tokio::test]
async fn an_invalid_request_is_refused_with_the_reason() {
    let node = Node::start();
    let right = serde_json::to_value(server(Stack::Raw, Transport::Tcp, ping(1, 0.0))).unwrap();
    let with = |pointer: &str, value: serde_json::Value| {
        let mut changed = right.clone();
        *changed.pointer_mut(pointer).unwrap() = value;
        changed.to_string()
    };
    for (body, words) in [
        (String::new(), "JSON"),
        ("{".into(), "JSON"),
        ("[]".into(), "JSON"),
        ("{}".into(), "stack"),
        (with("/stack", "smoke-signals".into()), "smoke-signals"),
        (with("/timeoutSeconds", (-1.0).into()), "timeoutSeconds"),
        (
            with("/parameters/intervalSeconds", (-1.0).into()),
            "intervalSeconds",
        ),
        (with("/parameters/count", (-1).into()), "-1"),
        (
            with(
                "/side",
                serde_json::json!({"client": {"servers": [], "peers": 1}}),
            ),
            "servers",
        ),
        (
            with(
                "/side",
                serde_json::json!({"client": {"servers": ["x"], "peers": 0}}),
            ),
            "peers",
        ),
        (
            with(
                "/side",
                serde_json::json!({"client": {"servers": ["x"], "peers": 4_000_000_000u32}}),
            ),
            "peers",
        ),
    ] {
        let call = node
            .call(Method::PUT, "/v1/trials/x")
            .header("content-type", "application/json");
        let response = call.body(body.clone()).send().await.unwrap();
        assert_eq!(response.status(), StatusCode::BAD_REQUEST, "{body}");
        let problem: Problem = response.json().await.unwrap();
        assert!(problem.message.contains(words), "{body}: {}", problem.message);
        assert!(problem.message.contains(' '), "{}", problem.message);
    }
}

#[tokio::test]
async fn a_call_that_cannot_be_served_is_refused_with_its_status_and_the_reason() {
    let node = Node::start();
    for (method, path, status) in [
        (Method::PUT, "/v1/trials/x", StatusCode::BAD_REQUEST),
        (Method::PUT, "/v1/trials/x/start", StatusCode::BAD_REQUEST),
        (Method::GET, "/v1/trials/x?wait=soon", StatusCode::BAD_REQUEST),
        (Method::GET, "/v1/trials/x?after=dinner", StatusCode::BAD_REQUEST),
        (Method::GET, "/v1/trials/x", StatusCode::NOT_FOUND),
        (Method::DELETE, "/v1/trials/x", StatusCode::NOT_FOUND),
        (Method::PUT, "/v1/trials/x/finish", StatusCode::NOT_FOUND),
        (Method::GET, "/v1/no-such-call", StatusCode::NOT_FOUND),
        (Method::POST, "/v1/trials/x", StatusCode::METHOD_NOT_ALLOWED),
    ] {
        let response = node.call(method.clone(), path).send().await.unwrap();
        assert_eq!(response.status(), status, "{method} {path}");
        let problem: Problem = response.json().await.unwrap();
        assert!(
            problem.message.contains(' '),
            "{method} {path}: {}",
            problem.message
        );
    }
    assert_eq!(node.begin("x").await, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn a_trial_is_accepted_once_and_forgotten_on_request() {
    let node = Node::start();
    let request = server(Stack::Raw, Transport::Tcp, ping(1, 0.0));
    let other = server(Stack::Raw, Transport::Tcp, ping(2, 0.0));
    assert_eq!(node.put("a", &request).await, StatusCode::CREATED);
    assert_eq!(node.put("a", &request).await, StatusCode::OK);
    assert_eq!(node.put("a", &other).await, StatusCode::CONFLICT);
    assert_eq!(
        node.put("b", &request).await,
        StatusCode::LOCKED,
        "the node is busy"
    );
    node.later_than("a", TrialState::Preparing).await;
    assert_eq!(node.finish("a").await, StatusCode::NO_CONTENT);
    assert_eq!(node.finish("a").await, StatusCode::NO_CONTENT);
    assert!(node.outcome("a").await.failure.is_none());
    // The record stays available under its id until it is deleted.
    assert_eq!(node.put("a", &request).await, StatusCode::OK);
    assert_eq!(node.put("a", &other).await, StatusCode::CONFLICT);
    assert_eq!(node.put("b", &other).await, StatusCode::CREATED);
    assert_eq!(node.delete("a").await, StatusCode::NO_CONTENT);
    assert_eq!(node.delete("a").await, StatusCode::NOT_FOUND);
    assert_eq!(node.finish("a").await, StatusCode::NOT_FOUND);
    // Deleting a running trial cancels it and keeps its record.
    assert_eq!(node.delete("b").await, StatusCode::NO_CONTENT);
    assert_eq!(reason(&node.outcome("b").await), Some(Reason::Cancelled));
    assert_eq!(node.delete("b").await, StatusCode::NO_CONTENT);
    assert_eq!(node.put("a", &other).await, StatusCode::CREATED);
}

#[tokio::test]
async fn a_long_poll_returns_at_the_change_or_at_its_end() {
    let node = Node::start();
    assert_eq!(
        node.put("a", &server(Stack::Raw, Transport::Tcp, endless_ping()))
            .await,
        StatusCode::CREATED
    );
    node.later_than("a", TrialState::Preparing).await;
    let begun = Instant::now();
    let still = node.poll("a", "wait=0.3&after=ready").await;
    assert_eq!(still.state, TrialState::Ready);
    assert!(begun.elapsed() >= Duration::from_millis(300));
    for at_once in ["", "wait=0", "wait=-5", "wait=50&after=preparing"] {
        assert_eq!(
            node.poll("a", at_once).await.state,
            TrialState::Ready,
            "{at_once}"
        );
    }
    let waiting = node.poll("a", "wait=50");
    let cancelling = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        node.delete("a").await
    };
    let (polled, _) = tokio::join!(waiting, cancelling);
    assert_eq!(polled.state, TrialState::Finished);
    assert!(begun.elapsed() < Duration::from_secs(40), "it waited to its end");
}

#[tokio::test]
async fn the_first_start_counts_and_may_come_before_the_client_is_ready() {
    let Pair { client, server } = Pair::start();
    let parameters = ping(1, 0.0);
    let addresses = server
        .serve("a", Stack::Libp2p, Transport::Tcp, &parameters)
        .await;
    let request = dialler(Stack::Libp2p, Transport::Tcp, parameters, addresses, 1);
    assert_eq!(client.put("a", &request).await, StatusCode::CREATED);
    let clock: Clock = client.get("/v1/clock").await;
    let at = clock.nanoseconds + 700_000_000;
    for start in [at, 0, u64::MAX] {
        let call = client.call(Method::PUT, "/v1/trials/a/start");
        let response = call
            .json(&serde_json::json!({"atNanoseconds": start}))
            .send()
            .await
            .unwrap();
        assert_eq!(response.status(), StatusCode::NO_CONTENT);
    }
    let outcome = client.outcome("a").await;
    assert!(outcome.failure.is_none(), "{outcome:?}");
    assert!(outcome.measured.started_nanoseconds.unwrap() >= at);
}
