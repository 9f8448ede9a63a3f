//! What followers of a run are told: pure.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use perfrun_api::{
    cluster::condition,
    spec::{PerfRun, PerfRunStatus, TrialCounts},
};
use perfrun_contract::run::Phase;

/// Where a run stands.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stage {
    /// None: no operator has seen it yet.
    pub phase: Option<Phase>,
    /// The condition that says most.
    pub why: Option<Why>,
    /// Trials so far.
    pub trials: TrialCounts,
}

/// A condition's own words.
#[derive(Clone, Debug, PartialEq)]
pub struct Why {
    /// For programs, e.g. `Unschedulable`.
    pub reason: String,
    /// For people.
    pub message: String,
}

impl Stage {
    /// Of a run, by its status.
    pub fn of(run: &PerfRun) -> Self {
        let Some(status) = &run.status else {
            return Self::default();
        };
        Self {
            phase: status.phase,
            why: telling(status).map(|condition| Why {
                reason: condition.reason.clone(),
                message: condition.message.trim().to_owned(),
            }),
            trials: status.trials.clone(),
        }
    }

    /// Whether nothing will change any more.
    pub fn has_ended(&self) -> bool {
        matches!(
            self.phase,
            Some(Phase::Succeeded | Phase::Failed | Phase::Cancelled)
        )
    }

    /// Trials that ended, one way or the other.
    pub fn ended_trials(&self) -> u32 {
        self.trials.completed.saturating_add(self.trials.failed)
    }

    /// How far it is, e.g. `12/40`.
    pub fn progress(&self) -> String {
        format!("{}/{}", self.ended_trials(), self.trials.total)
    }

    /// In a word.
    pub fn phase(&self) -> &str {
        self.phase.as_ref().map_or("Pending", AsRef::as_ref)
    }

    /// In a line, for a bar.
    pub fn line(&self) -> String {
        let phase = self.phase();
        match &self.why {
            None => phase.to_owned(),
            // Reasons repeat phases when there is nothing else to say.
            Some(Why { reason, message }) if reason == phase && message.is_empty() => phase.to_owned(),
            Some(Why { reason, message }) if message.is_empty() => format!("{phase} ({reason})"),
            Some(Why { reason, message }) if reason == phase => format!("{phase}: {message}"),
            Some(Why { reason, message }) => format!("{phase} ({reason}): {message}"),
        }
    }
}

/// What is new and stays to be read. Messages change more often than what they mean, so they are no news by themselves.
pub fn news(before: &Stage, now: &Stage) -> Vec<String> {
    let mut lines = vec![];
    if now.trials.failed > before.trials.failed {
        let failed = now.trials.failed - before.trials.failed;
        let what = if failed == 1 {
            "a trial".to_owned()
        } else {
            format!("{failed} trials")
        };
        lines.push(format!("[{}] {what} failed", now.progress()));
    }
    let reason = |stage: &Stage| stage.why.as_ref().map(|why| why.reason.clone());
    let changed = before.phase != now.phase || reason(before) != reason(now);
    if changed && now.phase.is_some() && !now.has_ended() {
        lines.push(now.line());
    }
    lines
}

/// What is told where there is no bar.
pub fn count(before: &Stage, now: &Stage) -> Option<String> {
    let more = now.trials.completed > before.trials.completed;
    more.then(|| format!("[{}]", now.progress()))
}

/// The condition that says why a run stands where it does: how it ended; else the first that is not true yet; else that
/// it runs.
fn telling(status: &PerfRunStatus) -> Option<&Condition> {
    let of = |name: &str| status.conditions.iter().find(|condition| condition.type_ == name);
    let is_true = |condition: &&Condition| condition.status == "True";
    let awaited = [condition::ACCEPTED, condition::PROVISIONED, condition::RUNNING];
    of(condition::COMPLETE)
        .filter(is_true)
        .or_else(|| {
            awaited
                .into_iter()
                .filter_map(of)
                .find(|condition| !is_true(condition))
        })
        .or_else(|| of(condition::RUNNING))
        .or_else(|| of(condition::PROVISIONED))
        .or_else(|| of(condition::ACCEPTED))
}

