//! Runs that cannot start report why within seconds, and fail in time.

use anyhow::{Context, Result, ensure};
use kube::api::PostParams;
use perfrun_api::{cluster::condition::Type, document, planning::plan};
use perfrun_contract::run::Phase;
use perfrun_e2e::{
    Scene, e2e,
    run::{TINY, describe, message, phase, reason},
    seconds, shared,
};

#[test]
fn a_run_that_fits_nowhere_has_the_reason_unschedulable() {
    shared(async |scene| {
        let nowhere = TINY.to_owned()
            + "template: {client: {nodeSelector: {no: where}}}\n\
               timeouts: {provision: 20s}\n";
        fails_because_of(scene, "Unschedulable", "no Kubernetes node takes pod", &nowhere).await
    });
}

#[test]
fn a_run_whose_image_does_not_exist_has_the_reason_of_the_pull() {
    shared(async |scene| {
        let unknown = TINY.replace("clients: [libp2p]", "clients: [unknown]")
            + "stacks: [{name: unknown, stack: libp2p, image: 'perfrun/no-such-image:0'}]\n\
               timeouts: {provision: 40s}\n";
        fails_because_of(scene, "ImagePullFailed", "perfrun/no-such-image:0", &unknown).await
    });
}

#[test]
fn a_pod_that_can_never_be_created_ends_its_run_and_the_next_one_starts() {
    e2e(async |scene| {
        // The CRD accepts any text as a quantity, and the API server answers 400 to a pod with this one.
        let wrong = TINY.to_owned() + "template: {client: {resources: {limits: {memory: 1GB}}}}\n";
        scene.create("wrong-quantity", &wrong).await?;
        let elsewhere = scene.another(&[]).await?;
        elsewhere.create("next", TINY).await?;
        let run = scene.ended("wrong-quantity", seconds(30)).await?;
        ensure!(
            phase(&run) == Some(Phase::Failed)
                && reason(&run, Type::Complete) == "PodRefused"
                && message(&run, Type::Complete).contains("the API server refuses the run's Pod")
                && message(&run, Type::Complete).contains("quantities must match"),
            "it ended as {}",
            describe(&run)
        );
        elsewhere.succeeded("next", seconds(60)).await?;
        scene.no_pods("wrong-quantity").await?;
        elsewhere.remove().await
    });
}

#[test]
fn a_template_that_spreads_clients_like_the_operator_runs() {
    shared(async |scene| {
        // The operator has a constraint with the same key and action, and the API server refuses a pod with
        // both.
        let spread = TINY.replace("placement: Any", "placement: SpreadNodes")
            + "template: {client: {topologySpreadConstraints: [{maxSkew: 1, topologyKey: kubernetes.io/hostname, \
               whenUnsatisfiable: ScheduleAnyway, labelSelector: {matchLabels: {app: mine}}}]}}\n";
        scene.create("spread", &spread).await?;
        scene.succeeded("spread", seconds(60)).await?;
        Ok(())
    });
}

/// A document whose plan would fill the memory of the operator, and of the next leader.
const TOO_LARGE: &str = include_str!("../../../../crates/api/tests/api/too-large.yaml");

#[test]
fn a_document_that_validate_refuses_is_refused_with_the_same_sentence() {
    e2e(async |scene| {
        let mut run = document::parse(TOO_LARGE)?.remove(0);
        let sentence = plan(&run.spec).err().context("it has a plan")?.to_string();
        let operator = scene.operators().holder().await?;
        for (name, suspend) in [("too-large", false), ("suspended", true)] {
            run.metadata.name = Some(name.to_owned());
            run.spec.suspend = suspend;
            scene.api().create(&PostParams::default(), &run).await?;
            let ended = scene.ended(name, seconds(10)).await?;
            ensure!(
                phase(&ended) == Some(Phase::Failed)
                    && [Type::Accepted, Type::Complete]
                        .iter()
                        .all(|of| message(&ended, *of) == sentence),
                "it ended as {}",
                describe(&ended)
            );
            ensure!(scene.pods(name).await?.is_empty(), "it has pods");
        }
        scene.create("next", TINY).await?;
        scene.succeeded("next", seconds(60)).await?;
        let now = scene.operators().holder().await?;
        ensure!(now == operator, "operator {operator} has become {now}");
        Ok(())
    });
}

async fn fails_because_of(scene: &Scene, expected: &str, words: &str, spec: &str) -> Result<()> {
    scene.create("hopeless", spec).await?;
    let early = scene
        .run_until("hopeless", &format!("reports {expected}"), seconds(38), |run| {
            reason(run, Type::Provisioned) == expected
        })
        .await?;
    ensure!(
        message(&early, Type::Provisioned).contains(words),
        "it is {}",
        describe(&early)
    );
    let run = scene.ended("hopeless", seconds(60)).await?;
    ensure!(
        phase(&run) == Some(Phase::Failed) && reason(&run, Type::Complete) == expected,
        "it ended as {}",
        describe(&run)
    );
    ensure!(
        message(&run, Type::Complete).contains("timeouts.provision"),
        "it ended as {}",
        describe(&run)
    );
    scene.no_pods("hopeless").await?;
    scene.events_with(expected).await?;
    Ok(())
}
