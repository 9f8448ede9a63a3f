//! What soaks have seen, as a table.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs::{self, File},
    io::{ErrorKind, Write as _},
    path::Path,
    time::Duration,
};

use anyhow::{Context, Result};
use perfrun_api::{cluster::condition::Type, spec::PerfRun};
use perfrun_e2e::run::{phase, reason, trials_ended};
use serde::{Deserialize, Serialize};

use crate::fault::Fault;

/// Counts of all rounds of a soak, or of several.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) struct SoakCounts {
    seeds: Vec<u32>,
    seconds: u64,
    rounds: u32,
    violations: u32,
    trials: u32,
    faults: BTreeMap<String, u32>,
    /// Runs by phase and reason.
    runs: BTreeMap<String, u32>,
    /// Documents of hostile tenants by what happened to them. Earlier soaks had none.
    #[serde(default)]
    hostile: BTreeMap<String, u32>,
    /// The most memory that an operator took, in MiB. Earlier soaks did not note it.
    #[serde(default)]
    most_memory: u64,
}

impl SoakCounts {
    pub(crate) fn of(seed: u32) -> Self {
        Self {
            seeds: vec![seed],
            ..Self::default()
        }
    }

    pub(crate) fn count_round(&mut self, violated: bool) {
        self.rounds += 1;
        self.violations += u32::from(violated);
    }

    pub(crate) fn count_fault(&mut self, fault: Fault) {
        *self.faults.entry(fault.to_string()).or_default() += 1;
    }

    pub(crate) fn count_run(&mut self, run: &PerfRun) {
        let phase = phase(run).map(|phase| phase.to_string()).unwrap_or_default();
        let ended = format!("{phase}, {}", reason(run, Type::Complete));
        *self.runs.entry(ended).or_default() += 1;
        self.trials += trials_ended(run);
    }

    pub(crate) fn count_hostile(&mut self, outcome: &str) {
        *self.hostile.entry(outcome.to_owned()).or_default() += 1;
    }

    pub(crate) fn note_memory(&mut self, mebibytes: u64) {
        self.most_memory = self.most_memory.max(mebibytes);
    }

    /// Notes how long the soak took.
    pub(crate) fn note_duration(&mut self, time: Duration) {
        self.seconds = time.as_secs();
    }

    pub(crate) fn is_clean(&self) -> bool {
        self.violations == 0 && self.rounds > 0
    }

    /// Adds up all soaks in a file. Without the file, the result is empty.
    pub(crate) fn read(file: &Path) -> Result<Self> {
        match fs::read_to_string(file) {
            Ok(kept) => add_up(&kept).with_context(|| format!("unable to read {}", file.display())),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(error).with_context(|| format!("failed to read {}", file.display())),
        }
    }

    /// Appends the soak to a file, a line of JSON each.
    pub(crate) fn append_to(&self, file: &Path) -> Result<()> {
        let line = serde_json::to_string(self)?;
        let appended = File::options()
            .create(true)
            .append(true)
            .open(file)
            .and_then(|mut file| writeln!(file, "{line}"));
        appended.with_context(|| format!("failed to write {}", file.display()))
    }

    /// The sum of two soaks.
    pub(crate) fn plus(mut self, other: &Self) -> Self {
        let Self {
            seeds,
            seconds,
            rounds,
            violations,
            trials,
            faults,
            runs,
            hostile,
            most_memory,
        } = other;
        self.seeds.extend(seeds);
        self.seconds += seconds;
        self.rounds += rounds;
        self.violations += violations;
        self.trials += trials;
        self.note_memory(*most_memory);
        for (sums, counts) in [
            (&mut self.faults, faults),
            (&mut self.runs, runs),
            (&mut self.hostile, hostile),
        ] {
            for (what, count) in counts {
                *sums.entry(what.clone()).or_default() += count;
            }
        }
        self
    }

    /// Counts as text.
    pub(crate) fn table(&self) -> String {
        let Self {
            seeds,
            seconds,
            rounds,
            violations,
            trials,
            faults,
            runs,
            hostile,
            most_memory,
        } = self;
        let minutes = seconds / 60;
        let mut text = format!(
            "\n{rounds} rounds in {minutes} minutes, {trials} trials, {violations} rounds in which something did not hold, \
             seeds {seeds:?}\nan operator took {most_memory} MiB at most\n"
        );
        for (title, counts) in [
            ("faults", faults),
            ("runs that ended as", runs),
            ("documents of hostile tenants", hostile),
        ] {
            let _ = writeln!(text, "\n{title}");
            for (what, count) in counts {
                let _ = writeln!(text, "{count:>6}  {what}");
            }
        }
        text
    }
}

/// Adds up soaks, a line of JSON each.
fn add_up(kept: &str) -> Result<SoakCounts, serde_json::Error> {
    let mut sum = SoakCounts::default();
    for line in kept.lines() {
        sum = sum.plus(&serde_json::from_str(line)?);
    }
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn soak(seed: u32, violated: bool) -> SoakCounts {
        let mut soak = SoakCounts::of(seed);
        soak.count_fault(Fault::NodeKilled);
        soak.count_hostile("refused");
        soak.note_memory(u64::from(seed));
        soak.count_round(violated);
        soak.note_duration(Duration::from_secs(90));
        soak
    }

    #[test]
    fn several_soaks_add_up() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("soaks.jsonl");
        assert_eq!(SoakCounts::read(&file).unwrap(), SoakCounts::default());
        soak(1, false).append_to(&file).unwrap();
        assert_eq!(SoakCounts::read(&file).unwrap(), soak(1, false));
        let mut other = soak(2, true);
        other.count_fault(Fault::RunDeleted);
        other.append_to(&file).unwrap();
        let sum = SoakCounts::read(&file).unwrap();
        assert_eq!(sum, soak(1, false).plus(&other));
        assert_eq!(
            sum.table(),
            "\n2 rounds in 3 minutes, 0 trials, 1 rounds in which something did not hold, seeds [1, 2]\n\
             an operator took 2 MiB at most\n\nfaults\n     2  node-killed\n     1  run-deleted\n\nruns that ended as\n\
             \ndocuments of hostile tenants\n     2  refused\n"
        );
        assert!(!sum.is_clean());
    }

    #[test]
    fn a_file_that_is_not_of_soaks_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("soaks.jsonl");
        fs::write(&file, "not JSON\n").unwrap();
        let refused = SoakCounts::read(&file).unwrap_err().to_string();
        assert!(refused.starts_with("unable to read "), "{refused}");
    }
}
