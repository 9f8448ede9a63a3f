//! What holds for every dashboard and every alert, whatever Prometheus has.

// Helpers outside of `#[test]` functions fail a test by panicking, as those do.
#![allow(clippy::unwrap_used)]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

use perfrun_contract::metrics::{EXPORTERS, FamilyKind};
use perfrun_test_kit::{
    Need,
    dashboards::{
        Dashboard, Panel, Prometheus, SENTENCE, Variable, Variables, all, folder, labels_of_legend,
        metrics_of, promtool,
    },
    skip,
};
use serde_json::{Value, json};

/// Panels that every Grafana has.
const CORE: [&str; 12] = [
    "bargauge",
    "barchart",
    "gauge",
    "heatmap",
    "histogram",
    "row",
    "stat",
    "state-timeline",
    "table",
    "text",
    "timeseries",
    "xychart",
];

fn dashboards() -> Vec<Dashboard> {
    let dashboards = all().unwrap();
    assert!(!dashboards.is_empty());
    dashboards
}

/// Panels that show something, each with what messages call it.
fn panels(dashboards: &[Dashboard]) -> Vec<(String, &Panel)> {
    let named =
        |dashboard: &'_ Dashboard, panel: &Panel| format!("{}, panel {}", dashboard.title, panel.title);
    dashboards
        .iter()
        .flat_map(|dashboard| {
            dashboard
                .shown()
                .map(move |panel| (named(dashboard, panel), panel))
        })
        .collect()
}

/// Names in queries, and the labels of their series.
fn exported() -> BTreeMap<String, BTreeSet<&'static str>> {
    let mut exported = BTreeMap::new();
    for exporter in EXPORTERS {
        for family in exporter.families {
            let labels: BTreeSet<_> = exporter.labels.iter().chain(family.labels).copied().collect();
            let name = family.full_name();
            if family.kind == FamilyKind::Histogram {
                for part in ["_bucket", "_sum", "_count"] {
                    exported.insert(format!("{name}{part}"), labels.clone());
                }
            } else {
                exported.insert(name, labels);
            }
        }
    }
    exported
}

#[test]
fn dashboards_have_addresses_of_their_own_and_links_to_each_other() {
    let mut uids = BTreeSet::new();
    for dashboard in dashboards() {
        assert!(
            uids.insert(dashboard.uid.clone()),
            "{} is there twice",
            dashboard.uid
        );
        let file = dashboard.file.file_stem().unwrap().to_str().unwrap();
        assert_eq!(
            dashboard.uid,
            format!("perfrun-{file}"),
            "links go by it: it never changes"
        );
        assert!(
            (41..=42).contains(&dashboard.schema_version),
            "{}",
            dashboard.title
        );
        assert!(!dashboard.title.is_empty() && !dashboard.description.is_empty());
        assert_eq!(dashboard.tags, ["perfrun"]);
        assert_eq!(dashboard.links[0]["tags"][0], "perfrun", "{}", dashboard.title);
    }
    // Links in tables name others by their address.
    for dashboard in dashboards() {
        let text = fs::read_to_string(&dashboard.file).unwrap();
        for link in text.split("/d/").skip(1) {
            let uid = link.split(['?', '"', '/']).next().unwrap();
            assert!(uids.contains(uid), "{}: there is no {uid}", dashboard.title);
        }
    }
}

#[test]
fn panels_have_a_title_a_description_a_unit_and_a_text_for_no_value() {
    for (name, panel) in panels(&dashboards()) {
        assert!(CORE.contains(&panel.kind.as_str()), "{name}: {}", panel.kind);
        assert!(
            !panel.title.is_empty() && panel.description.ends_with('.'),
            "{name}"
        );
        let defaults = &panel.field_config["defaults"];
        for what in ["unit", "noValue"] {
            assert!(
                defaults[what].as_str().is_some_and(|text| !text.is_empty()),
                "{name}: {what}"
            );
        }
        if ["timeseries", "bargauge", "gauge"].contains(&panel.kind.as_str()) {
            assert_eq!(
                defaults["min"], 0,
                "{name}: an axis that does not begin at 0 exaggerates"
            );
        }
        assert!(!panel.targets.is_empty(), "{name}");
    }
}

#[test]
fn panels_have_a_place_of_their_own() {
    for dashboard in dashboards() {
        let mut ids = BTreeSet::new();
        let mut taken = BTreeMap::new();
        for panel in &dashboard.panels {
            assert!(ids.insert(panel.id), "{}: id {} twice", dashboard.title, panel.id);
            let place = panel.grid_pos;
            assert!(place.x + place.w <= 24, "{}: {}", dashboard.title, panel.title);
            for cell in
                (place.x..place.x + place.w).flat_map(|x| (place.y..place.y + place.h).map(move |y| (x, y)))
            {
                if let Some(other) = taken.insert(cell, &panel.title) {
                    panic!("{}: {} covers {other}", dashboard.title, panel.title);
                }
            }
        }
    }
}

