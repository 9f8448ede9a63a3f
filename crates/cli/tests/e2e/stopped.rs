//! Ctrl-C, SIGTERM, a terminal that is closed, and a node that is stopped for a while.

use std::{
    thread,
    time::{Duration, Instant},
};

use perfrun_contract::{
    record::Flag,
    run::{Phase, RunState},
    tally::EndReason,
};
use rustix::process::Signal;
use serde_json::json;

use crate::{
    document,
    perfrun::{Mode, Running, Scratch, by_attempt, entries, parsed, results, send, started_by},
};

#[test]
fn a_stopped_run_shows_its_saved_results_and_leaves_nothing_running() {
    for mode in Mode::available() {
        for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
            let scratch = Scratch::new();
            let command = scratch.command(mode, &document::steady("long", 500, 100), &[]);
            let mut perfrun = Running::start(started_by(&TERMINAL, &command));
            perfrun.wait_for_output("[2/100]");
            let belongings = perfrun.belongings();
            assert_eq!(belongings.processes.len(), 2);
            // Two nodes and the switch between them.
            let namespaces = if mode == Mode::Namespaces { 3 } else { 0 };
            assert_eq!(belongings.namespaces.len(), namespaces, "{belongings:?}");
            let begun = Instant::now();
            perfrun.signal(signal);
            let ended = perfrun.ended().expect(130);
            assert!(
                begun.elapsed() < Duration::from_secs(20),
                "the rest would take 50 s"
            );
            belongings.vanish();
            let told = "stopping and saving the results; press Ctrl-C again to exit now";
            assert!(ended.stderr.lines().any(|line| line == told), "{ended}");
            assert!(
                ended.stdout.contains("Cancelled: stopped on request after "),
                "{ended}"
            );
            assert!(
                ended.stdout.contains("Round trips"),
                "what there is is shown: {ended}"
            );

            let folder = scratch.only_run();
            let shown = folder.strip_prefix(scratch.path()).unwrap().display();
            let advice = format!(" run --resume {shown}\n\nCancelled");
            assert!(ended.stdout.contains(&advice), "{ended}");
            let results = results(&folder);
            assert_eq!((results.state, &results.reason), (RunState::Interrupted, &None));
            let trials = by_attempt(&results).len();
            assert!((2..100).contains(&trials));
            assert!(
                results.trials.iter().all(|record| record.failure.is_none()),
                "{ended}"
            );
            assert_eq!(entries(&folder).len(), 4, "reports and samples, too");
        }
    }
}

#[test]
fn a_second_ctrl_c_does_not_wait_for_a_node_that_hangs() {
    for mode in Mode::available() {
        let scratch = Scratch::new();
        let mut perfrun = scratch.start(mode, &document::steady("stuck", 500, 100));
        perfrun.wait_for_output("[1/100]");
        let belongings = perfrun.belongings();
        let client = perfrun.node("client", None);
        send(client, Signal::STOP);
        perfrun.signal(Signal::INT);
        perfrun.wait_for_output("stopping and saving");
        perfrun.signal(Signal::INT);
        let ended = perfrun.ended().expect(130);
        // After the wait for the node, it would show what it has.
        assert_eq!(ended.stdout, "", "{ended}");
        belongings.vanish();
        // The trials are there.
        let folder = scratch.only_run();
        let report = scratch.call(&["report", folder.to_str().unwrap()]).expect(0);
        assert!(
            report
                .stdout
                .contains("perfrun exited before the run ended; 1 of 100 trials completed"),
            "{report}"
        );
        let json = ["report", folder.to_str().unwrap(), "--output", "json"];
        let saved = parsed(&scratch.call(&json).expect(0).stdout);
        assert_eq!(saved.conclusion.unwrap().reason, EndReason::Cancelled);
    }
}

#[test]
fn a_run_stopped_before_its_nodes_are_ready_ends_as_well() {
    for mode in Mode::available() {
        let scratch = Scratch::new();
        let program = scratch.script("mute", "echo thinking >&2; exec sleep 1000");
        let mut command = scratch.command(mode, &document::run("early"), &[]);
        command.arg("--node").arg(program);
        let mut perfrun = Running::start(command);
        perfrun.wait_for_output("perfrun/early: ");
        let belongings = perfrun.belongings();
        perfrun.signal(Signal::INT);
        perfrun.ended().expect(130);
        belongings.vanish();
        assert_eq!(results(&scratch.only_run()).state, RunState::Interrupted);
    }
}

/// Starts a command as `nohup` does.
const NOHUP: [&str; 3] = ["sh", "-c", "trap '' HUP; exec \"$0\" \"$@\""];

/// Starts a command as a terminal does. These tests may run under `nohup` themselves.
const TERMINAL: [&str; 2] = ["env", "--default-signal=HUP"];

