//! Checks a document against the schema of a CRD, as the API server does before it evaluates rules.

use serde_json::{Map, Number, Value};

use super::FieldProblem;
use crate::{nearest::did_you_mean, rule::right};

/// The most alternatives of a value that a reader scans. Beyond them, a message names the nearest.
const SCANNED_MAX: usize = 8;

/// Fills in defaults as the API server does: for fields that are missing or `null`.
pub(super) fn complete(schema: &Value, value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, value| !value.is_null());
            for (name, property) in properties(schema) {
                if let (false, Some(default)) = (fields.contains_key(name), property.get("default")) {
                    fields.insert(name.clone(), default.clone());
                }
            }
            for (name, value) in fields {
                complete(property(schema, name).unwrap_or(&Value::Null), value);
            }
        }
        Value::Array(items) => {
            for item in items {
                complete(&schema["items"], item);
            }
        }
        _ => {}
    }
}

/// Finds the names of fields that a document writes without a value, and that would be objects, each with the
/// path of the object that it is in. Such a field counts as left out.
pub(super) fn find_fields_without_value(
    schema: &Value,
    value: &Value,
    path: &str,
    found: &mut Vec<(String, String)>,
) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let schema = property(schema, name).unwrap_or(&Value::Null);
                if value.is_null() && schema["type"] == "object" {
                    found.push((path.to_owned(), name.clone()));
                }
                let path = if path.is_empty() {
                    name.clone()
                } else {
                    format!("{path}.{name}")
                };
                find_fields_without_value(schema, value, &path, found);
            }
        }
        Value::Array(items) => {
            for (i, item) in items.iter().enumerate() {
                find_fields_without_value(&schema["items"], item, &format!("{path}[{i}]"), found);
            }
        }
        _ => {}
    }
}

/// The places where metadata do not fit their schema.
pub(super) fn metadata_violations(schema: &Value, metadata: &Value) -> Vec<FieldProblem> {
    let mut schema_violations = SchemaViolations(vec![]);
    schema_violations.check_value(schema, metadata, "metadata");
    schema_violations.0
}

/// The places where a document does not fit the schema.
pub(super) fn schema_violations(schema: &Value, value: &Value) -> Vec<FieldProblem> {
    let mut schema_violations = SchemaViolations(vec![]);
    let rest = ["apiVersion", "kind", "metadata"];
    for (name, value) in value.as_object().into_iter().flatten() {
        if !rest.contains(&name.as_str()) {
            schema_violations.check_field(schema, name, value, name.clone());
        }
    }
    schema_violations.check_required(schema, value, "");
    schema_violations.0
}

struct SchemaViolations(Vec<FieldProblem>);

impl SchemaViolations {
    fn add(&mut self, path: &str, message: impl Into<String>) {
        self.0.push(FieldProblem {
            path: path.to_owned(),
            message: message.into(),
        });
    }

    fn check_field(&mut self, parent: &Value, name: &str, value: &Value, path: String) {
        match property(parent, name) {
            Some(schema) => self.check_value(schema, value, &path),
            None if holds_anything(parent) => {}
            None => {
                let known = properties(parent).map(|(known, _)| known.as_str());
                self.add(&path, format!("unknown field{}", did_you_mean(name, known)));
            }
        }
    }

    fn check_value(&mut self, schema: &Value, value: &Value, path: &str) {
        if let Some(expected) = expected(schema).filter(|expected| !expected.fits(value)) {
            return self.add(path, unexpected(schema, &expected, value));
        }
        match value {
            Value::Object(fields) => {
                self.check_size(
                    schema,
                    fields.len(),
                    ["minProperties", "maxProperties"],
                    "entries",
                    path,
                );
                self.check_required(schema, value, path);
                for (name, value) in fields {
                    self.check_field(schema, name, value, format!("{path}.{name}"));
                }
            }
            Value::Array(items) => {
                self.check_size(schema, items.len(), ["minItems", "maxItems"], "entries", path);
                for (i, item) in items.iter().enumerate() {
                    self.check_value(&schema["items"], item, &format!("{path}[{i}]"));
                }
            }
            Value::String(text) => {
                self.check_size(
                    schema,
                    text.chars().count(),
                    ["minLength", "maxLength"],
                    "characters",
                    path,
                );
                self.check_one_of(schema, text, path);
                if text.contains('\0') {
                    self.add(path, "must not have the character NUL");
                }
            }
            Value::Number(number) => {
                if schema["format"] == "int32" && number.as_i64().is_none_or(|n| i32::try_from(n).is_err()) {
                    self.add(path, format!("{number} is out of range"));
                }
                self.check_range(schema, number, path);
            }
            Value::Null | Value::Bool(_) => {}
        }
    }

