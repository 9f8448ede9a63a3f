//! Measurements that no report of perfrun covers: benchmarks/NAME.jsonl, a line of JSON for each.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    path::Path,
};

use anyhow::{Context, Result};

use super::{medians::Record, report::Report};
use crate::files;

/// The reports of all files of measurements in a folder, by their names in documents.
pub(super) fn reports(folder: &Path) -> Result<BTreeMap<String, Report>> {
    let files = files::files_under(folder)?.into_iter();
    let files = files.filter(|file| file.extension().is_some_and(|extension| extension == "jsonl"));
    files
        .map(|file| {
            let path = folder.join(&file);
            let records = read(&files::read(&path)?).with_context(|| {
                format!(
                    "failed to read {}: write a JSON object on each line",
                    path.display()
                )
            })?;
            let name = file.with_extension("").to_string_lossy().into_owned();
            let sources = format!("[Measurements](benchmarks/{name}.jsonl)");
            Ok((name, Report::of_records(environment(&records), sources, records)))
        })
        .collect()
}

fn read(lines: &str) -> Result<Vec<Record>> {
    Ok(lines
        .lines()
        .map(serde_json::from_str)
        .collect::<Result<_, _>>()?)
}

/// What all lines come from: each build and CPU that they name, and when the first began. `commit` is one of
/// perfrun, `program` a program that others publish.
fn environment(records: &[Record]) -> String {
    let mut table = String::new();
    let rows = [
        ("Build", "commit", "commit "),
        ("Build", "program", ""),
        ("CPU", "cpu", ""),
    ];
    for (row, field, word) in rows {
        let named: BTreeSet<_> = texts(records, field).collect();
        if !named.is_empty() {
            let named: Vec<_> = named.into_iter().collect();
            let _ = writeln!(table, "| {row} | {word}{} |", named.join(", "));
        }
    }
    if let Some(first) = texts(records, "started").min() {
        let _ = writeln!(table, "| Started | {first} |");
    }
    match table.is_empty() {
        true => table,
        false => format!("\n## Environment\n\n|  |  |\n| --- | --- |\n{table}"),
    }
}

fn texts<'a>(records: &'a [Record], field: &str) -> impl Iterator<Item = &'a str> {
    records
        .iter()
        .filter_map(move |record| record.get(field)?.as_str())
}

#[cfg(test)]
pub(super) mod tests {
    use super::{environment, read};

    pub(in crate::results) const LINES: &str = r#"{"started": "2026-11-27T11:18:29Z", "commit": "89abcde", "build": "debug", "cpus": 1, "upSeconds": 1}
{"build": "debug", "cpus": 1, "upSeconds": 2.004}
{"build": "release", "cpus": 1, "upSeconds": 0.5}
{"build": "release", "upSeconds": 4}
{"build": "debug", "cpus": 1, "upSeconds": 9}
{"build": "release", "cpus": 1, "upSeconds": 0.25}
"#;

    #[test]
    fn builds_of_all_lines_and_the_first_day_are_named() {
        let later = r#"{"started": "2026-11-28", "commit": "0123456"}"#;
        let shown = environment(&read(&format!("{later}\n{LINES}")).unwrap());
        assert!(
            shown.ends_with("| Build | commit 0123456, 89abcde |\n| Started | 2026-11-27T11:18:29Z |\n"),
            "{shown}"
        );
        assert!(read("{}\n[]\n").is_err(), "no object");
    }
}
