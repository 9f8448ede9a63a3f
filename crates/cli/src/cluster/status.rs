//! The state of a run on a cluster, as users see it, and what is new in it: pure.

use perfrun_api::{
    cluster::condition,
    spec::{PerfRun, TrialCounts},
};
use perfrun_contract::run::Phase;

/// The parts of a run's status that users see.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct StatusSummary {
    /// `None` if no operator has reconciled the run yet.
    pub phase: Option<Phase>,
    /// Whether the run has ended, in whatever phase: that of a newer version has another name.
    pub has_ended: bool,
    /// The reason and message of the most important condition.
    pub cause: Option<PhaseReason>,
    pub trials: TrialCounts,
}

/// Why a run is in its phase.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct PhaseReason {
    /// For programs, for example `Unschedulable`.
    pub reason: String,
    /// For people.
    pub message: String,
}

impl StatusSummary {
    /// The summary of a run's status.
    pub(super) fn of(run: &PerfRun) -> Self {
        let Some(status) = &run.status else {
            return Self::default();
        };
        Self {
            phase: status.phase,
            has_ended: condition::has_ended(&status.conditions),
            cause: condition::explaining_condition(&status.conditions).map(|condition| PhaseReason {
                reason: condition.reason.clone(),
                message: condition.message.trim().to_owned(),
            }),
            trials: status.trials.clone(),
        }
    }

    /// The number of trials that completed or failed.
    pub(super) fn ended_trials(&self) -> u32 {
        self.trials.completed.saturating_add(self.trials.failed)
    }

    /// The number of trials of the plan, without those that are not needed.
    pub(super) fn needed_trials(&self) -> u32 {
        self.trials.total.saturating_sub(self.trials.not_needed)
    }

    /// The number of trials that ended, and of all, for example `12/40`.
    pub(super) fn progress(&self) -> String {
        format!("{}/{}", self.ended_trials(), self.needed_trials())
    }

    /// The phase, for people.
    pub(super) fn phase(&self) -> &str {
        self.phase.as_ref().map_or("Pending", AsRef::as_ref)
    }

    /// Phase, reason and message in one line.
    pub(super) fn line(&self) -> String {
        let phase = self.phase();
        match &self.cause {
            None => phase.to_owned(),
            // A condition without a reason of its own repeats the phase.
            Some(PhaseReason { reason, message }) if reason == phase && message.is_empty() => {
                phase.to_owned()
            }
            Some(PhaseReason { reason, message }) if message.is_empty() => format!("{phase} ({reason})"),
            Some(PhaseReason { reason, message }) if reason == phase => format!("{phase}: {message}"),
            Some(PhaseReason { reason, message }) => format!("{phase} ({reason}): {message}"),
        }
    }
}

/// Lines about what has changed. A new message alone is not a change: messages change more often than their
/// meaning.
pub(super) fn changes(before: &StatusSummary, now: &StatusSummary) -> Vec<String> {
    let mut lines = vec![];
    if now.trials.failed > before.trials.failed {
        let failed = now.trials.failed - before.trials.failed;
        let trials = if failed == 1 {
            "a trial".to_owned()
        } else {
            format!("{failed} trials")
        };
        lines.push(format!("[{}] {trials} failed", now.progress()));
    }
    if now.trials.not_needed > before.trials.not_needed {
        let not_needed = now.trials.not_needed - before.trials.not_needed;
        lines.push(format!(
            "[{}] {not_needed} more trials are not needed",
            now.progress()
        ));
    }
    let reason = |status: &StatusSummary| status.cause.as_ref().map(|cause| cause.reason.clone());
    let changed = before.phase != now.phase || reason(before) != reason(now);
    if changed && now.phase.is_some() && !now.has_ended {
        lines.push(now.line());
    }
    lines
}

/// The progress, if more trials have completed. For output without a progress bar.
pub(super) fn progress(before: &StatusSummary, now: &StatusSummary) -> Option<String> {
    let more = now.trials.completed > before.trials.completed;
    more.then(|| format!("[{}]", now.progress()))
}

