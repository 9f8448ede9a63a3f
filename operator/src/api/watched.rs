//! PerfRuns, PerfSchedules and pods as the operator watches them.
//!
//! The spec and the status are parsed separately. An object that this version cannot read must neither stop
//! other runs nor lose its status: a status that another version wrote may be the only place that names the
//! results. Nothing is kept of a spec that is too large, nor of metadata that the operator does not use,
//! because all namespaces share its memory. If all specs together would take too much, what may be large is
//! left out of some.

mod pod;

use std::{borrow::Cow, sync::Arc};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, OwnerReference};
use kube::{
    Resource,
    core::{ObjectMeta, error_boundary::InvalidObject},
};
use perfrun_api::{
    bounded::{Bounded, SPEC_BYTES, size},
    cluster::{INCARNATION_LABEL, NODE_LABEL, RUN_LABEL, condition},
    schedule::{PerfSchedule, RunMetadata},
    spec::{PerfRun, PerfRunSpec, PerfRunStatus, Template},
};
use perfrun_contract::text;
use serde::{Deserialize, Deserializer, de::DeserializeOwned};
use serde_json::Value;
use tokio::sync::OwnedSemaphorePermit;

pub(crate) use self::pod::WatchedPod;

/// Most bytes of a status, which only operators write.
const STATUS_BYTES: usize = 1 << 20;

/// Labels that the operator reads. Of the watched objects, only pods have them.
const LABELS: [&str; 3] = [RUN_LABEL, NODE_LABEL, INCARNATION_LABEL];

/// Most owners of an object that are kept. Those that the operator makes have one.
const OWNERS_MAX: usize = 4;

/// Most bytes of an owner. The API server bounds no part of it.
const OWNER_BYTES: usize = 1 << 10;

/// How the API version of owners begins that the operator knows.
const API: &str = "perfrun.io/";

/// A schedule of any version. One that this version cannot read must not stop the others.
#[derive(Clone, Debug)]
pub(crate) struct WatchedSchedule(
    pub(crate) Result<PerfSchedule, InvalidObject>,
    pub(crate) LargeFields,
);

/// A PerfRun of any version.
#[derive(Clone, Debug)]
pub(crate) enum WatchedRun {
    Readable(Box<PerfRun>, LargeFields),
    Unreadable(Box<UnreadableRun>),
}

/// The fields of a spec that may be large, and that only pods need: the template, and environments and
/// commands of stacks. Of a schedule, they are those of its runs, and the metadata of these.
#[derive(Clone, Debug)]
pub(crate) enum LargeFields {
    /// They count this number of bytes, and no memory is reserved for them yet.
    Counted(usize),
    /// There is room for them.
    Kept { _room: Arc<OwnedSemaphorePermit> },
    /// There is no room for them: the spec lacks them.
    LeftOut,
}

/// A PerfRun whose spec or status this version cannot read.
#[derive(Clone, Debug)]
pub(crate) struct UnreadableRun {
    pub(crate) metadata: ObjectMeta,
    /// Conditions of the status, as far as they can be read.
    pub(crate) conditions: Vec<Condition>,
    pub(crate) field: UnreadableField,
    /// Why the field cannot be read.
    pub(crate) error: String,
}

/// The field of a PerfRun that cannot be read. `Spec` if neither can.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum UnreadableField {
    Spec,
    Status,
}

impl WatchedRun {
    /// The run, if this version can read all of it. Its spec may lack the [large fields](LargeFields).
    pub(crate) fn readable(&self) -> Option<&PerfRun> {
        match self {
            Self::Readable(run, _) => Some(run),
            Self::Unreadable(_) => None,
        }
    }

    /// Leaves the large fields out of the spec if there is no room for the number of bytes that they count.
    pub(crate) fn keep_within(&mut self, room: impl FnOnce(usize) -> Option<OwnedSemaphorePermit>) {
        if let Self::Readable(run, large) = self
            && !large.reserve_room(room)
        {
            leave_out(&mut run.spec);
        }
    }

    fn metadata(&self) -> &ObjectMeta {
        match self {
            Self::Readable(run, _) => &run.metadata,
            Self::Unreadable(run) => &run.metadata,
        }
    }

    fn metadata_mut(&mut self) -> &mut ObjectMeta {
        match self {
            Self::Readable(run, _) => &mut run.metadata,
            Self::Unreadable(run) => &mut run.metadata,
        }
    }
}

impl WatchedSchedule {
    /// Leaves the large fields out of the spec if there is no room for the number of bytes that they count.
    pub(crate) fn keep_within(&mut self, room: impl FnOnce(usize) -> Option<OwnedSemaphorePermit>) {
        if let Self(Ok(schedule), large) = self
            && !large.reserve_room(room)
        {
            schedule.spec.run_template.metadata = RunMetadata::default();
            leave_out(&mut schedule.spec.run_template.spec);
        }
    }

