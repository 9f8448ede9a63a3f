//! Where a run stands: the values that a decision is made of and that the status is written from.

use perfrun_api::{cluster::condition::Reason, pod::Trouble, spec::PerfRunStatus};

use crate::conduct::{MeasuredNetworks, Progress, RunOutcome};

/// Where a run stands.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Stage {
    /// The document cannot be run.
    Rejected(Trouble),
    /// The run may not start yet.
    Held(Trouble),
    /// Nodes are being started.
    Provisioning {
        /// How many nodes are ready.
        ready: usize,
        /// Why the remaining nodes are not ready. `None` if they are just starting.
        trouble: Option<Trouble>,
    },
    /// Trials are in progress.
    Running(Progress),
    /// The run ends now.
    Ended {
        /// Reason of the condition Complete.
        reason: Reason,
        message: String,
        /// `None` if the run had no conductor that could report one.
        outcome: Option<Box<RunOutcome>>,
    },
    /// The status stays as it is: the run has ended before, or is being deleted.
    Over,
}

impl Stage {
    /// Why the run ends now. `None` if it does not.
    pub(crate) fn end(&self) -> Option<Trouble> {
        match self {
            Self::Rejected(trouble) => Some(trouble.clone()),
            Self::Ended { reason, message, .. } => Some(Trouble::new(*reason, message.clone())),
            Self::Held(_) | Self::Provisioning { .. } | Self::Running(_) | Self::Over => None,
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
