//! Parts of benchmarks that are processes of their own.

use std::{
    env,
    process::{Command, Stdio},
};

use anyhow::{Context, Result, ensure};

/// The environment variable that names the part of a benchmark for which this program was started again: the
/// module, and what it must do.
pub(crate) const PART: &str = "PERFRUN_BENCH_PART";

/// Starts this program again for a part of a benchmark, and reads the numbers that it prints.
pub(crate) fn in_own_process(part: &str) -> Result<Vec<f64>> {
    let output = Command::new(env::current_exe()?)
        .env(PART, part)
        .stderr(Stdio::inherit())
        .output()?;
    let printed = String::from_utf8(output.stdout)?;
    ensure!(
        output.status.success(),
        "the process ended with {}",
        output.status
    );
    let numbers = printed.split_whitespace().map(str::parse).collect();
    let numbers: Result<Vec<f64>, _> = numbers;
    numbers.with_context(|| format!("the process printed {printed:?}"))
}
