//! Files made from the types. They are committed, so that people can read and apply them; a check compares.

use std::fmt::Write;

use kube::CustomResourceExt;
use serde_json::Value;

use crate::{results, spec::PerfRun};

/// Every generated file: its path in the repository and its text.
pub fn files() -> Vec<(&'static str, String)> {
    let crd = serde_json::to_value(PerfRun::crd()).expect("a CRD is JSON");
    let schema = serde_json::to_string_pretty(&results::schema()).expect("a schema is JSON");
    vec![
        (
            "crds/perfruns.perfrun.io.yaml",
            serde_saphyr::to_string(&crd).expect("JSON is YAML"),
        ),
        ("schema/results.schema.json", schema + "\n"),
        ("docs/reference/perfrun.md", reference(&crd)),
    ]
}

/// The fields of the resource as a page, as `kubectl explain --recursive` has them.
fn reference(crd: &Value) -> String {
    let root = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    let mut page = format!(
        "<!-- Made by `cargo xtask crds` from api/src/spec.rs and api/src/workload.rs: edit those. -->\n\n\
         # PerfRun (`perfrun.io/v1alpha1`)\n\n{}\n",
        text(root)
    );
    for part in ["spec", "status"] {
        let _ = write!(
            page,
            "\n## {part}\n\n| field | type | default | meaning |\n|---|---|---|---|\n"
        );
        rows(&root["properties"][part], "", &mut page);
    }
    page
}

/// Kubernetes' own types are documented by Kubernetes.
const FOREIGN: [&str; 4] = [
    "affinity",
    "tolerations",
    "topologySpreadConstraints",
    "resources",
];

fn rows(schema: &Value, path: &str, page: &mut String) {
    let Some(properties) = schema["properties"].as_object() else {
        return;
    };
    for (name, field) in properties {
        let path = format!("{path}{name}");
        let default = match &field["default"] {
            Value::Null => String::new(),
            Value::Object(_) => "see below".to_owned(),
            value => format!("`{value}`"),
        };
        let meaning = text(field).replace('\n', " ").replace('|', "\\|");
        let _ = writeln!(page, "| `{path}` | {} | {default} | {meaning} |", kind(field));
        if !FOREIGN.contains(&name.as_str()) {
            rows(field, &format!("{path}."), page);
            rows(&field["items"], &format!("{path}[]."), page);
        }
    }
}

fn text(schema: &Value) -> &str {
    schema["description"].as_str().unwrap_or_default()
}

fn kind(schema: &Value) -> String {
    if let Some(values) = schema["enum"].as_array() {
        let values: Vec<String> = values
            .iter()
            .filter_map(Value::as_str)
            .map(|v| format!("`{v}`"))
            .collect();
        return values.join(", ");
    }
    match schema["type"].as_str() {
        Some("array") => format!("list of {}", kind(&schema["items"])),
        Some(kind) => kind.to_owned(),
        None if schema["x-kubernetes-int-or-string"] == true => "quantity".to_owned(),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    #[test]
    fn committed_files_are_what_the_types_say() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        for (name, text) in super::files() {
            let committed = fs::read_to_string(root.join(name)).unwrap_or_default();
            assert!(committed == text, "{name} is stale: run `cargo xtask crds`");
        }
    }
}
