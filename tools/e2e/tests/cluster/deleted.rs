//! Deleting a PerfRun, at any time, removes all of its objects.

use std::time::Duration;

use anyhow::{Result, ensure};
use perfrun_contract::run::Phase;
use perfrun_e2e::{
    Scene, e2e,
    operators::{NODE_PROGRAM, number_inside, processes},
    run::{LONG, TINY, phase},
    seconds, shared,
};
use perfrun_test_kit::{Need, skip};
use serde_json::json;

const LIMIT: Duration = seconds(60);

#[test]
fn a_run_that_waits_can_be_deleted() {
    shared(async |scene| {
        scene.create("pending", &format!("{TINY}suspend: true\n")).await?;
        is_deleted_in(scene, "pending", Phase::Pending).await
    });
}

#[test]
fn a_run_whose_pods_start_can_be_deleted() {
    shared(async |scene| {
        let nowhere = format!("{TINY}template: {{client: {{nodeSelector: {{no: where}}}}}}\n");
        scene.create("provisioning", &nowhere).await?;
        is_deleted_in(scene, "provisioning", Phase::Provisioning).await
    });
}

#[test]
fn a_run_that_measures_can_be_deleted() {
    shared(async |scene| {
        scene.create("running", LONG).await?;
        is_deleted_in(scene, "running", Phase::Running).await
    });
}

#[test]
fn a_run_that_measures_over_impaired_links_can_be_deleted() {
    e2e(async |scene| {
        let impaired = LONG.replace("rawReference", "networks: [lat10], rawReference");
        scene.create("impaired", &impaired).await?;
        scene.measuring("impaired", 1, LIMIT).await?;
        every_process_handles_early_signals(scene, "impaired").await?;
        is_deleted_in(scene, "impaired", Phase::Running).await
    });
}

#[test]
fn a_run_that_succeeded_can_be_deleted() {
    shared(async |scene| {
        scene.create("succeeded", TINY).await?;
        is_deleted_in(scene, "succeeded", Phase::Succeeded).await
    });
}

#[test]
fn a_run_that_failed_can_be_deleted_with_the_pods_that_it_kept() {
    shared(async |scene| {
        let nowhere = TINY.to_owned()
            + "template: {client: {nodeSelector: {no: where}}}\n\
               timeouts: {provision: 3s}\n\
               cleanup: {keepPodsOnFailure: true}\n";
        scene.create("failed", &nowhere).await?;
        scene.ended("failed", LIMIT).await?;
        ensure!(!scene.pods("failed").await?.is_empty(), "its pods were not kept");
        is_deleted_in(scene, "failed", Phase::Failed).await
    });
}

#[test]
fn a_run_that_was_cancelled_can_be_deleted() {
    shared(async |scene| {
        scene.create("cancelled", LONG).await?;
        scene.measuring("cancelled", 0, LIMIT).await?;
        scene.change("cancelled", json!({"cancel": true})).await?;
        is_deleted_in(scene, "cancelled", Phase::Cancelled).await
    });
}

/// Checks that no program of a run is process 1 of its container. That process would miss a SIGTERM that
/// arrives before it handles signals, and its pod would then remain for the whole grace period.
async fn every_process_handles_early_signals(scene: &Scene, run: &str) -> Result<()> {
    let pods = scene.pods(run).await?;
    let mut found = vec![];
    for pod in &pods {
        found.extend(processes(pod, NODE_PROGRAM)?);
    }
    if found.is_empty() {
        skip(
            Need::Lab,
            "numbers of processes",
            "needs to run on the pods' computer, to see their processes",
        );
        return Ok(());
    }
    for process in &found {
        let number = number_inside(process)?;
        ensure!(number != 1, "process {process} is process 1 of its container");
    }
    // Each pod has a node and a link agent.
    ensure!(
        found.len() == 2 * pods.len(),
        "{} pods have {found:?}",
        pods.len()
    );
    Ok(())
}

async fn is_deleted_in(scene: &Scene, name: &str, wanted: Phase) -> Result<()> {
    scene
        .run_until(name, &format!("is {wanted}"), LIMIT, |run| {
            phase(run) == Some(wanted)
        })
        .await?;
    scene.delete(name).await
}
