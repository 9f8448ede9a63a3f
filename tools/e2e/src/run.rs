//! PerfRuns of tests, and waiting for them.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::{api::core::v1::Pod, apimachinery::pkg::apis::meta::v1::Condition};
use kube::{
    ResourceExt,
    api::{ListParams, Patch, PatchParams, PostParams},
};
use perfrun_api::{
    cluster::{
        RUN_LABEL,
        condition::{self, Type},
    },
    document,
    spec::PerfRun,
};
use perfrun_contract::run::Phase;
use serde_json::Value;

use crate::{Scene, seconds, until};

/// A run of three trials that each take some milliseconds.
pub const TINY: &str = "
workload: {bandwidth: {sizes: [1Mi], directions: [upload]}}
matrix: {clients: [libp2p], servers: [libp2p], rawReference: false}
iterations: 2
warmup: 1
topology: {placement: Any}
";

/// A run of a minute, whose trials are long enough for a test to interrupt one.
pub const LONG: &str = "
workload: {bandwidth: {duration: 3s, directions: [upload]}}
matrix: {clients: [libp2p], servers: [litep2p], rawReference: false}
iterations: 4
warmup: 1
topology: {placement: Any}
timeouts: {provision: 1m}
";

/// A run like [`LONG`] that continues until it is cancelled, even on a fast machine.
pub const ENDLESS: &str = "
workload: {bandwidth: {duration: 3s, directions: [upload]}}
matrix: {clients: [libp2p], servers: [litep2p], rawReference: false}
iterations: 1000
topology: {placement: Any}
timeouts: {provision: 1m}
";

impl Scene {
    /// Creates a run with a `spec` that begins in the first column. On a shared cluster the run is not
    /// exclusive.
    pub async fn create(&self, name: &str, spec: &str) -> Result<PerfRun> {
        let mut run = document::parse(&in_yaml(name, spec))
            .context("the test's document is wrong")?
            .remove(0);
        run.spec.topology.exclusive &= !self.is_shared;
        let created = self.api().create(&PostParams::default(), &run).await;
        created.with_context(|| format!("failed to create PerfRun {name}"))
    }

    pub async fn run(&self, name: &str) -> Result<PerfRun> {
        let run = self.api().get(name).await;
        run.with_context(|| format!("failed to get PerfRun {name}"))
    }

    /// Waits until `is_met` holds for a run; `what` says in messages what that is.
    pub async fn run_until(
        &self,
        name: &str,
        what: &str,
        limit: Duration,
        is_met: impl Fn(&PerfRun) -> bool,
    ) -> Result<PerfRun> {
        let mut last = String::new();
        let waited = until(&format!("PerfRun {name} {what}"), limit, async || {
            let run = self.run(name).await?;
            last = describe(&run);
            Ok(is_met(&run).then_some(run))
        })
        .await;
        waited.with_context(|| format!("last status: {last}"))
    }

    /// Waits until a run has ended.
    pub async fn ended(&self, name: &str, limit: Duration) -> Result<PerfRun> {
        self.run_until(name, "has ended", limit, has_ended).await
    }

    /// Waits until a run has ended, and checks that it succeeded.
    pub async fn succeeded(&self, name: &str, limit: Duration) -> Result<PerfRun> {
        let run = self.ended(name, limit).await?;
        ensure!(
            phase(&run) == Some(Phase::Succeeded),
            "PerfRun {name} ended as {}",
            describe(&run)
        );
        Ok(run)
    }

    /// Waits until two runs have succeeded, and checks that the second began after the first had ended.
    pub async fn succeeded_in_turn(&self, first: &str, second: &str) -> Result<()> {
        let first = self.succeeded(first, seconds(90)).await?;
        let second = self.succeeded(second, seconds(90)).await?;
        let ended = condition(&first, Type::Complete).map(|condition| &condition.last_transition_time);
        let began = condition(&second, Type::Provisioned).map(|condition| &condition.last_transition_time);
        ensure!(
            began >= ended,
            "the second was ready at {began:?}, the first ended at {ended:?}"
        );
        Ok(())
    }

