//! `cargo xtask results`: documents show what committed results say.
//!
//! The program `perfrun-results` of this workspace reads the results. This module builds what it needs, and
//! compares or writes the files that it makes.

use std::{
    path::{self, Path, PathBuf},
    process::{Command, ExitCode},
};

use anyhow::{Result, bail};

use crate::{
    files,
    generated::{self, Generated},
    go, install,
    shell::{self, Profile, Workspace},
    step::Outcome,
};

const PROGRAM: &str = "perfrun-results";

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Write nothing; fail when a document differs from what the committed results say
    #[arg(long, conflicts_with = "run")]
    check: bool,
    /// Build in release mode, measure examples/NAME.yaml, keep the results, and say whether they differ from
    /// those before. `NAME-pods` measures the same document in pods of the cluster of KUBECONFIG, with the
    /// images there. `NAME-profile` measures it with `--profile` and keeps the profiles, too
    #[arg(long, value_name = "NAME", num_args = 1..)]
    run: Vec<String>,
    /// Keep what these runs found, and their trials, in docs/results/comparisons, in place of earlier runs of
    /// these documents
    #[arg(long, value_name = "DIR", num_args = 1.., conflicts_with_all = ["check", "run"])]
    comparisons: Vec<PathBuf>,
}

pub(crate) fn run(workspace: &Workspace, args: &Args) -> Result<ExitCode> {
    workspace.build(Profile::Dev, &[PROGRAM])?;
    if args.check {
        return generated::checked(check(workspace)?);
    }
    if !args.comparisons.is_empty() {
        let mut keep = command(workspace, "comparisons");
        for run in &args.comparisons {
            keep.arg(path::absolute(run)?);
        }
        shell::succeed(&mut keep)?;
    }
    if !args.run.is_empty() {
        let perfrun = build(workspace)?;
        let scratch = workspace.scratch()?.join("results");
        files::empty(&scratch)?;
        let mut measure = command(workspace, "measure");
        shell::succeed(measure.arg(perfrun).arg(scratch).args(&args.run))?;
    }
    generate(workspace)?.write(&workspace.root)?;
    Ok(ExitCode::SUCCESS)
}

/// Builds perfrun and its nodes in release mode, with everything that a release has, because any document may
/// need it. Returns the path of perfrun.
fn build(workspace: &Workspace) -> Result<PathBuf> {
    install::packages(workspace, install::BUILD)?;
    println!(
        "==> building perfrun and its nodes in release; the first time takes some twenty minutes on two cores"
    );
    workspace.build(Profile::Release, &["perfrun", "perfrun-node"])?;
    match go::obstacle() {
        None => go::build(workspace, Profile::Release)?,
        Some(obstacle) => println!("==> {obstacle}: documents that name go-libp2p cannot run"),
    }
    Ok(workspace.program(Profile::Release, "perfrun"))
}

/// `cargo xtask test`'s step. The program is already built.
pub(crate) fn check(workspace: &Workspace) -> Result<Outcome> {
    generate(workspace)?.check(&workspace.root)
}

fn command(workspace: &Workspace, name: &str) -> Command {
    let mut command = workspace.command(workspace.program(Profile::Dev, PROGRAM));
    command.arg(name);
    command
}

fn generate(workspace: &Workspace) -> Result<Generated> {
    // No folder holds generated files only.
    let generated = Generated::new(workspace, "results", |_| true)?;
    let below_docs = files::files_under(&workspace.root.join("docs"))?.into_iter();
    let documents = below_docs
        .map(|file| Path::new("docs").join(file))
        .chain(["README.md".into()])
        .filter(|file| file.extension().is_some_and(|extension| extension == "md"));
    let mut fill = command(workspace, "documents");
    let filled = shell::printed_with_errors(fill.arg(generated.tree()).args(documents))?;
    // `cargo xtask test` repeats it in its summary.
    if !filled.status.success() {
        let problem = String::from_utf8_lossy(&filled.stderr);
        bail!("{PROGRAM}: {}; {}", filled.status, problem.trim());
    }
    Ok(generated)
}
