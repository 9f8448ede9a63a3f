//! `perfrun run --resume`.

use std::{
    fs,
    io::Write,
    os::unix::fs::chown,
    path::PathBuf,
    thread,
    time::{Duration, SystemTime},
};

use perfrun_contract::{compare::Verdict, run::RunState};
use perfrun_test_kit::{Need, skip};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    document,
    perfrun::{Mode, Running, Scratch, by_attempt, entries, node_program, results},
    users::NOBODY,
};

#[test]
fn a_stopped_or_killed_run_resumes_where_it_ended() {
    for mode in Mode::available() {
        let scratch = Scratch::new();
        scratch
            .start(mode, &document::steady("patchy", 300, 8))
            .interrupt_after("[2/8]");
        let folder = scratch.only_run();
        let first = results(&folder);

        let resume = ["run", "--resume", folder.to_str().unwrap()];
        let mut perfrun = Running::start(scratch.perfrun(&resume));
        perfrun.wait_for_output("[5/8]");
        // Two at the same time would write over each other.
        let second = scratch.call(&resume).expect(1);
        assert!(
            second.stderr.contains("another perfrun process is using it"),
            "{second}"
        );
        perfrun.signal(Signal::KILL);
        perfrun.ended();

        let ended = scratch.resume().expect(0);
        assert!(
            !ended.stderr.contains("[5/8]"),
            "that was measured before: {ended}"
        );
        assert!(ended.stderr.contains("[8/8]"), "{ended}");
        assert!(ended.stderr.contains(" of 8 trials are complete\n"), "{ended}");
        let last = results(&folder);
        assert_eq!((last.state, &last.reason), (RunState::Complete, &None));
        assert_eq!(by_attempt(&last).len(), 8);
        assert_eq!(last.trials[..first.trials.len()], first.trials, "as they were");
        assert!(
            last.trials.is_sorted_by_key(|record| record.at_seconds),
            "times go on"
        );
        assert!(last.environment.nodes.contains_key("client-0"));
        assert_eq!(entries(&folder).len(), 4);

        let again = scratch.resume().expect(0);
        assert!(again.stderr.contains("nothing left to run"), "{again}");
        assert!(again.stdout.contains("Round trips"), "{again}");
        assert_eq!(results(&folder).trials, last.trials);
    }
}

#[test]
fn a_finished_run_stays_as_it_is() {
    let scratch = Scratch::new();
    scratch
        .run(Mode::Loopback, &document::run("finished"), &[])
        .expect(0);
    let folder = scratch.only_run();
    let files = || -> Vec<_> {
        let files = entries(&folder).into_iter();
        files.map(|file| (fs::read(&file).unwrap(), file)).collect()
    };
    let before = files();
    let again = scratch.resume().expect(0);
    assert!(again.stderr.contains("nothing left to run"), "{again}");
    assert!(files() == before, "{again}");

    // As they are if perfrun is killed right after it has written the results of its last session.
    let [page, tables] = ["report.html", "report.md"].map(|name| folder.join(name));
    fs::remove_file(&page).unwrap();
    fs::write(&tables, "of an earlier session").unwrap();
    let tables = fs::OpenOptions::new().write(true).open(&tables).unwrap();
    tables.set_modified(SystemTime::UNIX_EPOCH).unwrap();
    let again = scratch.resume().expect(0);
    assert!(files() == before, "{again}");

    // As they are if the disk was too full for the records at the end.
    let file = folder.join("results.json");
    let mut brief: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    let record = brief["trials"][0].take();
    brief["trials"] = json!([]);
    brief["summary"] = json!([]);
    fs::create_dir(folder.join("trials")).unwrap();
    fs::write(folder.join("trials/c0.i0.a0.json"), record.to_string()).unwrap();
    fs::write(&file, brief.to_string()).unwrap();
    let again = scratch.resume().expect(0);
    assert_eq!(results(&folder).trials.len(), 1, "{again}");
    assert_eq!(entries(&folder).len(), 4, "{again}");
}

#[test]
fn time_between_sessions_is_not_time_that_a_run_took() {
    let scratch = Scratch::new();
    scratch
        .start(Mode::Loopback, &document::steady("paused", 300, 3))
        .interrupt_after("[1/3]");
    thread::sleep(Duration::from_secs(2));
    scratch.resume().expect(0);
    let folder = scratch.only_run();
    let last = results(&folder);
    let paused = last.paused_seconds.unwrap();
    let all = last.ended.duration_since(last.started).as_secs_f64();
    // Both sessions ran trials.
    assert!((2.0..all - 0.8).contains(&paused), "{paused} of {all}");
    let report = fs::read_to_string(folder.join("report.md")).unwrap();
    assert!(report.contains(" in several sessions, without "), "{report}");
}

