//! Timeouts of the document.

use std::{collections::BTreeSet, process::Command, thread, time::Duration};

use perfrun_contract::{node::Reason, run::RunState};
use rustix::process::Signal;
use serde_json::json;

use crate::{
    document,
    perfrun::{Mode, Running, Scratch, by_attempt, results, send},
};

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
        perfrun.says("[1/3]");
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
    let mut shell = Command::new("sh");
    shell
        .args(["-c", &format!("ulimit {limit}; exec \"$0\" \"$@\"")])
        .arg(perfrun.get_program())
        .args(perfrun.get_args())
        .current_dir(scratch.path())
        .env_remove("RUST_LOG");
    Running::start(shell)
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
