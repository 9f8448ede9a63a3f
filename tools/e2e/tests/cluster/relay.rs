//! Runs in which peers meet through a relay.

use anyhow::{Context, Result, ensure};
use perfrun_api::results::Results;
use perfrun_contract::metric::Metric;
use perfrun_e2e::{e2e, run::check_links_verified, seconds};

/// A relay with a round trip of 200 ms to sinks and of 100 ms to the source, which are 200 ms apart. The
/// tolerance of links, 1 % of that, is more than what a busy machine adds.
const FAR: &str = "
workload: {relay: {sizes: [100k], pings: 2}}
matrix: {clients: [libp2p], servers: [libp2p], networks: [far], rawReference: false}
networks:
  - name: far
    backend: userspace
    delay: 100ms
    relay: {client: {delay: 100ms}, server: {delay: 50ms}}
iterations: 1
warmup: 0
topology: {placement: Any}
template: {link: {realTime: true}}
";

#[test]
fn a_relay_far_away_adds_the_delays_of_its_links() {
    e2e(async |scene| {
        scene.create("relayed", FAR).await?;
        let run = scene.succeeded("relayed", seconds(120)).await?;
        check_links_verified(&run)?;
        let results = scene.checked_results(&run).await?;
        for (cell, metric, least, most) in [
            ("direct-100k", Metric::RoundTripP50, 0.2, 0.3),
            ("relayed-100k", Metric::RelayRoundTripP50, 0.2, 0.3),
            ("relayed-100k", Metric::RoundTripP50, 0.3, 0.4),
        ] {
            let found = median(&results, cell, metric)?;
            ensure!((least..most).contains(&found), "{cell}: {metric} is {found} s");
        }
        Ok(())
    });
}

/// More sinks than pods: two client pods.
const STRESS: &str = "
workload:
  relayStress: {sinks: [20], sinksPerSource: 10, sinkInterval: 50ms, plateau: 3s, transferBytes: 100k}
matrix: {clients: [libp2p], servers: [libp2p], transports: [quic-v1]}
iterations: 1
warmup: 0
topology: {placement: Any, clients: 2, servers: 2}
";

#[test]
fn many_peers_of_few_pods_fetch_through_one_relay() {
    e2e(async |scene| {
        scene.create("stressed", STRESS).await?;
        let run = scene.succeeded("stressed", seconds(90)).await?;
        let results = scene.checked_results(&run).await?;
        ensure!(results.plan.nodes.len() == 5, "{:?}", results.plan.nodes);
        let circuits = median(&results, "sinks-20", Metric::Circuits)?;
        // Between two transfers a sink has no circuit, so that there may never be 20 of them. With one peer
        // per pod, there would be two.
        ensure!(circuits > 10.0, "there were {circuits} circuits");
        let goodput = median(&results, "sinks-20", Metric::DownloadGoodput)?;
        ensure!(goodput > 0.0, "nothing was carried");
        Ok(())
    });
}

fn median(results: &Results, cell: &str, metric: Metric) -> Result<f64> {
    let mut rows = results.summary.iter();
    let row = rows.find(|row| row.cell.contains(cell) && row.metric == metric);
    Ok(row.with_context(|| format!("{cell} has no {metric}"))?.median)
}
