//! Trials that go well.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use perfrun_conductor::{Durability, Event};
use perfrun_contract::{
    matrix::Transport, node::TrialState, plan::Trial, record::Flag, role::Role, run::RunState,
};
use perfrun_test_kit::records::trial;
use tokio_util::sync::CancellationToken;

use crate::{
    bench::{Bench, bench},
    node::Script,
};

#[tokio::test]
async fn every_trial_is_run_in_order_and_recorded_before_the_next() {
    let out = bench().run().await;
    assert_eq!(out.end.state, RunState::Complete, "{:?}", out.end.message);
    assert_eq!(out.outline(), ["c0.i0.a0 completed", "c0.i1.a0 completed"]);
    let expected = [
        "run of 2, 0 ended",
        "c0.i0 attempt 0",
        "c0.i0 completed",
        "c0.i1 attempt 0",
        "c0.i1 completed",
    ];
    assert_eq!(out.events, expected);
    assert_eq!(out.end.nodes.keys().collect::<Vec<_>>(), ["client-0", "server-0"]);
}

/// One node that is client and server.
fn in_process() -> Bench {
    let mut bench = bench();
    let script = Script {
        bytes: 7,
        ..Script::default()
    };
    bench.nodes.remove("server-0");
    bench = bench.node("client-0", script);
    for cell in &mut bench.plan.cells {
        cell.transport = Transport::Memory;
    }
    bench
}

#[tokio::test]
async fn a_node_that_is_both_sides_is_prepared_once_and_gives_two_records() {
    let bench = in_process();
    let out = bench.run().await;
    assert_eq!(out.outline(), ["c0.i0.a0 completed", "c0.i1.a0 completed"]);
    for record in &out.records {
        let bytes: Vec<_> = record
            .nodes
            .iter()
            .map(|(name, node)| {
                (
                    name.as_str(),
                    node.role,
                    node.measured.bytes_sent,
                    node.measured.bytes_received,
                )
            })
            .collect();
        let expected = [
            ("client-0", Role::Client, 7, 0),
            ("client-0.server", Role::Server, 0, 7),
        ];
        assert_eq!(bytes, expected);
    }
    let trial = "/v1/trials/r-c0.i0.a0";
    let calls = bench.nodes["client-0"].calls();
    let of_first: Vec<&String> = calls.iter().filter(|call| call.contains("r-c0.i0.a0")).collect();
    assert_eq!(
        of_first,
        [
            &format!("PUT {trial}"),
            &format!("PUT {trial}/start"),
            &format!("DELETE {trial}")
        ]
    );
}

#[tokio::test]
async fn a_trial_of_one_process_is_taken_over_from_an_earlier_session() {
    let mut bench = in_process();
    bench.durability = Durability::InMemory;
    bench.run().await;
    let again = bench.run().await;
    assert_eq!(again.outline(), ["c0.i0.a0 completed", "c0.i1.a0 completed"]);
    assert_eq!(bench.nodes["client-0"].started(), ["r-c0.i0.a0", "r-c0.i1.a0"]);
}

#[tokio::test]
async fn nodes_keep_a_trial_whose_record_is_only_in_memory() {
    let mut bench = bench();
    bench.durability = Durability::InMemory;
    bench.run().await;
    for (name, node) in &bench.nodes {
        assert_eq!(node.trials(), ["r-c0.i0.a0", "r-c0.i1.a0"], "{name}");
    }
    // Another conductor finds them there, and records them without measuring anything again.
    let again = bench.run().await;
    assert_eq!(again.outline(), ["c0.i0.a0 completed", "c0.i1.a0 completed"]);
    assert_eq!(bench.nodes["client-0"].started(), ["r-c0.i0.a0", "r-c0.i1.a0"]);
}

