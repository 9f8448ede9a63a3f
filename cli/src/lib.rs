//! The parts of the `perfrun` command.

pub mod args;
pub mod local;
pub mod report;
pub mod run;
pub mod show;
pub mod store;
pub mod ui;

use std::{fs, io::Read, path::Path};

use anyhow::Context;
use perfrun_api::{document, spec::PerfRun};

/// Reads and checks the documents of a file, or of standard input for `-`.
pub fn read_documents(file: &Path) -> anyhow::Result<Vec<PerfRun>> {
    let text = if file == Path::new("-") {
        let mut text = String::new();
        std::io::stdin()
            .read_to_string(&mut text)
            .context("failed to read standard input")?;
        text
    } else {
        fs::read_to_string(file).with_context(|| format!("failed to read {}", file.display()))?
    };
    document::parse(&text).with_context(|| file.display().to_string())
}

/// Columns of the terminal on standard output, or a width that fits most places where text is pasted.
pub fn terminal_width() -> usize {
    const ELSEWHERE: usize = 120;
    rustix::termios::tcgetwinsize(std::io::stdout())
        .map_or(ELSEWHERE, |size| usize::from(size.ws_col).max(60))
}
