//! Runs other programs.

use std::{
    env,
    ffi::OsString,
    path::Path,
    process::{Output, Stdio},
};

use anyhow::{Context, Result, bail};
use perfrun_test_kit::{Need, skip};
use tokio::process::Command;

/// The variable that names perfrun.
const PERFRUN: &str = "PERFRUN_E2E_PERFRUN";

/// The root of the repository.
pub fn repository() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// perfrun. Without it, this part of the test is skipped.
pub fn find_perfrun(part: &str) -> Option<OsString> {
    let perfrun = env::var_os(PERFRUN);
    if perfrun.is_none() {
        skip(
            Need::Cluster,
            part,
            &format!("needs perfrun: {PERFRUN} is not set"),
        );
    }
    perfrun
}

/// All output of a program.
pub fn printed(output: &Output) -> String {
    [&output.stdout, &output.stderr]
        .map(|bytes| String::from_utf8_lossy(bytes))
        .concat()
}

/// Runs a program, and returns its standard output. Fails if the program fails.
pub(crate) async fn output(command: &mut Command) -> Result<String> {
    let output = command
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await
        .with_context(|| format!("failed to start {:?}", command.as_std().get_program()))?;
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    if !output.status.success() {
        bail!(
            "`{}` failed ({}): {}{}",
            line(command),
            output.status,
            text(output.stdout),
            text(output.stderr)
        );
    }
    Ok(text(output.stdout))
}

fn line(command: &Command) -> String {
    let command = command.as_std();
    let words = [command.get_program()].into_iter().chain(command.get_args());
    words
        .map(|word| word.to_string_lossy())
        .collect::<Vec<_>>()
        .join(" ")
}
