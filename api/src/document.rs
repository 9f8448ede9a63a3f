//! PerfRun documents as people write them: YAML (or JSON), one or several in a stream.

use serde_json::Value;
use thiserror::Error;

use crate::spec::PerfRun;

/// What is wrong with a document.
#[derive(Debug, Error)]
pub enum Error {
    /// Not YAML.
    #[error("unable to read the document: {0}")]
    Syntax(String),
    /// No document at all.
    #[error("the file has no document: a PerfRun begins with apiVersion: perfrun.io/v1alpha1, kind: PerfRun")]
    Empty,
    /// Something else than a PerfRun.
    #[error("document {index} is {found}, not a PerfRun of perfrun.io/v1alpha1")]
    Kind {
        /// Position in the stream, from 1.
        index: usize,
        /// What it is.
        found: String,
    },
    /// It does not fit the schema.
    #[error("{name}: {message}")]
    Schema {
        /// The document.
        name: String,
        /// Where and what.
        message: String,
    },
    /// Rules of the resource are broken.
    #[error("{name} is invalid:\n{}", list(.problems))]
    Invalid {
        /// The document.
        name: String,
        /// One sentence each, with the field's path.
        problems: Vec<String>,
    },
}

fn list(problems: &[String]) -> String {
    problems
        .iter()
        .map(|problem| format!("  - {problem}"))
        .collect::<Vec<_>>()
        .join("\n")
}

/// Reads and validates every document of a stream, by the rules and messages of the CRD.
pub fn parse(text: &str) -> Result<Vec<PerfRun>, Error> {
    let values: Vec<Value> =
        serde_saphyr::from_multiple(text).map_err(|error| Error::Syntax(error.to_string()))?;
    let runs = values
        .into_iter()
        .filter(|value| !value.is_null())
        .enumerate()
        .map(|(i, value)| read(i + 1, value))
        .collect::<Result<Vec<_>, _>>()?;
    if runs.is_empty() {
        Err(Error::Empty)
    } else {
        Ok(runs)
    }
}

fn read(index: usize, value: Value) -> Result<PerfRun, Error> {
    let text = |key: &str| {
        value
            .get(key)
            .and_then(Value::as_str)
            .unwrap_or("nothing")
            .to_owned()
    };
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    if (api_version.as_str(), kind.as_str()) != ("perfrun.io/v1alpha1", "PerfRun") {
        return Err(Error::Kind {
            index,
            found: format!("{kind} of {api_version}"),
        });
    }
    let name = value
        .pointer("/metadata/name")
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned();
    let label = if name.is_empty() {
        format!("document {index}")
    } else {
        format!("perfrun/{name}")
    };
    let mut problems = vec![];
    let run: PerfRun = serde_ignored::deserialize(value, |path| {
        let path = path.to_string();
        if path == "apiVersion" || path == "kind" {
            return; // checked above; the type carries them in itself
        }
        problems.push(format!(
            "{path}: unknown field: check the spelling, or the version of perfrun"
        ));
    })
    .map_err(|error| Error::Schema {
        name: label.clone(),
        message: error.to_string(),
    })?;
    if !is_name(&name) {
        problems.push(format!(
            "metadata.name: {name:?} is not a name: use 1 to 63 lower-case letters, digits and '-', \
             beginning and ending with a letter or digit"
        ));
    }
    problems.extend(broken_rules(&run));
    if problems.is_empty() {
        Ok(run)
    } else {
        Err(Error::Invalid {
            name: label,
            problems,
        })
    }
}

/// The rules of the resource that a document breaks, as the API server would say it.
pub fn broken_rules(run: &PerfRun) -> Vec<String> {
    let Err(errors) = run.validate_cel() else {
        return vec![];
    };
    errors
        .into_iter()
        .map(|error| format!("{}: {}", error.field_path, error.message))
        .collect()
}

/// A DNS label (RFC 1123): names of pods and services are made from it.
fn is_name(name: &str) -> bool {
    let inner = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit();
    let bytes = name.as_bytes();
    (1..=63).contains(&bytes.len())
        && bytes.iter().all(|&c| inner(c) || c == b'-')
        && inner(bytes[0])
        && inner(bytes[bytes.len() - 1])
}
