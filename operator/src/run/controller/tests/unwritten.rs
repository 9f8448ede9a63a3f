//! Statuses that the API server does not take.

use perfrun_contract::{
    run::Phase,
    tally::{Conclusion, EndReason},
};

use super::*;
use crate::conduct::{Progress, RunOutcome};

/// A part of the path of the status of run `a`.
const STATUS_OF_A: &str = "/perfruns/a/status";

#[tokio::test(start_paused = true)]
async fn a_run_whose_status_is_never_taken_frees_its_turn_and_loses_its_pods() {
    for answer in [
        Answer::Refuse(422, "status.phase: Unsupported value"),
        Answer::Refuse(500, "etcdserver: request is too large"),
        Answer::Refuse(409, "the object has been modified"),
        Answer::Silence,
    ] {
        let mut scene = Scene::new().await;
        scene.create("a", json!({}));
        scene.create("b", json!({}));
        scene.server.script(Method::PATCH, STATUS_OF_A, answer);
        let _ = scene.reconcile("a").await;
        scene.later(61).await;
        let _ = scene.reconcile("a").await;
        scene.reconcile("b").await.unwrap();
        let reason = scene.condition("b", Type::Provisioned).1;
        assert_eq!(reason, "WaitingForOtherRuns", "{answer:?}");
        scene.later(300).await;
        let _ = scene.reconcile("a").await;
        assert_eq!(scene.pods_and_deleted(), (2, 2), "{answer:?}");
        scene.pods_stop();
        scene.reconcile("b").await.unwrap();
        let reason = scene.condition("b", Type::Provisioned).1;
        assert_eq!(reason, "Starting", "{answer:?}");
        assert_eq!(scene.status("a"), Value::Null, "{answer:?}");
        scene.server.end_script();
        scene.reconcile("a").await.unwrap();
        let reason = scene.condition("a", Type::Complete).1;
        assert_eq!(reason, "ProvisionTimeout", "{answer:?}: its end is not lost");
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_whose_end_was_written_without_an_answer_has_its_turn_until_its_pods_are_deleted() {
    let mut scene = Scene::overdue().await;
    scene
        .server
        .script_times(1, Method::PATCH, STATUS_OF_A, Answer::DoSilently);
    scene.reconcile("a").await.unwrap_err();
    assert_eq!(scene.phase("a"), "Failed");
    scene.create("b", json!({}));
    for why in ["bench/a is active", "pods of an earlier run are still stopping"] {
        scene.reconcile("b").await.unwrap();
        let message = scene.condition("b", Type::Provisioned).2;
        assert!(message.starts_with(why), "{message}");
        scene.reconcile("a").await.unwrap();
    }
    scene.pods_stop();
    scene.reconcile("b").await.unwrap();
    assert_eq!(scene.condition("b", Type::Provisioned).1, "Starting");
}

#[tokio::test(start_paused = true)]
async fn pods_that_are_kept_after_an_end_without_an_answer_keep_nobody_waiting() {
    let mut scene = Scene::new().await;
    scene.create("a", json!({"cleanup": {"keepPodsOnFailure": true}}));
    scene.reconcile("a").await.unwrap();
    scene.later(61).await;
    scene
        .server
        .script_times(1, Method::PATCH, STATUS_OF_A, Answer::DoSilently);
    scene.reconcile("a").await.unwrap_err();
    scene.reconcile("a").await.unwrap();
    assert_eq!(
        (scene.phase("a").as_str(), scene.pod_paths().len()),
        ("Failed", 2)
    );
    scene.create("b", json!({}));
    scene.reconcile("b").await.unwrap();
    assert_eq!(scene.condition("b", Type::Provisioned).1, "Starting");
}

#[tokio::test(start_paused = true)]
async fn a_run_whose_end_somebody_overwrites_ends_again_and_loses_its_pods() {
    let mut scene = Scene::starting().await;
    let before = scene.status("a");
    scene.later(61).await;
    scene.reconcile("a").await.unwrap();
    scene.change("a", |run| run["status"] = before);
    scene.reconcile("a").await.unwrap();
    assert_eq!(
        scene.phase("a"),
        "Provisioning",
        "the watch may show what was before"
    );
    scene.later(600).await;
    scene.reconcile("a").await.unwrap();
    assert_eq!(scene.phase("a"), "Failed");
    scene.reconcile("a").await.unwrap();
    assert_eq!(scene.pods_and_deleted(), (2, 2));
}

#[tokio::test(start_paused = true)]
async fn a_run_that_has_ended_does_not_begin_again_however_late_the_watch_is() {
    let mut scene = Scene::overdue().await;
    scene.reconcile("a").await.unwrap();
    assert_eq!(scene.phase("a"), "Failed");
    scene.server.take_changes();
    for _ in 0..3 {
        scene.later(600).await;
        scene.reconcile_by_old_objects("a").await.unwrap();
        scene.reconcile_by_old_objects("a").await.unwrap();
    }
    assert!(scene.server.take_changes().is_empty());
    assert_eq!(scene.phase("a"), "Failed");
}

#[tokio::test(start_paused = true)]
async fn a_suspended_run_whose_status_is_refused_gives_up_its_turn() {
    let mut scene = Scene::starting().await;
    scene.create("b", json!({}));
    scene.change("a", |run| run["spec"]["suspend"] = true.into());
    let refuses = Answer::Refuse(500, "failed calling webhook");
    scene.server.script(Method::PATCH, STATUS_OF_A, refuses);
    scene.reconcile("a").await.unwrap_err();
    scene.pods_stop();
    scene.reconcile("b").await.unwrap();
    assert_eq!(scene.condition("b", Type::Provisioned).1, "Starting");
}

#[tokio::test(start_paused = true)]
async fn a_status_that_is_too_large_is_written_without_its_summary() {
    let row = json!({"cell": "a", "metric": "roundTripP50", "unit": "seconds", "count": 1, "median": 1.0,
        "mean": 1.0, "min": 1.0, "max": 1.0});
    let outcome = RunOutcome {
        conclusion: Conclusion {
            phase: Phase::Succeeded,
            reason: EndReason::Succeeded,
            message: "all trials completed".to_owned(),
        },
        progress: Progress::default(),
        summary: vec![serde_json::from_value(row).unwrap()],
        judged: None,
        merged: None,
        results: vec!["a-results-0".to_owned()],
        stored: None,
    };
    let mut scene = Scene::starting().await;
    scene.conduct("a", async { outcome }).await;
    let refuses = Answer::Refuse(413, "Request entity too large");
    scene.server.script_times(1, Method::PATCH, STATUS, refuses);
    scene.reconcile("a").await.unwrap();
    assert_eq!(scene.phase("a"), "Succeeded");
    let status = scene.status("a");
    assert_eq!(status["summary"], Value::Null);
    assert_eq!(status["results"], json!(["a-results-0"]));
    let reasons = scene.server.event_reasons();
    assert!(reasons.contains(&"APIServerRefuses".to_owned()), "{reasons:?}");
}

#[tokio::test(start_paused = true)]
async fn a_run_that_fails_to_reconcile_is_reconciled_after_a_growing_pause() {
    let mut scene = Scene::new().await;
    scene.create("a", json!({}));
    let refuses = Answer::Refuse(500, "etcd is away");
    scene.server.script(Method::PATCH, STATUS_OF_A, refuses);
    for seconds in [2, 4, 8] {
        let error = scene.reconcile("a").await.unwrap_err();
        let action = after_error(scene.watched("a"), &error, scene.context.clone());
        assert_eq!(action, Action::requeue(Duration::from_secs(seconds)));
    }
}
