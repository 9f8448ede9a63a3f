//! The cost of a run besides its trials.

use std::time::Instant;

use anyhow::{Context, Result};
use perfrun_local::{LocalIsolation, LocalNetwork};

use crate::{
    memory::mebibytes,
    testbed::{Testbed, median},
};

/// The number of networks to create.
const NETWORKS: usize = 20;

pub(crate) async fn run() -> Result<()> {
    network().await?;
    per_trial().await?;
    idle_memory().await?;
    start_skew().await
}

/// The time to create namespaces, links and addresses, before the first node can start.
async fn network() -> Result<()> {
    let mut times = vec![];
    for _ in 0..NETWORKS {
        let begun = Instant::now();
        let network = LocalNetwork::create(LocalIsolation::Namespaces, 2, None).await?;
        times.push(begun.elapsed().as_secs_f64() * 1e3);
        drop(network);
    }
    let worst = times.iter().copied().fold(0.0, f64::max);
    println!(
        "creating the network of two nodes: median {:.1} ms, worst {worst:.1} ms of {NETWORKS} (target ≤ 100 ms)",
        median(&times)
    );
    Ok(())
}

/// The time to prepare, synchronise and collect, for each trial.
async fn per_trial() -> Result<()> {
    let testbed = Testbed::start(
        "  workload: {bandwidth: {duration: 50ms}}\n  matrix: {transports: [tcp, quic-v1]}\n  iterations: 3\n",
    )
    .await?;
    let overheads: Vec<f64> = testbed
        .run(None)
        .await?
        .iter()
        .map(|record| record.overhead_seconds * 1e3)
        .collect();
    testbed.nodes.stop().await;
    let worst = overheads.iter().copied().fold(0.0, f64::max);
    println!(
        "time per trial besides the workload: median {:.1} ms, worst {worst:.1} ms of {} trials (target ≤ 50 ms)",
        median(&overheads),
        overheads.len()
    );
    Ok(())
}

async fn idle_memory() -> Result<()> {
    let testbed = Testbed::start("  workload: {ping: {count: 1}}\n  iterations: 1\n").await?;
    let pid = testbed
        .nodes
        .pid("server-0")
        .await
        .context("the plan has a server")?;
    tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    let memory = mebibytes(pid, "VmRSS:")?;
    testbed.nodes.stop().await;
    println!("resident memory of an idle node: {memory:.1} MiB (target ≤ 30 MiB)");
    Ok(())
}

/// How far apart ten clients start.
async fn start_skew() -> Result<()> {
    let testbed = Testbed::start(
        "  workload: {ping: {count: 10}}\n  matrix: {clients: [litep2p], servers: [litep2p], rawReference: false}\n\
         \x20 topology: {clients: 10}\n  iterations: 20\n",
    )
    .await?;
    let records = testbed.run(None).await?;
    testbed.nodes.stop().await;
    let skews: Vec<f64> = records
        .iter()
        .filter_map(|record| record.start_skew_seconds)
        .map(|skew| skew * 1e3)
        .collect();
    let worst = skews.iter().copied().fold(0.0, f64::max);
    println!(
        "start skew of 10 clients: median {:.2} ms, worst {worst:.2} ms of {} trials (target ≤ 5 ms)",
        median(&skews),
        skews.len()
    );
    Ok(())
}
