//! What unit tests share.

use std::{env, fs, io::Write, thread};

/// The file that names the tests which could not run.
pub const SKIP_LOG: &str = "PERFRUN_SKIP_LOG";

/// Says, aloud and in the log of skips, that a test, or a part of it, could not run here.
pub fn skip(part: &str, reason: &str) {
    let test = thread::current().name().unwrap_or("unknown test").to_owned();
    println!("{test} ({part}): skipped: {reason}");
    if let Some(path) = env::var_os(SKIP_LOG) {
        let mut log = fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(path)
            .unwrap();
        log.write_all(format!("{test} ({part}): {reason}\n").as_bytes())
            .unwrap();
    }
}
