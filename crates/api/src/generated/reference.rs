//! The fields of the resource as a page: a table for each object, in the order in which `kubectl explain` has them.

use std::fmt::Write;

use serde_json::Value;

/// Kubernetes' own types are documented by Kubernetes.
const FOREIGN: [&str; 6] = [
    "affinity",
    "conditions",
    "imagePullSecrets",
    "resources",
    "tolerations",
    "topologySpreadConstraints",
];

/// The page of a custom resource definition.
pub fn page(crd: &Value) -> String {
    let root = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    let mut page = Page::default();
    for part in ["spec", "status"] {
        page.section(part, &root["properties"][part], 2);
    }
    let rules: String = messages(root).map(|message| format!("- {message}.\n")).collect();
    format!(
        "<!-- Made by `cargo xtask crds` from crates/api/src/spec.rs and crates/api/src/workload.rs: edit those. -->\n\n\
         # PerfRun (`perfrun.io/v1alpha1`)\n\n{}\n\n{rules}{}",
        description(root),
        page.text
    )
}

#[derive(Default)]
struct Page<'a> {
    text: String,
    /// Objects that have a table, and where it is.
    written: Vec<(&'a Value, String)>,
}

impl<'a> Page<'a> {
    fn section(&mut self, path: &str, schema: &'a Value, level: usize) {
        self.written.push((schema, path.to_owned()));
        let _ = write!(
            self.text,
            "\n{} {path}\n\n{}\n\n",
            "#".repeat(level),
            description(schema)
        );
        self.text += "| field | type | default | meaning |\n|---|---|---|---|\n";
        let mut inner = vec![];
        for (name, field) in schema["properties"].as_object().into_iter().flatten() {
            let (part, object) = match field["type"].as_str() {
                Some("array") => (format!("{path}.{name}[]"), &field["items"]),
                _ => (format!("{path}.{name}"), field),
            };
            let has_fields = object["properties"].is_object() && !FOREIGN.contains(&name.as_str());
            let known = self.written.iter().find(|(written, _)| alike(written, object));
            let place = match known {
                Some((_, place)) if has_fields => Some(place.clone()),
                _ if has_fields => {
                    self.written.push((object, part.clone()));
                    inner.push((part.clone(), object));
                    Some(part)
                }
                _ => None,
            };
            let kind = kind(field);
            let kind = place
                .map(|place| format!("[{kind}](#{})", anchor(&place)))
                .unwrap_or(kind);
            let required = schema["required"]
                .as_array()
                .is_some_and(|all| all.contains(&name.as_str().into()));
            let default = if required {
                "required".to_owned()
            } else {
                default(field)
            };
            let _ = writeln!(
                self.text,
                "| `{name}` | {kind} | {default} | {} |",
                meaning(field)
            );
        }
        let rules: String = messages(schema)
            .map(|message| format!("- {}\n", sentence(&message)))
            .collect();
        if !rules.is_empty() {
            self.text += "\n";
            self.text += &rules;
        }
        for (path, schema) in inner {
            self.section(&path, schema, (level + 1).min(4));
        }
    }
}

/// Whether one table does for both.
fn alike(one: &Value, other: &Value) -> bool {
    let all = ["properties", "required", "x-kubernetes-validations"];
    all.iter().all(|keyword| one[keyword] == other[keyword])
}

fn description(schema: &Value) -> &str {
    schema["description"].as_str().unwrap_or_default()
}

/// What a field is, and what its rules say, fit for a cell.
fn meaning(field: &Value) -> String {
    let mut meaning = description(field).to_owned();
    if field["type"] != "object" {
        for message in messages(field) {
            let _ = write!(meaning, " {}", sentence(&message));
        }
    }
    meaning.replace('\n', " ").replace('|', "\\|")
}

/// What the rules of a schema say.
fn messages(schema: &Value) -> impl Iterator<Item = String> {
    let rules = schema["x-kubernetes-validations"]
        .as_array()
        .into_iter()
        .flatten();
    rules.filter_map(|rule| {
        let message = rule["message"].as_str()?;
        let field = rule["fieldPath"]
            .as_str()
            .map(|path| format!("`{}` ", &path[1..]));
        Some(format!("{}{message}", field.unwrap_or_default()))
    })
}

fn sentence(message: &str) -> String {
    message[..1].to_uppercase() + &message[1..] + "."
}

fn default(field: &Value) -> String {
    match &field["default"] {
        Value::Null => String::new(),
        Value::Object(_) => String::new(), // what the object's own table says
        Value::String(text) => format!("`{text}`"),
        value => format!("`{value}`"),
    }
}

fn kind(schema: &Value) -> String {
    if let Some(values) = schema["enum"].as_array() {
        let values = values
            .iter()
            .filter_map(Value::as_str)
            .map(|value| format!("`{value}`"));
        return values.collect::<Vec<_>>().join(", ");
    }
    match schema["type"].as_str() {
        Some("array") => format!("list of {}", kind(&schema["items"])),
        Some("object") if schema["additionalProperties"].is_object() => {
            format!("map to {}", kind(&schema["additionalProperties"]))
        }
        Some(kind) => kind.to_owned(),
        None if schema["x-kubernetes-int-or-string"] == true => "quantity".to_owned(),
        None => String::new(),
    }
}

/// Where a heading is, as GitHub and most other renderers name it.
fn anchor(heading: &str) -> String {
    heading
        .chars()
        .filter(|c| c.is_alphanumeric())
        .collect::<String>()
        .to_lowercase()
}
