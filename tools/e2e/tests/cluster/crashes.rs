//! The operator, or the API server, is killed, stopped or cut off at the worst moments. Another operator
//! takes over: no trial is lost, and none is measured twice.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, ResourceExt};
use perfrun_api::cluster::{ROLE_LABEL, condition::Type};
use perfrun_contract::run::Phase;
use perfrun_e2e::{
    Scene, e2e,
    lab::Lab,
    operators::{NAMESPACE, cut_off, without},
    results::failures,
    run::{ENDLESS, LONG, TINY, describe, has_condition, phase, reason},
    seconds, until,
};
use perfrun_test_kit::{Need, skip};
use tokio::time::sleep;

/// A label of Kubernetes nodes.
const LABEL: &str = "example.com/e2e";

#[test]
fn an_operator_killed_while_pods_start_is_replaced() {
    e2e(async |scene| {
        scene.create("starting", LONG).await?;
        scene
            .run_until("starting", "has pods that start", seconds(60), |run| {
                has_condition(run, Type::Provisioned, "False")
            })
            .await?;
        crash(scene).await?;
        ends_without_a_trace(scene, "starting").await
    });
}

#[test]
fn an_operator_killed_during_the_warmup_is_replaced() {
    e2e(async |scene| {
        scene.create("warmup", LONG).await?;
        scene.measuring("warmup", 0, seconds(60)).await?;
        crash(scene).await?;
        ends_without_a_trace(scene, "warmup").await
    });
}

#[test]
fn an_operator_killed_in_the_middle_of_a_trial_is_replaced() {
    e2e(async |scene| {
        scene.create("midway", LONG).await?;
        scene.measuring("midway", 2, seconds(60)).await?;
        // A trial takes three seconds.
        sleep(seconds(1)).await;
        crash(scene).await?;
        ends_without_a_trace(scene, "midway").await
    });
}

#[test]
fn an_operator_killed_while_it_collects_is_replaced() {
    e2e(async |scene| {
        // Trials are very short, so that most of the time is preparing and collecting. Three crashes hit
        // different moments of it.
        let busy = TINY
            .replace("sizes: [1Mi]", "sizes: [1]")
            .replace("iterations: 2", "iterations: 1000");
        scene.create("busy", &busy).await?;
        for trials in [5, 10, 15] {
            scene.measuring("busy", trials, seconds(90)).await?;
            crash(scene).await?;
        }
        ends_without_a_trace(scene, "busy").await
    });
}

#[test]
fn an_operator_whose_process_is_killed_continues_after_its_restart() {
    e2e(async |scene| {
        scene.create("sigkill", LONG).await?;
        scene.measuring("sigkill", 1, seconds(60)).await?;
        let before = scene.operators().holder().await?;
        if !scene.operators().kill_leader().await? {
            skip(
                Need::Lab,
                "all of it",
                "needs root on the operator's computer, to kill its process",
            );
            return Ok(());
        }
        scene.operators().await_another_than(&before).await?;
        ends_without_a_trace(scene, "sigkill").await
    });
}

#[test]
fn trials_continue_while_the_api_server_is_down() {
    e2e(async |scene| {
        let Some(lab) = Lab::find_or_skip() else {
            return Ok(());
        };
        scene
            .create("headless", &LONG.replace("iterations: 4", "iterations: 14"))
            .await?;
        scene.measuring("headless", 2, seconds(60)).await?;
        lab.without("apiserver", async || {
            sleep(seconds(30)).await;
            Ok(())
        })
        .await?;
        ends_without_a_trace(scene, "headless").await
    });
}

#[test]
fn an_operator_that_stood_still_for_half_a_minute_disturbs_nothing() {
    e2e(async |scene| {
        let Some(process) = in_a_trial(scene, "frozen").await? else {
            return Ok(());
        };
        let operators = scene.operators();
        let (before, pod) = (operators.holder().await?, operators.leader().await?);
        without(&process, async || {
            sleep(seconds(30)).await;
            Ok(())
        })
        .await?;
        operators.await_another_than(&before).await?;
        ends_without_a_trace(scene, "frozen").await?;
        let after = Api::<Pod>::namespaced(scene.client(), NAMESPACE)
            .get(&pod.name_any())
            .await?;
        ensure!(
            restarts(&after) == restarts(&pod),
            "the process was restarted instead of waking up beside its successor"
        );
        Ok(())
    });
}

#[test]
fn an_operator_that_is_cut_off_from_the_api_server_is_replaced() {
    e2e(async |scene| {
        let Some(process) = in_a_trial(scene, "cut-off").await? else {
            return Ok(());
        };
        let operators = scene.operators();
        let before = operators.holder().await?;
        cut_off(&process, async || {
            operators.await_another_than(&before).await?;
            // Both operators reach the nodes.
            sleep(seconds(10)).await;
            Ok(())
        })
        .await?;
        ends_without_a_trace(scene, "cut-off").await
    });
}

#[test]
fn two_operators_that_lead_at_the_same_time_disturb_nothing() {
    e2e(async |scene| {
        let Some(process) = in_a_trial(scene, "twice-led").await? else {
            return Ok(());
        };
        let operators = scene.operators();
        let before = operators.holder().await?;
        without(&process, async || {
            operators.delete_lease().await?;
            operators.await_another_than(&before).await
        })
        .await?;
        // The first wakes up within its term: its own clock lets it write.
        ends_without_a_trace(scene, "twice-led").await
    });
}

