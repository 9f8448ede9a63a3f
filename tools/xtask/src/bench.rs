//! `cargo xtask bench`: perfrun measured against iperf3, plain quinn and itself.

use std::{
    ffi::OsString,
    process::{Command, ExitCode},
};

use anyhow::{Result, bail};

use crate::{
    cluster::Cluster,
    e2e,
    image::{self, Image},
    install,
    shell::{self, Profile, Workspace},
};

pub(crate) fn run(workspace: &Workspace, args: &[OsString]) -> Result<ExitCode> {
    if args == ["netem"] {
        return netem(workspace);
    }
    let needs_cluster = args.iter().any(|arg| arg == "cluster");
    if let Some(obstacle) = e2e::obstacle()
        && needs_cluster
    {
        bail!(obstacle);
    }
    install::packages(workspace, install::BENCH)?;
    // perfrun-bench starts the other two programs, so all three must be built from the same source.
    workspace.build(Profile::Release, &["perfrun", "perfrun-node", "perfrun-bench"])?;

    let mut bench = workspace.command(workspace.program(Profile::Release, "perfrun-bench"));
    bench.args(args);
    if needs_cluster {
        on_cluster(workspace, &mut bench)
    } else {
        Err(shell::become_program(&mut bench))
    }
}

/// Measures netem as perfrun configures it against netem configured by tc. If the kernel has no netem, the
/// tests of links boot user-mode-linux, which has one. So the benchmark is among those tests.
fn netem(workspace: &Workspace) -> Result<ExitCode> {
    install::packages(workspace, install::BUILD)?;
    install::test(workspace)?;
    let mut benchmark = workspace.cargo(["test", "--package", "perfrun-emulator", "--test", "links"]);
    shell::succeed(benchmark.env("PERFRUN_TEST_ROLE", "benchmark"))?;
    Ok(ExitCode::SUCCESS)
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
