//! Runs are held, cancelled, cleaned up and kept apart, and cannot be changed.

use anyhow::{Context, Result, ensure};
use perfrun_api::{cluster::condition::Type, spec::PerfRun};
use perfrun_contract::run::{Phase, RunState};
use perfrun_e2e::{
    Scene, e2e,
    run::{LONG, TINY, describe, message, phase, reason},
    seconds, shared, until,
};
use serde_json::json;
use tokio::time::{Instant, sleep};

#[test]
fn a_run_that_is_cancelled_keeps_what_was_measured() {
    shared(async |scene| {
        scene.create("cancelled", LONG).await?;
        scene.measuring("cancelled", 1, seconds(60)).await?;
        scene.change("cancelled", json!({"cancel": true})).await?;
        let run = scene.ended("cancelled", seconds(30)).await?;
        ensure!(
            phase(&run) == Some(Phase::Cancelled) && reason(&run, Type::Complete) == "Cancelled",
            "it ended as {}",
            describe(&run)
        );
        let results = scene.results(&run).await?;
        ensure!(
            results.state == RunState::Interrupted,
            "the results are {:?}",
            results.state
        );
        ensure!(!results.trials.is_empty(), "measurements are lost");
        ensure!(
            results.trials.iter().all(|record| record.failure.is_none()),
            "the trial that was cancelled counts as failed"
        );
        scene.no_pods("cancelled").await
    });
}

#[test]
fn a_run_can_be_cancelled_before_it_begins() {
    shared(async |scene| {
        scene.create("early", &format!("{TINY}suspend: true\n")).await?;
        waits(scene, "early", "Suspended").await?;
        scene.change("early", json!({"cancel": true})).await?;
        let run = scene.ended("early", seconds(30)).await?;
        ensure!(
            phase(&run) == Some(Phase::Cancelled),
            "it ended as {}",
            describe(&run)
        );
        scene.no_pods("early").await
    });
}

#[test]
fn a_suspended_run_waits_and_then_runs() {
    shared(async |scene| {
        scene
            .create("suspended", &format!("{TINY}suspend: true\n"))
            .await?;
        let held = waits(scene, "suspended", "Suspended").await?;
        ensure!(phase(&held) == Some(Phase::Pending), "it is {}", describe(&held));
        sleep(seconds(2)).await;
        scene.no_pods("suspended").await?;
        scene.change("suspended", json!({"suspend": false})).await?;
        let run = scene.succeeded("suspended", seconds(60)).await?;
        scene.checked_results(&run).await.map(drop)
    });
}

#[test]
fn a_succeeded_run_is_deleted_when_its_ttl_is_over() {
    shared(async |scene| {
        scene
            .create("ttl", &format!("{TINY}cleanup: {{ttlSecondsAfterSuccess: 10}}\n"))
            .await?;
        scene.succeeded("ttl", seconds(60)).await?;
        let ended = Instant::now();
        is_gone(scene, "ttl").await?;
        ensure!(ended.elapsed() >= seconds(2), "it was deleted too early");
        Ok(())
    });
}

#[test]
fn a_failed_run_is_deleted_when_its_ttl_is_over() {
    shared(async |scene| {
        let nowhere = TINY.to_owned()
            + "template: {client: {nodeSelector: {no: where}}}\n\
               timeouts: {provision: 2s}\n\
               cleanup: {ttlSecondsAfterSuccess: 0, ttlSecondsAfterFailure: 10}\n";
        scene.create("ttl", &nowhere).await?;
        let run = scene.ended("ttl", seconds(60)).await?;
        ensure!(
            phase(&run) == Some(Phase::Failed),
            "it ended as {}",
            describe(&run)
        );
        is_gone(scene, "ttl").await
    });
}

#[test]
fn a_run_is_not_changed_after_it_was_created() {
    shared(async |scene| {
        let spec = format!("{TINY}networks: [{{name: far, delay: 1ms}}]\nsuspend: true\n");
        scene.create("fixed", &spec).await?;
        let refused = scene.change("fixed", json!({"iterations": 3})).await;
        let refused = refused.err().context("the change was accepted")?.to_string();
        let sentence =
            "only suspend, cancel and cleanup can change: create a new PerfRun for everything else";
        ensure!(refused.contains(sentence), "{refused}");
        scene
            .change("fixed", json!({"cleanup": {"ttlSecondsAfterSuccess": 1000}}))
            .await?;
        // Earlier versions stored the defaults of entries, which documents leave out.
        for far in [
            json!({"name": "far", "delay": "1ms", "direction": "both", "backend": "auto"}),
            json!({"name": "far", "delay": "1ms"}),
        ] {
            scene.change("fixed", json!({"networks": [far]})).await?;
        }
        Ok(())
    });
}

#[test]
fn a_name_of_63_characters_fits_everywhere() {
    shared(async |scene| {
        let name = "a".repeat(63);
        // The longest name of a node includes the longest name of a variant.
        let spec = TINY.replace("clients: [libp2p]", &format!("clients: [{}]", "v".repeat(40)))
            + &format!("stacks: [{{name: {}, stack: libp2p}}]\n", "v".repeat(40));
        scene.create(&name, &spec).await?;
        let run = scene.succeeded(&name, seconds(90)).await?;
        scene.checked_results(&run).await.map(drop)
    });
}

#[test]
fn exclusive_runs_wait_for_one_another_with_a_reason() {
    e2e(async |scene| {
        scene.create("first", LONG).await?;
        scene.measuring("first", 0, seconds(60)).await?;
        scene.create("second", TINY).await?;
        let held = waits(scene, "second", "WaitingForOtherRuns").await?;
        let expected = format!("{}/first is active", scene.namespace);
        ensure!(
            message(&held, Type::Provisioned).contains(&expected),
            "it is {}",
            describe(&held)
        );
        ensure!(phase(&held) == Some(Phase::Pending), "it is {}", describe(&held));
        scene.succeeded_in_turn("first", "second").await
    });
}

/// Waits until a run is held for a reason.
async fn waits(scene: &Scene, name: &str, why: &str) -> Result<PerfRun> {
    let is_held = |run: &PerfRun| reason(run, Type::Provisioned) == why;
    scene.run_until(name, "waits", seconds(30), is_held).await
}

async fn is_gone(scene: &Scene, name: &str) -> Result<()> {
    until("the run is gone", seconds(30), async || {
        Ok(scene
            .api::<PerfRun>()
            .get_opt(name)
            .await?
            .is_none()
            .then_some(()))
    })
    .await
}
