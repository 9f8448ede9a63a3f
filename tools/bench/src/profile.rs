//! CPU time that the node uses outside the stack and the kernel, by sampling.
//!
//! `perf record` samples a node's process during a trial. A sample counts as the node's own by the rule of
//! `perfrun run --profile`: if the innermost function with a known owner is of a crate of perfrun, adapters
//! of stacks included.

use anyhow::{Context, Result};
use perfrun_cli::profile::{self, CallGraph, Recording};
use perfrun_contract::profile::Group;

use crate::testbed::Testbed;

pub(crate) async fn run(seconds: f64) -> Result<()> {
    if let Err(error) = profile::check(CallGraph::Dwarf).await {
        println!("CPU time of the node itself: not measured: {error}");
        return Ok(());
    }
    for (stack, transport) in [
        ("raw", "tcp"),
        ("raw", "quic-v1"),
        ("libp2p", "tcp"),
        ("libp2p", "quic-v1"),
        ("litep2p", "tcp"),
        ("litep2p", "quic-v1"),
    ] {
        for direction in ["upload", "download"] {
            let workload = format!("bandwidth: {{duration: {seconds}s, directions: [{direction}]}}");
            let [client, server] = shares(stack, transport, &workload, ["client-0", "server-0"]).await?;
            println!(
                "CPU time of the node itself, {stack} over {transport}, {direction}: client {client:.2} %, server {server:.2} % \
                 (target ≤ 3 %)"
            );
        }
    }
    for transport in ["tcp", "quic-v1"] {
        let workload = "relay: {sizes: [1Gi], paths: [relayed]}";
        let [relay] = shares("libp2p", transport, workload, ["relay-0"]).await?;
        println!("CPU time of the node itself, libp2p over {transport}, relay: {relay:.2} % (target ≤ 2 %)");
    }
    Ok(())
}

/// The node's own share at each of these nodes, in percent.
async fn shares<const N: usize>(
    stack: &str,
    transport: &str,
    workload: &str,
    nodes: [&str; N],
) -> Result<[f64; N]> {
    let testbed = Testbed::of(stack, transport, workload).await?;
    let folder = tempfile::tempdir()?;
    let mut recordings = vec![];
    for node in nodes {
        let pid = testbed.nodes.pid(node).await.context("the plan has the node")?;
        let file = folder.path().join(node);
        recordings.push((pid, Recording::start(CallGraph::Dwarf, &[pid], file).await?));
    }
    testbed.run(None).await?;
    let mut shares = [0.0; N];
    for (share, (pid, recording)) in shares.iter_mut().zip(recordings) {
        let groups = profile::groups(&recording.stop().await?.script(&[pid]).await?)?;
        let own = groups.get(&Group::Perfrun).copied().unwrap_or_default();
        *share = own as f64 / groups.values().sum::<u64>() as f64 * 100.0;
    }
    testbed.nodes.stop().await;
    Ok(shares)
}
