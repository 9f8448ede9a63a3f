//! `cargo xtask e2e`: the end-to-end tests, on a cluster that is started for them.

use std::{
    path::Path,
    process::{Command, ExitCode},
};

use anyhow::{Result, bail};

use crate::{
    cluster::Cluster,
    image::{self, Image},
    install, programs,
    shell::{self, Profile, Workspace},
    step::{self, Outcome},
    timed_tests,
    times::Times,
};

/// Returns the reason if no cluster can be started on this machine.
pub(crate) fn obstacle() -> Option<&'static str> {
    (!shell::is_root())
        .then_some("needs root, to make the network and control groups of a cluster; run it as root once")
}

/// The command. It runs the tests whose names contain one of `names`, or all tests if there are none.
pub(crate) fn run(workspace: &Workspace, names: &[String]) -> Result<ExitCode> {
    run_with(workspace, names, &[])
}

/// The command with variables that name logs and folders for tests, and the paths of these.
pub(crate) fn run_with(workspace: &Workspace, names: &[String], paths: &[(&str, &Path)]) -> Result<ExitCode> {
    if let Some(obstacle) = obstacle() {
        bail!(obstacle);
    }
    install::packages(workspace, install::BUILD)?;
    install::test(workspace)?;
    timed_tests::install(workspace)?;
    workspace.build(Profile::Dev, &["perfrun", "perfrun-node"])?;
    check(workspace, names, paths)?.into_exit_code()
}

/// Tests in which an operator or a Kubernetes node dies or is replaced. They mostly wait, and would keep
/// those of runs waiting.
const APART: [&str; 4] = ["crashes::", "lost::", "chart::", "newer::"];

/// Runs the tests on a cluster with the operator, or all tests on two clusters side by side. `perfrun` is
/// already built. `paths` are as for [`run_with`].
pub(crate) fn check(workspace: &Workspace, names: &[String], paths: &[(&str, &Path)]) -> Result<Outcome> {
    let times = Times::of_step(workspace)?;
    let images = times.timed("images", || {
        let images = [Image::Node, Image::NodeGo, Image::Operator];
        let built = images.map(|image| image::build(workspace, image, Profile::Dev));
        built.into_iter().collect::<Result<Vec<_>>>()
    })?;
    let prometheus = programs::prometheus(workspace)?;
    let on_cluster = |workspace: &Workspace, lab, names: &[&str]| {
        Cluster::with(workspace, lab, &images, image::tag(Profile::Dev), |cluster| {
            let mut test = tests(workspace)?;
            test.arg("--test-threads=3")
                .args(names)
                .envs(paths.iter().copied())
                .env("PERFRUN_E2E_PROMETHEUS", &prometheus)
                .envs(cluster.environment(Profile::Dev)?);
            step::check(
                &mut test,
                "the failures are listed above, with what was in the cluster; repeat one with `cargo xtask e2e NAME`",
            )
        })
    };
    if names.is_empty() {
        let others = APART.map(|name| ["--skip", name]);
        step::side_by_side(
            workspace,
            "tests apart",
            || on_cluster(workspace, "test", others.as_flattened()),
            |apart| on_cluster(apart, "test-apart", &APART),
        )
    } else {
        let names: Vec<_> = names.iter().map(String::as_str).collect();
        on_cluster(workspace, "test", &names)
    }
}

/// A command that runs the tests, with arguments for their program.
fn tests(workspace: &Workspace) -> Result<Command> {
    let mut tests = timed_tests::command(workspace)?;
    // Selects the target by name. Selecting the package would build its dependencies again.
    tests.args(["--test", "cluster", "--"]);
    Ok(tests)
}
