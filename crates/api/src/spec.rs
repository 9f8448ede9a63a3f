//! The `PerfRun` custom resource.
#![expect(
    unreachable_pub,
    reason = "KubeSchema derives from a copy of each type, which no one else reaches"
)]

pub(crate) mod matrix;
mod pods;
mod rules;
mod status;
mod variant;

use kube::{CustomResource, KubeSchema, core::Duration};
use perfrun_contract::{
    plan::{Order, Renew},
    quantity::Percent,
    reported_run::Settings,
    run::RunTimeouts,
};
use serde::{Deserialize, Serialize};

pub use self::{
    matrix::{Combination, Matrix, Selector},
    pods::{LinkSettings, Placement, PodSettings, Template, Topology},
    status::{PerfRunStatus, StoredResults, TrialCounts},
    variant::StackVariant,
};
pub(crate) use self::{pods::no_reserved_key, rules::resource_name};
use crate::{
    compare::{self, COMPARISONS_MAX, Compare, Expect},
    network::Network,
    rule,
    store::{ResultsSettings, Store},
    structural::{add_bounds, make_structural},
    workload::Workload,
};

/// The longest name of a run: it is the value of a label of its pods.
const NAME_MAX: usize = 63;

/// The largest `timeouts.run`.
pub(crate) const RUN_MAX: &str = "168h";

