//! The memory of an operator whose tenants want to stop it, counted by its allocator, so that a busy machine
//! does not change it. The operator is a process of its own, which is this program, started again. It calls
//! an API server in the process of the test over HTTP.

// Helpers outside of `#[test]` functions panic to fail a test.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod api_server;
mod nodes;

use std::{
    env,
    process::Stdio,
    time::{Duration, Instant},
};

use clap::Parser;
use perfrun_api::cluster::{MANAGED_BY_LABEL, MANAGER};
use perfrun_operator::{args::Args, operator};
use perfrun_test_kit::memory::{self, Counting};
use serde_json::{Value, json};
use tempfile::NamedTempFile;
use tokio::{
    io::AsyncReadExt,
    process::{Child, Command},
    time::sleep,
};

use self::{
    api_server::{ApiServer, BULK, running},
    nodes::{HOSTILE, Hostile},
};

#[global_allocator]
static COUNTING: Counting = Counting;

/// Most bytes that the operator allocates, whatever its tenants do.
const OPERATOR_MEMORY_MAX: usize = 128 << 20;

/// The namespace of runs that have to end beside hostile ones.
const HONEST: &str = "honest";

/// The variable that makes this program an operator, and how the line begins that it prints at its end.
const OPERATOR: &str = "PERFRUN_FOOTPRINT_OPERATOR";
const PEAK: &str = "peak: ";

/// Pause between two looks at what has happened.
const PAUSE: Duration = Duration::from_millis(50);

/// An operator that takes longer has stopped.
const TIMEOUT: Duration = Duration::from_secs(300);

/// An API server, and a whole operator.
struct Scene {
    server: ApiServer,
    operator: Child,
    _kubeconfig: NamedTempFile,
}

