//! Documents of a file, or of standard input.

use std::{
    fs::File,
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

/// Most bytes of the documents of a file.
const TEXT_BYTES: u64 = 16 << 20;

/// Reads runs, changes them as the options say, and checks what they have become.
pub(crate) fn read(file: &Path, options: &args::ComparisonOptions) -> anyhow::Result<Vec<PerfRun>> {
    document::parse_compared(&text(file)?, &options.of_document()).with_context(|| label(file))
}

/// Reads and checks runs and schedules.
pub(crate) fn read_any(file: &Path) -> anyhow::Result<Vec<Document>> {
    document::parse_any(&text(file)?).with_context(|| label(file))
}

/// The text of a file, or of standard input for `-`.
fn text(file: &Path) -> anyhow::Result<String> {
    let failed = || format!("failed to read {}", label(file));
    let input: Box<dyn Read> = if file == Path::new("-") {
        Box::new(io::stdin())
    } else {
        ensure!(!file.is_dir(), "{} is a folder: name a file in it", label(file));
        Box::new(File::open(file).with_context(failed)?)
    };
    // Text would end within a character where it is too long.
    let mut text = vec![];
    let read = input
        .take(TEXT_BYTES + 1)
        .read_to_end(&mut text)
        .with_context(failed)?;
    ensure!(
        read as u64 <= TEXT_BYTES,
        "{} has more than 16 MiB: split it into several files of documents",
        label(file)
    );
    String::from_utf8(text).with_context(failed)
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
