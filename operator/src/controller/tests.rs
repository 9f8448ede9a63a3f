//! Passes against an API server that says what the test wants it to.

use std::sync::Arc;

use http::{Method, Request, Response, StatusCode};
use k8s_openapi::ByteString;
use kube::{
    client::Body,
    runtime::{events::Reporter, reflector, watcher::Event},
};
use serde_json::{Value, json};
use tower::service_fn;

use super::*;
use crate::token::KEY_SECRET;

/// A run whose time to provision was over long ago, as the API server knows it.
fn late_run() -> PerfRun {
    let condition = |type_: &str, reason: &str| {
        json!({"type": type_, "status": "False", "reason": reason, "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z"})
    };
    serde_json::from_value(json!({
        "apiVersion": "perfrun.io/v1alpha1",
        "kind": "PerfRun",
        "metadata": {"name": "late", "namespace": "bench", "uid": "uid-1", "generation": 1, "resourceVersion": "7"},
        "spec": {
            "workload": {"ping": {}},
            "matrix": {"clients": ["libp2p"], "servers": ["libp2p"], "rawBaseline": false},
        },
        "status": {
            "phase": "Provisioning",
            "conditions": [condition("Provisioned", "ImagePullFailed"), condition("Complete", "InProgress")],
        },
    }))
    .unwrap()
}

/// What an API server was asked to change: method, path, and body.
type Changes = Arc<Mutex<Vec<(Method, String, Value)>>>;

/// An API server with the operators' key, that answers each write of a status with `answer`.
fn api_server(answer: StatusCode) -> (Client, Changes) {
    let changes = Changes::default();
    let seen = changes.clone();
    let serve = move |request: Request<Body>| {
        let seen = seen.clone();
        async move {
            let (head, body) = request.into_parts();
            let path = head.uri.path().to_owned();
            let body = serde_json::from_slice(&body.collect_bytes().await.unwrap()).unwrap_or_default();
            let (status, reply) = match (&head.method, path.as_str()) {
                (&Method::GET, path) if path.ends_with(KEY_SECRET) => {
                    (StatusCode::OK, json!({"data": {"key": ByteString(vec![7; 32])}}))
                }
                (_, path) if path.ends_with("/status") && answer == StatusCode::CONFLICT => (
                    answer,
                    json!({"kind": "Status", "status": "Failure", "reason": "Conflict", "code": 409}),
                ),
                (_, path) if path.ends_with("/status") => (answer, json!(late_run())),
                _ => (StatusCode::OK, json!({"kind": "Status", "status": "Success"})),
            };
            if head.method != Method::GET {
                let mut seen = seen.lock().unwrap();
                seen.push((head.method, path, body));
            }
            let reply = Body::from(serde_json::to_vec(&reply).unwrap());
            Ok::<_, std::convert::Infallible>(Response::builder().status(status).body(reply).unwrap())
        }
    };
    (Client::new(service_fn(serve), "default"), changes)
}

/// One pass over the late run; what it changed.
async fn pass_over_the_late_run(answer: StatusCode) -> Vec<(Method, String, Value)> {
    let (client, changes) = api_server(answer);
    let (runs, mut runs_writer) = reflector::store();
    let (pods, _pods_writer) = reflector::store();
    let run = Arc::new(DeserializeGuard(Ok(late_run())));
    runs_writer.apply_watcher_event(&Event::Apply((*run).clone()));
    let reporter = Reporter {
        controller: MANAGER.to_owned(),
        instance: None,
    };
    let context = Context {
        client: client.clone(),
        access: Access::Direct,
        key: TokenKey::get_or_create(client.clone(), "perfrun-system")
            .await
            .unwrap(),
        site: Site {
            node_image: "node".to_owned(),
            pull_policy: None,
            pull_secrets: vec![],
            tcp_sysctls: true,
        },
        operators: "perfrun-system".to_owned(),
        max_concurrent_runs: 1,
        plans: Plans::default(),
        tasks: Tasks::default(),
        recorder: Recorder::new(client, reporter),
        metrics: Arc::new(Metrics::new()),
        pods,
        runs,
        wake: mpsc::unbounded_channel().0,
        wake_all: mpsc::unbounded_channel().0,
        begun: Begun::default(),
    };
    reconcile(run, Arc::new(context)).await.unwrap();
    std::mem::take(&mut *changes.lock().unwrap())
}

#[tokio::test]
async fn the_end_of_a_run_is_written_before_its_pods_go() {
    let changes = pass_over_the_late_run(StatusCode::OK).await;
    let paths: Vec<_> = changes.iter().map(|(_, path, _)| path.as_str()).collect();
    let [(_, status, body), .., (Method::DELETE, pods, _)] = &changes[..] else {
        panic!("{paths:?}")
    };
    assert!(
        status.ends_with("/perfruns/late/status") && pods.ends_with("/bench/pods"),
        "{paths:?}"
    );
    assert_eq!(body["status"]["phase"], "Failed");
    assert_eq!(
        body["metadata"]["resourceVersion"], "7",
        "of the run that was judged"
    );
}

#[tokio::test]
async fn a_pass_that_saw_an_earlier_version_of_a_run_neither_ends_it_again_nor_deletes_its_pods() {
    let changes = pass_over_the_late_run(StatusCode::CONFLICT).await;
    let paths: Vec<_> = changes.iter().map(|(_, path, _)| path.as_str()).collect();
    assert!(
        matches!(paths[..], [status] if status.ends_with("/status")),
        "{paths:?}"
    );
}
