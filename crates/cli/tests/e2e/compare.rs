//! `perfrun compare`, `perfrun history` and `perfrun report`, with results that were kept.

use std::{fs, io::Write};

use flate2::{Compression, write::GzEncoder};
use perfrun_contract::{
    compare::{Finding, NoFinding, Verdict},
    matrix::Transport,
    metric::Metric,
    plan::Cell,
    run::RunState,
};
use serde_json::{Value, json};

use crate::{
    kept::{bounded, compared, keep, run, uploads},
    perfrun::{Ended, Scratch, parsed},
};

/// What two runs never tell, in the words of the tables.
const TWO_RUNS: &str = "Two runs cannot decide: the intervals leave out how the machine differs between runs";

fn as_fast(_: &Cell) -> f64 {
    1.0
}

fn slower(_: &Cell) -> f64 {
    0.7
}

/// Expects a refusal that says this.
fn refused(ended: Ended, sentence: &str) -> Ended {
    let ended = ended.expect(1);
    assert!(ended.stderr.contains(sentence), "{sentence:?} is not in: {ended}");
    assert_eq!(ended.stdout, "");
    ended
}

/// Keeps runs of both sides in turn, in the folders `main` and `pr`.
fn in_turn(scratch: &Scratch, count: u32, candidate: fn(&Cell) -> f64) {
    for number in 0..count {
        run(&uploads(), 2 * number, as_fast).keep(scratch, &format!("main/{number}"));
        run(&uploads(), 2 * number + 1, candidate).keep(scratch, &format!("pr/{number}"));
    }
}

fn earlier(scratch: &Scratch, count: u32) {
    for number in 0..count {
        run(&uploads(), number, as_fast).keep(scratch, &format!("kept/{number}"));
    }
}

fn printed_json(ended: &Ended) -> Value {
    serde_json::from_str(&ended.stdout).unwrap()
}

#[test]
fn two_runs_are_shown_as_inconclusive() {
    let scratch = Scratch::new();
    run(&uploads(), 1, as_fast).keep(&scratch, "a");
    run(&uploads(), 2, slower).keep(&scratch, "b");
    let table = scratch.call(&["compare", "a", "b"]).expect(4);
    assert!(table.stdout.contains("Inconclusive: 4 of 4."), "{table}");
    let words = table.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains(TWO_RUNS), "{table}");
    scratch
        .call(&["compare", "a", "b/results.json", "--inconclusive", "pass"])
        .expect(0);
    let json = printed_json(&scratch.call(&["compare", "a", "b", "-o", "json"]).expect(4));
    assert_eq!(
        (&json["basis"], &json["verdict"]),
        (&json!("twoRuns"), &json!("Inconclusive"))
    );
    let ratio = json["comparisons"][0]["ratio"]["value"].as_f64().unwrap();
    assert!((0.65..0.75).contains(&ratio), "{json}");
    let md = scratch
        .call(&["compare", "--base", "a", "--candidate", "b", "-o", "md"])
        .expect(4);
    assert!(
        md.stdout.contains("## Comparisons") && md.stdout.contains(TWO_RUNS),
        "{md}"
    );
}

#[test]
fn compressed_results_are_read_like_others() {
    let scratch = Scratch::new();
    run(&uploads(), 1, as_fast).keep(&scratch, "plain");
    let plain = fs::read(scratch.path().join("plain/results.json")).unwrap();
    let folder = scratch.path().join("kept/1");
    fs::create_dir_all(&folder).unwrap();
    let mut compressed = GzEncoder::new(vec![], Compression::best());
    compressed.write_all(&plain).unwrap();
    let compressed = compressed.finish().unwrap();
    fs::write(folder.join("results.json.gz"), &compressed).unwrap();

    let report = |results: &str| scratch.call(&["report", results, "-o", "md"]).expect(0).stdout;
    for results in ["kept/1", "kept/1/results.json.gz"] {
        assert_eq!(report(results), report("plain"), "{results}");
    }
    let history = |folder: &str| scratch.call(&["history", folder]).expect(0).stdout;
    assert_eq!(history("kept"), history("plain"));

    fs::write(folder.join("results.json.gz"), &plain[..100]).unwrap();
    refused(
        scratch.call(&["report", "kept/1"]),
        "unable to read kept/1/results.json.gz: the file is damaged",
    );
    refused(
        scratch.call(&["run", "--resume", "kept/1"]),
        "the file is damaged",
    );
    fs::write(folder.join("results.json.gz"), compressed).unwrap();
    refused(
        scratch.call(&["run", "--resume", "kept/1"]),
        "its results are compressed: run `gunzip kept/1/results.json.gz` first",
    );
    fs::create_dir(scratch.path().join("empty")).unwrap();
    let no_runs = "unable to read empty: neither it nor a folder in it has a results.json";
    refused(scratch.call(&["history", "empty"]), no_runs);
    refused(scratch.call(&["compare", "empty", "plain"]), no_runs);
    refused(
        scratch.call(&["report", "empty"]),
        "unable to read empty: it has no results.json",
    );
}

