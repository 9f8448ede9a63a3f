//! Reconciliations that cannot do everything in their time.

use tokio::time::Instant;

use super::*;

/// A run of 40 nodes.
fn many() -> Value {
    json!({"topology": {"servers": 20, "clients": 20}})
}

#[tokio::test(start_paused = true)]
async fn a_reconciliation_that_creates_many_pods_has_a_deadline() {
    let mut scene = Scene::new().await;
    scene.create("a", many());
    scene.server.script(Method::POST, PODS, Answer::DoLate(1));
    let begun = Instant::now();
    let action = scene.reconcile("a").await.unwrap();
    assert_eq!(begun.elapsed().as_secs(), 10);
    assert_eq!(scene.server.objects(PODS).len(), 10);
    assert_eq!(action, Action::requeue(Duration::ZERO));
    assert_eq!(scene.condition("a", Type::Provisioned).1, "Starting");
    for _ in 0..3 {
        scene.reconcile("a").await.unwrap();
    }
    assert_eq!(scene.server.objects(PODS).len(), 40);
}

#[tokio::test(start_paused = true)]
async fn a_reconciliation_creates_a_pod_however_slow_the_api_server_is() {
    let mut scene = Scene::new().await;
    scene.create("a", json!({}));
    scene.server.script(Method::POST, "/", Answer::DoLate(12));
    scene.reconcile("a").await.unwrap();
    assert_eq!(scene.server.objects(PODS).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_reconciliation_that_deletes_many_pods_has_a_deadline() {
    let mut scene = Scene::new().await;
    scene.create("a", many());
    scene.reconcile("a").await.unwrap();
    scene.change("a", |run| run["spec"]["suspend"] = true.into());
    scene.server.script(Method::DELETE, "/pods/", Answer::DoLate(8));
    let begun = Instant::now();
    let action = scene.reconcile("a").await.unwrap();
    assert_eq!(begun.elapsed().as_secs(), 16);
    assert_eq!(action, Action::requeue(Duration::ZERO));
    let left = || {
        let pods = scene.server.objects(PODS);
        let left = pods
            .iter()
            .filter(|pod| pod["metadata"]["deletionTimestamp"].is_null());
        left.count()
    };
    assert_eq!(left(), 8);
    scene.reconcile("a").await.unwrap();
    let pods = scene.server.objects(PODS);
    assert!(
        pods.iter()
            .all(|pod| !pod["metadata"]["deletionTimestamp"].is_null())
    );
}

#[tokio::test(start_paused = true)]
async fn events_that_the_api_server_does_not_take_delay_a_run_for_a_limited_time() {
    let mut scene = Scene::new().await;
    scene.create("a", json!({}));
    scene.server.script(Method::POST, "/events", Answer::Silence);
    let begun = Instant::now();
    scene.reconcile("a").await.unwrap();
    assert_eq!(begun.elapsed().as_secs(), 10);
    assert_eq!(scene.phase("a"), "Provisioning");
}
