//! Runs that end early.

use std::time::Duration;

use perfrun_conductor::Event;
use perfrun_contract::{run::RunState, tally::EndReason};
use tokio_util::sync::CancellationToken;

use crate::{bench::bench, node::Script};

fn working() -> Script {
    Script {
        works_until: Some(CancellationToken::new()),
        ..Script::default()
    }
}

#[tokio::test]
async fn a_cancelled_run_cancels_its_trial_and_does_not_record_it() {
    let bench = bench()
        .node("client-0", working())
        .trial_timeout(Duration::from_secs(600));
    let cancel = bench.cancel.clone();
    let bench = bench.on_event(move |event| {
        if matches!(event, Event::TrialProgress { .. }) {
            cancel.cancel();
        }
    });
    let out = tokio::time::timeout(Duration::from_secs(60), bench.run())
        .await
        .expect("it does not wait for the trial");
    assert_eq!((out.end.state, out.end.message), (RunState::Interrupted, None));
    assert_eq!(out.records, []);
    for (name, node) in &bench.nodes {
        assert_eq!(node.trials(), Vec::<String>::new(), "{name} has nothing left");
    }
}

#[tokio::test]
async fn a_run_cancelled_between_trials_keeps_its_completed_trials() {
    let bench = bench();
    let cancel = bench.cancel.clone();
    let bench = bench.on_event(move |event| {
        if matches!(event, Event::TrialEnded { .. }) {
            cancel.cancel();
        }
    });
    let out = bench.run().await;
    assert_eq!(out.end.state, RunState::Interrupted);
    assert_eq!(out.outline(), ["c0.i0.a0 completed"]);
}

#[tokio::test]
async fn a_run_longer_than_its_timeout_fails_and_names_the_timeout() {
    let mut bench = bench().node("client-0", working());
    bench.options.timeouts.run = Duration::from_millis(300);
    let out = bench.run().await;
    assert_eq!((out.end.state, out.records.len()), (RunState::Failed, 0));
    assert_eq!(out.end.message.unwrap(), "not done within timeouts.run, 300ms");
}

#[tokio::test]
async fn time_of_earlier_sessions_counts() {
    let mut bench = bench();
    bench.options.elapsed = Duration::from_secs(2 * 3600);
    let out = bench.run().await;
    assert_eq!((out.end.state, out.records.len()), (RunState::Failed, 0));
}

#[tokio::test]
async fn a_full_disk_ends_the_run_and_nodes_keep_the_result() {
    let mut bench = bench();
    bench.room_for = 1;
    let out = bench.run().await;
    assert_eq!(out.end.state, RunState::Failed);
    assert_eq!(
        out.end.message.as_ref().unwrap(),
        "failed to keep the record of trial c0.i1: no storage space"
    );
    assert_eq!(out.outline(), ["c0.i0.a0 completed"]);
    for (name, node) in &bench.nodes {
        assert_eq!(node.trials(), ["r-c0.i1.a0"], "{name}");
    }
}

#[tokio::test]
async fn a_wrong_token_ends_the_run_before_it_starts() {
    let mut bench = bench();
    bench.nodes.get_mut("client-0").unwrap().token = "battery staple";
    let out = bench.run().await;
    assert_eq!(out.end.state, RunState::Failed);
    assert_eq!(
        out.end.message.unwrap(),
        "client-0: the node does not accept the token"
    );
    assert_eq!(out.events, Vec::<String>::new());
}

#[tokio::test]
async fn a_node_that_does_not_answer_any_more_is_replaced_before_the_first_trial() {
    let mut bench = bench().spare("client-0", Script::default());
    bench.options.timeouts.provision = Duration::from_secs(5);
    bench.nodes.get_mut("client-0").unwrap().address = "http://127.0.0.1:1".into();
    let out = bench.run().await;
    assert_eq!(out.outline(), ["c0.i0.a0 completed", "c0.i1.a0 completed"]);
    assert_eq!(out.events[0], "client-0 replaced");
}

#[tokio::test]
async fn a_node_that_never_answers_and_cannot_be_replaced_ends_the_run() {
    let mut bench = bench();
    bench.options.timeouts.provision = Duration::from_millis(100);
    bench.nodes.get_mut("client-0").unwrap().address = "http://127.0.0.1:1".into();
    let out = bench.run().await;
    assert_eq!(out.end.state, RunState::Failed);
    assert_eq!(out.end.reason, Some(EndReason::NodeLost));
    assert_eq!(
        out.end.message.unwrap(),
        "client-0 was lost and cannot be replaced: there is no spare"
    );
    assert_eq!(out.events, Vec::<String>::new());
}

#[tokio::test]
async fn a_planned_node_that_was_never_started_ends_the_run() {
    let mut bench = bench();
    bench.nodes.remove("server-0");
    let out = bench.run().await;
    assert_eq!(
        out.end.message.unwrap(),
        "the plan needs node server-0, which was not started"
    );
}
