//! Documents of a file, or of standard input.

use std::{
    fs,
    io::{self, Read},
    path::Path,
};

use anyhow::{Context, ensure};
use perfrun_api::{
    document::{self, Document},
    planning::plan,
    spec::PerfRun,
};
use perfrun_contract::plan::Plan;

use crate::args;

/// Reads runs, changes them as the options say, and checks what they have become.
pub(crate) fn read(file: &Path, options: &args::Versus) -> anyhow::Result<Vec<PerfRun>> {
    document::parse_versus(&text(file)?, &options.of_document()).with_context(|| label(file))
}

/// Reads and checks runs and schedules.
pub(crate) fn read_any(file: &Path) -> anyhow::Result<Vec<Document>> {
    document::parse_any(&text(file)?).with_context(|| label(file))
}

/// The text of a file, or of standard input for `-`.
fn text(file: &Path) -> anyhow::Result<String> {
    if file == Path::new("-") {
        let mut text = String::new();
        io::stdin()
            .read_to_string(&mut text)
            .context("failed to read standard input")?;
        Ok(text)
    } else {
        fs::read_to_string(file).with_context(|| format!("failed to read {}", file.display()))
    }
}

/// The name of a file in messages.
pub(crate) fn label(file: &Path) -> String {
    if file == Path::new("-") {
        "standard input".to_owned()
    } else {
        file.display().to_string()
    }
}

/// The plan of a document, if it can be run now.
pub(crate) fn runnable(run: &PerfRun) -> anyhow::Result<Plan> {
    let name = run.metadata.name.as_deref().unwrap_or_default();
    ensure!(
        !run.spec.suspend,
        "perfrun/{name} is suspended: set spec.suspend to false to run it"
    );
    ensure!(
        !run.spec.cancel,
        "perfrun/{name} is cancelled: set spec.cancel to false to run it"
    );
    plan(&run.spec).with_context(|| format!("perfrun/{name}"))
}
