//! Conditions of runs, and what they say.

use std::borrow::Cow;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use perfrun_api::{
    cluster::condition::{self, Reason, Status, Type, find},
    spec::{PerfRunStatus, TrialCounts},
};
use perfrun_contract::{
    run::Phase,
    tally::{Counts, EndReason},
    text::plain,
};

/// The longest message of a condition, in characters.
const MESSAGE_MAX: usize = 2000;

/// Status, reason and message of a condition.
pub(crate) type ConditionParts<'a> = (Status, Reason, Cow<'a, str>);

/// Whether a run has ended. The status of such a run no longer changes.
pub(crate) fn has_ended(status: &PerfRunStatus) -> bool {
    condition::has_ended(&status.conditions)
}

/// Whether a run is starting its nodes, whatever a newer version calls its phase.
pub(crate) fn is_provisioning(status: &PerfRunStatus) -> bool {
    phase(&status.conditions) == Phase::Provisioning
}

/// Whether a run's trials are in progress, whatever a newer version calls its phase.
pub(crate) fn is_running(status: &PerfRunStatus) -> bool {
    phase(&status.conditions) == Phase::Running
}

/// Since when a condition has had a status. `None` if it has another one.
pub(crate) fn since(status: &PerfRunStatus, type_: Type, is: Status) -> Option<Timestamp> {
    let condition = find(&status.conditions, type_)?;
    condition::has_status(condition, is).then_some(condition.last_transition_time.0)
}

/// A condition. Its last transition is the previous one as long as its status stays.
pub(crate) fn condition(
    previous: &[Condition],
    type_: Type,
    (status, reason, message): ConditionParts<'_>,
    generation: Option<i64>,
    now: Timestamp,
) -> Condition {
    debug_assert!(
        condition::is_documented(type_, status, reason),
        "{type_}={status} {reason} is not in the list of conditions"
    );
    let unchanged = find(previous, type_).filter(|old| condition::has_status(old, status));
    Condition {
        type_: type_.to_string(),
        status: status.to_string(),
        reason: reason.to_string(),
        message: plain(&message).chars().take(MESSAGE_MAX).collect(),
        observed_generation: generation,
        last_transition_time: unchanged.map_or(Time(now), |old| old.last_transition_time.clone()),
    }
}

/// The phase that the conditions amount to.
pub(crate) fn phase(conditions: &[Condition]) -> Phase {
    let is = |type_: Type, status| {
        find(conditions, type_).is_some_and(|found| condition::has_status(found, status))
    };
    match condition::end_condition(conditions) {
        Some(end) if end.reason == EndReason::Succeeded.as_ref() => Phase::Succeeded,
        Some(end) if end.reason == EndReason::Cancelled.as_ref() => Phase::Cancelled,
        Some(_) => Phase::Failed,
        None if is(Type::Running, Status::True) => Phase::Running,
        None if is(Type::Provisioned, Status::False) => Phase::Provisioning,
        None => Phase::Pending,
    }
}

/// The numbers of trials that a status has.
pub(crate) fn counts(status: &PerfRunStatus) -> Counts {
    let TrialCounts {
        total,
        completed,
        failed,
        not_needed,
        ..
    } = status.trials;
    Counts {
        planned: total as usize,
        completed: completed as usize,
        failed: failed as usize,
        not_needed: not_needed as usize,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::events::event;

    #[test]
    fn the_message_of_a_node_in_the_status_cannot_control_a_terminal() {
        let message = "\x1b]52;c;AA\x07";
        let condition = condition(
            &[],
            Type::Complete,
            (Status::True, Reason::Invalid, message.into()),
            None,
            Timestamp::UNIX_EPOCH,
        );
        assert_eq!(condition.message, " ]52;c;AA ");
        let event = event(false, Reason::Invalid, message, "Complete");
        assert_eq!(event.note.as_deref(), Some(" ]52;c;AA "));
    }
}
