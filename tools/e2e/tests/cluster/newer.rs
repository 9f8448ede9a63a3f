//! An upgrade to the next version and its rollback. The test plays the next version. It upgrades to a chart
//! whose CRDs know one more metric, phase and field of the status. While no operator runs, it writes what an
//! operator of that version would write into the status of runs and into what is kept of them.

use std::{
    collections::BTreeMap,
    fs,
    io::{Read, Write},
};

use anyhow::{Context, Result, ensure};
use flate2::{Compression, read::MultiGzDecoder, write::GzEncoder};
use k8s_openapi::{
    ByteString, api::core::v1::ConfigMap,
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Resource, ResourceExt,
    api::{ListParams, Patch, PatchParams, PostParams},
};
use perfrun_api::{
    cluster::{JsonBytesLeft, RESULTS_KEY, RUN_LABEL, TRIALS_KEY, read_trials},
    results::Results,
    schedule::{EndedRun, PerfSchedule},
    spec::PerfRun,
};
use perfrun_contract::{record::TrialRecord, run::Phase, summary::SummaryRow};
use perfrun_e2e::{
    Scene, e2e,
    helm::Helm,
    operators::NAMESPACE,
    repository,
    results::failures,
    run::{ENDLESS, TINY, describe, phase},
    seconds, until,
};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    chart::{CHART, Values, copy, helms, installing, values},
    plugin::{Plugin, succeeded},
    schedule::every_minute,
};

/// What only the next version has.
const METRIC: &str = "nextSeconds";
const FLAG: &str = "NextVersion";
const PHASE: &str = "Next";

#[test]
fn an_upgrade_and_its_rollback_lose_nothing() {
    e2e(async |scene| {
        let (Some([helm, _]), Some(plugin)) = (helms(scene), Plugin::install(scene)?) else {
            return Ok(());
        };
        let next = chart_of_next()?;
        let values = values(&helm).await?;
        let release = Release {
            scene,
            helm: &helm,
            values: &values,
            next: next.path().to_str().context("the path is text")?,
        };
        let ran = there_and_back(&release, &plugin).await;
        // The release is restored for other tests, even after a failure.
        let restored = helm.output(&installing(CHART, &values)).await;
        ran?;
        restored.map(drop)
    });
}

/// A run in progress and one that has ended go through the next version and back, beside one that has not.
async fn there_and_back(release: &Release<'_>, plugin: &Plugin<'_>) -> Result<()> {
    let scene = release.scene;
    // No run waits for another.
    let [tiny, endless] =
        [TINY, ENDLESS].map(|spec| spec.replace("placement: Any", "placement: Any, exclusive: false"));
    scene.create("old", &tiny).await?;
    let old = scene.succeeded("old", seconds(60)).await?;
    scene.create("going", &endless).await?;
    let mut schedule = every_minute("often")?;
    // The test creates its runs, because a schedule creates at most one in a minute.
    schedule.spec.suspend = true;
    let schedules: Api<PerfSchedule> = scene.api();
    let schedule = schedules.create(&PostParams::default(), &schedule).await?;
    create_owned(scene, &schedule, "new", &tiny).await?;
    scene.succeeded("new", seconds(60)).await?;
    history_from(scene, "new").await?;
    kept_until(scene, |records| !records.is_empty()).await?;

    release.upgrade().await?;
    let operators = scene.operators();
    let replicas = operators.deployment().await?.spec.replicas;
    operators.scale(0).await?;
    continue_as_next(scene, "going", "Running").await?;
    continue_as_next(scene, "new", "Succeeded").await?;
    let history = Patch::Merge(json!({"status": {"history": history_of_next(scene).await?}}));
    schedules
        .patch_status("often", &PatchParams::default(), &history)
        .await?;
    let new = scene.run("new").await?;
    ensure!(has_next_phase(&new), "it is {}", describe(&new));

    let history = history_from(scene, "new").await?;
    ensure!(
        history[0].phase.as_ref() == PHASE,
        "the schedule says {history:?}"
    );
    let written = [stored(scene, "old").await?, stored(scene, "new").await?];
    operators.scale(replicas.unwrap_or(2)).await?;
    release.roll_back().await?;
    is_continued_with_all_that_is_kept(scene).await?;
    for (before, written) in [&old, &new].into_iter().zip(written) {
        let name = before.name_any();
        let after = scene.run(&name).await?;
        ensure!(
            after.resource_version() == before.resource_version(),
            "a run that had ended was changed: {} became {}",
            describe(before),
            describe(&after)
        );
        ensure!(
            !written.is_empty() && stored(scene, &name).await? == written,
            "the results of {name}, which had ended, were changed"
        );
    }
    is_read_by_this_version(scene, plugin).await?;
    create_owned(scene, &schedule, "later", &tiny).await?;
    scene.succeeded("later", seconds(60)).await?;
    let after = history_from(scene, "later").await?;
    ensure!(
        after[1..] == history,
        "the schedule said {history:?} and says {after:?}"
    );

    // The older CRD hides a field that it does not know. An object that nobody writes still has it. The CRD
    // of the next version is enough to see it.
    release.upgrade().await?;
    until("the field of the next version is back", seconds(30), async || {
        let field = "--output=jsonpath={.status.next}";
        let said = scene.kubectl(&["get", "perfrun", "new", field]).await?;
        Ok((said == "Succeeded in the next version").then_some(()))
    })
    .await
}

