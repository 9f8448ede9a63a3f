//! Runs that this version cannot read, or not completely.

use super::*;

#[tokio::test(start_paused = true)]
async fn an_unreadable_status_is_never_written_and_does_not_block_other_runs() {
    let mut scene = Scene::new().await;
    scene.create("tomorrow", json!({}));
    scene.reconcile("tomorrow").await.unwrap();
    scene.change("tomorrow", |run| run["status"]["phase"] = 42.into());
    let before = scene.status("tomorrow");
    scene.server.take_changes();
    scene.reconcile("tomorrow").await.unwrap();
    assert!(scene.server.take_changes().is_empty());
    assert_eq!(scene.status("tomorrow"), before);
    assert!(
        scene
            .server
            .event_reasons()
            .contains(&"StatusUnreadable".to_owned())
    );
    scene.create("today", json!({}));
    // Its nodes may still measure.
    scene.pods_stop();
    scene.reconcile("today").await.unwrap();
    assert_eq!(scene.condition("today", Type::Provisioned).1, "Starting");
}

/// A run that has pods and can no longer be read, and another that waits.
async fn tomorrow_and_today() -> Scene {
    let mut scene = Scene::new().await;
    scene.create("tomorrow", json!({}));
    scene.reconcile("tomorrow").await.unwrap();
    scene.change("tomorrow", |run| run["spec"]["workload"] = 42.into());
    scene.create("today", json!({}));
    scene
}

/// The other waits until the pods are gone.
async fn today_waits(mut scene: Scene) {
    scene.later(100).await;
    let still = "pods of an earlier run are still stopping";
    for why in ["bench/tomorrow is active", still] {
        scene.reconcile("today").await.unwrap();
        let message = scene.condition("today", Type::Provisioned).2;
        assert!(message.starts_with(why), "{message}");
        scene.reconcile("tomorrow").await.unwrap();
    }
    scene.pods_stop();
    scene.reconcile("today").await.unwrap();
    assert_eq!(scene.condition("today", Type::Provisioned).1, "Starting");
}

#[tokio::test(start_paused = true)]
async fn a_run_waits_for_the_pods_of_one_that_can_no_longer_be_read() {
    today_waits(tomorrow_and_today().await).await;
}

#[tokio::test(start_paused = true)]
async fn a_new_leader_waits_for_the_pods_of_a_run_that_it_cannot_read() {
    let before = tomorrow_and_today().await;
    today_waits(before.successor().await).await;
}

#[tokio::test(start_paused = true)]
async fn a_run_of_a_newer_version_is_continued_and_left_as_it_is_once_it_has_ended() {
    let mut scene = Scene::new().await;
    scene.create("going", json!({}));
    scene.create("ended", json!({"cancel": true}));
    for name in ["going", "ended"] {
        scene.reconcile(name).await.unwrap();
        let summary = json!([{"cell": "a", "metric": "jitterP50", "unit": "seconds", "count": 1, "median": 1.0,
            "mean": 1.0, "min": 1.0, "max": 1.0, "flags": {"Overheated": 1}}]);
        scene.change(name, |run| {
            run["status"]["phase"] = "Hibernating".into();
            run["status"]["summary"] = summary;
        });
    }
    let before = scene.status("ended");
    scene.server.take_changes();
    scene.reconcile("ended").await.unwrap();
    assert!(scene.server.take_changes().is_empty());
    assert_eq!(scene.status("ended"), before);
    scene.reconcile("going").await.unwrap();
    assert_eq!(scene.phase("going"), "Provisioning");
    assert_eq!(scene.status("going")["summary"], before["summary"]);
}

#[tokio::test(start_paused = true)]
async fn a_run_in_a_phase_of_a_newer_version_keeps_its_turn() {
    let mut scene = Scene::new().await;
    scene.create("going", json!({}));
    scene.change("going", |run| {
        run["status"] = json!({"phase": "Hibernating", "conditions": [{"type": "Running", "status": "True",
            "reason": "Measuring", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]});
    });
    // Of two runs that wait, this one would come first.
    scene.create("first", json!({}));
    scene.reconcile("first").await.unwrap();
    assert_eq!(
        scene.condition("first", Type::Provisioned).1,
        "WaitingForOtherRuns"
    );
}

#[tokio::test(start_paused = true)]
async fn a_run_whose_spec_is_not_kept_is_read_again() {
    let mut scene = Scene::new().await;
    scene.create(
        "a",
        json!({"template": {"client": {"nodeSelector": {"disk": "fast"}}}}),
    );
    scene.sync();
    let mut unkept = WatchedRun::clone(&scene.watched("a"));
    unkept.keep_within(|_| None);
    let reconciled = reconcile(Arc::new(unkept), scene.context.clone()).await;
    reconciled.unwrap();
    let pods = scene.server.objects("/pods");
    let selects = |pod: &&Value| pod["spec"]["nodeSelector"]["disk"] == "fast";
    assert_eq!((pods.len(), pods.iter().filter(selects).count()), (2, 1));
}

#[tokio::test(start_paused = true)]
async fn an_unreadable_spec_only_gets_a_condition() {
    let mut scene = Scene::starting().await;
    scene.change("a", |run| run["spec"]["workload"] = 42.into());
    let before = scene.status("a");
    scene.reconcile("a").await.unwrap();
    let after = scene.status("a");
    let (status, reason, why) = scene.condition("a", Type::Accepted);
    assert_eq!((status.as_str(), reason.as_str()), ("False", "Malformed"));
    assert!(why.contains("42"), "{why}");
    for kept in ["phase", "trials", "startTime"] {
        assert_eq!(after[kept], before[kept]);
    }
    scene.server.take_changes();
    scene.later(60).await;
    scene.reconcile("a").await.unwrap();
    assert!(scene.server.take_changes().is_empty(), "it is written once");
}

#[tokio::test(start_paused = true)]
async fn an_unreadable_run_that_has_ended_is_left_alone() {
    let mut scene = Scene::new().await;
    scene.create("a", json!({"suspend": true, "cancel": true}));
    scene.reconcile("a").await.unwrap();
    assert_eq!(scene.phase("a"), "Cancelled");
    scene.change("a", |run| run["spec"]["workload"] = 42.into());
    scene.server.take_changes();
    scene.reconcile("a").await.unwrap();
    assert!(scene.server.take_changes().is_empty());
}
