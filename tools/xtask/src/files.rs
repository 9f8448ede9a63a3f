//! Files and folders, with errors that name them.

use std::{
    collections::BTreeSet,
    fs, io,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};

/// Creates a folder, without what an earlier command left in it.
pub(crate) fn empty(folder: &Path) -> Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder).with_context(|| format!("failed to empty {}", folder.display()))?;
    }
    create_folder(folder)
}

/// Creates a folder and those above it, unless they exist.
pub(crate) fn create_folder(folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("failed to create {}", folder.display()))
}

/// What a folder has.
pub(crate) fn entries(folder: &Path) -> Result<Vec<PathBuf>> {
    let context = || format!("failed to list {}", folder.display());
    let entries = fs::read_dir(folder).with_context(context)?;
    let paths = entries.map(|entry| entry.map(|entry| entry.path()));
    paths.collect::<io::Result<_>>().with_context(context)
}

/// Every file below `folder`, relative to it.
pub(crate) fn files_under(folder: &Path) -> Result<BTreeSet<PathBuf>> {
    let mut files = BTreeSet::new();
    let mut open = vec![folder.to_owned()];
    while let Some(current) = open.pop() {
        for path in entries(&current)? {
            if path.is_dir() {
                open.push(path);
            } else {
                files.insert(path.strip_prefix(folder).expect("it was found below").to_owned());
            }
        }
    }
    Ok(files)
}

pub(crate) fn read(path: &Path) -> Result<String> {
    let bytes = fs::read(path).with_context(|| format!("failed to read {}", path.display()))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Copies a file into a folder, which is created if it does not exist.
pub(crate) fn copy(from: &Path, to: &Path) -> Result<()> {
    create_folder(to.parent().context("a file is in a folder")?)?;
    fs::copy(from, to).with_context(|| format!("failed to copy {} to {}", from.display(), to.display()))?;
    Ok(())
}
