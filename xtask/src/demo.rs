//! `cargo xtask demo`: from a fresh clone to a table.

use std::process::ExitCode;

use anyhow::Result;

use crate::{
    install,
    shell::{self, Profile, Workspace},
};

const DOCUMENT: &str = "examples/quickstart.yaml";

pub fn run(workspace: &Workspace) -> Result<ExitCode> {
    install::packages(workspace, install::BUILD)?;
    println!("==> building perfrun and perfrun-node in release; the first time takes several minutes");
    workspace.build(Profile::Release, &["perfrun", "perfrun-node"])?;

    println!("\n==> perfrun run {DOCUMENT}");
    let mut perfrun = workspace.command(workspace.program(Profile::Release, "perfrun"));
    Err(shell::become_program(perfrun.args(["run", DOCUMENT])))
}
