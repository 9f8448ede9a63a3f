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
//! user is resumed: resuming runs the programs that the folder names, and writes to the folder.

pub(crate) mod atomic;
pub(crate) mod compressed;
mod lock;

use std::{
    collections::{BTreeMap, HashSet},
    fs::{self, File},
    io, iter,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use async_trait::async_trait;
use jiff::Timestamp;
use perfrun_api::{
    results::{InvalidName, Results, SCHEMA_VERSION, check_names_of},
    spec::PerfRunSpec,
};
use perfrun_conductor::{Durability, RecordSink, RunEnd};
use perfrun_contract::{
    account::Account,
    compare::Judged,
    node::Info,
    plan::Plan,
    profile::Profile,
    quantity::ByteSize,
    record::TrialRecord,
    run::{Environment, Isolation, NodeProgram, Phase, RunState},
};
use rustix::fs::Access;
use serde_json::error::Category;
use thiserror::Error;

use crate::profile;

/// Roughly the most that the record of a trial needs. Used to check in advance whether the disk has room.
const BYTES_PER_TRIAL: u64 = 96 << 10;

/// Kept free during the run, so that its end can be written to a disk that has become full. That is
/// results.json without records: a few hundred bytes for each trial of the plan, and a little for the rest.
const BYTES_FOR_THE_END: u64 = 64 << 10;
const BYTES_FOR_THE_END_PER_TRIAL: u64 = 1 << 10;

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
    /// Its results may have something that this version does not know and would lose.
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
    /// One run is wanted.
    #[error("{} holds the results of several runs: name one, such as {}", .folder.display(), .newest.display())]
    Several { folder: PathBuf, newest: PathBuf },
    #[error("unable to read {}: {}", .file.display(), unread(.source))]
    Read { file: PathBuf, source: io::Error },
    #[error("unable to read {} as results of schema version {SCHEMA_VERSION}: {}", .file.display(), unlike_results(.source))]
    Parse {
        file: PathBuf,
        source: serde_json::Error,
    },
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
fn unread(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::IsADirectory | io::ErrorKind::NotADirectory => {
            "name the results folder of a run, or its results.json"
        }
        io::ErrorKind::PermissionDenied => "let this user read it, or run perfrun as its owner",
        io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof => {
            "the file is damaged: restore it from a copy"
        }
        _ => "try again, or read a copy",
    }
}

/// What to do about a file that has something else than results.
fn unlike_results(error: &serde_json::Error) -> &'static str {
    match error.classify() {
        Category::Syntax | Category::Eof => {
            "it is not JSON: name another file, or restore a damaged one from a copy"
        }
        Category::Data | Category::Io => "something else wrote it, or another version of perfrun",
    }
}

/// The results folder of one run. While this value exists, no other perfrun process can resume the run.
pub struct ResultsFolder {
    folder: PathBuf,
    results: Results,
    /// The profiles in the folder.
    profiles: Vec<Profile>,
    /// Measuring time of earlier sessions, in seconds. The records of this session continue from there.
    earlier: f64,
    /// Disk space for the end of the run.
    ballast: Option<File>,
    _lock: File,
}

impl ResultsFolder {
    /// Creates a folder in `parent`, and checks that the results will fit. Leaves nothing behind on an error.
    pub fn create(
        parent: &Path,
        name: &str,
        spec: PerfRunSpec,
        plan: Plan,
        isolation: Isolation,
        programs: Vec<NodeProgram>,
    ) -> Result<Self, Error> {
        let started = Timestamp::now();
        let folder = parent.join(folder_name(name, started));
        let results = Results {
            schema_version: SCHEMA_VERSION,
            name: name.to_owned(),
            started,
            ended: started,
            state: RunState::Interrupted,
            reason: Some(UNFINISHED.to_owned()),
            conclusion: None,
            spec,
            plan,
            environment: Environment {
                perfrun: env!("CARGO_PKG_VERSION").to_owned(),
                isolation,
                nodes: BTreeMap::new(),
                programs,
            },
            trials: vec![],
            summary: vec![],
            judged: None,
        };
        let refused = |source| Error::Create {
            folder: parent.to_owned(),
            source,
        };
        let new_folders = missing(parent);
        let created = fs::create_dir_all(parent)
            .and_then(|()| fs::create_dir(&folder))
            .map_err(refused)
            .and_then(|()| {
                let lock = lock(&folder, refused)?;
                create_folders(&folder).map_err(refused)?;
                let mut results_folder = Self {
                    folder: folder.clone(),
                    results,
                    profiles: vec![],
                    earlier: 0.0,
                    ballast: None,
                    _lock: lock,
                };
                results_folder.reserve()?;
                results_folder.write_results(&results_folder.results)?;
                iter::once(&folder)
                    .chain(&new_folders)
                    .try_for_each(|created| atomic::sync_folder_of(created))
                    .map_err(refused)?;
                Ok(results_folder)
            });
        // The folder is this run's own: those of others have another time in their name.
        if created.is_err() {
            let _ = fs::remove_dir_all(&folder);
            new_folders.iter().for_each(|folder| drop(fs::remove_dir(folder)));
        }
        created
    }

