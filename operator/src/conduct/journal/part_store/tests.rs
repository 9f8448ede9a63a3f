//! The journal of a run whose results are in a store.

use std::{convert::Infallible, sync::Arc};

use axum::{Json, Router, body::Body, response::IntoResponse};
use futures::{StreamExt, stream};
use http::{Method, Request, StatusCode, Uri};
use kube::{
    Client,
    runtime::{
        reflector::{self, store::Writer},
        watcher::Event,
    },
};
use perfrun_api::{
    cluster::{PART_BYTES, RESULTS_KEY, TRIALS_KEY, results_from_parts},
    pod::store::{PARTS, PARTS_MAX, STORED_PART_BYTES},
};
use perfrun_conductor::{Durability, RecordSink, RunEnd, client::read_within};
use perfrun_contract::{run::RunState, tally::EndReason};
use serde_json::json;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tower::{ServiceExt, service_fn};

use super::*;
use crate::{
    access::Access,
    api::watched::WatchedPod,
    conduct::{
        Job,
        journal::{FLUSH_TIMEOUT, Journal, KEEP_TIMEOUT},
        keep_results, outcome_without_records,
        tests::{job, record, urgent},
    },
    process::fence::{GIVE_UP_AFTER, Term},
    store,
    test_server::TestServer,
    token::TokenKey,
};

/// What the pod proxy puts before each path.
const PROXY: &str = "/api/v1/namespaces/bench/pods/run-4a49a-store-0:9090/proxy";

/// A run with a store, behind the API server's pod proxy.
struct Scene {
    server: TestServer,
    job: Job,
    program: Router,
    pods: Writer<WatchedPod>,
}

impl Scene {
    /// The calls of the program in the pod are those of `program`.
    fn of(program: Router) -> Self {
        let server = TestServer::new();
        let mut job = job(&server);
        let results = json!({"store": {"volume": {"claim": "disk"}}});
        job.spec.results = Some(serde_json::from_value(results).unwrap());
        let calls = program.clone();
        let proxy = move |request: Request<kube::client::Body>| {
            let calls = calls.clone();
            async move {
                let (mut head, body) = request.into_parts();
                let path = head.uri.path().strip_prefix(PROXY).unwrap();
                head.uri = path.parse::<Uri>().unwrap();
                let body = Body::new(body);
                Ok::<_, Infallible>(calls.oneshot(Request::from_parts(head, body)).await.unwrap())
            }
        };
        let services = Arc::make_mut(&mut job.services);
        services.access = Access::Proxy(Client::new(service_fn(proxy), "default"));
        let (pods, writer) = reflector::store();
        services.pods = pods;
        let mut scene = Self {
            server,
            job,
            program,
            pods: writer,
        };
        scene.pod_is("True");
        scene
    }

    fn new() -> Self {
        Self::of(store::in_memory(&TokenKey::fixed().store_token("uid-1")))
    }

    /// Sets whether the pod is ready.
    fn pod_is(&mut self, ready: &str) {
        let labels =
            json!({"perfrun.io/run": "run", "perfrun.io/node": "store", "perfrun.io/incarnation": "0"});
        let owner =
            json!([{"apiVersion": "perfrun.io/v1alpha1", "kind": "PerfRun", "name": "run", "uid": "uid-1"}]);
        let pod = json!({"metadata": {"name": "run-4a49a-store-0", "namespace": "bench", "uid": "pod-1",
            "labels": labels, "ownerReferences": owner},
            "status": {"phase": "Running", "podIP": "127.0.0.1", "conditions": [{"type": "Ready", "status": ready}]}});
        let pod = serde_json::from_value(pod).unwrap();
        self.pods.apply_watcher_event(&Event::Apply(pod));
    }

    async fn open(&self) -> Journal {
        Journal::open(&self.job, Arc::default(), &CancellationToken::new())
            .await
            .unwrap()
    }

    /// A part in the store.
    async fn part(&self, name: &str) -> Part {
        let request =
            Request::get(format!("{PARTS}/{name}")).header("X-Perfrun-Token", self.job.store_token());
        let answer = self.program.clone().oneshot(request.body(Body::empty()).unwrap());
        let body = answer.await.unwrap().into_body();
        let key = if name.contains("trials") {
            TRIALS_KEY
        } else {
            RESULTS_KEY
        };
        (key, read_within(body, STORED_PART_BYTES).await.unwrap())
    }
}

