//! Limits of a run: its timeouts, its open files, and what is read of results from elsewhere.

use std::{
    collections::BTreeSet, fs, io::Write, os::unix::fs::symlink, path::Path, process::Command, thread,
    time::Duration,
};

use flate2::{Compression, write::GzEncoder};
use perfrun_contract::{node::Reason, run::RunState};
use rustix::process::Signal;
use serde_json::json;

use crate::{
    document, kept,
    perfrun::{Mode, Running, Scratch, by_attempt, results, send, started_by},
};

/// The shortest record of a trial, and what separates it from the next one.
const RECORD: &str = r#"{"trial":{"id":"c0.i0","cell":0,"iteration":0,"warmup":false},"attempt":0,"atSeconds":1.0,"overheadSeconds":0.5,"nodes":{}},"#;

/// What `perfrun` says about results that are too large.
const ADVICE: &str =
    "these results would take more than 256 MiB of memory: add --large if you trust who made them";

#[test]
fn a_run_that_takes_too_long_keeps_its_results_and_can_be_resumed() {
    for mode in Mode::available() {
        let scratch = Scratch::new();
        // Round trips take less than that, and new nodes in each iteration more.
        let document = document::steady("slow", 300, 13)
            .with("renew", json!("iteration"))
            .with("timeouts", json!({ "run": "4s" }));
        let ended = scratch.run(mode, &document, &[]).expect(1);
        let reason = "not done within timeouts.run, 4s";
        assert!(
            ended
                .stderr
                .contains(&format!("perfrun: perfrun/slow failed: {reason}\n")),
            "{ended}"
        );
        let first = results(&scratch.only_run());
        assert_eq!(
            (first.state, first.reason.as_deref()),
            (RunState::Failed, Some(reason))
        );
        assert!(first.trials.len() < 13);
        assert!(first.trials.iter().all(|record| record.failure.is_none()));

        // Each session has the whole time; how many it takes depends on the machine.
        for _ in 0..20 {
            if scratch.resume().code() == Some(0) {
                break;
            }
        }
        let last = results(&scratch.only_run());
        assert_eq!((last.state, last.trials.len()), (RunState::Complete, 13));
        assert_eq!(last.trials[..first.trials.len()], first.trials);
    }
}

#[test]
fn a_node_that_stands_still_costs_one_trial() {
    for mode in Mode::available() {
        let scratch = Scratch::new();
        // A trial may last 4 s longer than it has to, so that a pause of the machine fails none.
        let document = document::steady("frozen", 1500, 3).with("timeouts", json!({ "trial": "4s" }));
        let mut perfrun = scratch.start(mode, &document);
        perfrun.wait_for_output("[1/3]");
        let client = perfrun.client_in_a_trial(None);
        send(client, Signal::STOP);
        thread::sleep(Duration::from_secs(6));
        send(client, Signal::CONT);
        let ended = perfrun.ended().expect(1);
        assert!(
            ended.stderr.contains("[2/3] raw.raw.tcp.ping-150 failed"),
            "{ended}"
        );
        assert!(ended.stderr.contains("[3/3] raw.raw.tcp.ping-150: "), "{ended}");
        let results = results(&scratch.only_run());
        let records = by_attempt(&results);
        assert_eq!(records.len(), 3, "a timeout is not tried again: {ended}");
        let failure = records[&("c0.i1", 0)].failure.as_ref().unwrap();
        assert_eq!(failure.reason, Reason::Timeout, "{ended}");
        assert_eq!(records[&("c0.i2", 0)].failure, None);
        assert_eq!(results.state, RunState::Complete);
    }
}

/// A run with this many clients and servers, started by a shell that limits open files with these options.
fn with_open_files(scratch: &Scratch, limit: &str, clients: u32, servers: u32) -> Running {
    let document = document::run("many").with("topology", json!({ "clients": clients, "servers": servers }));
    let perfrun = scratch.command(Mode::Loopback, &document, &[]);
    let script = format!("ulimit {limit}; exec \"$0\" \"$@\"");
    Running::start(started_by(&["sh", "-c", &script], &perfrun))
}

#[test]
fn eighty_nodes_start_with_few_open_files() {
    let scratch = Scratch::new();
    with_open_files(&scratch, "-Sn 128", 40, 40).ended().expect(0);
    let results = results(&scratch.only_run());
    assert_eq!(results.environment.nodes.len(), 80);
    let digests = results
        .environment
        .nodes
        .values()
        .map(|node| &node.program_sha256);
    assert!(digests.clone().all(Option::is_some) && digests.collect::<BTreeSet<_>>().len() == 1);
}

#[test]
fn too_few_open_files_are_reported_before_anything_is_created() {
    let scratch = Scratch::new();
    let ended = with_open_files(&scratch, "-n 128", 2, 2).ended().expect(1);
    let sentence =
        "perfrun needs 132 open files to start 4 processes, and the system allows it 128: raise the limit";
    assert!(ended.stderr.contains(sentence), "{ended}");
    assert!(!scratch.results().exists(), "{ended}");
}

