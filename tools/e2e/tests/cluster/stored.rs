//! Results on a volume, and in an object store.

use std::{
    fs,
    net::{IpAddr, Ipv4Addr, UdpSocket},
    os::unix::fs::{MetadataExt, PermissionsExt, chown},
    path::Path,
};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolume, PersistentVolumeClaim, Pod, Secret};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, PostParams},
};
use perfrun_api::{cluster::RUN_LABEL, results::Results};
use perfrun_e2e::{Scene, lab::Lab, results::check_every_trial_once, run::TINY, seconds, shared, until};
use perfrun_test_kit::s3;
use serde_json::{Value, json};

use crate::plugin::{Plugin, succeeded};

const CLAIM: &str = "disk";
const SECRET: &str = "bucket";
/// The group that has to be permitted to write to a volume.
const GROUP: u32 = 65532;

#[test]
fn results_on_a_volume_are_read_again_and_stay_and_its_other_files_are_left_as_they_are() {
    shared(async |scene| {
        let Some(plugin) = plugin_in_a_lab(scene)? else {
            return Ok(());
        };
        let folder = tempfile::tempdir()?;
        chown(folder.path(), None, Some(GROUP))?;
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o770))?;
        let of_others = folder.path().join("file");
        fs::write(&of_others, "not ours")?;
        fs::set_permissions(&of_others, fs::Permissions::from_mode(0o600))?;
        let before = owner_and_mode(&of_others)?;
        let volumes: Api<PersistentVolume> = Api::all(scene.client());
        let volume: PersistentVolume = serde_json::from_value(json!({
            "metadata": {"name": scene.namespace},
            "spec": {
                "accessModes": ["ReadWriteMany"],
                "capacity": {"storage": "1Gi"},
                "claimRef": {"namespace": scene.namespace, "name": CLAIM},
                // The kubelet changes owners on volumes of this kind, and none with `hostPath`.
                "local": {"path": folder.path()},
                "nodeAffinity": {"required": {"nodeSelectorTerms": [
                    {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "Exists"}]},
                ]}},
                "persistentVolumeReclaimPolicy": "Retain",
                "storageClassName": "",
            },
        }))?;
        volumes.create(&PostParams::default(), &volume).await?;
        let kept = keep_on_volume(scene, &plugin, folder.path()).await;
        volumes.delete(&scene.namespace, &DeleteParams::default()).await?;
        kept?;
        let after = owner_and_mode(&of_others)?;
        ensure!(after == before, "the file of others: {before:?} became {after:?}");
        Ok(())
    });
}

/// User, group and mode of a file.
fn owner_and_mode(file: &Path) -> Result<(u32, u32, u32)> {
    let facts = fs::metadata(file)?;
    Ok((facts.uid(), facts.gid(), facts.mode()))
}

#[test]
fn results_in_an_object_store_are_read_again_and_stay_when_the_run_is_deleted() {
    shared(async |scene| {
        let Some(plugin) = plugin_in_a_lab(scene)? else {
            return Ok(());
        };
        let folder = tempfile::tempdir()?;
        let endpoint = s3::serve(address_for_pods(scene).await?, folder.path()).await?;
        let (key, password) = s3::KEY;
        let secret: Secret = serde_json::from_value(json!({
            "metadata": {"name": SECRET},
            "stringData": {"AWS_ACCESS_KEY_ID": key, "AWS_SECRET_ACCESS_KEY": password},
        }))?;
        scene.api().create(&PostParams::default(), &secret).await?;
        let url = format!("s3://{}/nightly", s3::BUCKET);
        let store = json!({"objectStore": {"url": url, "endpoint": endpoint, "secret": SECRET}});
        keep(scene, &plugin, &store, &folder.path().join(s3::BUCKET)).await
    });
}

/// perfrun as a plugin of kubectl, in a lab: its pods reach files and ports of this machine. `None` if
/// something is missing, which is reported.
fn plugin_in_a_lab(scene: &Scene) -> Result<Option<Plugin<'_>>> {
    match Lab::find_or_skip() {
        Some(_) => Plugin::install(scene),
        None => Ok(None),
    }
}

/// The address of this machine on the network of the lab.
async fn address_for_pods(scene: &Scene) -> Result<IpAddr> {
    let pod = scene.operators().leader().await?;
    let pod = pod.status.and_then(|status| status.pod_ip);
    let pod: IpAddr = pod.context("the leader has an address")?.parse()?;
    // The kernel chooses the address. No packet is sent.
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    socket.connect((pod, 1))?;
    Ok(socket.local_addr()?.ip())
}

async fn keep_on_volume(scene: &Scene, plugin: &Plugin<'_>, folder: &Path) -> Result<()> {
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
    let store = json!({"volume": {"claim": CLAIM, "path": "nightly"}});
    keep(scene, plugin, &store, folder).await
}

/// Runs a document with this store, and reads its results again. The store's files are in `folder`.
async fn keep(scene: &Scene, plugin: &Plugin<'_>, store: &Value, folder: &Path) -> Result<()> {
    let results = json!({"store": store});
    scene
        .create("kept", &format!("{TINY}results: {results}\n"))
        .await?;
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

    scene.delete("kept").await?;
    let uid = run.uid().context("the run has a UID")?;
    let folder = folder.join(format!("nightly/{}/kept/{uid}/v2", scene.namespace));
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
