//! One account of a run: which attempt of a trial counts, how many trials completed and failed, and how the
//! run ended.
//!
//! Code that shows or counts the trials of a run takes the numbers from a [`Tally`], and the words for its
//! end from a [`Conclusion`]. So a run has the same reason in its results, its report, its status and its
//! metrics.

use std::collections::{BTreeMap, HashMap};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::{AsRefStr, Display, EnumMessage, IntoStaticStr};

use crate::{
    compare::NotNeeded,
    newer::{self, NewerName},
    node::Reason,
    plan::Plan,
    record::{TrialFailure, TrialRecord},
    run::{Phase, RunState},
};

/// The trials of a run so far. Of each trial the last attempt counts.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    planned: usize,
    trials: HashMap<String, LastAttempt>,
    /// By cell.
    failed: HashMap<usize, usize>,
    recorded: usize,
    not_needed: Option<NotNeeded>,
}

/// The last attempt at a trial.
#[derive(Clone, Debug)]
struct LastAttempt {
    attempt: u32,
    cell: usize,
    /// Its position among all records.
    position: usize,
    failure: Option<TrialFailure>,
}

/// Numbers of trials, warm-up included. The status of a PerfRun has a form of its own for them, because
/// clients of the API server read it.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Counts {
    /// Trials of the plan.
    pub planned: usize,
    /// Trials whose last attempt completed.
    pub completed: usize,
    /// Trials whose last attempt failed.
    pub failed: usize,
    /// Trials that are not needed.
    pub not_needed: usize,
}

impl Counts {
    /// Trials that were run, with either end.
    pub fn ended(self) -> usize {
        self.completed + self.failed
    }

    /// Trials of the plan without those that are not needed.
    pub fn needed(self) -> usize {
        self.planned.saturating_sub(self.not_needed)
    }
}

/// The record that counts of each trial, in running order.
pub fn counting(records: &[TrialRecord]) -> impl Iterator<Item = &TrialRecord> {
    let tally = Tally::of(&Plan::default(), records);
    let counts = move |(position, record): &(usize, &TrialRecord)| {
        let last = tally.trials.get(&record.trial.id);
        last.is_some_and(|last| last.position == *position)
    };
    let numbered = records.iter().enumerate();
    numbered.filter(counts).map(|(_, record)| record)
}

/// How a run ended.
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Conclusion {
    /// Succeeded, Failed or Cancelled; Running while the run is in progress.
    #[serde(deserialize_with = "newer::name")]
    pub phase: Phase,
    /// Why, for programs.
    #[serde(deserialize_with = "newer::name")]
    pub reason: EndReason,
    /// Why, for people.
    pub message: String,
}

/// Why a run ended, for programs.
#[derive(
    AsRefStr,
    Clone,
    Copy,
    Debug,
    Deserialize,
    Display,
    EnumMessage,
    Eq,
    Hash,
    IntoStaticStr,
    JsonSchema,
    PartialEq,
)]
pub enum EndReason {
    /// All trials that were needed completed.
    Succeeded,
    /// The run was stopped before its end: on request, or because a local perfrun was killed. The results so
    /// far are kept.
    Cancelled,
    /// All trials were run. Those that failed took longer than `timeouts.trial`: increase it, or make the
    /// workload smaller.
    TrialTimeout,
    /// All trials were run. Those that failed exceeded another limit than `timeouts.trial`, such as the
    /// `deadline` or the `duration` of the workload: the message says which. Increase it, or make the
    /// workload smaller.
    WorkloadTimeout,
    /// A node was lost in all trials that failed, or could not be replaced. The message says how.
    /// Give nodes more memory if theirs was used up.
    NodeLost,
    /// Trials failed because their links were not as configured: the message says which and by how much. All
    /// other trials are run. Use a less busy machine, a lower rate, or less loss.
    ImpairmentNotEffective,
    /// All trials were run, and some failed. The table *Failed trials* of the report has the reasons.
    TrialsFailed,
    /// The run did not end within `timeouts.run`: increase it, or run fewer trials.
    RunTimeout,
    /// A node did not become ready. The message says why: correct the node's program or image, or what it
    /// lacks. If it was only slow, raise `timeouts.provision`.
    NodeNotReady,
    /// Links cannot be impaired here as the document asks. The message says what is missing. Without it, use
    /// only the network `none`.
    ImpairmentUnsupported,
    /// A record or the results could not be kept. The message says why: make room, or repair the store.
    RecordNotKept,
    /// perfrun has a defect. Report the message.
    Internal,
    /// The run has not ended.
    InProgress,
    /// A reason of a newer version, which this version carries.
    #[schemars(skip)]
    #[serde(skip_deserializing)]
    #[strum(transparent)]
    Newer(NewerName),
}

newer::carry!(EndReason);

impl EndReason {
    /// All reasons of this version that a run can end with.
    pub const ALL: [Self; 12] = [
        Self::Succeeded,
        Self::Cancelled,
        Self::TrialTimeout,
        Self::WorkloadTimeout,
        Self::NodeLost,
        Self::ImpairmentNotEffective,
        Self::TrialsFailed,
        Self::RunTimeout,
        Self::NodeNotReady,
        Self::ImpairmentUnsupported,
        Self::RecordNotKept,
        Self::Internal,
    ];

    /// What the reason means and what to do, for users. Empty for a reason of a newer version.
    pub fn meaning(self) -> String {
        if let Self::Newer(_) = self {
            return String::new();
        }
        self.get_documentation()
            .unwrap_or_default()
            .trim()
            .replace('\n', " ")
    }
}