    fn check_range(&mut self, schema: &Value, number: &Number, path: &str) {
        let Some(value) = number.as_f64() else { return };
        if let Some(least) = schema["minimum"].as_f64().filter(|least| value < *least) {
            self.add(path, format!("must be at least {least}, not {number}"));
        }
        if let Some(most) = schema["maximum"].as_f64().filter(|most| value > *most) {
            self.add(path, format!("must be at most {most}, not {number}"));
        }
    }

    fn check_size(&mut self, schema: &Value, size: usize, [least, most]: [&str; 2], of: &str, path: &str) {
        let bound = |keyword: &str| {
            schema[keyword]
                .as_u64()
                .and_then(|bound| usize::try_from(bound).ok())
        };
        if let Some(least) = bound(least).filter(|least| size < *least) {
            self.add(path, format!("must have at least {least} {of}, not {size}"));
        }
        if let Some(most) = bound(most).filter(|most| size > *most) {
            self.add(path, format!("must have at most {most} {of}, not {size}"));
        }
    }

    fn check_required(&mut self, schema: &Value, value: &Value, path: &str) {
        let names = schema["required"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str);
        for name in names.filter(|name| value.get(name).is_none()) {
            self.add(
                &if path.is_empty() {
                    name.to_owned()
                } else {
                    format!("{path}.{name}")
                },
                match advice(name, property(schema, name).unwrap_or(&Value::Null)) {
                    Some(advice) => format!("is missing: {advice}"),
                    None => "is missing".to_owned(),
                },
            );
        }
    }

    fn check_one_of(&mut self, schema: &Value, text: &str, path: &str) {
        if let Some(names) = names(schema).filter(|names| !names.contains(&text)) {
            let meant = match names.len() {
                ..=SCANNED_MAX => String::new(),
                _ => did_you_mean(text, names.iter().copied()),
            };
            self.add(
                path,
                format!("must be {}, not {text:?}{meant}", alternatives(&names)),
            );
        }
    }
}

/// The kind of value that a schema allows.
#[derive(strum::Display)]
enum Expected {
    #[strum(serialize = "an object")]
    Object,
    #[strum(serialize = "a list")]
    List,
    #[strum(serialize = "a string")]
    Text,
    #[strum(serialize = "a whole number")]
    Integer,
    #[strum(serialize = "a number")]
    Number,
    #[strum(serialize = "true or false")]
    Boolean,
    #[strum(serialize = "a whole number or a string")]
    IntegerOrText,
}

fn expected(schema: &Value) -> Option<Expected> {
    if schema["x-kubernetes-int-or-string"] == true {
        return Some(Expected::IntegerOrText);
    }
    Some(match schema["type"].as_str()? {
        "object" => Expected::Object,
        "array" => Expected::List,
        "string" => Expected::Text,
        "integer" => Expected::Integer,
        "number" => Expected::Number,
        "boolean" => Expected::Boolean,
        _ => return None,
    })
}

impl Expected {
    fn fits(&self, value: &Value) -> bool {
        match self {
            Self::Object => value.is_object(),
            Self::List => value.is_array(),
            Self::Text => value.is_string(),
            Self::Integer => value.is_i64() || value.is_u64(),
            Self::Number => value.is_number(),
            Self::Boolean => value.is_boolean(),
            Self::IntegerOrText => value.is_string() || value.is_i64() || value.is_u64(),
        }
    }
}

/// What is wrong with a value of the wrong kind. YAML reads `no`, `0100` and `1e2` as other values than
/// people mean, so the message says what was read, and how to write what is meant.
fn unexpected(schema: &Value, expected: &Expected, value: &Value) -> String {
    let read = described(value);
    let form = right(&schema["x-kubernetes-validations"][0]);
    match (expected, value) {
        (Expected::Text, Value::Bool(_) | Value::Number(_)) => match (form, names(schema)) {
            // Quotes make a name of `no`, but no rate and no time.
            (Some(form), _) if value.is_boolean() && !form.contains("written as") => {
                format!("{form}; it is read as {read}: write it in quotes")
            }
            (Some(form), _) => format!("{form}; it is {read}"),
            (None, Some(names)) => format!("must be {}, not {read}", alternatives(&names)),
            (None, None) => format!("must be a string, but is read as {read}: write it in quotes"),
        },
        (Expected::IntegerOrText, Value::Bool(_) | Value::Number(_)) if let Some(form) = form => {
            format!("{form}; it is {read}")
        }
        (Expected::Integer, Value::Number(number)) if let Some(whole) = whole(number) => {
            format!("must be a whole number, but is read as {read}: write {whole}")
        }
        _ => format!("must be {expected}, not {read}"),
    }
}