#[cfg(test)]
pub(super) mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// A run with a status, `CONDITION=STATUS REASON MESSAGE` for each condition.
    pub(crate) fn run(phase: Option<&str>, trials: (u32, u32), conditions: &[&str]) -> PerfRun {
        let conditions: Vec<Value> = conditions
            .iter()
            .map(|text| {
                let (name, rest) = text.split_once('=').unwrap();
                let mut words = rest.splitn(3, ' ');
                let mut word = || words.next().unwrap_or_default();
                json!({
                    "type": name, "status": word(), "reason": word(), "message": word(),
                    "lastTransitionTime": "2026-01-01T12:00:00Z",
                })
            })
            .collect();
        let status = phase.map(|phase| {
            json!({
                "phase": phase,
                "conditions": conditions,
                "trials": {"total": 40, "completed": trials.0, "failed": trials.1, "skipped": 0, "progress": ""},
            })
        });
        serde_json::from_value(json!({
            "apiVersion": "perfrun.io/v1alpha1",
            "kind": "PerfRun",
            "metadata": {"name": "tcp", "namespace": "lab", "creationTimestamp": "2026-01-01T12:00:00Z"},
            "spec": {"workload": {"ping": {}}},
            "status": status,
        }))
        .unwrap()
    }

    fn status(phase: &str, trials: (u32, u32), conditions: &[&str]) -> StatusSummary {
        StatusSummary::of(&run(Some(phase), trials, conditions))
    }

    const ACCEPTED: &str = "Accepted=True Accepted ";
    const PROVISIONED: &str = "Provisioned=True PodsReady ";

    fn reason(conditions: &[&str]) -> Option<String> {
        status("Pending", (0, 0), conditions)
            .cause
            .map(|cause| cause.reason)
    }

    #[test]
    fn the_first_condition_that_is_not_true_is_the_cause() {
        assert_eq!(reason(&[]), None);
        assert_eq!(reason(&["Accepted=False Invalid no"]).as_deref(), Some("Invalid"));
        let waits = [
            ACCEPTED,
            "Provisioned=Unknown WaitingForOtherRuns b",
            "Running=Unknown NotYet ",
        ];
        assert_eq!(reason(&waits).as_deref(), Some("WaitingForOtherRuns"));
        let runs = [
            ACCEPTED,
            PROVISIONED,
            "Running=True Trials ",
            "Complete=False Trials ",
        ];
        assert_eq!(reason(&runs).as_deref(), Some("Trials"));
        let ended = [
            ACCEPTED,
            "Provisioned=False Unschedulable ",
            "Complete=True Unschedulable ",
        ];
        assert_eq!(reason(&ended).as_deref(), Some("Unschedulable"));
    }

    #[test]
    fn conditions_of_another_version_are_ignored() {
        assert_eq!(reason(&["Verdict=False Slow ", "Links=Unknown X "]), None);
    }

    #[test]
    fn a_new_reason_is_a_change_and_a_new_message_is_not() {
        let starting = |reason: &str| {
            status(
                "Provisioning",
                (0, 0),
                &[ACCEPTED, &format!("Provisioned=False {reason}")],
            )
        };
        let first = starting("PodsStarting 0 of 2 pods are ready");
        assert_eq!(
            changes(&StatusSummary::default(), &first),
            ["Provisioning (PodsStarting): 0 of 2 pods are ready"]
        );
        assert!(changes(&first, &starting("PodsStarting 1 of 2 pods is ready")).is_empty());
        assert_eq!(
            changes(&first, &starting("Unschedulable 0/3 nodes are available")),
            ["Provisioning (Unschedulable): 0/3 nodes are available"]
        );
    }

    #[test]
    fn completed_and_failed_trials_are_reported() {
        let runs = |trials| {
            status(
                "Running",
                trials,
                &[ACCEPTED, PROVISIONED, "Running=True Running "],
            )
        };
        let (before, now) = (runs((3, 0)), runs((5, 2)));
        assert_eq!(changes(&before, &now), ["[7/40] 2 trials failed"]);
        assert_eq!(progress(&before, &now).as_deref(), Some("[7/40]"));
        assert_eq!(progress(&now, &now), None);
        assert_eq!(now.line(), "Running");
    }

    #[test]
    fn trials_that_are_not_needed_do_not_count_in_the_progress() {
        let before = status("Running", (10, 0), &["Running=True Running "]);
        let mut now = before.clone();
        now.trials.not_needed = 20;
        assert_eq!(changes(&before, &now), ["[10/20] 20 more trials are not needed"]);
        assert_eq!(now.progress(), "10/20");
    }

    #[test]
    fn a_run_without_a_status_is_not_a_change() {
        let unseen = StatusSummary::of(&run(None, (0, 0), &[]));
        assert_eq!(unseen, StatusSummary::default());
        assert!(changes(&StatusSummary::default(), &unseen).is_empty());
        assert!(!unseen.has_ended);
    }

    #[test]
    fn impossible_counts_of_a_status_do_not_overflow() {
        let odd = status("Running", (u32::MAX, u32::MAX), &[]);
        assert_eq!(odd.ended_trials(), u32::MAX);
        assert!(changes(&odd, &status("Running", (0, 0), &[])).is_empty());
    }
}
