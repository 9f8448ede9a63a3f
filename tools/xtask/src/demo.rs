//! `cargo xtask demo`: from a fresh clone to a table of results.

use std::{path::PathBuf, process::ExitCode};

use anyhow::Result;

use crate::{
    go, install,
    shell::{self, Profile, Workspace},
};

const DOCUMENT: &str = "examples/quickstart.yaml";

/// Options of cargo that select what the demo builds: perfrun and its node, without WebRTC, which takes
/// minutes to build and which the document does not measure.
pub(crate) const SELECTION: &[&str] = &["-p", "perfrun-cli", "-p", "perfrun-node", "--no-default-features"];

pub(crate) fn run(workspace: &Workspace) -> Result<ExitCode> {
    let mut perfrun = workspace.command(build(workspace, SELECTION)?);
    println!("\n==> perfrun run {DOCUMENT}");
    Err(shell::become_program(perfrun.args(["run", DOCUMENT])))
}

/// Builds perfrun and its nodes in release mode, from these packages and with these features. Returns the path
/// of perfrun.
pub(crate) fn build(workspace: &Workspace, selection: &[&str]) -> Result<PathBuf> {
    install::packages(workspace, install::BUILD)?;
    println!(
        "==> building perfrun-node and perfrun in release; the first time takes some ten minutes on two cores"
    );
    workspace.build_selected(Profile::Release, &["perfrun", "perfrun-node"], selection)?;
    match go::obstacle() {
        None => go::build(workspace, Profile::Release)?,
        Some(obstacle) => println!("==> {obstacle}: documents that name go-libp2p cannot run"),
    }
    Ok(workspace.program(Profile::Release, "perfrun"))
}
