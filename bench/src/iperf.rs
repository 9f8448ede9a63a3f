//! Raw TCP against iperf3: the same two namespaces, one stream each, blocks of 64 KiB, in turn.

use std::{os::unix::process::CommandExt, process::Stdio, time::Duration};

use anyhow::{Context, Result, ensure};
use perfrun_api::results::Metric;
use perfrun_cli::local::Slot;
use tokio::process::Command;

use crate::testbed::{Testbed, print_ratio};

const TARGET: f64 = 0.97;

pub async fn run(rounds: u32, seconds: f64) -> Result<()> {
    let testbed = Testbed::start(&format!(
        "  workload: {{bandwidth: {{duration: {seconds}s, directions: [upload]}}}}\n\
         \x20 matrix: {{clients: [raw], servers: [raw]}}\n  iterations: 1\n  warmup: 0\n"
    ))
    .await?;
    let (server, client) = (testbed.nodes.slot(0), testbed.nodes.slot(1));
    let (server, client) = server.zip(client).context("the plan has two nodes")?;
    let cell = format!("raw.raw.tcp.upload-{seconds}s");
    let mut pairs = vec![];
    for round in 0..rounds {
        // Who goes first alternates, so that neither always finds the machine as the other left it.
        let pair = if round % 2 == 0 {
            let ours = testbed.measure(&cell, Metric::UploadGoodput).await?;
            (ours, iperf3(server, client, seconds).await?)
        } else {
            let theirs = iperf3(server, client, seconds).await?;
            (testbed.measure(&cell, Metric::UploadGoodput).await?, theirs)
        };
        pairs.push(pair);
    }
    testbed.nodes.stop().await;
    print_ratio("raw TCP, one stream, against iperf3", &pairs, TARGET);
    Ok(())
}

/// One upload of iperf3, in bit/s at the receiver.
async fn iperf3(server: &Slot, client: &Slot, seconds: f64) -> Result<f64> {
    let address = server.addresses().v4.to_string();
    let mut listening = inside(server, "iperf3")?
        .args(["-s", "-1", "-B", &address, "-p", "5201"])
        .stdout(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .context("failed to start iperf3: install the package iperf3")?;
    tokio::time::sleep(Duration::from_millis(300)).await;
    let output = inside(client, "iperf3")?
        .args([
            "-c",
            &address,
            "-p",
            "5201",
            "-t",
            &format!("{}", seconds.ceil()),
            "-l",
            "64K",
            "-J",
        ])
        .output()
        .await?;
    listening.wait().await?;
    ensure!(
        output.status.success(),
        "iperf3 failed: {}",
        String::from_utf8_lossy(&output.stdout)
    );
    let report: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    report["end"]["sum_received"]["bits_per_second"]
        .as_f64()
        .context("iperf3 gave no rate")
}

/// A command that will run in a node's namespace.
pub fn inside(slot: &Slot, program: impl AsRef<std::ffi::OsStr>) -> Result<Command> {
    let namespace = slot
        .namespace()
        .context("the node has a namespace")?
        .try_clone()?;
    let mut command = std::process::Command::new(program);
    // SAFETY: joining a namespace is one system call on a descriptor that the closure owns.
    unsafe {
        command.pre_exec(move || namespace.join());
    }
    Ok(command.into())
}
