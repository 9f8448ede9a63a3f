//! Tables, with the transformations that the dashboards use.

use std::collections::{BTreeMap, BTreeSet};

use maud::{Markup, html};
use serde_json::Value;

use super::{Answer, Panel, Size, TITLE, cut, values};

/// Pixels of a line.
const LINE: f64 = 20.0;
/// The unit of moments, in milliseconds of Unix time.
const MOMENT: &str = "dateTimeFromNow";

/// A row, which answers to several queries may fill.
#[derive(Default)]
struct Row {
    labels: BTreeMap<String, String>,
    /// By the names of their columns.
    numbers: BTreeMap<String, f64>,
}

/// What a table shows.
#[derive(Debug, Eq, PartialEq)]
struct Table {
    columns: Vec<String>,
    rows: Vec<Vec<String>>,
}

/// A table of a panel at the end of its time range, in seconds of Unix time.
pub(super) fn drawn(panel: &Panel, answers: &[&Answer], size: Size, end: f64) -> Markup {
    let Table { columns, rows } = table(panel, answers, end);
    let fitting = ((size.height - TITLE) / LINE) as usize;
    // The first line has the names of columns, and the last one says how many rows are left out.
    let shown = match rows.len() + 1 > fitting {
        true => &rows[..fitting.saturating_sub(2).min(rows.len())],
        false => &rows[..],
    };
    let more = rows.len() - shown.len();
    let width = (size.width - 16.0) / columns.len().max(1) as f64;
    let x = |column: usize| 8.0 + column as f64 * width;
    let y = |line: usize| TITLE + 14.0 + line as f64 * LINE;
    html! {
        g fill="#6e7781" {
            @for (column, name) in columns.iter().enumerate() {
                text x=(x(column)) y=(y(0)) { (cut(name, width)) }
            }
            @if more > 0 {
                text x=(x(0)) y=(y(shown.len() + 1)) { (format!("{more} more")) }
            }
        }
        @for (line, row) in shown.iter().enumerate() {
            @for (column, text) in row.iter().enumerate() {
                text x=(x(column)) y=(y(line + 1)) { (cut(text, width)) }
            }
        }
    }
}

fn table(panel: &Panel, answers: &[&Answer], end: f64) -> Table {
    // The answer that has only the unit of the others.
    let config = options(panel, "configFromData").and_then(|options| options["configRefId"].as_str());
    let (configs, data): (Vec<&Answer>, Vec<&Answer>) = answers
        .iter()
        .copied()
        .partition(|answer| Some(answer.letter.as_str()) == config);
    let mut series = configs.iter().flat_map(|answer| &answer.series);
    let unit = series
        .find_map(|series| series.labels.get("unit"))
        .map_or_else(|| values::unit(panel), String::as_str);
    let mut rows = merged(panel, &data);
    if let Some(fields) = options(panel, "groupingToMatrix") {
        return matrix(&rows, fields, unit);
    }
    sort(panel, &mut rows);
    let columns = columns(panel, &rows);
    let cell = |row: &Row, (name, shown): &(String, String)| match row.numbers.get(name) {
        Some(number) => number_text(panel, shown, *number, unit, end),
        None => row.labels.get(name).map_or("–", String::as_str).to_owned(),
    };
    let rows = rows
        .iter()
        .map(|row| columns.iter().map(|column| cell(row, column)).collect());
    Table {
        rows: rows.collect(),
        columns: columns.iter().map(|(_, shown)| shown.clone()).collect(),
    }
}

/// The options of a transformation of the panel.
fn options<'a>(panel: &'a Panel, id: &str) -> Option<&'a Value> {
    let mut transformations = panel.transformations.iter();
    let transformation = transformations.find(|transformation| transformation["id"] == id)?;
    Some(&transformation["options"])
}

