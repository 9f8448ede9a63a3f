//! Tests that cannot run here.

use std::{env, fs, io::Write, thread};

const SKIP_LOG: &str = "PERFRUN_SKIP_LOG";

/// Says, aloud and in the log of skips, that the test, or a part of it, could not run.
pub fn skip(part: &str, reason: &str) {
    let test = thread::current().name().unwrap_or("unknown test").to_owned();
    let line = format!("{test} ({part}): {reason}\n");
    eprint!("skipped: {line}");
    let Some(path) = env::var_os(SKIP_LOG) else { return };
    let log = fs::OpenOptions::new().create(true).append(true).open(&path);
    if let Err(error) = log.and_then(|mut log| log.write_all(line.as_bytes())) {
        eprintln!("failed to write to {}: {error}", path.display());
    }
}