#[tokio::test(start_paused = true)]
async fn records_and_results_are_kept_and_the_next_operator_reads_them() {
    let scene = Scene::new();
    let mut journal = scene.open().await;
    let mut large = urgent("large");
    let words = (0..PART_BYTES as u64 / 4)
        .map(|word| format!("{:08x}", word.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32));
    large.failure.as_mut().unwrap().message = words.collect();
    assert_eq!(journal.record(&large).await.unwrap(), Durability::CrashSafe);
    let (_, bytes) = scene.part("run-4a49a-trials-0").await;
    assert!(
        bytes.len() > PART_BYTES,
        "one part has all of it: {} bytes",
        bytes.len()
    );

    let mut journal = scene.open().await;
    journal.record(&urgent("b")).await.unwrap();
    let outcome = keep_results(&scene.job, journal, RunEnd::without_nodes(RunState::Complete)).await;
    let names = ["trials-0", "trials-1", "results-0"].map(|name| format!("run-4a49a-{name}"));
    assert_eq!(outcome.results, names);
    let stored = outcome.stored.unwrap();
    assert_eq!(
        (stored.location.as_str(), stored.image.as_str()),
        (
            "folder /bench/run/uid-1/v2 of PersistentVolumeClaim disk",
            "operator"
        )
    );
    let mut parts = vec![];
    for name in &names {
        parts.push(scene.part(name).await);
    }
    let results = results_from_parts(&parts).unwrap().unwrap();
    assert_eq!(results.trials, [large, urgent("b")]);
    assert!(scene.server.take_changes().is_empty(), "nothing is in ConfigMaps");
}

