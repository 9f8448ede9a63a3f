//! The `PerfSchedule` custom resource: PerfRuns at the times of a cron schedule, in the words of Kubernetes'
//! CronJob.
#![expect(
    unreachable_pub,
    reason = "KubeSchema derives from a copy of each type, which no one else reaches"
)]

mod timetable;

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::ObjectReference,
    apimachinery::pkg::apis::meta::v1::{Condition, Time},
};
use kube::{
    CustomResource, KubeSchema, Resource, ResourceExt,
    core::{ObjectMeta, Rule},
};
use perfrun_contract::{compare::Verdict, newer, run::Phase};
use schemars::{JsonSchema, Schema};
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use self::timetable::{Error, Timetable};
use crate::{
    cluster::SCHEDULE_LABEL,
    rule,
    spec::{PerfRun, PerfRunSpec, no_reserved_key, resource_name},
    structural::{add_bounds, make_structural, strip_descriptions},
};

/// The longest name of a schedule: its runs have the name, a hyphen and the minutes since 1970. Kubernetes
/// has the same limit for CronJobs.
const NAME_MAX: usize = 52;

/// The largest number of runs in `status.history`.
pub const HISTORY_MAX: usize = 50;

/// A benchmark that runs on a schedule: when it runs, and what runs.
#[serde_with_macros::skip_serializing_none]
#[derive(Clone, CustomResource, Debug, Deserialize, KubeSchema, PartialEq, Serialize)]
#[kube(
    group = "perfrun.io",
    version = "v1alpha1",
    kind = "PerfSchedule",
    plural = "perfschedules",
    shortname = "pfs",
    category = "perf",
    namespaced,
    doc = "Creates PerfRuns at the times of a cron schedule, and keeps their verdicts.",
    status = "PerfScheduleStatus",
    derive = "PartialEq",
    validation = resource_name(NAME_MAX),
    printcolumn(
        name = "Schedule",
        type_ = "string",
        json_path = ".spec.schedule",
        description = "When runs are created."
    ),
    printcolumn(
        name = "Suspend",
        type_ = "boolean",
        json_path = ".spec.suspend",
        description = "Whether the schedule is suspended, so that no run is created."
    ),
    printcolumn(
        name = "Active",
        type_ = "string",
        json_path = ".status.active[*].name",
        description = "A run that has not ended."
    ),
    printcolumn(
        name = "Last schedule",
        type_ = "date",
        json_path = ".status.lastScheduleTime",
        description = "Time since the moment for which the last run was created."
    ),
    printcolumn(
        name = "Last phase",
        type_ = "string",
        json_path = ".status.history[0].phase",
        description = "How the last run ended. Succeeded says that everything was measured, and nothing about the verdict."
    ),
    printcolumn(
        name = "Last verdict",
        type_ = "string",
        json_path = ".status.history[0].verdict",
        description = "Whether what the last run that has ended expects holds. Empty if it expects nothing."
    ),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = ".status.reason",
        description = "Whether runs are created, and if not, why."
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp",
        description = "Time since the schedule was created."
    ),
    printcolumn(
        name = "Time zone",
        type_ = "string",
        json_path = ".spec.timeZone",
        description = "The time zone of the schedule. Empty for UTC.",
        priority = 1
    ),
    printcolumn(
        name = "Last success",
        type_ = "date",
        json_path = ".status.lastSuccessfulTime",
        description = "Time since the end of the last run that succeeded and whose verdict is not Fail.",
        priority = 1
    )
)]
#[schemars(transform = make_structural)]
#[schemars(transform = add_bounds)]
#[serde(rename_all = "camelCase")]
pub struct PerfScheduleSpec {
    /// When to create a run, as in a crontab: minute, hour, day of the month, month and day of the week, or
    /// `@hourly`, `@daily`, `@weekly`, `@monthly`, `@yearly`. A time of the day that a change of the clock
    /// skips is due right after the change, and one that it repeats is due once.
    #[schemars(length(max = 200))]
    #[x_kube(validation = five_fields())]
    pub schedule: String,
    /// The time zone of `schedule`, by its name in the IANA database, e.g. `Europe/Berlin`. Default: UTC.
    #[schemars(length(min = 1, max = 64))]
    pub time_zone: Option<String>,
    /// Create no runs until this is false again. Then the last run that was missed is created, unless
    /// `startingDeadlineSeconds` is over. No effect on runs that exist.
    #[serde(default)]
    pub suspend: bool,
    /// How many seconds late a run may be created, for example after an outage of the operator. Later, it is
    /// missed. Default: until the next one is due.
    #[x_kube(validation = rule::integer(1, i32::MAX as u32))]
    pub starting_deadline_seconds: Option<u32>,
    /// What to do if a run is due while an earlier one has not ended. `Allow`: create it, unless three have
    /// not ended; exclusive runs wait for each other. `Forbid`: create it when the earlier one has ended,
    /// unless `startingDeadlineSeconds` is over. `Replace`: delete the earlier one first.
    #[serde(default)]
    pub concurrency_policy: ConcurrencyPolicy,
    /// How many successful PerfRuns to keep: those that have succeeded, and whose verdict is not `Fail`.
    /// Older ones are deleted with their results; `status.history` keeps their verdicts.
    #[serde(default = "default_successful")]
    #[x_kube(validation = rule::integer(0, 100))]
    pub successful_runs_history_limit: u32,
    /// How many failed PerfRuns to keep: those that have failed, were cancelled, or have the verdict `Fail`.
    #[serde(default = "default_failed")]
    #[x_kube(validation = rule::integer(0, 100))]
    pub failed_runs_history_limit: u32,
    /// What runs. A change affects later runs only.
    pub run_template: RunTemplate,
}

