//! Operators that no longer lead, and operators beside one another.

use perfrun_api::cluster::RUN_LABEL;

use super::*;

#[tokio::test(start_paused = true)]
async fn an_operator_that_no_longer_leads_changes_nothing() {
    let mut scene = Scene::new().await;
    scene.create("begun", json!({"topology": {"exclusive": false}}));
    scene.reconcile("begun").await.unwrap();
    scene.later(61).await;
    scene.create("a", json!({"topology": {"exclusive": false}}));
    scene.depose();
    scene.server.take_changes();
    for run in ["a", "begun"] {
        let error = scene.reconcile(run).await.unwrap_err();
        assert_eq!(error.category(), "Status", "{run}");
    }
    assert!(scene.server.take_changes().is_empty());
    assert_eq!(
        scene.phase("begun"),
        "Provisioning",
        "its end is not written either"
    );
}

#[tokio::test(start_paused = true)]
async fn two_operators_that_both_believe_to_lead_create_nothing_twice() {
    let mut first = Scene::new().await;
    first.create("a", json!({}));
    let mut second = Scene::beside(&first.server).await;
    second.sync();
    first.reconcile("a").await.unwrap();
    let status = first.status("a");
    let action = second.reconcile_by_old_objects("a").await.unwrap();
    assert_eq!(action, Action::requeue(CONFLICT_PAUSE));
    assert_eq!(first.server.objects(PODS).len(), 2);
    assert_eq!(first.status("a"), status);
    // The first ends the run, which the second still sees as begun.
    second.sync();
    first.later(61).await;
    first.reconcile("a").await.unwrap();
    assert_eq!(first.phase("a"), "Failed");
    let status = first.status("a");
    second.reconcile_by_old_objects("a").await.unwrap();
    assert_eq!(first.status("a"), status);
    let pods = first.server.objects(PODS);
    assert!(
        pods.iter()
            .all(|pod| pod["metadata"]["deletionTimestamp"].is_null()),
        "{pods:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn no_run_begins_before_the_pods_are_listed() {
    let mut scene = Scene::new().await;
    scene.create("suspended", json!({}));
    scene.reconcile("suspended").await.unwrap();
    // Both happen while no operator leads.
    scene.change("suspended", |run| run["spec"]["suspend"] = true.into());
    scene.create("waits", json!({}));
    scene
        .server
        .script_times(1, Method::GET, "/api/v1/pods", Answer::DoLate(20));
    let operator = scene.operate();
    tokio::time::sleep(Duration::from_secs(15)).await;
    assert_eq!(scene.server.objects(PODS).len(), 2, "another run has begun");
    wait_for_pods(&scene.server, "waits").await;
    let pods = scene.server.objects(PODS);
    let of_first = pods
        .iter()
        .filter(|pod| pod["metadata"]["labels"][RUN_LABEL] == "suspended");
    let are_deleted: Vec<_> = of_first
        .map(|pod| !pod["metadata"]["deletionTimestamp"].is_null())
        .collect();
    assert_eq!(are_deleted, [true, true]);
    operator.abort();
}

#[tokio::test(start_paused = true)]
async fn a_run_that_was_provisioning_counts_until_its_own_reconciliation() {
    let mut before = Scene::new().await;
    before.create("a", json!({}));
    before.reconcile("a").await.unwrap();
    before.pods_stop();
    let mut scene = Scene::beside(&before.server).await;
    scene.create("b", json!({}));
    scene.reconcile("b").await.unwrap();
    let (_, reason, why) = scene.condition("b", Type::Provisioned);
    assert_eq!(reason, "WaitingForOtherRuns");
    assert!(why.starts_with("bench/a is active"), "{why}");
    scene
        .server
        .script_times(1, Method::POST, SECRETS, Answer::Refuse(403, "exceeded quota"));
    scene.reconcile("a").await.unwrap();
    assert_eq!(scene.condition("a", Type::Provisioned).1, "APIServerRefuses");
    scene.reconcile("b").await.unwrap();
    assert_eq!(scene.condition("b", Type::Provisioned).1, "Starting");
}

#[tokio::test(start_paused = true)]
async fn a_run_that_has_pods_counts_although_its_status_could_not_be_written() {
    let mut before = Scene::new().await;
    before.create("b", json!({}));
    let refuses = Answer::Refuse(500, "etcd is away");
    before
        .server
        .script_times(1, Method::PATCH, "/perfruns/b/status", refuses);
    before.reconcile("b").await.unwrap_err();
    let mut scene = Scene::beside(&before.server).await;
    scene.create("a", json!({}));
    scene.reconcile("a").await.unwrap();
    let (_, reason, why) = scene.condition("a", Type::Provisioned);
    assert_eq!(reason, "WaitingForOtherRuns");
    assert!(why.starts_with("bench/b is active"), "{why}");
    scene.reconcile("b").await.unwrap();
    assert_eq!(scene.condition("b", Type::Provisioned).1, "Starting");
}

/// A run that nobody else may run beside, whose pods nobody could delete when it was suspended, and that is
/// resumed after another run has begun.
async fn resumed_beside_another() -> Scene {
    let mut scene = Scene::starting().await;
    scene.change("a", |run| run["spec"]["suspend"] = true.into());
    let refuses = Answer::Refuse(500, "etcd is away");
    scene.server.script_times(2, Method::DELETE, "/pods/", refuses);
    scene.reconcile("a").await.unwrap();
    scene.create("b", json!({"topology": {"exclusive": false}}));
    scene.reconcile("b").await.unwrap();
    assert_eq!(scene.condition("b", Type::Provisioned).1, "Starting");
    scene.change("a", |run| run["spec"]["suspend"] = false.into());
    scene
}

/// Reconciles the run that was resumed and then the other: the first waits, and loses its pods.
async fn only_the_other_continues(scene: &mut Scene) {
    scene.reconcile("a").await.unwrap();
    assert_eq!(scene.condition("a", Type::Provisioned).1, "WaitingForOtherRuns");
    scene.reconcile("b").await.unwrap();
    assert_eq!(scene.condition("b", Type::Provisioned).1, "Starting");
    for pod in scene.server.objects(PODS) {
        let is_deleted = !pod["metadata"]["deletionTimestamp"].is_null();
        assert_eq!(is_deleted, pod["metadata"]["labels"][RUN_LABEL] == "a", "{pod}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_takes_no_turn_back_with_pods_that_were_not_deleted() {
    let mut scene = resumed_beside_another().await;
    only_the_other_continues(&mut scene).await;
}

#[tokio::test(start_paused = true)]
async fn of_two_runs_with_pods_a_new_leader_lets_only_one_continue() {
    let before = resumed_beside_another().await;
    let mut scene = Scene::beside(&before.server).await;
    only_the_other_continues(&mut scene).await;
}

#[tokio::test(start_paused = true)]
async fn a_conductor_whose_node_knows_a_later_one_waits_for_the_lease() {
    let mut scene = Scene::starting().await;
    scene.pods_are_ready();
    scene.server.script(
        Method::GET,
        "/proxy/",
        Answer::Refuse(412, "another has taken over"),
    );
    scene.renew(Duration::ZERO);
    scene.reconcile("a").await.unwrap();
    tokio::time::sleep(Duration::from_secs(120)).await;
    let ends = |scene: &Scene| {
        !matches!(
            scene.context.conductors.state("uid-of-a").0,
            ConductorState::Running(_)
        )
    };
    assert!(!ends(&scene), "another operator conducts the run");
    scene.renew(Duration::from_secs(60));
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(ends(&scene));
    scene.reconcile("a").await.unwrap();
    let (_, reason, why) = scene.condition("a", Type::Complete);
    assert_eq!(reason, "NodeNotReady");
    assert!(
        why.contains("another operator has taken over, but this one leads"),
        "{why}"
    );
}
