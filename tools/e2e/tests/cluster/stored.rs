//! Results on a volume.

use std::{fs, os::unix::fs::PermissionsExt, path::Path};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolume, PersistentVolumeClaim, Pod};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, PostParams},
};
use perfrun_api::{cluster::RUN_LABEL, results::Results, spec::PerfRun};
use perfrun_e2e::{Scene, lab::Lab, results::check_every_trial_once, run::TINY, seconds, shared, until};
use perfrun_test_kit::{Need, skip};
use serde_json::json;

use crate::plugin::{Plugin, succeeded};

const CLAIM: &str = "disk";

#[test]
fn results_on_a_volume_are_read_again_and_stay_when_the_run_is_deleted() {
    shared(async |scene| {
        let Some(plugin) = Plugin::install(scene)? else {
            return Ok(());
        };
        if let Err(reason) = Lab::find() {
            skip(Need::Cluster, "all of it", &reason);
            return Ok(());
        }
        // The Kubernetes nodes of a lab see the files of this machine.
        let folder = tempfile::tempdir()?;
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777))?;
        let volumes: Api<PersistentVolume> = Api::all(scene.client());
        let volume: PersistentVolume = serde_json::from_value(json!({
            "metadata": {"name": scene.namespace},
            "spec": {
                "accessModes": ["ReadWriteMany"],
                "capacity": {"storage": "1Gi"},
                "claimRef": {"namespace": scene.namespace, "name": CLAIM},
                "hostPath": {"path": folder.path()},
                "persistentVolumeReclaimPolicy": "Retain",
                "storageClassName": "",
            },
        }))?;
        volumes.create(&PostParams::default(), &volume).await?;
        let kept = keep(scene, &plugin, folder.path()).await;
        volumes.delete(&scene.namespace, &DeleteParams::default()).await?;
        kept
    });
}

async fn keep(scene: &Scene, plugin: &Plugin<'_>, folder: &Path) -> Result<()> {
    let claim: PersistentVolumeClaim = serde_json::from_value(json!({
        "metadata": {"name": CLAIM},
        "spec": {
            "accessModes": ["ReadWriteMany"],
            "resources": {"requests": {"storage": "1Gi"}},
            "storageClassName": "",
            "volumeName": scene.namespace,
        },
    }))?;
    scene.api().create(&PostParams::default(), &claim).await?;
    let store = format!("results: {{store: {{volume: {{claim: {CLAIM}, path: nightly}}}}}}\n");
    scene.create("kept", &format!("{TINY}{store}")).await?;
    let run = scene.succeeded("kept", seconds(90)).await?;
    let of_run = ListParams::default().labels(&format!("{RUN_LABEL}=kept"));
    let maps = scene.api::<ConfigMap>().list(&of_run).await?;
    ensure!(maps.items.is_empty(), "there are ConfigMaps: {maps:?}");

    let got = succeeded(plugin.run(&["get", "results", "kept", "-o", "json"]).await?)?;
    let results: Results = serde_json::from_str(&got)?;
    check_every_trial_once(&run, &results)?;
    let readers = ListParams::default().labels("app.kubernetes.io/name=perfrun-results");
    until("the pod that reads is gone", seconds(30), async || {
        let left = scene.api::<Pod>().list(&readers).await?;
        Ok(left.items.is_empty().then_some(()))
    })
    .await?;

    scene
        .api::<PerfRun>()
        .delete("kept", &DeleteParams::default())
        .await?;
    scene.await_nothing_left("kept").await?;
    let uid = run.uid().context("the run has a UID")?;
    let folder = folder.join(format!("nightly/{}/kept/{uid}/v1", scene.namespace));
    let status = run.status.context("the run has a status")?;
    ensure!(!status.results.is_empty(), "status.results is empty");
    for name in &status.results {
        ensure!(
            folder.join(name).is_file(),
            "{name} is not in {}",
            folder.display()
        );
    }
    Ok(())
}
