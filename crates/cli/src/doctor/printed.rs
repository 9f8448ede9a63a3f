//! Findings as text for people, and as JSON for programs.

use anyhow::Context;
use serde::Serialize;

use super::{
    checks::{Check, Group, Report},
    finding::Finding,
};

/// All findings by their groups, each with what mends it below, and what can be run here.
pub(super) fn text(report: &Report) -> String {
    let names = report.findings().map(|(check, _)| check.name.len());
    let width = names.max().unwrap_or_default();
    let of = |group: Group| {
        let findings = report.findings().filter(move |(check, _)| check.group == group);
        findings
            .map(|(check, finding)| lines(check, finding, width))
            .collect::<String>()
    };
    format!(
        "Can do\n{}\nWould spoil numbers\n{}\n{}\n",
        of(Group::CanDo),
        of(Group::Spoils),
        report.summary()
    )
}

/// The line of a finding and, below what was found, that of what mends it.
fn lines(check: &Check, finding: &Finding, width: usize) -> String {
    let mark = match finding {
        Finding::Good(_) => "ok",
        Finding::Hint { .. } => "!",
        Finding::Missing { .. } => "x",
    };
    let line = |mark: &str, name: &str, text: &str| format!("  {mark:<2}  {name:<width$}  {text}\n");
    let mend = finding.mend().map(|mend| line("", "", &format!("mend: {mend}")));
    line(mark, check.name, finding.found()) + &mend.unwrap_or_default()
}

/// All findings for programs, on one line.
pub(super) fn json(report: &Report) -> anyhow::Result<String> {
    let entries = report.findings().map(|(check, finding)| Entry {
        group: match check.group {
            Group::CanDo => "canDo",
            Group::Spoils => "spoils",
        },
        name: check.name,
        state: match finding {
            Finding::Good(_) => "ok",
            Finding::Hint { .. } => "hint",
            Finding::Missing { .. } => "missing",
        },
        found: finding.found(),
        mend: finding.mend(),
    });
    let printed = Printed {
        checks: entries.collect(),
        works: report.works(),
        summary: report.summary(),
    };
    Ok(serde_json::to_string(&printed).context("failed to encode the findings")? + "\n")
}

/// All findings, as JSON has them.
#[derive(Serialize)]
struct Printed<'a> {
    checks: Vec<Entry<'a>>,
    /// Whether `perfrun run` works without further options.
    works: bool,
    summary: String,
}

/// A finding, as JSON has it.
#[derive(Serialize)]
struct Entry<'a> {
    group: &'static str,
    name: &'static str,
    state: &'static str,
    found: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    mend: Option<&'a str>,
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{super::facts::Facts, *};

    fn lacking() -> Report {
        Report::of(&Facts {
            go_node: Err("there is no /opt/perfrun/perfrun-node-go".to_owned()),
            cpus: Some(1),
            ..Facts::good()
        })
    }

    #[test]
    fn each_finding_is_a_line_with_what_mends_it_below() {
        let text = text(&lacking());
        for lines in [
            "Can do\n  ok  namespaces          each node gets its own, ",
            "  x   perfrun-node-go     there is no /opt/perfrun/perfrun-node-go\n                          \
             mend: cargo xtask go --release\n",
            "\n\nWould spoil numbers\n  ok  load                other processes use 0 % of the CPUs",
            "  !   CPUs                one CPU, which client and server share\n                          mend: ",
        ] {
            assert!(text.contains(lines), "{lines:?}: {text}");
        }
        let last = "\n\n`perfrun run` works here, without go-libp2p, and one finding makes its numbers less certain.\n";
        assert!(text.ends_with(last), "{text}");
    }

    #[test]
    fn programs_get_the_same_findings() {
        let text = json(&lacking()).unwrap();
        assert_eq!(text.lines().count(), 1);
        let value: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(
            value["checks"][2],
            json!({
                "group": "canDo",
                "name": "perfrun-node-go",
                "state": "missing",
                "found": "there is no /opt/perfrun/perfrun-node-go",
                "mend": "cargo xtask go --release",
            })
        );
        assert_eq!(value["checks"][1]["mend"], Value::Null);
        assert_eq!(value["works"], true);
    }
}
