//! Nodes that are killed, and perfrun itself.

use std::{
    path::Path,
    thread,
    time::{Duration, Instant},
};

use perfrun_api::results::Results;
use perfrun_contract::{
    node::Reason,
    record::{Flag, TrialRecord},
    run::RunState,
};
use rand::{RngExt, SeedableRng, rngs::SmallRng};
use rustix::process::Signal;
use serde_json::json;

use crate::{
    document,
    perfrun::{Mode, Running, Scratch, by_attempt, entries, results, send},
};

#[test]
fn a_trial_whose_node_is_killed_is_retried() {
    for mode in Mode::available() {
        let scratch = Scratch::new();
        let mut perfrun = scratch.start(mode, &document::steady("mortal", 1500, 3));
        perfrun.wait_for_output("[1/3]");
        send(perfrun.client_in_a_trial(None), Signal::KILL);
        perfrun.wait_for_output("client-0 was restarted");
        perfrun.wait_for_output("[2/3] raw.raw.tcp.ping-150 (measured again): ");
        perfrun.client_in_a_trial(None);
        send(perfrun.node("server", None), Signal::KILL);
        let ended = perfrun.ended().expect(0);
        for line in [
            "[2/3] raw.raw.tcp.ping-150 failed at client-0: client-0 is lost: ",
            "client-0 was lost: signal: 9 (SIGKILL)",
            "[3/3] raw.raw.tcp.ping-150 failed at server-0: server-0 is lost: ",
            "server-0 was lost: signal: 9 (SIGKILL)",
            "server-0 was restarted",
            "[3/3] raw.raw.tcp.ping-150 (measured again): ",
        ] {
            assert!(
                ended.stderr.lines().any(|said| said.starts_with(line)),
                "{line:?}: {ended}"
            );
        }
        assert!(ended.stdout.contains("tried again and"), "{ended}");
        let results = results(&scratch.only_run());
        assert_eq!(results.state, RunState::Complete);
        let records = by_attempt(&results);
        assert_eq!(records.len(), 5, "{:?}", records.keys());
        assert_eq!(records[&("c0.i0", 0)].failure, None);
        for (trial, node) in [("c0.i1", "client-0"), ("c0.i2", "server-0")] {
            let first = records[&(trial, 0)];
            assert_eq!(lost_node(first), Some(node));
            let message = &first.failure.as_ref().unwrap().message;
            assert!(message.contains("; signal: 9 (SIGKILL)"), "{message}");
            let again = records[&(trial, 1)];
            assert_eq!(again.failure, None);
            assert!(again.flags.contains(&Flag::Retried), "{:?}", again.flags);
        }
    }
}

#[test]
fn a_trial_whose_node_is_killed_twice_has_failed_and_the_run_continues() {
    for mode in Mode::available() {
        let scratch = Scratch::new();
        let mut perfrun = scratch.start(mode, &document::steady("doomed", 1500, 2));
        let first = perfrun.client_in_a_trial(None);
        send(first, Signal::KILL);
        perfrun.wait_for_output("client-0 was restarted");
        send(perfrun.client_in_a_trial(Some(first)), Signal::KILL);
        let ended = perfrun.ended().expect(1);
        assert!(ended.stdout.contains("NodeLost: 1 of 2 trials failed"), "{ended}");
        let results = results(&scratch.only_run());
        assert_eq!(results.state, RunState::Complete);
        let records = by_attempt(&results);
        assert_eq!(lost_node(records[&("c0.i0", 0)]), Some("client-0"));
        assert_eq!(lost_node(records[&("c0.i0", 1)]), Some("client-0"));
        assert_eq!(records[&("c0.i1", 0)].failure, None);
        assert_eq!(records.len(), 3);

        // What failed is given another chance, and the rest is kept.
        let kept = (*records[&("c0.i1", 0)]).clone();
        let completed = scratch.resume().expect(0);
        assert!(
            !completed.stderr.contains("[1/2]"),
            "one trial was left: {completed}"
        );
        let results = self::results(&scratch.only_run());
        let records = by_attempt(&results);
        assert_eq!(
            records.keys().copied().collect::<Vec<_>>(),
            [("c0.i0", 0), ("c0.i1", 0)]
        );
        assert_eq!(records[&("c0.i0", 0)].failure, None);
        assert_eq!(*records[&("c0.i1", 0)], kept);
    }
}