/// One benchmark: its stacks, transports and networks, its workload, and the number of iterations.
#[serde_with_macros::skip_serializing_none]
#[derive(Clone, CustomResource, Debug, Deserialize, KubeSchema, PartialEq, Serialize)]
#[kube(
    group = "perfrun.io",
    version = "v1alpha1",
    kind = "PerfRun",
    plural = "perfruns",
    shortname = "pfr",
    category = "perf",
    namespaced,
    cel,
    doc = "A benchmark of peer-to-peer networking stacks: its nodes, their workload, and the results.",
    status = "PerfRunStatus",
    derive = "PartialEq",
    validation = resource_name(NAME_MAX),
    printcolumn(
        name = "Phase",
        type_ = "string",
        json_path = ".status.phase",
        description = "State of the run. Succeeded says that everything was measured, and nothing about the verdict."
    ),
    printcolumn(
        name = "Verdict",
        type_ = "string",
        json_path = ".status.verdict",
        description = "Whether what the run expects holds: Pass, Fail or Inconclusive. Empty if it expects nothing."
    ),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = ".status.reason",
        description = "Why the run is in its phase; of a run that succeeded, why its verdict is not Pass."
    ),
    printcolumn(
        name = "Trials",
        type_ = "string",
        json_path = ".status.trials.progress",
        description = "Trials that ended, and all that are needed."
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp",
        description = "Time since the run was created."
    ),
    printcolumn(
        name = "Workload",
        type_ = "string",
        json_path = ".status.workload",
        description = "What the run measures.",
        priority = 1
    ),
    printcolumn(
        name = "Duration",
        type_ = "string",
        json_path = ".status.duration",
        description = "How long trials were in progress. Empty until the run has ended.",
        priority = 1
    ),
    printcolumn(
        name = "Ended",
        type_ = "date",
        json_path = ".status.completionTime",
        description = "Time since the run ended.",
        priority = 1
    )
)]
#[x_kube(validation = rules::immutable())]
#[x_kube(validation = rules::known_stacks())]
#[x_kube(validation = rules::known_networks())]
#[x_kube(validation = rules::echo_sets_peers())]
#[x_kube(validation = rules::host_network_unimpaired())]
#[x_kube(validation = compare::of_listed_variants())]
#[x_kube(validation = compare::once_each())]
#[x_kube(validation = compare::candidates_are_added())]
#[x_kube(validation = compare::interleaved())]
#[x_kube(validation = compare::interim_checks_are_of_comparisons())]
#[x_kube(validation = compare::interim_checks_end_after_they_begin())]
#[x_kube(validation = compare::precision_needs_interim_checks())]
#[x_kube(validation = compare::regressions_have_a_baseline())]
#[schemars(transform = make_structural)]
#[schemars(transform = add_bounds)]
#[serde(rename_all = "camelCase")]
pub struct PerfRunSpec {
    /// What to measure.
    pub workload: Workload,
    /// The stacks, transports and networks on which the workload is measured.
    #[serde(default)]
    pub matrix: Matrix,
    /// Named variants of stacks, to compare two stacks, or two versions or settings of one, in a run.
    #[serde(default)]
    #[schemars(length(max = 16))]
    #[x_kube(validation = rule::unique_names())]
    pub stacks: Vec<StackVariant>,
    /// Named conditions of the links between nodes, besides the presets that `matrix.networks` lists.
    #[serde(default)]
    #[schemars(length(max = 32))]
    #[x_kube(validation = rule::unique_names())]
    pub networks: Vec<Network>,
    /// Measured iterations of each cell of the matrix; with `maxIterations` the smallest number of them.
    #[serde(default = "default_iterations")]
    #[x_kube(validation = rule::integer(1, 1000))]
    pub iterations: u32,
    /// The largest number of measured iterations of each cell, for runs that compare. perfrun checks the
    /// comparisons after `iterations`, then each time that their number has doubled, and at the end. It stops
    /// measuring those that an interim check settles. All checks share the 5 % of error, so more of them do
    /// not make a false finding more likely. Default: one check, after `iterations`.
    #[x_kube(validation = rule::integer(1, 1000))]
    pub max_iterations: Option<u32>,
    /// An interim check settles a comparison, whatever it found, once half of the interval of each of its
    /// ratios is at most this wide, for example `3%`. Default: a comparison is settled once what `expect`
    /// says of it passed or failed or, without `expect`, once it is better, worse or the same.
    #[x_kube(validation = rule::percent())]
    pub target_interval: Option<Percent>,
    /// Iterations of each cell before the measured ones. They are recorded, marked, and excluded from all
    /// statistics.
    #[serde(default = "default_warmup")]
    #[x_kube(validation = rule::integer(0, 100))]
    pub warmup: u32,
    /// Order of the trials. `interleaved` runs one iteration of each cell, in random order, then the next, so
    /// that drift of the machine affects all cells alike. `sequential` completes one cell before the next.
    #[serde(default)]
    pub order: Order,
    /// Seed of the random order of trials, to repeat a run in the same order. Default: a new one for each
    /// run.
    // Kubernetes has no unsigned format, and the signed one of this size has half of the numbers.
    #[schemars(with = "Option<i64>")]
    #[x_kube(validation = rule::integer(0, u32::MAX))]
    pub seed: Option<u32>,
    /// Variants to compare, of one stack or of two: which is faster, at what cost, and is the difference
    /// real? Trials of a candidate and of its baseline run right after each other, in random order; the trial
    /// of a control may be between them. At least 10 iterations are needed to say anything, and 20
    /// to 40 to find differences of 5 to 10 %.
    #[serde(default)]
    #[schemars(length(max = COMPARISONS_MAX))]
    pub compare: Vec<Compare>,
    /// What is expected of the results. The verdict of the run is `Pass` if all of it is proved to hold,
    /// `Fail` if some of it does not hold, and `Inconclusive` if the trials cannot show which.
    #[serde(default)]
    #[schemars(length(max = 32))]
    pub expect: Vec<Expect>,
    /// When nodes restart. `never`: only if they are lost. `iteration`: before each iteration of all cells,
    /// so that no comparison depends on one process. Default: `iteration` with `compare`, else `never`.
    pub renew: Option<Renew>,
    /// Number of nodes, and where they run.
    #[serde(default)]
    pub topology: Topology,
    /// Settings of the pods of each role. No effect on local runs.
    #[serde(default)]
    pub template: Template,
    /// Timeouts.
    #[serde(default)]
    #[schemars(extend("default" = {}))]
    pub timeouts: Timeouts,
    /// What to delete after the run, and when. No effect on local runs, which keep only the results.
    #[serde(default)]
    pub cleanup: Cleanup,
    /// Where complete results are kept. No effect on local runs, which keep them in a folder.
    pub results: Option<ResultsSettings>,
    /// Hold the run until this is false again. No effect once the run has started.
    #[serde(default)]
    pub suspend: bool,
    /// Stop the run, and keep what has been measured so far.
    #[serde(default)]
    pub cancel: bool,
}

