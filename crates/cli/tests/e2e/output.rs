//! What goes where: results to standard output, progress to standard error, files to their folder.

use std::{fs, process::Command};

use perfrun_contract::run::RunState;
use serde_json::json;

use crate::{
    document,
    perfrun::{Mode, Running, Scratch, entries, parsed, results},
};
use perfrun_test_kit::{Need, skip};

#[test]
fn tables_go_to_standard_output_and_progress_to_standard_error() {
    for mode in Mode::available() {
        let scratch = Scratch::new();
        let document = document::run("lines")
            .with("iterations", json!(2))
            .with("warmup", json!(1));
        let ended = scratch.run(mode, &document, &[]).expect(0);
        let folder = scratch.only_run();
        let shown = folder.strip_prefix(scratch.path()).unwrap().display();
        let lines: Vec<&str> = ended.stderr.lines().collect();
        let kind = match mode {
            Mode::Namespaces => "each in a network namespace",
            Mode::Loopback => "all on one loopback interface",
        };
        assert_eq!(
            lines[0],
            format!("perfrun/lines: 3 trials of 1 cell on 2 nodes, {kind}; results in {shown}")
        );
        assert!(
            lines[1].starts_with("[1/3] raw.raw.tcp.ping-1 (warm-up): "),
            "{ended}"
        );
        assert!(lines[2].starts_with("[2/3] raw.raw.tcp.ping-1: "), "{ended}");
        assert!(lines[3].starts_with("[3/3] raw.raw.tcp.ping-1: "), "{ended}");
        let labelled = lines[1..].iter().all(|line| line.ends_with(" (roundTripP50)"));
        assert!(labelled, "a trial has several times: {ended}");
        assert_eq!(lines.len(), 4, "no log, no escape sequences: {ended}");
        assert!(!ended.stderr.contains('\u{1b}'), "{ended}");

        assert!(ended.stdout.contains("Round trips"), "{ended}");
        assert!(!ended.stdout.contains("[1/3]"), "{ended}");
        let last = format!("\n\nSucceeded · 3 of 3 trials completed · {shown}/report.html · exit 0\n");
        assert!(ended.stdout.ends_with(&last), "{ended}");
        let all = format!(" report {shown} --all\n");
        assert!(ended.stdout.contains(&all), "{ended}");
        let loopback = ended.stdout.contains("shared one loopback interface");
        assert_eq!(loopback, mode == Mode::Loopback, "said aloud: {ended}");
        let files: Vec<_> = entries(&folder)
            .iter()
            .map(|file| file.file_name().unwrap().to_owned())
            .collect();
        assert_eq!(files, ["report.html", "report.md", "results.json", "samples.csv"]);
    }
}

#[test]
fn a_run_beside_busy_processes_warns_before_it_begins_and_in_its_tables() {
    let Some(mode) = Mode::available().next() else {
        return;
    };
    let scratch = Scratch::alone();
    let busy = || {
        let mut shell = Command::new("sh");
        shell.args(["-c", "while :; do :; done"]);
        Running::start(shell)
    };
    let cpus = std::thread::available_parallelism().unwrap().get();
    let half_of_the_cpus: Vec<Running> = (0..cpus.div_ceil(2)).map(|_| busy()).collect();
    let mut run = Running::start(scratch.command(mode, &document::steady("beside", 300, 2), &[]));
    run.wait_for_output("this machine is busy: ");
    run.ended().expect(0);
    drop(half_of_the_cpus);
    let report = fs::read_to_string(scratch.only_run().join("report.md")).unwrap();
    let warning = "The machine was busy: other work disturbed all 2 trials that count, ";
    assert!(report.contains(warning), "{report}");
}

#[test]
fn a_file_name_with_escape_sequences_cannot_control_the_terminal() {
    // Terminals copy what follows OSC 52 to the clipboard.
    let ended = Scratch::new()
        .call(&["validate", "\x1b]52;c;AA\x07.yaml"])
        .expect(1);
    assert!(ended.stderr.contains(" ]52;c;AA .yaml"), "{ended}");
    assert!(!ended.stderr.contains(['\x1b', '\x07']), "{ended}");
}