impl Tally {
    /// Counts the records of a run of this plan.
    pub fn of<'a>(plan: &Plan, records: impl IntoIterator<Item = &'a TrialRecord>) -> Self {
        let mut tally = Self {
            planned: plan.trials.len(),
            ..Self::default()
        };
        records.into_iter().for_each(|record| tally.add(record));
        tally
    }

    /// Counts one more record.
    pub fn add(&mut self, record: &TrialRecord) {
        let last = LastAttempt {
            attempt: record.attempt,
            cell: record.trial.cell,
            position: self.recorded,
            failure: record.failure.clone(),
        };
        self.recorded += 1;
        let id = &record.trial.id;
        if self
            .trials
            .get(id)
            .is_some_and(|before| before.attempt > last.attempt)
        {
            return;
        }
        let failed = self.failed.entry(last.cell).or_default();
        *failed += usize::from(last.failure.is_some());
        if let Some(before) = self.trials.insert(id.clone(), last) {
            *failed -= usize::from(before.failure.is_some());
        }
    }

    /// Leaves out trials that are not needed, instead of those that were left out before.
    pub fn leave_out(&mut self, not_needed: Option<NotNeeded>) {
        self.not_needed = not_needed;
    }

    /// The number of a trial's last attempt, and why it failed. `None` if there was no attempt.
    pub fn last_attempt(&self, trial: &str) -> Option<(u32, Option<Reason>)> {
        let last = self.trials.get(trial)?;
        Some((last.attempt, last.failure.as_ref().map(|failure| failure.reason)))
    }

    /// Whether a trial's last attempt completed.
    pub fn has_completed(&self, trial: &str) -> bool {
        self.trials.get(trial).is_some_and(|last| last.failure.is_none())
    }

    /// How many trials have completed and failed.
    pub fn counts(&self) -> Counts {
        let failed = self.failed.values().sum();
        Counts {
            planned: self.planned,
            completed: self.trials.len() - failed,
            failed,
            not_needed: self.not_needed.map_or(0, |not_needed| not_needed.trials as usize),
        }
    }

    /// How many trials of a cell have failed.
    pub fn failed_of_cell(&self, cell: usize) -> usize {
        self.failed.get(&cell).copied().unwrap_or(0)
    }

    /// Why trials failed, and how many for each reason.
    pub fn failures(&self) -> BTreeMap<Reason, usize> {
        let mut reasons = BTreeMap::new();
        for (_, failure) in self.failures_by_trial() {
            *reasons.entry(failure.reason).or_insert(0) += 1;
        }
        reasons
    }

    /// How a run with these trials ended, given its state, what ended it early, and the same for people.
    pub fn conclusion(&self, state: RunState, cause: Option<EndReason>, why: Option<&str>) -> Conclusion {
        let counts = self.counts();
        let Counts {
            completed, failed, ..
        } = counts;
        let needed = counts.needed();
        let (phase, reason, message) = match state {
            RunState::Complete if counts.ended() < needed => (
                Phase::Failed,
                EndReason::RecordNotKept,
                format!(
                    "{} of {needed} trials have no record; {completed} completed",
                    needed - counts.ended()
                ),
            ),
            RunState::Complete if failed == 0 => (
                Phase::Succeeded,
                EndReason::Succeeded,
                match self.not_needed {
                    None if needed == 1 => "the only trial was measured".to_owned(),
                    None => format!("all {needed} trials were measured"),
                    Some(not_needed) => format!("{needed} trials were measured; {not_needed}"),
                },
            ),
            RunState::Complete => (
                Phase::Failed,
                self.reason_of_failures(),
                format!(
                    "{failed} of {needed} trials failed; the first: {}",
                    self.first_failure().unwrap_or_default()
                ),
            ),
            RunState::Interrupted => (
                Phase::Cancelled,
                EndReason::Cancelled,
                match why {
                    Some(why) => format!("{why}; {completed} of {needed} trials completed"),
                    None => format!("stopped on request after {} of {needed} trials", counts.ended()),
                },
            ),
            RunState::Failed => (
                Phase::Failed,
                cause.unwrap_or(EndReason::Internal),
                format!(
                    "{}; {completed} of {needed} trials completed",
                    why.unwrap_or("for an unknown reason")
                ),
            ),
        };
        Conclusion {
            phase,
            reason,
            message,
        }
    }

    /// How far a run is that has not ended.
    pub fn in_progress(&self) -> Conclusion {
        let counts = self.counts();
        Conclusion {
            phase: Phase::Running,
            reason: EndReason::InProgress,
            message: format!("{} of {} trials completed", counts.completed, counts.needed()),
        }
    }

    /// The reason that all failed trials share, if it has a name of its own.
    fn reason_of_failures(&self) -> EndReason {
        let all = |other_limit| {
            self.failures_by_trial()
                .all(|(_, failure)| failure.other_limit == other_limit)
        };
        match self.failures().keys().collect::<Vec<_>>()[..] {
            [Reason::Timeout] if all(true) => EndReason::WorkloadTimeout,
            [Reason::Timeout] if all(false) => EndReason::TrialTimeout,
            [Reason::NodeLost] => EndReason::NodeLost,
            [Reason::ImpairmentNotEffective] => EndReason::ImpairmentNotEffective,
            _ => EndReason::TrialsFailed,
        }
    }

    fn first_failure(&self) -> Option<&str> {
        let (_, first) = self.failures_by_trial().min_by_key(|(last, _)| last.position)?;
        Some(&first.message)
    }

    fn failures_by_trial(&self) -> impl Iterator<Item = (&LastAttempt, &TrialFailure)> {
        let trials = self.trials.values();
        trials.filter_map(|last| Some((last, last.failure.as_ref()?)))
    }
}
