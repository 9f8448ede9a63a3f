//! Lines on standard output: JSON objects, or sentences for people. Logs go to standard error.

use std::io::{Write, stdout};

use serde::Serialize;

/// Writes a value as a line of JSON. Without a reader, the line is lost and the measurement continues.
pub(crate) fn write_json(value: &impl Serialize) {
    if let Ok(json) = serde_json::to_string(value) {
        write_line(&json);
    }
}

/// Writes a line.
pub(crate) fn write_line(line: &str) {
    let _ = writeln!(stdout().lock(), "{line}");
}