    /// Saves the results of a run on a cluster, in a folder named like that of a local run. Saving them again
    /// replaces them.
    pub fn keep(parent: &Path, results: Results) -> Result<Self, Error> {
        let folder = parent.join(folder_name(&results.name, results.started));
        let refused = |source| Error::Create {
            folder: parent.to_owned(),
            source,
        };
        fs::create_dir_all(&folder).map_err(refused)?;
        let results_folder = Self {
            _lock: lock(&folder, refused)?,
            folder,
            results,
            profiles: vec![],
            earlier: 0.0,
            ballast: None,
        };
        results_folder.write_results(&results_folder.results)?;
        results_folder.write_reports()?;
        Ok(results_folder)
    }

    /// Opens the folder of a run that ended before all of its trials were completed. Changes nothing in it
    /// until [`begin`](Self::begin).
    pub fn resume(folder: &Path) -> Result<Self, Error> {
        let results = read(folder)?;
        let folder = if folder.is_dir() {
            folder.to_owned()
        } else {
            folder.parent().unwrap_or(Path::new(".")).to_owned()
        };
        match results_in(&folder).map(|file| file.ends_with(RESULTS)) {
            Some(true) => {}
            Some(false) => return Err(Error::Compressed { folder }),
            None => return Err(empty(&folder)),
        }
        let refused = |source| Error::Resume {
            folder: folder.clone(),
            source,
        };
        for own in [folder.clone(), folder.join(RESULTS)] {
            let owner = fs::metadata(own).map_err(refused)?.uid();
            if owner != rustix::process::geteuid().as_raw() {
                return Err(Error::Foreign { folder });
            }
        }
        if matches!(results.conclusion().phase, Phase::Newer(_)) {
            return Err(Error::Newer { folder });
        }
        let lock = lock(&folder, refused)?;
        create_folders(&folder).map_err(refused)?;
        Ok(Self {
            earlier: results.trials.iter().map(end).fold(0.0, f64::max),
            profiles: profile::read(&folder, &results.plan),
            folder,
            results,
            ballast: None,
            _lock: lock,
        })
    }

    /// Begins another session with these programs. Failed trials will be run again: their records are
    /// removed.
    pub fn begin(&mut self, programs: Vec<NodeProgram>) -> Result<(), Error> {
        if !self.is_done() {
            self.reserve()?;
            let tally = self.results.tally();
            let (kept, dropped): (Vec<_>, Vec<_>) = std::mem::take(&mut self.results.trials)
                .into_iter()
                .partition(|record| tally.has_completed(&record.trial.id));
            self.results.trials = kept;
            // The files first: they would bring the records back if perfrun were killed now.
            for record in &dropped {
                let _ = fs::remove_file(self.trial_file(record));
            }
            self.results.state = RunState::Interrupted;
            self.results.reason = Some(UNFINISHED.to_owned());
            self.results.conclusion = None;
        }
        self.results.environment.programs = programs;
        self.write_results(&self.results)
    }

    /// Whether every trial of the plan is complete.
    pub fn is_done(&self) -> bool {
        self.results.state == RunState::Complete && self.results.conclusion().phase == Phase::Succeeded
    }