impl PerfRunSpec {
    /// The largest number of measured iterations of each cell.
    pub fn most_iterations(&self) -> u32 {
        self.max_iterations.unwrap_or(self.iterations)
    }

    /// The entry of `stacks` with a name. `None` if it lists none.
    pub fn variant(&self, name: &str) -> Option<&StackVariant> {
        self.stacks.iter().find(|variant| variant.name == name)
    }

    /// Where complete results are kept. `None` for ConfigMaps.
    pub fn store(&self) -> Option<&Store> {
        self.results.as_ref()?.store.as_ref()
    }

    /// The numbers of nodes and iterations.
    pub fn settings(&self) -> Settings {
        Settings {
            servers: self.topology.servers,
            clients: self.topology.clients,
            peers_per_client: self.topology.peers_per_client,
            iterations: self.iterations,
            max_iterations: self.max_iterations,
            warmup: self.warmup,
            order: self.order,
        }
    }
}

/// Timeouts.
#[derive(Clone, Debug, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Timeouts {
    /// Time until all nodes are ready.
    #[serde(default = "default_provision")]
    #[schemars(length(max = 64), extend("default" = "5m"))]
    #[x_kube(validation = rule::duration("1ms", "24h"))]
    pub provision: Duration,
    /// Time for one trial. The duration of a workload is added to it. A document whose trials are known to
    /// take longer over its networks is refused.
    #[serde(default = "default_trial")]
    #[schemars(length(max = 64), extend("default" = "2m"))]
    #[x_kube(validation = rule::duration("1ms", "24h"))]
    pub trial: Duration,
    /// Time for the whole run, from the start of the first node. A document whose trials are known to take
    /// longer is refused.
    #[serde(default = "default_run")]
    #[schemars(length(max = 64), extend("default" = "1h"))]
    #[x_kube(validation = rule::duration("1ms", RUN_MAX))]
    pub run: Duration,
}

/// What to delete after the run, and when.
#[serde_with_macros::skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Cleanup {
    /// Delete the PerfRun this number of seconds after it succeeded, whatever its verdict is. Default: never.
    #[x_kube(validation = rule::integer(0, i32::MAX as u32))]
    pub ttl_seconds_after_success: Option<u32>,
    /// Delete the PerfRun this number of seconds after it failed or was cancelled. Default: never.
    #[x_kube(validation = rule::integer(0, i32::MAX as u32))]
    pub ttl_seconds_after_failure: Option<u32>,
    /// Keep the pods of a failed run for inspection, for as long as the operator allows: 24 hours by default.
    #[serde(default)]
    pub keep_pods_on_failure: bool,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            provision: default_provision(),
            trial: default_trial(),
            run: default_run(),
        }
    }
}

impl Timeouts {
    /// The timeouts as plain durations.
    pub fn durations(&self) -> RunTimeouts {
        RunTimeouts {
            provision: self.provision.into(),
            trial: self.trial.into(),
            run: self.run.into(),
        }
    }
}

fn default_iterations() -> u32 {
    10
}

fn default_warmup() -> u32 {
    1
}

fn default_provision() -> Duration {
    std::time::Duration::from_secs(5 * 60).into()
}

fn default_trial() -> Duration {
    std::time::Duration::from_secs(2 * 60).into()
}

fn default_run() -> Duration {
    std::time::Duration::from_secs(60 * 60).into()
}
