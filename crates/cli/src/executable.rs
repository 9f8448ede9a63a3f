//! Files that can be executed.

use std::{
    env, io,
    path::{Path, PathBuf},
};

use anyhow::Context;
use rustix::fs::Access;

use crate::args::NodeArg;

/// The executable file at a path, without links.
pub(crate) fn at(path: &Path) -> io::Result<PathBuf> {
    let path = path.canonicalize()?;
    if path.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    rustix::fs::access(&path, Access::EXEC_OK)?;
    Ok(path)
}

/// The node program of an option.
pub(crate) fn node(program: &NodeArg) -> anyhow::Result<PathBuf> {
    at(&program.path).with_context(|| {
        format!(
            "unable to run {} as a node (`cargo build --release -p perfrun-node` builds one)",
            program.written()
        )
    })
}

/// An executable file, searched for in the PATH if its name has no slash, as a shell would.
pub(crate) fn in_path(program: &str) -> io::Result<PathBuf> {
    if program.contains('/') {
        return at(Path::new(program));
    }
    let folders = env::var_os("PATH").unwrap_or_default();
    let mut found = env::split_paths(&folders).filter_map(|folder| at(&folder.join(program)).ok());
    found
        .next()
        .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "it is not in the PATH"))
}
