//! Measurements that no report of perfrun covers: NAME.jsonl in the folder of [`benchmarks`], a line of JSON
//! for each.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result};

use crate::{
    benchmarks,
    folder::read,
    medians::Measurement,
    report::{BUILD, Report, STARTED},
};

/// The reports of all files of measurements, by their names in documents.
pub(crate) fn reports() -> Result<BTreeMap<String, Report>> {
    let files = benchmarks::files("jsonl")?.into_iter();
    files
        .map(|(name, file)| {
            let measurements = parsed(&read(&file)?).with_context(|| {
                format!(
                    "failed to read {}: write a JSON object on each line",
                    file.display()
                )
            })?;
            let sources = format!("[Measurements]({}/{name}.jsonl)", benchmarks::NAME);
            let environment = environment(&measurements);
            let report = Report {
                measurements,
                ..Report::with(sources, vec![], &environment)
            };
            Ok((name, report))
        })
        .collect()
}

fn parsed(lines: &str) -> Result<Vec<Measurement>> {
    Ok(lines
        .lines()
        .map(serde_json::from_str)
        .collect::<Result<_, _>>()?)
}

/// What all lines come from: each build and CPU that they name, and when the first began. `commit` is one of
/// perfrun, `program` a program that others publish.
fn environment(measurements: &[Measurement]) -> Vec<(&'static str, String)> {
    let named = |row, field, word| {
        let named: BTreeSet<&str> = texts(measurements, field).collect();
        let named = Vec::from_iter(named);
        (!named.is_empty()).then(|| (row, format!("{word}{}", named.join(", "))))
    };
    let rows = [
        named(BUILD, "commit", "commit "),
        named(BUILD, "program", ""),
        named("CPU", "cpu", ""),
        texts(measurements, "started")
            .min()
            .map(|first| (STARTED, first.to_owned())),
    ];
    rows.into_iter().flatten().collect()
}

fn texts<'a>(measurements: &'a [Measurement], field: &str) -> impl Iterator<Item = &'a str> {
    measurements
        .iter()
        .filter_map(move |measurement| measurement.get(field)?.as_str())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::{environment, parsed};

    pub(crate) const LINES: &str = r#"{"started": "2026-11-27T11:18:29Z", "commit": "89abcde", "build": "debug", "cpus": 1, "upSeconds": 1}
{"build": "debug", "cpus": 1, "upSeconds": 2.004}
{"build": "release", "cpus": 1, "upSeconds": 0.5}
{"build": "release", "upSeconds": 4}
{"build": "debug", "cpus": 1, "upSeconds": 9}
{"build": "release", "cpus": 1, "upSeconds": 0.25}
"#;

    #[test]
    fn builds_of_all_lines_and_the_first_day_are_named() {
        let later = r#"{"started": "2026-11-28", "commit": "0123456"}"#;
        let shown = environment(&parsed(&format!("{later}\n{LINES}")).unwrap());
        let expected = [
            ("Build", "commit 0123456, 89abcde".to_owned()),
            ("Started", "2026-11-27T11:18:29Z".to_owned()),
        ];
        assert_eq!(shown, expected);
        assert!(parsed("{}\n[]\n").is_err(), "no object");
    }
}