/// Checks that this version continues the run, and that the results have what the next version recorded.
async fn is_continued_with_all_that_is_kept(scene: &Scene) -> Result<()> {
    let before = kept(scene).await?;
    // The next version no longer writes: what is added is of this version.
    kept_until(scene, |records| records.len() > before.len()).await?;
    let going = scene.run("going").await?;
    ensure!(
        phase(&going) == Some(Phase::Running),
        "this version did not write {}",
        describe(&going)
    );
    scene.change("going", json!({"cancel": true})).await?;
    let ended = scene.ended("going", seconds(60)).await?;
    let results = scene.checked_results(&ended).await?;
    let (kept, carried) = (trials_of_next(&before), trials_of_next(&results.trials));
    ensure!(
        !kept.is_empty() && carried == kept,
        "the journal had metrics and flags {kept:?}, and the results have {carried:?}"
    );
    ensure!(
        results.summary.iter().any(has_next_metric),
        "the summary lacks the metric"
    );
    Ok(())
}

/// Checks that this version reads and shows the run that has ended under the next one.
async fn is_read_by_this_version(scene: &Scene, plugin: &Plugin<'_>) -> Result<()> {
    let new = scene.run("new").await?;
    ensure!(has_next_phase(&new), "its phase is lost: {}", describe(&new));
    let status = new.status.context("it has a status")?;
    ensure!(
        status.summary.iter().any(has_next_metric),
        "the summary in its status lacks the metric"
    );
    let got = succeeded(plugin.run(&["get", "results", "new", "-o", "json"]).await?)?;
    let results: Results = serde_json::from_str(&got)?;
    let failed = failures(&results);
    ensure!(failed.is_empty(), "trials failed: {failed:?}");
    ensure!(
        results.trials.len() == 3 && results.trials.iter().all(is_of_next),
        "its records lack the metric or the flag: {got}"
    );
    ensure!(
        results.summary.iter().any(has_next_metric),
        "its summary lacks the metric: {got}"
    );
    let table = succeeded(plugin.run(&["get", "results", "new"]).await?)?;
    ensure!(table.contains(FLAG), "the table does not show the flag: {table}");
    let list = succeeded(plugin.run(&["list"]).await?)?;
    let row = list.lines().find(|line| line.starts_with("new "));
    ensure!(row.is_some_and(|row| row.contains(PHASE)), "{list}");
    Ok(())
}

