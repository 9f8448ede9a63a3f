//! `cargo xtask demo`: from a fresh clone to a table.

use std::process::ExitCode;

use anyhow::Result;

use crate::{
    install,
    shell::{self, Profile, Workspace},
};

const DOCUMENT: &str = "examples/quickstart.yaml";

/// Without WebRTC: it takes minutes to build, and the document does not measure it.
const OPTIONS: &[&str] = &["--no-default-features"];

pub(crate) fn run(workspace: &Workspace) -> Result<ExitCode> {
    install::packages(workspace, install::BUILD)?;
    println!(
        "==> building perfrun-node and perfrun in release; the first time takes some ten minutes on two cores"
    );
    workspace.build_with(Profile::Release, &["perfrun", "perfrun-node"], OPTIONS)?;

    println!("\n==> perfrun run {DOCUMENT}");
    let mut perfrun = workspace.command(workspace.program(Profile::Release, "perfrun"));
    Err(shell::become_program(perfrun.args(["run", DOCUMENT])))
}
