//! `cargo xtask crds`: writes or compares the committed files that are generated from the types.
//!
//! `perfrun-generate` generates files from types, and [`chart`] generates the chart's files from other files.

use std::{path::Path, process::ExitCode};

use anyhow::Result;

use crate::{
    chart,
    generated::{self, Generated},
    shell::{self, Profile, Workspace},
    step::Outcome,
};

pub(crate) const GENERATOR: &str = "perfrun-generate";

pub(crate) fn run(workspace: &Workspace, check: bool) -> Result<ExitCode> {
    workspace.build(Profile::Dev, &[GENERATOR])?;
    if check {
        return generated::checked(self::check(workspace)?);
    }
    generate(workspace)?.write(&workspace.root)?;
    Ok(ExitCode::SUCCESS)
}

/// Compares the committed files. The generator is already built.
pub(crate) fn check(workspace: &Workspace) -> Result<Outcome> {
    generate(workspace)?.check(&workspace.root)
}

/// Generates the files into a scratch folder. The generator is already built.
pub(crate) fn generate(workspace: &Workspace) -> Result<Generated> {
    // These folders hold other files, too. In that of the reference it is the page of `cargo xtask results`.
    let is_mixed = |folder: &Path| {
        ["", chart::FOLDER, "docs/reference"]
            .map(Path::new)
            .contains(&folder)
    };
    let generated = Generated::new(workspace, "crds", is_mixed)?;
    shell::succeed(
        workspace
            .command(workspace.program(Profile::Dev, GENERATOR))
            .arg(generated.tree()),
    )?;
    chart::generate(&workspace.root, generated.tree())?;
    Ok(generated)
}
