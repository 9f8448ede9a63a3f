//! What a run's conductor reports: its state, and how it ended.

use perfrun_api::spec::StoredResults;
use perfrun_contract::{compare::Judged, summary::SummaryRow, tally::Conclusion};

use super::totals::Progress;

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
    /// Where the results are. `None` if they are ConfigMaps.
    pub(crate) stored: Option<StoredResults>,
}