    fn reserve(&mut self) -> Result<(), Error> {
        let trials = self.results.plan.trials.len() as u64;
        let bytes = trials * BYTES_PER_TRIAL;
        let ballast = BYTES_FOR_THE_END + trials * BYTES_FOR_THE_END_PER_TRIAL;
        let reserve = |bytes| {
            atomic::reserve(&self.folder, bytes).map_err(|source| Error::Reserve {
                folder: self.folder.parent().unwrap_or(&self.folder).to_owned(),
                bytes: ByteSize(bytes.next_multiple_of(1 << 20)),
                source,
            })
        };
        drop(reserve(bytes.max(ballast))?);
        self.ballast = reserve(ballast)?;
        Ok(())
    }

    /// The path of the folder.
    pub fn path(&self) -> &Path {
        &self.folder
    }

    /// The results in the folder.
    pub fn results(&self) -> &Results {
        &self.results
    }

    /// The results as a report needs them, with the profiles.
    pub fn account(&self) -> Account<'_> {
        Account {
            profiles: &self.profiles,
            ..self.results.account()
        }
    }

    /// The folder for the logs of nodes.
    pub fn logs_folder(&self) -> PathBuf {
        self.folder.join(LOGS)
    }

    fn trial_file(&self, record: &TrialRecord) -> PathBuf {
        let name = format!("{}.a{}.json", record.trial.id, record.attempt);
        self.folder.join(TRIALS).join(name)
    }

    /// Writes the final results. After an error the measurements are still there, in the files of the trials.
    pub fn finish(&mut self, end: RunEnd) -> Result<(), Error> {
        let RunEnd {
            state,
            cause,
            reason,
            nodes,
        } = end;
        let results = &mut self.results;
        // Those that were accepted are there. One that was refused does not take the place of an earlier one.
        for (name, node) in nodes {
            results.environment.nodes.entry(name).or_insert(node);
        }
        results.judged = judged(results);
        results.conclusion = Some(results.tally().conclusion(state, cause, reason.as_deref()));
        (results.state, results.reason, results.ended) = (state, reason, Timestamp::now());
        results.summary = perfrun_report::summarize(&results.plan, &results.trials);
        self.ballast = None;
        if let Err(error) = self.write_results(&self.results) {
            let brief = Results {
                trials: vec![],
                summary: vec![],
                ..self.results.clone()
            };
            // If even this does not fit, results.json stays as it was, which is not wrong either.
            let _ = self.write_results(&brief);
            return Err(error);
        }
        // results.json contains these records now.
        let _ = fs::remove_dir_all(self.folder.join(TRIALS));
        remove_empty(&self.logs_folder());
        self.profiles = profile::read(&self.folder, &self.results.plan);
        self.write_reports()
    }

    /// Writes the reports for people, and the samples.
    fn write_reports(&self) -> Result<(), Error> {
        let account = self.account();
        self.write("report.md", perfrun_report::markdown(&account).as_bytes())?;
        self.write(PAGE, perfrun_report::html(&account).as_bytes())?;
        self.write("samples.csv", perfrun_report::samples_csv(&account).as_bytes())
    }

    fn write_results(&self, results: &Results) -> Result<(), Error> {
        let json = serde_json::to_vec_pretty(results).expect("results are JSON");
        self.write(RESULTS, &json)
    }

    fn write(&self, name: &str, bytes: &[u8]) -> Result<(), Error> {
        let file = self.folder.join(name);
        atomic::write(&file, bytes).map_err(|source| Error::Write { file, source })
    }
}

#[async_trait]
impl RecordSink for ResultsFolder {
    async fn record(&mut self, record: &TrialRecord) -> io::Result<Durability> {
        let mut record = record.clone();
        record.at_seconds += self.earlier;
        let json = serde_json::to_vec(&record)?;
        let written = atomic::write(&self.trial_file(&record), &json);
        // A record that could not be written now may fit when the run ends.
        self.results.trials.push(record);
        written.map(|()| Durability::CrashSafe)
    }

    fn records(&self) -> &[TrialRecord] {
        &self.results.trials
    }

