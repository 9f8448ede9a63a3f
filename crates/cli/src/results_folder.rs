//! The results folder of a run.
//!
//! ```text
//! NAME-TIMESTAMP/
//!   results.json   all results; replaced as a whole when the run ends. Read as results.json.gz, too
//!   report.md      the tables
//!   report.html    the tables and plots, for a browser
//!   samples.csv    every interval of every trial
//!   profiles/      flame graphs and stacks, of a run with --profile
//!   trials/        one file for each attempt that has ended, while the run is in progress
//!   logs/          the logs of nodes that logged anything
//! ```
//!
//! Every file appears complete or not at all, and is on the disk before it counts. So a kill or a power cut
//! at any time leaves nothing half-written, and the run can be read and resumed with everything that it has
//! measured. If a disk loses a file of a trial nevertheless, that trial counts as not measured.
//!
//! A folder may come from elsewhere. Names in it are checked when it is read, and only the folder of the same
//! user is resumed: resuming runs the programs that the folder names, and writes to the folder. What is read
//! of others is within a bound of memory, and from regular files only.

pub(crate) mod atomic;
mod lock;
pub(crate) mod opening;
mod reading;
mod writing;

use std::{io, path::PathBuf};

use perfrun_api::results::{InvalidName, Results, SCHEMA_VERSION};
use perfrun_contract::{compare::Judged, quantity::ByteSize};
use serde_json::error::Category;
use thiserror::Error;

pub use self::{
    reading::{isolation, read, read_profiles, read_within, runs_in},
    writing::{ResultsFolder, check_writable},
};

/// The reason in results of a run that is in progress, or was killed.
const UNFINISHED: &str = "perfrun exited before the run ended";

/// The page of a run that has ended.
pub(crate) const PAGE: &str = "report.html";
const RESULTS: &str = "results.json";
/// [`RESULTS`], which a user who keeps results for long has compressed with gzip.
const COMPRESSED: &str = "results.json.gz";
const TRIALS: &str = "trials";
const LOGS: &str = "logs";

/// What can go wrong with a results folder.
#[derive(Debug, Error)]
pub enum Error {
    #[error(
        "unable to keep results in {}: make it writable, or choose another folder with --results",
        .folder.display()
    )]
    Create { folder: PathBuf, source: io::Error },
    #[error(
        "unable to keep results in {}: they may need {bytes}B; make room, or choose another folder with --results",
        .folder.display()
    )]
    Reserve {
        folder: PathBuf,
        /// What the run may need.
        bytes: ByteSize,
        source: io::Error,
    },
    #[error("unable to resume {}: make it writable", .folder.display())]
    Resume { folder: PathBuf, source: io::Error },
    /// Resuming it would execute what another user has written.
    #[error(
        "unable to resume {}: it belongs to another user, and resuming runs the programs that it names; if you trust \
         them, copy the folder and resume the copy",
        .folder.display()
    )]
    Foreign { folder: PathBuf },
    /// The results are of a newer version: they may have something that this version does not know and would
    /// lose.
    #[error(
        "unable to resume {}: a newer version of perfrun ended this run: resume it with that version",
        .folder.display()
    )]
    Newer { folder: PathBuf },
    /// Two runs in one folder would overwrite each other's trials.
    #[error("unable to resume {}: another perfrun process is using it", .folder.display())]
    Lock { folder: PathBuf },
    #[error("failed to write {}", .file.display())]
    Write { file: PathBuf, source: io::Error },
    /// `gzip` has compressed what resuming writes to.
    #[error("unable to resume {}: its results are compressed: run `gunzip {}` first", .folder.display(), .folder.join(COMPRESSED).display())]
    Compressed { folder: PathBuf },
    #[error(
        "unable to read {}: it has no results.json: name the results folder of a run, such as results/NAME-TIMESTAMP",
        .folder.display()
    )]
    Empty { folder: PathBuf },
    #[error(
        "unable to read {}: neither it nor a folder in it has a results.json: name the results folder of a run, or the \
         folder with those of several, such as results",
        .folder.display()
    )]
    NoRuns { folder: PathBuf },
    /// One run is wanted.
    #[error("{} holds the results of several runs: name one, such as {}", .folder.display(), .newest.display())]
    Several { folder: PathBuf, newest: PathBuf },
    #[error("unable to read {}: {}", .file.display(), advice_for_unreadable(.source))]
    Read { file: PathBuf, source: io::Error },
    #[error(
        "unable to read {} as results of schema version {SCHEMA_VERSION}: {}",
        .file.display(),
        advice_for_other_content(.source)
    )]
    Parse {
        file: PathBuf,
        source: serde_json::Error,
    },
    /// A small file may become very large in memory.
    #[error(
        "unable to read {}: these results would take more than 256 MiB of memory: add --large if you trust who made them",
        .file.display()
    )]
    TooLarge { file: PathBuf },
    /// Runs that are compared are in memory at the same time.
    #[error(
        "unable to read {}: all results of this comparison would take more than 256 MiB of memory: compare fewer runs, \
         or add --large if you trust who made them",
        .file.display()
    )]
    AllTooLarge { file: PathBuf },
    /// Names are parts of paths.
    #[error("unable to use {}", .file.display())]
    Names { file: PathBuf, source: InvalidName },
    /// Another version of perfrun wrote the file.
    #[error(
        "{} has results of schema version {version}, and this perfrun reads {SCHEMA_VERSION}: use the perfrun that \
         wrote it",
        .file.display()
    )]
    Version { file: PathBuf, version: u32 },
}

/// What to do about a file that cannot be read.
fn advice_for_unreadable(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::IsADirectory | io::ErrorKind::NotADirectory => {
            "name the results folder of a run, or its results.json"
        }
        io::ErrorKind::PermissionDenied => "let this user read it, or run perfrun as its owner",
        io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof => {
            "the file is damaged: restore it from a copy"
        }
        io::ErrorKind::Unsupported => "copy its content to a file, and name that",
        _ => "try again, or read a copy",
    }
}

/// What to do about a file that has something else than results.
fn advice_for_other_content(error: &serde_json::Error) -> &'static str {
    match error.classify() {
        Category::Syntax | Category::Eof => {
            "it is not JSON: name another file, or restore a damaged one from a copy"
        }
        Category::Data | Category::Io => "something else wrote it, or another version of perfrun",
    }
}

fn judged(results: &Results) -> Option<Judged> {
    perfrun_judge::judged(&results.plan, &results.trials, &results.environment.nodes)
}
