//! `cargo xtask prose`: the language of documents, comments and messages, and spelling.
//!
//! The program `prose` of this workspace takes texts out of source and has Vale judge them. typos reads
//! everything.

use std::{path::PathBuf, process::ExitCode};

use anyhow::Result;

use crate::{
    pinned,
    shell::{self, Profile, Workspace},
    step::{self, Outcome},
    times::Times,
};

/// The command.
pub(crate) fn run(workspace: &Workspace, paths: &[PathBuf]) -> Result<ExitCode> {
    shell::succeed(&mut workspace.cargo(["build", "--workspace", "--bin", "prose"]))?;
    check(workspace, paths)?.into_exit_code()
}

/// Checks these files and folders, named from the root of the repository, or all. The program `prose` must be
/// built.
pub(crate) fn check(workspace: &Workspace, paths: &[PathBuf]) -> Result<Outcome> {
    let vale = pinned::VALE.install(workspace)?;
    let typos = pinned::TYPOS.install(workspace)?;
    let mut prose = workspace.command(workspace.program(Profile::Dev, "prose"));
    prose
        .arg("--vale")
        .arg(vale)
        .arg("--scratch")
        .arg(workspace.scratch()?.join("prose"));
    let times = Times::of_step(workspace)?;
    let prose = times.timed("prose", || {
        step::check(
            prose.args(paths),
            "docs/glossary.md and tools/prose/styles have the rules; repeat with `cargo xtask prose PATH`",
        )
    })?;
    let mut typos = workspace.command(typos);
    typos.args(["--format", "brief", "--force-exclude"]).args(paths);
    let typos = times.timed("typos", || {
        step::check(
            &mut typos,
            "correct the words, or add names of others to _typos.toml",
        )
    })?;
    Ok(prose.and(typos))
}
