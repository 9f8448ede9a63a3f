//! Where runs stand and what came out of them, for as long as the API server has them.
//!
//! Only the operator that acts knows runs, so that no two of them say the same. Pods of a short run may be gone before they
//! are scraped once; what is here stays.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap},
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::{ResourceExt, runtime::reflector::Store};
use perfrun_api::{
    cluster::condition,
    planning,
    spec::{PerfRun, PerfRunStatus},
};
use perfrun_conductor::export::{RunView, encode_runs};
use perfrun_contract::{metrics::operator, plan::Cell, run::Phase};
use perfrun_metrics::{NO_LABELS, encode_samples};
use prometheus_client::{collector::Collector, encoding::DescriptorEncoder};

use crate::controller::Guarded;

/// Rows of results and cells that are exported, those of the latest runs first: some ten megabytes of text.
const MOST_ROWS: usize = 10_000;

/// Runs, looked at when they are asked for.
#[derive(Clone, Default)]
pub struct Runs(Arc<Mutex<Watched>>);

#[derive(Default)]
struct Watched {
    runs: Option<Store<Guarded>>,
    known: KnownCells,
}

impl Runs {
    /// Runs to tell of from now on.
    pub fn watch(&self, runs: Option<Store<Guarded>>) {
        let known = KnownCells::default();
        *self.lock() = Watched { runs, known };
    }

    fn lock(&self) -> MutexGuard<'_, Watched> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Runs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Runs").finish_non_exhaustive()
    }
}

impl Collector for Runs {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut watched = self.lock();
        let Some(store) = &watched.runs else {
            return Ok(());
        };
        let runs = store.state();
        let runs = runs.iter().filter_map(|run| run.0.as_ref().ok()).collect();
        let (views, left_out) = views(runs, MOST_ROWS, &mut watched.known);
        drop(watched);
        let encoder = &mut encoder;
        encode_samples(encoder, &operator::RUNS, by_phase(&views))?;
        encode_samples(encoder, &operator::LEFT_OUT, [(NO_LABELS, left_out as f64)])?;
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

/// All runs, the latest first. The results of all but the latest are left out if they are too many, and nothing is planned
/// for those; returns of how many.
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
    // Whatever is in none of the views is a run that is gone, or has no place any more.
    *known = used;
    (views, left_out)
}

/// Of how many rows and cells the results of a run are. Without planning it: its status has the number of its trials.
fn rows_of(run: &PerfRun, status: &PerfRunStatus) -> usize {
    let rounds = u64::from(run.spec.iterations) + u64::from(run.spec.warmup);
    let cells = match status.completion_time {
        Some(_) => u64::from(status.trials.total) / rounds.max(1),
        None => 0,
    };
    status.summary.len() + usize::try_from(cells).unwrap_or(usize::MAX)
}

/// Cells of runs that have ended, by the runs' UIDs: labels of results say what those are, and rows in a status do not. They
/// are planned when results are first exported, and never again while they are.
#[derive(Default)]
struct KnownCells(HashMap<String, (Option<i64>, Arc<[Cell]>)>);

impl KnownCells {
    /// The cells of a run, from those that are known already if this generation of it is among them. Of a run that has not
    /// ended, nothing is said by cells.
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

/// A run as it is, without results if there are no cells for them.
fn view(run: &PerfRun, cells: Option<Arc<[Cell]>>) -> RunView {
    let none = PerfRunStatus::default();
    let status = run.status.as_ref().unwrap_or(&none);
    let seconds = |time: &Time| time.0.as_millisecond() as f64 / 1e3;
    let ended = status
        .conditions
        .iter()
        .find(|said| said.type_ == condition::COMPLETE && said.status == "True");
    RunView {
        namespace: run.namespace().unwrap_or_default(),
        name: run.name_any(),
        workload: run.spec.workload.name(),
        phase: status.phase.unwrap_or_default(),
        reason: ended.map(|condition| condition.reason.clone()),
        started: status.start_time.as_ref().map(seconds),
        ended: status.completion_time.as_ref().map(seconds),
        planned: status.trials.total,
        completed: status.trials.completed,
        failed: status.trials.failed,
        iterations: run.spec.iterations,
        skipped: status.trials.skipped,
        summary: cells.as_ref().map(|_| status.summary.clone()).unwrap_or_default(),
        cells: cells.unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use kube::{core::DeserializeGuard, runtime::watcher};
    use perfrun_api::spec::TrialCounts;
    use perfrun_contract::{
        record::{Flag, Metric},
        summary::SummaryRow,
    };

    use super::*;

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
        let mut cells = |run: &PerfRun| views(vec![run], MOST_ROWS, &mut known).0.remove(0).cells;
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
    fn nothing_is_known_of_runs_that_are_gone_or_go_on_or_were_refused() {
        let mut known = KnownCells::default();
        let (gone, mut active, mut refused) = (ended(1, 2), ended(2, 0), ended(3, 0));
        views(vec![&gone], MOST_ROWS, &mut known);
        assert_eq!(known.0.len(), 1);
        active.status.as_mut().unwrap().completion_time = None;
        refused.status.as_mut().unwrap().trials.total = 0;
        views(vec![&active, &refused], MOST_ROWS, &mut known);
        assert_eq!(known.0.len(), 0);
    }

    #[test]
    fn everything_is_said_as_it_is_described() {
        let (store, mut writer) = kube::runtime::reflector::store::<Guarded>();
        let mut run = named("a-run");
        run.metadata.namespace = Some("a-namespace".to_owned());
        run.status = Some(PerfRunStatus {
            completion_time: Some(Time(Timestamp::now())),
            trials: trials(44),
            summary: [Metric::RoundTripMean, Metric::RoundTripP50]
                .map(|metric| SummaryRow {
                    cell: planning::cells(&run.spec).unwrap()[0].id.clone(),
                    metric,
                    ci95_low: Some(0.5),
                    flags: vec![Flag::DebugBuild],
                    ..row()
                })
                .into(),
            ..PerfRunStatus::default()
        });
        let applied = watcher::Event::Apply(DeserializeGuard(Ok(run)));
        writer.apply_watcher_event(&applied);
        let metrics = super::super::Metrics::new();
        metrics.watch(Some(store));
        metrics.reconciled(std::time::Duration::from_millis(1), Some("Apply"));
        let page = metrics.encode();
        assert_eq!(
            perfrun_metrics::undescribed(&page),
            [""; 0],
            "not as docs/reference/metrics.md says"
        );
        for line in [
            "perfrun_run_info{run_namespace=\"a-namespace\",run=\"a-run\",workload=\"ping\",phase=\"Pending\",reason=\"\"} 1",
            "perfrun_run_seen_timestamp_seconds{run_namespace=\"a-namespace\",run=\"a-run\",workload=\"ping\",phase=\"Pending\"",
            "perfrun_result_rank{run_namespace=\"a-namespace\",run=\"a-run\",metric=\"roundTripP50\",unit=\"seconds\"} 1.0",
            "perfrun_result_rank{run_namespace=\"a-namespace\",run=\"a-run\",metric=\"roundTripMean\",unit=\"seconds\"} 2.0",
            "network=\"none\",metric=\"roundTripP50\",unit=\"seconds\"} 1.0",
            "flag=\"DebugBuild\"} 1.0",
        ] {
            assert!(page.contains(line), "{line} is not in {page}");
        }
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
            flags: vec![],
        }
    }
}
