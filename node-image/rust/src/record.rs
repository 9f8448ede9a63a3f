//! Records on standard output: one JSON object per line. Logs go to standard error.

use std::io::{Write, stdout};

use serde::Serialize;

/// Writes a record. Without a reader, the record is lost and the measurement continues.
pub(crate) fn write(record: &impl Serialize) {
    if let Ok(json) = serde_json::to_string(record) {
        write_line(&json);
    }
}

/// Writes a record that is already JSON.
pub(crate) fn write_line(json: &str) {
    let _ = writeln!(stdout().lock(), "{json}");
}
