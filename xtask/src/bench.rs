//! `cargo xtask bench`: perfrun measured against iperf3, plain quinn and itself.

use std::{ffi::OsString, process::ExitCode};

use anyhow::Result;

use crate::{
    install,
    shell::{self, Profile, Workspace},
};

pub fn run(workspace: &Workspace, args: &[OsString]) -> Result<ExitCode> {
    install::packages(workspace, install::BENCH)?;
    // Together: perfrun-bench starts the other two, and they must be of the same source.
    workspace.build(Profile::Release, &["perfrun", "perfrun-node", "perfrun-bench"])?;

    let mut bench = workspace.command(workspace.program(Profile::Release, "perfrun-bench"));
    Err(shell::become_program(bench.args(args)))
}
