//! Measurements that no report of perfrun covers: benchmarks/NAME.jsonl, a line of JSON for each.
//!
//! Documents show medians of them: the part `Median UPLOAD, DOWNLOAD by BUILD, CPUS` has a row for each
//! combination of BUILD and CPUS, and a column for each of UPLOAD and DOWNLOAD. All four are fields of lines.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    path::Path,
};

use anyhow::{Context, Result};
use serde_json::{Map, Value};

use super::report::Report;
use crate::files;

/// How parts are written.
pub(super) const PART: &str = "Median FIELD, FIELD by FIELD, FIELD";

/// A line.
pub(super) type Record = Map<String, Value>;

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

/// The table that a part names. `None` if it names none, a value that a line does not have as a number, or a
/// group that no line has.
pub(super) fn table(records: &[Record], part: &str) -> Option<String> {
    let (values, keys) = part.strip_prefix("Median ")?.split_once(" by ")?;
    let fields = |names: &str| names.split(", ").map(str::to_owned).collect::<Vec<_>>();
    let (values, keys) = (fields(values), fields(keys));
    if !keys
        .iter()
        .all(|key| records.iter().any(|record| record.contains_key(key)))
    {
        return None;
    }
    // In the order of the first line of each.
    let mut groups: Vec<(Vec<String>, Vec<&Record>)> = vec![];
    for record in records {
        let group: Vec<_> = keys.iter().map(|key| text(record.get(key))).collect();
        match groups.iter_mut().find(|(known, _)| *known == group) {
            Some((_, members)) => members.push(record),
            None => groups.push((group, vec![record])),
        }
    }
    let columns = keys.iter().chain(&values).map(|field| words(field));
    let header: Vec<_> = columns.chain(["times".to_owned()]).collect();
    let rule = ["---"]
        .repeat(keys.len())
        .into_iter()
        .chain(["---:"].repeat(values.len() + 1));
    let mut lines = vec![row(&header), row(&rule.map(str::to_owned).collect::<Vec<_>>())];
    for (mut cells, members) in groups {
        for value in &values {
            let numbers = members.iter().map(|record| record.get(value)?.as_f64());
            cells.push(format!("{:.2}", median(numbers.collect::<Option<_>>()?)?));
        }
        cells.push(members.len().to_string());
        lines.push(row(&cells));
    }
    Some(lines.join("\n"))
}

fn row(cells: &[String]) -> String {
    format!("| {} |", cells.join(" | "))
}

fn text(value: Option<&Value>) -> String {
    match value {
        None => "–".to_owned(),
        Some(Value::String(text)) => text.clone(),
        Some(value) => value.to_string(),
    }
}

/// `uploadSeconds` as "upload seconds".
fn words(field: &str) -> String {
    let mut words = String::new();
    for letter in field.chars() {
        if letter.is_uppercase() {
            words.push(' ');
        }
        words.extend(letter.to_lowercase());
    }
    words
}

fn median(mut numbers: Vec<f64>) -> Option<f64> {
    numbers.sort_by(f64::total_cmp);
    let (low, high) = (numbers.len().checked_sub(1)? / 2, numbers.len() / 2);
    Some(f64::midpoint(*numbers.get(low)?, *numbers.get(high)?))
}

#[cfg(test)]
mod tests {
    use super::{environment, read, table};

    const LINES: &str = r#"{"started": "2026-11-27T11:18:29Z", "commit": "89abcde", "build": "debug", "cpus": 1, "upSeconds": 1}
{"build": "debug", "cpus": 1, "upSeconds": 2.004}
{"build": "release", "cpus": 1, "upSeconds": 0.5}
{"build": "release", "upSeconds": 4}
{"build": "debug", "cpus": 1, "upSeconds": 9}
{"build": "release", "cpus": 1, "upSeconds": 0.25}
"#;

    #[test]
    fn each_combination_has_a_row_with_its_median() {
        let records = read(LINES).unwrap();
        let shown = "\
| build | cpus | up seconds | times |
| --- | --- | ---: | ---: |
| debug | 1 | 2.00 | 3 |
| release | 1 | 0.38 | 2 |
| release | – | 4.00 | 1 |";
        assert_eq!(
            table(&records, "Median upSeconds by build, cpus").as_deref(),
            Some(shown)
        );
    }

    #[test]
    fn parts_without_numbers_are_unknown() {
        let records = read(LINES).unwrap();
        for part in [
            "Median downSeconds by build",
            "Median build by cpus",
            "Median upSeconds by builds",
            "Output",
        ] {
            assert_eq!(table(&records, part), None, "{part}");
        }
        let incomplete = read(&LINES.replace(r#""upSeconds": 9"#, r#""up": 9"#)).unwrap();
        assert_eq!(table(&incomplete, "Median upSeconds by build, cpus"), None);
        assert!(read("{}\n[]\n").is_err(), "no object");
    }

    #[test]
    fn builds_of_all_lines_and_the_first_day_are_named() {
        let later = r#"{"started": "2026-11-28", "commit": "0123456"}"#;
        let shown = environment(&read(&format!("{later}\n{LINES}")).unwrap());
        assert!(
            shown.ends_with("| Build | commit 0123456, 89abcde |\n| Started | 2026-11-27T11:18:29Z |\n"),
            "{shown}"
        );
    }
}
