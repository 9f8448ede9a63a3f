//! Documents as people write them: YAML (or JSON), one or several in a stream.
//!
//! Documents are refused for the same reasons as by the API server, by the schema and the rules of the CRD
//! itself: first what does not fit the schema, then the rules. Messages of rules are those of the CRD.

mod comparison;
mod schema;

use std::{borrow::Cow, collections::BTreeSet, fmt, slice::from_ref, sync::LazyLock};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{
    CustomResourceExt, Resource,
    core::cel::{ValidationErrors, Validator},
};
use schemars::generate::SchemaSettings;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;
use serde_saphyr::UserMessageFormatter;
use thiserror::Error;

pub use self::comparison::{BASE, CANDIDATE, ComparedSides, ComparisonOverride};
use crate::{
    bounded::{Bounded, SPEC_BYTES},
    nearest::did_you_mean,
    schedule::PerfSchedule,
    spec::{PerfRun, PerfRunSpec},
};

/// Why a document is refused.
#[derive(Debug, Error)]
pub enum Error {
    /// The text is not YAML.
    #[error("unable to read the document: {0}")]
    Syntax(String),
    /// The text holds no document.
    #[error("the file has no document: a PerfRun begins with apiVersion: {API_VERSION}, kind: PerfRun")]
    Empty,
    /// The document is of another kind.
    #[error("document {index} is {} of {API_VERSION}: {actual}", none_of(.kinds))]
    Kind {
        /// Position in the stream, from 1.
        index: usize,
        /// What it should be: one of these.
        kinds: Vec<Cow<'static, str>>,
        /// What it is instead.
        actual: String,
    },
    /// Fields do not fit the schema, or break rules of the resource.
    #[error("{name} is invalid:\n{}", list(.problems))]
    Invalid {
        /// The document: its name, or its position without one.
        name: String,
        /// A path and a message for each problem.
        problems: Vec<FieldProblem>,
    },
    /// The document cannot become what [`ComparisonOverride`] says.
    #[error("{name}: {reason}")]
    Change {
        /// The document, likewise.
        name: String,
        /// Why.
        reason: String,
    },
    /// Two documents have one name, so that their results would be mixed up.
    #[error("{0} appears twice in the file: give every document its own name")]
    SameName(String),
}

/// A field with a mistake.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct FieldProblem {
    /// Path of the field, e.g. `spec.workload.bandwidth.sizes[1]`; empty if the message names the field.
    pub path: String,
    /// What is wrong, or what would be right.
    pub message: String,
}

impl fmt::Display for FieldProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.path.as_str() {
            // A rule about the whole document names the field itself.
            "" => f.write_str(&self.message),
            path => write!(f, "{path}: {}", self.message),
        }
    }
}

const API_VERSION: &str = "perfrun.io/v1alpha1";

/// Most values that aliases of YAML may repeat in a file. Its few KiB could otherwise become 100 MB.
const REPEATED_MAX: usize = 1 << 16;

