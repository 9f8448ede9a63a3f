//! Records on standard output: one JSON object per line. Logs go to standard error.

use std::io::{Write, stdout};

use serde::Serialize;

/// Writes a record. A reader that is gone loses it; the measurement goes on.
pub fn write(record: &impl Serialize) {
    if let Ok(json) = serde_json::to_string(record) {
        write_line(&json);
    }
}

/// Writes a record that is JSON already.
pub fn write_line(json: &str) {
    let _ = writeln!(stdout().lock(), "{json}");
}
