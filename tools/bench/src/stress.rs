//! A thousand sinks in ten processes that start within a hundred seconds and fetch through one relay: the
//! memory of all processes, and how late sinks start. It takes two and a half minutes, so it runs only when
//! named.

use anyhow::{Context, Result};
use perfrun_contract::record::Metric;

use crate::testbed::Testbed;

const SINKS: u32 = 1000;

/// The time between the starts of two sinks, in milliseconds.
const INTERVAL: u32 = 100;

/// The most memory that all processes may use together, in bytes.
const MOST_MEMORY: u64 = 8 << 30;

/// How late a sink may start, as a share of the ramp.
const MOST_LATE: f64 = 0.05;

pub(crate) async fn run() -> Result<()> {
    let testbed = Testbed::start(&format!(
        "  workload: {{relayStress: {{sinks: [{SINKS}], sinkInterval: {INTERVAL}ms, plateau: 20s, transferBytes: 1M}}}}\n\
         \x20 matrix: {{clients: [libp2p], servers: [libp2p], rawBaseline: false}}\n\
         \x20 topology: {{clients: 10}}\n  iterations: 1\n  warmup: 0\n  timeouts: {{trial: 5m}}\n"
    ))
    .await?;
    let records = testbed.run(None).await?;
    testbed.nodes.stop().await;
    let record = records.first().context("the trial has a record")?;
    let value = |metric| record.metrics.get(&metric).copied().unwrap_or(f64::NAN);
    let resident: u64 = record
        .nodes
        .values()
        .map(|node| node.measured.resources.rss_peak_bytes)
        .sum();
    let ramp = f64::from(SINKS * INTERVAL) / 1e3;
    println!(
        "{SINKS} sinks in 10 processes through one relay: {:.3} of the memory limit, {:.2} GiB in {} processes (target ≤ 1 of \
         {} GiB); started late by at most {:.4} of the ramp (target ≤ {MOST_LATE}); {:.2} Gbit/s, {:.0} concurrent circuits, relay {:.2} \
         CPUs; refused {}, failures {}",
        resident as f64 / MOST_MEMORY as f64,
        gib(resident),
        record.nodes.len(),
        gib(MOST_MEMORY),
        value(Metric::RampLateness) / ramp,
        value(Metric::DownloadGoodput) / 1e9,
        value(Metric::Circuits),
        value(Metric::RelayCpu),
        value(Metric::Refused),
        value(Metric::Failures),
    );
    Ok(())
}

fn gib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 30)
}