fn none_of(kinds: &[Cow<'static, str>]) -> String {
    match kinds {
        [kind] => format!("not a {kind}"),
        _ => format!("neither a {}", kinds.join(" nor a ")),
    }
}

fn list(problems: &[FieldProblem]) -> String {
    problems
        .iter()
        .map(|problem| format!("  - {problem}"))
        .collect::<Vec<_>>()
        .join("\n")
}

/// A document of either kind.
#[derive(Clone, Debug, PartialEq)]
pub enum Document {
    /// A run.
    Run(Box<PerfRun>),
    /// A schedule of runs.
    Schedule(Box<PerfSchedule>),
}

/// Reads and validates every document of a stream of PerfRuns.
pub fn parse(text: &str) -> Result<Vec<PerfRun>, Error> {
    stream(text, |index, value| read(index, value, &RUN_SCHEMA))
}

/// Reads every document of a stream of PerfRuns, changes it, and then judges by the rules what it has become.
pub fn parse_compared(text: &str, comparison: &ComparisonOverride) -> Result<Vec<PerfRun>, Error> {
    let mut runs = stream(text, |index, value| {
        let mut document = SchemaValid::of::<PerfRun>(index, value, &RUN_SCHEMA)?;
        let Ok(mut spec) = PerfRunSpec::deserialize(&document.value["spec"]) else {
            // A value that no type can hold breaks a rule, which says what is right.
            return document.check_rules(&RUN_SCHEMA);
        };
        let before = spec.clone();
        comparison.apply(&mut spec).map_err(|reason| Error::Change {
            name: document.label.clone(),
            reason,
        })?;
        if spec == before {
            return document.check_rules(&RUN_SCHEMA);
        }
        document.value["spec"] = serde_json::to_value(&spec).expect("a spec is JSON");
        let changed = SchemaValid::of::<PerfRun>(index, document.value, &RUN_SCHEMA)?;
        let empty = document.empty;
        SchemaValid { empty, ..changed }.check_rules(&RUN_SCHEMA)
    })?;
    runs.iter_mut().for_each(|run| comparison.name(run));
    Ok(runs)
}

/// Reads and validates every document of a stream of PerfSchedules.
pub fn parse_schedules(text: &str) -> Result<Vec<PerfSchedule>, Error> {
    stream(text, |index, value| read(index, value, &SCHEDULE_SCHEMA))
}

/// Reads and validates every document of a stream of PerfRuns and PerfSchedules.
pub fn parse_any(text: &str) -> Result<Vec<Document>, Error> {
    stream(text, |index, value| {
        check_kind(index, &value, &kinds())?;
        if value["kind"] == *PerfSchedule::kind(&()) {
            let (label, schedule) = read(index, value, &SCHEDULE_SCHEMA)?;
            Ok((label, Document::Schedule(Box::new(schedule))))
        } else {
            let (label, run) = read(index, value, &RUN_SCHEMA)?;
            Ok((label, Document::Run(Box::new(run))))
        }
    })
}

/// Reads every document of a stream by `read`, which also returns its label.
fn stream<T>(text: &str, read: impl Fn(usize, Value) -> Result<(String, T), Error>) -> Result<Vec<T>, Error> {
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! { max_recorded_anchor_events: REPEATED_MAX },
        alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: REPEATED_MAX },
    };
    let values: Vec<Value> = serde_saphyr::from_multiple_with_options(text, options).map_err(|error| {
        let message = error.render_with_formatter(&UserMessageFormatter);
        Error::Syntax(message.strip_prefix("error: ").unwrap_or(&message).to_owned())
    })?;
    let documents = values
        .into_iter()
        .enumerate()
        .filter(|(_, value)| !value.is_null())
        .map(|(i, value)| read(i + 1, value))
        .collect::<Result<Vec<_>, _>>()?;
    let mut labels = BTreeSet::new();
    match documents.iter().find(|(label, _)| !labels.insert(label)) {
        Some((label, _)) => Err(Error::SameName(label.clone())),
        None if documents.is_empty() => Err(Error::Empty),
        None => Ok(documents.into_iter().map(|(_, document)| document).collect()),
    }
}

/// The rules that a change from `old` to `new` breaks.
pub fn broken_rules_of_change(old: &PerfRun, new: &PerfRun) -> Vec<FieldProblem> {
    problems(new.validate_cel_update(old))
}

/// A document, and what it is called in messages, e.g. `perfrun/quickstart`.
fn read<K>(index: usize, value: Value, schema: &Value) -> Result<(String, K), Error>
where
    K: Resource<DynamicType = ()> + DeserializeOwned,
{
    SchemaValid::of::<K>(index, value, schema)?.check_rules(schema)
}

/// A document that fits the schema.
struct SchemaValid {
    /// What it is called in messages.
    label: String,
    /// With its defaults.
    value: Value,
    /// Its fields without a value: the path of their object, and their name.
    empty: Vec<(String, String)>,
}

impl SchemaValid {
    fn of<K>(index: usize, mut value: Value, schema: &Value) -> Result<Self, Error>
    where
        K: Resource<DynamicType = ()>,
    {
        let kind = K::kind(&());
        check_kind(index, &value, from_ref(&kind))?;
        let label = match value.pointer("/metadata/name").and_then(Value::as_str) {
            None | Some("") => format!("document {index}"),
            Some(name) => format!("{}/{name}", kind.to_lowercase()),
        };
        let mut empty = vec![];
        schema::find_fields_without_value(schema, &value, "", &mut empty);
        schema::complete(schema, &mut value);
        refuse_if_any(&label, schema_violations(&value, schema))?;
        Ok(Self { label, value, empty })
    }

    /// The label and the document, if it also obeys the rules.
    fn check_rules<K: DeserializeOwned>(self, schema: &Value) -> Result<(String, K), Error> {
        let Self { label, value, empty } = self;
        let mut problems = broken_rules(&value, schema);
        for problem in &mut problems {
            for (_, name) in empty.iter().filter(|(object, _)| *object == problem.path) {
                problem.message += &format!("; {name} has no value: write {name}: {{}}");
            }
        }
        refuse_if_any(&label, problems)?;
        match serde_json::from_value(value) {
            Ok(document) => Ok((label, document)),
            Err(error) => {
                let problem = FieldProblem {
                    path: String::new(),
                    message: error.to_string(),
                };
                Err(Error::Invalid {
                    name: label,
                    problems: vec![problem],
                })
            }
        }
    }
}

/// Refuses a document that has problems.
fn refuse_if_any(name: &str, problems: Vec<FieldProblem>) -> Result<(), Error> {
    match problems.is_empty() {
        true => Ok(()),
        false => Err(Error::Invalid {
            name: name.to_owned(),
            problems,
        }),
    }
}

