//! Where a run stands: the values that a decision is made of and that the status is written from.

use perfrun_api::{cluster::condition::Reason, pod::Cause, spec::PerfRunStatus};

use crate::conduct::{MeasuredNetworks, Progress, RunOutcome};

/// Where a run stands.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Stage {
    /// The document cannot be run.
    Rejected(Cause),
    /// The run may not start yet.
    Held(Cause),
    /// Nodes are being started.
    Provisioning {
        /// How many nodes are ready.
        ready: usize,
        /// Why the remaining nodes are not ready. `None` if they are just starting.
        cause: Option<Cause>,
    },
    /// Trials are in progress.
    Running(Progress),
    /// The run ends with this reconciliation.
    Ending {
        /// Reason of the condition Complete.
        reason: Reason,
        message: String,
        /// `None` if the run had no conductor that could report one.
        outcome: Option<Box<RunOutcome>>,
    },
    /// The status stays as it is: the run has ended before, or is being deleted.
    Unchanged,
}

impl Stage {
    /// Why the run ends now. `None` if it does not.
    pub(crate) fn end(&self) -> Option<Cause> {
        match self {
            Self::Rejected(cause) => Some(cause.clone()),
            Self::Ending { reason, message, .. } => Some(Cause::new(*reason, message.clone())),
            Self::Held(_) | Self::Provisioning { .. } | Self::Running(_) | Self::Unchanged => None,
        }
    }
}

/// The progress in the status. A conductor that resumes the run reports newer.
pub(crate) fn last_progress(status: &PerfRunStatus) -> Progress {
    Progress {
        counts: status.trials.counts(),
        measured_networks: MeasuredNetworks::default(),
    }
}
