//! Runs over IPv6, on a cluster whose pods have addresses of both families.

use anyhow::{Result, ensure};
use perfrun_contract::metric::Metric;
use perfrun_e2e::{Scene, e2e, seconds};
use perfrun_test_kit::{Need, skip};

/// The round trip is the same over both families: the link adds most of it.
const BOTH: &str = "
workload: {ping: {count: 3}}
matrix:
  clients: [libp2p, raw]
  servers: [libp2p, raw]
  transports: [tcp, quic-v1]
  networks: [far]
  ipFamilies: [IPv4, IPv6]
networks: [{name: far, delay: 100ms, backend: userspace}]
iterations: 1
warmup: 0
topology: {placement: Any}
template: {link: {realTime: true}}
";

#[test]
fn both_families_are_measured_over_their_own_links() {
    e2e(async |scene| {
        if !is_dual_stack(scene).await? {
            skip(
                Need::Ipv6,
                "all of it",
                "the pods of this cluster have no address of IPv6",
            );
            return Ok(());
        }
        scene.create("families", BOTH).await?;
        let run = scene.succeeded("families", seconds(120)).await?;
        let results = scene.checked_results(&run).await?;
        let trips: Vec<_> = results
            .summary
            .iter()
            .filter(|row| row.metric == Metric::RoundTripP50)
            .collect();
        let over_ipv6 = trips.iter().filter(|row| row.cell.ends_with(".IPv6")).count();
        ensure!(
            over_ipv6 * 2 == trips.len() && over_ipv6 == 4,
            "{over_ipv6} of {} cells are over IPv6",
            trips.len()
        );
        for row in trips {
            ensure!(
                (0.2..0.3).contains(&row.median),
                "cell {} has a round trip of {} s",
                row.cell,
                row.median
            );
        }
        Ok(())
    });
}

/// Whether pods have addresses of IPv6, as the operator's does.
async fn is_dual_stack(scene: &Scene) -> Result<bool> {
    let status = scene.operators().leader().await?.status;
    let addresses = status.and_then(|status| status.pod_ips).unwrap_or_default();
    Ok(addresses.iter().any(|address| address.ip.contains(':')))
}
