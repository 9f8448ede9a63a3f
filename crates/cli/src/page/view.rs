//! What the page shows, and how events change it. Pure.

use perfrun_conductor::Event;
use perfrun_contract::{
    metric::Metric,
    plan::{self, Plan},
    record::TrialRecord,
    tally::{Conclusion, Tally},
    units,
};
use perfrun_judge::Statistics;
use serde::Serialize;

/// Points of the curve of the current rate: a few minutes.
const POINTS: usize = 300;

/// A run, as the page draws it.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct View {
    name: String,
    stage: Stage,
    trials: usize,
    ended: usize,
    failed: usize,
    /// What is happening now, for people.
    now: String,
    /// How the run ended.
    conclusion: Option<Conclusion>,
    /// How much of the current trial is done, from 0 to 1.
    fraction: Option<f64>,
    cells: Vec<CellView>,
    /// Payload of the trials, in bit/s, over seconds since the page was first served.
    curve: Vec<[f64; 2]>,
    /// Whether no other run follows.
    #[serde(skip)]
    is_last: bool,
    /// When the payload of the current trial was last counted, and its bytes then.
    #[serde(skip)]
    counted: (f64, u64),
    #[serde(skip)]
    tally: Tally,
}

#[derive(Clone, Copy, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
enum Stage {
    #[default]
    Starting,
    Running,
    Ended,
}

/// A cell with the results of its trials so far.
#[derive(Clone, Debug, Default, Serialize)]
struct CellView {
    id: String,
    failed: usize,
    series: Vec<MetricValues>,
}

/// The values of one metric in the measured trials.
#[derive(Clone, Debug, Serialize)]
struct MetricValues {
    metric: Metric,
    values: Vec<TrialValue>,
    /// The median, formatted for people.
    median: String,
}

/// The value of a trial. JSON has only the number.
#[derive(Clone, Debug, Serialize)]
#[serde(transparent)]
struct TrialValue {
    #[serde(skip)]
    trial: String,
    value: f64,
}

impl View {
    /// The view before any event.
    pub(super) fn new(name: &str, plan: &Plan, earlier: &[TrialRecord], is_last: bool) -> Self {
        let cell = |cell: &plan::Cell| CellView {
            id: cell.id.clone(),
            ..CellView::default()
        };
        let mut view = Self {
            is_last,
            name: name.to_owned(),
            trials: plan.trials.len(),
            cells: plan.cells.iter().map(cell).collect(),
            tally: Tally::of(plan, []),
            ..Self::default()
        };
        for record in earlier {
            view.add(record);
        }
        view
    }

    pub(super) fn is_last(&self) -> bool {
        self.is_last
    }

    /// Shows that the run has ended, and how.
    pub(super) fn end(&mut self, conclusion: Conclusion) {
        self.stage = Stage::Ended;
        self.conclusion = Some(conclusion);
        self.set_now(String::new());
    }

    /// Takes in an event, with the seconds since the page was first served.
    pub(super) fn on(&mut self, event: Event<'_>, seconds: f64) {
        match event {
            Event::RunStarted { .. } => self.stage = Stage::Running,
            Event::LinksChanging { network } => {
                self.set_now(format!("setting and measuring links: {network}"));
            }
            Event::LinksChecked { check } => self.set_now(perfrun_report::links_line(check)),
            Event::TrialStarted {
                trial, cell, attempt, ..
            } => {
                let again = if attempt > 0 { ", again" } else { "" };
                self.set_now(if trial.warmup {
                    format!("{} warm-up{again}", cell.id)
                } else {
                    format!("{} #{}{again}", cell.id, trial.iteration + 1)
                });
                self.counted = (seconds, 0);
            }
            Event::TrialProgress { bytes, fraction, .. } => {
                self.fraction = fraction;
                let (at, before) = self.counted;
                if seconds > at {
                    let rate = bytes.saturating_sub(before) as f64 * 8.0 / (seconds - at);
                    self.curve.push([seconds, rate]);
                    let surplus = self.curve.len().saturating_sub(POINTS);
                    self.curve.drain(..surplus);
                }
                self.counted = (seconds, bytes);
            }
            Event::TrialEnded { record } => self.add(record),
            Event::NotNeeded { not_needed } => {
                self.tally.leave_out(Some(not_needed));
                self.trials = self.tally.counts().needed();
            }
            Event::NodeReplaced { name } => self.set_now(format!("{name} was restarted")),
        }
    }