#[test]
fn a_resumed_run_keeps_its_isolation() {
    let scratch = Scratch::new();
    scratch
        .start(Mode::Loopback, &document::steady("loops", 300, 3))
        .interrupt_after("[1/3]");
    // Without --loopback, and without a right to namespaces.
    let ended = scratch.resume().expect(0);
    assert!(ended.stderr.contains("all on one loopback interface"), "{ended}");

    if !Mode::available().any(|mode| mode == Mode::Namespaces) {
        return;
    }
    let scratch = Scratch::new();
    scratch
        .start(Mode::Namespaces, &document::steady("spaces", 300, 3))
        .interrupt_after("[1/3]");
    let folder = scratch.only_run();
    let ended = scratch
        .call(&["run", "--loopback", "--resume", folder.to_str().unwrap()])
        .expect(1);
    assert!(ended.stderr.contains("resume it without --loopback"), "{ended}");
    scratch.resume().expect(0);
}

/// A node program with another digest.
fn built_again(scratch: &Scratch) -> PathBuf {
    let other = scratch.path().join("other-node");
    fs::copy(node_program(), &other).unwrap();
    let mut file = fs::OpenOptions::new().append(true).open(&other).unwrap();
    file.write_all(b"built again").unwrap();
    other
}

#[test]
fn a_program_that_is_built_again_during_a_run_is_not_measured() {
    let scratch = Scratch::new();
    let [program, kept] = ["node", "kept-node"].map(|name| scratch.path().join(name));
    for copy in [&program, &kept] {
        fs::copy(node_program(), copy).unwrap();
    }
    let other = built_again(&scratch);
    let document = document::steady("rebuilt", 300, 8).with("renew", json!("iteration"));
    let given = ["--node", program.to_str().unwrap()];
    let mut perfrun = Running::start(scratch.command(Mode::Loopback, &document, &given));
    perfrun.wait_for_output("[1/8]");
    fs::rename(&other, &program).unwrap();
    let ended = perfrun.ended().expect(1);
    assert!(
        ended
            .stderr
            .contains(" runs another program than in earlier trials"),
        "{ended}"
    );
    let resume = ["run", "--resume", scratch.only_run().to_str().unwrap()].map(str::to_owned);
    let resume = resume.each_ref().map(String::as_str);
    let ended = scratch.call(&resume).expect(1);
    assert!(
        ended.stderr.contains(" would run another program (sha256 "),
        "{ended}"
    );
    fs::rename(&kept, &program).unwrap();
    scratch.call(&resume).expect(0);
}

#[test]
fn a_run_is_not_resumed_with_another_program() {
    let scratch = Scratch::new();
    let mut perfrun = scratch.start(Mode::Loopback, &document::steady("mixed", 300, 4));
    perfrun.wait_for_output("[1/4]");
    perfrun.signal(Signal::KILL);
    perfrun.ended();
    let folder = scratch.only_run();
    let environment = results(&folder).environment;
    assert!(
        environment.nodes.contains_key("client-0"),
        "although it was killed"
    );

    let other = built_again(&scratch);
    let resume = [
        "run",
        "--resume",
        folder.to_str().unwrap(),
        "--node",
        other.to_str().unwrap(),
    ];
    let ended = scratch.call(&resume).expect(1);
    assert!(
        ended
            .stderr
            .contains("client-0 would run another program (sha256 "),
        "{ended}"
    );
    assert!(ended.stderr.contains("or start a new run"), "{ended}");
    assert_eq!(results(&folder).environment, environment);
    scratch.resume().expect(0);
}

#[test]
fn a_complete_run_is_resumed_with_the_exit_status_of_its_verdict() {
    let scratch = Scratch::new();
    let document = document::run("wanting").with("iterations", json!(6)).with(
        "expect",
        json!([{ "metric": "roundTripP50", "max": "1ns", "where": { "client": "raw" } }]),
    );
    let first = scratch.run(Mode::Loopback, &document, &[]);
    let judged = results(&scratch.only_run()).judged.unwrap();
    let status = match judged.verdict.unwrap() {
        Verdict::Fail => 3,
        // Other work disturbed some of the trials, and too few are left.
        Verdict::Inconclusive => 4,
        other => panic!("{other:?}"),
    };
    first.expect(status);
    let again = scratch.resume().expect(status);
    assert!(again.stderr.contains("nothing left to run"), "{again}");
}

#[test]
fn a_folder_without_a_run_is_not_resumed() {
    let scratch = Scratch::new();
    for folder in [".", "nowhere"] {
        let ended = scratch.call(&["run", "--resume", folder]).expect(1);
        assert!(
            ended.stderr.contains("name the results folder of a run"),
            "{ended}"
        );
    }
    assert!(entries(scratch.path()).is_empty(), "nothing was made");
}

