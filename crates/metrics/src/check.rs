//! For tests: whether a page is as its families are described.

use std::collections::{BTreeMap, BTreeSet};

use perfrun_contract::metrics::{EXPORTERS, Exporter, Family, PREFIX};

/// How a page differs from the descriptions of its families, in sentences. Families of libp2p are its own.
pub fn undescribed(page: &str) -> Vec<String> {
    let described: BTreeMap<String, (&Exporter, &Family)> = EXPORTERS
        .iter()
        .flat_map(|exporter| exporter.families.iter().map(move |family| (exporter, family)))
        .map(|(exporter, family)| {
            let unit = family.unit.map(|unit| format!("_{unit}")).unwrap_or_default();
            (format!("{PREFIX}{}{unit}", family.name), (exporter, family))
        })
        .collect();
    let mut wrong = vec![];
    for line in page.lines().filter(|line| !line.contains("perfrun_libp2p_")) {
        let comment: Vec<&str> = line.splitn(4, ' ').collect();
        match comment[..] {
            ["#", what, name, says] => match described.get(name) {
                Some((_, family)) => {
                    let right = match what {
                        "TYPE" => says == family.kind.to_string(),
                        "HELP" => says.trim_end_matches('.') == family.help,
                        "UNIT" => Some(says) == family.unit,
                        _ => false,
                    };
                    if !right {
                        wrong.push(line.to_owned());
                    }
                }
                None => wrong.push(line.to_owned()),
            },
            ["#", ..] => {}
            _ => {
                let (name, labels) = sample(line);
                let family = described.iter().find(|(full, (_, family))| {
                    let end = name.strip_prefix(full.as_str());
                    end == Some(family.suffix()) || end.is_some_and(|end| ["_bucket", "_sum"].contains(&end))
                });
                let right = family.is_some_and(|(_, (exporter, family))| {
                    let may = |label: &&str| {
                        *label == "le" || exporter.labels.contains(label) || family.labels.contains(label)
                    };
                    labels.iter().all(may) && family.labels.iter().all(|label| labels.contains(label))
                });
                if !right {
                    wrong.push(line.to_owned());
                }
            }
        }
    }
    wrong
}

/// The name of a sample, and the names of its labels.
fn sample(line: &str) -> (&str, BTreeSet<&str>) {
    let (name, labels) = line.split_once(['{', ' ']).unwrap_or((line, ""));
    // What is before `="` and after the last `,` or `{`: none of our values has both.
    let labels = labels
        .split("=\"")
        .map(|before| before.rsplit([',', '{']).next().unwrap_or_default());
    let is_name =
        |label: &&str| !label.is_empty() && label.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    let count = line.matches("=\"").count();
    (name, labels.take(count).filter(is_name).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_undescribed_metric_is_found() {
        let right = "# HELP perfrun_operator_leader Whether this operator acts (1), or waits to (0).\n\
                     # TYPE perfrun_operator_leader gauge\nperfrun_operator_leader 1\n# EOF\n";
        assert_eq!(undescribed(right), [""; 0]);
        for wrong in [
            "# TYPE perfrun_operator_leader counter",
            "# TYPE perfrun_operator_ladder gauge",
            "# HELP perfrun_operator_leader Something else.",
            "perfrun_operator_leader{pod=\"a\"} 1",
            "perfrun_operator_leader_total 1",
            "perfrun_operator_reconcile_errors_total 1",
        ] {
            assert_eq!(undescribed(wrong), [wrong]);
        }
    }
}
