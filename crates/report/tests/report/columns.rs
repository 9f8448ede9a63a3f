//! Pages list the columns of CSV files and of tables.

use std::{collections::BTreeSet, fs};

use perfrun_report::{history_header, markdown_sections, samples_csv, summary_csv};
use perfrun_test_kit::results::run;

use crate::rendered::QUICKSTART;

#[test]
fn the_page_of_results_lists_all_columns_in_their_order() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/results.md");
    let page = fs::read_to_string(page).unwrap();
    let results = run(QUICKSTART).results();
    let reported = results.reported_run();
    for (file, csv) in [
        ("summary.csv", summary_csv(&reported)),
        ("samples.csv", samples_csv(&reported)),
        ("history.csv", history_header()),
    ] {
        let (_, section) = page.split_once(&format!("\n## {file}\n")).unwrap();
        let (section, _) = section.split_once("\n## ").unwrap_or((section, ""));
        let rows = section.lines();
        let listed = rows.filter_map(|row| row.strip_prefix("| `")?.split('`').next());
        let listed: Vec<&str> = listed.collect();
        let written: Vec<&str> = csv.lines().next().unwrap_or_default().split(',').collect();
        assert_eq!(
            listed, written,
            "{file}: left: columns in crates/api/src/generated/csv.md"
        );
    }
}

#[test]
fn read_the_numbers_explains_the_columns_of_all_tables_with_a_row_for_each_cell() {
    let page = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../docs/how-to/read-the-numbers.md"
    );
    let page = fs::read_to_string(page).unwrap();
    let mut unexplained = BTreeSet::new();
    for workload in [
        "substreams: {counts: [100]}",
        "handshakes: {count: 1000}",
        "ping: {}",
        "relay: {sizes: [100M]}",
        "relayStress: {sinks: [100]}",
        "echo: {loads: [{preset: scenario-2}]}",
        "messages: {modes: [serial, serialAck, stream], sizes: [64, 16Ki], count: 10}",
    ] {
        let results = run(&format!("\n  workload: {{{workload}}}\n")).results();
        for (_, table) in markdown_sections(&results.reported_run()).tables {
            let mut rows = table.lines().filter(|line| line.starts_with('|'));
            let [header, sides] = [rows.next(), rows.next()].map(Option::unwrap_or_default);
            // Values are on the right. Other tables have a column for each pair of stacks.
            let columns = header.split('|').map(str::trim).zip(sides.split('|'));
            let columns =
                columns.filter(|(name, side)| side.contains(':') && *name != "raw" && !name.contains('→'));
            for (name, _) in columns {
                let mut percentiles = [" p50", " p90", " p99"].into_iter();
                let word = percentiles.find_map(|end| name.strip_suffix(end));
                if !page.contains(&format!("*{}*", word.unwrap_or(name))) {
                    unexplained.insert(name.to_owned());
                }
            }
        }
    }
    assert!(unexplained.is_empty(), "{unexplained:?}");
}
