//! results.json and its schema.

use perfrun_api::results::schema;
use serde_json::{Value, json};

use perfrun_test_kit::results::run;

fn document() -> Value {
    let results = run("
  workload: {bandwidth: {sizes: [64Mi]}}
  matrix: {transports: [tcp, tcp-tls, quic-v1]}
  stacks: [{name: next, stack: libp2p, env: {A: b}}]
")
    .lost_once("/c1.i4")
    .interrupted_after(90)
    .results();
    serde_json::to_value(results).unwrap()
}

#[test]
fn results_fit_the_schema() {
    let schema = schema();
    assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
    let validator = jsonschema::draft202012::new(&schema).unwrap();
    let document = document();
    let errors: Vec<String> = validator
        .iter_errors(&document)
        .map(|error| format!("{}: {error}", error.instance_path()))
        .collect();
    assert_eq!(errors, [""; 0]);
}

#[test]
fn broken_results_do_not_fit() {
    let schema = schema();
    let validator = jsonschema::draft202012::new(&schema).unwrap();
    let broken: [(&str, Value); 6] = [
        ("/schemaVersion", json!(3)),
        ("/state", json!("finished")),
        ("/summary/0/metric", json!("uploadSpeed")),
        ("/summary/0/median", json!("fast")),
        ("/trials/0/trial/cell", json!(-1)),
        ("/environment/nodes/client-0", json!({})),
    ];
    for (path, value) in broken {
        let mut document = document();
        *document.pointer_mut(path).unwrap() = value;
        assert!(!validator.is_valid(&document), "{path}");
    }
    let mut document = document();
    document.as_object_mut().unwrap().remove("plan");
    assert!(!validator.is_valid(&document));
}
