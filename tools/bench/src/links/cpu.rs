//! The CPU time of a thread of this process.

use std::fs;

use anyhow::{Context, Result};

/// The thread with this name.
pub(super) fn thread(name: &str) -> Result<u32> {
    for entry in fs::read_dir("/proc/self/task")? {
        let entry = entry?;
        // A thread may end in the meantime.
        let comm = fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
        if comm.trim_end() == name {
            let id = entry
                .file_name()
                .into_string()
                .ok()
                .and_then(|id| id.parse().ok());
            return id.context("the kernel numbers threads");
        }
    }
    anyhow::bail!("there is no thread {name}")
}

/// The CPU time of a thread so far.
pub(super) fn seconds(thread: u32) -> Result<f64> {
    let file = format!("/proc/self/task/{thread}/schedstat");
    let text = fs::read_to_string(&file).with_context(|| format!("failed to read {file}"))?;
    let nanoseconds: f64 = text
        .split_whitespace()
        .next()
        .context("the kernel keeps no statistics of threads")?
        .parse()?;
    Ok(nanoseconds / 1e9)
}
