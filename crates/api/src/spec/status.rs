//! The status of a run.
#![expect(
    unreachable_pub,
    reason = "KubeSchema derives from a copy of each type, which no one else reaches"
)]

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::KubeSchema;
use perfrun_contract::{
    compare::{Comparison, Verdict},
    newer,
    run::Phase,
    summary::SummaryRow,
    tally::Counts,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::structural::{make_structural, strip_descriptions};

/// State of the run, and its results.
#[serde_with_macros::skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[schemars(transform = make_structural)]
#[serde(rename_all = "camelCase")]
pub struct PerfRunStatus {
    /// Generation of the spec that this status describes.
    pub observed_generation: Option<i64>,
    /// State of the run in one word, for people. Programs read `conditions`.
    #[serde(default, deserialize_with = "newer::optional")]
    pub phase: Option<Phase>,
    /// Why the run is in this phase, in one word, for people: the reason of the condition that says most. If
    /// the run succeeded and its verdict is not `Pass`, it is the reason of the verdict.
    pub reason: Option<String>,
    /// Name of the workload, e.g. `ping`.
    pub workload: Option<String>,
    /// When the operator first saw the run.
    pub start_time: Option<Time>,
    /// When the run ended.
    pub completion_time: Option<Time>,
    /// How long trials were in progress, for people, e.g. `3m5s`. Absent until the run has ended, and if no
    /// trial was started.
    pub duration: Option<String>,
    /// Number of trials, by state.
    #[serde(default)]
    pub trials: TrialCounts,
    /// One row for each measured quantity of each cell, up to a limit. `results` holds the complete data.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub summary: Vec<SummaryRow>,
    /// Whether what the run expects holds: `Pass`, `Fail` or `Inconclusive`. Absent if it expects nothing,
    /// and until it has ended.
    #[serde(default, deserialize_with = "newer::optional")]
    pub verdict: Option<Verdict>,
    /// What was found in the metrics of compared cells, up to a limit. `results` holds the complete data.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub comparisons: Vec<Comparison>,
    /// Names of the ConfigMaps that hold the complete results, in order; with `spec.results.store`, of the
    /// objects or files in `store`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub results: Vec<String>,
    /// Where `results` are. Absent if they are ConfigMaps.
    pub store: Option<StoredResults>,
    /// State of the run, for programs. The types are `Accepted`, `Provisioned`, `Running`, `LinksVerified`,
    /// `Verdict`, `SamplesMerged`, `ContainersInjected` and `Complete`. docs/reference/conditions.md of
    /// perfrun explains their reasons.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = strip_descriptions)]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
}

/// Where the complete results of a run are.
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StoredResults {
    /// The folder: its URL, or its path and the claim.
    pub location: String,
    /// Image of the program that reads it. `perfrun get results` starts a pod of it.
    pub image: String,
    /// Names of the Secrets for pulling the image, in the namespace of the run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pull_secrets: Vec<String>,
}

/// Number of trials of a run, by state.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TrialCounts {
    /// All trials of the plan, including warm-up.
    pub total: u32,
    /// Completed trials.
    pub completed: u32,
    /// Failed trials.
    pub failed: u32,
    /// Cells of the matrix that cannot be measured.
    pub skipped: u32,
    /// Trials that are not needed, because an interim check had already settled their comparison. See
    /// `spec.maxIterations`.
    #[serde(default)]
    pub not_needed: u32,
    /// Ended trials and all trials that are needed, e.g. `12/40`.
    pub progress: String,
}

impl TrialCounts {
    /// The numbers without those of cells, and without the text.
    pub fn counts(&self) -> Counts {
        Counts {
            planned: self.total as usize,
            completed: self.completed as usize,
            failed: self.failed as usize,
            not_needed: self.not_needed as usize,
        }
    }
}
