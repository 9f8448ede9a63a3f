//! Documents of a file, or of standard input, and the files of a folder that may have documents.

use std::{
    ffi::OsStr,
    fs::{self, File},
    io::{self, Read},
    path::{Path, PathBuf},
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

/// How the names of files with documents end, as for `kubectl apply -f FOLDER`.
const ENDINGS: [&str; 3] = ["yaml", "yml", "json"];

/// Reads runs, changes them as the options say, and checks what they have become.
pub(crate) fn read(file: &Path, options: &args::ComparisonOptions) -> anyhow::Result<Vec<PerfRun>> {
    document::parse_compared(&text(file)?, &options.of_document()).with_context(|| label(file))
}

/// Reads and checks runs and schedules.
pub(crate) fn read_any(file: &Path) -> anyhow::Result<Vec<Document>> {
    document::parse_any(&text(file)?).with_context(|| label(file))
}

/// The file that a path names, or the files of a folder that may have documents, in the order of their
/// names. Folders in it are left out, as by `kubectl apply -f FOLDER`.
pub(crate) fn files_of(path: &Path) -> anyhow::Result<Vec<PathBuf>> {
    if path == Path::new("-") || !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let failed = || format!("failed to read {}", label(path));
    let mut files = vec![];
    for entry in fs::read_dir(path).with_context(failed)? {
        let file = entry.with_context(failed)?.path();
        let ending = file.extension().and_then(OsStr::to_str);
        if ending.is_some_and(|ending| ENDINGS.contains(&ending)) && !file.is_dir() {
            files.push(file);
        }
    }
    // A check of nothing must not succeed.
    ensure!(
        !files.is_empty(),
        "{} has no .yaml, .yml or .json file: name a file with documents, or the folder that has it",
        label(path)
    );
    files.sort();
    Ok(files)
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
