//! Raw TCP against iperf3: one stream in the same two namespaces, in turn.
//!
//! The target is a ratio to iperf3 with the settings of the node: blocks of 64 KiB, and Nagle's algorithm
//! off, as on every stack. iperf3 leaves it on without `-N`. Other settings of iperf3 are printed beside it,
//! because they show where a ratio above 1 comes from.
//!
//! Verified by experiment with iperf3 3.12 on two cores: five rounds of 4 GiB in turn, all at real-time
//! priority so that nothing else ran. The medians in Gbit/s:
//!
//! - iperf3: 9.2 by default, 10.7 with `-N`, 14.2 with `-N` and blocks of 1 MiB;
//! - the node: 11.2 with blocks of 64 KiB, 10.6 with Nagle's algorithm on, 15.8 with blocks of 1 MiB.
//!
//! The algorithm costs iperf3 14 % and the node 5 %; without it, they differ by less than 5 %. Three other
//! explanations are wrong. iperf3 calls `select` once for many blocks: its client makes 1.10 system calls for
//! each block, the node 1.03. Both receivers slept and woke equally often, 57000 times for 65536 blocks.
//! Leaving out the start does not make iperf3 faster. At normal priority on a machine that does other work,
//! pairs of one run differed by more than all of this: from 0.78 to 1.28.

use std::{net::SocketAddr, path::Path};

use anyhow::{Context, Result, ensure};
use perfrun_contract::metric::Metric;
use perfrun_local::Slot;
use tokio::process::Command;

use crate::testbed::{Testbed, Unit, inside, listen, median, pair, print_ratio};

const TARGET: f64 = 0.97;
const PROGRAM: &str = "iperf3";
const PORT: u16 = 5201;
/// The settings of the node.
pub(crate) const SAME: &str = "-l 64K -N";
const OTHERS: [(&str, &str); 4] = [
    ("64 KiB, without the first second (-O 1)", "-l 64K -N -O 1"),
    ("64 KiB, Nagle's algorithm on (no -N)", "-l 64K"),
    ("1 MiB", "-l 1M -N"),
    ("1 MiB, Nagle's algorithm on (no -N)", "-l 1M"),
];

pub(crate) async fn run(rounds: u32, seconds: f64) -> Result<()> {
    let version = version(Path::new(PROGRAM)).await?;
    let workload = format!("bandwidth: {{duration: {seconds}s, directions: [upload]}}");
    let testbed = Testbed::of("raw", "tcp", &workload).await?;
    let (server, client) = testbed.ends()?;
    let cell = format!("raw.raw.tcp.upload-{seconds}s");
    let mut pairs = vec![];
    let mut others = OTHERS.map(|(what, options)| (what, options, vec![]));
    for round in 0..rounds {
        let ours = testbed.measure(&cell, Metric::UploadGoodput);
        pairs.push(pair(round, ours, iperf3(server, client, seconds, SAME)).await?);
        for (_, options, rates) in &mut others {
            rates.push(iperf3(server, client, seconds, options).await?);
        }
    }
    testbed.nodes.stop().await;
    let what = format!("raw TCP, one stream, against {version} in blocks of 64 KiB, Nagle's algorithm off");
    print_ratio(&what, &pairs, Unit::Bits, Some(TARGET));
    for (what, _, rates) in &others {
        println!("  iperf3 in blocks of {what}: {:.2} Gbit/s", median(rates) / 1e9);
    }
    Ok(())
}

/// Name and version, for example `iperf 3.12`.
pub(crate) async fn version(program: &Path) -> Result<String> {
    let output = Command::new(program).arg("--version").output().await;
    let program = program.display();
    let output = output.with_context(|| format!("failed to start {program}: install the package iperf3"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let words: Vec<&str> = text.split_whitespace().take(2).collect();
    Ok(words.join(" "))
}

/// One upload of iperf3, in bit/s at the receiver.
async fn iperf3(server: &Slot, client: &Slot, seconds: f64, options: &str) -> Result<f64> {
    let at = SocketAddr::new(server.addresses().v4.into(), PORT);
    let mut listening = listen(server, Path::new(PROGRAM), &words(&serve(at))).await?;
    let client_options = dial(at, &format!("-t {} {options}", seconds.ceil()));
    let output = inside(client, PROGRAM)?
        .args(words(&client_options))
        .output()
        .await?;
    listening.kill().await?;
    ensure!(
        output.status.success(),
        "iperf3 failed: {}",
        String::from_utf8_lossy(&output.stdout)
    );
    goodput(&output.stdout)
}

/// The arguments of a server.
pub(crate) fn serve(at: SocketAddr) -> String {
    format!("-s -B {} -p {}", at.ip(), at.port())
}

/// The arguments of a client.
pub(crate) fn dial(at: SocketAddr, options: &str) -> String {
    format!("-c {} -p {} -J {options}", at.ip(), at.port())
}

pub(crate) fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

/// The rate at the receiver in bit/s, from the output of `iperf3 -J`.
pub(crate) fn goodput(report: &[u8]) -> Result<f64> {
    let report: serde_json::Value = serde_json::from_slice(report)?;
    report["end"]["sum_received"]["bits_per_second"]
        .as_f64()
        .context("iperf3 gave no rate")
}
