//! The end-to-end tests, on a cluster that is made for them.

use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
    sync::{Arc, atomic::AtomicBool},
};

use anyhow::{Context, Result};
use signal_hook::{consts::TERM_SIGNALS, flag};

use crate::{
    image::{self, Image},
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

/// Makes a cluster with the operator, runs the tests, and removes the cluster however they ended. `skip_log` is the
/// variable that names the log of skipped tests, and that log.
pub fn run(workspace: &Workspace, skip_log: (&str, &Path)) -> Result<Outcome> {
    let archives = [
        image::dev(workspace, Image::Node)?,
        image::dev(workspace, Image::Operator)?,
    ];
    let lab = Lab::up(workspace)?;
    let tested = test(workspace, &lab, &archives, skip_log);
    lab.down()?;
    tested
}

fn test(
    workspace: &Workspace,
    lab: &Lab<'_>,
    archives: &[PathBuf],
    skip_log: (&str, &Path),
) -> Result<Outcome> {
    shell::succeed(lab.xtask("load")?.args(archives))?;
    let kubeconfig = lab.kubeconfig()?;
    // Beside it: the one of the cluster's version.
    let programs = kubeconfig.with_file_name("bin");
    let kubectl = programs.join("kubectl");
    let install = |args: &[&str]| {
        let mut command = workspace.command(&kubectl);
        shell::succeed(command.arg("--kubeconfig").arg(&kubeconfig).args(args))
    };
    install(&["apply", "--server-side", "--filename", "crds"])?;
    install(&["apply", "--kustomize", "operator/deploy/dev"])?;

    // By the name of the target and not of the package, which would build its dependencies once more.
    let mut test = workspace.cargo([
        "test",
        "--workspace",
        "--test",
        "cluster",
        "--",
        "--test-threads=1",
    ]);
    test.env(skip_log.0, skip_log.1)
        .env("PERFRUN_E2E_KUBECONFIG", &kubeconfig)
        .env("PERFRUN_E2E_KUBECTL", &kubectl)
        .env("PERFRUN_E2E_LAB", LAB)
        .env("PERFRUN_E2E_PERFRUN", workspace.program(Profile::Dev, "perfrun"))
        .env("PERFRUN_E2E_XTASK", xtask()?);
    step::check(
        &mut test,
        "the failures are listed above, with what was in the cluster; docs/how-to/cluster.md says how to repeat one",
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
        shell::succeed(lab.xtask("up")?.args(["--nodes", NODES]))?;
        Ok(lab)
    }

    fn down(&self) -> Result<()> {
        shell::succeed(&mut self.xtask("down")?)
    }

    fn kubeconfig(&self) -> Result<PathBuf> {
        let path = shell::said(&mut self.xtask("kubeconfig")?)?;
        Ok(Path::new(&path).to_owned())
    }

    fn xtask(&self, verb: &str) -> Result<Command> {
        let mut command = self.0.command(xtask()?);
        command.args(["lab", "--name", LAB, verb]);
        Ok(command)
    }
}

fn xtask() -> Result<PathBuf> {
    env::current_exe().context("failed to find the path of xtask itself")
}