/// The chart of the next version.
fn chart_of_next() -> Result<TempDir> {
    let folder = TempDir::new()?;
    copy(&repository().join(CHART), folder.path())?;
    let file = folder.path().join("files/crds/perfruns.perfrun.io.yaml");
    let mut crd: Value = serde_saphyr::from_str(&fs::read_to_string(&file)?)?;
    let status = crd
        .pointer_mut("/spec/versions/0/schema/openAPIV3Schema/properties/status/properties")
        .context("the CRD has a status")?;
    status["next"] = json!({"type": "string"});
    let names = [
        ("/phase/enum", PHASE),
        ("/summary/items/properties/metric/enum", METRIC),
    ];
    for (names, name) in names {
        let names = status.pointer_mut(names).and_then(Value::as_array_mut);
        names.context("the CRD lists its names")?.push(json!(name));
    }
    fs::write(&file, crd.to_string())?;
    Ok(folder)
}

/// Writes what an operator of the next version would write of a run in this phase.
async fn continue_as_next(scene: &Scene, name: &str, phase: &str) -> Result<()> {
    let maps: Api<ConfigMap> = scene.api();
    for (map, mut data) in stored(scene, name).await? {
        for (key, value) in &mut data {
            *value = written_by_next(key, value)?;
        }
        let patch = Patch::Merge(json!({"binaryData": data}));
        maps.patch(&map, &PatchParams::default(), &patch).await?;
    }
    let mut summary = json!(scene.run(name).await?.status.context("it has a status")?.summary);
    add_row_of_next(&mut summary);
    let status = json!({"phase": PHASE, "next": format!("{phase} in the next version"), "summary": summary});
    let patch = Patch::Merge(json!({"status": status}));
    let runs: Api<PerfRun> = scene.api();
    runs.patch_status(name, &PatchParams::default(), &patch).await?;
    Ok(())
}

/// Records and results, with the metric and the flag of the next version.
fn written_by_next(key: &str, value: &ByteString) -> Result<ByteString> {
    let mut text = String::new();
    MultiGzDecoder::new(&*value.0).read_to_string(&mut text)?;
    let mut compressed = GzEncoder::new(vec![], Compression::default());
    for line in text.lines() {
        let mut document: Value = serde_json::from_str(line)?;
        match key {
            TRIALS_KEY => {
                document["metrics"][METRIC] = json!(1.5);
                let flags = document["flags"].as_array_mut();
                match flags {
                    Some(flags) => flags.push(json!(FLAG)),
                    None => document["flags"] = json!([FLAG]),
                }
            }
            RESULTS_KEY => add_row_of_next(&mut document["summary"]),
            _ => {}
        }
        writeln!(compressed, "{document}")?;
    }
    Ok(ByteString(compressed.finish()?))
}

/// Adds the flag to all rows of a summary, and one more row, unless the summary is empty.
fn add_row_of_next(summary: &mut Value) {
    let Some(rows) = summary.as_array_mut() else {
        return;
    };
    for row in &mut *rows {
        row["flags"][FLAG] = json!(2);
    }
    if let Some(mut row) = rows.first().cloned() {
        row["metric"] = json!(METRIC);
        rows.push(row);
    }
}

/// The history of the schedule, as the next version would have written it.
async fn history_of_next(scene: &Scene) -> Result<Value> {
    let mut history = json!(history_from(scene, "new").await?);
    history[0]["phase"] = json!(PHASE);
    Ok(history)
}

/// The operator's release, on the way between two versions.
struct Release<'a> {
    scene: &'a Scene,
    helm: &'a Helm,
    values: &'a Values,
    /// The chart of the next version.
    next: &'a str,
}

