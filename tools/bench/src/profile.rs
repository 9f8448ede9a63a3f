//! CPU time that the node uses outside the stack and the kernel, by sampling.
//!
//! `perf record` samples a node's process during a trial. A sample counts as the node's own when the function
//! it fell into is one of `perfrun_node` or `perfrun_api` that is not a stack adapter's: what the compiler
//! inlined into such a function counts too. So does all reading of clocks, though stacks do that as well;
//! what libraries do for the node elsewhere (copies, allocation) does not.

use anyhow::{Context, Result, ensure};
use perfrun_cli::profile::{self, Recording};
use tokio::process::Command;

use crate::testbed::Testbed;

pub(crate) async fn run(seconds: f64) -> Result<()> {
    if let Err(error) = profile::check(None).await {
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
    let testbed = Testbed::start(&format!(
        "  workload: {{{workload}}}\n\
         \x20 matrix: {{clients: [{stack}], servers: [{stack}], transports: [{transport}], rawReference: false}}\n\
         \x20 iterations: 1\n  warmup: 0\n"
    ))
    .await?;
    let folder = tempfile::tempdir()?;
    let mut recordings = vec![];
    for node in nodes {
        let pid = testbed.nodes.pid(node).await.context("the plan has the node")?;
        recordings.push(Recording::start(None, &[pid], folder.path().join(node)).await?);
    }
    testbed.run(None).await?;
    let mut shares = [0.0; N];
    for (share, recording) in shares.iter_mut().zip(recordings) {
        let recorded = recording.stop().await?;
        let report = Command::new("perf")
            .args([
                "report",
                "-q",
                "--no-children",
                "--sort",
                "symbol",
                "--stdio",
                "--percent-limit",
                "0",
                "-i",
            ])
            .arg(recorded.file())
            .output()
            .await?;
        *share = own_share(&String::from_utf8_lossy(&report.stdout))
            .with_context(|| String::from_utf8_lossy(&report.stderr).trim().to_owned())?;
    }
    testbed.nodes.stop().await;
    Ok(shares)
}

/// Sums the node's own functions of a report with lines such as `  1.25%  [.]
/// perfrun_node::wire::perf::serve`.
fn own_share(report: &str) -> Result<f64> {
    let mut total = 0.0;
    let mut own = 0.0;
    for line in report.lines() {
        let Some((percent, symbol)) = line.trim().split_once('%') else {
            continue;
        };
        let Ok(percent) = percent.trim().parse::<f64>() else {
            continue;
        };
        total += percent;
        let is_own = ["perfrun_node::", "perfrun_api::", "clock_gettime"]
            .iter()
            .any(|name| symbol.contains(name));
        if is_own && !symbol.contains("perfrun_stack::") {
            own += percent;
        }
    }
    ensure!(total > 50.0, "perf gave no usable profile");
    Ok(own / total * 100.0)
}

#[cfg(test)]
mod tests {
    #[test]
    fn only_the_nodes_own_functions_count() {
        let report = "  50.00%  [k] copy_user\n  30.00%  [.] chacha20\n\
                      10.00%  [.] <perfrun_stack::raw::Tcp as X>::poll\n\
                      10.00%  [.] perfrun_node::wire::perf::serve::{closure}\n";
        let share = super::own_share(report).unwrap();
        assert!((share - 10.0).abs() < 1e-9, "{share}");
    }
}
