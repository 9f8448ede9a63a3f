//! Requirements of Kubernetes on the custom resource definition.

use kube::CustomResourceExt;
use perfrun_api::{generated, spec::PerfRun};
use serde_json::Value;

fn schema() -> Value {
    let crd = serde_json::to_value(PerfRun::crd()).unwrap();
    crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"].clone()
}

/// Visits every schema below a schema, with its path.
fn walk<'a>(schema: &'a Value, path: String, visit: &mut impl FnMut(&str, &'a Value)) {
    visit(&path, schema);
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        walk(property, format!("{path}.{name}"), visit);
    }
    for (keyword, sign) in [("items", "[]"), ("additionalProperties", "{}")] {
        if schema[keyword].is_object() {
            walk(&schema[keyword], format!("{path}{sign}"), visit);
        }
    }
}

/// Whether a field has a type of Kubernetes, whose description is left out.
fn is_foreign(path: &str) -> bool {
    let foreign = [
        ".affinity.",
        ".tolerations",
        ".topologySpreadConstraints",
        ".resources.",
        ".imagePullSecrets",
        ".conditions",
    ];
    foreign.iter().any(|part| path.contains(part))
}

#[test]
fn it_is_small_enough_for_client_side_apply() {
    // `kubectl apply` stores the definition as JSON in an annotation, and annotations have at most 256 KiB in
    // total.
    let (name, text) = generated::files().remove(0);
    assert_eq!(name, "crds/perfruns.perfrun.io.yaml");
    let crd: Value = serde_saphyr::from_str(&text).unwrap();
    let annotation = crd.to_string();
    assert!(annotation.len() < 150_000, "{} bytes", annotation.len());
}

#[test]
fn every_field_is_explained() {
    let mut unexplained = vec![];
    walk(
        &schema()["properties"]["spec"],
        "spec".into(),
        &mut |path, node| {
            let is_part = path.ends_with("[]") || path.ends_with("{}");
            if node.get("description").is_none() && !is_part && !is_foreign(path) {
                unexplained.push(path.to_owned());
            }
        },
    );
    assert_eq!(unexplained, [""; 0]);
}

#[test]
fn a_list_of_runs_shows_their_verdicts() {
    let crd = serde_json::to_value(PerfRun::crd()).unwrap();
    let columns = crd["spec"]["versions"][0]["additionalPrinterColumns"].as_array();
    let names: Vec<_> = columns.unwrap().iter().map(|column| &column["name"]).collect();
    assert_eq!(names, ["Phase", "Trials", "Verdict", "Age"]);
    let verdict = &schema()["properties"]["status"]["properties"]["verdict"];
    assert_eq!(verdict["type"], "string");
}

#[test]
fn only_formats_that_kubernetes_knows_are_used() {
    walk(&schema(), String::new(), &mut |path, node| {
        if let Some(format) = node["format"].as_str() {
            assert!(
                ["int32", "int64", "double", "date-time"].contains(&format),
                "{path}: {format}"
            );
        }
    });
}

#[test]
fn no_field_of_the_spec_is_nullable() {
    walk(
        &schema()["properties"]["spec"],
        "spec".into(),
        &mut |path, node| {
            assert_ne!(node["nullable"], true, "{path}");
        },
    );
}

#[test]
fn every_integer_of_the_spec_has_bounds() {
    let schema = schema();
    let mut bounded_by_parent = vec![];
    walk(&schema["properties"]["spec"], "spec".into(), &mut |path, node| {
        let has_rule = node.get("x-kubernetes-validations").is_some();
        if has_rule {
            bounded_by_parent.push(format!("{path}[]"));
        }
        let has_range = ["minimum", "maximum"]
            .iter()
            .all(|bound| node.get(bound).is_some());
        let bounded = has_rule || has_range || bounded_by_parent.iter().any(|parent| parent == path);
        assert!(node["type"] != "integer" || bounded || is_foreign(path), "{path}");
    });
}

#[test]
fn every_list_and_string_that_a_rule_reads_is_bounded() {
    // Without bounds, the API server assumes the worst cost of a rule, and refuses the definition.
    walk(
        &schema()["properties"]["spec"],
        "spec".into(),
        &mut |path, node| {
            if node.get("x-kubernetes-validations").is_none() {
                return;
            }
            match node["type"].as_str() {
                Some("array") => assert!(node["maxItems"].is_u64(), "{path}"),
                Some("string") => assert!(node["maxLength"].is_u64(), "{path}"),
                _ => {}
            }
        },
    );
}

#[test]
fn every_rule_has_a_message() {
    walk(&schema(), String::new(), &mut |path, node| {
        for rule in node["x-kubernetes-validations"].as_array().into_iter().flatten() {
            let message = rule["message"].as_str().unwrap_or_default();
            assert!(message.len() > 10 && !message.ends_with('.'), "{path}: {message}");
        }
    });
}
