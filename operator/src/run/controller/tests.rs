//! Reconciliations against a scripted API server.

mod deadlines;
mod ends;
mod leaders;
mod leftovers;
mod random;
mod rights;
mod scene;
mod starts;
mod store;
mod unreadable;
mod unwritten;

use std::{collections::BTreeSet, time::Duration};

use http::Method;
use jiff::{SignedDuration, Timestamp};
use kube::runtime::controller::Action;
use perfrun_api::{cluster::condition::Type, schedule::run_name};
use perfrun_test_kit::api_server::Call;
use serde_json::{Value, json};

use self::scene::{Scene, wait_for_pods};
use super::*;
use crate::{
    api::publish::CONFLICT_PAUSE,
    conduct::ConductorState,
    names,
    policy::Policy,
    test_server::{Answer, SYSTEM},
    token::KEY_SECRET,
};

const SECRETS: &str = "/secrets";
const POLICIES: &str = "/networkpolicies";
const PODS: &str = "/pods";
const STATUS: &str = "/status";

#[tokio::test(start_paused = true)]
async fn objects_are_created_in_order_and_the_status_is_written_once() {
    let mut scene = Scene::new().await;
    scene.create("a", json!({}));
    scene.reconcile("a").await.unwrap();
    let changes = scene.server.take_changes();
    let made: Vec<_> = changes
        .iter()
        .map(|call| (call.method.as_str(), call.path.rsplit('/').next().unwrap()))
        .collect();
    assert_eq!(
        made,
        [
            ("POST", "secrets"),
            ("POST", "networkpolicies"),
            ("POST", "pods"),
            ("POST", "pods"),
            ("PATCH", "status")
        ]
    );
    assert_eq!(scene.phase("a"), "Provisioning");
    assert_eq!(
        scene.condition("a", Type::Provisioned),
        ("False".into(), "Starting".into(), "0 of 2 nodes are ready".into())
    );
    scene.reconcile("a").await.unwrap();
    assert!(
        scene.server.take_changes().is_empty(),
        "the second reconciliation is harmless"
    );
}

/// Templates that the API server never takes, and a few more of its answers.
#[tokio::test(start_paused = true)]
async fn an_object_that_can_never_be_created_ends_the_run_with_the_message() {
    for (path, code, message) in [
        (PODS, 422, "spec.topologySpreadConstraints[1]: Duplicate value"),
        (PODS, 400, "quantities must match the regular expression"),
        (PODS, 413, "the object is too large"),
        (
            PODS,
            500,
            "failed to create typed patch object (bench/a; /v1, Kind=Pod): duplicate entries",
        ),
        (SECRETS, 422, "metadata.name: Invalid value"),
        (POLICIES, 400, "cannot be handled"),
    ] {
        let mut scene = Scene::new().await;
        scene.create("a", json!({}));
        scene
            .server
            .script(Method::POST, path, Answer::Refuse(code, message));
        scene.reconcile("a").await.unwrap();
        assert_eq!(scene.phase("a"), "Failed", "{message}");
        let (_, reason, why) = scene.condition("a", Type::Complete);
        assert!(why.ends_with(message), "{why}");
        assert!(["PodRefused", "APIServerRefuses"].contains(&&*reason), "{reason}");
    }
}

