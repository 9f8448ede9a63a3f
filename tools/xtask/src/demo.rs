//! `cargo xtask demo`: from a fresh clone to a table of results.

use std::process::ExitCode;

use anyhow::Result;

use crate::{
    go, install,
    shell::{self, Profile, Workspace},
};

const DOCUMENT: &str = "examples/quickstart.yaml";

/// The demo builds without WebRTC, which takes minutes to build and which its document does not measure.
const OPTIONS: &[&str] = &["--no-default-features"];

pub(crate) fn run(workspace: &Workspace) -> Result<ExitCode> {
    install::packages(workspace, install::BUILD)?;
    println!(
        "==> building perfrun-node and perfrun in release; the first time takes some ten minutes on two cores"
    );
    workspace.build_with(Profile::Release, &["perfrun", "perfrun-node"], OPTIONS)?;
    match go::obstacle() {
        None => go::build(workspace, Profile::Release)?,
        Some(obstacle) => println!("==> {obstacle}: documents that name go-libp2p cannot run"),
    }

    println!("\n==> perfrun run {DOCUMENT}");
    let mut perfrun = workspace.command(workspace.program(Profile::Release, "perfrun"));
    Err(shell::become_program(perfrun.args(["run", DOCUMENT])))
}
