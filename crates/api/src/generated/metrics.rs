//! The page of metrics.

use perfrun_contract::metrics::EXPORTERS;

/// All families, grouped by the program that exports them.
pub(super) fn page() -> String {
    let mut page = String::from(
        "# Metrics\n\n\
         Generated from the descriptions of the metrics by `cargo xtask crds`.\n\n\
         Nodes, link agents, operators and `perfrun run --metrics-listen` export these metrics at\n\
         `/metrics`, as OpenMetrics text. [How to see them in Grafana](../how-to/grafana.md).\n\n\
         The number of values of each label is bounded. Values are words of the document or of perfrun,\n\
         never the identity of a peer. `run_namespace` (`local` without a cluster) and `run` name the\n\
         PerfRun. `run_node` names the node of the plan (`client-0`). `role` is `client`, `server`,\n\
         `relay` or `link`. A histogram has the series `_bucket`, `_sum` and `_count`. Nodes also export the metrics\n\
         of libp2p as `perfrun_libp2p_…`; their names are libp2p's and may change with it.\n",
    );
    for exporter in EXPORTERS {
        let code = |labels: &[&str]| {
            let quoted: Vec<_> = labels.iter().map(|label| format!("`{label}`")).collect();
            quoted.join(", ")
        };
        page += &format!("\n## {}\n\n", exporter.who);
        if !exporter.labels.is_empty() {
            page += &format!("All of them have the labels {}.\n\n", code(exporter.labels));
        }
        page += "| name | type | unit | labels | meaning |\n|---|---|---|---|---|\n";
        for family in exporter.families {
            page += &format!(
                "| `{}` | {} | {} | {} | {} |\n",
                family.full_name(),
                family.kind,
                family.unit.unwrap_or_default().replace('_', " "),
                code(family.labels),
                family.help,
            );
        }
    }
    page
}
