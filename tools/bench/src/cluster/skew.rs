//! How far apart client pods start: twenty pods, and so few that this computer can wake them together.

use anyhow::Result;
use perfrun_e2e::Scene;

use super::results;
use crate::testbed::median;

const TRIALS: usize = 100;

pub(super) async fn run(scene: &Scene) -> Result<()> {
    skew(scene, 4, None).await?;
    skew(scene, 20, Some(20)).await
}

async fn skew(scene: &Scene, clients: u32, target: Option<u32>) -> Result<()> {
    let spec = format!(
        "workload: {{ping: {{count: 10}}}}\n\
         matrix: {{clients: [litep2p], servers: [litep2p], rawBaseline: false}}\n\
         topology: {{clients: {clients}}}\n\
         iterations: {TRIALS}\nwarmup: 0\n"
    );
    let results = results(scene, &format!("skew-{clients}"), &spec).await?;
    let mut skews: Vec<f64> = results
        .trials
        .iter()
        .filter_map(|record| record.start_skew_seconds)
        .map(|skew| skew * 1e3)
        .collect();
    skews.sort_by(f64::total_cmp);
    // One in a hundred may be later.
    let p99 = skews[skews.len() - 1 - skews.len() / 100];
    let target = target.map_or_else(String::new, |target| format!(" (target ≤ {target} ms)"));
    println!(
        "start skew of {clients} client pods: median {:.2} ms, p99 {p99:.2} ms of {} trials{target}",
        median(&skews),
        skews.len()
    );
    Ok(())
}
