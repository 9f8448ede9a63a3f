//! `cargo xtask e2e`: the end-to-end tests, on a cluster that is made for them.

use std::{
    path::{Path, PathBuf},
    process::{Command, ExitCode},
    sync::{Arc, atomic::AtomicBool},
};

use anyhow::{Context, Result, bail};
use signal_hook::{consts::TERM_SIGNALS, flag};

use crate::{
    image::{self, Image},
    install,
    shell::{self, Profile, Workspace},
    step::{self, Outcome},
};

/// The lab that the tests run on, beside any that is in use.
const LAB: &str = "test";
/// Two nodes to measure between, and one to go to when one of them is lost.
const NODES: &str = "3";

/// Why there can be no cluster here, if there cannot.
pub fn obstacle() -> Option<&'static str> {
    (!shell::is_root())
        .then_some("needs root, to make the network and control groups of a cluster; run it as root once")
}

/// The command: the tests whose names contain one of `names`, or all.
pub fn run(workspace: &Workspace, names: &[String]) -> Result<ExitCode> {
    if let Some(obstacle) = obstacle() {
        bail!(obstacle);
    }
    install::packages(workspace, install::BUILD)?;
    workspace.build(Profile::Dev, &["perfrun", "perfrun-node"])?;
    match check(workspace, names, None)? {
        Outcome::Failed(reason) => bail!(reason),
        Outcome::Passed | Outcome::Skipped(_) => Ok(ExitCode::SUCCESS),
    }
}

/// Makes a cluster with the operator, runs the tests, and removes the cluster however they ended. `perfrun` is built
/// already. `skip_log` is the variable that names the log of skipped tests, and that log.
pub fn check(workspace: &Workspace, names: &[String], skip_log: Option<(&str, &Path)>) -> Result<Outcome> {
    let archives = [
        image::dev(workspace, Image::Node)?,
        image::dev(workspace, Image::Operator)?,
    ];
    let lab = Lab::up(workspace)?;
    let tested = install(workspace, &lab, &archives).and_then(|()| test(workspace, &lab, names, skip_log));
    lab.down()?;
    tested
}

/// The images on every node, the CRD, and the operator.
fn install(workspace: &Workspace, lab: &Lab<'_>, archives: &[PathBuf]) -> Result<()> {
    shell::succeed(lab.xtask("load").args(archives))?;
    for args in [
        ["apply", "--server-side", "--filename", "crds"],
        ["apply", "--server-side", "--kustomize", "operator/deploy/dev"],
    ] {
        let mut kubectl = workspace.command(lab.kubectl()?);
        shell::succeed(kubectl.arg("--kubeconfig").arg(lab.kubeconfig()?).args(args))?;
    }
    Ok(())
}

fn test(
    workspace: &Workspace,
    lab: &Lab<'_>,
    names: &[String],
    skip_log: Option<(&str, &Path)>,
) -> Result<Outcome> {
    // By the name of the target and not of the package, which would build its dependencies once more.
    let mut test = workspace.cargo([
        "test",
        "--workspace",
        "--test",
        "cluster",
        "--",
        "--test-threads=1",
    ]);
    test.args(names)
        .envs(skip_log)
        .env("PERFRUN_E2E_KUBECONFIG", lab.kubeconfig()?)
        .env("PERFRUN_E2E_KUBECTL", lab.kubectl()?)
        .env("PERFRUN_E2E_LAB", LAB)
        .env("PERFRUN_E2E_PERFRUN", workspace.program(Profile::Dev, "perfrun"))
        .env("PERFRUN_E2E_XTASK", workspace.xtask());
    step::check(
        &mut test,
        "the failures are listed above, with what was in the cluster; repeat one with `cargo xtask e2e NAME`",
    )
}

struct Lab<'a>(&'a Workspace);

impl<'a> Lab<'a> {
    fn up(workspace: &'a Workspace) -> Result<Self> {
        // Ctrl-C ends what is waited for, and not this, which has a lab to remove; the second one does.
        let interrupted = Arc::new(AtomicBool::new(false));
        for signal in TERM_SIGNALS {
            flag::register_conditional_shutdown(*signal, 130, Arc::clone(&interrupted))
                .and_then(|_| flag::register(*signal, Arc::clone(&interrupted)))
                .context("failed to watch for Ctrl-C")?;
        }
        let lab = Self(workspace);
        // What a run that was killed has left.
        lab.down()?;
        shell::succeed(lab.xtask("up").args(["--nodes", NODES]))?;
        Ok(lab)
    }

    fn down(&self) -> Result<()> {
        shell::succeed(&mut self.xtask("down"))
    }

    fn kubeconfig(&self) -> Result<PathBuf> {
        let path = shell::said(&mut self.xtask("kubeconfig"))?;
        Ok(Path::new(&path).to_owned())
    }

    /// Beside the kubeconfig: the one of the cluster's version.
    fn kubectl(&self) -> Result<PathBuf> {
        Ok(self.kubeconfig()?.with_file_name("bin").join("kubectl"))
    }

    fn xtask(&self, verb: &str) -> Command {
        let mut command = self.0.command(self.0.xtask());
        command.args(["lab", "--name", LAB, verb]);
        command
    }
}
