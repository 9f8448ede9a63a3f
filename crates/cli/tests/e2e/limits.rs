//! Time limits of the document.

use std::{thread, time::Duration};

use perfrun_contract::{node::Reason, run::RunState};
use rustix::process::Signal;
use serde_json::json;

use crate::{
    document,
    perfrun::{Mode, Place, by_attempt, results, send},
};

#[test]
fn a_run_that_takes_too_long_keeps_what_it_has_and_can_be_gone_on_with() {
    for mode in Mode::available() {
        let place = Place::new();
        let document = document::steady("slow", 500, 8).with("timeouts", json!({ "run": "2500ms" }));
        let ended = place.run(mode, &document, &[]).expect(1);
        let reason = "not done within timeouts.run, 2.5s";
        assert!(
            ended
                .stderr
                .contains(&format!("perfrun: perfrun/slow failed: {reason}\n")),
            "{ended}"
        );
        let first = results(&place.only_run());
        assert_eq!(
            (first.state, first.reason.as_deref()),
            (RunState::Failed, Some(reason))
        );
        assert!(first.trials.len() < 8);
        assert!(first.trials.iter().all(|record| record.failure.is_none()));

        // Each session has the whole time; how many it takes depends on the machine.
        for _ in 0..20 {
            if place.resume().code() == Some(0) {
                break;
            }
        }
        let last = results(&place.only_run());
        assert_eq!((last.state, last.trials.len()), (RunState::Complete, 8));
        assert_eq!(last.trials[..first.trials.len()], first.trials);
    }
}

#[test]
fn a_node_that_stands_still_costs_one_trial() {
    for mode in Mode::available() {
        let place = Place::new();
        // A trial may last 4 s longer than it has to, so that a pause of the machine fails none.
        let document = document::steady("frozen", 1500, 3).with("timeouts", json!({ "trial": "4s" }));
        let mut perfrun = place.start(mode, &document);
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
        let results = results(&place.only_run());
        let records = by_attempt(&results);
        assert_eq!(records.len(), 3, "a timeout is not tried again: {ended}");
        let failure = records[&("c0.i1", 0)].failure.as_ref().unwrap();
        assert_eq!(failure.reason, Reason::Timeout, "{ended}");
        assert_eq!(records[&("c0.i2", 0)].failure, None);
        assert_eq!(results.state, RunState::Complete);
    }
}
