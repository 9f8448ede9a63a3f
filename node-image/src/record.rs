//! Records on standard output: one JSON object per line. Logs go to standard error.

use std::io::{Write, stdout};

use serde::Serialize;

/// Writes a record. A reader that is gone loses it; the measurement goes on.
pub fn write(record: &impl Serialize) {
    if let Ok(json) = serde_json::to_string(record) {
        let _ = writeln!(stdout().lock(), "{json}");
    }
}
