//! Bad input, refused before anything is started, with a sentence that says what to change.

use std::{fs, os::unix::fs::PermissionsExt, process::Command};

use serde_json::json;

use crate::{
    document::{self, Document},
    perfrun::{Ended, Mode, NO_NAMESPACES, PERFRUN, Running, Scratch, entries, started_by},
};
use perfrun_test_kit::{Need, skip};

/// Expects that a document is refused by `validate` and by `run`, with the same sentence, and that nothing is
/// left.
fn refuse(text: &str, sentence: &str) {
    let scratch = Scratch::new();
    scratch.write("document.yaml", text);
    for args in [
        &["validate", "document.yaml"][..],
        &["run", "document.yaml", "--loopback"],
    ] {
        let ended = scratch.call(args).expect(1);
        assert!(ended.stderr.contains(sentence), "{sentence:?} is not in: {ended}");
        assert!(ended.stderr.starts_with("perfrun: document.yaml: "), "{ended}");
        assert_eq!(ended.stdout, "");
    }
    assert_eq!(entries(scratch.path()).len(), 1, "nothing was made");
}

/// Expects that a valid document is not run.
fn refuse_to_run(scratch: &Scratch, document: &Document, args: &[&str], sentence: &str) -> Ended {
    let before = entries(scratch.path()).len();
    let ended = scratch.run(Mode::Loopback, document, args).expect(1);
    assert!(ended.stderr.contains(sentence), "{sentence:?} is not in: {ended}");
    assert_eq!(ended.stderr.lines().count(), 1, "a sentence: {ended}");
    assert_eq!(ended.stdout, "");
    let document = 1;
    assert!(
        entries(scratch.path()).len() <= before + document,
        "nothing was made"
    );
    ended
}

#[test]
fn an_unknown_field_is_refused() {
    let document = document::run("typo").with("iteration", json!(3));
    refuse(&document.text(), "perfrun/typo is invalid:\n  - spec.iteration: ");
}

#[test]
fn two_workloads_are_refused() {
    let document = document::run("two").with("workload", json!({ "ping": {}, "substreams": {} }));
    refuse(&document.text(), "set exactly one workload");
}

#[test]
fn a_document_that_cannot_end_in_its_time_is_refused() {
    let document = document::steady("long", 510, 10).with("timeouts", json!({ "run": "4s" }));
    refuse(
        &document.text(),
        "perfrun/long: cannot end within timeouts.run, 4 s: its 10 trials take at least 5 s; raise timeouts.run",
    );
}

#[test]
fn a_size_of_0_is_refused() {
    let document = document::run("empty").with("workload", json!({ "bandwidth": { "sizes": [0] } }));
    refuse(
        &document.text(),
        "perfrun/empty is invalid:\n  - spec.workload.bandwidth.sizes[0]: ",
    );
}

#[test]
fn a_document_without_a_runnable_cell_is_refused() {
    let matrix = json!({ "clients": ["litep2p"], "servers": ["litep2p"], "transports": ["tcp-tls"], "rawReference": false });
    refuse(
        &document::run("none").with("matrix", matrix).text(),
        "nothing to run: every cell of the matrix is skipped: litep2p secures TCP by Noise only, it has no TLS",
    );
}

#[test]
fn a_regression_without_a_comparison_is_refused() {
    let sentence = "spec.expect: must not have maxRegression without compare, which names its baseline: add compare, or \
                    compare two programs by `perfrun run --candidate PATH`";
    let expects = json!([{ "metric": "roundTripP50", "maxRegression": "10%" }]);
    refuse(&document::run("alone").with("expect", expects).text(), sentence);
    let scratch = Scratch::new();
    scratch.write("alone.yaml", &document::run("alone").text());
    let with = |regression: &str, more: &[&str]| {
        let args = [&["plan", "alone.yaml", "--max-regression", regression], more].concat();
        scratch.call(&args)
    };
    let ended = with("roundTripP50=10%", &[]).expect(1);
    assert!(
        ended.stderr.contains("--max-regression needs a comparison: "),
        "{ended}"
    );
    with("roundTripP50=10%", &["--candidate", "/bin/true"]).expect(0);
    let ended = with("roundTrip=10%", &["--candidate", "/bin/true"]).expect(2);
    for words in ["\"roundTrip\" is not a metric", "roundTripP50, roundTripP90"] {
        assert!(ended.stderr.contains(words), "{words}: {ended}");
    }
}