/// All kinds of this API version.
fn kinds() -> [Cow<'static, str>; 2] {
    [PerfRun::kind(&()), PerfSchedule::kind(&())]
}

/// Refuses a document that is of none of the expected kinds.
fn check_kind(index: usize, value: &Value, expected: &[Cow<'static, str>]) -> Result<(), Error> {
    match other_kind(value, expected) {
        None => Ok(()),
        Some(actual) => Err(Error::Kind {
            index,
            kinds: expected.to_vec(),
            actual,
        }),
    }
}

/// What a document is, if it is of none of the expected kinds.
fn other_kind(value: &Value, expected: &[Cow<'static, str>]) -> Option<String> {
    let known = kinds();
    let is_expected = |kind: &str| expected.iter().any(|one| one == kind);
    let is_known = |kind: &str| known.iter().any(|one| one == kind);
    let actual = match value {
        Value::Object(fields) => {
            match ["apiVersion", "kind"].map(|key| fields.get(key).and_then(Value::as_str)) {
                [Some(API_VERSION), Some(kind)] if is_expected(kind) => return None,
                [Some(API_VERSION), Some(kind)] if !is_known(kind) => {
                    format!(
                        "it is a {kind}{}",
                        did_you_mean(kind, known.iter().map(AsRef::as_ref))
                    )
                }
                [Some(API_VERSION), Some(kind)] if kind == PerfSchedule::kind(&()) => {
                    format!("it is a {kind}, which a cluster runs: apply it with `kubectl apply -f FILE`")
                }
                [Some(version), Some(kind)] => {
                    let right = match is_expected(kind) {
                        true => kind.to_owned(),
                        false => expected.join(" or "),
                    };
                    format!("it is a {kind} of {version}: write apiVersion: {API_VERSION} and kind: {right}")
                }
                [None, _] => "it has no apiVersion".to_owned(),
                [_, None] => "it has no kind".to_owned(),
            }
        }
        Value::Array(_) => "it is a list".to_owned(),
        _ => "it is a single value".to_owned(),
    };
    Some(actual)
}

fn schema_violations(value: &Value, schema: &Value) -> Vec<FieldProblem> {
    // The operator of a cluster would not keep it.
    if let Ok(Bounded::<SPEC_BYTES>(None)) = Bounded::deserialize(&value["spec"]) {
        return vec![FieldProblem {
            path: "spec".to_owned(),
            message: Bounded::<SPEC_BYTES>::refusal(),
        }];
    }
    let mut problems = metadata_problems(&value["metadata"]);
    problems.extend(schema::schema_violations(schema, value));
    problems
}

/// The schema of the CRD does not cover metadata, which the API server checks itself.
fn metadata_problems(metadata: &Value) -> Vec<FieldProblem> {
    let is_nameless = metadata["name"].is_null() || metadata["name"] == "";
    if metadata.is_null() || (metadata.is_object() && is_nameless) {
        return vec![FieldProblem {
            path: "metadata.name".into(),
            message: "is missing".into(),
        }];
    }
    schema::metadata_violations(&METADATA_SCHEMA, metadata)
}

/// The rules that a document breaks. To messages that say what is right, the value is added if it is a string
/// or a number. Those that say what a value must not be say what it is.
fn broken_rules(value: &Value, schema: &Value) -> Vec<FieldProblem> {
    let mut problems = problems(Validator::new().validate(schema, value, None));
    for problem in &mut problems {
        let pointer = problem.path.replace(['.', '['], "/").replace(']', "");
        let found = value.pointer(&format!("/{pointer}"));
        if let Some(found) = found.filter(|found| found.is_string() || found.is_number())
            && !problem.message.starts_with("must not ")
        {
            problem.message += &format!("; it is {found}");
        }
    }
    problems
}

fn problems(result: Result<(), ValidationErrors>) -> Vec<FieldProblem> {
    let errors = result.err().map(ValidationErrors::into_vec).unwrap_or_default();
    errors
        .into_iter()
        .map(|error| FieldProblem {
            path: error.field_path,
            message: error.message,
        })
        .collect()
}

/// The schemas of the CRDs. Generating one takes longer than reading a document.
static RUN_SCHEMA: LazyLock<Value> = LazyLock::new(schema_of::<PerfRun>);
static SCHEDULE_SCHEMA: LazyLock<Value> = LazyLock::new(schema_of::<PerfSchedule>);
/// The schema of metadata.
static METADATA_SCHEMA: LazyLock<Value> = LazyLock::new(|| {
    let settings = SchemaSettings::default().with(|settings| settings.inline_subschemas = true);
    settings
        .into_generator()
        .into_root_schema_for::<ObjectMeta>()
        .into()
});

fn schema_of<K: CustomResourceExt>() -> Value {
    let crd = serde_json::to_value(K::crd()).expect("a CRD is JSON");
    crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"].clone()
}