/// A row for all series that have the same values of the labels that they share, one of each query.
fn merged(panel: &Panel, answers: &[&Answer]) -> Vec<Row> {
    let mut rows: Vec<Row> = vec![];
    for answer in answers {
        let column = match panel.targets.len() {
            1 => "Value".to_owned(),
            _ => format!("Value #{}", answer.letter),
        };
        for series in &answer.series {
            let Some((_, number)) = series.points().last().copied() else {
                continue;
            };
            let is_same = |row: &Row| {
                let mut labels = series.labels.iter();
                let agrees = labels.all(|(name, value)| row.labels.get(name).is_none_or(|own| own == value));
                agrees && !row.numbers.contains_key(&column)
            };
            let index = rows.iter().position(is_same).unwrap_or(rows.len());
            if index == rows.len() {
                rows.push(Row::default());
            }
            let row = &mut rows[index];
            row.labels.extend(series.labels.clone());
            row.numbers.insert(column.clone(), number);
        }
    }
    rows
}

/// Sorts by a column of numbers, if the panel names one.
fn sort(panel: &Panel, rows: &mut [Row]) {
    let by = &panel.options["sortBy"][0];
    let shown = by["displayName"].as_str().unwrap_or_default();
    let renamed = options(panel, "organize").and_then(|options| options["renameByName"].as_object());
    let Some((column, _)) = renamed.and_then(|names| names.iter().find(|(_, name)| **name == shown)) else {
        return;
    };
    let number = |row: &Row| row.numbers.get(column).copied().unwrap_or(f64::NEG_INFINITY);
    rows.sort_by(|one, other| number(one).total_cmp(&number(other)));
    if by["desc"] == true {
        rows.reverse();
    }
}

/// The columns in the order in which they are shown: their names, and the names that are shown.
fn columns(panel: &Panel, rows: &[Row]) -> Vec<(String, String)> {
    let names = rows
        .iter()
        .flat_map(|row| row.labels.keys().chain(row.numbers.keys()));
    let names: BTreeSet<&String> = names.collect();
    let Some(options) = options(panel, "organize") else {
        return names
            .into_iter()
            .map(|name| (name.clone(), name.clone()))
            .collect();
    };
    let place = |name: &str| options["indexByName"][name].as_u64().unwrap_or(u64::MAX);
    let names = names.into_iter();
    let mut names: Vec<_> = names
        .filter(|name| options["excludeByName"][name.as_str()] != true)
        .collect();
    names.sort_by_key(|name| place(name));
    let shown = |name: &String| {
        let shown = options["renameByName"][name.as_str()].as_str();
        shown.unwrap_or(name).to_owned()
    };
    names
        .into_iter()
        .map(|name| (name.clone(), shown(name)))
        .collect()
}

fn number_text(panel: &Panel, column: &str, number: f64, unit: &str, end: f64) -> String {
    let mapped = property(panel, column, "mappings");
    let mapped = mapped.map(|mappings| &mappings[0]["options"][number.to_string()]["text"]);
    if let Some(text) = mapped.and_then(Value::as_str) {
        return text.to_owned();
    }
    match property(panel, column, "unit").and_then(Value::as_str) {
        Some(MOMENT) => format!("{:.0} s ago", (end - number / 1000.0).max(0.0)),
        Some(own) => values::written(number, own),
        None => values::written(number, unit),
    }
}

/// What an override sets for a column.
fn property<'a>(panel: &'a Panel, column: &str, id: &str) -> Option<&'a Value> {
    let overrides = panel.field_config["overrides"].as_array()?.iter();
    let of_column = overrides.filter(|one| {
        let names = one["matcher"]["options"].as_str().unwrap_or_default();
        names.split('|').any(|name| name == column)
    });
    let mut properties = of_column.flat_map(|one| one["properties"].as_array()).flatten();
    Some(&properties.find(|property| property["id"] == id)?["value"])
}

