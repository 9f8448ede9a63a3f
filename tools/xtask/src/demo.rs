//! `cargo xtask demo`: from a fresh clone to a table of results.

use std::process::ExitCode;

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
         takes some minutes"
    );
    workspace.build_selected(Profile::Release, &["perfrun", "perfrun-node"], SELECTION)?;
    let mut perfrun = workspace.command(workspace.program(Profile::Release, "perfrun"));
    println!("\n==> perfrun run {DOCUMENT}");
    Err(shell::become_program(perfrun.args(["run", DOCUMENT])))
}