    fn metadata(&self) -> &ObjectMeta {
        match &self.0 {
            Ok(schedule) => &schedule.metadata,
            Err(invalid) => &invalid.metadata,
        }
    }

    fn metadata_mut(&mut self) -> &mut ObjectMeta {
        match &mut self.0 {
            Ok(schedule) => &mut schedule.metadata,
            Err(invalid) => &mut invalid.metadata,
        }
    }
}

impl LargeFields {
    /// The number of bytes that the large fields count in the spec of a run.
    fn of(spec: &Value) -> usize {
        let sizes = ["template", "stacks"].map(|field| spec.get(field).map_or(0, size));
        sizes.iter().sum()
    }

    /// Reserves room for the fields, unless that was tried before. Returns whether there is enough.
    fn reserve_room(&mut self, room: impl FnOnce(usize) -> Option<OwnedSemaphorePermit>) -> bool {
        if let Self::Counted(bytes) = *self {
            *self = match room(bytes) {
                Some(permit) => Self::Kept {
                    _room: Arc::new(permit),
                },
                None => Self::LeftOut,
            };
        }
        !matches!(self, Self::LeftOut)
    }
}

fn leave_out(spec: &mut PerfRunSpec) {
    spec.template = Template::default();
    for stack in &mut spec.stacks {
        stack.env.clear();
        stack.command = vec![];
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
    spec: Bounded<SPEC_BYTES>,
    #[serde(default)]
    status: Bounded<STATUS_BYTES>,
}

impl<'de> Deserialize<'de> for WatchedRun {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Raw {
            metadata,
            spec,
            status,
        } = Raw::deserialize(deserializer)?;
        let metadata = used(metadata);
        let conditions = readable_conditions(status.0.as_ref());
        let large = spec.0.as_ref().map_or(0, LargeFields::of);
        let unreadable = |metadata, field, error| {
            Self::Unreadable(Box::new(UnreadableRun {
                metadata,
                conditions,
                field,
                error,
            }))
        };
        let spec: PerfRunSpec = match parse(spec) {
            Ok(spec) => spec,
            Err(error) => return Ok(unreadable(metadata, UnreadableField::Spec, error)),
        };
        let status: Option<PerfRunStatus> = match parse(status) {
            Ok(status) => status,
            Err(error) => return Ok(unreadable(metadata, UnreadableField::Status, error)),
        };
        let run = PerfRun {
            metadata,
            spec,
            status,
        };
        Ok(Self::Readable(Box::new(run), LargeFields::Counted(large)))
    }
}

impl<'de> Deserialize<'de> for WatchedSchedule {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Raw {
            metadata,
            spec,
            status,
        } = Raw::deserialize(deserializer)?;
        let metadata = used(metadata);
        let template = spec.0.as_ref().and_then(|spec| spec.get("runTemplate"));
        let large = template.map_or(0, |run| size(&run["metadata"]) + LargeFields::of(&run["spec"]));
        let parsed = parse(spec).and_then(|spec| Ok((spec, parse(status)?)));
        let schedule = match parsed {
            Ok((spec, status)) => Ok(PerfSchedule {
                metadata,
                spec,
                status,
            }),
            Err(error) => Err(InvalidObject { error, metadata }),
        };
        Ok(Self(schedule, LargeFields::Counted(large)))
    }
}

fn parse<T: DeserializeOwned, const MOST: usize>(field: Bounded<MOST>) -> Result<T, String> {
    let value = field
        .0
        .ok_or_else(|| format!("it {}", Bounded::<MOST>::refusal()))?;
    serde_json::from_value(value).map_err(|error| text::message(&error.to_string()))
}

fn readable_conditions(status: Option<&Value>) -> Vec<Condition> {
    let conditions = status.and_then(|status| status.get("conditions")?.as_array());
    conditions
        .into_iter()
        .flatten()
        .filter_map(|condition| Condition::deserialize(condition).ok())
        .collect()
}

/// What the operator uses of metadata. Others write the rest, which may be larger than the object.
fn used(metadata: ObjectMeta) -> ObjectMeta {
    let is_used = |owner: &OwnerReference| {
        let OwnerReference {
            api_version,
            kind,
            name,
            uid,
            ..
        } = owner;
        let bytes: usize = [api_version, kind, name, uid].map(String::len).iter().sum();
        api_version.starts_with(API) && bytes <= OWNER_BYTES
    };
    let labels = metadata.labels.into_iter().flatten();
    let labels = labels.filter(|(key, _)| LABELS.contains(&key.as_str()));
    let owners = metadata.owner_references.into_iter().flatten();
    let owners = owners.filter(is_used).take(OWNERS_MAX);
    ObjectMeta {
        name: metadata.name,
        namespace: metadata.namespace,
        uid: metadata.uid,
        resource_version: metadata.resource_version,
        generation: metadata.generation,
        creation_timestamp: metadata.creation_timestamp,
        deletion_timestamp: metadata.deletion_timestamp,
        labels: Some(labels.collect()),
        owner_references: Some(owners.collect()),
        ..ObjectMeta::default()
    }
}

