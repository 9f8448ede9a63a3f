//! A rollback from a newer version, by what it would have left in the cluster: a status with a phase and a
//! metric, and records with a metric and a flag, that this version does not know.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use k8s_openapi::{ByteString, api::core::v1::ConfigMap};
use kube::{
    Api,
    api::{ListParams, Patch, PatchParams, PostParams},
};
use perfrun_api::{
    cluster::{Allowance, PART_BYTES, RUN_LABEL, TRIALS_KEY, read_trials, trials_to_parts},
    spec::PerfRun,
};
use perfrun_contract::record::TrialRecord;
use perfrun_e2e::{
    Scene, e2e,
    results::check_every_trial_once,
    run::{ENDLESS, TINY, phase, trials_ended},
    seconds, until,
};
use serde_json::{Value, json};

use crate::installed::{any_schema, set_schema};

#[test]
fn what_a_newer_version_left_outlives_a_rollback() {
    e2e(async |scene| {
        scene.create("ended", TINY).await?;
        scene.succeeded("ended", seconds(60)).await?;
        scene.create("endless", ENDLESS).await?;
        scene.measuring("endless", 1, seconds(60)).await?;
        let part = until("the journal has a part", seconds(60), async || part(scene).await).await?;

        let operators = scene.operators();
        let replicas = operators.deployment().await?.spec.replicas;
        operators.scale(0).await?;
        let left = leave(scene, part).await;
        // Operators are restored for other tests, even after a failure.
        let restored = operators.scale(replicas.unwrap_or(2)).await;
        left?;
        restored?;

        let version = scene.run("ended").await?.metadata.resource_version;
        let before = trials_ended(&scene.run("endless").await?);
        scene.measuring("endless", before + 2, seconds(90)).await?;
        scene.change("endless", json!({"cancel": true})).await?;
        let run = scene.ended("endless", seconds(60)).await?;
        let results = scene.results(&run).await?;
        check_every_trial_once(&run, &results)?;
        let carried = results.trials.iter().filter(|record| is_newer(record)).count();
        ensure!(
            carried > 0,
            "the metric and the flag of the newer version are lost"
        );

        let ended = scene.run("ended").await?;
        ensure!(
            ended.metadata.resource_version == version,
            "the run that had ended was changed"
        );
        let said = phase(&ended).map(|phase| phase.to_string());
        ensure!(said.as_deref() == Some("Hibernating"), "its phase is {said:?}");
        ensure!(
            scene.results(&ended).await?.trials.len() == 3,
            "its results are lost"
        );
        Ok(())
    });
}

fn is_newer(record: &TrialRecord) -> bool {
    record.metrics.keys().any(|metric| metric.as_ref() == "jitterP50")
        && record.flags.iter().any(|flag| flag.as_ref() == "Overheated")
}

/// The first ConfigMap with records of the run in progress.
async fn part(scene: &Scene) -> Result<Option<ConfigMap>> {
    let maps: Api<ConfigMap> = scene.api();
    let of_run = ListParams::default().labels(&format!("{RUN_LABEL}=endless"));
    Ok(maps.list(&of_run).await?.items.into_iter().next())
}

/// Leaves what a newer version would have left.
async fn leave(scene: &Scene, mut part: ConfigMap) -> Result<()> {
    let data = part
        .binary_data
        .take()
        .and_then(|mut data| data.remove(TRIALS_KEY));
    let data = data.context("the part has records")?;
    let mut lines = String::new();
    read_trials(&data.0, &mut Allowance::default(), |record| {
        let mut record = json!(record);
        record["metrics"]["jitterP50"] = json!(0.25);
        record["flags"] = json!(["Overheated"]);
        lines += &format!("{record}\n");
    })?;
    let (key, data) = trials_to_parts(&lines, PART_BYTES)
        .pop()
        .context("there is a record")?;
    part.binary_data = Some(BTreeMap::from([(key.to_owned(), ByteString(data))]));
    let maps: Api<ConfigMap> = scene.api();
    let name = part.metadata.name.clone().unwrap_or_default();
    maps.replace(&name, &PostParams::default(), &part).await?;

    let valid = set_schema(scene, any_schema()?).await?;
    let written = write_statuses(scene).await;
    set_schema(scene, valid).await?;
    written
}

async fn write_statuses(scene: &Scene) -> Result<()> {
    let runs: Api<PerfRun> = scene.api();
    let mut summary = json!(
        scene
            .run("ended")
            .await?
            .status
            .context("it has a status")?
            .summary
    );
    summary[0]["metric"] = json!("jitterP50");
    let ended = json!({"status": {"phase": "Hibernating", "summary": summary}});
    let endless = json!({"status": {"phase": "Hibernating"}});
    for (name, status) in [("ended", ended), ("endless", endless)] {
        until("a status of a newer version is taken", seconds(30), async || {
            let patch: Patch<&Value> = Patch::Merge(&status);
            runs.patch_status(name, &PatchParams::default(), &patch).await?;
            Ok(Some(()))
        })
        .await?;
    }
    Ok(())
}