#[cfg(test)]
pub mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// A run of that status, `CONDITION=STATUS REASON MESSAGE` for each condition.
    pub fn run(phase: Option<&str>, trials: (u32, u32), conditions: &[&str]) -> PerfRun {
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

    fn stage(phase: &str, trials: (u32, u32), conditions: &[&str]) -> Stage {
        Stage::of(&run(Some(phase), trials, conditions))
    }

    const ACCEPTED: &str = "Accepted=True Accepted ";
    const PROVISIONED: &str = "Provisioned=True PodsReady ";

    fn told(conditions: &[&str]) -> Option<String> {
        stage("Pending", (0, 0), conditions).why.map(|why| why.reason)
    }

    #[test]
    fn the_first_condition_that_is_not_true_is_told() {
        assert_eq!(told(&[]), None);
        assert_eq!(told(&["Accepted=False Invalid no"]).as_deref(), Some("Invalid"));
        let waits = [
            ACCEPTED,
            "Provisioned=Unknown WaitingForOtherRuns b",
            "Running=Unknown NotYet ",
        ];
        assert_eq!(told(&waits).as_deref(), Some("WaitingForOtherRuns"));
        let runs = [
            ACCEPTED,
            PROVISIONED,
            "Running=True Trials ",
            "Complete=False Trials ",
        ];
        assert_eq!(told(&runs).as_deref(), Some("Trials"));
        let ended = [
            ACCEPTED,
            "Provisioned=False Unschedulable ",
            "Complete=True Unschedulable ",
        ];
        assert_eq!(told(&ended).as_deref(), Some("Unschedulable"));
    }

    #[test]
    fn conditions_of_another_version_are_passed_over() {
        assert_eq!(told(&["Verdict=False Slow ", "Links=Unknown X "]), None);
    }

    #[test]
    fn a_changed_reason_is_news_and_a_changed_message_is_not() {
        let starting = |reason: &str| {
            stage(
                "Provisioning",
                (0, 0),
                &[ACCEPTED, &format!("Provisioned=False {reason}")],
            )
        };
        let first = starting("PodsStarting 0 of 2 pods are ready");
        assert_eq!(
            news(&Stage::default(), &first),
            ["Provisioning (PodsStarting): 0 of 2 pods are ready"]
        );
        assert!(news(&first, &starting("PodsStarting 1 of 2 pods is ready")).is_empty());
        assert_eq!(
            news(&first, &starting("Unschedulable 0/3 nodes are available")),
            ["Provisioning (Unschedulable): 0/3 nodes are available"]
        );
    }

    #[test]
    fn trials_are_counted_and_failures_said() {
        let runs = |trials| {
            stage(
                "Running",
                trials,
                &[ACCEPTED, PROVISIONED, "Running=True Running "],
            )
        };
        let (before, now) = (runs((3, 0)), runs((5, 2)));
        assert_eq!(news(&before, &now), ["[7/40] 2 trials failed"]);
        assert_eq!(count(&before, &now).as_deref(), Some("[7/40]"));
        assert_eq!(count(&now, &now), None);
        assert_eq!(now.line(), "Running");
    }

    #[test]
    fn what_no_operator_has_seen_is_no_news() {
        let unseen = Stage::of(&run(None, (0, 0), &[]));
        assert_eq!(unseen, Stage::default());
        assert!(news(&Stage::default(), &unseen).is_empty());
        assert!(!unseen.has_ended());
    }

    #[test]
    fn counts_beyond_reason_do_no_harm() {
        let odd = stage("Running", (u32::MAX, u32::MAX), &[]);
        assert_eq!(odd.ended_trials(), u32::MAX);
        assert!(news(&odd, &stage("Running", (0, 0), &[])).is_empty());
    }
}
