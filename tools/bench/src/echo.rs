//! Ten thousand streams over a hundred connections, each echoing a line of 1 KiB twice a second: the share of
//! echoes that arrive, and their cost. It takes a minute and a half for each stack, transport and pace, so it
//! runs only when named.

use anyhow::{Context, Result};
use perfrun_contract::metric::Metric;

use crate::testbed::Testbed;

/// The share of the due round trips that must complete on the plateau.
const TARGET: f64 = 0.99;

pub(crate) async fn run() -> Result<()> {
    let ends = [
        ("libp2p", "tcp"),
        ("litep2p", "tcp"),
        ("libp2p", "ws"),
        ("litep2p", "ws"),
        ("libp2p", "quic-v1"),
    ];
    // With a pause, as published, the round trip alone lowers the share.
    let paced = ends
        .into_iter()
        .flat_map(|ends| ["period", "pause"].map(|pace| (ends, pace)));
    for ((stack, transport), pace) in paced {
        let testbed = Testbed::start(&format!(
            "  workload:\n    echo: {{loads: [{{preset: scenario-2}}], connectionInterval: 100ms, duration: 82s, {pace}: 500ms}}\n\
             \x20 matrix: {{clients: [{stack}], servers: [{stack}], transports: [{transport}], rawReference: false}}\n\
             \x20 iterations: 1\n  warmup: 0\n  timeouts: {{trial: 3m}}\n"
        ))
        .await?;
        let records = testbed.run(None).await?;
        testbed.nodes.stop().await;
        let metrics = &records.first().context("the trial has a record")?.metrics;
        let value = |metric| metrics.get(&metric).copied().unwrap_or(f64::NAN);
        let kib = |metric| value(metric) / 1024.0;
        println!(
            "{stack} over {transport}, 10 000 streams with a {pace} for a minute:\n  \
             {:.4} of the due round trips (target ≥ {TARGET}), {:.0} echo in every second, failures {}\n  \
             round trips: p50 {:.2} ms, p99 {:.2} ms\n  \
             at client and server: {:.2} and {:.2} CPUs, {:.2} and {:.2} KiB allocated per stream",
            value(Metric::AchievedShare),
            value(Metric::EchoingStreams),
            value(Metric::Failures),
            value(Metric::RoundTripP50) * 1e3,
            value(Metric::RoundTripP99) * 1e3,
            value(Metric::ClientCpuCores),
            value(Metric::ServerCpuCores),
            kib(Metric::ClientAllocatedPerStream),
            kib(Metric::ServerAllocatedPerStream),
        );
    }
    Ok(())
}
