//! Writing the results of a run while it is in progress, and when it ends.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io, iter,
    path::{Path, PathBuf},
};

use async_trait::async_trait;
use jiff::Timestamp;
use perfrun_api::{
    results::{Results, SCHEMA_VERSION},
    spec::PerfRunSpec,
};
use perfrun_conductor::{Durability, RecordSink, RunEnd};
use perfrun_contract::{
    node::Info,
    plan::Plan,
    profile::Profile,
    quantity::ByteSize,
    record::TrialRecord,
    reported_run::ReportedRun,
    run::{Environment, Isolation, NodeProgram, Phase, RunState},
};
use rustix::fs::Access;

use super::{
    Error, LOGS, PAGE, RESULTS, TRIALS, UNFINISHED, atomic, judged, lock,
    reading::{empty, folder_of, memory_of_own, read_within, results_in},
};
use crate::profile;

/// What follows from the results.
const REPORTS: [&str; 3] = ["report.md", PAGE, "samples.csv"];

/// Roughly the most that the record of a trial needs. Used to check in advance whether the disk has room.
const BYTES_PER_TRIAL: u64 = 96 << 10;

/// Kept free during the run, so that its end can be written to a disk that has become full. That is
/// results.json without records: a few hundred bytes for each trial of the plan, and a little for the rest.
const BYTES_FOR_THE_END: u64 = 64 << 10;
const BYTES_FOR_THE_END_PER_TRIAL: u64 = 1 << 10;

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
    fn new(folder: PathBuf, results: Results, lock: File) -> Self {
        Self {
            folder,
            results,
            profiles: vec![],
            earlier: 0.0,
            ballast: None,
            _lock: lock,
        }
    }

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
            paused_seconds: None,
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
                let mut results_folder = Self::new(folder.clone(), results, lock);
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
    pub fn save(parent: &Path, results: Results) -> Result<Self, Error> {
        let folder = parent.join(folder_name(&results.name, results.started));
        let refused = |source| Error::Create {
            folder: parent.to_owned(),
            source,
        };
        fs::create_dir_all(&folder).map_err(refused)?;
        let lock = lock(&folder, refused)?;
        let results_folder = Self::new(folder, results, lock);
        results_folder.write_results(&results_folder.results)?;
        results_folder.write_reports()?;
        Ok(results_folder)
    }

    /// Opens the folder of a run that ended before all of its trials were completed. Changes nothing in it
    /// until [`begin`](Self::begin).
    pub fn resume(folder: &Path) -> Result<Self, Error> {
        let results = read_within(folder, &memory_of_own(folder)?)?;
        let folder = folder_of(folder).to_owned();
        match results_in(&folder).map(|file| file.ends_with(RESULTS)) {
            Some(true) => {}
            Some(false) => return Err(Error::Compressed { folder }),
            None => return Err(empty(&folder)),
        }
        let refused = |source| Error::Resume {
            folder: folder.clone(),
            source,
        };
        if matches!(results.conclusion().phase, Phase::Newer(_)) {
            return Err(Error::Newer { folder });
        }
        let lock = lock(&folder, refused)?;
        create_folders(&folder).map_err(refused)?;
        Ok(Self {
            earlier: results.trials.iter().map(end).fold(0.0, f64::max),
            profiles: profile::read(&folder, &results.plan),
            ..Self::new(folder, results, lock)
        })
    }

    /// Begins another session with these programs. Failed trials will be run again: their records are
    /// removed.
    pub fn begin(&mut self, programs: Vec<NodeProgram>) -> Result<(), Error> {
        let now = Timestamp::now();
        self.results.paused_seconds = Some(self.paused_seconds(now));
        self.results.ended = now;
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

    /// How long the run has not run if it is resumed at this time. Of a session that was killed, the time of
    /// its trials is known.
    fn paused_seconds(&self, now: Timestamp) -> f64 {
        let results = &self.results;
        let until = |time: Timestamp| time.duration_since(results.started).as_secs_f64();
        let active = until(results.ended) - results.paused_seconds.unwrap_or_default();
        (until(now) - active.max(self.earlier)).max(0.0)
    }

    /// Writes what perfrun could not write at the end of a finished run: it was killed, or the disk was full.
    /// Otherwise, the run stays as it is.
    pub fn complete_files(&self) -> Result<(), Error> {
        // They may be the only ones.
        let has_records =
            fs::read_dir(self.folder.join(TRIALS)).is_ok_and(|mut files| files.next().is_some());
        if has_records {
            self.write_results(&self.results)?;
        }
        self.remove_working_folders();
        let written = |name: &str| {
            let metadata = fs::metadata(self.folder.join(name));
            metadata.and_then(|metadata| metadata.modified()).ok()
        };
        let results = written(RESULTS);
        // Reports that are older than the results are of an earlier session.
        match REPORTS.into_iter().all(|report| written(report) >= results) {
            true => Ok(()),
            false => self.write_reports(),
        }
    }

    /// Removes what only a run in progress needs.
    fn remove_working_folders(&self) {
        // results.json contains these records now.
        let _ = fs::remove_dir_all(self.folder.join(TRIALS));
        remove_empty(&self.logs_folder());
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
    pub fn reported_run(&self) -> ReportedRun<'_> {
        ReportedRun {
            profiles: &self.profiles,
            ..self.results.reported_run()
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
            reason,
            message,
            nodes,
        } = end;
        let results = &mut self.results;
        // Those that were accepted are there. One that was refused does not take the place of an earlier one.
        for (name, node) in nodes {
            results.environment.nodes.entry(name).or_insert(node);
        }
        results.judged = judged(results);
        results.conclusion = Some(results.tally().conclusion(state, reason, message.as_deref()));
        (results.state, results.reason, results.ended) = (state, message, Timestamp::now());
        results.summary = perfrun_judge::summarize(&results.plan, &results.trials);
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
        self.remove_working_folders();
        self.profiles = profile::read(&self.folder, &self.results.plan);
        self.write_reports()
    }

    /// Writes the reports for people, and the samples.
    fn write_reports(&self) -> Result<(), Error> {
        let reported_run = self.reported_run();
        let [tables, page, samples] = REPORTS;
        self.write(tables, perfrun_report::markdown(&reported_run).as_bytes())?;
        self.write(page, perfrun_report::html(&reported_run).as_bytes())?;
        self.write(samples, perfrun_report::samples_csv(&reported_run).as_bytes())
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

    fn keep_nodes(&mut self, nodes: BTreeMap<String, Info>) -> io::Result<()> {
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

fn folder_name(name: &str, started: Timestamp) -> String {
    format!("{name}-{}", started.strftime("%Y%m%dT%H%M%S%.3fZ"))
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