/// Takes about two minutes: the operators end and start eight times. Before operators waited for the list of
/// pods, the second run began in one of eight tries.
#[test]
fn an_exclusive_run_waits_for_one_that_was_starting_while_no_operator_ran() {
    e2e(async |scene| {
        let here = &scene.namespace;
        // Its client starts when a Kubernetes node has the label.
        let selector = format!("{LABEL}: {here}");
        let first = TINY.to_owned()
            + "timeouts: {provision: 10m}\n\
               template: {client: {nodeSelector: {"
            + &selector
            + "}}}\n";
        scene.create("first", &first).await?;
        until("the first run has its pods", seconds(60), async || {
            Ok((scene.pods("first").await?.len() == 2).then_some(()))
        })
        .await?;
        for _ in 0..8 {
            another_waits_after_an_outage(scene).await?;
        }
        let server = scene.pod("first", ROLE_LABEL, "server").await?;
        let node = server.spec.and_then(|spec| spec.node_name);
        let node = node.context("the server has no Kubernetes node")?;
        let label = async |label: &str| scene.kubectl(&["label", "nodes", &node, label]).await;
        label(&format!("{LABEL}={here}")).await?;
        let ran = scene.succeeded_in_turn("first", "second").await;
        label(&format!("{LABEL}-")).await?;
        ran
    });
}

/// Takes less than a minute. It does not wait until the pods end at their deadline, which takes more than 15
/// minutes.
#[test]
fn pods_of_a_run_that_was_deleted_without_them_are_counted_and_named() {
    e2e(async |scene| {
        scene.create("orphaned", ENDLESS).await?;
        scene.measuring("orphaned", 0, seconds(60)).await?;
        let operators = scene.operators();
        // One that runs may delete the pods before the garbage collector disowns them.
        operators
            .without_any(async || {
                let only = [
                    "delete",
                    "perfruns",
                    "orphaned",
                    "--cascade=orphan",
                    "--timeout=1m",
                ];
                scene.kubectl(&only).await
            })
            .await?;
        let pods = scene.pods("orphaned").await?;
        let deadlines = pods
            .iter()
            .filter_map(|pod| pod.spec.as_ref()?.active_deadline_seconds);
        ensure!(
            pods.len() == 2 && deadlines.count() == 2,
            "not each of the two pods has a deadline: {pods:?}"
        );
        until("the leader counts both", seconds(60), async || {
            let number = operators.metric("perfrun_operator_orphaned_pods").await?;
            ensure!(number >= 2.0, "it counts {number}");
            Ok(Some(()))
        })
        .await?;
        until("the leader has named each once", seconds(60), async || {
            let log = operators.log().await?;
            for name in pods.iter().map(ResourceExt::name_any) {
                let lines = log.lines().filter(|line| line.contains("no longer exist"));
                let times = lines.filter(|line| line.contains(&name)).count();
                ensure!(times == 1, "it has named {name} {times} times");
            }
            Ok(Some(()))
        })
        .await
    });
}

/// Applies an exclusive run while no operator runs, and checks that the first one keeps it waiting.
async fn another_waits_after_an_outage(scene: &Scene) -> Result<()> {
    scene
        .operators()
        .without_any(async || {
            let before = ["delete", "perfruns", "second", "--ignore-not-found"];
            scene.kubectl(&before).await?;
            scene.create("second", TINY).await
        })
        .await?;
    scene
        .run_until("second", "waits", seconds(60), |run| {
            reason(run, Type::Provisioned) == "WaitingForOtherRuns"
        })
        .await?;
    let first = scene.run("first").await?;
    ensure!(
        phase(&first) == Some(Phase::Provisioning),
        "the first is {}",
        describe(&first)
    );
    let pods = scene.pods("second").await?;
    ensure!(
        pods.is_empty(),
        "the second has begun: it has {} pods",
        pods.len()
    );
    Ok(())
}

/// Starts a run, and waits for the middle of a trial. Returns the leader's process; `None` if it is not on
/// this computer.
async fn in_a_trial(scene: &Scene, name: &str) -> Result<Option<String>> {
    let process = scene.operators().leader_process().await?;
    if process.is_none() {
        skip(
            Need::Lab,
            "all of it",
            "needs root on the operator's computer, to stop its process",
        );
        return Ok(None);
    }
    scene
        .create(name, &LONG.replace("iterations: 4", "iterations: 10"))
        .await?;
    scene.measuring(name, 1, seconds(60)).await?;
    // A trial takes three seconds.
    sleep(seconds(1)).await;
    Ok(process)
}

fn restarts(pod: &Pod) -> i32 {
    let status = pod.status.as_ref();
    let containers = status.and_then(|status| status.container_statuses.as_ref());
    containers
        .into_iter()
        .flatten()
        .map(|container| container.restart_count)
        .sum()
}

/// Deletes the leader without a grace period, and waits for the next one.
async fn crash(scene: &Scene) -> Result<()> {
    let operators = scene.operators();
    let before = operators.holder().await?;
    operators.delete_leader().await?;
    operators.await_another_than(&before).await
}

/// Checks that the results show no trace of a crash.
async fn ends_without_a_trace(scene: &Scene, name: &str) -> Result<()> {
    let run = scene.succeeded(name, seconds(240)).await?;
    let results = scene.checked_results(&run).await?;
    let failed = failures(&results);
    ensure!(failed.is_empty(), "trials failed: {failed:?}");
    Ok(())
}
