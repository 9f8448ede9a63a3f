//! Short forms of documents.

use perfrun_api::{
    document, planning,
    spec::{PerfRun, PerfRunSpec},
};
use perfrun_contract::plan::Plan;

/// A workload that every stack has.
pub(crate) const PING: &str = "workload: {ping: {}}";

/// The text of a document with this `spec`, which begins in the first column.
pub(crate) fn text(spec: &str) -> String {
    let spec: String = spec.trim().lines().map(|line| format!("  {line}\n")).collect();
    format!("apiVersion: perfrun.io/v1alpha1\nkind: PerfRun\nmetadata: {{name: bad}}\nspec:\n{spec}")
}

pub(crate) fn run(spec: &str) -> PerfRun {
    let mut runs = document::parse(&text(spec)).unwrap();
    assert_eq!(runs.len(), 1);
    runs.remove(0)
}

pub(crate) fn spec(spec: &str) -> PerfRunSpec {
    run(spec).spec
}

/// The plan of a document, also of one that takes too long.
pub(crate) fn plan(document: &str) -> Plan {
    planning::draft(&spec(document)).unwrap()
}

/// The plan of round trips, with the rest of the `spec`.
pub(crate) fn ping(rest: &str) -> Plan {
    plan(&format!("{PING}\n{rest}"))
}

pub(crate) fn cell_ids(plan: &Plan) -> Vec<&str> {
    plan.cells.iter().map(|cell| cell.id.as_str()).collect()
}
