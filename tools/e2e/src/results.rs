//! The complete results of a run, and checks that apply to all of them.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::api::core::v1::ConfigMap;
use perfrun_api::{
    cluster::{Part, RESULTS_KEY, TRIALS_KEY, results_from_parts},
    planning::draft,
    results::Results,
    spec::{PerfRun, PerfRunSpec},
};
use perfrun_contract::{
    record::{TrialFailure, TrialRecord},
    run::RunState,
};

use crate::Scene;

impl Scene {
    /// Reads the complete results of a run that has ended.
    pub async fn results(&self, run: &PerfRun) -> Result<Results> {
        let names = run
            .status
            .as_ref()
            .map(|status| status.results.clone())
            .unwrap_or_default();
        ensure!(!names.is_empty(), "status.results is empty");
        let mut parts: Vec<Part> = vec![];
        for name in &names {
            let map: ConfigMap = self
                .api()
                .get(name)
                .await
                .with_context(|| format!("failed to get {name}"))?;
            for (key, value) in map.binary_data.unwrap_or_default() {
                let key = [TRIALS_KEY, RESULTS_KEY].into_iter().find(|known| **known == key);
                parts.push((
                    key.with_context(|| format!("{name} has an unknown key"))?,
                    value.0,
                ));
            }
        }
        results_from_parts(&parts)?.context("no part has the results")
    }

    /// The results of a run, checked by [`check_every_trial_once`].
    pub async fn checked_results(&self, run: &PerfRun) -> Result<Results> {
        let results = self.results(run).await?;
        check_every_trial_once(run, &results)?;
        Ok(results)
    }
}

/// Checks that each trial of the plan was measured exactly once, and retried only after a failure. Of a
/// cancelled run, only the trials before that count.
pub fn check_every_trial_once(run: &PerfRun, results: &Results) -> Result<()> {
    // The operator draws the seed of a run that has none.
    let spec = PerfRunSpec {
        seed: results.plan.seed,
        ..run.spec.clone()
    };
    let plan = draft(&spec).context("the run has no plan")?;
    ensure!(
        results.plan == plan,
        "the results have another plan than the spec"
    );
    let mut attempts = attempts(results);
    let due = match results.state {
        RunState::Complete => plan.trials.len(),
        RunState::Interrupted | RunState::Failed => attempts.len(),
    };
    for trial in plan.trials.iter().take(due) {
        let records = attempts.remove(trial.id.as_str()).unwrap_or_default();
        let measured = records.iter().filter(|record| record.failure.is_none()).count();
        ensure!(measured == 1, "trial {} was measured {measured} times", trial.id);
        let is_in_order = |(number, record): (usize, &&TrialRecord)| {
            record.attempt as usize == number && record.failure.is_some() == (number + 1 < records.len())
        };
        ensure!(
            records.iter().enumerate().all(is_in_order),
            "attempts of trial {} are out of order: {:?}",
            trial.id,
            records
                .iter()
                .map(|record| (record.attempt, &record.failure))
                .collect::<Vec<_>>()
        );
    }
    ensure!(
        attempts.is_empty(),
        "trials outside the plan, or out of order: {:?}",
        attempts.keys()
    );
    let summary = perfrun_judge::summarize(&plan, &results.trials);
    let rows = results.summary.iter().zip(&summary);
    // JSON may change the last digit of a number.
    let close = |a: f64, b: f64| (a - b).abs() <= 1e-9 * b.abs();
    ensure!(
        results.summary.len() == summary.len()
            && rows.clone().all(|(reported, due)| {
                (&reported.cell, reported.metric, reported.count) == (&due.cell, due.metric, due.count)
                    && close(reported.median, due.median)
            }),
        "the summary is not that of the trials: {:?}",
        rows.collect::<Vec<_>>()
    );
    Ok(())
}

/// Checks that no trial was measured twice, and that each of a complete run ended once. Returns the number of
/// trials that ended.
pub fn check_no_trial_twice(results: &Results) -> Result<usize> {
    let attempts = attempts(results);
    for (id, records) in &attempts {
        let numbers: Vec<_> = records.iter().map(|record| record.attempt).collect();
        ensure!(
            numbers.is_sorted_by(|a, b| a < b),
            "trial {id} has the attempts {numbers:?}"
        );
        let measured = records.iter().filter(|record| record.failure.is_none()).count();
        ensure!(measured <= 1, "trial {id} was measured {measured} times");
    }
    let planned = results.plan.trials.iter().map(|trial| trial.id.as_str());
    let missing: Vec<_> = planned.filter(|id| !attempts.contains_key(id)).collect();
    ensure!(
        results.state != RunState::Complete || missing.is_empty(),
        "a complete run lacks the trials {missing:?}"
    );
    Ok(attempts.len())
}

/// The records of each trial, by its id.
fn attempts(results: &Results) -> BTreeMap<&str, Vec<&TrialRecord>> {
    let mut attempts: BTreeMap<&str, Vec<&TrialRecord>> = BTreeMap::new();
    for record in &results.trials {
        attempts.entry(&record.trial.id).or_default().push(record);
    }
    attempts
}

pub fn failures(results: &Results) -> Vec<&TrialRecord> {
    results
        .trials
        .iter()
        .filter(|record| record.failure.is_some())
        .collect()
}

/// The only trial that failed, and how.
pub fn only_failure(results: &Results) -> Result<(&TrialRecord, &TrialFailure)> {
    let failed = failures(results);
    let [record] = failed[..] else {
        bail!("exactly one trial should have failed: {failed:?}")
    };
    Ok((record, record.failure.as_ref().context("it failed")?))
}

/// What all runs of a document have in common: the rows of the summary, and the tables with their columns and
/// rows.
pub fn shape(results: &Results) -> Vec<String> {
    let mut shape: Vec<_> = results
        .summary
        .iter()
        .map(|row| format!("{} {} {}", row.cell, row.metric, row.unit))
        .collect();
    let report = perfrun_report::markdown(&results.reported_run());
    let (measurements, _) = report.split_once("\n## Environment").unwrap_or((&report, ""));
    // The alignment in the line below a header shows which columns hold values.
    let mut keys = 0;
    let lines: Vec<_> = measurements.lines().collect();
    for (line, next) in lines.iter().zip(lines.iter().skip(1).chain([&""])) {
        let cells: Vec<_> = line.split(" | ").collect();
        if next.starts_with("| ---") {
            keys = next.split(" | ").filter(|side| !side.contains(':')).count();
            shape.push((*line).to_owned());
        } else if line.starts_with("## ") {
            shape.push((*line).to_owned());
        } else if line.starts_with("| ") && !line.starts_with("| ---") {
            shape.push(cells[..keys.min(cells.len())].join(" | "));
        }
    }
    shape
}
