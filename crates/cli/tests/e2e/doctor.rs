//! `perfrun doctor`: what it prints on any machine.

use serde_json::Value;

use crate::perfrun::{Ended, Mode, Running, Scratch, node_program};

/// The findings of `perfrun doctor --json`, which are on one line.
fn parsed(ended: &Ended) -> Value {
    assert_eq!(ended.stderr, "");
    assert_eq!(ended.stdout.lines().count(), 1, "{ended}");
    serde_json::from_str(&ended.stdout).unwrap()
}

fn checks(findings: &Value) -> &Vec<Value> {
    findings["checks"].as_array().unwrap()
}

fn text<'a>(check: &'a Value, field: &str) -> &'a str {
    check[field].as_str().unwrap_or_default()
}

#[test]
fn each_finding_has_a_mark_and_what_mends_it() {
    let scratch = Scratch::new();
    let printed = scratch.call(&["doctor"]);
    assert_eq!(printed.stderr, "");
    let (can_do, spoils) = printed.stdout.split_once("\n\nWould spoil numbers\n").unwrap();
    let (spoils, summary) = spoils.split_once("\n\n").unwrap();
    assert!(
        summary.starts_with("`perfrun run` ") && summary.ends_with(".\n"),
        "{printed}"
    );
    let lines: Vec<&str> = can_do.lines().chain(spoils.lines()).collect();
    let (heading, lines) = lines.split_first().unwrap();
    assert_eq!(*heading, "Can do");

    let findings = parsed(&scratch.call(&["doctor", "--json"]));
    let mut names = checks(&findings).iter().map(|check| text(check, "name"));
    let mut is_mended = true;
    for line in lines {
        if line.trim_start().starts_with("mend: ") {
            assert!(!is_mended, "{line:?}: {printed}");
            is_mended = true;
            continue;
        }
        assert!(is_mended, "before {line:?}: {printed}");
        let (mark, found) = line.trim_start().split_once(' ').unwrap();
        assert!(["ok", "!", "x"].contains(&mark), "{line:?}: {printed}");
        is_mended = mark == "ok";
        let name = names.next().unwrap();
        assert!(found.trim_start().starts_with(name), "{name}: {line:?}");
    }
    assert!(is_mended, "{printed}");
    assert_eq!(names.next(), None, "{printed}");
}

#[test]
fn programs_get_all_findings_and_the_exit_status_says_whether_runs_work() {
    let scratch = Scratch::new();
    let ended = scratch.call(&["doctor", "--json"]);
    let findings = parsed(&ended);
    for check in checks(&findings) {
        assert!(["canDo", "spoils"].contains(&text(check, "group")), "{check}");
        assert_ne!(text(check, "found"), "", "{check}");
        let has_mend = match text(check, "state") {
            "ok" => false,
            "hint" | "missing" => true,
            _ => panic!("{check}"),
        };
        assert_eq!(!text(check, "mend").is_empty(), has_mend, "{check}");
    }
    assert_ne!(text(&findings, "summary"), "");
    let status = if findings["works"] == true { 0 } else { 1 };
    let ended = ended.expect(status);
    node_program();
    if Mode::available().any(|mode| mode == Mode::Namespaces) {
        ended.expect(0);
    }
}

#[test]
fn without_perf_the_finding_names_how_to_install_it() {
    let scratch = Scratch::new();
    let mut command = scratch.perfrun(&["doctor", "--json"]);
    command.env("PATH", scratch.path());
    let findings = parsed(&Running::start(command).ended());
    let mut checks = checks(&findings).iter();
    let profiles = checks.find(|check| text(check, "name") == "profiles").unwrap();
    assert_eq!(text(profiles, "state"), "missing");
    assert_eq!(text(profiles, "found"), "there is no `perf` on PATH");
    assert!(text(profiles, "mend").contains("install"), "{profiles}");
    let summary = text(&findings, "summary");
    // Without perfrun-node, nothing else matters.
    assert!(
        summary.contains("--profile") || summary.contains("does not work here"),
        "{summary}"
    );
}