#[tokio::test(start_paused = true)]
async fn measurements_continue_while_the_pod_is_replaced_and_nothing_is_lost() {
    let mut scene = Scene::new();
    let mut journal = scene.open().await;
    scene.pod_is("False");
    assert_eq!(journal.record(&urgent("a")).await.unwrap(), Durability::InMemory);
    scene.pod_is("True");
    assert_eq!(journal.record(&urgent("b")).await.unwrap(), Durability::CrashSafe);
    assert_eq!(scene.open().await.records().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn an_operator_that_may_no_longer_lead_writes_nothing_to_a_store() {
    let mut scene = Scene::new();
    let (renew, term) = Term::begin(1, Instant::now());
    Arc::make_mut(&mut scene.job.services).term = term;
    let mut journal = scene.open().await;
    assert_eq!(journal.record(&urgent("a")).await.unwrap(), Durability::CrashSafe);
    tokio::time::sleep(GIVE_UP_AFTER).await;
    assert_eq!(journal.record(&urgent("b")).await.unwrap(), Durability::InMemory);
    assert_eq!(scene.open().await.records().len(), 1, "it may read");
    renew.send_replace(Instant::now());
    assert_eq!(journal.record(&urgent("c")).await.unwrap(), Durability::CrashSafe);
    assert_eq!(scene.open().await.records().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_does_not_answer_delays_measurements_little_and_seldom() {
    let answer = async |request: Request<Body>| match *request.method() {
        Method::GET => Json(json!([])),
        _ => std::future::pending().await,
    };
    let scene = Scene::of(Router::new().fallback(answer));
    let mut journal = scene.open().await;
    let start = Instant::now();
    assert_eq!(journal.record(&urgent("a")).await.unwrap(), Durability::InMemory);
    assert_eq!(start.elapsed().as_secs(), FLUSH_TIMEOUT.as_secs());
    for trial in ["b", "c"] {
        let kept = journal.record(&record(trial, 0, None)).await.unwrap();
        assert_eq!(kept, Durability::InMemory);
    }
    assert_eq!(start.elapsed().as_secs(), FLUSH_TIMEOUT.as_secs());
}

#[tokio::test(start_paused = true)]
async fn results_that_the_store_does_not_take_end_the_run_in_time() {
    let mut scene = Scene::new();
    let mut journal = scene.open().await;
    journal.record(&urgent("kept")).await.unwrap();
    scene.pod_is("False");
    let start = Instant::now();
    let outcome = keep_results(&scene.job, journal, RunEnd::without_nodes(RunState::Complete)).await;
    assert_eq!(outcome.conclusion.reason, EndReason::RecordNotKept);
    let message = &outcome.conclusion.message;
    assert!(
        message.contains("the pod that keeps results is not ready"),
        "{message}"
    );
    assert!(start.elapsed() >= KEEP_TIMEOUT && start.elapsed() < KEEP_TIMEOUT * 2);
    assert_eq!(outcome.results, ["run-4a49a-trials-0"]);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_refuses_ends_the_run_immediately() {
    let answer = async |request: Request<Body>| match *request.method() {
        Method::GET => (StatusCode::OK, Json(json!([]))),
        _ => (
            StatusCode::UNPROCESSABLE_ENTITY,
            Json(json!({"message": "the bucket is read-only"})),
        ),
    };
    let scene = Scene::of(Router::new().fallback(answer));
    let mut journal = scene.open().await;
    let start = Instant::now();
    let error = journal.record(&urgent("a")).await.unwrap_err();
    assert!(error.to_string().contains("the bucket is read-only"), "{error}");
    assert_eq!(start.elapsed().as_secs(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_part_that_is_too_large_is_left_out_and_reported() {
    let answer = async |request: Request<Body>| {
        if request.uri().path() == PARTS {
            (StatusCode::OK, Json(json!(["run-4a49a-trials-0"])))
        } else {
            (
                StatusCode::PAYLOAD_TOO_LARGE,
                Json(json!({"message": "too large"})),
            )
        }
    };
    let scene = Scene::of(Router::new().fallback(answer));
    assert!(scene.open().await.records().is_empty());
    assert_eq!(scene.server.event_reasons(), ["RecordsUnreadable"]);
}

#[tokio::test(start_paused = true)]
async fn a_part_of_more_than_is_compressed_together_is_neither_read_whole_nor_waited_for() {
    let answer = async |request: Request<Body>| {
        if request.uri().path() == PARTS {
            Json(json!(["run-4a49a-trials-0"])).into_response()
        } else {
            vec![0_u8; STORED_PART_BYTES].into_response()
        }
    };
    let scene = Scene::of(Router::new().fallback(answer));
    let start = Instant::now();
    assert!(scene.open().await.records().is_empty());
    assert_eq!(start.elapsed().as_secs(), 0);
    let events = scene.server.objects("/events");
    let note = events[0]["note"].as_str().unwrap();
    assert!(note.contains("an answer of more than 8388608 bytes"), "{note}");
}

#[tokio::test(start_paused = true)]
async fn a_list_of_more_parts_than_perfrun_writes_is_refused_before_it_is_parsed() {
    // The answer is not valid JSON.
    let answer = async |_: Request<Body>| format!("[{}?]", "\"\",".repeat(PARTS_MAX));
    let scene = Scene::of(Router::new().fallback(answer));
    let start = Instant::now();
    let opened = Journal::open(&scene.job, Arc::default(), &CancellationToken::new()).await;
    let why = opened.err().unwrap();
    assert!(why.contains("lists more than 100000 parts"), "{why}");
    assert_eq!(start.elapsed().as_secs(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_long_answer_of_a_store_takes_its_room_as_briefly_as_that_of_a_node() {
    let answer = async |_: Request<Body>| {
        let begin = stream::once(async { Ok::<_, Infallible>(vec![b' '; 4096]) });
        Body::from_stream(begin.chain(stream::pending()))
    };
    let scene = Scene::of(Router::new().fallback(answer));
    let start = Instant::now();
    of(&scene.job).list().await.unwrap_err();
    assert!(start.elapsed().as_secs() < 10, "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_run_whose_records_cannot_be_read_still_has_their_location() {
    let scene = Scene::new();
    let outcome = outcome_without_records(&scene.job, "no answer".to_owned());
    let location = outcome.stored.unwrap().location;
    assert!(location.ends_with("of PersistentVolumeClaim disk"), "{location}");
}
