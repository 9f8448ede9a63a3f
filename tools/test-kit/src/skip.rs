//! How a test says that it, or a part of it, cannot run here.
#![expect(
    clippy::print_stderr,
    reason = "a test says why it is skipped where its output is read"
)]

use std::{env, fs, io::Write, thread};

/// The variable that names the log of skips; `cargo xtask test` sets it, and lists what is in there.
pub const LOG: &str = "PERFRUN_SKIP_LOG";

/// Says why the test of this thread, or a part of it, is skipped: on standard error and, as a line, in the log of skips.
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