#[test]
fn a_candidate_that_is_the_baseline_is_refused() {
    let scratch = Scratch::new();
    run(&uploads(), 1, as_fast).keep(&scratch, "a");
    run(&uploads(), 1, as_fast).keep(&scratch, "copy");
    for other in ["a", "a/results.json", "copy"] {
        refused(
            scratch.call(&["compare", "a", other]),
            "are the same run: name each run once",
        );
    }
}

#[test]
fn two_runs_of_the_same_program_are_reported_as_such() {
    let scratch = Scratch::new();
    run(&uploads(), 1, as_fast).keep(&scratch, "a");
    run(&uploads(), 2, as_fast).keep(&scratch, "b");
    let is_aa = "Baseline and candidate are the same program";
    let same = scratch.call(&["compare", "a", "b"]).expect(4);
    assert!(same.stdout.contains(is_aa), "{same}");
    let next = |info: &mut perfrun_contract::node::Info| info.program_sha256 = Some("c".repeat(64));
    run(&uploads(), 2, as_fast).where_nodes(next).keep(&scratch, "b");
    let other = scratch.call(&["compare", "a", "b"]).expect(4);
    assert!(!other.stdout.contains(is_aa), "{other}");
}

#[test]
fn unlike_runs_are_refused_and_the_error_names_the_differences() {
    let scratch = Scratch::new();
    run(&uploads(), 1, as_fast).keep(&scratch, "a");
    let other = run(&uploads(), 2, as_fast).where_nodes(|info| {
        info.kernel = "6.13.0".to_owned();
        info.cpus = 4;
        info.program_sha256 = Some("c".repeat(64));
        info.commit = Some("1234567".to_owned());
        info.stacks.insert("litep2p".to_owned(), "0.17.0".to_owned());
    });
    other.keep(&scratch, "b");
    let ended = refused(
        scratch.call(&["compare", "a", "b"]),
        "measure them alike, or accept it with --allow cpus,kernel\n",
    );
    for row in ["kernel", "6.12.48", "6.13.0"] {
        assert!(ended.stderr.contains(row), "{ended}");
    }
    for field in ["commit", "0.17.0"] {
        assert!(
            !ended.stderr.contains(field),
            "what is compared may differ: {ended}"
        );
    }
    refused(
        scratch.call(&["compare", "a", "b", "--allow", "cpus"]),
        "--allow kernel\n",
    );
    scratch
        .call(&["compare", "a", "b", "--allow", "cpus,kernel"])
        .expect(4);
    scratch
        .call(&["compare", "a", "b", "--allow", "colour"])
        .expect(2);
}