#[tokio::test]
async fn nodes_forget_a_trial_once_it_is_recorded() {
    let bench = bench();
    bench.run().await;
    for (name, node) in &bench.nodes {
        assert_eq!(node.trials(), Vec::<String>::new(), "{name}");
    }
    let calls = |name: &str| -> Vec<String> {
        bench.nodes[name]
            .calls()
            .into_iter()
            .filter(|call| call.contains("r-c0.i0.a0"))
            .collect()
    };
    let trial = "/v1/trials/r-c0.i0.a0";
    let server = [
        format!("PUT {trial}"),
        format!("PUT {trial}/finish"),
        format!("DELETE {trial}"),
    ];
    assert_eq!(calls("server-0"), server);
    let client = [
        format!("PUT {trial}"),
        format!("PUT {trial}/start"),
        format!("DELETE {trial}"),
    ];
    assert_eq!(calls("client-0"), client);
}

#[tokio::test]
async fn clients_wait_for_the_slowest_node() {
    let slow = Script {
        prepares_for: Duration::from_millis(150),
        ..Script::default()
    };
    let bench = bench()
        .node("server-1", slow.clone())
        .node("client-1", slow)
        .node("client-2", Script::default());
    let state = |name: &str| bench.nodes[name].remote.state("r-c0.i0.a0");
    let nobody_is_early = async {
        loop {
            let has_started = state("client-0") >= Some(TrialState::Running);
            assert!(!has_started || state("client-1") != Some(TrialState::Preparing));
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    let out = tokio::select! {
        out = bench.run() => out,
        () = nobody_is_early => unreachable!("it never ends"),
    };
    assert_eq!(out.outline(), ["c0.i0.a0 completed", "c0.i1.a0 completed"]);
    let record = &out.records[0];
    assert!(record.start_skew_seconds.is_some(), "{record:?}");
    assert!(
        record.overhead_seconds > 0.3,
        "both sides prepare, one after the other: {record:?}"
    );
    assert_eq!(record.nodes.len(), 5);
}

#[tokio::test]
async fn a_debug_build_is_flagged() {
    let out = bench()
        .node(
            "server-0",
            Script {
                profile: "debug",
                ..Script::default()
            },
        )
        .run()
        .await;
    assert!(out.records[0].flags.contains(&Flag::DebugBuild));
}

#[tokio::test]
async fn progress_is_reported_during_a_trial() {
    let told = Arc::new(Mutex::new(vec![]));
    let notes = told.clone();
    let often = CancellationToken::new();
    let client = Script {
        works_until: Some(often.clone()),
        ..Script::default()
    };
    let bench = bench().node("client-0", client).on_event(move |event| {
        if let Event::TrialProgress {
            trial: Trial { id, .. },
            fraction,
            ..
        } = event
        {
            let mut notes = notes.lock().unwrap();
            notes.push((id.clone(), *fraction));
            if notes.len() == 4 {
                often.cancel();
            }
        }
    });
    bench.run().await;
    let told = told.lock().unwrap();
    // Pings without a pause do not show how many are left.
    let first = ("c0.i0".to_owned(), None);
    assert!(
        told.len() >= 4 && told[..4].iter().all(|told| *told == first),
        "{told:?}"
    );
}

#[tokio::test]
async fn nothing_sleeps_or_polls_in_a_trial() {
    let mut bench = bench()
        .node("client-1", Script::default())
        .node("server-1", Script::default());
    bench.plan.trials = (0..40).map(|i| trial(&format!("c0.i{i}"))).collect();
    let out = bench.run().await;
    let mut overheads: Vec<f64> = out.records.iter().map(|record| record.overhead_seconds).collect();
    overheads.sort_by(f64::total_cmp);
    println!(
        "overhead of a trial: median {:.4} s, longest {:.4} s",
        overheads[20], overheads[39]
    );
    // A busy machine delays some trials, a sleep would delay all. The target is in `cargo xtask bench
    // overhead`.
    assert!(overheads[0] < 0.5, "{overheads:?}");
}

#[tokio::test]
async fn a_relay_receives_a_finish_like_the_servers() {
    let bench = bench().node("relay-0", Script::default());
    let out = bench.run().await;
    assert_eq!(out.outline(), ["c0.i0.a0 completed", "c0.i1.a0 completed"]);
    let calls = |name: &str| bench.nodes[name].calls();
    for name in ["relay-0", "server-0"] {
        assert!(calls(name).iter().any(|call| call.ends_with("/finish")), "{name}");
    }
}
