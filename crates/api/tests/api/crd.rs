//! Requirements of Kubernetes on the custom resource definitions.

use kube::CustomResourceExt;
use perfrun_api::{generated, schedule::PerfSchedule, spec::PerfRun};
use perfrun_contract::metric::Metric;
use serde_json::{Value, json};

fn versions() -> [Value; 2] {
    let crds = [PerfRun::crd(), PerfSchedule::crd()];
    crds.map(|crd| serde_json::to_value(crd).unwrap()["spec"]["versions"][0].clone())
}

fn schemas() -> [Value; 2] {
    versions().map(|version| version["schema"]["openAPIV3Schema"].clone())
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

/// Whether a field has a type of Kubernetes, or that of a run in a schedule, whose descriptions are left out.
fn is_foreign(path: &str) -> bool {
    let foreign = [
        ".runTemplate.spec.",
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
fn crds_are_small_enough_for_client_side_apply() {
    // `kubectl apply` stores the definition as JSON in an annotation, and annotations have at most 256 KiB in
    // total.
    let files = generated::files();
    let crds = files.iter().filter(|(name, _)| name.starts_with("crds/"));
    let sizes: Vec<usize> = crds
        .map(|(_, text)| serde_saphyr::from_str::<Value>(text).unwrap().to_string().len())
        .collect();
    assert!(
        sizes.len() == 2 && sizes.iter().all(|size| *size < 150_000),
        "{sizes:?} bytes"
    );
}

#[test]
fn every_field_is_explained() {
    for schema in schemas() {
        let mut unexplained = vec![];
        walk(&schema["properties"]["spec"], "spec".into(), &mut |path, node| {
            let is_part = path.ends_with("[]") || path.ends_with("{}");
            if node.get("description").is_none() && !is_part && !is_foreign(path) {
                unexplained.push(path.to_owned());
            }
        });
        assert_eq!(unexplained, [""; 0]);
    }
}

#[test]
fn a_list_shows_verdicts() {
    let [run, schedule] = versions().map(|version| {
        let columns = version["additionalPrinterColumns"].as_array().unwrap();
        let names = columns
            .iter()
            .map(|column| column["name"].as_str().unwrap().to_owned());
        names.collect::<Vec<_>>()
    });
    assert_eq!(
        run,
        [
            "Phase", "Verdict", "Reason", "Trials", "Age", "Workload", "Duration", "Ended"
        ]
    );
    assert_eq!(
        schedule,
        [
            "Schedule",
            "Suspend",
            "Active",
            "Last schedule",
            "Last phase",
            "Last verdict",
            "Reason",
            "Age",
            "Time zone",
            "Last success"
        ]
    );
    let verdict = &schemas()[0]["properties"]["status"]["properties"]["verdict"];
    assert_eq!(verdict["type"], "string");
    // The history of a schedule is written again, with words that only a newer version knows.
    let ended = &schemas()[1]["properties"]["status"]["properties"]["history"]["items"]["properties"];
    for word in ["phase", "verdict"] {
        assert_eq!(ended[word]["type"], "string");
        assert!(ended[word]["enum"].is_null(), "{word}");
    }
}

#[test]
fn an_expectation_is_about_a_metric_that_can_be_judged() {
    let [run, schedule] = schemas();
    let specs = [
        &run["properties"]["spec"],
        &schedule["properties"]["spec"]["properties"]["runTemplate"]["properties"]["spec"],
    ];
    let judged: Vec<String> = Metric::judged().map(|metric| metric.to_string()).collect();
    for spec in specs {
        let metric = &spec["properties"]["expect"]["items"]["properties"]["metric"];
        assert_eq!(metric["enum"], json!(judged));
        assert_eq!(metric["type"], "string");
    }
    assert!(judged.len() > 50 && !judged.contains(&Metric::ClientCpuCores.to_string()));
}

#[test]
fn the_template_of_a_schedule_may_change_and_has_the_other_rules_of_a_run() {
    let [run, schedule] = schemas();
    let rules = |schema: &Value| {
        let rules = schema["x-kubernetes-validations"].as_array().unwrap();
        let rules = rules.iter().map(|rule| rule["rule"].as_str().unwrap().to_owned());
        rules.collect::<Vec<_>>()
    };
    let template = &schedule["properties"]["spec"]["properties"]["runTemplate"]["properties"]["spec"];
    let of_run = rules(&run["properties"]["spec"]);
    let kept: Vec<_> = of_run.iter().filter(|rule| !rule.contains("oldSelf")).collect();
    assert_eq!(rules(template).iter().collect::<Vec<_>>(), kept);
    assert_eq!(kept.len() + 1, of_run.len());
}

#[test]
fn only_formats_that_kubernetes_knows_are_used() {
    for schema in schemas() {
        walk(&schema, String::new(), &mut |path, node| {
            if let Some(format) = node["format"].as_str() {
                assert!(
                    ["int32", "int64", "double", "date-time"].contains(&format),
                    "{path}: {format}"
                );
            }
        });
    }
}

#[test]
fn no_field_of_the_spec_is_nullable() {
    for schema in schemas() {
        walk(&schema["properties"]["spec"], "spec".into(), &mut |path, node| {
            assert_ne!(node["nullable"], true, "{path}");
        });
    }
}

#[test]
fn no_entry_of_a_list_has_a_default() {
    for schema in schemas() {
        walk(&schema, String::new(), &mut |path, node| {
            assert!(
                !path.contains("[]") || node.get("default").is_none(),
                "{path} has a default, which would make an applied document differ from its object: see \
                 structural::is_default"
            );
        });
    }
}

#[test]
fn every_integer_of_the_spec_has_bounds() {
    for schema in schemas() {
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
}

#[test]
fn every_list_map_and_string_of_the_spec_has_a_bound() {
    for schema in schemas() {
        // Many small entries occupy far more memory than their text. The API server also assumes the worst
        // cost of a rule that reads a list or a string without a bound, and refuses the definition.
        let mut unbounded = vec![];
        walk(&schema["properties"]["spec"], "spec".into(), &mut |path, node| {
            let bound = match node["type"].as_str() {
                Some("array") => "maxItems",
                Some("object") if node["additionalProperties"].is_object() => "maxProperties",
                Some("string") if node["enum"].is_null() => "maxLength",
                None => "maxLength", // a quantity, which may be a string
                Some(_) => return,
            };
            if !node[bound].is_u64() {
                unbounded.push(path.to_owned());
            }
        });
        assert_eq!(unbounded, [""; 0]);
    }
}

#[test]
fn every_rule_has_a_message() {
    for schema in schemas() {
        walk(&schema, String::new(), &mut |path, node| {
            for rule in node["x-kubernetes-validations"].as_array().into_iter().flatten() {
                let message = rule["message"].as_str().or(rule["messageExpression"].as_str());
                let message = message.unwrap_or_default();
                assert!(message.len() > 10 && !message.ends_with('.'), "{path}: {message}");
            }
        });
    }
}