#[test]
fn a_run_in_which_all_trials_failed_reports_why() {
    for mode in Mode::available() {
        let scratch = Scratch::new();
        let document = document::run("hopeless")
            .with("workload", json!({ "ping": { "count": 10_000_000 } }))
            .with("timeouts", json!({ "trial": "100ms" }));
        let ended = scratch.run(mode, &document, &["--quiet"]).expect(1);
        assert!(
            ended.stderr.contains("[1/1] raw.raw.tcp.ping-10000000 failed"),
            "{ended}"
        );
        assert!(ended.stderr.contains("(Timeout)"), "{ended}");
        assert!(ended.stdout.contains("Failed trials"), "{ended}");
        assert!(
            ended.stdout.contains("TrialTimeout: 1 of 1 trials failed"),
            "{ended}"
        );
        // A resumed run has the same limit.
        assert!(!ended.stdout.contains("--resume"), "{ended}");
    }
}

#[test]
fn perfrun_killed_at_any_moment_leaves_nothing_half_done() {
    const MOMENTS: usize = 16;
    let mut random = SmallRng::seed_from_u64(20_261_120);
    let modes: Vec<Mode> = Mode::available().collect();
    let document = document::run("cut").with("iterations", json!(20));
    // As long as a whole run takes here.
    let whole: Vec<Duration> = modes
        .iter()
        .map(|mode| {
            let begun = Instant::now();
            Scratch::new().run(*mode, &document, &[]).expect(0);
            begun.elapsed()
        })
        .collect();
    let mut interrupted = 0;
    for moment in 0..MOMENTS {
        let mode = modes[moment % modes.len()];
        let scratch = Scratch::new();
        let delay = whole[moment % modes.len()].mul_f64(random.random_range(0.0..1.0));
        let perfrun = scratch.start(mode, &document);
        thread::sleep(delay);
        kill(perfrun);
        let runs = entries(&scratch.results());
        assert!(runs.len() <= 1, "{runs:?}");
        let Some(folder) = runs.first() else { continue };
        assert_whole(folder);
        if !folder.join("results.json").exists() {
            assert!(
                entries(&folder.join("trials")).is_empty(),
                "nothing was measured yet"
            );
            continue;
        }
        let before: Results = perfrun_cli::results_folder::read(folder).unwrap();
        scratch.call(&["report", folder.to_str().unwrap()]).expect(0);
        interrupted += usize::from(before.state == RunState::Interrupted);

        scratch.resume().expect(0);
        assert_whole(folder);
        let after = results(folder);
        assert_eq!((after.state, after.trials.len()), (RunState::Complete, 20));
        assert_eq!(by_attempt(&after).len(), 20);
        assert_eq!(
            after.trials[..before.trials.len()],
            before.trials,
            "measured once"
        );
        assert_eq!(entries(folder).len(), 4);
    }
    assert!(interrupted > 0, "no moment was during a run");
}

/// Kills perfrun, and waits until all that belongs to it is gone.
fn kill(perfrun: Running) {
    // Standing still it cannot start another node between the look and the kill.
    perfrun.signal(Signal::STOP);
    let belongings = perfrun.belongings();
    perfrun.signal(Signal::KILL);
    perfrun.ended();
    belongings.vanish();
}

/// Expects that every file in the folder of a run is one that belongs there, and is complete.
fn assert_whole(folder: &Path) {
    for file in entries(folder) {
        let name = file.file_name().unwrap().to_str().unwrap().to_owned();
        match name.as_str() {
            "results.json" => drop(results(folder)),
            "report.html" | "report.md" | "samples.csv" => {}
            "logs" => {}
            "trials" => {
                for trial in entries(&file) {
                    let text = std::fs::read(&trial).unwrap();
                    let record: TrialRecord = serde_json::from_slice(&text).unwrap();
                    let name = format!("{}.a{}.json", record.trial.id, record.attempt);
                    assert_eq!(trial.file_name().unwrap().to_str(), Some(name.as_str()));
                }
            }
            _ => panic!("{} does not belong here", file.display()),
        }
    }
}

/// The node that was lost in a trial.
fn lost_node(record: &TrialRecord) -> Option<&str> {
    let failure = record.failure.as_ref()?;
    assert_eq!(failure.reason, Reason::NodeLost, "{failure:?}");
    failure.node.as_deref()
}
