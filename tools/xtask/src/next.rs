//! The next version of perfrun, for the test of an upgrade and its rollback. `#[cfg(next)]` in the source
//! adds what only that version has: a metric, a flag, a phase and a field of the status.
//!
//! Only the operator, the generator, the test target that selects features, and their crates are compiled
//! again, without clippy. The next version uses the nodes of this one, because the operator computes metrics
//! and flags. `next` is a flag of the compiler and not a feature: no build with all features may have it.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::Result;

use crate::{
    chart, compiler, crds,
    files::{copy, empty, files_under},
    image::{self, Image},
    shell::{Profile, Workspace},
    stand_in::{self, StandIn},
};

/// Tag of the operator's image. The test relies on it.
const TAG: &str = "next";

/// The next version.
pub(crate) struct Next {
    /// The archive of the operator's image.
    pub(crate) image: PathBuf,
    /// The folder of the chart, which has the CRDs.
    pub(crate) chart: PathBuf,
}

/// Builds the operator of the next version, with its image and its chart.
pub(crate) fn build(workspace: &Workspace) -> Result<Next> {
    let compiler = stand_in::install(workspace, StandIn::Next)?;
    let next = workspace.apart("next", compiler)?;
    next.build(Profile::Dev, &["perfrun-operator", crds::GENERATOR])?;
    let generated = crds::generate(&next)?;
    let chart = next.scratch()?.join("chart");
    empty(&chart)?;
    // What is generated replaces what is committed.
    for tree in [workspace.root.as_path(), generated.tree()] {
        let from = tree.join(chart::FOLDER);
        for file in files_under(&from)? {
            copy(&from.join(&file), &chart.join(&file))?;
        }
    }
    Ok(Next {
        image: image::build_as(&next, Image::Operator, Profile::Dev, TAG)?,
        chart,
    })
}

/// Compiles the next version. Without a source file, cargo only asks which flags are set, to tell the build
/// scripts of all crates.
pub(crate) fn compile(arguments: &[OsString]) -> Result<ExitCode> {
    let is_source = |argument: &OsString| Path::new(argument).extension().is_some_and(|end| end == "rs");
    let options: &[&str] = if arguments.iter().any(is_source) {
        &["--cfg", "next", "-D", "warnings"]
    } else {
        &[]
    };
    compiler::rustc(arguments, options)
}
