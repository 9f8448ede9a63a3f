//! Pods and Kubernetes nodes that are lost in the middle of a trial.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::{
    coordination::v1::Lease,
    core::v1::{Node, Pod},
};
use kube::{Api, ResourceExt, api::DeleteParams};
use perfrun_api::{
    cluster::{ROLE_LABEL, condition::Type},
    results::Results,
};
use perfrun_contract::{node::Reason, record::TrialFailure, run::Phase};
use perfrun_e2e::{
    Scene, e2e,
    lab::Lab,
    operators::{NODE_PROGRAM, isolate, kill, processes},
    results::{failures, only_failure},
    run::{LONG, describe, message, phase, reason},
    seconds, shared, until,
};
use perfrun_test_kit::{Need, skip};
use serde_json::json;
use tokio::time::sleep;

#[test]
fn a_client_pod_that_is_deleted_is_replaced_and_its_trial_retried() {
    shared(async |scene| {
        let pod = in_a_trial(scene, "client-deleted", "client").await?;
        delete(scene, &pod).await?;
        ends_with_one_trial_retried(scene, "client-deleted", &pod).await?;
        Ok(())
    });
}

#[test]
fn a_server_pod_that_is_deleted_is_replaced_and_its_trial_retried() {
    shared(async |scene| {
        let pod = in_a_trial(scene, "server-deleted", "server").await?;
        delete(scene, &pod).await?;
        ends_with_one_trial_retried(scene, "server-deleted", &pod).await?;
        Ok(())
    });
}

#[test]
fn a_server_whose_process_is_killed_is_replaced_and_its_trial_retried() {
    shared(async |scene| {
        let pod = in_a_trial(scene, "server-killed", "server").await?;
        if !kill(&pod, NODE_PROGRAM).await? {
            skip(
                Need::Lab,
                "all of it",
                "needs root on the pod's computer, to kill its process",
            );
            return Ok(());
        }
        let failure = ends_with_one_trial_retried(scene, "server-killed", &pod).await?;
        ensure!(
            failure.message.contains("ended with exit code 137"),
            "it does not say how the server ended: {failure:?}"
        );
        Ok(())
    });
}

#[test]
fn a_server_that_the_kernel_kills_for_its_memory_is_named_with_that_reason() {
    shared(async |scene| {
        // Enough for a server that waits. Each stream reads into a buffer of a chunk.
        let spec = "workload: {bandwidth: {duration: 5s, directions: [upload], streams: [16], chunkBytes: 16Mi}}\n\
             matrix: {clients: [raw], servers: [raw], transports: [tcp]}\n\
             iterations: 1\n\
             warmup: 0\n\
             template: {server: {resources: {limits: {memory: 64Mi}}}}\n";
        scene.create("hungry", spec).await?;
        let run = scene.ended("hungry", seconds(240)).await?;
        ensure!(
            phase(&run) == Some(Phase::Failed),
            "it ended as {}",
            describe(&run)
        );
        let results = scene.results(&run).await?;
        let failed = failures(&results);
        ensure!(!failed.is_empty(), "no trial failed");
        for record in failed {
            let failure = record.failure.as_ref().context("it failed")?;
            ensure!(
                failure.reason == Reason::NodeLost && failure.message.contains("OOMKilled"),
                "the trial does not say why the server ended: {failure:?}"
            );
        }
        let said = message(&run, Type::Complete);
        ensure!(said.contains("OOMKilled"), "the condition says only {said:?}");
        Ok(())
    });
}

#[test]
fn a_server_that_is_cut_off_is_replaced_and_its_trial_retried() {
    shared(async |scene| {
        let pod = in_a_trial(scene, "server-cut-off", "server").await?;
        let Some(process) = processes(&pod, NODE_PROGRAM)?.pop() else {
            skip(
                Need::Lab,
                "all of it",
                "needs root on the pod's computer, to cut the pod off",
            );
            return Ok(());
        };
        isolate(&process, async || {
            ends_with_one_trial_retried(scene, "server-cut-off", &pod).await?;
            Ok(())
        })
        .await
    });
}

#[test]
fn a_kubernetes_node_that_dies_costs_one_trial() {
    e2e(async |scene| {
        let Some(lab) = Lab::find_or_skip() else {
            return Ok(());
        };
        let leader = scene.operators().holder().await?;
        let results = survives_the_client_s_host(scene, &lab, "NotIn", &[1], "30s").await?;
        let still = scene.operators().holder().await?;
        ensure!(
            still == leader,
            "the node that died was not that of {leader}, and yet {still} leads"
        );
        let (_, failure) = only_failure(&results)?;
        ensure!(
            failure.reason == Reason::NodeLost,
            "the trial failed for another reason: {failure:?}"
        );
        Ok(())
    });
}

#[test]
fn a_kubernetes_node_can_die_with_a_client_and_the_operator_on_it() {
    e2e(async |scene| {
        let Some(lab) = Lab::find_or_skip() else {
            return Ok(());
        };
        survives_the_client_s_host(scene, &lab, "In", &[100, 100], "2m")
            .await
            .map(drop)
    });
}

