//! A thousand sinks in ten processes that start within ten seconds and fetch through one relay: the memory of
//! all processes, and how late sinks start. It may need several GiB of memory, so it runs only when named.

use anyhow::{Context, Result, bail};
use perfrun_contract::{metric::Metric, parameters::Parameters};

use crate::testbed::Testbed;

const SINKS: u32 = 1000;

/// The time between the starts of two sinks of a source, in milliseconds.
const INTERVAL: u32 = 100;

/// The most memory that all processes may use together, in bytes.
const MOST_MEMORY: u64 = 8 << 30;

/// How late a sink may start, in percent of the ramp.
const MOST_LATE: f64 = 5.0;

pub(crate) async fn run() -> Result<()> {
    let testbed = Testbed::start(&format!(
        "  workload: {{relayStress: {{sinks: [{SINKS}], sinkInterval: {INTERVAL}ms, plateau: 20s, transferBytes: 1M}}}}\n\
         \x20 matrix: {{clients: [libp2p], servers: [libp2p], rawReference: false}}\n\
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
    // All sources start sinks at the same time, so that the ramp depends on the number of sources.
    let Parameters::RelayStress(load) = testbed.plan.cells[record.trial.cell].parameters else {
        bail!("the cell is not a stress test");
    };
    println!(
        "{SINKS} sinks in 10 processes through one relay:\n  \
         memory of all {} processes: {:.2} GiB (target ≤ {} GiB)\n  \
         sinks started late by at most {:.2} % of the ramp (target ≤ {MOST_LATE} %)\n  \
         {:.2} Gbit/s, {:.0} simultaneous circuits, {:.2} CPUs of the relay; refused {}, failures {}",
        record.nodes.len(),
        gib(resident),
        gib(MOST_MEMORY),
        value(Metric::RampLateness) / load.ramp_seconds * 100.0,
        value(Metric::DownloadGoodput) / 1e9,
        value(Metric::Circuits),
        value(Metric::RelayCpu),
        value(Metric::Refused),
        value(Metric::Failures),
    );
    for (name, node) in &record.nodes {
        let (errors, refused) = (&node.measured.errors, &node.measured.refused);
        if !(errors.is_empty() && refused.is_empty()) {
            println!("  {name}: failed {errors:?}, refused {refused:?}");
        }
    }
    Ok(())
}

fn gib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 30)
}
