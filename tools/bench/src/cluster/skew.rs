//! How far apart client pods start: twenty pods, and so few that this computer can wake them together.

use anyhow::Result;
use perfrun_contract::record::TrialRecord;
use perfrun_e2e::Scene;

use super::results;
use crate::testbed::{median, p99};

const TRIALS: usize = 100;

pub(super) async fn run(scene: &Scene) -> Result<()> {
    skew(scene, 4, None).await?;
    skew(scene, 20, Some(20)).await
}

async fn skew(scene: &Scene, clients: u32, target: Option<u32>) -> Result<()> {
    let spec = format!(
        "workload: {{ping: {{count: 10}}}}\n\
         matrix: {{clients: [litep2p], servers: [litep2p], rawReference: false}}\n\
         topology: {{clients: {clients}}}\n\
         iterations: {TRIALS}\nwarmup: 0\n"
    );
    let results = results(scene, &format!("skew-{clients}"), &spec).await?;
    let milliseconds = |of: fn(&TrialRecord) -> Option<f64>| -> Vec<f64> {
        let seconds = results.trials.iter().filter_map(of);
        seconds.map(|seconds| seconds * 1e3).collect()
    };
    let skews = milliseconds(|record| record.start_skew_seconds);
    // If the first client is late as well, all learned of the start too late, and were not only woken in
    // turn.
    let first = milliseconds(|record| Some(record.start_lateness_seconds? - record.start_skew_seconds?));
    let target = target.map_or_else(String::new, |target| format!(" (target ≤ {target} ms)"));
    println!(
        "start skew of {clients} client pods: median {:.2} ms, p99 {:.2} ms of {} trials{target}\n  \
         the first client was late by: median {:.2} ms, p99 {:.2} ms",
        median(&skews),
        p99(&skews),
        skews.len(),
        median(&first),
        p99(&first)
    );
    Ok(())
}
