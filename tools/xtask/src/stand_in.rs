//! Copies of this program that cargo starts in place of another: as a compiler, or around a test program.
//! They do what their name says.

use std::{
    env,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};

use crate::shell::Workspace;

/// What cargo starts.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum StandIn {
    /// Compiles, lints and documents, for `cargo xtask test`.
    Checking,
    /// Compiles for `cargo xtask fuzz`.
    Fuzzing,
    /// Starts test programs and notes how long each test takes.
    Timing,
}

impl StandIn {
    const ALL: [Self; 3] = [Self::Checking, Self::Fuzzing, Self::Timing];

    /// The name of the copy.
    fn name(self) -> &'static str {
        match self {
            Self::Checking => "checking-rustc",
            Self::Fuzzing => "fuzzing-rustc",
            Self::Timing => "timing-tests",
        }
    }
}

/// Installs a copy. Cargo may replace the original while it builds the workspace.
pub(crate) fn install(workspace: &Workspace, stand_in: StandIn) -> Result<PathBuf> {
    let copy = path(workspace, stand_in)?;
    let partial = copy.with_extension("partial");
    fs::copy(workspace.xtask(), &partial)
        .and_then(|_| fs::rename(&partial, &copy))
        .with_context(|| format!("failed to write {}", copy.display()))?;
    Ok(copy)
}

/// The path of an installed copy.
pub(crate) fn path(workspace: &Workspace, stand_in: StandIn) -> Result<PathBuf> {
    Ok(workspace.scratch()?.join(stand_in.name()))
}

/// What this program was started as, if it is a copy, and the arguments after its name.
pub(crate) fn started_as() -> Option<(StandIn, Vec<OsString>)> {
    let mut all = env::args_os();
    let path = all.next()?;
    let name = Path::new(&path).file_name()?;
    let stand_in = StandIn::ALL
        .into_iter()
        .find(|stand_in| name == stand_in.name())?;
    Some((stand_in, all.collect()))
}