/// What to do if a run is due while an earlier one has not ended.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum ConcurrencyPolicy {
    /// Create the run, unless three have not ended.
    #[default]
    Allow,
    /// Wait for the earlier one.
    Forbid,
    /// Delete the earlier one.
    Replace,
}

/// The PerfRuns of a schedule.
#[derive(Clone, Debug, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RunTemplate {
    /// Labels and annotations of each run.
    #[serde(default)]
    pub metadata: RunMetadata,
    /// The spec of each run, as in a PerfRun: `kubectl explain perfrun.spec` describes it.
    #[schemars(transform = adapt_to_new_runs)]
    pub spec: PerfRunSpec,
}

/// Labels and annotations of each run.
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RunMetadata {
    /// Labels to add to each run.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 64))]
    #[x_kube(validation = no_reserved_key())]
    pub labels: BTreeMap<String, String>,
    /// Annotations to add to each run.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 64))]
    #[x_kube(validation = no_reserved_key())]
    pub annotations: BTreeMap<String, String>,
}

/// State of a schedule, and what its runs found.
#[serde_with_macros::skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[schemars(transform = make_structural)]
#[serde(rename_all = "camelCase")]
pub struct PerfScheduleStatus {
    /// Generation of the spec that this status describes.
    pub observed_generation: Option<i64>,
    /// Runs that have not ended.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = strip_descriptions)]
    pub active: Vec<ObjectReference>,
    /// The moment for which the last run was created: when it was due.
    pub last_schedule_time: Option<Time>,
    /// The end of the last run that succeeded and whose verdict is not `Fail`.
    pub last_successful_time: Option<Time>,
    /// What the last 50 ended runs found, newest first. It outlives their PerfRuns.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<EndedRun>,
    /// Whether runs are created, and if not, why, in one word, for people: the reason of `Accepted` if no run
    /// can be created, otherwise that of `Scheduled`.
    pub reason: Option<String>,
    /// State of the schedule, for programs. The types are `Accepted`, which is true if runs can be created,
    /// and `Scheduled`. docs/reference/conditions.md of perfrun explains their reasons.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = strip_descriptions)]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
}

/// What a run of a schedule found.
#[serde_with_macros::skip_serializing_none]
#[derive(Clone, Debug, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EndedRun {
    /// Name of the PerfRun.
    pub name: String,
    /// When it was due.
    pub schedule_time: Time,
    /// When it ended.
    pub completion_time: Option<Time>,
    /// How it ended: `Succeeded`, `Failed` or `Cancelled`. A newer version may write others.
    #[serde(deserialize_with = "newer::name")]
    // Given a list of words, the API server would refuse every status with another one.
    #[schemars(with = "String")]
    pub phase: Phase,
    /// Whether what it expects holds: `Pass`, `Fail` or `Inconclusive`. Absent if it expects nothing. A
    /// newer version may write others.
    #[serde(default, deserialize_with = "newer::optional")]
    // As for the phase.
    #[schemars(with = "Option<String>")]
    pub verdict: Option<Verdict>,
    /// Seed of the random order of its trials, to repeat it in the same order.
    // Kubernetes has no unsigned format, and the signed one of this size has half of the numbers.
    #[schemars(with = "Option<i64>")]
    pub seed: Option<u32>,
    /// How it ended, in a sentence.
    pub message: String,
}

