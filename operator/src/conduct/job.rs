//! What it takes to conduct a run.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use perfrun_api::spec::PerfRunSpec;
use perfrun_contract::plan::Plan;

use super::totals::Progress;
use crate::{build::RunIdentity, services::Services};

/// Wakes the reconciler of a run.
pub(crate) type Wake = Arc<dyn Fn() + Send + Sync>;

/// What it takes to conduct a run.
pub(crate) struct Job {
    pub(crate) services: Arc<Services>,
    pub(crate) run: RunIdentity,
    pub(crate) spec: PerfRunSpec,
    pub(crate) plan: Arc<Plan>,
    /// Since when trials have been in progress.
    pub(crate) since: Timestamp,
    /// The progress until the journal has been read.
    pub(crate) progress: Progress,
    /// Whether to keep the results without running more trials.
    pub(crate) conclude: bool,
    /// The run as the object of events.
    pub(crate) reference: ObjectReference,
    pub(crate) wake: Wake,
}

impl Job {
    /// How much of `timeouts.run` is left.
    pub(super) fn time_left(&self) -> Duration {
        Duration::from(self.spec.timeouts.run).saturating_sub(self.elapsed())
    }

    /// The token of the run's nodes.
    pub(super) fn token(&self) -> String {
        self.services.key.token(&self.run.uid)
    }

    /// The token of the pod that keeps results.
    pub(super) fn store_token(&self) -> String {
        self.services.key.store_token(&self.run.uid)
    }

    /// How long trials have been in progress.
    pub(super) fn elapsed(&self) -> Duration {
        let elapsed = (self.services.clock)().duration_since(self.since);
        Duration::try_from(elapsed).unwrap_or_default()
    }
}