/// A row for each value of a label, and a column for each of another one.
fn matrix(rows: &[Row], options: &Value, unit: &str) -> Table {
    let [row_field, column_field, value_field] =
        ["rowField", "columnField", "valueField"].map(|field| options[field].as_str().unwrap_or_default());
    let values_of = |field: &str| {
        let values = rows.iter().filter_map(|row| row.labels.get(field));
        values.collect::<BTreeSet<_>>()
    };
    let columns = values_of(column_field);
    let text = |row: &String, column: &String| {
        let is_here =
            |it: &&Row| it.labels.get(row_field) == Some(row) && it.labels.get(column_field) == Some(column);
        let number = rows.iter().find(is_here)?.numbers.get(value_field)?;
        Some(values::written(*number, unit))
    };
    let line = |row: &String| {
        let texts = columns.iter().copied();
        let texts = texts.map(|column| text(row, column).unwrap_or_else(|| "–".to_owned()));
        [row.clone()].into_iter().chain(texts).collect::<Vec<_>>()
    };
    let head = format!("{row_field}\\{column_field}");
    Table {
        rows: values_of(row_field).into_iter().map(line).collect(),
        columns: [head]
            .into_iter()
            .chain(columns.iter().map(|name| (*name).clone()))
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{Answer, Panel, Table, table};

    fn panel(transformations: Value) -> Panel {
        let panel = json!({
            "id": 1,
            "type": "table",
            "gridPos": { "x": 0, "y": 0, "w": 24, "h": 8 },
            "targets": [{ "refId": "A", "expr": "a" }, { "refId": "B", "expr": "b" }],
            "fieldConfig": {
                "defaults": { "unit": "short" },
                "overrides": [{ "matcher": { "options": "Late by|Took" }, "properties": [{ "id": "unit", "value": "s" }] }],
            },
            "options": { "sortBy": [{ "displayName": "Median", "desc": true }] },
            "transformations": transformations,
        });
        serde_json::from_value(panel).unwrap()
    }

    fn answer(letter: &str, series: &[(&str, &str)]) -> Answer {
        let series = series.iter().map(|(pair, value)| {
            let series = json!({ "metric": { "pair": pair, "cell": "one" }, "value": [0.0, value] });
            serde_json::from_value(series).unwrap()
        });
        Answer {
            dashboard: String::new(),
            panel: String::new(),
            title: String::new(),
            letter: letter.to_owned(),
            repeated_for: None,
            expression: String::new(),
            instant: true,
            series: series.collect(),
        }
    }

    fn shown(transformations: Value) -> Table {
        let answers = [
            answer("A", &[("slow", "1500"), ("fast", "2500")]),
            answer("B", &[("slow", "0.25")]),
        ];
        table(&panel(transformations), &answers.each_ref(), 0.0)
    }

    #[test]
    fn answers_are_merged_named_sorted_and_have_their_units() {
        let organize = json!({
            "excludeByName": { "cell": true },
            "indexByName": { "pair": 0, "Value #A": 1, "Value #B": 2 },
            "renameByName": { "pair": "Pair", "Value #A": "Median", "Value #B": "Took" },
        });
        let expected = Table {
            columns: ["Pair", "Median", "Took"].map(str::to_owned).into(),
            rows: vec![
                ["fast", "2.50 k", "–"].map(str::to_owned).into(),
                ["slow", "1.50 k", "250 ms"].map(str::to_owned).into(),
            ],
        };
        let transformations =
            json!([{ "id": "merge", "options": {} }, { "id": "organize", "options": organize }]);
        assert_eq!(shown(transformations), expected);
    }

    #[test]
    fn a_matrix_has_a_column_for_each_pair() {
        let matrix = json!({ "columnField": "pair", "rowField": "cell", "valueField": "Value #A" });
        let expected = Table {
            columns: ["cell\\pair", "fast", "slow"].map(str::to_owned).into(),
            rows: vec![["one", "2.50 k", "1.50 k"].map(str::to_owned).into()],
        };
        assert_eq!(
            shown(json!([{ "id": "groupingToMatrix", "options": matrix }])),
            expected
        );
    }
}
