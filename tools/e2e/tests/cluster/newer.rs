//! An upgrade to the next version and its rollback. The next version is a build with one more metric, flag,
//! phase and field of the status: `cargo xtask e2e` compiles it with `--cfg next`.

use std::{collections::BTreeMap, env};

use anyhow::{Context, Result, ensure};
use k8s_openapi::{
    ByteString, api::core::v1::ConfigMap,
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Resource, ResourceExt,
    api::{ListParams, Patch, PatchParams, PostParams},
};
use perfrun_api::{
    cluster::{Allowance, RUN_LABEL, TRIALS_KEY, condition::Type, read_trials},
    results::Results,
    schedule::{EndedRun, PerfSchedule},
    spec::PerfRun,
};
use perfrun_contract::{record::TrialRecord, run::Phase, summary::SummaryRow};
use perfrun_e2e::{
    Scene, e2e,
    helm::Helm,
    operators::NAMESPACE,
    results::{check_every_trial_once, failures},
    run::{ENDLESS, TINY, describe, phase, reason},
    seconds, until,
};
use perfrun_test_kit::{Need, skip};
use serde_json::{Value, json};

use crate::{
    chart::{CHART, Values, helms, installing, values},
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
        let Ok(next) = env::var("PERFRUN_E2E_NEXT") else {
            skip(
                Need::Cluster,
                "all of it",
                "needs the next version: PERFRUN_E2E_NEXT is not set",
            );
            return Ok(());
        };
        let values = values(&helm).await?;
        let release = Release {
            scene,
            helm: &helm,
            values: &values,
            next: &next,
        };
        let ran = there_and_back(&release, &plugin).await;
        // The release is restored for other tests, even after a failure.
        let restored = helm.output(&installing(CHART, &values)).await;
        ran?;
        restored.map(drop)
    });
}

/// Begins a run with this version, continues it with the next one, and returns to this one. One run ends with
/// each version.
async fn there_and_back(release: &Release<'_>, plugin: &Plugin<'_>) -> Result<()> {
    let scene = release.scene;
    // No run waits for another.
    let [tiny, endless] =
        [TINY, ENDLESS].map(|spec| spec.replace("placement: Any", "placement: Any, exclusive: false"));
    scene.create("old", &tiny).await?;
    let old = scene.succeeded("old", seconds(60)).await?;
    scene.create("going", &endless).await?;
    scene.measuring("going", 1, seconds(60)).await?;
    let mut schedule = every_minute("often")?;
    // The test creates its runs, because a schedule creates at most one in a minute.
    schedule.spec.suspend = true;
    let schedules: Api<PerfSchedule> = scene.api();
    let schedule = schedules.create(&PostParams::default(), &schedule).await?;

    release.upgrade(&["--set", "image.tag=next"]).await?;
    kept_until(scene, |records| records.iter().any(is_of_next)).await?;
    let going = scene.run("going").await?;
    ensure!(
        has_next_phase(&going),
        "the next version did not write {}",
        describe(&going)
    );
    create_owned(scene, &schedule, "new", &tiny).await?;
    let new = scene.ended("new", seconds(120)).await?;
    ensure!(
        has_next_phase(&new) && reason(&new, Type::Complete) == "Succeeded",
        "it ended as {}",
        describe(&new)
    );

    let history = history_from(scene, "new").await?;
    ensure!(
        history[0].phase.as_ref() == PHASE,
        "the schedule says {history:?}"
    );
    let written = [stored(scene, "old").await?, stored(scene, "new").await?];
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
    release.upgrade(&[]).await?;
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
    let results = scene.results(&ended).await?;
    check_every_trial_once(&ended, &results)?;
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

/// The operator's release, on the way between two versions.
struct Release<'a> {
    scene: &'a Scene,
    helm: &'a Helm,
    values: &'a Values,
    /// The chart of the next version.
    next: &'a str,
}

impl Release<'_> {
    /// Upgrades to the chart of the next version, with further options of helm.
    async fn upgrade(&self, options: &[&str]) -> Result<()> {
        self.helm
            .output(&[&installing(self.next, self.values)[..], options].concat())
            .await?;
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
            read_trials(&data.0, &mut Allowance::default(), |record| records.push(record))?;
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
