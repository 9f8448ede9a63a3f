//! PerfRun documents as people write them: YAML (or JSON), one or several in a stream.
//!
//! A document is refused for the same reasons as by the API server: first what does not fit the schema, then the
//! rules, by the schema and the rules of the CRD itself. What the CRD says in a sentence is said in the same sentence.

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

/// What is wrong with a document.
#[derive(Debug, Error)]
pub enum Error {
    /// Not YAML.
    #[error("unable to read the document: {0}")]
    Syntax(String),
    /// No document at all.
    #[error("the file has no document: a PerfRun begins with apiVersion: {API_VERSION}, kind: {KIND}")]
    Empty,
    /// Something else than a PerfRun.
    #[error("document {index} is not a {KIND} of {API_VERSION}: {found}")]
    Kind {
        /// Position in the stream, from 1.
        index: usize,
        /// What it is.
        found: String,
    },
    /// Fields are wrong, or rules of the resource are broken.
    #[error("{name} is invalid:\n{}", list(.problems))]
    Invalid {
        /// The document.
        name: String,
        /// The field's path and a sentence each.
        problems: Vec<Problem>,
    },
    /// Results could not be told apart.
    #[error("perfrun/{0} is twice in the file: every document needs a name of its own")]
    SameName(String),
}

/// What is wrong with one field.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Problem {
    /// The field, e.g. `spec.workload.bandwidth.sizes[1]`.
    pub path: String,
    /// What is wrong or what would be right.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.path.as_str() {
            // A rule about the document as a whole names the field itself.
            "" => f.write_str(&self.message),
            path => write!(f, "{path}: {}", self.message),
        }
    }
}

const API_VERSION: &str = "perfrun.io/v1alpha1";
const KIND: &str = "PerfRun";

fn list(problems: &[Problem]) -> String {
    problems
        .iter()
        .map(|problem| format!("  - {problem}"))
        .collect::<Vec<_>>()
        .join("\n")
}

/// Reads and validates every document of a stream, by the schema, rules and messages of the CRD.
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
        Some(twice) => Err(Error::SameName(twice)),
        None if runs.is_empty() => Err(Error::Empty),
        None => Ok(runs),
    }
}

/// The rules that a change of a PerfRun breaks.
pub fn broken_rules_of_change(old: &PerfRun, new: &PerfRun) -> Vec<Problem> {
    problems(new.validate_cel_update(old))
}

fn read(index: usize, mut value: Value) -> Result<PerfRun, Error> {
    if let Some(found) = other_kind(&value) {
        return Err(Error::Kind { index, found });
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
        let problem = Problem {
            path: String::new(),
            message: error.to_string(),
        };
        Error::Invalid {
            name: label,
            problems: vec![problem],
        }
    })
}

/// What a document is, if it is no PerfRun.
fn other_kind(value: &Value) -> Option<String> {
    let found = match value {
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
    Some(found)
}

fn misfits(value: &Value) -> Vec<Problem> {
    let mut problems = metadata_problems(&value["metadata"]);
    problems.extend(schema::misfits(&SCHEMA, value));
    problems
}

/// The CRD leaves the metadata to the API server, which knows them; here their type stands in for it.
fn metadata_problems(metadata: &Value) -> Vec<Problem> {
    if matches!(&metadata["name"], Value::Null) || metadata["name"] == "" {
        return vec![Problem {
            path: "metadata.name".into(),
            message: "is missing".into(),
        }];
    }
    let mut problems = vec![];
    let read: Result<ObjectMeta, _> = serde_ignored::deserialize(metadata, |path| {
        problems.push(Problem {
            path: format!("metadata.{path}"),
            message: "there is no such field".into(),
        });
    });
    problems.extend(read.err().map(|error| Problem {
        path: "metadata".into(),
        message: error.to_string(),
    }));
    problems
}

fn broken_rules(value: &Value) -> Vec<Problem> {
    problems(Validator::new().validate(&SCHEMA, value, None))
}

fn problems(verdict: Result<(), ValidationErrors>) -> Vec<Problem> {
    let errors = verdict.err().map(ValidationErrors::into_vec).unwrap_or_default();
    errors
        .into_iter()
        .map(|error| Problem {
            path: error.field_path,
            message: error.message,
        })
        .collect()
}

/// The schema of the CRD. Making it takes longer than reading a document.
static SCHEMA: LazyLock<Value> = LazyLock::new(|| {
    let crd = serde_json::to_value(PerfRun::crd()).expect("a CRD is JSON");
    crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"].clone()
});
