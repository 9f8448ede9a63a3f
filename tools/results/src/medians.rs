//! Tables of medians, which documents choose from measurements.
//!
//! The part `Median UPLOAD, DOWNLOAD by BUILD, CPUS` has a row for each combination of BUILD and CPUS, and a
//! column for each of UPLOAD and DOWNLOAD. All four are fields of measurements.

use perfrun_judge::Statistics;
use serde_json::{Map, Value};

/// How parts are written.
pub(crate) const PART: &str = "Median FIELD, FIELD by FIELD, FIELD";

/// A measurement.
pub(crate) type Measurement = Map<String, Value>;

/// The table that a part names. `None` if it names none, a value that a line does not have as a number, or a
/// group that no line has.
pub(crate) fn table(measurements: &[Measurement], part: &str) -> Option<String> {
    let (values, keys) = part.strip_prefix("Median ")?.split_once(" by ")?;
    let fields = |names: &str| names.split(", ").map(str::to_owned).collect::<Vec<_>>();
    let (values, keys) = (fields(values), fields(keys));
    let is_known = |key: &String| measurements.iter().any(|one| one.contains_key(key));
    if !keys.iter().all(is_known) {
        return None;
    }
    // In the order of the first line of each.
    let mut groups: Vec<(Vec<String>, Vec<&Measurement>)> = vec![];
    for measurement in measurements {
        let group: Vec<_> = keys.iter().map(|key| text(measurement.get(key))).collect();
        match groups.iter_mut().find(|(known, _)| *known == group) {
            Some((_, members)) => members.push(measurement),
            None => groups.push((group, vec![measurement])),
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
            let numbers = members.iter().map(|measurement| measurement.get(value)?.as_f64());
            let numbers = numbers.collect::<Option<Vec<_>>>()?;
            cells.push(format!("{:.2}", Statistics::of(numbers)?.median));
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

#[cfg(test)]
mod tests {
    use super::{Measurement, table};
    use crate::measurements::tests::LINES;

    fn parsed(lines: &str) -> Vec<Measurement> {
        lines
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    #[test]
    fn each_combination_has_a_row_with_its_median() {
        let measurements = parsed(LINES);
        let shown = "\
| build | cpus | up seconds | times |
| --- | --- | ---: | ---: |
| debug | 1 | 2.00 | 3 |
| release | 1 | 0.38 | 2 |
| release | – | 4.00 | 1 |";
        assert_eq!(
            table(&measurements, "Median upSeconds by build, cpus").as_deref(),
            Some(shown)
        );
    }

    #[test]
    fn parts_without_numbers_are_unknown() {
        let measurements = parsed(LINES);
        for part in [
            "Median downSeconds by build",
            "Median build by cpus",
            "Median upSeconds by builds",
            "Output",
        ] {
            assert_eq!(table(&measurements, part), None, "{part}");
        }
        let incomplete = parsed(&LINES.replace(r#""upSeconds": 9"#, r#""up": 9"#));
        assert_eq!(table(&incomplete, "Median upSeconds by build, cpus"), None);
    }
}