/// What to write in a field that is missing. `None` if its schema does not say it in a few words.
fn advice(name: &str, schema: &Value) -> Option<String> {
    let form = |schema: &Value| right(&schema["x-kubernetes-validations"][0]).map(str::to_owned);
    let workload = match name {
        "workload" => Some(schema),
        "spec" => schema["properties"].get("workload"),
        _ => None,
    };
    if let Some(workload) = workload {
        let form = form(workload)?;
        return Some(format!(
            "{form}; `perfrun new WORKLOAD` prints a document for each of them"
        ));
    }
    match (schema["type"].as_str()?, names(schema)) {
        ("string", Some(names)) if names.len() <= SCANNED_MAX => {
            Some(format!("must be {}", alternatives(&names)))
        }
        ("string", None) => form(schema),
        _ => None,
    }
}

/// The value of a number that is whole, although it was not read as such.
fn whole(number: &Number) -> Option<i64> {
    let value = number.as_f64().filter(|value| value.fract() == 0.0)?;
    (value.abs() < 1e15).then_some(value as i64)
}

/// The only strings that a schema allows.
fn names(schema: &Value) -> Option<Vec<&str>> {
    let names = schema["enum"].as_array()?;
    Some(names.iter().filter_map(Value::as_str).collect())
}

fn described(value: &Value) -> String {
    match value {
        Value::Null => "nothing".to_owned(),
        Value::Bool(_) => value.to_string(),
        Value::Number(_) => format!("the number {value}"),
        Value::String(_) => format!("the string {value}"),
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "an object".to_owned(),
    }
}

fn alternatives(values: &[&str]) -> String {
    match values {
        [others @ .., last] if !others.is_empty() => format!("{} or {last}", others.join(", ")),
        _ => values.concat(),
    }
}

fn properties(schema: &Value) -> impl Iterator<Item = (&String, &Value)> {
    schema["properties"].as_object().into_iter().flat_map(Map::iter)
}

/// Whether an object may have fields that the schema does not know, such as those that Kubernetes keeps in
/// metadata for itself.
fn holds_anything(schema: &Value) -> bool {
    schema["type"] == "object" && schema.get("properties").is_none()
}

/// The schema of a field: a property, or an entry of a map.
fn property<'a>(schema: &'a Value, name: &str) -> Option<&'a Value> {
    schema["properties"]
        .get(name)
        .or_else(|| schema.get("additionalProperties"))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Keywords that [`schema_violations`] obeys, and those that say nothing about a document as people write
    /// it.
    const KNOWN: [&str; 22] = [
        "additionalProperties",
        "anyOf", // only as part of x-kubernetes-int-or-string
        "default",
        "description",
        "enum",
        "format",
        "items",
        "maxItems",
        "maxLength",
        "maxProperties",
        "minItems",
        "minLength",
        "nullable",
        "properties",
        "minimum",
        "maximum",
        "required",
        "title",
        "type",
        "x-kubernetes-int-or-string",
        "x-kubernetes-list-map-keys", // of foreign types and the status
        "x-kubernetes-list-type",
    ];

    fn collect_keywords(schema: &Value, found: &mut BTreeSet<String>) {
        for (keyword, value) in schema.as_object().into_iter().flatten() {
            match keyword.as_str() {
                "properties" => {
                    properties(schema).for_each(|(_, property)| collect_keywords(property, found));
                }
                "items" | "additionalProperties" => collect_keywords(value, found),
                _ => {}
            }
            found.insert(keyword.clone());
        }
    }

    #[test]
    fn every_keyword_of_the_crd_is_obeyed() {
        let mut found = BTreeSet::new();
        collect_keywords(&super::super::RUN_SCHEMA, &mut found);
        found.remove("x-kubernetes-validations"); // the rules
        let unheard: Vec<&String> = found
            .iter()
            .filter(|keyword| !KNOWN.contains(&keyword.as_str()))
            .collect();
        assert!(unheard.is_empty(), "document/schema.rs does not know {unheard:?}");
    }
}
