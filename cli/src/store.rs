//! The folder of a run's results.
//!
//! ```text
//! NAME-TIMESTAMP/
//!   results.json   complete; replaced as a whole when the run ends
//!   report.md      the tables
//!   samples.csv    every interval of every trial
//!   trials/        one file for each trial that ended, while the run goes on
//!   logs/          what nodes logged, if anything
//! ```
//!
//! Every file appears complete or not at all, so that a kill at any moment leaves nothing half-written, and everything
//! that was measured can be read and gone on with.

mod atomic;

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use async_trait::async_trait;
use jiff::Timestamp;
use perfrun_api::results::{Environment, Isolation, Results, RunState, SCHEMA_VERSION, TrialRecord};
use perfrun_api::{plan::Plan, spec::PerfRunSpec};
use perfrun_conductor::Sink;
use thiserror::Error;

/// What a trial's record needs at most, roughly; used to find out in advance whether the disk has room.
const BYTES_PER_TRIAL: u64 = 96 << 10;

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
    #[error("unable to keep results in {}: they may need {} MiB", .folder.display(), .bytes >> 20)]
    Reserve {
        /// The folder.
        folder: PathBuf,
        /// What the run may need.
        bytes: u64,
        /// Why.
        source: io::Error,
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

/// The folder of one run.
pub struct Store {
    folder: PathBuf,
    results: Results,
}

impl Store {
    /// Makes a folder in `parent`, and makes sure that the results will fit.
    pub fn create(
        parent: &Path,
        name: &str,
        spec: PerfRunSpec,
        plan: Plan,
        isolation: Isolation,
    ) -> Result<Self, Error> {
        let started = Timestamp::now();
        let folder = parent.join(format!("{name}-{}", started.strftime("%Y%m%dT%H%M%S%.3fZ")));
        let results = Results {
            schema_version: SCHEMA_VERSION,
            name: name.to_owned(),
            started,
            ended: started,
            state: RunState::Interrupted,
            reason: Some("perfrun ended before the run did".to_owned()),
            spec,
            plan,
            environment: Environment {
                perfrun: env!("CARGO_PKG_VERSION").to_owned(),
                isolation,
                nodes: Default::default(),
            },
            trials: vec![],
            summary: vec![],
        };
        let store = Self { folder, results };
        store.create_folders().map_err(|source| Error::Create {
            folder: store.folder.clone(),
            source,
        })?;
        let prepared = store.reserve().and_then(|()| store.write_results());
        if prepared.is_err() {
            // Nothing of the run is in it.
            let _ = fs::remove_dir_all(&store.folder);
        }
        prepared.map(|()| store)
    }

    /// Opens the folder of a run that was interrupted.
    pub fn resume(folder: &Path) -> Result<Self, Error> {
        let results = read(folder)?;
        let store = Self {
            folder: folder.to_owned(),
            results,
        };
        store.create_folders().map_err(|source| Error::Create {
            folder: folder.to_owned(),
            source,
        })?;
        Ok(store)
    }

    fn create_folders(&self) -> io::Result<()> {
        fs::create_dir_all(self.trials_folder())?;
        fs::create_dir_all(self.logs_folder())
    }

    fn reserve(&self) -> Result<(), Error> {
        let bytes = self.results.plan.trials.len() as u64 * BYTES_PER_TRIAL;
        atomic::reserve(&self.folder, bytes).map_err(|source| Error::Reserve {
            folder: self.folder.clone(),
            bytes,
            source,
        })
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
        self.folder.join("logs")
    }

    fn trials_folder(&self) -> PathBuf {
        self.folder.join(TRIALS)
    }

    /// Writes everything down for good.
    pub fn finish(
        &mut self,
        state: RunState,
        reason: Option<String>,
        nodes: std::collections::BTreeMap<String, perfrun_api::node::Info>,
    ) -> Result<(), Error> {
        let results = &mut self.results;
        (results.state, results.reason, results.ended) = (state, reason, Timestamp::now());
        results.environment.nodes.extend(nodes);
        results.summary = perfrun_report::summarize(&results.plan, &results.trials);
        self.write("report.md", perfrun_report::markdown(&self.results).as_bytes())?;
        self.write(
            "samples.csv",
            perfrun_report::samples_csv(&self.results).as_bytes(),
        )?;
        self.write_results()?;
        // Now results.json has what these files had; leaving them would only be untidy.
        let _ = fs::remove_dir_all(self.trials_folder());
        remove_empty(&self.logs_folder());
        Ok(())
    }

    fn write_results(&self) -> Result<(), Error> {
        let json = serde_json::to_vec_pretty(&self.results).expect("results are JSON");
        self.write(RESULTS, &json)
    }

    fn write(&self, name: &str, bytes: &[u8]) -> Result<(), Error> {
        let file = self.folder.join(name);
        atomic::write(&file, bytes).map_err(|source| Error::Write { file, source })
    }
}

#[async_trait]
impl Sink for Store {
    async fn record(&mut self, record: &TrialRecord) -> io::Result<()> {
        let name = format!("{}.a{}.json", record.trial.id, record.attempt);
        let json = serde_json::to_vec(record)?;
        atomic::write(&self.trials_folder().join(name), &json)?;
        self.results.trials.push(record.clone());
        Ok(())
    }
}

const RESULTS: &str = "results.json";
const TRIALS: &str = "trials";

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

/// Removes the empty files of a folder, and the folder if nothing is left.
fn remove_empty(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.metadata().is_ok_and(|metadata| metadata.len() == 0) {
            let _ = fs::remove_file(entry.path());
        }
    }
    let _ = fs::remove_dir(folder);
}
