//! The results of a run: one JSON document, versioned.

use jiff::Timestamp;
use perfrun_contract::{
    account::Account,
    plan::Plan,
    record::TrialRecord,
    run::{Environment, RunState},
    summary::SummaryRow,
    tally::{Tally, Verdict},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::spec::PerfRunSpec;

/// Version of [`Results`]. It changes when a reader of the previous version would misread a document.
pub const SCHEMA_VERSION: u32 = 1;

/// The results of one run, complete.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Results {
    /// [`SCHEMA_VERSION`] of the program that wrote this.
    #[schemars(extend("const" = SCHEMA_VERSION))]
    pub schema_version: u32,
    /// Name of the PerfRun.
    pub name: String,
    /// When the run started.
    #[schemars(with = "String")]
    pub started: Timestamp,
    /// When it ended.
    #[schemars(with = "String")]
    pub ended: Timestamp,
    /// Whether it ran to its end.
    pub state: RunState,
    /// Why it did not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// How it ended. Absent while it is in progress.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Verdict>,
    /// What was asked for, all defaults filled in.
    pub spec: PerfRunSpec,
    /// What that came to.
    pub plan: Plan,
    /// What it ran on.
    pub environment: Environment,
    /// Every trial that was run, in running order; a trial that was tried again is here twice.
    pub trials: Vec<TrialRecord>,
    /// Statistics of the measured trials, one row for every metric of every cell.
    pub summary: Vec<SummaryRow>,
}

/// The JSON Schema (draft 2020-12) of [`Results`].
pub fn schema() -> serde_json::Value {
    schemars::schema_for!(Results).into()
}

impl Results {
    /// How the run ended. Of one that has not ended, how it would have if it ended now.
    pub fn verdict(&self) -> Verdict {
        let now = || self.tally().verdict(self.state, None, self.reason.as_deref());
        self.verdict.clone().unwrap_or_else(now)
    }

    /// Which trials completed and failed.
    pub fn tally(&self) -> Tally {
        Tally::of(&self.plan, &self.trials)
    }

    /// The results as a report needs them.
    pub fn account(&self) -> Account<'_> {
        let Self {
            schema_version: _,
            name,
            started,
            ended,
            state,
            reason: _,
            verdict: _,
            spec,
            plan,
            environment,
            trials,
            summary,
        } = self;
        Account {
            name,
            started: *started,
            ended: *ended,
            state: *state,
            tally: self.tally(),
            verdict: self.verdict(),
            settings: spec.settings(),
            plan,
            environment,
            trials,
            summary,
        }
    }
}