#[test]
fn quiet_shows_the_result_only() {
    for mode in Mode::available() {
        let scratch = Scratch::new();
        let ended = scratch.run(mode, &document::run("still"), &["--quiet"]).expect(0);
        assert_eq!(ended.stderr, "");
        assert!(ended.stdout.contains("Round trips"), "{ended}");
    }
}

#[test]
fn the_json_output_is_results_json_on_one_line() {
    for mode in Mode::available() {
        let scratch = Scratch::new();
        let ended = scratch
            .run(mode, &document::run("machine"), &["--json"])
            .expect(0);
        assert_eq!(ended.stdout.lines().count(), 1, "{ended}");
        assert_eq!(parsed(&ended.stdout), results(&scratch.only_run()));
        assert!(ended.stderr.contains("[1/1]"), "progress is still shown: {ended}");
    }
}

#[test]
fn a_document_is_taken_from_standard_input() {
    for mode in Mode::available() {
        let scratch = Scratch::new();
        let mut command = scratch.perfrun(&["run", "-", "--results", "results"]);
        command.args(mode.flag());
        let text = document::run("piped").text();
        Running::start_with_input(command, &text).ended().expect(0);
        assert_eq!(results(&scratch.only_run()).name, "piped");
    }
}

#[test]
fn each_document_of_a_file_is_run_into_its_own_folder() {
    for mode in Mode::available() {
        let scratch = Scratch::new();
        let both = document::run("first").text() + &document::run("second").text();
        scratch.write("both.yaml", &both);
        let mut command = scratch.perfrun(&["run", "both.yaml", "--results", "deep/results", "--json"]);
        command.args(mode.flag());
        let ended = Running::start(command).ended().expect(0);
        let printed: Vec<String> = ended.stdout.lines().map(|line| parsed(line).name).collect();
        assert_eq!(printed, ["first", "second"]);
        let kept: Vec<String> = entries(&scratch.path().join("deep/results"))
            .iter()
            .map(|folder| results(folder).name)
            .collect();
        assert_eq!(kept, ["first", "second"]);
    }
}

/// The command as a line for a shell: no argument has spaces.
fn shell_line(command: &Command) -> String {
    let words = [command.get_program()].into_iter().chain(command.get_args());
    let words: Vec<&str> = words.map(|word| word.to_str().unwrap()).collect();
    words.join(" ")
}

#[test]
fn readers_that_leave_early_do_not_end_the_run() {
    for mode in Mode::available() {
        let scratch = Scratch::new();
        let perfrun = scratch.command(mode, &document::run("unheard").with("iterations", json!(3)), &[]);
        // Both pipes are closed before perfrun has written anything.
        let line = format!("({} 2>&1; echo $? >status) | :", shell_line(&perfrun));
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", &line]).current_dir(scratch.path());
        Running::start(shell).ended();
        assert_eq!(fs::read_to_string(scratch.path().join("status")).unwrap(), "0\n");
        assert_eq!(results(&scratch.only_run()).state, RunState::Complete);
    }
}

#[test]
fn a_terminal_gets_a_bar_with_the_time_that_is_left() {
    if Command::new("script").arg("--version").output().is_err() {
        return skip(
            Need::Programs,
            "on a terminal",
            "there is no script(1) to make one",
        );
    }
    for mode in Mode::available() {
        let scratch = Scratch::new();
        let document = document::steady("watched", 700, 3);
        let perfrun = scratch.command(mode, &document, &[]);
        let line = format!("stty cols 100; {} >table", shell_line(&perfrun));
        let mut terminal = Command::new("script");
        terminal
            .args(["--quiet", "--return", "--command", &line, "/dev/null"])
            .env("TERM", "xterm")
            .current_dir(scratch.path());
        let ended = Running::start(terminal).ended().expect(0);
        let seen = &ended.stdout;
        assert!(seen.contains("0/3 trials, 0s  raw.raw.tcp.ping-70 #1"), "{ended}");
        assert!(seen.contains("1/3 trials, "), "{ended}");
        assert!(seen.contains(" left  raw.raw.tcp.ping-70 #2"), "{ended}");
        assert!(!seen.contains("[1/3]"), "lines are for logs: {ended}");
        let table = fs::read_to_string(scratch.path().join("table")).unwrap();
        assert!(
            table.contains("Round trips") && !table.contains('\u{1b}'),
            "{table}"
        );
    }
}