/// Every object, and every answer that may change.
#[tokio::test(start_paused = true)]
async fn a_temporarily_refused_object_is_retried_until_the_provision_timeout() {
    for path in [SECRETS, POLICIES, PODS] {
        for (answer, reason, message) in [
            (
                Answer::Refuse(403, "exceeded quota: small"),
                "",
                "exceeded quota: small",
            ),
            (Answer::Refuse(429, "slow down"), "", "slow down"),
            (
                Answer::Refuse(500, "failed calling webhook"),
                "APIServerRefuses",
                "failed calling webhook",
            ),
            (
                Answer::Refuse(503, "etcd is away"),
                "APIServerRefuses",
                "etcd is away",
            ),
            (Answer::Silence, "APIServerUnreachable", "no answer within 30s"),
        ] {
            let mut scene = Scene::new().await;
            scene.create("a", json!({}));
            scene.server.script(Method::POST, path, answer);
            let action = scene.reconcile("a").await.unwrap();
            assert_ne!(action, Action::await_change(), "{path} {answer:?}");
            let (status, stated, why) = scene.condition("a", Type::Provisioned);
            assert_eq!(status, "False", "{path} {answer:?}");
            assert!(
                stated.contains(reason) && why.ends_with(message),
                "{path} {answer:?}: {stated}: {why}"
            );
            scene.later(61).await;
            scene.reconcile("a").await.unwrap();
            let (status, ended, why) = scene.condition("a", Type::Complete);
            assert_eq!((status.as_str(), ended), ("True", stated), "{path} {answer:?}");
            assert!(why.ends_with(message), "{path} {answer:?}: {why}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_starts_when_the_api_server_has_recovered() {
    let mut scene = Scene::new().await;
    scene.create("a", json!({}));
    scene.server.script_times(
        1,
        Method::POST,
        PODS,
        Answer::Refuse(500, "failed calling webhook"),
    );
    assert_eq!(
        scene.reconcile("a").await.unwrap(),
        Action::requeue(Duration::from_secs(2))
    );
    scene.later(2).await;
    scene.reconcile("a").await.unwrap();
    assert_eq!(scene.condition("a", Type::Provisioned).1, "Starting");
    assert_eq!(scene.server.objects(PODS).len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_to_a_creation_is_not_taken_for_a_conflict() {
    let mut scene = Scene::new().await;
    scene.create("a", json!({"timeouts": {"provision": "5m"}}));
    for path in [SECRETS, POLICIES, PODS] {
        scene
            .server
            .script_times(1, Method::POST, path, Answer::DoSilently);
        scene.reconcile_by_old_objects("a").await.unwrap();
        scene.later(2).await;
        scene.sync_runs();
    }
    scene.reconcile_by_old_objects("a").await.unwrap();
    assert_eq!(scene.condition("a", Type::Provisioned).1, "Starting");
    assert_eq!(scene.server.objects(PODS).len(), 2);
}

#[tokio::test(start_paused = true)]
async fn an_object_of_another_owner_that_is_being_deleted_does_not_end_the_run() {
    let mut scene = Scene::new().await;
    scene.create("a", json!({}));
    let name = scene.pod_name("a", "server-0", 0);
    let pod = format!("/api/v1/namespaces/bench/pods/{name}");
    scene.server.put(&pod, json!({"metadata": {"name": name}}));
    scene
        .server
        .script(Method::GET, "/pods/", Answer::Refuse(404, "not found"));
    scene.reconcile("a").await.unwrap();
    let (status, reason, why) = scene.condition("a", Type::Provisioned);
    assert_eq!((&*status, &*reason), ("False", "APIServerRefuses"), "{why}");
}

#[tokio::test(start_paused = true)]
async fn an_object_of_another_owner_ends_the_run() {
    let mut scene = Scene::new().await;
    scene.create("a", json!({}));
    let pod = json!({"metadata": {"name": "a-1b2a9-server-0-0", "ownerReferences": [
        {"apiVersion": "v1", "kind": "PerfRun", "name": "a", "uid": "another"}]}});
    let name = scene.pod_name("a", "server-0", 0);
    scene
        .server
        .put(&format!("/api/v1/namespaces/bench/pods/{name}"), pod);
    scene.reconcile("a").await.unwrap();
    let (_, reason, why) = scene.condition("a", Type::Complete);
    assert_eq!(reason, "NameConflict");
    assert!(
        why.contains(&name) && why.contains("does not belong to this run"),
        "{why}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_run_whose_objects_were_refused_does_not_block_the_next_one() {
    let mut scene = Scene::new().await;
    scene.create("first", json!({}));
    scene.create("second", json!({}));
    scene
        .server
        .script_times(1, Method::POST, SECRETS, Answer::Refuse(403, "exceeded quota"));
    scene.reconcile("first").await.unwrap();
    assert_eq!(scene.condition("first", Type::Provisioned).1, "APIServerRefuses");
    scene.reconcile("second").await.unwrap();
    assert_eq!(scene.condition("second", Type::Provisioned).1, "Starting");
    scene.reconcile("first").await.unwrap();
    let (_, reason, why) = scene.condition("first", Type::Provisioned);
    assert_eq!(reason, "WaitingForOtherRuns");
    assert!(why.starts_with("bench/second is active"), "{why}");
}

#[tokio::test(start_paused = true)]
async fn two_reconciliations_at_the_same_time_start_one_exclusive_run() {
    let mut scene = Scene::new().await;
    scene.create("first", json!({}));
    scene.create("second", json!({}));
    scene.sync();
    // The first reconciliation hangs in its first request.
    scene
        .server
        .script_times(1, Method::POST, SECRETS, Answer::Silence);
    let hanging = tokio::spawn(reconcile(scene.watched("first"), scene.context.clone()));
    tokio::task::yield_now().await;
    reconcile(scene.watched("second"), scene.context.clone())
        .await
        .unwrap();
    let (_, reason, why) = scene.condition("second", Type::Provisioned);
    assert_eq!(reason, "WaitingForOtherRuns");
    assert!(why.starts_with("bench/first is active"), "{why}");
    hanging.await.unwrap().unwrap();
    scene.reconcile("second").await.unwrap();
    assert_eq!(scene.condition("second", Type::Provisioned).1, "Starting");
}

#[tokio::test(start_paused = true)]
async fn a_run_with_a_finalizer_gives_up_its_pods_and_its_turn() {
    let mut scene = Scene::new().await;
    scene.create("first", json!({}));
    scene.reconcile("first").await.unwrap();
    scene.create("second", json!({}));
    scene.reconcile("second").await.unwrap();
    assert_eq!(
        scene.condition("second", Type::Provisioned).1,
        "WaitingForOtherRuns"
    );
    scene.change("first", |run| {
        run["metadata"]["finalizers"] = json!(["example.com/never"]);
        run["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:01Z".into();
    });
    scene.server.take_changes();
    scene.woken();
    scene.reconcile("first").await.unwrap();
    let changes = scene.server.take_changes();
    assert!(are_deletions_of_pods(&changes), "{changes:?}");
    assert_eq!(scene.woken(), ["second"], "it may start now");
    scene.pods_stop();
    scene.reconcile("second").await.unwrap();
    assert_eq!(scene.condition("second", Type::Provisioned).1, "Starting");
}

#[tokio::test(start_paused = true)]
async fn a_run_deleted_during_its_reconciliation_is_not_an_error() {
    let mut scene = Scene::new().await;
    scene.create("a", json!({}));
    scene.sync();
    scene.server.remove(&Scene::path("a"));
    scene.reconcile_by_old_objects("a").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn nothing_is_kept_of_a_run_deleted_during_its_reconciliation() {
    let mut scene = Scene::new().await;
    scene.create("a", json!({}));
    scene.sync();
    scene.server.script(Method::POST, SECRETS, Answer::DoLate(5));
    let reconciled = tokio::spawn(reconcile(scene.watched("a"), scene.context.clone()));
    tokio::task::yield_now().await;
    scene.server.remove(&Scene::path("a"));
    scene.sync_some(|| true);
    reconciled.await.unwrap().unwrap();
    let Context { turns, times, .. } = &*scene.context;
    let known = [
        turns.uids_except(&BTreeSet::new()),
        times.uids_except(&BTreeSet::new()),
    ];
    assert!(known.iter().all(Vec::is_empty), "{known:?}");
}

#[tokio::test(start_paused = true)]
async fn a_conductor_that_panics_repeatedly_ends_the_run() {
    let mut scene = Scene::starting().await;
    scene.pods_are_ready();
    for _ in 0..3 {
        scene.panic("a").await;
    }
    scene.reconcile("a").await.unwrap();
    let (_, reason, why) = scene.condition("a", Type::Complete);
    assert_eq!(reason, "Internal");
    assert!(why.contains("panicked 3 times"), "{why}");
}

#[tokio::test(start_paused = true)]
async fn pods_are_deleted_when_a_run_is_suspended_and_a_failure_to_do_so_is_retried() {
    let mut scene = Scene::starting().await;
    scene.change("a", |run| run["spec"]["suspend"] = true.into());
    scene
        .server
        .script_times(1, Method::DELETE, "/pods/", Answer::Refuse(500, "etcd is away"));
    assert_eq!(
        scene.reconcile("a").await.unwrap(),
        Action::requeue(Duration::from_secs(2))
    );
    assert_eq!(scene.condition("a", Type::Provisioned).1, "Suspended");
    scene.reconcile("a").await.unwrap();
    assert_eq!(scene.pods_and_deleted(), (2, 2));
}

#[tokio::test(start_paused = true)]
async fn a_deleted_pod_is_not_created_again_under_its_name() {
    let mut scene = Scene::starting().await;
    scene.pods_are_ready();
    scene.server.script(Method::GET, "/proxy/", Answer::Silence);
    scene.reconcile("a").await.unwrap();
    let deleted = scene.pod_paths()[0].clone();
    scene.server.remove(&deleted);
    scene.reconcile("a").await.unwrap();
    let pods = scene.pod_paths();
    assert!(pods.len() == 2 && !pods.contains(&deleted), "{pods:?}");
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_has_the_name_of_a_deleted_one_stays() {
    let mut scene = Scene::starting().await;
    scene.sync();
    let [deleted, _] = &scene.pod_paths()[..] else {
        panic!("not two pods")
    };
    // The watch has not shown it yet.
    scene
        .server
        .change(deleted, |pod| pod["metadata"]["uid"] = "another".into());
    scene.change("a", |run| run["spec"]["suspend"] = true.into());
    scene.sync_runs();
    scene.reconcile_by_old_objects("a").await.unwrap();
    let is_deleted = |path: &str| {
        let pod = scene.server.object(path).unwrap();
        !pod["metadata"]["deletionTimestamp"].is_null()
    };
    let pods = scene.pod_paths();
    let kept: Vec<_> = pods.iter().filter(|path| !is_deleted(path)).collect();
    assert_eq!(kept, [deleted]);
}

#[tokio::test(start_paused = true)]
async fn a_pod_with_the_labels_of_a_run_and_another_owner_stays() {
    let mut scene = Scene::starting().await;
    let foreign = "/api/v1/namespaces/bench/pods/foreign";
    let mut pod = scene.server.object(&scene.pod_paths()[0]).unwrap();
    pod["metadata"] = json!({"name": "foreign", "namespace": "bench", "labels": pod["metadata"]["labels"]});
    scene.server.put(foreign, pod);
    scene.change("a", |run| run["spec"]["suspend"] = true.into());
    scene.reconcile("a").await.unwrap();
    let pod = scene.server.object(foreign).unwrap();
    assert!(pod["metadata"]["deletionTimestamp"].is_null(), "{pod}");
}

#[tokio::test(start_paused = true)]
async fn a_document_against_the_policy_is_refused_unless_its_trials_have_begun() {
    let policy = |json: &str| serde_json::from_str::<Policy>(json).unwrap();
    let stacks = json!({"stacks": [{"name": "libp2p", "stack": "libp2p", "image": "node:mine"}]});
    let mut scene = Scene::new().await;
    scene.create("a", stacks.clone());
    scene.allow(policy(r#"{"allowedImages": []}"#));
    scene.reconcile("a").await.unwrap();
    let (status, reason, why) = scene.condition("a", Type::Accepted);
    assert_eq!((status.as_str(), reason.as_str()), ("False", "NotAllowed"));
    assert!(why.contains("spec.stacks[0].image is \"node:mine\""), "{why}");
    assert!(why.ends_with("in namespace perfrun-system"), "{why}");
    assert_eq!(scene.phase("a"), "Failed");
    assert!(scene.server.objects(PODS).is_empty());

    scene.allow(Policy::default());
    scene.create("b", stacks);
    scene.reconcile("b").await.unwrap();
    scene.pods_are_ready();
    scene.server.script(Method::GET, "/proxy/", Answer::Silence);
    scene.reconcile("b").await.unwrap();
    assert_eq!(scene.phase("b"), "Running");
    scene.allow(policy(r#"{"allowedImages": []}"#));
    scene.reconcile("b").await.unwrap();
    assert_eq!(scene.phase("b"), "Running", "it costs no measurements");
}

#[tokio::test(start_paused = true)]
async fn a_run_that_cannot_end_in_its_time_is_refused_unless_its_trials_have_begun() {
    let taking =
        |run: &str| json!({"workload": {"ping": {"count": 61, "interval": "1s"}}, "timeouts": {"run": run}});
    let mut scene = Scene::new().await;
    scene.create("a", taking("10m"));
    scene.reconcile("a").await.unwrap();
    let (status, reason, why) = scene.condition("a", Type::Accepted);
    assert_eq!((status.as_str(), reason.as_str()), ("False", "Invalid"));
    assert!(
        why.starts_with("cannot end within timeouts.run, 10 min: its 11 trials take at least 11 min;"),
        "{why}"
    );
    assert_eq!(scene.phase("a"), "Failed");
    assert!(scene.server.objects(PODS).is_empty());

    scene.create("b", taking("20m"));
    scene.reconcile("b").await.unwrap();
    scene.pods_are_ready();
    scene.server.script(Method::GET, "/proxy/", Answer::Silence);
    scene.reconcile("b").await.unwrap();
    assert_eq!(scene.phase("b"), "Running");
    // As if an operator that did not refuse it had begun it.
    scene.change("b", |run| {
        run["spec"]["timeouts"]["run"] = "10m".into();
        run["metadata"]["generation"] = 2.into();
    });
    scene.reconcile("b").await.unwrap();
    assert_eq!(scene.phase("b"), "Running", "what it has measured counts");
}

#[tokio::test(start_paused = true)]
async fn a_namespace_that_has_had_a_turn_lets_another_go_first() {
    let mut scene = Scene::new().await;
    for name in ["first", "second"] {
        scene.create(name, json!({}));
    }
    scene.create_in("others", "late", json!({}));
    scene.reconcile("first").await.unwrap();
    scene.change("first", |run| run["spec"]["cancel"] = true.into());
    scene.reconcile("first").await.unwrap();
    assert_eq!(scene.phase("first"), "Cancelled");
    scene.reconcile("second").await.unwrap();
    let (_, reason, why) = scene.condition("second", Type::Provisioned);
    assert_eq!(reason, "WaitingForOtherRuns");
    assert_eq!(
        why,
        "other runs come first: namespaces take turns, and within a namespace the earliest run comes first"
    );
}

/// Reconciling a thousand waiting runs would keep the first from starting.
#[tokio::test(start_paused = true)]
async fn the_end_and_the_start_of_a_run_wake_only_the_one_that_goes_first() {
    let mut scene = Scene::new().await;
    let names = ["run-1", "run-2", "run-3", "run-4"];
    for name in names {
        scene.create(name, json!({}));
    }
    for name in names {
        scene.reconcile(name).await.unwrap();
    }
    assert_eq!(scene.woken(), ["run-2"], "it learns what it waits for");
    scene.change("run-1", |run| run["spec"]["cancel"] = true.into());
    scene.reconcile("run-1").await.unwrap();
    assert_eq!(scene.phase("run-1"), "Cancelled");
    assert_eq!(scene.woken(), ["run-2"]);
    scene.pods_stop();
    scene.reconcile("run-2").await.unwrap();
    assert_eq!(scene.phase("run-2"), "Provisioning");
    assert_eq!(scene.woken(), ["run-3"]);
    let action = scene.reconcile("run-3").await.unwrap();
    assert_eq!(action, Action::await_change(), "it is woken when it comes first");
}

#[tokio::test(start_paused = true)]
async fn a_run_whose_first_object_is_refused_wakes_the_one_that_goes_first_now() {
    let mut scene = Scene::new().await;
    scene.create("refused", json!({}));
    scene.create("waits", json!({}));
    scene.server.script_times(
        2,
        Method::POST,
        SECRETS,
        Answer::Refuse(500, "failed calling webhook"),
    );
    scene.reconcile("refused").await.unwrap();
    assert_eq!(scene.phase("refused"), "Provisioning");
    assert_eq!(scene.woken(), ["refused"], "the watch shows the refusal later");
    scene.reconcile("refused").await.unwrap();
    assert_eq!(scene.woken(), ["waits"]);
    scene.reconcile("waits").await.unwrap();
    assert_eq!(scene.server.objects(PODS).len(), 2);
}

fn are_deletions_of_pods(changes: &[Call]) -> bool {
    let is_of_pod = |call: &Call| call.method == Method::DELETE && call.path.contains("/pods/");
    changes.len() == 2 && changes.iter().all(is_of_pod)
}

#[tokio::test(start_paused = true)]
async fn watches_that_end_or_fall_behind_lose_no_run() {
    let scene = Scene::new().await;
    let operator = scene.operate();
    let server = &scene.server;
    scene.create("before", json!({"topology": {"exclusive": false}}));
    wait_for_pods(server, "before").await;
    server.end_watches();
    scene.create("after-the-end", json!({"topology": {"exclusive": false}}));
    wait_for_pods(server, "after-the-end").await;
    server.script_times(2, Method::GET, "/perfruns", Answer::Refuse(500, "etcd is away"));
    server.expire_watches();
    server.remove(&Scene::path("before"));
    scene.create("after-a-new-list", json!({"topology": {"exclusive": false}}));
    wait_for_pods(server, "after-a-new-list").await;
    operator.abort();
}

#[tokio::test(start_paused = true)]
async fn the_answer_to_a_change_has_only_metadata() {
    let mut scene = Scene::starting().await;
    scene.change("a", |run| run["spec"]["suspend"] = true.into());
    scene.reconcile("a").await.unwrap();
    let mut changes = scene.server.take_changes();
    changes.retain(|call| [Method::PATCH, Method::DELETE].contains(&call.method));
    let are_small = changes.iter().all(|call| call.wants_metadata);
    assert!(changes.len() == 4 && are_small, "{changes:?}");
}

#[tokio::test(start_paused = true)]
async fn an_operator_with_many_runs_makes_few_requests_at_a_time() {
    const RUNS: usize = 200;
    let scene = Scene::new().await;
    for number in 0..RUNS {
        scene.create(&format!("run-{number}"), json!({"suspend": true}));
    }
    scene.server.script(Method::PATCH, "/status", Answer::DoLate(1));
    let operator = scene.operate();
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(
        scene.server.take_changes().len(),
        usize::from(crate::operator::RECONCILIATIONS_MAX)
    );
    tokio::time::sleep(Duration::from_secs(10)).await;
    let runs = scene.server.objects("/perfruns");
    let are_reported = runs.iter().all(|run| !run["status"].is_null());
    assert!(runs.len() == RUNS && are_reported, "{runs:?}");
    operator.abort();
}

#[tokio::test(start_paused = true)]
async fn a_run_starts_although_the_one_before_it_fails_to_start() {
    let scene = Scene::new().await;
    let operator = scene.operate();
    scene
        .server
        .script(Method::POST, "/namespaces/others/secrets", Answer::Silence);
    scene.create_in("others", "hangs", json!({"timeouts": {"provision": "1h"}}));
    tokio::time::sleep(Duration::from_secs(1)).await;
    scene.create("waits", json!({}));
    wait_for_pods(&scene.server, "waits").await;
    operator.abort();
}

#[tokio::test(start_paused = true)]
async fn a_run_starts_after_the_one_before_it_is_deleted_or_suspended() {
    let leaves: [fn(&Scene); 2] = [
        |scene| scene.server.remove(&Scene::path("first")),
        |scene| scene.change("first", |run| run["spec"]["suspend"] = true.into()),
    ];
    for leave in leaves {
        let scene = Scene::new().await;
        let operator = scene.operate();
        let shares = json!({"topology": {"exclusive": false}, "timeouts": {"provision": "1h"}});
        scene.create("active", shares.clone());
        wait_for_pods(&scene.server, "active").await;
        scene.create("first", json!({}));
        scene.create("second", shares);
        tokio::time::sleep(Duration::from_secs(1)).await;
        for name in ["first", "second"] {
            assert_eq!(scene.condition(name, Type::Provisioned).1, "WaitingForOtherRuns");
        }
        leave(&scene);
        wait_for_pods(&scene.server, "second").await;
        operator.abort();
    }
}
