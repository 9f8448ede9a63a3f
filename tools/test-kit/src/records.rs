//! Plans and records of trials, as tests need them. Trials are named as in plans: `c0.i3` is repetition 3 of
//! cell 0, and `c0.w1` is warm-up 1.

use std::collections::BTreeMap;

use perfrun_contract::{
    node::Reason,
    plan::{Plan, Trial},
    record::{TrialFailure, TrialRecord},
};

/// A plan of these trials, without nodes and cells.
pub fn plan_of(trials: &[&str]) -> Plan {
    Plan {
        trials: trials.iter().map(|id| trial(id)).collect(),
        ..Plan::default()
    }
}

/// The trial of this name.
pub fn trial(id: &str) -> Trial {
    let parsed = (|| {
        let (cell, round) = id.strip_prefix('c')?.split_once('.')?;
        let warmup = round.starts_with('w');
        let iteration = round.strip_prefix(['w', 'i'])?.parse().ok()?;
        Some((cell.parse().ok()?, warmup, iteration))
    })();
    let (cell, warmup, iteration) = parsed.expect("trials are named like c0.i3 or c0.w1");
    Trial {
        id: id.to_owned(),
        cell,
        iteration,
        warmup,
    }
}

/// A first attempt at a trial that completed, in which nothing was measured.
pub fn completed(id: &str) -> TrialRecord {
    TrialRecord {
        trial: trial(id),
        attempt: 0,
        failure: None,
        metrics: BTreeMap::new(),
        flags: vec![],
        at_seconds: 0.0,
        start_skew_seconds: None,
        clock_uncertainty_seconds: None,
        start_lateness_seconds: None,
        overhead_seconds: 0.0,
        session: 0,
        disturbance: None,
        links: None,
        nodes: BTreeMap::new(),
    }
}

/// A first attempt at a trial that failed. Its message names the trial and the reason.
pub fn failed(id: &str, reason: Reason) -> TrialRecord {
    TrialRecord {
        failure: Some(TrialFailure {
            node: None,
            reason,
            message: format!("{id}: {reason}"),
        }),
        ..completed(id)
    }
}

/// The same record, of the second attempt.
pub fn retried(record: TrialRecord) -> TrialRecord {
    TrialRecord { attempt: 1, ..record }
}
