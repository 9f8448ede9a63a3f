//! Reading the results of a run, and finding them.

use std::{
    collections::HashSet,
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use perfrun_api::{
    memory_budget::MemoryBudget,
    results::{Results, SCHEMA_VERSION, check_names_of},
};
use perfrun_contract::{plan::Plan, profile::Profile, record::TrialRecord, run::Isolation};
use serde::de::DeserializeOwned;

use super::{COMPRESSED, Error, RESULTS, TRIALS, UNFINISHED, atomic, judged, lock, opening};
use crate::profile;

/// Reads the results of a run as [`read_within`] does, of the size that results from anywhere may have.
pub fn read(path: &Path) -> Result<Results, Error> {
    read_within(path, &MemoryBudget::of_results())
}

/// Reads the results of a run, finished or not, from its folder or its results.json. Leaves out a file of a
/// trial that cannot be read, with a warning.
pub fn read_within(path: &Path, memory: &MemoryBudget) -> Result<Results, Error> {
    let (file, mut results) = read_head(path, memory)?;
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
            let record = match read_record(entry.path(), memory) {
                Ok(record) => record,
                Err(error @ Error::TooLarge { .. }) => return Err(error),
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
    if results.reason.as_deref() == Some(UNFINISHED) && results.conclusion.is_none() {
        results.conclusion = Some(match lock::is_in_use(atomic::folder_of(&file)) {
            true => {
                results.reason = None;
                results.tally().in_progress()
            }
            false => results.conclusion(),
        });
    }
    // Statistics of an earlier version are not what reports of this one say they are.
    results.summary = perfrun_judge::summarize(&results.plan, &results.trials);
    Ok(results)
}

/// What separated the nodes of a run of this user, from its folder or its results.json.
pub fn isolation(path: &Path) -> Result<Isolation, Error> {
    Ok(read_head(path, &memory_of_own(path)?)?.1.environment.isolation)
}

/// The memory for results that this user resumes, and trusts: resuming runs the programs that they name.
/// Refuses those of another user before anything of them is read.
pub(super) fn memory_of_own(path: &Path) -> Result<MemoryBudget, Error> {
    let folder = folder_of(path);
    let user = rustix::process::geteuid().as_raw();
    // What is absent, or a device, has its own errors.
    let is_kept = |metadata: &fs::Metadata| metadata.is_file() || metadata.is_dir();
    let is_foreign = |file: &Path| {
        let found = fs::metadata(file).ok().filter(is_kept);
        found.is_some_and(|metadata| metadata.uid() != user)
    };
    let parts = [folder.join(RESULTS), folder.join(COMPRESSED)];
    if [path, folder]
        .into_iter()
        .chain(parts.iter().map(PathBuf::as_path))
        .any(is_foreign)
    {
        return Err(Error::Foreign {
            folder: folder.to_owned(),
        });
    }
    Ok(MemoryBudget::unlimited())
}

/// The results.json of a run, and where it is. Records of trials may still be in their files.
fn read_head(path: &Path, memory: &MemoryBudget) -> Result<(PathBuf, Results), Error> {
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
    let results: Results = read_json(&file, memory)?;
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

fn read_record(file: PathBuf, memory: &MemoryBudget) -> Result<TrialRecord, Error> {
    let record = read_json(&file, memory)?;
    match check_names_of(&record) {
        Ok(()) => Ok(record),
        Err(source) => Err(Error::Names { file, source }),
    }
}

fn read_json<T: DeserializeOwned>(file: &Path, memory: &MemoryBudget) -> Result<T, Error> {
    let unread = |source| Error::Read {
        file: file.to_owned(),
        source,
    };
    let json = opening::open(file).map_err(unread)?;
    memory.read(json).map_err(|source| match memory.is_exceeded() {
        true => Error::TooLarge {
            file: file.to_owned(),
        },
        false if source.is_io() => unread(source.into()),
        false => Error::Parse {
            file: file.to_owned(),
            source,
        },
    })
}

/// The profiles of a run, from its folder or its results.json.
pub fn read_profiles(path: &Path, plan: &Plan) -> Vec<Profile> {
    profile::read(folder_of(path), plan)
}

/// The folder of a run, from its folder or its results.json.
pub(super) fn folder_of(path: &Path) -> &Path {
    if path.is_dir() {
        path
    } else {
        atomic::folder_of(path)
    }
}

/// The runs that a path names: that of a results folder or a results.json, or those of the results folders in
/// it.
pub fn runs_in(path: &Path) -> Result<Vec<PathBuf>, Error> {
    let is_run = |folder: &Path| results_in(folder).is_some();
    if matches!(path.try_exists(), Ok(false)) {
        return Err(Error::NoRuns {
            folder: path.to_owned(),
        });
    }
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
        true => Err(match empty(path) {
            Error::Empty { folder } => Error::NoRuns { folder },
            error => error,
        }),
        false => Ok(runs),
    }
}

/// The results folder in this folder that was changed last.
fn newest_in(folder: &Path) -> Option<PathBuf> {
    let changed = |run: &PathBuf| fs::metadata(run).and_then(|metadata| metadata.modified()).ok();
    let runs = runs_in(folder).unwrap_or_default();
    runs.into_iter().max_by_key(changed)
}

/// The file with the results in a folder.
pub(super) fn results_in(folder: &Path) -> Option<PathBuf> {
    let mut files = [RESULTS, COMPRESSED].map(|name| folder.join(name)).into_iter();
    files.find(|file| file.is_file())
}

/// Why a folder shows no results: there are none, or this user may not search it.
pub(super) fn empty(folder: &Path) -> Error {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_without_a_folder_in_their_path_are_in_the_current_one() {
        assert_eq!(folder_of(Path::new("results.json")), Path::new("."));
        assert_eq!(
            folder_of(Path::new("results/a/results.json")),
            Path::new("results/a")
        );
    }
}
