//! Pods that end or vanish, and those that replace them.

use super::*;

/// Names of the pods that were requested since the last time.
fn requested(scene: &Scene) -> Vec<String> {
    let changes = scene.server.take_changes();
    let pods = changes.iter().filter(|call| call.path.ends_with(PODS));
    pods.map(|call| call.body["metadata"]["name"].as_str().unwrap().to_owned())
        .collect()
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_vanished_before_the_watch_showed_it_is_not_created_again_under_its_name() {
    let mut scene = Scene::starting().await;
    scene.server.remove(&scene.pod_paths()[1]);
    requested(&scene);
    let action = scene.reconcile("a").await.unwrap();
    assert_eq!(action, Action::requeue(Duration::ZERO));
    scene.later(2).await;
    scene.reconcile("a").await.unwrap();
    assert_eq!(requested(&scene), [scene.pod_name("a", "server-0", 1)]);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_the_watch_does_not_show_yet_is_not_requested_again() {
    let mut scene = Scene::starting().await;
    requested(&scene);
    scene.sync_runs();
    scene.later(30).await;
    scene.reconcile_by_old_objects("a").await.unwrap();
    assert!(requested(&scene).is_empty());
    assert_eq!(scene.server.objects(PODS).len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_cannot_be_looked_up_is_not_reported_as_one_that_cannot_be_created() {
    for (answer, reason) in [
        (Answer::Refuse(500, "etcd is away"), "APIServerRefuses"),
        (Answer::Silence, "APIServerUnreachable"),
    ] {
        let mut scene = Scene::starting().await;
        scene.server.script(Method::GET, "/pods/", answer);
        scene.sync_runs();
        scene.reconcile_by_old_objects("a").await.unwrap();
        let (_, shown, why) = scene.condition("a", Type::Provisioned);
        assert_eq!(shown, reason);
        assert!(why.contains("failed to find out whose Pod "), "{why}");
    }
}

/// The API server says that all pods were created long ago.
#[tokio::test(start_paused = true)]
async fn the_pause_before_a_pod_is_replaced_does_not_depend_on_the_clock_of_the_api_server() {
    let mut scene = Scene::new().await;
    scene.later(3600).await;
    scene.create("a", json!({}));
    scene.reconcile("a").await.unwrap();
    for path in scene.pod_paths() {
        scene
            .server
            .change(&path, |pod| pod["status"] = json!({"phase": "Failed"}));
    }
    requested(&scene);
    scene.reconcile("a").await.unwrap();
    assert!(requested(&scene).is_empty());
    scene.later(1).await;
    scene.reconcile("a").await.unwrap();
    assert_eq!(requested(&scene).len(), 2);
}
