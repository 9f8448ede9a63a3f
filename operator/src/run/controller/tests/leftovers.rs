//! Exclusive runs after runs whose pods are still there.

use super::*;

/// Longer than pods may take to stop.
const STOPPED_SECONDS: u64 = 100;

/// An operator that has led for some time, with a run that has pods and another that waits.
async fn one_after_the_other(fields: Value) -> Scene {
    let mut scene = Scene::new().await;
    scene.later(STOPPED_SECONDS).await;
    scene.create("first", fields);
    scene.reconcile("first").await.unwrap();
    scene.create("second", json!({}));
    scene.reconcile("second").await.unwrap();
    scene.woken();
    scene
}

/// Somebody deletes the first run, and leaves its pods.
fn delete_first(scene: &mut Scene) {
    scene.server.remove(&Scene::path("first"));
    scene.sync();
    scene.context.remove("uid-of-first");
}

fn stop_pods(scene: &Scene) {
    for path in scene.pod_paths() {
        scene.server.change(&path, |pod| {
            pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        });
    }
}

/// Why the second run does not begin, if it does not.
async fn second(scene: &mut Scene) -> (String, String) {
    scene.reconcile("second").await.unwrap();
    let (_, reason, why) = scene.condition("second", Type::Provisioned);
    (reason, why)
}

fn waits() -> (String, String) {
    let why = "pods of an earlier run are still stopping";
    ("WaitingForOtherRuns".to_owned(), why.to_owned())
}

#[tokio::test(start_paused = true)]
async fn an_exclusive_run_waits_for_pods_that_are_stopping() {
    let mut scene = one_after_the_other(json!({})).await;
    delete_first(&mut scene);
    stop_pods(&scene);
    assert_eq!(second(&mut scene).await, waits());
    // Their Kubernetes node is lost.
    scene.later(STOPPED_SECONDS).await;
    assert_eq!(second(&mut scene).await.0, "Starting");
}

#[tokio::test(start_paused = true)]
async fn an_exclusive_run_begins_when_the_last_pod_of_the_one_before_it_is_gone() {
    let mut scene = one_after_the_other(json!({})).await;
    delete_first(&mut scene);
    stop_pods(&scene);
    assert_eq!(second(&mut scene).await, waits());
    scene.woken();
    let pods = scene.context.services.pods.state();
    let all_woken: [&[&str]; 2] = [&[], &["second"]];
    for (pod, woken) in pods.iter().zip(all_woken) {
        scene.context.turns.remove_pod(pod);
        assert_eq!(scene.woken(), woken);
    }
    scene.pods_stop();
    assert_eq!(second(&mut scene).await.0, "Starting");
}

#[tokio::test(start_paused = true)]
async fn pods_that_nobody_deletes_keep_a_run_waiting_until_they_end_or_the_longest_turn_is_over() {
    let ends: [fn(&Scene); 2] = [
        |scene| {
            for path in scene.pod_paths() {
                scene
                    .server
                    .change(&path, |pod| pod["status"] = json!({"phase": "Failed"}));
            }
        },
        |_| {},
    ];
    for (end, after) in ends.into_iter().zip([0, 660 - STOPPED_SECONDS]) {
        let mut scene = one_after_the_other(json!({})).await;
        delete_first(&mut scene);
        scene.later(STOPPED_SECONDS).await;
        assert_eq!(second(&mut scene).await, waits());
        scene.later(after).await;
        end(&scene);
        assert_eq!(second(&mut scene).await.0, "Starting");
    }
}

#[tokio::test(start_paused = true)]
async fn an_exclusive_run_waits_until_the_pods_of_a_run_that_ends_are_deleted_unless_they_are_kept() {
    for (keeps, expected) in [(false, waits().0), (true, "Starting".to_owned())] {
        let mut scene = one_after_the_other(json!({"cleanup": {"keepPodsOnFailure": keeps}})).await;
        scene.later(61).await;
        scene.reconcile("first").await.unwrap();
        assert_eq!(scene.phase("first"), "Failed");
        assert_eq!(second(&mut scene).await.0, expected, "{keeps}");
    }
}

