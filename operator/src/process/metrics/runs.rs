//! The state and the results of all runs that the API server has.
//!
//! Only the operator that leads exports them, so that no two operators export the same. The pods of a short
//! run may be gone before anybody scrapes them; these metrics stay.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap},
    fmt,
    sync::Arc,
};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::{ResourceExt, runtime::reflector::Store};
use parking_lot::Mutex;
use perfrun_api::{
    cluster::condition,
    planning,
    spec::{PerfRun, PerfRunStatus},
};
use perfrun_contract::{metrics::operator, plan::Cell, run::Phase};
use perfrun_metrics::{NO_LABELS, RunView, encode_runs, encode_samples};
use prometheus_client::{collector::Collector, encoding::DescriptorEncoder};

use crate::{
    api::watched::{WatchedPod, WatchedRun},
    process::orphans::orphaned,
};

/// The largest number of exported rows and cells, about 10 MiB of text. Those of the latest runs come first.
const ROWS_MAX: usize = 10_000;

/// Exports runs as they are at the time of a scrape.
#[derive(Clone, Default)]
pub(super) struct Runs(Arc<Mutex<Watched>>);

#[derive(Default)]
struct Watched {
    objects: Option<WatchedObjects>,
    /// Whether runs and pods have been listed. Before, pods seem to be of no run.
    is_listed: bool,
    known: KnownCells,
}

/// Runs and their pods, as the watches show them.
pub(super) type WatchedObjects = (Store<WatchedRun>, Store<WatchedPod>);

impl Runs {
    /// Sets the runs to export, with their pods.
    pub(super) fn export(&self, objects: Option<WatchedObjects>) {
        *self.0.lock() = Watched {
            objects,
            ..Watched::default()
        };
    }

    /// Notes that all runs and their pods have been listed.
    pub(super) fn note_listed(&self) {
        self.0.lock().is_listed = true;
    }
}

impl fmt::Debug for Runs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Runs").finish_non_exhaustive()
    }
}

impl Collector for Runs {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut watched = self.0.lock();
        let Some((runs, pods)) = &watched.objects else {
            return Ok(());
        };
        let (runs, pods) = (runs.state(), pods.state());
        let orphaned = match watched.is_listed {
            true => orphaned(&runs, &pods).len(),
            false => 0,
        };
        let runs = runs.iter().filter_map(|run| run.readable()).collect();
        let (views, left_out) = views(runs, ROWS_MAX, &mut watched.known);
        drop(watched);
        let encoder = &mut encoder;
        encode_samples(encoder, &operator::RUNS, by_phase(&views))?;
        encode_samples(encoder, &operator::LEFT_OUT, [(NO_LABELS, left_out as f64)])?;
        encode_samples(encoder, &operator::ORPHANED_PODS, [(NO_LABELS, orphaned as f64)])?;
        encode_runs(encoder, &views, Timestamp::now().as_duration().as_secs_f64())
    }
}

