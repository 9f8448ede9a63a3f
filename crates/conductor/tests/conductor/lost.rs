//! Nodes that go away.

use perfrun_conductor::Event;
use perfrun_contract::{
    node::{Reason, TrialState},
    record::Flag,
    run::RunState,
};
use tokio_util::sync::CancellationToken;

use crate::{bench::bench, node::Script};

fn vanishing(at: TrialState) -> Script {
    Script {
        vanishes: Some(at),
        ..Script::default()
    }
}

fn working_until(until: &CancellationToken) -> Script {
    Script {
        works_until: Some(until.clone()),
        ..Script::default()
    }
}

#[tokio::test]
async fn a_lost_client_is_replaced_and_the_trial_repeated() {
    let bench = bench()
        .node("client-0", vanishing(TrialState::Running))
        .spare("client-0", Script::default());
    let out = bench.run().await;
    assert_eq!(out.end.state, RunState::Complete, "{:?}", out.end.message);
    assert_eq!(
        out.outline(),
        [
            "c0.i0.a0 client-0 NodeLost",
            "c0.i0.a1 completed",
            "c0.i1.a0 completed"
        ]
    );
    let retried = |i: usize| out.records[i].flags.contains(&Flag::Retried);
    assert_eq!([retried(0), retried(1), retried(2)], [false, true, false]);
    let expected = [
        "c0.i0 NodeLost",
        "client-0 replaced",
        "c0.i0 attempt 1",
        "c0.i0 completed",
    ];
    assert_eq!(out.events[2..6], expected);
}

#[tokio::test]
async fn a_server_lost_in_a_trial_is_named_though_clients_saw_it_first() {
    let client = Script {
        fails: Some((TrialState::Running, Reason::DialFailed)),
        ..Script::default()
    };
    let bench = bench()
        .node("server-0", vanishing(TrialState::Ready))
        .node("client-0", client)
        .spare("server-0", Script::default());
    let out = bench.run().await;
    assert_eq!(out.outline()[0], "c0.i0.a0 server-0 NodeLost");
    assert_eq!(
        out.outline()[1],
        "c0.i0.a1 client-0 DialFailed",
        "with a server, it is the client's own failure"
    );
}

#[tokio::test]
async fn a_client_that_failed_on_a_dead_server_is_the_servers_loss() {
    // The server dies in the middle, and the client notices before the conductor does.
    let died = CancellationToken::new();
    let client = Script {
        fails: Some((TrialState::Finished, Reason::DialFailed)),
        ..working_until(&died)
    };
    let bench = bench()
        .node("client-0", client)
        .spare("server-0", Script::default());
    let server = bench.nodes["server-0"].remote.clone();
    let bench = bench.on_event(move |event| {
        if matches!(event, Event::TrialProgress { .. }) {
            server.vanish();
            died.cancel();
        }
    });
    let out = bench.run().await;
    assert_eq!(out.outline()[0], "c0.i0.a0 server-0 NodeLost");
    assert!(
        out.records[0].nodes.contains_key("client-0"),
        "what the client measured is kept"
    );
}

#[tokio::test]
async fn a_second_loss_stands_and_the_run_continues() {
    let bench = bench()
        .node("client-0", vanishing(TrialState::Running))
        .spare("client-0", vanishing(TrialState::Ready))
        .spare("client-0", Script::default());
    let out = bench.run().await;
    let expected = [
        "c0.i0.a0 client-0 NodeLost",
        "c0.i0.a1 client-0 NodeLost",
        "c0.i1.a0 completed",
    ];
    assert_eq!(out.outline(), expected);
    assert_eq!(out.end.state, RunState::Complete);
}

#[tokio::test]
async fn a_node_that_cannot_be_replaced_ends_the_run() {
    let out = bench().node("server-0", vanishing(TrialState::Ready)).run().await;
    assert_eq!(out.outline(), ["c0.i0.a0 server-0 NodeLost"]);
    assert_eq!(out.end.state, RunState::Failed);
    assert_eq!(
        out.end.message.unwrap(),
        "server-0 was lost and cannot be replaced: there is no spare"
    );
}

#[tokio::test]
async fn a_restarted_node_is_a_lost_one() {
    let restarted = CancellationToken::new();
    let bench = bench()
        .node("client-0", working_until(&restarted))
        .spare("server-0", Script::default());
    let server = bench.nodes["server-0"].remote.clone();
    let bench = bench.on_event(move |event| {
        if matches!(event, Event::TrialProgress { .. }) {
            server.forget();
            restarted.cancel();
        }
    });
    let out = bench.run().await;
    assert_eq!(out.outline()[0], "c0.i0.a0 server-0 NodeLost");
    let message = out.records[0].failure.clone().unwrap().message;
    assert_eq!(
        message,
        "server-0 is lost: it was restarted and has forgotten the trial; server-0 is out of memory"
    );
}

#[tokio::test]
async fn a_node_that_is_being_stopped_is_replaced() {
    let stopping = Script {
        fails: Some((TrialState::Running, Reason::Stopped)),
        ..Script::default()
    };
    let out = bench()
        .node("client-0", stopping)
        .spare("client-0", Script::default())
        .run()
        .await;
    assert_eq!(
        out.outline()[..2],
        ["c0.i0.a0 client-0 Stopped", "c0.i0.a1 completed"]
    );
}

#[tokio::test]
async fn a_node_that_ignores_the_cancel_of_a_trial_is_replaced() {
    let stubborn = Script {
        ignores_cancel: true,
        ..working_until(&CancellationToken::new())
    };
    let failing = Script {
        fails: Some((TrialState::Running, Reason::StreamFailed)),
        ..Script::default()
    };
    let bench = bench()
        .node("client-0", failing)
        .node("client-1", stubborn)
        .spare("client-1", Script::default());
    let out = bench.run().await;
    assert_eq!(out.outline()[0], "c0.i0.a0 client-1 NodeLost");
    assert_eq!(out.outline()[1], "c0.i0.a1 client-0 StreamFailed");
}
