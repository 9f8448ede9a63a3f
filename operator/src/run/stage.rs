//! Where a run stands: the values that a decision is made of and that the status is written from.

pub(crate) use perfrun_api::pod::Trouble;
use perfrun_api::{
    cluster::condition::Reason,
    spec::{PerfRunStatus, Stored},
};
use perfrun_contract::{
    compare::Judged,
    summary::SummaryRow,
    tally::{Conclusion, Counts},
};

use crate::run::{conditions::counts, links::Links};

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

/// How far a run's trials are.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Progress {
    pub(crate) counts: Counts,
    /// Empty if this process has measured no links.
    pub(crate) links: Links,
}

/// The state of a run's conductor in this process.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ConductorState {
    /// No conductor was started.
    None,
    /// The conductor drives the nodes, or keeps the results.
    Running(Progress),
    /// The conductor has ended and kept the results.
    Ended(Box<RunOutcome>),
    /// The conductor has panicked.
    Panicked {
        /// How often, in this process.
        times: u32,
        /// The message of the last panic.
        message: String,
    },
}

/// How a run's conductor ended.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RunOutcome {
    pub(crate) conclusion: Conclusion,
    pub(crate) progress: Progress,
    pub(crate) summary: Vec<SummaryRow>,
    /// What was found. `None` if the run compares and expects nothing.
    pub(crate) judged: Option<Judged>,
    /// How samples were merged to make the results smaller. `None` if all samples were kept.
    pub(crate) merged: Option<String>,
    /// Names of the parts of the results, in order.
    pub(crate) results: Vec<String>,
    /// Where they are. `None` if they are ConfigMaps.
    pub(crate) stored: Option<Stored>,
}

/// The progress in the status. A conductor that resumes the run reports newer.
pub(crate) fn last_progress(status: &PerfRunStatus) -> Progress {
    Progress {
        counts: counts(status),
        links: Links::default(),
    }
}