    /// Waits until a run is in progress and a number of its trials have ended.
    pub async fn measuring(&self, name: &str, trials: u32, limit: Duration) -> Result<PerfRun> {
        let what = format!("is running and has ended {trials} trials");
        let run = self
            .run_until(name, &what, limit, |run| {
                has_ended(run) || is_running(run) && trials_ended(run) >= trials
            })
            .await?;
        ensure!(
            !has_ended(&run),
            "PerfRun {name} ended too early: {}",
            describe(&run)
        );
        Ok(run)
    }

    /// Changes fields of a run's spec.
    pub async fn change(&self, name: &str, spec: Value) -> Result<PerfRun, kube::Error> {
        let patch = Patch::Merge(serde_json::json!({ "spec": spec }));
        self.api().patch(name, &PatchParams::default(), &patch).await
    }

    pub async fn pods(&self, run: &str) -> Result<Vec<Pod>> {
        let of_run = ListParams::default().labels(&format!("{RUN_LABEL}={run}"));
        Ok(self
            .api()
            .list(&of_run)
            .await
            .context("failed to list pods")?
            .items)
    }

    /// Waits until a run has no pods.
    pub async fn no_pods(&self, run: &str) -> Result<()> {
        until(&format!("PerfRun {run} has no pods"), seconds(30), async || {
            let pods = self.pods(run).await?;
            ensure!(pods.is_empty(), "it has {}", pods.len());
            Ok(Some(()))
        })
        .await
    }

    /// The pod of a run with this value of a label.
    pub async fn pod(&self, run: &str, label: &str, value: &str) -> Result<Pod> {
        let pods = self.pods(run).await?;
        let pod = pods
            .into_iter()
            .find(|pod| pod.labels().get(label).is_some_and(|labelled| labelled == value));
        pod.with_context(|| format!("PerfRun {run} has no pod with {label}={value}"))
    }
}

/// A document in YAML, with a `spec` that begins in the first column.
pub fn in_yaml(name: &str, spec: &str) -> String {
    let spec: String = spec.trim().lines().map(|line| format!("  {line}\n")).collect();
    format!("apiVersion: perfrun.io/v1alpha1\nkind: PerfRun\nmetadata: {{name: {name}}}\nspec:\n{spec}")
}

/// A condition of a run.
pub fn condition(run: &PerfRun, type_: Type) -> Option<&Condition> {
    condition::find(&run.status.as_ref()?.conditions, type_)
}

/// Whether a run has a condition with this status.
pub fn has_condition(run: &PerfRun, type_: Type, status: &str) -> bool {
    condition(run, type_).is_some_and(|condition| condition.status == status)
}

/// Checks that the links of a run were measured, and were as configured.
pub fn check_links_verified(run: &PerfRun) -> Result<()> {
    ensure!(
        has_condition(run, Type::LinksVerified, "True"),
        "its links are not verified: {}",
        describe(run)
    );
    Ok(())
}

/// The reason of a condition.
pub fn reason(run: &PerfRun, type_: Type) -> &str {
    condition(run, type_).map_or("", |condition| &condition.reason)
}

/// The message of a condition.
pub fn message(run: &PerfRun, type_: Type) -> &str {
    condition(run, type_).map_or("", |condition| &condition.message)
}

/// Whether a run has ended, in any phase.
pub fn has_ended(run: &PerfRun) -> bool {
    has_condition(run, Type::Complete, "True")
}

fn is_running(run: &PerfRun) -> bool {
    has_condition(run, Type::Running, "True")
}

/// The number of ended trials in the status of a run.
pub fn trials_ended(run: &PerfRun) -> u32 {
    let trials = run.status.as_ref().map(|status| &status.trials);
    trials.map_or(0, |trials| trials.completed + trials.failed)
}

pub fn phase(run: &PerfRun) -> Option<Phase> {
    run.status.as_ref()?.phase
}

/// The status of a run in one line, for messages.
pub fn describe(run: &PerfRun) -> String {
    let status = run.status.clone().unwrap_or_default();
    let conditions = status.conditions.iter().map(|condition| {
        let Condition {
            type_,
            status,
            reason,
            message,
            ..
        } = condition;
        format!("{type_}={status} ({reason}: {message})")
    });
    let conditions: Vec<_> = conditions.collect();
    let phase = status
        .phase
        .map_or_else(|| "without a phase".to_owned(), |phase| phase.to_string());
    format!("{phase} {}, {}", status.trials.progress, conditions.join(", "))
}