#[tokio::test(start_paused = true)]
async fn pods_that_only_name_a_run_keep_nobody_waiting() {
    let mut scene = one_after_the_other(json!({})).await;
    delete_first(&mut scene);
    let mut pod = scene.server.object(&scene.pod_paths()[0]).unwrap();
    scene.pods_stop();
    pod["metadata"]["name"] = "of-an-editor".into();
    pod["metadata"]["uid"] = "of-an-editor".into();
    scene
        .server
        .put("/api/v1/namespaces/bench/pods/of-an-editor", pod);
    stop_pods(&scene);
    assert_eq!(second(&mut scene).await.0, "Starting");
}

#[tokio::test(start_paused = true)]
async fn a_new_leader_waits_for_pods_that_are_stopping() {
    let mut before = one_after_the_other(json!({})).await;
    delete_first(&mut before);
    stop_pods(&before);
    let mut scene = Scene::beside(&before.server).await;
    assert_eq!(second(&mut scene).await, waits());
    scene.later(STOPPED_SECONDS).await;
    assert_eq!(second(&mut scene).await.0, "Starting");
}

#[tokio::test(start_paused = true)]
async fn a_run_that_shares_waits_for_no_pods() {
    let mut scene = one_after_the_other(json!({})).await;
    scene.change("second", |run| {
        run["spec"]["topology"] = json!({"exclusive": false});
    });
    delete_first(&mut scene);
    assert_eq!(second(&mut scene).await.0, "Starting");
}

#[tokio::test(start_paused = true)]
async fn a_new_leader_waits_for_the_pods_of_a_run_that_was_deleted_before_it_was_reconciled() {
    let before = one_after_the_other(json!({})).await;
    let mut scene = Scene::beside(&before.server).await;
    scene.later(STOPPED_SECONDS).await;
    delete_first(&mut scene);
    assert_eq!(second(&mut scene).await, waits());
    scene.pods_stop();
    assert_eq!(second(&mut scene).await.0, "Starting");
}

#[tokio::test(start_paused = true)]
async fn a_new_leader_waits_for_the_pods_of_a_suspended_run_that_it_cannot_delete() {
    let before = one_after_the_other(json!({})).await;
    before.change("first", |run| run["spec"]["suspend"] = true.into());
    let mut scene = Scene::beside(&before.server).await;
    scene.later(STOPPED_SECONDS).await;
    let refuses = Answer::Refuse(500, "etcd is away");
    scene.server.script(Method::DELETE, "/pods/", refuses);
    scene.reconcile("first").await.unwrap();
    assert_eq!(second(&mut scene).await, waits());
    scene.pods_stop();
    assert_eq!(second(&mut scene).await.0, "Starting");
}

/// An operator that has just created the pods of the first run. The watch does not show them yet.
async fn just_begun() -> Scene {
    let mut scene = Scene::new().await;
    scene.later(STOPPED_SECONDS).await;
    scene.create("first", json!({}));
    scene.reconcile("first").await.unwrap();
    scene.create("second", json!({}));
    scene
}

#[tokio::test(start_paused = true)]
async fn an_exclusive_run_waits_for_pods_that_the_watch_does_not_show_yet() {
    let mut scene = just_begun().await;
    scene.server.remove(&Scene::path("first"));
    scene.sync_runs();
    scene.context.remove("uid-of-first");
    scene.reconcile_by_old_objects("second").await.unwrap();
    assert_eq!(scene.condition("second", Type::Provisioned).2, waits().1);
    // Now it does.
    scene.later(20).await;
    assert_eq!(second(&mut scene).await, waits());
    scene.pods_stop();
    assert_eq!(second(&mut scene).await.0, "Starting");
}

#[tokio::test(start_paused = true)]
async fn an_exclusive_run_does_not_wait_for_long_for_pods_that_the_watch_never_shows() {
    let mut scene = just_begun().await;
    scene.pods_stop();
    delete_first(&mut scene);
    assert_eq!(second(&mut scene).await, waits());
    scene.later(10).await;
    assert_eq!(second(&mut scene).await.0, "Starting");
}
