//! `cargo xtask node`: perfrun-node with another version of a stack, for `perfrun run --candidate`.
//!
//! Cargo compiles the changed crate, what depends on it, and our own crates. It takes all other dependencies
//! from earlier builds, and puts the program into a folder of its own: the node beside perfrun stays as it
//! is.

use std::{
    path::{self, Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context, Result};

use crate::{
    demo,
    files::copy,
    install,
    patch::{self, Patch},
    shell::{Profile, WORKSPACE, Workspace},
};

const PROGRAM: &str = "perfrun-node";

/// Options of cargo that select everything. The node reports its build by whether these checks are on.
const UNMARKED: &[&str] = &[
    "--workspace",
    "--config",
    "profile.dev.package.perfrun-node.debug-assertions=false",
];

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Build with another version of a dependency: the folder of a crate, or a Git repository as URL,
    /// URL?branch=NAME, URL?tag=NAME or URL?rev=COMMIT
    #[arg(long, value_name = "CRATE=PATH|GIT", required = true)]
    patch: Vec<Patch>,
    /// File to write the program to
    #[arg(long, value_name = "FILE")]
    output: PathBuf,
    /// Leave out what `cargo xtask demo` leaves out, to compare the program with the node of the demo
    #[arg(long)]
    demo: bool,
    /// Build as tests of the tutorials do
    #[arg(long, hide = true, conflicts_with = "demo")]
    tests: bool,
}

/// The builds whose compiled dependencies a node shares.
#[derive(Clone, Copy)]
pub(crate) enum Like {
    /// `cargo build --release`.
    Release,
    /// `cargo xtask demo`.
    Demo,
    /// `cargo xtask test`, but not marked as a debug build, of which there are no findings.
    Tests,
}

pub(crate) fn run(workspace: &Workspace, args: &Args) -> Result<ExitCode> {
    let like = match (args.demo, args.tests) {
        (true, _) => Like::Demo,
        (_, true) => Like::Tests,
        _ => Like::Release,
    };
    let tools = if args.demo { install::DEMO } else { install::BUILD };
    install::packages(workspace, tools)?;
    let output = path::absolute(&args.output).context("failed to find the current folder")?;
    build(workspace, &args.patch, like, &output)?;
    println!("==> {PROGRAM} is in {}", args.output.display());
    Ok(ExitCode::SUCCESS)
}

/// Builds a node, and copies it to a file.
pub(crate) fn build(workspace: &Workspace, patches: &[Patch], like: Like, output: &Path) -> Result<()> {
    let (profile, selection) = match like {
        Like::Release => (Profile::Release, WORKSPACE),
        Like::Demo => (Profile::Release, demo::SELECTION),
        Like::Tests => (Profile::Dev, UNMARKED),
    };
    let mut cargo = workspace.building(profile, &[PROGRAM], selection);
    let folder = patch::build_apart(workspace, &mut cargo, "node", patches)?;
    copy(&folder.join(profile.folder()).join(PROGRAM), output)
}
