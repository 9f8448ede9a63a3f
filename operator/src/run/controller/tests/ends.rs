//! Tests of how the end of a run and its status are written.

use super::*;

#[tokio::test(start_paused = true)]
async fn the_end_of_a_run_is_written_before_its_pods_are_deleted() {
    let mut scene = Scene::overdue().await;
    scene.server.take_changes();
    scene.reconcile("a").await.unwrap();
    let changes = scene.server.take_changes();
    assert!(
        matches!(&changes[..], [call] if call.path.ends_with(STATUS)),
        "{changes:?}"
    );
    assert_eq!(scene.phase("a"), "Failed");
    scene.reconcile("a").await.unwrap();
    let changes = scene.server.take_changes();
    assert!(are_deletions_of_pods(&changes), "{changes:?}");
}

#[tokio::test(start_paused = true)]
async fn a_reconciliation_that_sees_an_old_version_of_an_ended_run_changes_nothing() {
    let mut scene = Scene::overdue().await;
    scene.reconcile("a").await.unwrap();
    assert_eq!(scene.phase("a"), "Failed");
    for pod in scene.pod_paths() {
        scene.server.remove(&pod);
    }
    scene.server.take_changes();
    // The watch of pods is ahead of that of runs.
    scene.sync_pods();
    let action = scene.reconcile_by_old_objects("a").await.unwrap();
    assert_eq!(action, Action::requeue(END_SHOWN_TIMEOUT));
    assert!(scene.server.take_changes().is_empty());
    scene.reconcile("a").await.unwrap();
    assert_eq!(scene.phase("a"), "Failed");
}

#[tokio::test(start_paused = true)]
async fn a_conflict_of_the_status_is_retried() {
    let mut scene = Scene::new().await;
    scene.create("a", json!({}));
    scene.sync();
    scene.change("a", |run| run["metadata"]["labels"] = json!({"team": "net"}));
    let action = scene.reconcile_by_old_objects("a").await.unwrap();
    assert_eq!(action, Action::requeue(CONFLICT_PAUSE));
    assert_eq!(scene.status("a"), Value::Null);
    scene.reconcile("a").await.unwrap();
    assert_eq!(scene.phase("a"), "Provisioning");
}

#[tokio::test(start_paused = true)]
async fn a_conflict_at_the_end_of_a_run_deletes_no_pods() {
    let mut scene = Scene::overdue().await;
    scene.sync();
    scene.change("a", |run| run["metadata"]["labels"] = json!({"team": "net"}));
    scene.server.take_changes();
    scene.reconcile_by_old_objects("a").await.unwrap();
    let changes = scene.server.take_changes();
    assert!(
        matches!(&changes[..], [call] if call.path.ends_with(STATUS)),
        "{changes:?}"
    );
    assert_eq!(scene.phase("a"), "Provisioning");
}

#[tokio::test(start_paused = true)]
async fn a_status_that_cannot_be_written_is_an_error_that_is_retried() {
    for answer in [
        Answer::Refuse(500, "etcd is away"),
        Answer::Refuse(429, "slow down"),
        Answer::Silence,
    ] {
        let mut scene = Scene::new().await;
        scene.create("a", json!({}));
        scene.server.script_times(1, Method::PATCH, STATUS, answer);
        let error = scene.reconcile("a").await.unwrap_err();
        assert_eq!(error.category(), "Status", "{answer:?}");
        scene.reconcile("a").await.unwrap();
        assert_eq!(scene.phase("a"), "Provisioning", "{answer:?}");
    }
}