/// The folder of a run that was killed after some of its trials.
fn killed(scratch: &Scratch) -> PathBuf {
    let mut perfrun = scratch.start(Mode::Loopback, &document::steady("torn", 300, 6));
    perfrun.wait_for_output("[3/6]");
    perfrun.signal(Signal::KILL);
    perfrun.ended();
    scratch.only_run()
}

#[test]
fn a_torn_file_costs_one_trial() {
    let scratch = Scratch::new();
    let folder = killed(&scratch);
    let whole = perfrun_cli::results_folder::read(&folder).unwrap().trials.len();
    // As file systems leave a file whose data were not on the disk when the machine crashed.
    fs::write(&entries(&folder.join("trials"))[0], "").unwrap();
    let report = scratch.call(&["report", folder.to_str().unwrap()]).expect(0);
    assert_eq!(
        report.stderr.matches("left out the file of a trial").count(),
        1,
        "{report}"
    );
    let left = perfrun_cli::results_folder::read(&folder).unwrap().trials.len();
    assert_eq!(left, whole - 1, "{report}");

    let ended = scratch.resume().expect(0);
    assert_eq!(
        ended.stderr.matches("left out the file of a trial").count(),
        1,
        "{ended}"
    );
    assert_eq!(by_attempt(&results(&folder)).len(), 6);
}

#[test]
fn a_folder_whose_names_are_paths_is_refused() {
    let scratch = Scratch::new();
    let folder = killed(&scratch);
    let file = folder.join("results.json");
    let written = fs::read_to_string(&file).unwrap();
    let before = entries(scratch.path());
    for (name, path) in [
        (r#""id": "c0.i4""#, r#""id": "../../stolen""#),
        (r#""id": "raw.raw"#, r#""id": "/stolen/raw.raw"#),
        (r#""name": "client-0""#, r#""name": "../client-0""#),
        (r#""name": "torn""#, r#""name": "=torn""#),
    ] {
        assert!(written.contains(name), "{name}");
        fs::write(&file, written.replacen(name, path, 1)).unwrap();
        for command in [&["report"][..], &["report", "--csv=csv"], &["run", "--resume"]] {
            let refused = scratch
                .call(&[command, &[folder.to_str().unwrap()]].concat())
                .expect(1);
            assert!(
                refused.stderr.contains("is not a name: names in results"),
                "{refused}"
            );
        }
    }
    fs::write(&file, &written).unwrap();
    let trial = &entries(&folder.join("trials"))[0];
    let text = fs::read_to_string(trial).unwrap();
    fs::write(trial, text.replacen(r#""id":"c0."#, r#""id":"../../c0."#, 1)).unwrap();
    let resumed = scratch.resume().expect(0);
    assert!(
        resumed.stderr.contains("left out the file of a trial"),
        "{resumed}"
    );
    assert_eq!(entries(scratch.path()), before);
}

#[test]
fn a_run_that_a_newer_version_has_ended_is_left_as_it_is() {
    let scratch = Scratch::new();
    let folder = killed(&scratch);
    let file = folder.join("results.json");
    let mut results: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    results["state"] = json!("complete");
    results["conclusion"] =
        json!({"phase": "Hibernating", "reason": "Succeeded", "message": "all trials completed"});
    let written = results.to_string();
    fs::write(&file, &written).unwrap();
    let before = entries(&folder.join("trials"));
    let refused = scratch.resume().expect(1);
    assert!(
        refused
            .stderr
            .contains("a newer version of perfrun ended this run: resume it with that version"),
        "{refused}"
    );
    assert_eq!(fs::read_to_string(&file).unwrap(), written);
    assert_eq!(entries(&folder.join("trials")), before);
}

#[test]
fn the_folder_of_another_user_is_shown_and_not_resumed() {
    if !rustix::process::geteuid().is_root() {
        return skip(Need::Root, "of another user", "only root can give a file away");
    }
    let scratch = Scratch::new();
    let folder = killed(&scratch);
    let listed = || -> Vec<_> {
        [&folder, &folder.join("trials")]
            .map(|folder| entries(folder))
            .concat()
    };
    for owned in [folder.clone(), folder.join("results.json")] {
        chown(&owned, Some(NOBODY), None).unwrap();
        let before = listed();
        // Even a program that is named again: what is in the folder decides where perfrun writes.
        let node = node_program();
        let command = [
            "run",
            "--node",
            node.to_str().unwrap(),
            "--resume",
            folder.to_str().unwrap(),
        ];
        let refused = scratch.call(&command).expect(1);
        assert!(refused.stderr.contains("it belongs to another user"), "{refused}");
        assert_eq!(listed(), before);
        scratch.call(&["report", folder.to_str().unwrap()]).expect(0);
        chown(&owned, Some(0), None).unwrap();
    }
    scratch.resume().expect(0);
}