    fn set_now(&mut self, text: String) {
        self.now = text;
        self.fraction = None;
    }

    fn add(&mut self, record: &TrialRecord) {
        self.tally.add(record);
        let counts = self.tally.counts();
        (self.ended, self.failed) = (counts.ended(), counts.failed);
        let Some(cell) = self.cells.get_mut(record.trial.cell) else {
            return;
        };
        cell.failed = self.tally.failed_of_cell(record.trial.cell);
        let trial = &record.trial.id;
        // Of a trial that is repeated, as both trials of a disturbed pair are, the last attempt counts.
        if self
            .tally
            .last_attempt(trial)
            .is_some_and(|(last, _)| last == record.attempt)
        {
            cell.forget(trial);
            if record.failure.is_none() && !record.trial.warmup {
                for (metric, value) in record.headlines() {
                    cell.add(metric, trial, value);
                }
            }
        }
    }
}

impl CellView {
    fn forget(&mut self, trial: &str) {
        for series in &mut self.series {
            series.values.retain(|of_trial| of_trial.trial != trial);
            series.update();
        }
        self.series.retain(|series| !series.values.is_empty());
    }

    fn add(&mut self, metric: Metric, trial: &str, value: f64) {
        let known = self.series.iter().position(|series| series.metric == metric);
        let index = known.unwrap_or_else(|| {
            self.series.push(MetricValues {
                metric,
                values: vec![],
                median: String::new(),
            });
            self.series.len() - 1
        });
        let series = &mut self.series[index];
        let trial = trial.to_owned();
        series.values.push(TrialValue { trial, value });
        series.update();
    }
}

