//! Schedules: runs that nobody creates by hand, and what they found.

use anyhow::{Context, Result, ensure};
use kube::{
    Api, ResourceExt,
    api::{ListParams, Patch, PatchParams, PostParams},
};
use perfrun_api::{
    cluster::{SCHEDULE_LABEL, condition::Type},
    document,
    schedule::PerfSchedule,
    spec::PerfRun,
};
use perfrun_e2e::{Scene, admission, run::in_yaml, seconds, shared, until};
use serde_json::json;

const EVERY_MINUTE: &str = "
schedule: '* * * * *'
concurrencyPolicy: Forbid
runTemplate:
  metadata: {labels: {team: networking}}
  spec:
    workload: {ping: {count: 20}}
    matrix: {clients: [libp2p], servers: [libp2p], rawReference: false}
    expect: [{metric: roundTripP50, max: 10s}]
    iterations: 6
    warmup: 0
    # The largest one, for the API server to keep.
    seed: 4294967295
    topology: {placement: Any, exclusive: false}
";

#[test]
fn a_schedule_creates_a_run_each_minute_and_keeps_its_verdict() {
    shared(async |scene| {
        let schedules: Api<PerfSchedule> = scene.api();
        schedules
            .create(&PostParams::default(), &every_minute("often")?)
            .await?;
        let ended = until("a run of the schedule has ended", seconds(180), async || {
            let status = schedules.get("often").await?.status.unwrap_or_default();
            Ok(status.history.into_iter().next_back())
        })
        .await?;
        let suspend = Patch::Merge(json!({"spec": {"suspend": true}}));
        schedules
            .patch("often", &PatchParams::default(), &suspend)
            .await?;
        let run = scene.succeeded(&ended.name, seconds(5)).await?;
        ensure!(run.labels()[SCHEDULE_LABEL] == "often" && run.labels()["team"] == "networking");
        let verdict = run.status.and_then(|status| status.verdict);
        ensure!(
            verdict.is_some() && ended.verdict == verdict && ended.seed == Some(u32::MAX),
            "the run has {verdict:?}, and the schedule says {ended:?}"
        );

        let table = scene.kubectl(&["get", "pfs", "often"]).await?;
        ensure!(
            table.starts_with("NAME ") && table.contains("LAST VERDICT") && table.contains("* * * * *"),
            "{table}"
        );
        scene
            .kubectl(&["delete", "perfschedule", "often", "--timeout=30s"])
            .await?;
        let runs: Api<PerfRun> = scene.api();
        until("the runs of the schedule are deleted", seconds(60), async || {
            Ok(runs
                .list(&ListParams::default())
                .await?
                .items
                .is_empty()
                .then_some(()))
        })
        .await
    });
}

#[test]
fn a_schedule_with_an_unknown_time_zone_has_that_reason() {
    shared(async |scene| {
        let schedules: Api<PerfSchedule> = scene.api();
        let mut schedule = every_minute("nowhere")?;
        schedule.spec.time_zone = Some("Mars/Olympus".to_owned());
        schedules.create(&PostParams::default(), &schedule).await?;
        let accepted = until("the schedule is judged", seconds(30), async || {
            let status = schedules.get("nowhere").await?.status.unwrap_or_default();
            Ok(status
                .conditions
                .into_iter()
                .find(|condition| condition.type_ == Type::Accepted.as_ref()))
        })
        .await?;
        ensure!(
            accepted.status == "False" && accepted.reason == "UnknownTimeZone",
            "{accepted:?}"
        );
        Ok(())
    });
}

#[test]
fn a_schedule_keeps_the_names_of_a_newer_version_in_its_history() {
    shared(async |scene| {
        let schedules: Api<PerfSchedule> = scene.api();
        let mut schedule = every_minute("newer")?;
        schedule.spec.suspend = true;
        schedules.create(&PostParams::default(), &schedule).await?;
        let params = PatchParams::default();
        let ended = json!({"name": "newer-1", "scheduleTime": "2026-01-01T00:00:00Z", "phase": "Hibernating",
            "verdict": "Doubtful", "message": "all trials were measured"});
        let history = Patch::Merge(json!({"status": {"history": [ended]}}));
        schedules.patch_status("newer", &params, &history).await?;
        // The operator writes the status because of the change.
        let change = Patch::Merge(json!({"spec": {"failedRunsHistoryLimit": 2}}));
        let changed = schedules.patch("newer", &params, &change).await?;
        let status = until("the operator has written the status", seconds(30), async || {
            let status = schedules.get("newer").await?.status.unwrap_or_default();
            Ok((status.observed_generation == changed.metadata.generation).then_some(status))
        })
        .await?;
        ensure!(json!(status.history) == json!([ended]), "{status:?}");
        Ok(())
    });
}

#[test]
fn the_api_server_refuses_a_schedule_without_five_fields() {
    admission(async |scene: &Scene| {
        let schedules: Api<PerfSchedule> = scene.api();
        let mut schedule = every_minute("short")?;
        schedule.spec.schedule = "0 3 * *".to_owned();
        let created = schedules.create(&PostParams::default(), &schedule).await;
        let refused = created.err().context("it was accepted")?.to_string();
        ensure!(refused.contains("must have five fields"), "{refused}");
        Ok(())
    });
}

pub(crate) fn every_minute(name: &str) -> Result<PerfSchedule> {
    let text = in_yaml(name, EVERY_MINUTE).replace("kind: PerfRun", "kind: PerfSchedule");
    Ok(document::parse_schedules(&text)?.remove(0))
}
