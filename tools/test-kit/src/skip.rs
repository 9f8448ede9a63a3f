//! Skipping of tests that cannot run on a machine.
#![expect(
    clippy::print_stderr,
    reason = "a skipped test prints the reason to its output"
)]

use std::{env, fs, io::Write, thread};

/// The environment variable that names the log of skipped tests. `cargo xtask test` sets it, and lists the
/// log.
pub const LOG: &str = "PERFRUN_SKIP_LOG";

/// Reports why the test of this thread, or a part of it, is skipped: on standard error, and as a line in the
/// log.
pub fn skip(part: &str, reason: &str) {
    let test = thread::current().name().unwrap_or("unknown test").to_owned();
    let line = format!("{test} ({part}): {reason}\n");
    eprint!("skipped: {line}");
    let Some(path) = env::var_os(LOG) else { return };
    let log = fs::OpenOptions::new().create(true).append(true).open(&path);
    if let Err(error) = log.and_then(|mut log| log.write_all(line.as_bytes())) {
        eprintln!("failed to write to {}: {error}", path.display());
    }
}
