//! `cargo xtask bench`: perfrun measured against iperf3, plain quinn and itself.

use std::{
    ffi::OsString,
    process::{Command, ExitCode},
};

use anyhow::{Result, bail};

use crate::{
    cluster::Cluster,
    e2e, go,
    image::{self, Image},
    install,
    shell::{self, Profile, Workspace},
};

pub(crate) fn run(workspace: &Workspace, args: &[OsString]) -> Result<ExitCode> {
    if let [name, options @ ..] = args
        && name == "go"
    {
        return go::bench(workspace, options);
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
    bench.args(args);
    if args.iter().any(|arg| arg == "peers") {
        let mut perf = OsString::from("perf=");
        perf.push(install::libp2p_perf(workspace)?);
        bench.arg("--peer").arg(perf);
    }
    if needs_cluster {
        on_cluster(workspace, &mut bench)
    } else if needs_api_server {
        Cluster::without_operators(workspace, "scale", |cluster| {
            shell::succeed(bench.envs(cluster.environment(Profile::Release)?))?;
            Ok(ExitCode::SUCCESS)
        })
    } else {
        Err(shell::become_program(&mut bench))
    }
}

fn on_cluster(workspace: &Workspace, bench: &mut Command) -> Result<ExitCode> {
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
            shell::succeed(bench.envs(cluster.environment(Profile::Release)?))?;
            Ok(ExitCode::SUCCESS)
        },
    )
}