    fn nodes(&mut self, nodes: BTreeMap<String, Info>) -> io::Result<()> {
        let known = &mut self.results.environment.nodes;
        let changed = |(name, node): &(&String, &Info)| {
            let digests = known.get(*name).and_then(|known| known.program_sha256.as_ref());
            digests
                .zip(node.program_sha256.as_ref())
                .is_some_and(|(a, b)| a != b)
        };
        let other = nodes.iter().find(changed).map(|(name, _)| name);
        if let Some(name) = other.filter(|_| !self.results.trials.is_empty()) {
            return Err(io::Error::other(format!(
                "{name} runs another program than in earlier trials: leave node programs as they are while a run is in \
                 progress"
            )));
        }
        let is_known = other.is_none() && nodes.keys().all(|name| known.contains_key(name));
        known.extend(nodes);
        if !is_known {
            // So that results have it if perfrun is killed. A full disk fails the next record, with its own
            // reason.
            let _ = self.write_results(&self.results);
        }
        Ok(())
    }
}

/// The reason in results of a run that is in progress, or was killed.
const UNFINISHED: &str = "perfrun exited before the run ended";

/// The page of a run that has ended.
pub(crate) const PAGE: &str = "report.html";
const RESULTS: &str = "results.json";
/// [`RESULTS`], which a user who keeps results for long has compressed with gzip.
const COMPRESSED: &str = "results.json.gz";
const TRIALS: &str = "trials";
const LOGS: &str = "logs";

fn folder_name(name: &str, started: Timestamp) -> String {
    format!("{name}-{}", started.strftime("%Y%m%dT%H%M%S%.3fZ"))
}

/// Checks that a folder, which need not exist yet, can be written.
pub fn check_writable(folder: &Path) -> Result<(), Error> {
    let existing = folder
        .ancestors()
        .find(|folder| folder.exists())
        .unwrap_or(Path::new("."));
    let checked = if existing.is_dir() {
        rustix::fs::access(existing, Access::WRITE_OK | Access::EXEC_OK).map_err(io::Error::from)
    } else {
        Err(io::ErrorKind::NotADirectory.into())
    };
    checked.map_err(|source| Error::Create {
        folder: folder.to_owned(),
        source,
    })
}

/// What separated the nodes of a run, from its folder or its results.json.
pub fn isolation(path: &Path) -> Result<Isolation, Error> {
    Ok(read_head(path)?.1.environment.isolation)
}

/// The file with the results in a folder.
fn results_in(folder: &Path) -> Option<PathBuf> {
    let mut files = [RESULTS, COMPRESSED].map(|name| folder.join(name)).into_iter();
    files.find(|file| file.is_file())
}

/// The results.json of a run, and where it is. Records of trials may still be in their files.
fn read_head(path: &Path) -> Result<(PathBuf, Results), Error> {
    let file = if path.is_dir() {
        results_in(path).ok_or_else(|| match newest_in(path) {
            Some(newest) => Error::Several {
                folder: path.to_owned(),
                newest,
            },
            None => empty(path),
        })?
    } else {
        path.to_owned()
    };
    let results: Results = read_json(&file)?;
    if results.schema_version != SCHEMA_VERSION {
        return Err(Error::Version {
            file,
            version: results.schema_version,
        });
    }
    match results.check_names() {
        Ok(()) => Ok((file, results)),
        Err(source) => Err(Error::Names { file, source }),
    }
}

fn read_record(file: PathBuf) -> Result<TrialRecord, Error> {
    let record = read_json(&file)?;
    match check_names_of(&record) {
        Ok(()) => Ok(record),
        Err(source) => Err(Error::Names { file, source }),
    }
}

/// Reads the results of a run, finished or not, from its folder or its results.json. Leaves out a file of a
/// trial that cannot be read, with a warning.
pub fn read(path: &Path) -> Result<Results, Error> {
    let (file, mut results) = read_head(path)?;
    let trials = file.with_file_name(TRIALS);
    if let Ok(entries) = fs::read_dir(&trials) {
        let known = results.trials.iter();
        let mut known: HashSet<(String, u32)> = known
            .map(|record| (record.trial.id.clone(), record.attempt))
            .collect();
        for entry in entries
            .flatten()
            .filter(|entry| entry.path().extension().is_some_and(|e| e == "json"))
        {
            let record = match read_record(entry.path()) {
                Ok(record) => record,
                Err(error) => {
                    let error = &error as &dyn std::error::Error;
                    tracing::warn!(
                        error,
                        "left out the file of a trial, which counts as not measured"
                    );
                    continue;
                }
            };
            if known.insert((record.trial.id.clone(), record.attempt)) {
                results.trials.push(record);
            }
        }
        results
            .trials
            .sort_by(|a, b| a.at_seconds.total_cmp(&b.at_seconds));
        results.judged = judged(&results);
    }
    // The file tells of a run that was killed, unless its perfrun still holds the folder.
    if results.reason.as_deref() == Some(UNFINISHED) && lock::is_in_use(atomic::folder_of(&file)) {
        results.reason = None;
        results.conclusion = Some(results.tally().in_progress());
    }
    // Statistics of an earlier version are not what reports of this one say they are.
    results.summary = perfrun_report::summarize(&results.plan, &results.trials);
    Ok(results)
}

