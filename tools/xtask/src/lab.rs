//! `cargo xtask lab`: installs packages, builds the programs of a cluster, and runs perfrun-lab.

use std::{ffi::OsString, path::PathBuf, process::ExitCode};

use anyhow::{Result, bail};

use crate::{
    install, programs,
    shell::{self, Profile, Workspace},
};

const KUBECONFIG: &str = "kubeconfig";
/// The command that needs packages and the programs of a cluster.
pub(crate) const UP: &str = "up";

/// Runs perfrun-lab with `args`.
pub(crate) fn run(workspace: &Workspace, args: &[OsString]) -> Result<ExitCode> {
    let names = |command: &str| args.iter().any(|arg| arg == command);
    let needs_root = !["--help", "-h", "help", KUBECONFIG].into_iter().any(names);
    if needs_root && !shell::is_root() {
        bail!(
            "the lab makes namespaces, links and control groups, which needs root: run \
             `sudo env PATH=\"$PATH\" {} lab …`",
            workspace.xtask().display()
        );
    }
    let mut lab = workspace.command(build(workspace)?);
    lab.args(args);
    if names(UP) && needs_root {
        install::lab(workspace)?;
        lab.args(programs::of_cluster(workspace)?);
    }
    Err(shell::become_program(&mut lab))
}

/// Builds perfrun-lab. It has the dependencies of xtask, so the build is short.
pub(crate) fn build(workspace: &Workspace) -> Result<PathBuf> {
    shell::succeed(&mut workspace.cargo(["build", "--quiet", "--package", "perfrun-lab"]))?;
    Ok(workspace.program(Profile::Dev, "perfrun-lab"))
}
