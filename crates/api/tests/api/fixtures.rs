//! Short forms of documents.

use perfrun_api::{
    document, planning,
    spec::{PerfRun, PerfRunSpec},
};
use perfrun_contract::plan::Plan;

/// The text of a document with this `spec`, which begins in the first column.
pub fn text(spec: &str) -> String {
    let spec: String = spec.trim().lines().map(|line| format!("  {line}\n")).collect();
    format!("apiVersion: perfrun.io/v1alpha1\nkind: PerfRun\nmetadata: {{name: bad}}\nspec:\n{spec}")
}

pub fn run(spec: &str) -> PerfRun {
    let mut runs = document::parse(&text(spec)).unwrap();
    assert_eq!(runs.len(), 1);
    runs.remove(0)
}

pub fn spec(spec: &str) -> PerfRunSpec {
    run(spec).spec
}

pub fn plan(document: &str) -> Plan {
    planning::plan(&spec(document)).unwrap()
}

pub fn cell_ids(plan: &Plan) -> Vec<&str> {
    plan.cells.iter().map(|cell| cell.id.as_str()).collect()
}