impl Release<'_> {
    /// Upgrades to the chart of the next version.
    async fn upgrade(&self) -> Result<()> {
        self.helm.output(&installing(self.next, self.values)).await?;
        self.scene.operators().await_ready().await?;
        ensure!(
            self.crd_has_metric().await?,
            "the CRD is not that of the next version"
        );
        Ok(())
    }

    /// Returns to the version before.
    async fn roll_back(&self) -> Result<()> {
        let rollback = ["rollback", "perfrun", "--namespace", NAMESPACE];
        self.helm
            .output(&[&rollback[..], &["--wait", "--timeout=2m"]].concat())
            .await?;
        self.scene.operators().await_ready().await?;
        ensure!(!self.crd_has_metric().await?, "the CRD was not rolled back");
        Ok(())
    }

    async fn crd_has_metric(&self) -> Result<bool> {
        let crds: Api<CustomResourceDefinition> = Api::all(self.scene.client());
        let crd = crds.get("perfruns.perfrun.io").await.context("the CRD is gone")?;
        Ok(json!(crd).to_string().contains(METRIC))
    }
}

/// Creates a run as the schedule does.
async fn create_owned(scene: &Scene, schedule: &PerfSchedule, name: &str, spec: &str) -> Result<()> {
    scene.create(name, spec).await?;
    let owner = schedule
        .controller_owner_ref(&())
        .context("the schedule has no UID")?;
    let owned = Patch::Merge(json!({"metadata": {"ownerReferences": [owner]}}));
    let runs: Api<PerfRun> = scene.api();
    runs.patch(name, &PatchParams::default(), &owned).await?;
    Ok(())
}

/// Waits until the history of the schedule begins with a run, and returns the history.
async fn history_from(scene: &Scene, run: &str) -> Result<Vec<EndedRun>> {
    let schedules: Api<PerfSchedule> = scene.api();
    let what = format!("the history of the schedule begins with {run}");
    until(&what, seconds(30), async || {
        let history = schedules.get("often").await?.status.unwrap_or_default().history;
        let is_first = history.first().is_some_and(|first| first.name == run);
        Ok(is_first.then_some(history))
    })
    .await
}

/// Waits until the run in progress has kept records that are right.
async fn kept_until(scene: &Scene, are_right: impl Fn(&[TrialRecord]) -> bool) -> Result<()> {
    let what = "the version that conducts the run has kept records";
    until(what, seconds(120), async || {
        Ok(are_right(&kept(scene).await?).then_some(()))
    })
    .await
}

/// The records that the ConfigMaps of the run in progress have so far.
async fn kept(scene: &Scene) -> Result<Vec<TrialRecord>> {
    let mut records = vec![];
    for data in stored(scene, "going").await?.values() {
        if let Some(data) = data.get(TRIALS_KEY) {
            read_trials(&data.0, &mut JsonBytesLeft::default(), |record| {
                records.push(record);
            })?;
        }
    }
    Ok(records)
}

/// The binary data of the ConfigMaps of a run, by their names.
async fn stored(scene: &Scene, run: &str) -> Result<BTreeMap<String, BTreeMap<String, ByteString>>> {
    let maps: Api<ConfigMap> = scene.api();
    let of_run = ListParams::default().labels(&format!("{RUN_LABEL}={run}"));
    let maps = maps.list(&of_run).await?.items.into_iter();
    let data = maps.filter_map(|map| Some((map.name_any(), map.binary_data?)));
    Ok(data.collect())
}

/// What the next version recorded: metrics and flags, by trial and attempt.
fn trials_of_next(records: &[TrialRecord]) -> BTreeMap<(&str, u32), Value> {
    let of_next = records.iter().filter(|record| is_of_next(record));
    of_next
        .map(|record| {
            let attempt = (record.trial.id.as_str(), record.attempt);
            (attempt, json!([record.metrics, record.flags]))
        })
        .collect()
}

fn is_of_next(record: &TrialRecord) -> bool {
    record.metrics.keys().any(|metric| metric.as_ref() == METRIC)
        && record.flags.iter().any(|flag| flag.as_ref() == FLAG)
}

fn has_next_metric(row: &SummaryRow) -> bool {
    row.metric.as_ref() == METRIC
}

fn has_next_phase(run: &PerfRun) -> bool {
    phase(run).is_some_and(|phase| phase.as_ref() == PHASE)
}