#[test]
fn a_document_with_more_cells_than_allowed_is_refused() {
    let text = include_str!("../../../api/tests/api/too-large.yaml");
    let sentence = "perfrun/too-large: too many cells: 96768, with the raw reference and skipped cells, but at \
                    most 4096 are allowed; shorten the lists of matrix or workload\n";
    refuse(text, sentence);
    let scratch = Scratch::new();
    scratch.write("document.yaml", text);
    // The document is refused before a cluster is looked for.
    for args in [
        &["plan", "document.yaml"][..],
        &["run", "document.yaml", "--cluster"],
    ] {
        let ended = scratch.call(args).expect(1);
        assert_eq!(ended.stderr, format!("perfrun: document.yaml: {sentence}"));
        assert_eq!(ended.stdout, "");
    }
}

#[test]
fn a_new_document_replaces_no_file_and_has_a_known_workload() {
    let scratch = Scratch::new();
    let kept = scratch.write("kept.yaml", "kept\n");
    let new = |workload: &str, file: &str| scratch.call(&["new", workload, "--output", file]);
    let ended = new("ping", "kept.yaml").expect(1);
    assert_eq!(
        ended.stderr,
        "perfrun: kept.yaml exists already, and perfrun does not overwrite it: name another file with --output, or \
         remove this one\n"
    );
    assert_eq!(fs::read_to_string(kept).unwrap(), "kept\n");
    let ended = new("ping", "none/new.yaml").expect(1);
    assert!(
        ended.stderr.contains("failed to create none/new.yaml: "),
        "{ended}"
    );
    let ended = new("pong", "new.yaml").expect(2);
    assert!(
        ended.stderr.contains("[possible values: bandwidth, substreams, "),
        "{ended}"
    );
    assert_eq!(entries(scratch.path()).len(), 1, "nothing was made");
}

#[test]
fn another_kind_and_an_empty_file_are_refused() {
    refuse("kind: Pod\n", "document 1 is");
    refuse("", "the file has no document: a PerfRun begins with");
    refuse("a: [\n", "unable to read the document");
}

#[test]
fn an_invalid_second_document_is_refused() {
    let good = document::run("good").text();
    let bad = document::run("bad").with("warmup", json!(101)).text();
    refuse(&(good + &bad), "perfrun/bad is invalid:\n  - spec.warmup: ");
}

#[test]
fn a_suspended_or_cancelled_document_is_valid_and_not_run() {
    for (field, sentence) in [
        (
            "suspend",
            "perfrun/held is suspended: set spec.suspend to false to run it",
        ),
        (
            "cancel",
            "perfrun/held is cancelled: set spec.cancel to false to run it",
        ),
    ] {
        let document = document::run("held").with(field, json!(true));
        let scratch = Scratch::new();
        refuse_to_run(&scratch, &document, &[], sentence);
        scratch.call(&["validate", "document.yaml"]).expect(0);
    }
}

#[test]
fn a_missing_file_is_refused() {
    let scratch = Scratch::new();
    let ended = scratch.call(&["run", "nowhere.yaml", "--loopback"]).expect(1);
    assert!(
        ended
            .stderr
            .starts_with("perfrun: failed to read nowhere.yaml: No such file"),
        "{ended}"
    );
}

#[test]
fn a_folder_in_place_of_a_file_is_refused() {
    let scratch = Scratch::new();
    let ended = scratch.call(&["plan", "."]).expect(1);
    assert_eq!(ended.stderr, "perfrun: . is a folder: name a file in it\n");
}

