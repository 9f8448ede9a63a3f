//! A PerfRun as the operator watches it.
//!
//! The spec and the status are parsed separately. An object that this version cannot read must neither stop
//! other runs nor lose its status: a status that another version wrote may be the only place that names the
//! results.

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{
    Resource,
    core::{DeserializeGuard, ObjectMeta},
};
use perfrun_api::{
    cluster::condition,
    schedule::PerfSchedule,
    spec::{PerfRun, PerfRunSpec, PerfRunStatus},
};
use serde::{Deserialize, Deserializer, de::DeserializeOwned};
use serde_json::Value;

/// A schedule of any version. One that this version cannot read must not stop the others.
pub(crate) type WatchedSchedule = DeserializeGuard<PerfSchedule>;

/// A PerfRun of any version.
#[derive(Clone, Debug)]
pub(crate) enum WatchedRun {
    Readable(Box<PerfRun>),
    Unreadable(Box<UnreadableRun>),
}

/// A PerfRun whose spec or status this version cannot read.
#[derive(Clone, Debug)]
pub(crate) struct UnreadableRun {
    pub(crate) metadata: ObjectMeta,
    /// Conditions of the status, as far as they can be read.
    pub(crate) conditions: Vec<Condition>,
    pub(crate) part: Part,
    /// Why the part cannot be read.
    pub(crate) error: String,
}

/// The part of a PerfRun that cannot be read. `Spec` if neither can.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Part {
    Spec,
    Status,
}

impl WatchedRun {
    /// The run, if this version can read all of it.
    pub(crate) fn readable(&self) -> Option<&PerfRun> {
        match self {
            Self::Readable(run) => Some(run),
            Self::Unreadable(_) => None,
        }
    }
}

impl UnreadableRun {
    /// Whether the run has ended, according to the condition Complete.
    pub(crate) fn has_ended(&self) -> bool {
        condition::has_ended(&self.conditions)
    }
}

#[derive(Deserialize)]
struct Raw {
    metadata: ObjectMeta,
    #[serde(default)]
    spec: Value,
    #[serde(default)]
    status: Value,
}

impl<'de> Deserialize<'de> for WatchedRun {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Raw {
            mut metadata,
            spec,
            status,
        } = Raw::deserialize(deserializer)?;
        // Nobody reads them, and they can be larger than the rest of the object.
        metadata.managed_fields = None;
        let conditions = readable_conditions(&status);
        let unreadable = |metadata, part, error| {
            Self::Unreadable(Box::new(UnreadableRun {
                metadata,
                conditions,
                part,
                error,
            }))
        };
        let spec: PerfRunSpec = match parse(spec) {
            Ok(spec) => spec,
            Err(error) => return Ok(unreadable(metadata, Part::Spec, error)),
        };
        let status: Option<PerfRunStatus> = match parse(status) {
            Ok(status) => status,
            Err(error) => return Ok(unreadable(metadata, Part::Status, error)),
        };
        Ok(Self::Readable(Box::new(PerfRun {
            metadata,
            spec,
            status,
        })))
    }
}

fn parse<T: DeserializeOwned>(value: Value) -> Result<T, String> {
    serde_json::from_value(value).map_err(|error| error.to_string())
}

fn readable_conditions(status: &Value) -> Vec<Condition> {
    let conditions = status.get("conditions").and_then(Value::as_array);
    conditions
        .into_iter()
        .flatten()
        .filter_map(|condition| Condition::deserialize(condition).ok())
        .collect()
}

impl Resource for WatchedRun {
    type DynamicType = ();
    type Scope = <PerfRun as Resource>::Scope;

    fn kind((): &()) -> Cow<'_, str> {
        PerfRun::kind(&())
    }

    fn group((): &()) -> Cow<'_, str> {
        PerfRun::group(&())
    }

    fn version((): &()) -> Cow<'_, str> {
        PerfRun::version(&())
    }

    fn plural((): &()) -> Cow<'_, str> {
        PerfRun::plural(&())
    }

    fn meta(&self) -> &ObjectMeta {
        match self {
            Self::Readable(run) => run.meta(),
            Self::Unreadable(run) => &run.metadata,
        }
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        match self {
            Self::Readable(run) => run.meta_mut(),
            Self::Unreadable(run) => &mut run.metadata,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn watched(spec: Value, status: Value) -> WatchedRun {
        serde_json::from_value(json!({"metadata": {"name": "run"}, "spec": spec, "status": status})).unwrap()
    }

    fn unreadable(run: WatchedRun) -> UnreadableRun {
        match run {
            WatchedRun::Unreadable(run) => *run,
            WatchedRun::Readable(run) => panic!("{run:?}"),
        }
    }

    #[test]
    fn a_run_without_a_status_is_readable() {
        let run = watched(json!({"workload": {"ping": {}}}), Value::Null);
        assert_eq!(run.readable().unwrap().status, None);
    }

    fn complete() -> Value {
        json!({"type": "Complete", "status": "True", "reason": "Succeeded", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z"})
    }

    #[test]
    fn a_value_that_cannot_be_read_makes_only_the_status_unreadable() {
        for (phase, conditions, error) in [
            ("with blanks", json!([complete()]), "with blanks"),
            ("Succeeded", json!([complete(), {"type": 42}]), "42"),
        ] {
            let status = json!({"phase": phase, "conditions": conditions});
            let run = unreadable(watched(json!({"workload": {"ping": {}}}), status));
            assert_eq!((run.part, run.conditions.len()), (Part::Status, 1));
            assert!(run.has_ended());
            assert!(run.error.contains(error), "{}", run.error);
        }
    }

    #[test]
    fn names_of_a_newer_version_are_carried_through_a_status() {
        let row = json!({"cell": "a", "metric": "jitterP50", "unit": "seconds", "count": 1, "median": 1.0,
            "mean": 1.0, "min": 1.0, "max": 1.0, "flags": {"Overheated": 1, "Retried": 2}});
        let trials =
            json!({"total": 1, "completed": 1, "failed": 0, "skipped": 0, "notNeeded": 0, "progress": "1/1"});
        let comparison = json!({"baseline": "a", "candidate": "b", "metric": "jitterP50", "pairs": 40,
            "excludedPairs": 0, "failed": [0, 0], "tolerance": 0.5, "finding": "Doubtful"});
        let status = json!({"phase": "Hibernating", "trials": trials, "summary": [row], "verdict": "Doubtful",
                "comparisons": [comparison], "conditions": [complete()]});
        let run = watched(json!({"workload": {"ping": {}}}), status.clone());
        let read = run.readable().unwrap().status.as_ref().unwrap();
        assert_eq!(serde_json::to_value(read).unwrap(), status);
    }

    #[test]
    fn a_spec_of_another_version_is_reported_before_the_status() {
        let run = unreadable(watched(json!({"workload": 42}), json!({"phase": 42})));
        assert_eq!((run.part, run.has_ended()), (Part::Spec, false));
        assert_eq!(run.metadata.name.as_deref(), Some("run"));
    }
}