impl Scene {
    /// Begins with an honest run beside what the server has.
    async fn begin(server: ApiServer) -> Self {
        server.put(&run_path(HONEST, HONEST), run(json!({})));
        let address = server.start().await;
        let kubeconfig = NamedTempFile::new().unwrap();
        let cluster = json!({"name": "test", "cluster": {"server": format!("http://{address}")}});
        let context = json!({"name": "test", "context": {"cluster": "test", "user": "test"}});
        let config = json!({"apiVersion": "v1", "kind": "Config", "current-context": "test", "clusters": [cluster],
            "contexts": [context], "users": [{"name": "test", "user": {}}]});
        std::fs::write(kubeconfig.path(), config.to_string()).unwrap();
        let operator = Command::new(env::current_exe().unwrap())
            .args(["--exact", "an_operator_is_a_process_of_its_own", "--nocapture"])
            .env(OPERATOR, "1")
            .env("KUBECONFIG", kubeconfig.path())
            // What the first thread of the operator's own program has.
            .env("RUST_MIN_STACK", (8 << 20).to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        Self {
            server,
            operator,
            _kubeconfig: kubeconfig,
        }
    }

    /// Waits until something has happened.
    async fn wait_until(&mut self, what: &str, has_happened: impl Fn(&ApiServer) -> bool) {
        let give_up = Instant::now() + TIMEOUT;
        while !has_happened(&self.server) {
            let ended = self.operator.try_wait().unwrap();
            assert_eq!(ended, None, "the operator ended before {what}");
            assert!(Instant::now() < give_up, "{what}: not within {TIMEOUT:?}");
            sleep(PAUSE).await;
        }
    }

    /// Waits until honest runs have been measured and have ended, ends the operator, and checks its memory.
    async fn end(mut self) {
        self.wait_until("the end of honest runs", |server| has_ended(server, HONEST))
            .await;
        let counts = self.server.nodes().counts();
        assert!(counts.honest_starts > 0, "{counts:?}");
        // It ends with its input.
        let output = self.operator.wait_with_output().await.unwrap();
        let printed = String::from_utf8_lossy(&output.stdout);
        let peak = printed.lines().find_map(|line| line.strip_prefix(PEAK));
        let peak: usize = peak.unwrap_or_else(|| panic!("{printed}")).parse().unwrap();
        // The counter works: what lists and answers bring is in it.
        assert!((1 << 20..OPERATOR_MEMORY_MAX).contains(&peak), "{peak} bytes");
    }
}

fn run_path(namespace: &str, name: &str) -> String {
    format!("/apis/perfrun.io/v1alpha1/namespaces/{namespace}/perfruns/{name}")
}

/// A run of one server and one client, with these fields of its spec.
fn run(fields: Value) -> Value {
    let mut spec = json!({
        "workload": {"ping": {"count": 1}},
        "matrix": {"clients": ["raw"], "servers": ["raw"]},
        "topology": {"placement": "Any", "exclusive": false},
        "iterations": 1,
        "warmup": 0,
    });
    let all = spec.as_object_mut().unwrap();
    all.extend(fields.as_object().unwrap().clone());
    json!({"apiVersion": "perfrun.io/v1alpha1", "kind": "PerfRun", "metadata": {"generation": 1}, "spec": spec})
}

/// Whether the runs of a namespace have ended.
fn has_ended(server: &ApiServer, namespace: &str) -> bool {
    server.runs_have(namespace, "Complete", "True")
}

/// A JSON list of almost this number of bytes, whose elements may take tens of times theirs in memory.
fn list_of(element: &str, bytes: usize) -> String {
    format!("[{}]", vec![element; bytes / (element.len() + 1) - 1].join(","))
}

#[test]
fn an_operator_is_a_process_of_its_own() {
    // The other tests start this one as their operator.
    if env::var_os(OPERATOR).is_none() {
        return;
    }
    let args = [
        "perfrun-operator",
        "--node-access=proxy",
        "--admin=127.0.0.1:0",
        "--probes=127.0.0.1:0",
        "--log=error",
    ];
    let args = Args::parse_from(args);
    args.start_logging().unwrap();
    // As in the operator's own program.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let (mut input, mut read) = (tokio::io::stdin(), [0]);
        tokio::select! {
            ended = operator::run(args) => panic!("the operator ended: {ended:?}"),
            _ = input.read(&mut read) => {}
        }
    });
    // The name of the test may be on this line.
    println!("\n{PEAK}{}", memory::peak());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_nodes_that_answer_8_mib_each_stop_no_operator_and_no_other_run() {
    let addresses = list_of("\"\"", (8 << 20) - 100);
    let status = format!(r#"{{"state":"running","bytesSent":0,"bytesReceived":0,"addresses":{addresses}}}"#);
    let hostile = Hostile {
        status: Some(status.into()),
        ..Hostile::default()
    };
    let server = ApiServer::new(String::new(), hostile);
    let topology = json!({"servers": 100, "clients": 100, "placement": "Any", "exclusive": false});
    server.put(&run_path(HOSTILE, "run"), run(json!({"topology": topology})));
    let mut scene = Scene::begin(server).await;
    let answers = |server: &ApiServer| server.nodes().counts().hostile_answers;
    scene
        .wait_until("hostile answers", |server| answers(server) > 0)
        .await;
    // It begins while hostile answers are read.
    scene.server.put(&run_path(HONEST, "late"), run(json!({})));
    scene
        .wait_until("the end of the hostile run", |server| has_ended(server, HOSTILE))
        .await;
    let answers = answers(&scene.server);
    assert!(answers >= 200, "{answers}");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_suspended_documents_of_1_4_mb_stop_no_operator_and_no_other_run() {
    let server = ApiServer::new(list_of("{}", 1_400_000), Hostile::default());
    let affinity = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": BULK}});
    let fields = json!({"suspend": true, "template": {"client": {"affinity": affinity}}});
    for number in 0..10 {
        server.put(&run_path(HOSTILE, &format!("run-{number}")), run(fields.clone()));
    }
    let mut scene = Scene::begin(server).await;
    // An operator that reads them whole accepts them.
    let is_judged = |server: &ApiServer| {
        let mut judgements = ["False", "True"].iter();
        judgements.any(|status| server.runs_have(HOSTILE, "Accepted", status))
    };
    scene.wait_until("a judgement on the documents", is_judged).await;
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_thousand_foreign_pods_with_256_kib_of_annotations_each_stop_no_operator_and_no_run() {
    let text = json!("a".repeat(256 << 10));
    let server = ApiServer::new(text.to_string(), Hostile::default());
    let metadata = json!({"labels": {MANAGED_BY_LABEL: MANAGER}, "annotations": {"a": BULK}});
    for number in 0..2000 {
        let path = format!("/api/v1/namespaces/{HOSTILE}/pods/pod-{number:04}");
        let pod = json!({"metadata": metadata, "spec": {"containers": []}, "status": running()});
        server.put(&path, pod);
    }
    // A run begins after the operator knows all pods.
    Scene::begin(server).await.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_lists_parts_of_64_mib_stops_no_operator_and_no_other_run() {
    let hostile = Hostile {
        part: vec![0_u8; 64 << 20].into(),
        ..Hostile::default()
    };
    let server = ApiServer::new(String::new(), hostile);
    let store = json!({"store": {"volume": {"claim": "a"}}});
    server.put(&run_path(HOSTILE, "run"), run(json!({"results": store})));
    let mut scene = Scene::begin(server).await;
    scene
        .wait_until("the end of the hostile run", |server| has_ended(server, HOSTILE))
        .await;
    let counts = scene.server.nodes().counts();
    assert!(counts.hostile_answers > 0, "{counts:?}");
    scene.end().await;
}
