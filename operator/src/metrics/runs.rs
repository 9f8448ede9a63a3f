//! Where runs stand and what came out of them, for as long as the API server has them.
//!
//! Only the operator that acts knows runs, so that no two of them say the same. Pods of a short run may be gone before they
//! are scraped once; what is here stays.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::{ResourceExt, runtime::reflector::Store};
use perfrun_api::{
    cluster::condition,
    metrics::operator,
    plan::plan,
    spec::{PerfRun, Phase},
};
use perfrun_metrics::{NO_LABELS, RunView, encode_runs, encode_samples};
use prometheus_client::{collector::Collector, encoding::DescriptorEncoder};

use crate::controller::Guarded;

/// Rows of results that are exported, those of the latest runs first: some ten megabytes of text.
const MOST_ROWS: usize = 10_000;

/// Runs, looked at when they are asked for.
#[derive(Clone, Default)]
pub struct Runs(Arc<Mutex<Option<Store<Guarded>>>>);

impl Runs {
    /// Runs to tell of from now on.
    pub fn watch(&self, runs: Option<Store<Guarded>>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = runs;
    }
}

impl fmt::Debug for Runs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Runs").finish_non_exhaustive()
    }
}

impl Collector for Runs {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let Some(store) = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone() else {
            return Ok(());
        };
        let runs = store.state();
        let runs: Vec<&PerfRun> = runs.iter().filter_map(|run| run.0.as_ref().ok()).collect();
        let mut views: Vec<RunView> = runs.into_iter().map(view).collect();
        let left_out = bound(&mut views, MOST_ROWS);
        let encoder = &mut encoder;
        encode_samples(encoder, &operator::RUNS, by_phase(&views))?;
        encode_samples(encoder, &operator::LEFT_OUT, [(NO_LABELS, left_out as f64)])?;
        encode_runs(encoder, &views)
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

/// Leaves out the results of all but the latest runs, if they are too many; returns of how many.
fn bound(runs: &mut [RunView], most: usize) -> usize {
    runs.sort_by(|a, b| {
        b.started
            .unwrap_or(f64::MAX)
            .total_cmp(&a.started.unwrap_or(f64::MAX))
    });
    let (mut rows, mut left_out) = (0, 0);
    for run in runs {
        rows += run.summary.len();
        if rows > most && !run.summary.is_empty() {
            run.summary.clear();
            run.cells.clear();
            left_out += 1;
        }
    }
    left_out
}

fn view(run: &PerfRun) -> RunView {
    let status = run.status.clone().unwrap_or_default();
    let seconds = |time: &Time| time.0.as_millisecond() as f64 / 1e3;
    let ended = status
        .conditions
        .iter()
        .find(|said| said.type_ == condition::COMPLETE && said.status == "True");
    let cells = match &status.completion_time {
        // Of others nothing is said by cells.
        Some(_) => plan(&run.spec).map(|plan| plan.cells).unwrap_or_default(),
        None => vec![],
    };
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
        cells,
        skipped: status.trials.skipped,
        summary: status.summary,
    }
}

#[cfg(test)]
mod tests {
    use kube::{core::DeserializeGuard, runtime::watcher};
    use perfrun_api::{
        results::{Flag, Metric, SummaryRow},
        spec::PerfRunStatus,
    };

    use super::*;

    #[test]
    fn the_results_of_the_latest_runs_are_kept_when_there_are_too_many() {
        let run = |started: f64, rows: usize| {
            let mut run = view(&named(&format!("run-{started}")));
            run.started = Some(started);
            run.summary = vec![row(); rows];
            run
        };
        let mut runs = [run(1.0, 3), run(3.0, 4), run(2.0, 3), run(4.0, 0)];
        assert_eq!(bound(&mut runs, 7), 1);
        let kept: Vec<_> = runs
            .iter()
            .map(|run| (run.name.as_str(), run.summary.len()))
            .collect();
        assert_eq!(kept, [("run-4", 0), ("run-3", 4), ("run-2", 3), ("run-1", 0)]);
    }

    #[test]
    fn everything_is_said_as_it_is_described() {
        let (store, mut writer) = kube::runtime::reflector::store::<Guarded>();
        let mut run = named("a-run");
        run.metadata.namespace = Some("a-namespace".to_owned());
        run.status = Some(PerfRunStatus {
            completion_time: Some(Time(jiff::Timestamp::now())),
            summary: vec![SummaryRow {
                cell: plan(&run.spec).unwrap().cells[0].id.clone(),
                ci95_low: Some(0.5),
                flags: vec![Flag::DebugBuild],
                ..row()
            }],
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
            "network=\"none\",metric=\"roundTripP50\",unit=\"seconds\"} 1.0",
            "flag=\"DebugBuild\"} 1.0",
        ] {
            assert!(page.contains(line), "{line} is not in {page}");
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
