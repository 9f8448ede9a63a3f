//! `perfrun conformance --image`: images of nodes, checked in pods.

use std::process::{Output, Stdio};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::{Api, api::ListParams};
use perfrun_e2e::{Scene, admission, find_perfrun, printed, seconds, shared, until};
use tokio::process::Command;

#[test]
fn the_image_of_our_node_conforms() {
    shared(async |scene| conforms(scene, "PERFRUN_NODE_IMAGE").await);
}

#[test]
fn the_image_of_the_go_node_conforms() {
    shared(async |scene| conforms(scene, "PERFRUN_NODE_IMAGE_GO").await);
}

#[test]
fn an_image_that_does_not_exist_is_named_and_nothing_is_left() {
    admission(async |scene| {
        let image = "perfrun/no-such-image:0";
        let args = ["--image", image, "--provision-timeout", "20s"];
        let Some(mut perfrun) = perfrun(scene, &scene.namespace, &args) else {
            return Ok(());
        };
        let said = refused(&perfrun.output().await?)?;
        for part in [
            "failed to start the node: pod ",
            image,
            "check the name of the image",
        ] {
            ensure!(said.contains(part), "{part} is missing: {said}");
        }
        nothing_is_left(scene).await
    });
}

#[test]
fn a_namespace_that_does_not_exist_or_has_no_room_is_named() {
    admission(async |scene| {
        let args = ["--image", "perfrun.invalid/node:0"];
        let Some(mut full) = perfrun(scene, &scene.namespace, &args) else {
            return Ok(());
        };
        scene
            .kubectl(&["create", "quota", "none", "--hard=pods=0"])
            .await?;
        until("the quota is in force", seconds(30), async || {
            let status = scene
                .kubectl(&["get", "quota", "none", "-o", "jsonpath={.status.hard}"])
                .await?;
            Ok(status.contains("pods").then_some(()))
        })
        .await?;
        let said = refused(&full.output().await?)?;
        ensure!(
            said.contains("exceeded quota: none") && said.contains("--namespace"),
            "{said}"
        );
        nothing_is_left(scene).await?;

        let nowhere = perfrun(scene, "no-such-namespace", &args);
        let said = refused(&nowhere.context("perfrun was there")?.output().await?)?;
        ensure!(said.contains("create the namespace"), "{said}");
        Ok(())
    });
}

#[test]
fn ctrl_c_deletes_the_pods() {
    shared(async |scene| {
        let image = image(scene, "PERFRUN_NODE_IMAGE").await?;
        let args = ["--image", &image, "--reference-image", &image];
        let Some(mut perfrun) = perfrun(scene, &scene.namespace, &args) else {
            return Ok(());
        };
        let perfrun = perfrun.spawn()?;
        let pods: Api<Pod> = scene.api();
        until("there are three pods", seconds(60), async || {
            let count = pods.list(&ListParams::default()).await?.items.len();
            Ok((count == 3).then_some(()))
        })
        .await?;
        let pid = perfrun.id().context("perfrun runs")?.to_string();
        let killed = Command::new("kill").args(["-INT", &pid]).status().await?;
        ensure!(killed.success(), "{killed}");
        let output = perfrun.wait_with_output().await?;
        ensure!(output.status.code() == Some(130), "{}", printed(&output));
        nothing_is_left(scene).await
    });
}

/// Checks the image that the operator of the cluster has in this variable.
async fn conforms(scene: &Scene, variable: &str) -> Result<()> {
    let tested = image(scene, variable).await?;
    let peer = image(scene, "PERFRUN_NODE_IMAGE").await?;
    // WebRTC takes most of the time, as in the test on one machine.
    let skipped = ["--skip", "webrtc-direct", "--skip", "v1lazy"];
    let args = [&["--image", &tested, "--reference-image", &peer][..], &skipped].concat();
    let Some(mut perfrun) = perfrun(scene, &scene.namespace, &args) else {
        return Ok(());
    };
    let output = perfrun.output().await?;
    let said = printed(&output);
    ensure!(output.status.success() && !said.contains("FAILED"), "{said}");
    for line in [
        "passed   faults/stopped",
        "passed   hostile/slow",
        "skipped  states/many",
    ] {
        ensure!(said.contains(line), "{line} is missing: {said}");
    }
    nothing_is_left(scene).await
}

/// `perfrun conformance` on the cluster of a test. Without perfrun, the test is skipped.
fn perfrun(scene: &Scene, namespace: &str, args: &[&str]) -> Option<Command> {
    let mut command = Command::new(find_perfrun("all of it")?);
    command
        .arg("conformance")
        .args(args)
        .args(["--namespace", namespace, "--kubeconfig"])
        .arg(scene.cluster.kubeconfig())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    Some(command)
}

/// An image that the cluster has: a setting of its operator.
async fn image(scene: &Scene, variable: &str) -> Result<String> {
    let pods = scene.operators().deployment().await?.spec.template.spec;
    let containers = pods.into_iter().flat_map(|pod| pod.containers);
    let mut variables = containers.flat_map(|container| container.env.unwrap_or_default());
    let found = variables.find(|one| one.name == variable);
    found
        .and_then(|one| one.value)
        .with_context(|| format!("the operator has no {variable}"))
}

async fn nothing_is_left(scene: &Scene) -> Result<()> {
    let all = ListParams::default();
    // Kubernetes collects a pod whose creation Ctrl-C cut short.
    until("no pod and no Secret is left", seconds(30), async || {
        let pods = scene.api::<Pod>().list(&all).await?.items;
        let secrets = scene.api::<Secret>().list(&all).await?.items;
        ensure!(
            pods.is_empty() && secrets.is_empty(),
            "{} pods and {} Secrets are left",
            pods.len(),
            secrets.len()
        );
        Ok(Some(()))
    })
    .await
}

/// What perfrun printed when it failed.
fn refused(output: &Output) -> Result<String> {
    let said = printed(output);
    ensure!(output.status.code() == Some(1), "{}: {said}", output.status);
    Ok(said)
}