#[test]
fn a_repeated_panel_uses_a_variable_that_includes_all_values() {
    for dashboard in dashboards() {
        let names = dashboard
            .panels
            .iter()
            .filter_map(|panel| panel.repeat.as_deref());
        for name in names {
            let of_name = |variable: &&Variable| variable.name == name;
            let variable = dashboard.templating.list.iter().find(of_name).unwrap();
            assert!(variable.include_all && variable.all_value.is_none(), "{name}");
        }
    }
}

/// What a query of a panel says by a test of promtool, an hour shown and everything chosen.
fn expression(uid: &str, title: &str, letter: &str) -> String {
    let dashboards = dashboards();
    let dashboard = dashboards.iter().find(|it| it.uid == uid).unwrap();
    let panel = dashboard.shown().find(|panel| panel.title == title).unwrap();
    let target = panel.targets.iter().find(|it| it.ref_id == letter).unwrap();
    let mut variables = Variables::of_time(3600.0, 60.0, 15.0);
    for variable in &dashboard.templating.list {
        variables.set(&variable.name, ".*");
    }
    variables.substitute(&target.expr).unwrap()
}

#[test]
fn the_last_phase_is_shown_and_numbers_of_an_earlier_run_with_the_same_name_are_not() {
    if let Some(obstacle) = Prometheus::obstacle() {
        return skip(Need::Prometheus, "all of it", obstacle);
    }
    let run = r#"run_namespace="default", run="twice""#;
    let seen = |phase: &str, pod: &str, values: &str| {
        let series = format!(
            r#"perfrun_run_seen_timestamp_seconds{{{run}, workload="ping", phase="{phase}", pod="{pod}"}}"#
        );
        json!({ "series": series, "values": values })
    };
    let input = json!([
        // An operator is gone while the run is in progress; the next one sees its end, and is gone, too.
        seen("Running", "old", "15 30 stale"),
        seen("Running", "new", "_ _ _ 60 75 stale"),
        seen("Succeeded", "new", "_ _ _ _ _ 90 105 stale"),
        // Later there is a run of that name again. It has no interval yet.
        seen("Running", "new", "_x240 3600 3615 3630"),
        { "series": format!(r#"perfrun_run_info{{{run}, workload="ping", phase="Running", pod="new"}}"#), "values": "_x240 1 1 1" },
        { "series": format!(r#"perfrun_result_median{{{run}, client="raw", metric="roundTripP50"}}"#), "values": "_x5 2 2 stale _x230 3 3 3" },
        { "series": format!(r#"perfrun_result_ci95_low{{{run}, client="raw", metric="roundTripP50"}}"#), "values": "_x5 1 1 stale" },
    ]);
    let runs = |phase: &str| json!([{ "labels": format!(r#"{{phase="{phase}"}}"#), "value": 1 }]);
    let medians = |median: f64| json!([{ "labels": format!(r#"{{{run}, client="raw"}}"#), "value": median }]);
    let [table, cells] = ["Runs by phase", "$metric of each cell"];
    let tests = [
        (table, "A", "20s", runs("Running")),
        (table, "A", "100s", runs("Succeeded")),
        (table, "A", "30m", runs("Succeeded")),
        (table, "A", "3625s", runs("Running")),
        (cells, "A", "30m", medians(2.0)),
        (cells, "B", "30m", medians(1.0)),
        (cells, "A", "3625s", medians(3.0)),
        (cells, "B", "3625s", json!([])),
    ];
    let tests = tests.map(|(title, letter, time, samples)| {
        let expr = expression("perfrun-overview", title, letter);
        json!({ "expr": expr, "eval_time": time, "exp_samples": samples })
    });
    answers(&input, &tests);
}

#[test]
fn the_dashboard_shows_how_late_a_schedule_is_and_its_run_of_the_new_leader() {
    if let Some(obstacle) = Prometheus::obstacle() {
        return skip(Need::Prometheus, "all of it", obstacle);
    }
    let series = |family: &str, labels: &str, values: &str| {
        let series = format!(r#"perfrun_schedule_{family}{{run_namespace="lab", {labels}}}"#);
        json!({ "series": series, "values": values })
    };
    let due = "success_due_timestamp_seconds";
    let input = json!([
        series(due, r#"schedule="late""#, "600x200"),
        series(due, r#"schedule="early""#, "7200x200"),
        series(
            "last_run_info",
            r#"schedule="late", phase="Succeeded", verdict="Pass", pod="old""#,
            "1x10 stale"
        ),
        series(
            "last_run_info",
            r#"schedule="late", phase="Failed", verdict="", pod="new""#,
            "_x11 1x200"
        ),
    ]);
    let sample = |labels: &str, value: u32| {
        let labels = format!(r#"{{run_namespace="lab", {labels}}}"#);
        json!({ "labels": labels, "value": value })
    };
    let late_by = [
        sample(r#"schedule="early""#, 0),
        sample(r#"schedule="late""#, 1200),
    ];
    let last_run = [sample(r#"schedule="late", phase="Failed""#, 1)];
    let tests = [("D", json!(late_by)), ("E", json!(last_run))];
    let tests = tests.map(|(letter, samples)| {
        let expr = expression("perfrun-operator", "Schedules", letter);
        json!({ "expr": expr, "eval_time": "30m", "exp_samples": samples })
    });
    answers(&input, &tests);
}

/// Checks that Prometheus answers as these tests of promtool say, if it has scraped the input every 15 s.
fn answers(input: &Value, tests: &[Value]) {
    let document =
        json!({ "tests": [{ "interval": "15s", "input_series": input, "promql_expr_test": tests }] });
    let place = tempfile::tempdir().unwrap();
    fs::write(place.path().join("test.yaml"), document.to_string()).unwrap();
    let output = promtool(&["test", "rules", "test.yaml"], place.path()).unwrap();
    let said =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
}

#[test]
fn the_drawing_of_a_dashboard_has_its_panels_and_says_that_it_is_a_drawing() {
    for dashboard in dashboards() {
        let name = dashboard.file.file_stem().unwrap().display();
        let picture = folder().join(format!("../docs/img/dashboards/{name}.svg"));
        let drawn = fs::read_to_string(picture).unwrap();
        assert!(drawn.contains(SENTENCE), "{name}");
        // Variables in titles have values there.
        let titles = dashboard.panels.iter().map(|panel| &panel.title);
        for title in titles.filter(|title| !title.contains('$')) {
            let is_drawn = drawn.contains(&format!(">{title}</text>"));
            assert!(
                is_drawn,
                "{name}: {title} is not drawn: run `cargo xtask pictures`"
            );
        }
    }
}

#[test]
fn data_come_from_the_source_that_is_chosen() {
    for dashboard in dashboards() {
        let first = &dashboard.templating.list[0];
        assert_eq!(
            (first.name.as_str(), first.kind.as_str()),
            ("datasource", "datasource")
        );
        let text = fs::read_to_string(&dashboard.file).unwrap();
        let json: Value = serde_json::from_str(&text).unwrap();
        sources(&json, &mut |source| {
            assert_eq!(source["uid"], "${datasource}", "{}", dashboard.title);
            assert_eq!(source["type"], "prometheus", "{}", dashboard.title);
        });
        for panel in dashboard.shown() {
            assert!(
                panel.datasource.is_object(),
                "{}: {}",
                dashboard.title,
                panel.title
            );
        }
    }
}

fn sources(json: &Value, found: &mut impl FnMut(&Value)) {
    match json {
        Value::Object(fields) => {
            for (name, value) in fields {
                if name == "datasource" {
                    found(value);
                } else {
                    sources(value, found);
                }
            }
        }
        Value::Array(values) => values.iter().for_each(|value| sources(value, found)),
        _ => {}
    }
}

#[test]
fn every_metric_and_label_of_a_query_is_exported() {
    let exported = exported();
    let every: BTreeSet<&str> = exported
        .values()
        .flatten()
        .copied()
        .chain(["le", "pair"])
        .collect();
    for dashboard in dashboards() {
        let mut variables = Variables::of_time(60.0, 1.0, 15.0);
        for variable in &dashboard.templating.list {
            let definition = variables.substitute(&variable.definition).unwrap();
            assert!(
                metrics_of(&definition)
                    .iter()
                    .all(|name| exported.contains_key(name)),
                "{definition}"
            );
            variables.set(&variable.name, "value");
        }
        for panel in dashboard.shown() {
            for target in &panel.targets {
                let name = format!("{}: {}: {}", dashboard.title, panel.title, target.expr);
                variables.substitute(&target.expr).unwrap();
                let metrics = metrics_of(&target.expr);
                assert!(!metrics.is_empty(), "{name}");
                for metric in &metrics {
                    assert!(exported.contains_key(metric), "{name}: nothing exports {metric}");
                }
                let grouped = grouped(&target.expr);
                for label in &grouped {
                    assert!(
                        every.contains(label.as_str()),
                        "{name}: nothing has the label {label}"
                    );
                }
                for label in labels_of_legend(&target.legend_format) {
                    assert!(grouped.contains(label), "{name}: the legend wants {label}");
                }
                if !target.instant {
                    let tells_apart = panel.targets.len() == 1 || !target.legend_format.is_empty();
                    assert!(tells_apart, "{name}: series of several queries need names");
                }
            }
        }
    }
}

/// Labels that aggregations keep: what is in `by (…)`.
fn grouped(expression: &str) -> BTreeSet<String> {
    let lists = expression.split(" by (").skip(1);
    lists
        .filter_map(|list| list.split(')').next())
        .flat_map(|list| list.split(',').map(|label| label.trim().to_owned()))
        .collect()
}

/// Labels that are made of others: the name in `label_join(…, "name", …)`.
fn joined(expression: &str) -> BTreeSet<String> {
    let names = expression.split("), \"").skip(1);
    names
        .filter_map(|name| Some(name.split_once('"')?.0.to_owned()))
        .collect()
}

#[test]
fn columns_of_tables_have_the_names_that_queries_return() {
    for (name, panel) in panels(&dashboards()) {
        let letters: BTreeSet<String> = panel
            .targets
            .iter()
            .map(|target| format!("Value #{}", target.ref_id))
            .collect();
        let mut columns: BTreeSet<String> = panel
            .targets
            .iter()
            .flat_map(|target| grouped(&target.expr))
            .collect();
        columns.extend(["Time".to_owned(), "Value".to_owned()]);
        columns.extend(panel.targets.iter().flat_map(|target| joined(&target.expr)));
        columns.extend(letters);
        for transformation in &panel.transformations {
            let options = &transformation["options"];
            let named = ["excludeByName", "indexByName", "renameByName"]
                .map(|list| options[list].as_object().cloned().unwrap_or_default());
            for column in named.iter().flat_map(|list| list.keys()) {
                assert!(columns.contains(column), "{name}: no query returns {column}");
            }
            for field in ["columnField", "rowField", "valueField"] {
                if let Some(column) = options[field].as_str() {
                    assert!(columns.contains(column), "{name}: no query returns {column}");
                }
            }
        }
    }
}

#[test]
fn series_differ_by_more_than_their_colour() {
    for (name, panel) in panels(&dashboards()) {
        let two_or_more = panel.targets.len() > 1;
        if panel.kind == "timeseries" && two_or_more {
            let overrides = panel.field_config["overrides"].as_array().unwrap();
            let dashes = overrides.iter().any(|it| it.to_string().contains("\"dash\""));
            assert!(dashes, "{name}: its queries are to be told apart by lines, too");
        }
        let values = panel.field_config["defaults"]["thresholds"]["steps"].as_array();
        let is_drawn_by_colour = values.is_some_and(|steps| steps.len() > 1);
        let writes_values = ["stat", "gauge", "bargauge", "table", "timeseries"];
        assert!(
            !is_drawn_by_colour || writes_values.contains(&panel.kind.as_str()),
            "{name}"
        );
    }
}

#[test]
fn alerts_have_a_summary_a_description_and_a_runbook() {
    let text = fs::read_to_string(folder().join("alerts.yaml")).unwrap();
    let rules: Value = serde_saphyr::from_str(&text).unwrap();
    let tests = fs::read_to_string(folder().join("alerts.test.yaml")).unwrap();
    let page = fs::read_to_string(folder().join("../docs/how-to/alerts.md")).unwrap();
    let exported = exported();
    let groups = rules["groups"].as_array().unwrap();
    for rule in groups.iter().flat_map(|group| group["rules"].as_array().unwrap()) {
        let name = rule["alert"].as_str().unwrap();
        for what in ["summary", "description", "runbook"] {
            let text = rule["annotations"][what].as_str().unwrap_or_default();
            assert!(text.len() > 20, "{name}: {what}");
        }
        let severity = rule["labels"]["severity"].as_str().unwrap();
        assert!(["info", "warning", "critical"].contains(&severity), "{name}");
        for metric in metrics_of(rule["expr"].as_str().unwrap()) {
            assert!(exported.contains_key(&metric), "{name}: nothing exports {metric}");
        }
        assert!(tests.contains(name), "{name} has no test in alerts.test.yaml");
        // The chart's `metrics.runbookUrl` leads to it.
        let heading = format!("\n### {name}\n");
        assert!(
            page.contains(&heading),
            "{name} has no heading in docs/how-to/alerts.md"
        );
    }
}

#[test]
fn promtool_accepts_the_alerts_and_their_tests_pass() {
    if let Some(obstacle) = Prometheus::obstacle() {
        return skip(Need::Prometheus, "all of it", obstacle);
    }
    for arguments in [
        ["check", "rules", "--lint-fatal", "alerts.yaml"].as_slice(),
        &["test", "rules", "alerts.test.yaml"],
    ] {
        let output = promtool(arguments, folder()).unwrap();
        let said =
            String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "promtool {arguments:?}: {said}");
    }
}