/// Kills the Kubernetes node of a client, which either is or is not that of the leader. The client prefers
/// this node with these weights. If they exceed the weight with which the operator avoids a dead node (100),
/// the next pod is placed on it, too, and replaced when the cluster has noticed, more than 40 s later.
/// `provision` is the timeout for that.
async fn survives_the_client_s_host(
    scene: &Scene,
    lab: &Lab,
    operator: &str,
    weights: &[u8],
    provision: &str,
) -> Result<Results> {
    let leader = host(&scene.operators().leader().await?)?;
    let on_leader_s = |operator: &str| {
        let rule = json!({ "key": "kubernetes.io/hostname", "operator": operator, "values": [leader] });
        json!({ "matchExpressions": [rule] })
    };
    let prefer = |weight: &u8| json!({ "weight": weight, "preference": on_leader_s(operator) });
    let prefers: Vec<_> = weights.iter().map(prefer).collect();
    // The server must not occupy the client's node first.
    let template = json!({
        "client": { "affinity": { "nodeAffinity": { "preferredDuringSchedulingIgnoredDuringExecution": prefers } } },
        "server": { "affinity": { "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [on_leader_s("NotIn")],
        } } } },
    });
    // Trials are long, because killing a Kubernetes node takes seconds and has to hit a trial.
    let spec = format!(
        "workload: {{bandwidth: {{duration: 8s, directions: [upload]}}}}\n\
         matrix: {{clients: [libp2p], servers: [litep2p], rawReference: false}}\n\
         iterations: 2\n\
         warmup: 0\n\
         timeouts: {{provision: {provision}}}\n\
         template: {template}\n"
    );
    scene.create("dead-host", &spec).await?;
    scene.measuring("dead-host", 0, seconds(60)).await?;
    sleep(seconds(1)).await;
    let host = host(&scene.pod("dead-host", ROLE_LABEL, "client").await?)?;
    ensure!(
        (host == leader) == (operator == "In"),
        "the client is on {host}, the leader on {leader}"
    );
    let ended = lab
        .without(&host, async || {
            let run = scene.succeeded("dead-host", seconds(240)).await?;
            scene.checked_results(&run).await
        })
        .await;
    host_is_back(scene, &host).await?;
    ended
}

#[test]
fn a_run_with_nowhere_else_to_go_fails_in_time() {
    e2e(async |scene| {
        let Some(lab) = Lab::find_or_skip() else {
            return Ok(());
        };
        // A Kubernetes node without the operator, which would be lost, too.
        let leader = scene.operators().leader().await?;
        let away = leader.spec.and_then(|spec| spec.node_name);
        let nodes: Api<Node> = Api::all(scene.client());
        let mut names = nodes
            .list(&Default::default())
            .await?
            .into_iter()
            .map(|node| node.name_any());
        let host = names
            .find(|name| Some(name) != away.as_ref())
            .context("a second node")?;
        let pinned = LONG.replace("provision: 1m", "provision: 45s")
            + &format!("template: {{client: {{nodeSelector: {{kubernetes.io/hostname: {host}}}}}}}\n");
        scene.create("stranded", &pinned).await?;
        scene.measuring("stranded", 1, seconds(60)).await?;
        let ended = lab
            .without(&host, async || {
                let run = scene.ended("stranded", seconds(150)).await?;
                ensure!(
                    phase(&run) == Some(Phase::Failed) && reason(&run, Type::Complete) == "NodeLost",
                    "it ended as {}",
                    describe(&run)
                );
                let results = scene.results(&run).await?;
                let measured = results
                    .trials
                    .iter()
                    .filter(|record| record.failure.is_none())
                    .count();
                ensure!(measured >= 1, "what was measured before is lost");
                Ok(())
            })
            .await;
        host_is_back(scene, &host).await?;
        ended
    });
}

/// A pod in the middle of a trial.
async fn in_a_trial(scene: &Scene, run: &str, role: &str) -> Result<Pod> {
    scene.create(run, LONG).await?;
    scene.measuring(run, 1, seconds(60)).await?;
    // A trial takes three seconds.
    sleep(Duration::from_millis(500)).await;
    scene.pod(run, ROLE_LABEL, role).await
}

async fn delete(scene: &Scene, pod: &Pod) -> Result<()> {
    let pods: Api<Pod> = scene.api();
    let immediately = DeleteParams::default().grace_period(0);
    pods.delete(&pod.name_any(), &immediately)
        .await
        .context("failed to delete the pod")?;
    Ok(())
}

/// Returns how the trial failed.
async fn ends_with_one_trial_retried(scene: &Scene, name: &str, lost: &Pod) -> Result<TrialFailure> {
    let run = scene.succeeded(name, seconds(120)).await?;
    let results = scene.checked_results(&run).await?;
    let (record, failure) = only_failure(&results)?;
    ensure!(
        matches!(failure.reason, Reason::NodeLost | Reason::Stopped),
        "the trial failed for another reason: {failure:?}"
    );
    ensure!(record.attempt == 0, "the first attempt succeeded: {record:?}");
    let lost = lost.uid();
    let still_there = scene.pods(name).await?.iter().any(|pod| pod.uid() == lost);
    ensure!(!still_there, "the lost pod is still there");
    Ok(failure.clone())
}

fn host(pod: &Pod) -> Result<String> {
    let host = pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
    host.context("the pod is on a node")
}

/// Waits until a Kubernetes node reports again. Its condition Ready may be from before it died.
async fn host_is_back(scene: &Scene, host: &str) -> Result<()> {
    let leases: Api<Lease> = Api::namespaced(scene.client(), "kube-node-lease");
    let renewed = async || {
        let lease = leases.get(host).await?;
        anyhow::Ok(lease.spec.and_then(|spec| spec.renew_time))
    };
    let before = renewed().await?;
    let nodes: Api<Node> = Api::all(scene.client());
    until("the node is ready again", seconds(120), async || {
        let status = nodes.get(host).await?.status.unwrap_or_default();
        let mut conditions = status.conditions.into_iter().flatten();
        let is_ready = conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True");
        Ok((is_ready && renewed().await? != before).then_some(()))
    })
    .await
}