#[test]
fn a_folder_that_cannot_be_written_is_refused() {
    let scratch = Scratch::new();
    let document = document::run("unkept");
    scratch.write("file", "");
    for folder in ["file", "file/below", "/proc/perfrun-results", "/sys"] {
        let sentence = format!(
            "unable to keep results in {folder}: make it writable, or choose another folder with --results"
        );
        refuse_to_run(&scratch, &document, &["--results", folder], &sentence);
    }
    // Root may write anyway: for an ordinary user see `users`.
    if !rustix::process::geteuid().is_root() {
        let sealed = scratch.path().join("sealed");
        fs::create_dir(&sealed).unwrap();
        fs::set_permissions(&sealed, fs::Permissions::from_mode(0o555)).unwrap();
        refuse_to_run(
            &scratch,
            &document,
            &["--results", "sealed"],
            "unable to keep results in sealed:",
        );
    }
}

#[test]
fn a_path_that_is_not_a_node_program_is_refused() {
    let scratch = Scratch::new();
    let document = document::run("unstarted");
    scratch.write("plain", "");
    for (path, why) in [
        ("nowhere/perfrun-node", "No such file or directory"),
        ("plain", "Permission denied"),
        (".", "is a directory"),
    ] {
        let sentence = format!(
            "unable to run --node {path} as a node (`cargo build --release -p perfrun-node` builds one): {why}"
        );
        refuse_to_run(&scratch, &document, &["--node", path], &sentence);
    }
}

#[test]
fn a_node_program_for_an_unknown_variant_is_refused() {
    let scratch = Scratch::new();
    let stacks = json!([{ "name": "next", "stack": "raw" }]);
    let document = document::run("misspelt").with("stacks", stacks);
    refuse_to_run(
        &scratch,
        &document,
        &["--node", "nxt=/bin/true"],
        "--node nxt=..: the document has no stack variant nxt, it has next",
    );
    refuse_to_run(
        &scratch,
        &document::run("unlisted"),
        &["--node", "next=/bin/true"],
        "--node next=..: the document has no stack variant next, it has none: use --node PATH for all nodes, or \
         list the variant in spec.stacks",
    );
    refuse_to_run(
        &scratch,
        &document,
        &["--node", "/bin/true", "--node", "/bin/false"],
        "--node was given twice for all nodes",
    );
}

#[test]
fn an_image_without_a_program_is_refused() {
    let scratch = Scratch::new();
    let stacks = json!([{ "name": "next", "stack": "raw", "image": "example.org/node:next" }]);
    let matrix = json!({ "clients": ["next"], "servers": ["raw"], "transports": ["tcp"] });
    let document = document::run("image")
        .with("stacks", stacks)
        .with("matrix", matrix);
    let sentence = "stack next is a container image, and a local run needs a program: set its command, or name one with \
                    --node next=PATH";
    refuse_to_run(&scratch, &document, &[], sentence);
    // The program of the others is not that of the image.
    refuse_to_run(&scratch, &document, &["--node", "/bin/true"], sentence);
}

#[test]
fn a_run_without_perfrun_node_beside_perfrun_is_refused() {
    let scratch = Scratch::new();
    let alone = scratch.path().join("perfrun");
    fs::copy(PERFRUN, &alone).unwrap();
    scratch.write("document.yaml", &document::run("alone").text());
    let mut command = Command::new(&alone);
    command
        .args(["run", "document.yaml", "--loopback"])
        .current_dir(scratch.path());
    let ended = Running::start(command).ended().expect(1);
    assert!(
        ended.stderr.ends_with(
            "/perfrun-node: build it by `cargo build --release -p perfrun-node`, or name one with --node\n"
        ),
        "{ended}"
    );
    assert_eq!(entries(scratch.path()).len(), 2, "nothing was made");
}

