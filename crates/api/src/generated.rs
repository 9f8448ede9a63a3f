//! Files generated from the types. They are committed, so that people can read and apply them; a test
//! compares.

mod conditions;
mod exit_statuses;
mod flags;
mod metrics;
mod networks;
mod node;
mod reference;
mod results_page;
mod support;

use kube::CustomResourceExt;
use serde_json::Value;

use crate::{results, schedule::PerfSchedule, spec::PerfRun};

/// All generated files: path in the repository, and text.
pub fn files() -> Vec<(&'static str, String)> {
    let [run, schedule] =
        [PerfRun::crd(), PerfSchedule::crd()].map(|crd| serde_json::to_value(crd).expect("a CRD is JSON"));
    let yaml = |crd| serde_saphyr::to_string(crd).expect("JSON is YAML");
    let text = |schema| {
        let text = serde_json::to_string_pretty(&schema).expect("a schema is JSON");
        node::plain(&text) + "\n"
    };
    vec![
        ("crds/perfruns.perfrun.io.yaml", yaml(&run)),
        ("crds/perfschedules.perfrun.io.yaml", yaml(&schedule)),
        ("schema/results.schema.json", text(results::schema())),
        ("schema/node.schema.json", text(node::schema())),
        (
            "docs/reference/perfrun.md",
            reference::page(&run, "{spec,workload,network}"),
        ),
        (
            "docs/reference/perfschedule.md",
            reference::page(&schedule, "schedule"),
        ),
        ("docs/reference/networks.md", networks::page()),
        ("docs/reference/conditions.md", conditions::page()),
        ("docs/reference/exit-statuses.md", exit_statuses::page()),
        ("docs/reference/flags.md", flags::page()),
        ("docs/reference/metrics.md", metrics::page()),
        ("docs/reference/node-contract.md", node::page()),
        ("docs/reference/results.md", results_page::page()),
        ("docs/reference/support-matrix.md", support::page()),
    ]
}

/// The texts in a list of JSON.
fn strings(list: &Value) -> impl Iterator<Item = &str> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str)
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    #[test]
    fn committed_files_are_up_to_date() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        for (name, text) in super::files() {
            let committed = fs::read_to_string(root.join(name)).unwrap_or_default();
            assert!(committed == text, "{name} is stale: run `cargo xtask crds`");
        }
    }

    #[test]
    fn the_reference_folder_has_nothing_else() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference");
        let generated = super::files().into_iter().map(|(name, _)| name);
        // perfrun's own help, which this crate does not know.
        let generated: Vec<_> = generated.chain(["docs/reference/commands.md"]).collect();
        for entry in fs::read_dir(folder).unwrap() {
            let name = format!("docs/reference/{}", entry.unwrap().file_name().display());
            assert!(
                generated.contains(&name.as_str()),
                "{name} is not generated: it belongs elsewhere in docs/"
            );
        }
    }
}
