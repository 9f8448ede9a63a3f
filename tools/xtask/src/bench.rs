//! `cargo xtask bench`: perfrun measured against iperf3, plain quinn and itself.

use std::{
    ffi::OsString,
    process::{Command, ExitCode},
};

use anyhow::{Result, bail};

use crate::{
    benchmark::Benchmark,
    cluster::Cluster,
    e2e, go,
    image::{self, Image},
    install, pinned,
    shell::{self, Profile, Workspace},
};

/// Keeps the output of a benchmark. perfrun-bench does not have this option.
const KEEP: &str = "--keep";
/// The exit status of perfrun-bench if it has measured everything, but a goal was missed.
const MISSED_EXIT_STATUS: i32 = 3;

pub(crate) fn run(workspace: &Workspace, args: &[OsString]) -> Result<ExitCode> {
    let is_kept = args.iter().any(|arg| arg == KEEP);
    let args: Vec<OsString> = args.iter().filter(|arg| *arg != KEEP).cloned().collect();
    let kept = is_kept.then(|| Benchmark::now(workspace, &args)).transpose()?;
    let kept = kept.as_ref();
    if let [name, options @ ..] = &args[..]
        && name == "go"
    {
        return without_cluster(workspace, &mut go::bench(workspace, options)?, kept);
    }
    let names = |name: &str| args.iter().any(|arg| arg == name);
    let (needs_cluster, needs_api_server) = (names("cluster"), names("scale"));
    if needs_cluster && needs_api_server {
        bail!("`cluster` and `scale` need different clusters: run one after the other");
    }
    if let Some(obstacle) = e2e::obstacle()
        && (needs_cluster || needs_api_server)
    {
        bail!(obstacle);
    }
    install::packages(workspace, install::BENCH)?;
    if names("netem") {
        // A kernel that has netem.
        install::test(workspace)?;
    }
    // perfrun-bench starts the other programs, so all of them must be built from the same source.
    let programs = ["perfrun", "perfrun-node", "perfrun-bench", "perfrun-operator"];
    let count = if needs_api_server { 4 } else { 3 };
    workspace.build(Profile::Release, &programs[..count])?;

    let mut bench = workspace.command(workspace.program(Profile::Release, "perfrun-bench"));
    bench.args(&args);
    let names_peer = args
        .iter()
        .any(|arg| arg.as_encoded_bytes().starts_with(b"--peer"));
    if names("peers") && !names_peer {
        let mut perf = OsString::from("perf=");
        perf.push(pinned::LIBP2P_PERF.install(workspace)?);
        bench.args(["--peer", "iperf3=iperf3", "--peer"]).arg(perf);
    }
    if needs_cluster {
        on_cluster(workspace, &mut bench, kept)
    } else if needs_api_server {
        Cluster::without_operators(workspace, "scale", |cluster| {
            let environment = cluster.environment(Profile::Release)?;
            measure(workspace, bench.envs(environment), kept)
        })
    } else {
        without_cluster(workspace, &mut bench, kept)
    }
}

fn on_cluster(workspace: &Workspace, bench: &mut Command, kept: Option<&Benchmark>) -> Result<ExitCode> {
    let images = [
        image::build(workspace, Image::Node, Profile::Release)?,
        image::build(workspace, Image::Operator, Profile::Release)?,
        image::iperf3(workspace)?,
    ];
    Cluster::with(
        workspace,
        "bench",
        &images,
        image::tag(Profile::Release),
        |cluster| {
            let environment = cluster.environment(Profile::Release)?;
            measure(workspace, bench.envs(environment), kept)
        },
    )
}

/// The benchmark takes the place of this process, unless its output is kept.
fn without_cluster(workspace: &Workspace, bench: &mut Command, kept: Option<&Benchmark>) -> Result<ExitCode> {
    match kept {
        Some(_) => measure(workspace, bench, kept),
        None => Err(shell::become_program(bench)),
    }
}

/// Runs the benchmark. What it prints is kept if it has measured everything, even if a goal was missed.
fn measure(workspace: &Workspace, bench: &mut Command, kept: Option<&Benchmark>) -> Result<ExitCode> {
    let status = match kept {
        Some(benchmark) => {
            let (printed, status) = shell::shown(bench)?;
            if matches!(status.code(), Some(0 | MISSED_EXIT_STATUS)) {
                benchmark.keep(workspace, &printed)?;
            }
            status
        }
        None => shell::status(bench)?,
    };
    if status.code() == Some(MISSED_EXIT_STATUS) {
        bail!("a goal was missed; the lines above that begin with `missed:` name it");
    }
    shell::must_succeed(bench, status)?;
    Ok(ExitCode::SUCCESS)
}
