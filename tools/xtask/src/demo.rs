//! `cargo xtask demo`: from a fresh clone to a table of results.

use std::{os::unix::process::CommandExt, process::ExitCode};

use anyhow::Result;

use crate::{
    install,
    shell::{self, Profile, Workspace},
};

const DOCUMENT: &str = "examples/quickstart.yaml";

/// Options of cargo that select what the demo builds: perfrun and its node, without what takes minutes to
/// build and what the document does not need.
pub(crate) const SELECTION: &[&str] = &[
    "-p",
    "perfrun-cli",
    "-p",
    "perfrun-node",
    "--no-default-features",
    "--config",
    "tools/xtask/demo.toml",
];

pub(crate) fn run(workspace: &Workspace) -> Result<ExitCode> {
    install::packages(workspace, install::DEMO)?;
    println!(
        "==> building perfrun and perfrun-node in release, without what {DOCUMENT} does not need; the first time \
         takes some eight minutes on two cores"
    );
    workspace.build_selected(Profile::Release, &["perfrun", "perfrun-node"], SELECTION)?;
    let program = workspace.program(Profile::Release, "perfrun");
    // As people type it in this folder: perfrun ends with a command to type, and is not in their PATH.
    let typed = program.strip_prefix(&workspace.root).unwrap_or(&program);
    println!("\n==> {} run {DOCUMENT}", typed.display());
    let mut perfrun = workspace.command(&program);
    Err(shell::become_program(perfrun.arg0(typed).args(["run", DOCUMENT])))
}
