//! Operators that no longer lead, and operators beside one another.

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
    assert_eq!(action, Action::requeue(CONFLICT_RETRY));
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
        pods.iter().all(|pod| pod[POD]["deletionTimestamp"].is_null()),
        "{pods:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_conductor_whose_node_knows_a_later_one_waits_for_the_lease() {
    let mut scene = Scene::new().await;
    scene.create("a", json!({}));
    scene.reconcile("a").await.unwrap();
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
