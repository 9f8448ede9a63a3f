//! The folder of a run's results.
//!
//! ```text
//! NAME-TIMESTAMP/
//!   results.json   complete; replaced as a whole when the run ends
//!   report.md      the tables
//!   report.html    the tables and plots, for a browser
//!   samples.csv    every interval of every trial
//!   trials/        one file for each trial that ended, while the run goes on
//!   logs/          what nodes logged, if anything
//! ```
//!
//! Every file appears complete or not at all, so that a kill at any moment leaves nothing half-written, and everything
//! that was measured can be read and gone on with.

mod atomic;

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

use async_trait::async_trait;
use jiff::Timestamp;
use perfrun_api::{
    results::{Results, SCHEMA_VERSION},
    spec::PerfRunSpec,
};
use perfrun_conductor::{Kept, RunEnd, Sink};
use perfrun_contract::{
    plan::Plan,
    quantity::ByteSize,
    record::TrialRecord,
    run::{Environment, Isolation, NodeProgram, Phase, RunState},
};
use rustix::fs::{Access, FlockOperation};
use thiserror::Error;

/// What a trial's record needs at most, roughly; used to find out in advance whether the disk has room.
const BYTES_PER_TRIAL: u64 = 96 << 10;

/// Kept free during the run, so that how it ended can be written down on a disk that has become full: results.json
/// without trials, which is a few hundred bytes for each trial of the plan and a little for the rest.
const BYTES_FOR_THE_END: u64 = 64 << 10;
const BYTES_FOR_THE_END_PER_TRIAL: u64 = 1 << 10;

