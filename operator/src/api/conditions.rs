//! Conditions of runs and schedules.

use std::borrow::Cow;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use perfrun_api::cluster::condition::{self, Reason, Status, Type, find};
use perfrun_contract::text::plain;

/// The longest message of a condition, in characters.
const CONDITION_TEXT_MAX: usize = 2000;

/// Status, reason and message of a condition.
pub(crate) type ConditionValues<'a> = (Status, Reason, Cow<'a, str>);

/// A condition. Its last transition is the previous one as long as its status stays.
pub(crate) fn condition(
    previous: &[Condition],
    type_: Type,
    (status, reason, message): ConditionValues<'_>,
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
        message: plain(&message).chars().take(CONDITION_TEXT_MAX).collect(),
        observed_generation: generation,
        last_transition_time: unchanged.map_or(Time(now), |old| old.last_transition_time.clone()),
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
