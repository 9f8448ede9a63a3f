//! The folder of committed results, and reading files.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};

/// The folder of committed results. The program runs in the root of the repository.
pub(crate) const FOLDER: &str = "docs/results";
/// The results in it, as `perfrun report` reads them.
pub(crate) const RESULTS: &str = "results.json.gz";
/// The flame graphs and stacks of results with profiles. Reports link them relative to the results.
pub(crate) const PROFILES: &str = "profiles";
/// The document that was measured.
pub(crate) const DOCUMENT: &str = "perfrun.yaml";

/// What a folder has, sorted.
pub(crate) fn entries(folder: &Path) -> Result<Vec<PathBuf>> {
    let list = || {
        let entries = fs::read_dir(folder)?.map(|entry| Ok(entry?.path()));
        entries.collect::<io::Result<Vec<_>>>()
    };
    let mut entries = list().with_context(|| format!("failed to list {}", folder.display()))?;
    entries.sort();
    Ok(entries)
}

/// The name of a file without its extension.
pub(crate) fn name(path: &Path) -> String {
    let name = path.file_stem().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

pub(crate) fn read(file: &Path) -> Result<String> {
    fs::read_to_string(file).with_context(|| format!("failed to read {}", file.display()))
}