/// What can go wrong with a folder of results.
#[derive(Debug, Error)]
pub enum Error {
    /// The folder cannot be made or written.
    #[error("unable to keep results in {}: make it writable, or name another folder with --results", .folder.display())]
    Create {
        /// The folder.
        folder: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// There is no room.
    #[error("unable to keep results in {}: they may need {bytes}B; make room, or name another folder with --results", .folder.display())]
    Reserve {
        /// The folder.
        folder: PathBuf,
        /// What the run may need.
        bytes: ByteSize,
        /// Why.
        source: io::Error,
    },
    /// The folder cannot be gone on with.
    #[error("unable to go on with {}: make it writable", .folder.display())]
    Resume {
        /// The folder.
        folder: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Two runs in one folder would overwrite each other's trials.
    #[error("unable to go on with {}: another perfrun is running it", .folder.display())]
    Lock {
        /// The folder.
        folder: PathBuf,
    },
    /// A file cannot be written.
    #[error("failed to write {}", .file.display())]
    Write {
        /// The file.
        file: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file cannot be read.
    #[error("unable to read {}: name the folder of a run, or its results.json", .file.display())]
    Read {
        /// The file.
        file: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file is not what it should be.
    #[error("unable to read {} as results of schema version {SCHEMA_VERSION}", .file.display())]
    Parse {
        /// The file.
        file: PathBuf,
        /// Why.
        source: serde_json::Error,
    },
    /// Written by another version.
    #[error("{} has results of schema version {found}, and this perfrun reads {SCHEMA_VERSION}: use the perfrun that wrote it", .file.display())]
    Version {
        /// The file.
        file: PathBuf,
        /// What it says.
        found: u32,
    },
}

/// The folder of one run. While this lives, no other perfrun goes on with it.
pub struct Store {
    folder: PathBuf,
    results: Results,
    /// Measuring time of earlier sessions, in seconds: this one's records are counted from there.
    earlier: f64,
    /// Room for the last words.
    ballast: Option<File>,
    _lock: File,
}

impl Store {
    /// Makes a folder in `parent`, and makes sure that the results will fit. On an error nothing is left.
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
            reason: Some("perfrun ended before the run did".to_owned()),
            verdict: None,
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
        };
        let refused = |source| Error::Create {
            folder: parent.to_owned(),
            source,
        };
        let made = missing(parent);
        let created = fs::create_dir_all(parent)
            .and_then(|()| fs::create_dir(&folder))
            .map_err(refused)
            .and_then(|()| {
                let lock = lock(&folder, refused)?;
                create_folders(&folder).map_err(refused)?;
                let mut store = Self {
                    folder: folder.clone(),
                    results,
                    earlier: 0.0,
                    ballast: None,
                    _lock: lock,
                };
                store.reserve()?;
                store.write_results(&store.results)?;
                Ok(store)
            });
        // Another perfrun's folder is named by another moment.
        if created.is_err() {
            let _ = fs::remove_dir_all(&folder);
            made.iter().for_each(|folder| drop(fs::remove_dir(folder)));
        }
        created
    }

    /// Keeps the results of a run on a cluster, in a folder that is named as if it had been run here. Kept again, they
    /// take their own place.
    pub fn keep(parent: &Path, results: Results) -> Result<Self, Error> {
        let folder = parent.join(folder_name(&results.name, results.started));
        let refused = |source| Error::Create {
            folder: parent.to_owned(),
            source,
        };
        fs::create_dir_all(&folder).map_err(refused)?;
        let store = Self {
            _lock: lock(&folder, refused)?,
            folder,
            results,
            earlier: 0.0,
            ballast: None,
        };
        store.write_results(&store.results)?;
        store.write_reports()?;
        Ok(store)
    }

    /// Opens the folder of a run that ended before all of its trials were completed.
    ///
    /// Trials that failed are given another chance: nothing of them is kept.
    pub fn resume(folder: &Path) -> Result<Self, Error> {
        let results = read(folder)?;
        let folder = if folder.is_dir() {
            folder.to_owned()
        } else {
            folder.parent().unwrap_or(Path::new(".")).to_owned()
        };
        let refused = |source| Error::Resume {
            folder: folder.clone(),
            source,
        };
        let lock = lock(&folder, refused)?;
        create_folders(&folder).map_err(refused)?;
        let mut store = Self {
            earlier: results.trials.iter().map(end).fold(0.0, f64::max),
            folder: folder.clone(),
            results,
            ballast: None,
            _lock: lock,
        };
        if store.is_done() {
            return Ok(store);
        }
        store.reserve()?;
        let tally = store.results.tally();
        let Results { trials, .. } = &mut store.results;
        let (kept, dropped): (Vec<_>, Vec<_>) = std::mem::take(trials)
            .into_iter()
            .partition(|record| tally.has_completed(&record.trial.id));
        *trials = kept;
        // First the files, which would bring the records back if perfrun were killed now.
        for record in &dropped {
            let _ = fs::remove_file(store.trial_file(record));
        }
        store.results.state = RunState::Interrupted;
        store.results.reason = Some("perfrun ended before the run did".to_owned());
        store.results.verdict = None;
        store.write_results(&store.results)?;
        Ok(store)
    }

    /// Keeps what nodes are to run, for whoever goes on with this or reads what came of it.
    pub fn keep_programs(&mut self, programs: Vec<NodeProgram>) -> Result<(), Error> {
        self.results.environment.programs = programs;
        self.write_results(&self.results)
    }

    /// Whether every trial of the plan has been completed.
    pub fn is_done(&self) -> bool {
        self.results.state == RunState::Complete && self.results.verdict().phase == Phase::Succeeded
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

    /// Where it is.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// What is in it.
    pub fn results(&self) -> &Results {
        &self.results
    }

    /// Where nodes log to.
    pub fn logs_folder(&self) -> PathBuf {
        self.folder.join(LOGS)
    }

    fn trial_file(&self, record: &TrialRecord) -> PathBuf {
        let name = format!("{}.a{}.json", record.trial.id, record.attempt);
        self.folder.join(TRIALS).join(name)
    }

    /// Writes everything down for good. After an error what was measured is still there, in the files of its trials.
    pub fn finish(&mut self, end: RunEnd) -> Result<(), Error> {
        let RunEnd {
            state,
            cause,
            reason,
            nodes,
        } = end;
        let results = &mut self.results;
        results.verdict = Some(results.tally().verdict(state, cause, reason.as_deref()));
        (results.state, results.reason, results.ended) = (state, reason, Timestamp::now());
        results.environment.nodes.extend(nodes);
        results.summary = perfrun_report::summarize(&results.plan, &results.trials);
        self.ballast = None;
        if let Err(error) = self.write_results(&self.results) {
            let brief = Results {
                trials: vec![],
                summary: vec![],
                ..self.results.clone()
            };
            // The disk is as full as that: then results.json stays as it was, which is not wrong either.
            let _ = self.write_results(&brief);
            return Err(error);
        }
        // results.json has what these files had; leaving them would only be untidy.
        let _ = fs::remove_dir_all(self.folder.join(TRIALS));
        remove_empty(&self.logs_folder());
        self.write_reports()
    }

    /// Writes what is made of the results for people.
    fn write_reports(&self) -> Result<(), Error> {
        let account = self.results.account();
        self.write("report.md", perfrun_report::markdown(&account).as_bytes())?;
        self.write("report.html", perfrun_report::html(&account).as_bytes())?;
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
impl Sink for Store {
    async fn record(&mut self, record: &TrialRecord) -> io::Result<Kept> {
        let mut record = record.clone();
        record.at_seconds += self.earlier;
        let json = serde_json::to_vec(&record)?;
        let written = atomic::write(&self.trial_file(&record), &json);
        // What could not be kept for sure is still worth a try at the end.
        self.results.trials.push(record);
        written.map(|()| Kept::Safely)
    }
}

const RESULTS: &str = "results.json";
const TRIALS: &str = "trials";
const LOGS: &str = "logs";

fn folder_name(name: &str, started: Timestamp) -> String {
    format!("{name}-{}", started.strftime("%Y%m%dT%H%M%S%.3fZ"))
}

/// Makes sure that folders can be made in a folder, which need not exist yet.
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

/// Reads the results of a run, finished or not, from its folder or its results.json.
pub fn read(path: &Path) -> Result<Results, Error> {
    let file = if path.is_dir() {
        path.join(RESULTS)
    } else {
        path.to_owned()
    };
    let mut results: Results = read_json(&file)?;
    if results.schema_version != SCHEMA_VERSION {
        return Err(Error::Version {
            file,
            found: results.schema_version,
        });
    }
    let trials = file.with_file_name(TRIALS);
    if let Ok(entries) = fs::read_dir(&trials) {
        for entry in entries
            .flatten()
            .filter(|entry| entry.path().extension().is_some_and(|e| e == "json"))
        {
            let record: TrialRecord = read_json(&entry.path())?;
            let known =
                |other: &TrialRecord| other.trial.id == record.trial.id && other.attempt == record.attempt;
            if !results.trials.iter().any(known) {
                results.trials.push(record);
            }
        }
        results
            .trials
            .sort_by(|a, b| a.at_seconds.total_cmp(&b.at_seconds));
        results.summary = perfrun_report::summarize(&results.plan, &results.trials);
    }
    Ok(results)
}

fn read_json<T: serde::de::DeserializeOwned>(file: &Path) -> Result<T, Error> {
    let bytes = fs::read(file).map_err(|source| Error::Read {
        file: file.to_owned(),
        source,
    })?;
    serde_json::from_slice(&bytes).map_err(|source| Error::Parse {
        file: file.to_owned(),
        source,
    })
}

/// When a trial ended, in seconds of measuring time.
fn end(record: &TrialRecord) -> f64 {
    let longest = record
        .nodes
        .values()
        .map(|node| node.measured.seconds)
        .fold(0.0, f64::max);
    record.at_seconds + record.overhead_seconds + longest
}

/// The folders on the way to one that do not exist, innermost first.
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

/// The kernel gives the lock back when this process ends, however it ends.
fn lock(folder: &Path, refused: impl Fn(io::Error) -> Error) -> Result<File, Error> {
    let file = File::open(folder).map_err(&refused)?;
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(Error::Lock {
            folder: folder.to_owned(),
        }),
        // Some network file systems have no locks.
        Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOLCK | rustix::io::Errno::NOSYS) => Ok(file),
        Err(error) => Err(refused(error.into())),
    }
}

/// Removes the empty files of a folder, and the folder if nothing is left.
fn remove_empty(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.metadata().is_ok_and(|metadata| metadata.len() == 0) {
            let _ = fs::remove_file(entry.path());
        }
    }
    let _ = fs::remove_dir(folder);
}
