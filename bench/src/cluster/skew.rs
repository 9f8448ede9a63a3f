//! How far apart twenty client pods start.

use anyhow::Result;
use perfrun_e2e::Scene;

use super::results;
use crate::testbed::median;

const TRIALS: usize = 100;

pub async fn run(scene: &Scene) -> Result<()> {
    let spec = format!(
        "workload: {{ping: {{count: 10}}}}\n\
         matrix: {{clients: [litep2p], servers: [litep2p], rawBaseline: false}}\n\
         topology: {{clients: 20}}\n\
         iterations: {TRIALS}\nwarmup: 0\n"
    );
    let results = results(scene, "skew", &spec).await?;
    let mut skews: Vec<f64> = results
        .trials
        .iter()
        .filter_map(|record| record.start_skew_seconds)
        .map(|skew| skew * 1e3)
        .collect();
    skews.sort_by(f64::total_cmp);
    // One in a hundred may be later.
    let p99 = skews[skews.len() - 1 - skews.len() / 100];
    println!(
        "start skew of 20 client pods: median {:.2} ms, p99 {p99:.2} ms of {} trials (target ≤ 20 ms)",
        median(&skews),
        skews.len()
    );
    Ok(())
}
