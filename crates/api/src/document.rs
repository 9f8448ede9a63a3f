//! PerfRun documents as people write them: YAML (or JSON), one or several in a stream.
//!
//! Documents are refused for the same reasons as by the API server, by the schema and the rules of the CRD
//! itself: first what does not fit the schema, then the rules. Messages of rules are those of the CRD.

mod schema;

use std::{collections::BTreeSet, fmt, sync::LazyLock};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{
    CustomResourceExt, ResourceExt,
    core::cel::{ValidationErrors, Validator},
};
use serde_json::Value;
use serde_saphyr::UserMessageFormatter;
use thiserror::Error;

use crate::spec::PerfRun;

/// Why a document is refused.
#[derive(Debug, Error)]
pub enum Error {
    /// The text is not YAML.
    #[error("unable to read the document: {0}")]
    Syntax(String),
    /// The text holds no document.
    #[error("the file has no document: a PerfRun begins with apiVersion: {API_VERSION}, kind: {KIND}")]
    Empty,
    /// The document is not a PerfRun.
    #[error("document {index} is not a {KIND} of {API_VERSION}: {actual}")]
    Kind {
        /// Position in the stream, from 1.
        index: usize,
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
    /// Two documents have one name, so that their results would be mixed up.
    #[error("perfrun/{0} appears twice in the file: give every document its own name")]
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
const KIND: &str = "PerfRun";

fn list(problems: &[FieldProblem]) -> String {
    problems
        .iter()
        .map(|problem| format!("  - {problem}"))
        .collect::<Vec<_>>()
        .join("\n")
}

/// Reads and validates every document of a stream.
pub fn parse(text: &str) -> Result<Vec<PerfRun>, Error> {
    let values: Vec<Value> = serde_saphyr::from_multiple(text)
        .map_err(|error| Error::Syntax(error.render_with_formatter(&UserMessageFormatter)))?;
    let runs = values
        .into_iter()
        .enumerate()
        .filter(|(_, value)| !value.is_null())
        .map(|(i, value)| read(i + 1, value))
        .collect::<Result<Vec<_>, _>>()?;
    let mut names = BTreeSet::new();
    match runs
        .iter()
        .map(ResourceExt::name_any)
        .find(|name| !names.insert(name.clone()))
    {
        Some(name) => Err(Error::SameName(name)),
        None if runs.is_empty() => Err(Error::Empty),
        None => Ok(runs),
    }
}

/// The rules that a change from `old` to `new` breaks.
pub fn broken_rules_of_change(old: &PerfRun, new: &PerfRun) -> Vec<FieldProblem> {
    problems(new.validate_cel_update(old))
}

fn read(index: usize, mut value: Value) -> Result<PerfRun, Error> {
    if let Some(actual) = other_kind(&value) {
        return Err(Error::Kind { index, actual });
    }
    let label = match value.pointer("/metadata/name").and_then(Value::as_str) {
        None | Some("") => format!("document {index}"),
        Some(name) => format!("perfrun/{name}"),
    };
    schema::complete(&SCHEMA, &mut value);
    let problems = misfits(&value);
    let problems = if problems.is_empty() {
        broken_rules(&value)
    } else {
        problems
    };
    if !problems.is_empty() {
        return Err(Error::Invalid {
            name: label,
            problems,
        });
    }
    serde_json::from_value(value).map_err(|error| {
        let problem = FieldProblem {
            path: String::new(),
            message: error.to_string(),
        };
        Error::Invalid {
            name: label,
            problems: vec![problem],
        }
    })
}

/// What a document is, if it is not a PerfRun.
fn other_kind(value: &Value) -> Option<String> {
    let actual = match value {
        Value::Object(fields) => {
            match ["apiVersion", "kind"].map(|key| fields.get(key).and_then(Value::as_str)) {
                [Some(API_VERSION), Some(KIND)] => return None,
                [Some(version), Some(kind)] => format!("it is a {kind} of {version}"),
                [None, _] => "it has no apiVersion".to_owned(),
                [_, None] => "it has no kind".to_owned(),
            }
        }
        Value::Array(_) => "it is a list".to_owned(),
        _ => "it is a single value".to_owned(),
    };
    Some(actual)
}

fn misfits(value: &Value) -> Vec<FieldProblem> {
    let mut problems = metadata_problems(&value["metadata"]);
    problems.extend(schema::misfits(&SCHEMA, value));
    problems
}

/// The schema of the CRD does not cover metadata, which the API server checks itself. Here their type does
/// it.
fn metadata_problems(metadata: &Value) -> Vec<FieldProblem> {
    if matches!(&metadata["name"], Value::Null) || metadata["name"] == "" {
        return vec![FieldProblem {
            path: "metadata.name".into(),
            message: "is missing".into(),
        }];
    }
    let mut problems = vec![];
    let read: Result<ObjectMeta, _> = serde_ignored::deserialize(metadata, |path| {
        problems.push(FieldProblem {
            path: format!("metadata.{path}"),
            message: "unknown field".into(),
        });
    });
    problems.extend(read.err().map(|error| FieldProblem {
        path: "metadata".into(),
        message: error.to_string(),
    }));
    problems
}

fn broken_rules(value: &Value) -> Vec<FieldProblem> {
    problems(Validator::new().validate(&SCHEMA, value, None))
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

/// The schema of the CRD. Generating it takes longer than reading a document.
static SCHEMA: LazyLock<Value> = LazyLock::new(|| {
    let crd = serde_json::to_value(PerfRun::crd()).expect("a CRD is JSON");
    crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"].clone()
});
