//! The page of results lists what CSV files have.

use std::fs;

use perfrun_report::{history_header, samples_csv, summary_csv};
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