#[test]
fn other_workloads_and_other_versions_of_two_stacks_are_unlike() {
    let scratch = Scratch::new();
    let version = |version: &'static str| {
        move |info: &mut perfrun_contract::node::Info| {
            let names = ["litep2p", "libp2p"].map(str::to_owned);
            info.stacks.extend(names.map(|name| (name, version.to_owned())));
        }
    };
    let matrix =
        json!({"clients": ["litep2p"], "servers": ["libp2p"], "transports": ["tcp"], "rawReference": false});
    let document = uploads().with("matrix", matrix);
    run(&document, 1, as_fast)
        .where_nodes(version("1"))
        .keep(&scratch, "a");
    run(&document, 2, as_fast)
        .where_nodes(version("2"))
        .keep(&scratch, "b");
    refused(scratch.call(&["compare", "a", "b"]), "--allow stacks\n");
    let compat = json!({"bandwidth": {"directions": ["upload"], "duration": "1s", "timing": "compat"}});
    run(&document.clone().with("workload", compat), 3, as_fast)
        .where_nodes(version("1"))
        .keep(&scratch, "c");
    let ended = refused(scratch.call(&["compare", "a", "c"]), "--allow workload\n");
    for field in ["timing: strict", "timing: compat"] {
        assert!(ended.stderr.contains(field), "{field}: {ended}");
    }
    assert!(!ended.stderr.contains("chunk"), "only what differs: {ended}");
    run(&compared(), 4, as_fast).keep(&scratch, "d");
    refused(
        scratch.call(&["compare", "a", "d"]),
        "the runs have no cell in common, beside the raw reference, since a has litep2p.libp2p.tcp.upload-1s, and d has \
         main.main.tcp.upload-1s, pr.pr.tcp.upload-1s: compare runs of one document",
    );
    let ping = json!({"ping": {"count": 20}});
    run(&document.with("workload", ping), 4, as_fast).keep(&scratch, "ping");
    refused(
        scratch.call(&["compare", "a", "ping"]),
        "since a measures bandwidth (upload-1s), and ping measures ping (ping-20): compare runs of one document",
    );
    let stacks = json!([{"name": "main", "stack": "libp2p"}, {"name": "pr", "stack": "litep2p"}]);
    run(&compared().with("stacks", stacks), 5, as_fast).keep(&scratch, "e");
    let ended = refused(scratch.call(&["compare", "d", "e"]), "--allow settings\n");
    for field in ["client.stack: litep2p", "client.stack: libp2p"] {
        assert!(ended.stderr.contains(field), "{field}: {ended}");
    }
}

#[test]
fn runs_of_two_sides_are_compared_in_pairs() {
    let scratch = Scratch::new();
    in_turn(&scratch, 9, slower);
    let ended = scratch
        .call(&["compare", "--base", "main", "--candidate", "pr"])
        .expect(3);
    assert!(ended.stdout.contains("Worse: upload over tcp, "), "{ended}");
    assert!(ended.stdout.contains("(9 pairs of runs)."), "{ended}");
    let scratch = Scratch::new();
    in_turn(&scratch, 9, as_fast);
    let named = ["0", "1", "2", "3", "4", "5", "6", "7", "8"];
    let mut args = vec!["compare".to_owned(), "--base".to_owned()];
    args.extend(named.map(|number| format!("main/{number}")));
    args.push("--candidate".to_owned());
    args.extend(named.map(|number| format!("pr/{number}")));
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let same = scratch.call(&args).expect(0);
    assert!(same.stdout.contains("4 of 4 the same within 5 %."), "{same}");
}

#[test]
fn too_few_runs_are_refused() {
    let scratch = Scratch::new();
    in_turn(&scratch, 5, slower);
    refused(
        scratch.call(&["compare", "--base", "main", "--candidate", "pr"]),
        "5 runs of the baseline and 5 of the candidate: name one of each, or as many of each and at least 6",
    );
    let three = scratch.call(&["compare", "main/0", "main/1", "pr/0"]).expect(2);
    let sentence = "3 results: name those of each side with --base and --candidate";
    assert!(three.stderr.contains(sentence), "{three}");
    earlier(&scratch, 4);
    run(&uploads(), 50, slower).keep(&scratch, "new");
    refused(
        scratch.call(&["compare", "--history", "kept", "new"]),
        "kept has 4 earlier runs of uploads, and at least 5 are needed",
    );
}

#[test]
fn runs_that_do_not_take_turns_are_refused() {
    let scratch = Scratch::new();
    for number in 0..6 {
        run(&uploads(), number, as_fast).keep(&scratch, &format!("main/{number}"));
        run(&uploads(), 10 + number, slower).keep(&scratch, &format!("pr/{number}"));
    }
    refused(scratch.call(&["compare", "main", "pr"]), "do not take turns");
}

