//! The page of metrics.

use perfrun_contract::metrics::SOURCES;

/// Every family, by who exports it.
pub fn page() -> String {
    let mut page = String::from(
        "# Metrics\n\n\
         Made from the registries by `cargo xtask crds`.\n\n\
         What Prometheus finds at `/metrics` of nodes, link agents and operators, and of `perfrun run --metrics-listen`, in\n\
         OpenMetrics text. [How to see it in Grafana](../how-to/grafana.md).\n\n\
         Labels have few values, all of them words of the document or of perfrun; none is a peer's identity.\n\
         `run_namespace` (`local` without a cluster) and `run` name the PerfRun, `run_node` the node of the plan (`client-0`), `role` is\n\
         `client`, `server` or `link`. A histogram has `_bucket`, `_sum` and `_count`. libp2p's own metrics are there, too, as\n\
         `perfrun_libp2p_…`; their names are libp2p's and may change with it.\n",
    );
    for source in SOURCES {
        let words = |labels: &[&str]| {
            let quoted: Vec<_> = labels.iter().map(|label| format!("`{label}`")).collect();
            quoted.join(", ")
        };
        page += &format!("\n## {}\n\n", source.who);
        if !source.labels.is_empty() {
            page += &format!("All have the labels {}.\n\n", words(source.labels));
        }
        page += "| name | type | unit | labels | says |\n|---|---|---|---|---|\n";
        for family in source.families {
            page += &format!(
                "| `{}` | {} | {} | {} | {} |\n",
                family.full_name(),
                family.kind,
                family.unit.unwrap_or_default().replace('_', " "),
                words(family.labels),
                family.help,
            );
        }
    }
    page
}
