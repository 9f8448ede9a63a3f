//! What the conditions of a run say.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use perfrun_api::{
    cluster::condition::{self, Status, Type, find},
    spec::PerfRunStatus,
};
use perfrun_contract::{run::Phase, tally::EndReason};

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