#[test]
fn a_new_run_is_compared_with_earlier_runs() {
    let scratch = Scratch::new();
    earlier(&scratch, 6);
    // Neither itself, nor what came after it, nor another run is part of its history.
    run(&uploads(), 10, slower).keep(&scratch, "kept/new");
    run(&uploads(), 20, slower).keep(&scratch, "kept/later");
    let mut other = run(&uploads(), 3, slower);
    other.0.name = "another".to_owned();
    other.keep(&scratch, "kept/another");
    let ended = scratch
        .call(&["compare", "--history", "kept", "kept/new"])
        .expect(3);
    assert!(ended.stdout.contains("Worse: upload over tcp, "), "{ended}");
    assert!(ended.stdout.contains("(6 earlier runs)."), "{ended}");
    run(&uploads(), 11, as_fast).keep(&scratch, "usual");
    let usual = scratch
        .call(&["compare", "--history", "kept", "usual", "-o", "json"])
        .expect(4);
    assert_eq!(
        printed_json(&usual)["comparisons"][0]["finding"],
        json!(Finding::Inconclusive)
    );
    scratch.call(&["compare", "--history", "kept"]).expect(2);
}

#[test]
fn a_report_of_some_cells_has_the_verdict_of_the_whole_run() {
    let scratch = Scratch::new();
    let both = json!({"clients": ["main"], "servers": ["main"], "transports": ["tcp", "quic-v1"], "rawReference": false});
    let document = bounded("5%").with("matrix", both);
    let is_worse = |cell: &Cell| cell.client.0 == "pr" && cell.transport == Transport::QuicV1;
    run(&document, 1, |cell| if is_worse(cell) { 0.7 } else { 1.0 }).keep(&scratch, "a");
    let report = |args: &[&str]| scratch.call(&[&["report", "a"], args].concat()).expect(0).stdout;
    let verdict = "Fail · 1 of 2 expectations does not hold";
    assert!(report(&[]).contains(&format!("Verdict: {verdict}")));
    for output in ["table", "md", "html"] {
        let some = report(&["--where", "transport=tcp", "-o", output]);
        let whole = format!("of 24 trials of these cells completed · Verdict of the whole run: {verdict}");
        assert_eq!(some.matches(&whole).count(), 1, "{some}");
        assert!(!some.contains("Not as expected"), "{some}");
    }
    let some: Value = serde_json::from_str(&report(&["--where", "transport=tcp", "-o", "json"])).unwrap();
    assert_eq!(some["judged"], json!({"comparisons": [], "verdict": "Fail"}));
    run(&uploads(), 1, as_fast).keep(&scratch, "plain");
    let plain = scratch
        .call(&["report", "plain", "--where", "transport=tcp"])
        .expect(0);
    assert!(!plain.stdout.contains("Verdict"), "it expects nothing: {plain}");
}

#[test]
fn compare_with_one_run_shows_its_own_findings() {
    let scratch = Scratch::new();
    let by_variant = |cell: &Cell| if cell.client.0 == "pr" { 0.9 } else { 1.0 };
    for (share, status) in [("20%", 0), ("5%", 3), ("10%", 4)] {
        let run = run(&bounded(share), 1, by_variant);
        run.keep(&scratch, "a");
        let ended = scratch.call(&["compare", "a"]).expect(status);
        let report = scratch.call(&["report", "a"]).expect(0);
        let shown = report.stdout.trim_end();
        assert_eq!(ended.stdout, format!("{shown} · exit {status}\n"));
        let passes = i32::from(status == 3) * 3;
        scratch
            .call(&["compare", "a", "--inconclusive", "pass"])
            .expect(passes);
    }
    let mut stopped = run(&bounded("20%"), 1, by_variant);
    stopped.0.state = RunState::Interrupted;
    stopped.keep(&scratch, "stopped");
    scratch.call(&["compare", "stopped"]).expect(1);
    run(&uploads(), 1, as_fast).keep(&scratch, "plain");
    refused(
        scratch.call(&["compare", "plain"]),
        "plain compares nothing and expects nothing",
    );
    let aa = run(&compared(), 1, as_fast).where_nodes(|info| info.program_sha256 = Some("a".repeat(64)));
    aa.keep(&scratch, "aa");
    let ended = scratch.call(&["compare", "aa"]).expect(0);
    assert!(ended.stdout.contains("are the same program"), "{ended}");
    let stacks = json!([{"name": "main", "stack": "litep2p"}, {"name": "pr", "stack": "libp2p"}]);
    let two = run(&compared().with("stacks", stacks), 1, as_fast);
    two.where_nodes(|info| info.program_sha256 = Some("a".repeat(64)))
        .keep(&scratch, "two");
    let ended = scratch.call(&["compare", "two"]).expect(0);
    assert!(
        !ended.stdout.contains("the same program"),
        "its stacks differ: {ended}"
    );
}

