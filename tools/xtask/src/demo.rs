//! `cargo xtask demo`: from a fresh clone to a table of results.

use std::{path::PathBuf, process::ExitCode};

use anyhow::Result;

use crate::{
    go, install,
    shell::{self, Profile, Workspace},
};

const DOCUMENT: &str = "examples/quickstart.yaml";

/// The demo builds without WebRTC, which takes minutes to build and which its document does not measure.
const OPTIONS: &[&str] = &["--no-default-features"];

pub(crate) fn run(workspace: &Workspace) -> Result<ExitCode> {
    let mut perfrun = workspace.command(build(workspace, OPTIONS)?);
    println!("\n==> perfrun run {DOCUMENT}");
    Err(shell::become_program(perfrun.args(["run", DOCUMENT])))
}

/// Builds perfrun and its nodes in release mode, with further options of `cargo build`. Returns the path of
/// perfrun.
pub(crate) fn build(workspace: &Workspace, options: &[&str]) -> Result<PathBuf> {
    install::packages(workspace, install::BUILD)?;
    println!(
        "==> building perfrun-node and perfrun in release; the first time takes some ten minutes on two cores"
    );
    workspace.build_with(Profile::Release, &["perfrun", "perfrun-node"], options)?;
    match go::obstacle() {
        None => go::build(workspace, Profile::Release)?,
        Some(obstacle) => println!("==> {obstacle}: documents that name go-libp2p cannot run"),
    }
    Ok(workspace.program(Profile::Release, "perfrun"))
}