fn judged(results: &Results) -> Option<Judged> {
    perfrun_report::judged(&results.plan, &results.trials, &results.environment.nodes)
}

/// The results folder in this folder that was changed last.
fn newest_in(folder: &Path) -> Option<PathBuf> {
    let changed = |run: &PathBuf| fs::metadata(run).and_then(|metadata| metadata.modified()).ok();
    let runs = runs_in(folder).unwrap_or_default();
    runs.into_iter().max_by_key(changed)
}

/// The runs that a path names: that of a results folder or a results.json, or those of the results folders in
/// it.
pub fn runs_in(path: &Path) -> Result<Vec<PathBuf>, Error> {
    let is_run = |folder: &Path| results_in(folder).is_some();
    if !path.is_dir() || is_run(path) {
        return Ok(vec![path.to_owned()]);
    }
    let entries = fs::read_dir(path).map_err(|source| Error::Read {
        file: path.to_owned(),
        source,
    })?;
    let mut runs: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    runs.retain(|run| is_run(run));
    match runs.is_empty() {
        true => Err(empty(path)),
        false => Ok(runs),
    }
}

/// Why a folder shows no results: there are none, or this user may not search it.
fn empty(folder: &Path) -> Error {
    match fs::metadata(folder.join(RESULTS)) {
        Err(source) if source.kind() == io::ErrorKind::PermissionDenied => Error::Read {
            file: folder.to_owned(),
            source,
        },
        _ => Error::Empty {
            folder: folder.to_owned(),
        },
    }
}

/// The profiles of a run, from its folder or its results.json.
pub fn read_profiles(path: &Path, plan: &Plan) -> Vec<Profile> {
    let folder = if path.is_dir() {
        path
    } else {
        path.parent().unwrap_or(path)
    };
    profile::read(folder, plan)
}

fn read_json<T: serde::de::DeserializeOwned>(file: &Path) -> Result<T, Error> {
    let bytes = compressed::read(file).map_err(|source| Error::Read {
        file: file.to_owned(),
        source,
    })?;
    serde_json::from_slice(&bytes).map_err(|source| Error::Parse {
        file: file.to_owned(),
        source,
    })
}

/// The end of a trial, in seconds of measuring time.
fn end(record: &TrialRecord) -> f64 {
    let longest = record
        .nodes
        .values()
        .map(|node| node.measured.seconds)
        .fold(0.0, f64::max);
    record.at_seconds + record.overhead_seconds + longest
}

/// A folder and those above it, as far as they do not exist. Innermost first.
fn missing(folder: &Path) -> Vec<PathBuf> {
    folder
        .ancestors()
        .take_while(|folder| !folder.as_os_str().is_empty() && !folder.exists())
        .map(Path::to_owned)
        .collect()
}

fn create_folders(folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder.join(TRIALS))?;
    fs::create_dir_all(folder.join(LOGS))
}

fn lock(folder: &Path, refused: impl Fn(io::Error) -> Error) -> Result<File, Error> {
    let locked = lock::exclusive(folder).map_err(refused)?;
    locked.ok_or_else(|| Error::Lock {
        folder: folder.to_owned(),
    })
}

/// Removes empty files from a folder, and the folder if it is empty then.
fn remove_empty(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.metadata().is_ok_and(|metadata| metadata.len() == 0) {
            let _ = fs::remove_file(entry.path());
        }
    }
    let _ = fs::remove_dir(folder);
}
