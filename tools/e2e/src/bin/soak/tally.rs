//! What a soak has seen, as a table.

use std::{collections::BTreeMap, fmt::Write as _, time::Duration};

use perfrun_api::{cluster::condition::COMPLETE, spec::PerfRun};
use perfrun_e2e::run::{phase, reason, trials_ended};

use crate::fault::Fault;

/// Counts of all rounds.
#[derive(Default)]
pub(crate) struct Tally {
    rounds: u32,
    violations: u32,
    trials: u32,
    faults: BTreeMap<String, u32>,
    /// Runs by phase and reason.
    runs: BTreeMap<String, u32>,
}

impl Tally {
    pub(crate) fn round(&mut self, violated: bool) {
        self.rounds += 1;
        self.violations += u32::from(violated);
    }

    pub(crate) fn fault(&mut self, fault: Fault) {
        *self.faults.entry(fault.to_string()).or_default() += 1;
    }

    pub(crate) fn run(&mut self, run: &PerfRun) {
        let phase = phase(run).map(|phase| phase.to_string()).unwrap_or_default();
        let ended = format!("{phase}, {}", reason(run, COMPLETE));
        *self.runs.entry(ended).or_default() += 1;
        self.trials += trials_ended(run);
    }

    pub(crate) fn is_clean(&self) -> bool {
        self.violations == 0 && self.rounds > 0
    }

    /// Counts as text.
    pub(crate) fn table(&self, took: Duration) -> String {
        let Self {
            rounds,
            violations,
            trials,
            ..
        } = self;
        let minutes = took.as_secs_f64() / 60.0;
        let mut text = format!(
            "\n{rounds} rounds in {minutes:.0} minutes, {trials} trials, {violations} rounds in which something did not hold\n"
        );
        for (title, counts) in [("faults", &self.faults), ("runs that ended as", &self.runs)] {
            let _ = writeln!(text, "\n{title}");
            for (what, count) in counts {
                let _ = writeln!(text, "{count:>6}  {what}");
            }
        }
        text
    }
}