#[test]
fn a_pair_of_cells_on_two_machines_is_not_comparable() {
    let mut kept = run(&bounded("10%"), 1, as_fast);
    for (name, info) in &mut kept.0.environment.nodes {
        if name.ends_with("-pr") {
            info.host = "another".to_owned();
        }
    }
    let scratch = Scratch::new();
    kept.keep(&scratch, "a");
    let ended = scratch.call(&["compare", "a", "-o", "json"]).expect(4);
    let judged = &printed_json(&ended)["judged"];
    assert_eq!(
        judged["comparisons"][0]["reason"],
        json!(NoFinding::DifferentMachines)
    );
    assert_eq!(judged["verdict"], json!(Verdict::Inconclusive));
}

#[test]
fn systems_for_continuous_integration_get_their_forms() {
    let scratch = Scratch::new();
    let document = compared().with(
        "expect",
        json!([{"metric": "uploadGoodput", "maxRegression": "5%"}, {"metric": "uploadGoodput", "min": "1Gbit"}]),
    );
    let by_variant = |cell: &Cell| if cell.client.0 == "pr" { 0.8 } else { 1.0 };
    run(&document, 1, by_variant).keep(&scratch, "a");
    for (command, status) in [("compare", 3), ("report", 0)] {
        let junit = scratch.call(&[command, "a", "-o", "junit"]).expect(status).stdout;
        assert!(
            junit.contains(r#"tests="3""#) && junit.contains(r#"failures="1""#),
            "{junit}"
        );
        assert!(junit.contains("uploadGoodput worse by at most 5 %"), "{junit}");
        let github = scratch.call(&[command, "a", "-o", "github"]).expect(status);
        assert!(github.stdout.contains("## Expectations"), "{github}");
        let commands = [
            "::error title=perfrun uploads::Not as expected: upload",
            "::error title=perfrun uploads::Verdict: Fail",
        ];
        for command in commands {
            assert!(github.stderr.contains(command), "{command}: {github}");
        }
        assert!(github.stderr.contains("5 %25"), "{github}");
        assert!(!github.stderr.contains("Worse: upload"), "said twice: {github}");
    }
    run(&uploads(), 2, as_fast).keep(&scratch, "b");
    run(&uploads(), 3, as_fast).keep(&scratch, "c");
    let open = scratch
        .call(&["compare", "b", "c", "-o", "junit"])
        .expect(4)
        .stdout;
    assert!(
        open.contains(r#"tests="4""#) && open.contains(r#"failures="4""#),
        "{open}"
    );
    let skipped = scratch
        .call(&["compare", "b", "c", "-o", "junit", "--inconclusive", "pass"])
        .expect(0);
    assert!(skipped.stdout.contains(r#"failures="0""#), "{skipped}");
    let github = scratch.call(&["compare", "b", "c", "-o", "github"]).expect(4);
    assert!(
        github
            .stderr
            .contains("::warning title=perfrun uploads::Inconclusive: upload"),
        "{github}"
    );
    let samples = scratch.call(&["report", "b", "-o", "csv"]).expect(0);
    assert!(samples.stderr.contains("uploads has no samples"), "{samples}");
    refused(
        scratch.call(&["report", "b", "-o", "junit"]),
        "uploads compares nothing and expects nothing, so there is nothing to report: add `compare` or `expect` to the \
         document and run it again, or choose another --output",
    );
    let ended = scratch.call(&["compare", "b", "c", "-o", "csv"]).expect(2);
    assert!(ended.stderr.contains("csv and html show one run"), "{ended}");
}

#[test]
fn failed_trials_are_the_worst_values() {
    let scratch = Scratch::new();
    earlier(&scratch, 6);
    run(&uploads(), 10, as_fast).all_failed().keep(&scratch, "new");
    let ended = scratch.call(&["compare", "--history", "kept", "new"]).expect(3);
    assert!(ended.stdout.contains("failed trials 0 → 12"), "{ended}");
    scratch.call(&["compare", "kept/0", "new"]).expect(4);
    run(&uploads(), 11, as_fast).all_failed().keep(&scratch, "other");
    scratch.call(&["compare", "new", "other"]).expect(4);
}

#[test]
fn values_that_no_metric_has_are_refused() {
    let scratch = Scratch::new();
    run(&uploads(), 1, as_fast).keep(&scratch, "a");
    for value in ["null", "1e999", "-1e999", "\"NaN\""] {
        let mut broken = run(&uploads(), 2, as_fast).json();
        broken["trials"][3]["metrics"]["uploadGoodput"] = json!("here");
        keep(&scratch, "b", &broken.to_string().replace("\"here\"", value));
        for command in [&["compare", "a", "b"][..], &["compare", "b"], &["report", "b"]] {
            refused(
                scratch.call(command),
                "unable to read b/results.json as results of schema version 2",
            );
        }
    }
}

#[test]
fn a_metric_without_a_direction_is_not_judged() {
    let scratch = Scratch::new();
    let mut kept = run(&bounded("10%"), 1, as_fast);
    kept.0.plan.judging.expect[0].metric = Metric::ClientCpuCores;
    kept.keep(&scratch, "a");
    let ended = scratch.call(&["compare", "a", "-o", "json"]).expect(4);
    assert_eq!(
        printed_json(&ended)["judged"]["comparisons"][0]["finding"],
        json!(Finding::NotComparable)
    );
}

#[test]
fn results_of_older_versions_are_read_or_refused_with_a_reason() {
    let scratch = Scratch::new();
    run(&uploads(), 1, as_fast).keep(&scratch, "a");
    let mut older = run(&uploads(), 2, as_fast).json();
    for node in older["environment"]["nodes"]
        .as_object_mut()
        .unwrap()
        .values_mut()
    {
        let node = node.as_object_mut().unwrap();
        for field in ["contract", "governor", "programSha256", "compiler"] {
            node.remove(field);
        }
    }
    keep(&scratch, "old", &older.to_string());
    let ended = refused(
        scratch.call(&["compare", "a", "old"]),
        "--allow compiler,governor\n",
    );
    assert!(ended.stderr.contains("performance"), "{ended}");
    let allowed = scratch
        .call(&["compare", "a", "old", "--allow", "governor,compiler"])
        .expect(4);
    assert!(!allowed.stdout.contains("A/A"), "{allowed}");
    older["schemaVersion"] = json!(0);
    keep(&scratch, "older", &older.to_string());
    refused(
        scratch.call(&["compare", "a", "older"]),
        "older/results.json has results of schema version 0, and this perfrun reads 2: use the perfrun that wrote it",
    );
}

#[test]
fn history_is_a_line_for_each_run_cell_and_metric() {
    let scratch = Scratch::new();
    earlier(&scratch, 2);
    let mut few = run(&uploads(), 7, as_fast);
    let unmeasured = few.0.plan.cells[1].id.clone();
    few.0.trials.retain(|record| record.trial.id == "c0.i0");
    few.keep(&scratch, "kept/few");
    let csv = scratch.call(&["history", "kept"]).expect(0).stdout;
    let lines: Vec<&str> = csv.lines().collect();
    assert_eq!(
        lines[0],
        "run,when,label,commit,cell,metric,unit,median,ci95_low,ci95_high"
    );
    assert_eq!(lines.len(), 1 + 2 * 4 + 2, "{csv}");
    let first =
        "uploads,2026-11-20T00:00:00Z,main,89abcde,litep2p.litep2p.tcp.upload-1s,uploadGoodput,bit/s,";
    assert!(lines[1].starts_with(first), "{csv}");
    assert_eq!(lines[1].split(',').count(), 10);
    let last = lines.last().unwrap();
    assert!(
        last.starts_with("uploads,2026-11-20T07:00:00Z,") && last.ends_with(",,"),
        "{csv}"
    );
    assert!(!last.contains(&unmeasured), "{csv}");
    let no_runs = "unable to read nowhere: neither it nor a folder in it has a results.json: name the results folder of \
                   a run, or the folder with those of several, such as results";
    refused(scratch.call(&["history", "nowhere"]), no_runs);
    refused(
        scratch.call(&["compare", "--history", "nowhere", "kept/few"]),
        no_runs,
    );
}

#[test]
fn runs_that_tests_keep_fit_the_published_schema() {
    let json = run(&compared(), 1, as_fast).json().to_string();
    assert!(parsed(&json).judged.is_some());
}
