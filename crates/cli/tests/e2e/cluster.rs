//! Commands about runs on a cluster, with an API server that knows runs that have ended.

use std::{
    collections::BTreeMap,
    net::{SocketAddr, TcpListener},
    os::unix::fs::symlink,
    process::Command,
    sync::Arc,
    thread,
};

use axum::{
    Json, Router,
    http::{StatusCode, Uri},
};
use perfrun_api::{
    cluster::{results_to_parts, trial_line, trials_to_parts},
    results::Results,
};
use perfrun_contract::plan::Cell;
use serde_json::{Value, json};

use crate::{
    kept::{Kept, bounded, compared, run},
    perfrun::{PERFRUN, Running, Scratch},
};

/// Part of the data of a ConfigMap, which is far smaller than any of these results.
const PART_BYTES: usize = 1 << 20;

/// The namespace in the API server's paths.
const NAMESPACE: &str = "lab";

/// What the API server has, by path.
type Objects = BTreeMap<String, Value>;

/// Serves objects on a port of this machine.
fn serve(objects: Objects) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    let objects = Arc::new(objects);
    let answer = move |uri: Uri| {
        let objects = objects.clone();
        async move {
            let missing = json!({"kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404,
                "message": "not found", "details": {"kind": "perfruns"}});
            match objects.get(uri.path()) {
                Some(object) => (StatusCode::OK, Json(object.clone())),
                None => (StatusCode::NOT_FOUND, Json(missing)),
            }
        }
    };
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            axum::serve(listener, Router::new().fallback(answer)).await
        })
    });
    address
}

/// A run that has ended, and the ConfigMap with its results.
fn ended(kept: &Kept, phase: &str) -> Objects {
    let results: Results = serde_json::from_value(kept.json()).unwrap();
    let lines: String = results.trials.iter().map(trial_line).collect();
    let mut parts = trials_to_parts(&lines, PART_BYTES);
    let (name, spec) = (results.name.clone(), results.spec.clone());
    let count = results.plan.trials.len();
    parts.extend(results_to_parts(results, PART_BYTES));
    let data: BTreeMap<_, _> = parts
        .into_iter()
        .map(|(key, value)| (key, k8s_openapi::ByteString(value)))
        .collect();
    let object =
        |name: &str| json!({"name": name, "namespace": NAMESPACE, "uid": name, "resourceVersion": "1"});
    let run = json!({
        "apiVersion": "perfrun.io/v1alpha1", "kind": "PerfRun", "metadata": object(&name), "spec": spec,
        "status": {
            "phase": phase,
            "trials": {"total": count, "completed": count, "failed": 0, "skipped": 0, "progress": ""},
            "results": ["kept"],
            "conditions": [{"type": "Complete", "status": "True", "reason": phase, "message": "",
                "lastTransitionTime": "2026-11-20T00:01:00Z"}],
        },
    });
    let list = json!({"apiVersion": "perfrun.io/v1alpha1", "kind": "PerfRunList",
        "metadata": {"resourceVersion": "1"}, "items": [run]});
    let runs = format!("/apis/perfrun.io/v1alpha1/namespaces/{NAMESPACE}/perfruns");
    [
        (format!("{runs}/{name}"), run),
        (runs, list),
        (
            format!("/api/v1/namespaces/{NAMESPACE}/configmaps/kept"),
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": object("kept"), "binaryData": data}),
        ),
    ]
    .into()
}

/// A command with this API server, as `kubectl perfrun` starts it.
fn command(scratch: &Scratch, objects: Objects, args: &[&str]) -> Command {
    let address = serve(objects);
    let kubeconfig = json!({
        "clusters": [{"name": "a", "cluster": {"server": format!("http://{address}")}}],
        "users": [{"name": "a", "user": {}}],
        "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a", "namespace": NAMESPACE}}],
        "current-context": "a",
    });
    let kubeconfig = scratch.write("kubeconfig", &kubeconfig.to_string());
    let plugin = scratch.path().join("kubectl-perfrun");
    if !plugin.exists() {
        symlink(PERFRUN, &plugin).unwrap();
    }
    let mut command = Command::new(plugin);
    command
        .args(args)
        .current_dir(scratch.path())
        .env_remove("RUST_LOG")
        .env("KUBECONFIG", kubeconfig);
    command
}

#[test]
fn the_exit_status_of_watch_is_that_of_the_run() {
    let by_variant = |cell: &Cell| if cell.client.0 == "pr" { 0.9 } else { 1.0 };
    let bound = |bound: &str| run(&bounded(bound), 1, by_variant);
    for (kept, phase, status) in [
        (bound("20%"), "Succeeded", 0),
        (bound("5%"), "Succeeded", 3),
        (bound("10%"), "Succeeded", 4),
        (bound("20%"), "Failed", 1),
        (bound("20%"), "Cancelled", 1),
    ] {
        let scratch = Scratch::new();
        let watch = command(&scratch, ended(&kept, phase), &["watch", "uploads", "--quiet"]);
        Running::start(watch).ended().expect(status);
        let get = command(&scratch, ended(&kept, phase), &["get", "results", "uploads"]);
        let printed = Running::start(get).ended().expect(0);
        assert!(!printed.stdout.is_empty(), "{printed}");
    }
    let scratch = Scratch::new();
    let watch = command(&scratch, ended(&bound("20%"), "Succeeded"), &["watch", "other"]);
    let missing = Running::start(watch).ended().expect(1);
    assert!(
        missing.stderr.contains("perfrun/other does not exist"),
        "{missing}"
    );
    let usage = command(&scratch, Objects::new(), &["watch"]);
    let refused = Running::start(usage).ended().expect(2);
    assert!(refused.stderr.contains("kubectl perfrun watch"), "{refused}");
}

#[test]
fn the_list_has_the_columns_of_kubectl() {
    let scratch = Scratch::new();
    let kept = run(&compared(), 1, |_| 1.0);
    let list = command(&scratch, ended(&kept, "Succeeded"), &["list", "-o", "wide"]);
    let printed = Running::start(list).ended().expect(0);
    let lines: Vec<Vec<&str>> = printed
        .stdout
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(lines[0][..5], ["NAME", "PHASE", "VERDICT", "REASON", "TRIALS"]);
    assert_eq!(lines[1][..4], ["uploads", "Succeeded", "-", "Succeeded"]);
    assert_eq!(lines[1][6..], ["bandwidth", "-", "-"]);
}
