//! CPU time that the node uses outside the stack and the kernel, by sampling.
//!
//! `perf record` samples a node's process during a trial. A sample counts as the node's own when the function
//! it fell into is one of `perfrun_node` or `perfrun_api` that is not a stack adapter's: what the compiler
//! inlined into such a function counts too. So does all reading of clocks, though stacks do that as well;
//! what libraries do for the node elsewhere (copies, allocation) does not.

use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use tokio::process::Command;

use crate::testbed::Testbed;

pub(crate) async fn run(seconds: f64) -> Result<()> {
    let traced = Command::new("perf")
        .args(["record", "-o", "/dev/null", "true"])
        .output()
        .await;
    if !traced.is_ok_and(|output| output.status.success()) {
        println!("CPU time of the node itself: not measured, `perf record` does not work here");
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
         \x20 matrix: {{clients: [{stack}], servers: [{stack}], transports: [{transport}], rawBaseline: false}}\n\
         \x20 iterations: 1\n  warmup: 0\n"
    ))
    .await?;
    let folder = tempfile::tempdir()?;
    let mut recordings = vec![];
    for node in nodes {
        let pid = testbed.nodes.pid(node).await.context("the plan has the node")?;
        let data = folder.path().join(node);
        let recording = Command::new("perf")
            .args(["record", "-q", "-F", "1999", "-p", &pid.to_string(), "-o"])
            .arg(&data)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()?;
        recordings.push((recording, data));
    }
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    testbed.run(None).await?;
    // perf ends, and writes its file, when the process that it samples does.
    testbed.nodes.stop().await;
    let mut shares = [0.0; N];
    for (share, (mut recording, data)) in shares.iter_mut().zip(recordings) {
        recording.wait().await?;
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
            .arg(&data)
            .stderr(Stdio::null())
            .output()
            .await?;
        *share = own_share(&String::from_utf8_lossy(&report.stdout))?;
    }
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
        if is_own && !symbol.contains("perfrun_node::stack::") {
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
                      10.00%  [.] <perfrun_node::stack::raw::Tcp as X>::poll\n\
                      10.00%  [.] perfrun_node::wire::perf::serve::{closure}\n";
        let share = super::own_share(report).unwrap();
        assert!((share - 10.0).abs() < 1e-9, "{share}");
    }
}