#[test]
fn a_results_file_that_is_no_regular_file_is_refused() {
    let fifo = |file: &Path| {
        let made = Command::new("mkfifo").arg(file).status().unwrap();
        assert!(made.success());
    };
    let endless = |file: &Path| symlink("/dev/zero", file).unwrap();
    for make in [&fifo as &dyn Fn(&Path), &endless] {
        let scratch = Scratch::new();
        let run = kept::run(&kept::uploads(), 0, |_| 1.0);
        run.keep(&scratch, "run");
        let folder = scratch.path().join("run");

        make(&scratch.path().join("special.json"));
        for command in [
            &["report", "special.json"][..],
            &["compare", "special.json", "run"],
        ] {
            let refused = scratch.call(command).expect(1);
            assert!(refused.stderr.contains("it is not a regular file"), "{refused}");
        }
        fs::create_dir(scratch.path().join("empty")).unwrap();
        make(&scratch.path().join("empty/results.json"));
        for command in [&["report"][..], &["run", "--resume"]] {
            let refused = scratch.call(&[command, &["empty"]].concat()).expect(1);
            assert!(refused.stderr.contains("it has no results.json"), "{refused}");
        }

        // Of the files of a run, each is missing on its own.
        for part in ["trials", "profiles"] {
            fs::create_dir(folder.join(part)).unwrap();
        }
        make(&folder.join("trials/c0.i0.a1.json"));
        let stacks = format!("profiles/{}.client", run.0.plan.cells[0].id);
        fs::write(folder.join(format!("{stacks}.svg")), "").unwrap();
        for name in ["folded", "folded.gz"] {
            make(&folder.join(format!("{stacks}.{name}")));
        }
        let report = scratch.call(&["report", "run"]).expect(0);
        assert_eq!(
            report.stderr.matches("left out the file of a trial").count(),
            1,
            "{report}"
        );
    }
}

#[test]
fn results_that_would_fill_memory_are_refused_with_what_to_do() {
    let scratch = Scratch::new();
    let mut compressed = GzEncoder::new(vec![], Compression::fast());
    let text = format!("{{\"trials\":[{}", RECORD.repeat(200_000));
    compressed.write_all(text.as_bytes()).unwrap();
    let compressed = compressed.finish().unwrap();
    assert!(compressed.len() < 1 << 20);
    fs::write(scratch.path().join("results.json.gz"), compressed).unwrap();
    for command in [&["report"][..], &["compare"], &["report", "--output=json"]] {
        let refused = scratch.call(&[command, &["results.json.gz"]].concat()).expect(1);
        assert!(refused.stderr.contains(ADVICE), "{refused}");
    }
    let read = scratch.call(&["report", "--large", "results.json.gz"]).expect(1);
    assert!(read.stderr.contains("it is not JSON"), "to its end: {read}");
}

#[test]
fn all_runs_of_a_comparison_share_what_results_may_take_and_those_of_a_history_do_not() {
    let scratch = Scratch::new();
    let records = RECORD.repeat(110_000);
    for (hour, folder) in [(1, "one"), (2, "other")] {
        let mut run = kept::run(&kept::uploads(), hour, |_| 1.0).json();
        (run["name"], run["trials"]) = (json!("large"), json!("all"));
        let all = format!("[{}]", records.trim_end_matches(','));
        kept::keep(&scratch, folder, &run.to_string().replace("\"all\"", &all));
    }
    let one = scratch.call(&["compare", "one"]).expect(1);
    assert!(
        one.stderr.contains("compares nothing and expects nothing"),
        "{one}"
    );
    let both = scratch.call(&["compare", "one", "other"]).expect(1);
    let advice = "all results of this comparison would take more than 256 MiB of memory: compare fewer runs, or add \
                  --large if you trust who made them";
    assert!(both.stderr.contains(advice), "{both}");
    // Each is read on its own, and one of another document is not kept.
    scratch.call(&["history", "."]).expect(0);
    kept::run(&kept::uploads(), 3, |_| 1.0).keep(&scratch, "new");
    let new = scratch.call(&["compare", "--history", ".", "new"]).expect(1);
    assert!(new.stderr.contains("0 earlier runs of uploads"), "{new}");
}

#[test]
fn a_document_without_end_is_refused() {
    let scratch = Scratch::new();
    let refused = scratch.call(&["plan", "/dev/zero"]).expect(1);
    assert!(
        refused.stderr.contains("/dev/zero has more than 16 MiB"),
        "{refused}"
    );
}

#[test]
fn a_document_that_is_too_large_is_called_so_wherever_a_character_ends() {
    let scratch = Scratch::new();
    for first in ["", "#"] {
        scratch.write("large.yaml", &(first.to_owned() + &"é".repeat((8 << 20) + 1)));
        let refused = scratch.call(&["plan", "large.yaml"]).expect(1);
        assert!(
            refused.stderr.contains("large.yaml has more than 16 MiB"),
            "{refused}"
        );
    }
}