fn by_phase(runs: &[RunView]) -> impl Iterator<Item = ([(&'static str, String); 1], f64)> {
    let phases = [
        Phase::Pending,
        Phase::Provisioning,
        Phase::Running,
        Phase::Succeeded,
        Phase::Failed,
        Phase::Cancelled,
    ];
    let mut counts: BTreeMap<String, u32> = phases.map(|phase| (phase.to_string(), 0)).into();
    for run in runs {
        *counts.entry(run.phase.to_string()).or_default() += 1;
    }
    counts
        .into_iter()
        .map(|(phase, count)| ([("phase", phase)], count.into()))
}

/// All runs, the latest first. If there are more than `most` rows, the results of the oldest runs are left
/// out and those runs are not planned. Also returns the number of runs whose results are left out.
fn views(mut runs: Vec<&PerfRun>, most: usize, known: &mut KnownCells) -> (Vec<RunView>, usize) {
    let started = |run: &PerfRun| run.status.as_ref()?.start_time.as_ref().map(|time| time.0);
    runs.sort_by_key(|run| Reverse(started(run).unwrap_or(Timestamp::MAX)));
    let (mut rows, mut left_out) = (0, 0);
    let mut used = KnownCells::default();
    let mut views = vec![];
    for run in runs {
        let own_rows = run.status.as_ref().map_or(0, |status| rows_of(run, status));
        rows += own_rows;
        let cells = (rows <= most || own_rows == 0).then(|| used.take(run, known));
        left_out += usize::from(cells.is_none());
        views.push(view(run, cells));
    }
    // The remaining runs were deleted, or are left out.
    *known = used;
    (views, left_out)
}

/// The number of rows and cells of a run's results, estimated from the number of its trials instead of
/// planning it.
fn rows_of(run: &PerfRun, status: &PerfRunStatus) -> usize {
    let iterations = u64::from(run.spec.most_iterations()) + u64::from(run.spec.warmup);
    let cells = match status.completion_time {
        Some(_) => u64::from(status.trials.total) / iterations.max(1),
        None => 0,
    };
    status.summary.len() + status.comparisons.len() + usize::try_from(cells).unwrap_or(usize::MAX)
}

/// Cells of runs that have ended, by the runs' UIDs. Labels of results need them, because rows of a status
/// name a cell only by its id. They are planned when results are first exported, and kept as long as they are
/// exported.
#[derive(Default)]
struct KnownCells(HashMap<String, (Option<i64>, Arc<[Cell]>)>);

impl KnownCells {
    /// The cells of a run, from `known` if this generation of the run has been planned. No cells if the run
    /// has not ended.
    fn take(&mut self, run: &PerfRun, known: &mut Self) -> Arc<[Cell]> {
        let has_planned =
            |status: &PerfRunStatus| status.completion_time.is_some() && status.trials.total > 0;
        if !run.status.as_ref().is_some_and(has_planned) {
            return Arc::default();
        }
        let uid = run.uid().unwrap_or_default();
        let generation = run.metadata.generation;
        let cells = known.0.remove(&uid).filter(|(of, _)| *of == generation);
        let plan = || planning::cells(&run.spec).unwrap_or_default().into();
        let cells = cells.map_or_else(plan, |(_, cells)| cells);
        self.0.insert(uid, (generation, cells.clone()));
        cells
    }
}

/// The view of a run, without results if `cells` is `None`.
fn view(run: &PerfRun, cells: Option<Arc<[Cell]>>) -> RunView {
    let none = PerfRunStatus::default();
    let status = run.status.as_ref().unwrap_or(&none);
    let seconds = |time: &Time| time.0.as_millisecond() as f64 / 1e3;
    let ended = condition::end_condition(&status.conditions);
    RunView {
        namespace: run.namespace().unwrap_or_default(),
        name: run.name_any(),
        workload: run.spec.workload.name(),
        phase: status.phase.unwrap_or_default(),
        reason: ended.map(|condition| condition.reason.clone()),
        started: status.start_time.as_ref().map(seconds),
        ended: status.completion_time.as_ref().map(seconds),
        trials: status.trials.counts(),
        iterations: run.spec.iterations,
        skipped: status.trials.skipped as usize,
        summary: cells.as_ref().map(|_| status.summary.clone()).unwrap_or_default(),
        verdict: status.verdict,
        comparisons: cells
            .as_ref()
            .map(|_| status.comparisons.clone())
            .unwrap_or_default(),
        cells: cells.unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use kube::runtime::{reflector, watcher};
    use perfrun_api::spec::TrialCounts;
    use perfrun_contract::{
        compare::{Comparison, Finding, Ratio, Verdict},
        metric::Metric,
        record::Flag,
        summary::SummaryRow,
    };
    use perfrun_test_kit::records::comparison;
    use serde_json::json;

    use super::*;
    use crate::api::watched::LargeFields;

    #[test]
    fn the_results_of_the_latest_runs_are_exported_when_there_are_too_many() {
        // Each has two rows of two cells.
        let runs: Vec<PerfRun> = [1, 3, 2, 4].map(|started| ended(started, 2)).into();
        let mut waiting = named("waiting");
        waiting.metadata.uid = Some("waiting".to_owned());
        let all = runs.iter().chain([&waiting]).collect();
        let mut known = KnownCells::default();
        let (views, left_out) = views(all, 8, &mut known);
        let shown: Vec<_> = views
            .iter()
            .map(|run| (run.name.as_str(), run.summary.len(), run.cells.len()))
            .collect();
        assert_eq!(
            shown,
            [
                ("waiting", 0, 0),
                ("run-4", 2, 2),
                ("run-3", 2, 2),
                ("run-2", 0, 0),
                ("run-1", 0, 0)
            ]
        );
        assert_eq!(left_out, 2);
        assert_eq!(known.0.len(), 2, "the others are not planned");
    }

    #[test]
    fn a_run_that_has_ended_is_planned_once_however_often_it_is_scraped() {
        let mut known = KnownCells::default();
        let mut cells = |run: &PerfRun| views(vec![run], ROWS_MAX, &mut known).0.remove(0).cells;
        let mut run = ended(1, 0);
        let first = cells(&run);
        assert_eq!(first.len(), 2);
        assert!(Arc::ptr_eq(&first, &cells(&run)));
        run.metadata.generation = Some(2);
        let next = cells(&run);
        assert!(!Arc::ptr_eq(&first, &next));
        assert!(Arc::ptr_eq(&next, &cells(&run)));
    }

    #[test]
    fn runs_that_are_deleted_in_progress_or_refused_are_not_planned() {
        let mut known = KnownCells::default();
        let (gone, mut active, mut refused) = (ended(1, 2), ended(2, 0), ended(3, 0));
        views(vec![&gone], ROWS_MAX, &mut known);
        assert_eq!(known.0.len(), 1);
        active.status.as_mut().unwrap().completion_time = None;
        refused.status.as_mut().unwrap().trials.total = 0;
        views(vec![&active, &refused], ROWS_MAX, &mut known);
        assert_eq!(known.0.len(), 0);
    }

    #[test]
    fn no_pod_counts_as_one_without_a_run_before_the_runs_are_listed() {
        let (runs, _runs_writer) = reflector::store();
        let (pods, mut writer) = reflector::store::<WatchedPod>();
        let pod = json!({"metadata": {"name": "a-pod", "namespace": "a-namespace"}});
        writer.apply_watcher_event(&watcher::Event::Apply(serde_json::from_value(pod).unwrap()));
        let metrics = super::super::Metrics::new();
        metrics.export_runs(Some((runs, pods)));
        let orphaned = || {
            let page = metrics.encode();
            let mut samples = page.lines();
            let sample = samples.find(|line| line.starts_with("perfrun_operator_orphaned_pods"));
            sample.unwrap().rsplit(' ').next().unwrap().to_owned()
        };
        assert_eq!(orphaned(), "0.0");
        metrics.note_listed();
        assert_eq!(orphaned(), "1.0");
    }

    #[test]
    fn every_exported_metric_is_described() {
        let (store, mut writer) = reflector::store::<WatchedRun>();
        let mut run = named("a-run");
        run.metadata.namespace = Some("a-namespace".to_owned());
        let cell = planning::cells(&run.spec).unwrap().remove(0).id;
        let compared = Comparison {
            baseline: "a-baseline".to_owned(),
            ratio: Some(Ratio {
                value: 0.5,
                low: Some(0.25),
                high: None,
            }),
            ..comparison(&cell, Metric::RoundTripP50, Finding::Better)
        };
        run.status = Some(PerfRunStatus {
            completion_time: Some(Time(Timestamp::now())),
            trials: trials(44),
            verdict: Some(Verdict::Pass),
            comparisons: vec![compared],
            summary: [Metric::RoundTripMean, Metric::RoundTripP50]
                .map(|metric| SummaryRow {
                    cell: cell.clone(),
                    metric,
                    ci95_low: Some(0.5),
                    flags: [(Flag::DebugBuild, 2)].into(),
                    ..row()
                })
                .into(),
            ..PerfRunStatus::default()
        });
        let applied = watcher::Event::Apply(watched(run));
        writer.apply_watcher_event(&applied);
        let metrics = super::super::Metrics::new();
        metrics.export_runs(Some((store, reflector::store().0)));
        metrics.count_reconciliation(std::time::Duration::from_millis(1));
        metrics.count_error("Create");
        let page = metrics.encode();
        assert_eq!(
            perfrun_metrics::undescribed(&page),
            [""; 0],
            "these metrics are not in docs/reference/metrics.md"
        );
        for line in [
            "perfrun_run_info{run_namespace=\"a-namespace\",run=\"a-run\",workload=\"ping\",phase=\"Pending\",reason=\"\"} 1",
            "perfrun_run_seen_timestamp_seconds{run_namespace=\"a-namespace\",run=\"a-run\",workload=\"ping\",phase=\"Pending\"",
            "perfrun_result_rank{run_namespace=\"a-namespace\",run=\"a-run\",metric=\"roundTripP50\",unit=\"seconds\"} 1.0",
            "perfrun_result_rank{run_namespace=\"a-namespace\",run=\"a-run\",metric=\"roundTripMean\",unit=\"seconds\"} 2.0",
            "network=\"none\",metric=\"roundTripP50\",unit=\"seconds\"} 1.0",
            "flag=\"DebugBuild\"} 2.0",
            "perfrun_run_verdict{run_namespace=\"a-namespace\",run=\"a-run\",verdict=\"Pass\"} 1.0",
            "perfrun_comparison_ratio{run_namespace=\"a-namespace\",run=\"a-run\",baseline=\"a-baseline\",candidate=\"",
            "network=\"none\",metric=\"roundTripP50\",finding=\"Better\"} 0.5",
            "network=\"none\",metric=\"roundTripP50\",finding=\"Better\"} 0.25",
        ] {
            assert!(page.contains(line), "{line} is not in {page}");
        }
    }

    fn watched(run: PerfRun) -> WatchedRun {
        WatchedRun::Readable(Box::new(run), LargeFields::LeftOut)
    }

    /// A run of two cells that has ended, with results.
    fn ended(started: i64, rows: usize) -> PerfRun {
        let mut run = named(&format!("run-{started}"));
        run.metadata.uid = Some(format!("uid-{started}"));
        run.metadata.generation = Some(1);
        run.spec.matrix.clients.truncate(1);
        run.spec.matrix.servers.truncate(1);
        let start = Timestamp::from_second(started).unwrap();
        run.status = Some(PerfRunStatus {
            start_time: Some(Time(start)),
            completion_time: Some(Time(start)),
            trials: trials(22),
            summary: vec![row(); rows],
            ..PerfRunStatus::default()
        });
        run
    }

    fn trials(total: u32) -> TrialCounts {
        TrialCounts {
            total,
            ..TrialCounts::default()
        }
    }

    fn named(name: &str) -> PerfRun {
        let text = format!(
            "{{apiVersion: perfrun.io/v1alpha1, kind: PerfRun, metadata: {{name: {name}}}, spec: {{workload: {{ping: {{}}}}}}}}"
        );
        perfrun_api::document::parse(&text).unwrap().remove(0)
    }

    fn row() -> SummaryRow {
        SummaryRow {
            cell: "a-cell".to_owned(),
            metric: Metric::RoundTripP50,
            unit: Metric::RoundTripP50.unit(),
            count: 1,
            median: 1.0,
            mean: 1.0,
            ci95_low: None,
            ci95_high: None,
            min: 1.0,
            max: 1.0,
            share_of_raw: None,
            share_of_raw_low: None,
            share_of_raw_high: None,
            flags: BTreeMap::new(),
        }
    }
}