impl MetricValues {
    fn update(&mut self) {
        let values = self.values.iter().map(|of_trial| of_trial.value);
        if let Some(statistics) = Statistics::of(values) {
            self.median = units::text(self.metric.unit(), statistics.median);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use perfrun_api::{document, planning};
    use perfrun_contract::{node::Reason, record::TrialFailure, run::RunState};
    use serde_json::json;

    use super::*;

    fn plan() -> Plan {
        let document = "
apiVersion: perfrun.io/v1alpha1
kind: PerfRun
metadata: {name: shown}
spec:
  workload: {bandwidth: {sizes: [1Mi], directions: [both]}}
  matrix: {clients: [libp2p], servers: [libp2p], transports: [tcp], rawReference: false}
  iterations: 3
  warmup: 1
";
        planning::plan(&document::parse(document).unwrap()[0].spec).unwrap()
    }

    /// The values of the first metric of the first cell.
    fn values(view: &View) -> Vec<f64> {
        let values = view.cells[0].series[0].values.iter();
        values.map(|of_trial| of_trial.value).collect()
    }

    fn record(plan: &Plan, trial: usize, goodput: f64) -> TrialRecord {
        let record = json!({
            "trial": plan.trials[trial],
            "attempt": 0,
            "metrics": {"uploadGoodput": goodput, "downloadGoodput": goodput / 2.0, "totalSeconds": 1.0},
            "atSeconds": 0.0,
            "overheadSeconds": 0.0,
            "nodes": {},
        });
        serde_json::from_value(record).unwrap()
    }

    #[test]
    fn cells_on_the_page_have_the_values_of_their_trials_without_warmups() {
        let plan = plan();
        let mut view = View::new("shown", &plan, &[], true);
        view.on(Event::RunStarted { trials: 4, ended: 0 }, 0.0);
        for (trial, goodput) in [(0, 9e9), (1, 1e9), (2, 3e9), (3, 2e9)] {
            let record = record(&plan, trial, goodput);
            view.on(Event::TrialEnded { record: &record }, 1.0);
        }
        let shown = serde_json::to_value(&view).unwrap();
        assert_eq!((&shown["stage"], &shown["ended"]), (&json!("running"), &json!(4)));
        assert_eq!(
            shown["cells"][0]["series"],
            json!([
                {"metric": "uploadGoodput", "values": [1e9, 3e9, 2e9], "median": "2.00 Gbit/s"},
                {"metric": "downloadGoodput", "values": [0.5e9, 1.5e9, 1e9], "median": "1.00 Gbit/s"},
            ])
        );
    }

    #[test]
    fn a_trial_that_is_retried_counts_once_by_its_last_attempt() {
        let plan = plan();
        let mut failed = record(&plan, 1, 1e9);
        failed.metrics = BTreeMap::new();
        failed.failure = Some(TrialFailure {
            reason: Reason::Timeout,
            message: "not done".to_owned(),
            node: None,
            other_limit: false,
        });
        // One of an earlier session.
        let mut view = View::new("shown", &plan, &[record(&plan, 0, 1e9)], true);
        view.on(Event::RunStarted { trials: 4, ended: 1 }, 0.0);
        view.on(Event::TrialEnded { record: &failed }, 1.0);
        assert_eq!((view.ended, view.failed, view.cells[0].failed), (2, 1, 1));
        let mut retried = record(&plan, 1, 2e9);
        retried.attempt = 1;
        view.on(Event::TrialEnded { record: &retried }, 2.0);
        assert_eq!((view.ended, view.failed, view.cells[0].failed), (2, 0, 0));
        assert_eq!(values(&view), [2e9]);
    }

    #[test]
    fn a_repeated_pair_counts_once_by_its_second_attempt() {
        let plan = plan();
        let mut view = View::new("shown", &plan, &[], true);
        view.on(Event::RunStarted { trials: 4, ended: 0 }, 0.0);
        // Both completed, were disturbed, and are measured again.
        let attempts = [(1, 0, 1e9), (2, 0, 3e9), (1, 1, 2e9), (2, 1, 4e9)];
        for (trial, attempt, goodput) in attempts {
            let mut record = record(&plan, trial, goodput);
            record.attempt = attempt;
            view.on(Event::TrialEnded { record: &record }, 1.0);
        }
        let shown = |view: &View| {
            let upload = &view.cells[0].series[0];
            (view.ended, values(view), upload.median.clone())
        };
        assert_eq!(shown(&view), (2, vec![2e9, 4e9], "3.00 Gbit/s".to_owned()));

        let mut failed = record(&plan, 2, 0.0);
        failed.attempt = 2;
        failed.metrics.clear();
        failed.failure = Some(TrialFailure {
            reason: Reason::Timeout,
            message: "not done".to_owned(),
            node: None,
            other_limit: false,
        });
        view.on(Event::TrialEnded { record: &failed }, 2.0);
        assert_eq!(shown(&view), (2, vec![2e9], "2.00 Gbit/s".to_owned()));
    }

    #[test]
    fn the_rate_counts_bytes_since_the_last_update() {
        let plan = plan();
        let mut view = View::new("shown", &plan, &[], true);
        let (trial, cell) = (&plan.trials[1], &plan.cells[0]);
        view.on(
            Event::TrialStarted {
                trial,
                cell,
                attempt: 0,
            },
            10.0,
        );
        for (seconds, bytes) in [(11.0, 1_000_000), (13.0, 2_000_000)] {
            let fraction = Some(0.5);
            view.on(
                Event::TrialProgress {
                    trial,
                    bytes,
                    fraction,
                },
                seconds,
            );
        }
        assert_eq!(view.curve, [[11.0, 8e6], [13.0, 4e6]]);
        assert_eq!(view.now, format!("{} #1", cell.id));
        let conclusion = view.tally.conclusion(RunState::Interrupted, None, None);
        view.end(conclusion);
        assert_eq!((view.now.as_str(), view.fraction), ("", None));
    }
}