#[test]
fn refused_namespaces_name_the_reason_and_the_way_without() {
    // A user namespace in which no further namespace may be made.
    let script =
        "for limit in net user; do echo 0 >/proc/sys/user/max_${limit}_namespaces; done && exec \"$@\"";
    let confining = ["unshare", "--user", "--map-root-user", "sh", "-c", script, "sh"];
    let confined = |command: &Command| started_by(&confining, command);
    if !confined(&Command::new("true"))
        .output()
        .is_ok_and(|output| output.status.success())
    {
        return skip(
            Need::Namespaces,
            "a limit of no namespaces",
            "user namespaces cannot be had",
        );
    }
    let scratch = Scratch::new();
    let document = document::run("confined");
    let command = scratch.command(Mode::Namespaces, &document, &[]);
    let ended = Running::start(confined(&command)).ended().expect(1);
    assert!(ended.stderr.contains(NO_NAMESPACES), "{ended}");
    assert!(ended.stderr.contains("or use --loopback"), "{ended}");
    assert!(
        ended.stderr.contains("sysctl user.max_"),
        "what to change: {ended}"
    );
    assert!(!scratch.results().exists());

    let command = scratch.command(Mode::Loopback, &document, &[]);
    Running::start(confined(&command)).ended().expect(0);
}

#[test]
fn an_unknown_option_is_a_usage_error() {
    let scratch = Scratch::new();
    scratch.call(&["run"]).expect(2);
    scratch.call(&["run", "document.yaml", "--fast"]).expect(2);
    scratch
        .call(&["run", "document.yaml", "--resume", "results"])
        .expect(2);
    let ended = scratch
        .call(&["--log", "][", "validate", "document.yaml"])
        .expect(2);
    assert!(ended.stderr.contains("unable to read --log"), "{ended}");
    let mut command = scratch.perfrun(&["validate", "document.yaml"]);
    command.env("RUST_LOG", "][");
    let ended = Running::start(command).ended().expect(2);
    assert!(
        ended
            .stderr
            .contains("RUST_LOG in the environment, as a filter: \"][\""),
        "{ended}"
    );
}

#[test]
fn options_that_exclude_each_other_are_usage_errors_and_missing_files_are_not() {
    let scratch = Scratch::new();
    scratch.write("document.yaml", &document::run("pods").text());
    for (line, sentence) in [
        (
            "report nowhere --where transport=tcp -o junit",
            "findings are of the whole run",
        ),
        ("report nowhere --where transport=teleport", "is not a transport"),
        ("compare a b c", "3 results: name those of each side"),
        (
            "compare --history kept a b",
            "--history compares one run with earlier ones",
        ),
        (
            "run document.yaml --cluster --profile",
            "unable to profile on a cluster: the pods of nodes have no right to use perf",
        ),
        ("link set --to 10.0.0.2", "no impairment given"),
        (
            "link set --to 10.0.0.2 --jitter 5ms",
            "set a delay of at least as much",
        ),
    ] {
        let args: Vec<&str> = line.split(' ').collect();
        let ended = scratch.call(&args).expect(2);
        assert!(ended.stderr.contains(sentence), "{line}: {ended}");
        assert_eq!(ended.stdout, "", "{line}");
    }
    let ended = scratch.call(&["conformance", "--node", " "]).expect(2);
    assert!(ended.stderr.contains("--node names no program"), "{ended}");
    for line in [
        "report nowhere",
        "report nowhere --where transport=tcp",
        "compare nowhere elsewhere",
        "history nowhere",
        "plan nowhere.yaml",
        "validate nowhere.yaml",
        "run nowhere.yaml",
        "run --resume nowhere",
        "link set --netns nowhere --to 10.0.0.2 --delay 5ms",
    ] {
        let args: Vec<&str> = line.split(' ').collect();
        scratch.call(&args).expect(1);
    }
}

#[test]
fn a_program_to_compare_that_is_not_there_is_named_by_its_option() {
    let scratch = Scratch::new();
    let document = document::run("compared");
    for (option, other) in [("--candidate", "--base"), ("--base", "--candidate")] {
        let sentence = format!(
            "unable to run {option} nowhere as a node (`cargo build --release -p perfrun-node` builds one): No such file"
        );
        let args = [option, "nowhere", other, "/bin/true"];
        refuse_to_run(&scratch, &document, &args, &sentence);
        scratch.write("planned.yaml", &document.text());
        let planned = [&["plan", "planned.yaml"], &args[..]].concat();
        let refused = scratch.call(&planned).expect(1);
        assert!(refused.stderr.contains(&sentence), "{refused}");
    }
}