#[test]
fn a_run_under_nohup_outlives_its_terminal() {
    let scratch = Scratch::new();
    let document = document::steady("detached", 500, 100);
    let mut perfrun = Running::start(started_by(
        &NOHUP,
        &scratch.command(Mode::Loopback, &document, &[]),
    ));
    perfrun.wait_for_output("[1/100]");
    perfrun.signal(Signal::HUP);
    perfrun.wait_for_output("[4/100]");
    assert!(!perfrun.stderr().contains("stopping"), "{}", perfrun.stderr());
    perfrun.signal(Signal::TERM);
    perfrun.ended().expect(130);
}

#[test]
fn a_second_hangup_signal_does_not_cut_off_the_results() {
    let scratch = Scratch::new();
    let command = scratch.command(Mode::Loopback, &document::steady("closed", 500, 100), &[]);
    let mut perfrun = Running::start(started_by(&TERMINAL, &command));
    perfrun.wait_for_output("[1/100]");
    perfrun.signal(Signal::HUP);
    perfrun.wait_for_output("stopping and saving");
    perfrun.signal(Signal::HUP);
    let ended = perfrun.ended().expect(130);
    assert!(
        ended.stdout.contains("Cancelled: stopped on request after "),
        "{ended}"
    );
}

#[test]
fn runs_that_a_stopped_command_has_not_begun_are_named() {
    let scratch = Scratch::new();
    let names = ["first", "second", "third"];
    let texts = names.map(|name| document::steady(name, 500, 100).text());
    scratch.write("all.yaml", &texts.concat());
    let all = ["run", "all.yaml", "--loopback", "--results", "results"];
    let mut perfrun = Running::start(scratch.perfrun(&all));
    perfrun.wait_for_output("[1/100]");
    perfrun.signal(Signal::INT);
    let ended = perfrun.ended().expect(130);
    let told = "perfrun/second, perfrun/third were not begun: copy their documents to a file of their own, and run it";
    assert!(ended.stderr.contains(told), "{ended}");
    assert_eq!(results(&scratch.only_run()).name, "first");
}

#[test]
fn a_command_that_waits_for_a_quiet_machine_says_so_and_says_that_it_ran_nothing() {
    let scratch = Scratch::new();
    let command = scratch.command(
        Mode::Loopback,
        &document::run("patient"),
        &["--wait-quiet", "60s"],
    );
    let mut perfrun = Running::start(command);
    perfrun.wait_for_output("waiting until this machine has been quiet for 2s (--wait-quiet 60s)");
    perfrun.signal(Signal::INT);
    let ended = perfrun.ended().expect(130);
    let told = "stopped before the run began: nothing was run";
    assert!(ended.stderr.lines().any(|line| line == told), "{ended}");
    assert!(entries(&scratch.results()).is_empty(), "{ended}");
}

#[test]
fn a_report_of_a_run_in_progress_shows_its_progress() {
    let scratch = Scratch::new();
    let mut perfrun = scratch.start(Mode::Loopback, &document::steady("measuring", 500, 100));
    perfrun.wait_for_output("[2/100]");
    let folder = scratch.only_run();
    let folder = folder.to_str().unwrap();
    for path in [folder.to_owned(), format!("{folder}/results.json")] {
        let report = scratch.call(&["report", &path]).expect(0);
        assert!(
            report.stdout.contains("The run is in progress: ")
                && report.stdout.contains(" of 100 trials completed."),
            "{report}"
        );
    }
    let json = scratch
        .call(&["report", folder, "--output", "json"])
        .expect(0)
        .stdout;
    let conclusion = parsed(&json).conclusion.unwrap();
    assert_eq!(
        (conclusion.phase, conclusion.reason),
        (Phase::Running, EndReason::InProgress)
    );
    // It does not disturb the run.
    perfrun.signal(Signal::INT);
    perfrun.ended().expect(130);
    let report = scratch.call(&["report", folder]).expect(0);
    assert!(
        report.stdout.contains("Cancelled: stopped on request after "),
        "{report}"
    );
}

#[test]
fn a_node_that_was_stopped_for_a_while_is_named_in_the_results() {
    for mode in Mode::available() {
        let scratch = Scratch::new();
        let upload = json!({ "bandwidth": { "duration": "6s", "directions": ["upload"] } });
        let perfrun = scratch.start(mode, &document::run("still").with("workload", upload));
        perfrun.client_in_a_trial(None);
        let server = perfrun.node("server", None);
        // Samples before and after, which show how long they are without a stop.
        thread::sleep(Duration::from_secs(1));
        send(server, Signal::STOP);
        thread::sleep(Duration::from_secs(3));
        send(server, Signal::CONT);
        let ended = perfrun.ended().expect(0);
        let results = results(&scratch.only_run());
        let record = &results.trials[0];
        let still = record.standstill.as_ref().expect("a standstill");
        assert_eq!(still.node, "server-0");
        assert!((2.0..5.0).contains(&still.seconds), "{still:?}");
        assert!(record.flags.contains(&Flag::Disturbed), "{:?}", record.flags);
        assert!(ended.stdout.contains("server-0 stood still for "), "{ended}");
    }
}