/// Implements `Resource` for a watched type by delegating to the type it wraps.
macro_rules! resource {
    ($watched:ty: $resource:ty) => {
        impl Resource for $watched {
            type DynamicType = ();
            type Scope = <$resource as Resource>::Scope;

            fn kind((): &()) -> Cow<'_, str> {
                <$resource as Resource>::kind(&())
            }

            fn group((): &()) -> Cow<'_, str> {
                <$resource as Resource>::group(&())
            }

            fn version((): &()) -> Cow<'_, str> {
                <$resource as Resource>::version(&())
            }

            fn plural((): &()) -> Cow<'_, str> {
                <$resource as Resource>::plural(&())
            }

            fn meta(&self) -> &ObjectMeta {
                self.metadata()
            }

            fn meta_mut(&mut self) -> &mut ObjectMeta {
                self.metadata_mut()
            }
        }
    };
}

pub(crate) use resource;

resource!(WatchedRun: PerfRun);
resource!(WatchedSchedule: PerfSchedule);

#[cfg(test)]
mod tests {
    use kube::core::WatchEvent;
    use serde_json::json;
    use tokio::sync::Semaphore;

    use super::*;

    fn watched(spec: Value, status: Value) -> WatchedRun {
        serde_json::from_value(json!({"metadata": {"name": "run"}, "spec": spec, "status": status})).unwrap()
    }

    fn unreadable(run: WatchedRun) -> UnreadableRun {
        match run {
            WatchedRun::Unreadable(run) => *run,
            WatchedRun::Readable(run, _) => panic!("{run:?}"),
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
            assert_eq!((run.field, run.conditions.len()), (UnreadableField::Status, 1));
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
        assert_eq!((run.field, run.has_ended()), (UnreadableField::Spec, false));
        assert_eq!(run.metadata.name.as_deref(), Some("run"));
    }

    #[test]
    fn a_spec_above_128_kib_is_refused_and_not_kept() {
        let large = json!({"workload": {"ping": {}}, "template": {"relay": {"tolerations": vec![json!({}); 40_000]}}});
        let run = unreadable(watched(large.clone(), json!({"conditions": [complete()]})));
        assert_eq!((run.field, run.has_ended()), (UnreadableField::Spec, true));
        assert_eq!(
            run.error,
            "it is larger than 128 KiB as JSON, where each value counts 8 bytes or more"
        );
        let template = json!({"spec": large});
        let schedule = json!({"metadata": {}, "spec": {"schedule": "@daily", "runTemplate": template}});
        let schedule: WatchedSchedule = serde_json::from_value(schedule).unwrap();
        assert_eq!(
            schedule.0.unwrap_err().error,
            "it is larger than 128 KiB as JSON, where each value counts 8 bytes or more"
        );
    }

    #[test]
    fn large_fields_of_a_spec_that_there_is_no_room_for_are_left_out() {
        let large = "x".repeat(1000);
        let template = json!({"client": {"nodeSelector": {"a": large}}});
        let stacks = json!([{"name": "mine", "stack": "libp2p", "env": {"A": large}, "command": [large]}]);
        let spec = json!({"workload": {"ping": {}}, "iterations": 7, "template": template, "stacks": stacks});
        let room = Arc::new(Semaphore::new(5000));
        let kept = || {
            let mut run = watched(spec.clone(), Value::Null);
            run.keep_within(|bytes| {
                let bytes = u32::try_from(bytes).unwrap();
                room.clone().try_acquire_many_owned(bytes).ok()
            });
            run
        };
        let has_all = |run: &WatchedRun| format!("{run:?}").matches(&large).count() == 3;
        let (first, second) = (kept(), kept());
        assert!(has_all(&first) && !format!("{second:?}").contains("xxx"));
        assert_eq!(second.readable().unwrap().spec.iterations, 7);
        drop(first);
        assert!(has_all(&kept()), "the room of the first is free");
    }

    #[test]
    fn an_annotation_on_a_running_run_does_not_make_it_unreadable() {
        let metadata = json!({"name": "run", "annotations": {"note": "x".repeat(256 << 10)}});
        let run = json!({"metadata": metadata, "spec": {"workload": {"ping": {}}}});
        let run: WatchedRun = serde_json::from_value(run).unwrap();
        assert!(run.readable().is_some());
        assert_eq!(run.metadata().annotations, None, "it is not kept");
    }

    #[test]
    fn an_event_is_read_whatever_the_order_of_its_fields() {
        let text = r#"{"object": {"spec": {"workload": {"ping": {}}}, "metadata": {"name": "run"}}, "type": "ADDED"}"#;
        match serde_json::from_str(text).unwrap() {
            WatchEvent::<WatchedRun>::Added(run) => assert!(run.readable().is_some()),
            other => panic!("{other:?}"),
        }
    }
}