impl EndedRun {
    /// Whether the run counts as successful: it ran to its end, and nothing that it expects is broken. False
    /// as well if only a newer version knows.
    pub fn is_successful(&self) -> bool {
        self.phase == Phase::Succeeded && !matches!(self.verdict, Some(Verdict::Fail | Verdict::Newer(_)))
    }
}

impl PerfSchedule {
    /// The run that is due at a time.
    pub fn run(&self, due: Timestamp) -> PerfRun {
        let RunTemplate { metadata, spec } = self.spec.run_template.clone();
        let name = self.name_any();
        let mut labels = metadata.labels;
        labels.insert(SCHEDULE_LABEL.to_owned(), name.clone());
        PerfRun {
            metadata: ObjectMeta {
                name: Some(run_name(&name, due)),
                namespace: self.namespace(),
                labels: Some(labels),
                annotations: Some(metadata.annotations),
                owner_references: self.controller_owner_ref(&()).map(|owner| vec![owner]),
                ..ObjectMeta::default()
            },
            spec,
            status: None,
        }
    }
}

/// The name of the run of a schedule that is due at a time. It is the same for the same time, so that no run
/// is created twice.
pub fn run_name(schedule: &str, due: Timestamp) -> String {
    format!("{schedule}-{}", due.as_second().div_euclid(60))
}

/// When the run of a schedule with this name was due. `None` if [`run_name`] did not make the name.
pub fn due(schedule: &str, run: &str) -> Option<Timestamp> {
    let minutes: i64 = run.strip_prefix(schedule)?.strip_prefix('-')?.parse().ok()?;
    Timestamp::from_second(minutes.checked_mul(60)?).ok()
}

/// The syntax of a schedule as far as a rule can check it. [`Timetable`] checks the rest.
fn five_fields() -> Rule {
    Rule::new("self.matches('^(@(yearly|annually|monthly|weekly|daily|hourly)|[^ ]+( +[^ ]+){4})$')").message(
        "must have five fields separated by spaces, as in '30 3 * * 1-5', or be @hourly, @daily, @weekly, \
         @monthly or @yearly",
    )
}

/// Removes what does not concern a run that does not exist yet: descriptions, and rules about its change.
fn adapt_to_new_runs(schema: &mut Schema) {
    strip_descriptions(schema);
    if let Some(Value::Array(rules)) = schema.get_mut("x-kubernetes-validations") {
        rules.retain(|rule| !rule["rule"].as_str().is_some_and(|text| text.contains("oldSelf")));
    }
}

fn default_successful() -> u32 {
    3
}

fn default_failed() -> u32 {
    1
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::rule::evaluation::judges;

    #[test]
    fn a_schedule_has_five_fields_or_a_name() {
        let message = "must have five fields separated by spaces, as in '30 3 * * 1-5', or be @hourly, @daily, \
                       @weekly, @monthly or @yearly";
        judges(
            &five_fields(),
            &json!("*/15 0-6  * * MON"),
            &json!("0 3 * *"),
            message,
        );
        judges(&five_fields(), &json!("@daily"), &json!("@every 1h"), message);
        judges(
            &five_fields(),
            &json!("@hourly"),
            &json!("TZ=UTC 0 3 * * *"),
            message,
        );
    }

    #[test]
    fn runs_are_named_after_their_minute() {
        let time: Timestamp = "2026-11-26T03:30:00Z".parse().unwrap();
        let name = run_name("nightly", time);
        assert_eq!(name, "nightly-29927730");
        assert_eq!(due("nightly", &name), Some(time));
        assert_eq!(due("night", &name), None);
        assert_eq!(due("nightly", "nightly-by-hand"), None);
        let longest = run_name(&"n".repeat(NAME_MAX), Timestamp::MAX);
        assert!(longest.len() <= 63, "{longest}");
    }
}
