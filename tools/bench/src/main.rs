//! `cargo xtask bench [NAME…]`: perfrun measured against another program or against itself, in the same
//! minutes on the same machine. Every line is a ratio or a cost with its target. None of this is a test,
//! because a shared machine decides part of the outcome.

mod cluster;
mod iperf;
mod links;
mod memory;
mod messages;
mod overhead;
mod part;
mod peers;
mod plans;
mod profile;
mod quic;
mod relay;
mod results;
mod scale;
mod stacks;
mod testbed;

use std::{env, path::Path, process::ExitCode};

use anyhow::{Context, Result, bail};
use clap::{Parser, ValueEnum};
use perfrun_local::privilege;
use tokio::signal::unix::{SignalKind, signal};

use self::{part::PART, peers::PublishedProgram};

/// The exit status if everything was measured, but a goal was missed. `cargo xtask bench --keep` keeps such
/// figures, too.
const MISSED_EXIT_STATUS: u8 = 3;

/// Benchmarks of perfrun itself.
#[derive(Parser)]
#[command(name = "perfrun-bench")]
struct Args {
    /// Benchmarks to run [default: all but `cluster`, `netem`, `peers` and `scale`].
    names: Vec<Name>,
    /// Number of pairs of measurements, each pair back to back.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Duration of each measurement in seconds.
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// For `peers`: a published tool that you have built or installed, as NAME=PATH. NAME is `perf` for a
    /// perf of libp2p, `litep2p-perf`, `litep2p-perf-libp2p` or `iperf3`. Go refuses the module path of
    /// go-libp2p's perf, which ends in `/v0.48`, so `go install` cannot fetch it: clone libp2p/test-plans,
    /// and build it there.
    #[arg(long, value_name = "NAME=PATH")]
    peer: Vec<PublishedProgram>,
    /// Numbers of PerfRuns for `scale`, separated by commas.
    #[arg(long, value_delimiter = ',', default_values_t = [10, 100, 1000])]
    runs: Vec<usize>,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Name {
    /// Raw TCP against iperf3.
    RawTcp,
    /// Raw QUIC against a minimal quinn loop.
    RawQuic,
    /// Messages against bare loops: a window over raw TCP, one at a time over commonware-p2p.
    Messages,
    /// 64 KiB chunks against the published tools' 1 KiB.
    Chunks,
    /// CPU time that the node uses outside the stack and the kernel.
    NodeCpu,
    /// Time to create the network, time per trial besides the trial, idle memory, start skew.
    Overhead,
    /// Time and memory to plan the largest documents.
    Plans,
    /// Time and memory to judge and to report ten thousand trials.
    Results,
    /// Impaired links against plain ones: TCP goodput, CPU time, time to set them up, to probe them.
    Links,
    /// netem set by perfrun against netem set by tc, in user-mode-linux if this kernel has no netem.
    Netem,
    /// Transfers through a relay against direct ones.
    Relay,
    /// The published tools, and iperf3, against perfrun-node in their place.
    Peers,
    /// On Kubernetes: time to the first byte, start skew, goodput against iperf3, cost of the operator.
    Cluster,
    /// On Kubernetes: memory, requests and delays of the operator with up to a thousand runs.
    Scale,
}

fn main() -> Result<ExitCode> {
    if perfrun_test_kit::uml::is_first_process() {
        links::netem::first_process();
    }
    if let Ok(part) = env::var(PART) {
        do_part(&part)?;
        return Ok(ExitCode::SUCCESS);
    }
    let args = Args::parse();
    privilege::acquire().context("benchmarks need network namespaces: run as root")?;
    tokio::runtime::Runtime::new()?.block_on(async {
        // Without these, a signal would leave nodes and other programs behind.
        let mut terminated = signal(SignalKind::terminate()).context("failed to watch for signals")?;
        let mut interrupted = signal(SignalKind::interrupt()).context("failed to watch for signals")?;
        tokio::select! {
            measured = measure(&args) => measured,
            _ = terminated.recv() => bail!("stopped"),
            _ = interrupted.recv() => bail!("interrupted"),
        }
    })
}

/// Runs the benchmarks that the arguments name, one after the other.
async fn measure(args: &Args) -> Result<ExitCode> {
    let Args { rounds, seconds, .. } = *args;
    let is_wanted = |name: &Name| match args.names.is_empty() {
        true => !matches!(name, Name::Netem | Name::Peers | Name::Cluster | Name::Scale),
        false => args.names.contains(name),
    };
    for name in Name::value_variants().iter().filter(|name| is_wanted(name)) {
        match name {
            Name::RawTcp => iperf::run(rounds, seconds).await?,
            Name::RawQuic => quic::run(rounds, seconds).await?,
            Name::Messages => messages::run(rounds, seconds).await?,
            Name::Chunks => stacks::run(rounds, seconds).await?,
            Name::NodeCpu => profile::run(seconds).await?,
            Name::Overhead => overhead::run().await?,
            Name::Plans => plans::run(rounds)?,
            Name::Results => results::run(rounds)?,
            Name::Links => links::run(rounds, seconds).await?,
            Name::Netem => links::netem::run(rounds, seconds)?,
            Name::Relay => relay::run(rounds).await?,
            Name::Peers => peers::run(&args.peer, rounds.max(peers::ROUNDS_MIN)).await?,
            Name::Cluster => cluster::run(rounds, seconds).await?,
            Name::Scale if scale::run(&args.runs).await? => {}
            Name::Scale => return Ok(ExitCode::from(MISSED_EXIT_STATUS)),
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Does the part of a benchmark that this process was started for.
fn do_part(part: &str) -> Result<()> {
    match part.splitn(3, ' ').collect::<Vec<_>>()[..] {
        ["plans", which] => plans::once(which),
        ["results", what, file] => results::once(what, Path::new(file)),
        ["quic", end, arguments] => tokio::runtime::Runtime::new()?.block_on(quic::end(end, arguments)),
        ["messages", end, arguments] => messages::end(end, arguments),
        _ => bail!("{PART}={part:?} is not a part of a benchmark"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contributors_find_every_benchmark() {
        let page = include_str!("../../../CONTRIBUTING.md");
        let rows = page
            .lines()
            .filter(|line| line.starts_with("| `cargo xtask bench "));
        // Names are the first cell of a row: `cargo xtask bench raw-tcp`, `raw-quic`.
        let cells = rows.filter_map(|row| row.split('|').nth(1));
        let quoted = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2));
        let listed: Vec<&str> = quoted
            .map(|words| words.trim_start_matches("cargo xtask bench "))
            .collect();
        for name in Name::value_variants() {
            let name = name.to_possible_value().unwrap();
            let name = name.get_name();
            assert!(
                listed.contains(&name),
                "CONTRIBUTING.md has no row for `cargo xtask bench {name}`"
            );
        }
    }
}
