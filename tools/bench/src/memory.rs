//! The memory of processes, as the kernel counts it.

use std::{fmt::Display, fs};

use anyhow::{Context, Result};

/// A line of /proc/PID/status, in MiB.
pub(crate) fn mebibytes(process: impl Display, field: &str) -> Result<f64> {
    let status = fs::read_to_string(format!("/proc/{process}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix(field));
    let line = line.with_context(|| format!("the kernel does not report {field}"))?;
    let kib: f64 = line.trim().trim_end_matches(" kB").parse()?;
    Ok(kib / 1024.0)
}
