//! A conductor that died and came back.

use std::time::Duration;

use perfrun_conductor::client::Epoch;
use perfrun_contract::{
    matrix::StackSettings,
    node::{Side, Start, TrialLabels, TrialRequest, TrialState},
    run::RunState,
};
use tokio_util::sync::CancellationToken;

use crate::{
    bench::{Bench, bench},
    node::Script,
};

/// How long a node may take to reach a state, even on a busy machine.
pub(crate) const TEST_TIMEOUT: Duration = Duration::from_secs(60);

pub(crate) const ID: &str = "r-c0.i0.a0";

fn request(bench: &Bench, side: Side) -> TrialRequest {
    let cell = &bench.plan.cells[0];
    let stack = if side == Side::Server {
        cell.server_stack
    } else {
        cell.client_stack
    };
    let mut timeout = bench.options.timeouts.trial;
    if side == Side::Server {
        // Clients end first.
        timeout += Duration::from_millis(2500);
    }
    TrialRequest {
        stack: stack.to_string(),
        settings: StackSettings::default(),
        transport: cell.transport,
        parameters: cell.parameters.clone(),
        side,
        timeout_seconds: timeout.as_secs_f64(),
        labels: TrialLabels {
            cell: cell.id.clone(),
            network: cell.network.clone(),
        },
    }
}

/// What an earlier session did: all of it up to the start, and no more.
pub(crate) async fn start_and_die(bench: &Bench) -> u64 {
    let (server, client) = (bench.nodes["server-0"].client(), bench.nodes["client-0"].client());
    server.prepare(ID, &request(bench, Side::Server)).await.unwrap();
    let ready = server
        .status_after(ID, TrialState::Preparing, TEST_TIMEOUT)
        .await
        .unwrap();
    let side = Side::Client {
        servers: ready.addresses,
        peers: 1,
        clocks: vec![],
    };
    client.prepare(ID, &request(bench, side)).await.unwrap();
    client
        .status_after(ID, TrialState::Preparing, TEST_TIMEOUT)
        .await
        .unwrap();
    let at_nanoseconds = client.clock().await.unwrap().nanoseconds;
    client.start(ID, Start { at_nanoseconds }).await.unwrap();
    client
        .status_after(ID, TrialState::Ready, TEST_TIMEOUT)
        .await
        .unwrap();
    at_nanoseconds
}

#[tokio::test]
async fn a_result_that_nodes_still_have_is_taken_not_measured_again() {
    let bench = bench();
    let requested = start_and_die(&bench).await;
    let client = bench.nodes["client-0"].client();
    client
        .status_after(ID, TrialState::Running, TEST_TIMEOUT)
        .await
        .unwrap();
    let before = client.clock().await.unwrap().nanoseconds;
    let out = bench.run().await;
    assert_eq!(out.outline(), ["c0.i0.a0 completed", "c0.i1.a0 completed"]);
    let started = out.records[0].nodes["client-0"]
        .measured
        .started_nanoseconds
        .unwrap();
    assert!((requested..before).contains(&started), "the earlier session's");
    let prepared = bench.nodes["client-0"]
        .calls()
        .iter()
        .filter(|call| call.ends_with(ID))
        .count();
    assert_eq!(
        prepared, 2,
        "prepared by the earlier session, deleted by this one"
    );
    assert_eq!(out.records[0].start_lateness_seconds, None);
}

#[tokio::test]
async fn a_trial_that_still_runs_is_waited_for() {
    let client = Script {
        works_for: Duration::from_millis(400),
        ..Script::default()
    };
    let bench = bench().node("client-0", client);
    start_and_die(&bench).await;
    let out = bench.run().await;
    assert_eq!(out.outline()[0], "c0.i0.a0 completed");
    assert_eq!(bench.nodes["client-0"].started(), [ID, "r-c0.i1.a0"]);
}

#[tokio::test]
async fn a_trial_that_was_only_prepared_is_restarted() {
    let bench = bench();
    bench.nodes["server-0"]
        .client()
        .prepare(ID, &request(&bench, Side::Server))
        .await
        .unwrap();
    let out = bench.run().await;
    assert_eq!(out.outline(), ["c0.i0.a0 completed", "c0.i1.a0 completed"]);
    assert!(out.records[0].start_lateness_seconds.is_some());
}

#[tokio::test]
async fn a_trial_known_with_another_request_is_restarted() {
    let bench = bench();
    let other = TrialRequest {
        timeout_seconds: 17.0,
        ..request(&bench, Side::Server)
    };
    bench.nodes["server-0"]
        .client()
        .prepare(ID, &other)
        .await
        .unwrap();
    assert_eq!(bench.run().await.outline()[0], "c0.i0.a0 completed");
}

#[tokio::test]
async fn a_client_that_knows_the_trial_with_a_lost_server_restarts_it() {
    let bench = bench();
    let side = Side::Client {
        servers: vec!["/scripted/lost".into()],
        peers: 1,
        clocks: vec![],
    };
    let client = bench.nodes["client-0"].client();
    client.prepare(ID, &request(&bench, side)).await.unwrap();
    let out = bench.run().await;
    assert_eq!(out.outline(), ["c0.i0.a0 completed", "c0.i1.a0 completed"]);
}

#[tokio::test]
async fn a_server_that_knows_the_trial_with_a_lost_relay_restarts_it() {
    let bench = bench().node("relay-0", Script::default());
    let side = Side::Source {
        relay: "/scripted/lost".into(),
        peers: 1,
    };
    let server = bench.nodes["server-0"].client();
    server.prepare(ID, &request(&bench, side)).await.unwrap();
    let out = bench.run().await;
    assert_eq!(out.outline(), ["c0.i0.a0 completed", "c0.i1.a0 completed"]);
}

#[tokio::test]
async fn a_superseded_conductor_does_not_disturb_its_successor() {
    let seen = CancellationToken::new();
    let client = Script {
        works_until: Some(seen.clone()),
        works_for: Duration::from_millis(400),
        ..Script::default()
    };
    let bench = bench().node("client-0", client);
    let first = Epoch::new(1);
    let sleeper = bench.run_as(&first);
    tokio::pin!(sleeper);
    let is_started = async {
        while bench.nodes["client-0"].remote.state(ID) != Some(TrialState::Running) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        seen.cancel();
    };
    tokio::select! {
        _ = &mut sleeper => panic!("the trial has just begun"),
        () = is_started => {}
    }
    // From here on nothing polls the first conductor.
    let out = bench.run_as(&Epoch::new(2)).await;
    assert_eq!(out.outline(), ["c0.i0.a0 completed", "c0.i1.a0 completed"]);
    assert_eq!(bench.nodes["client-0"].started(), [ID, "r-c0.i1.a0"]);
    tokio::select! {
        biased;
        () = first.superseded() => {}
        _ = &mut sleeper => panic!("it acted on what it found"),
    }
    assert!(bench.nodes.values().all(|node| node.trials().is_empty()));
}

#[tokio::test]
async fn recorded_trials_are_not_run_again() {
    let mut bench = bench();
    let first = bench.run().await;
    bench.already = first.records[..1].to_vec();
    let out = bench.run().await;
    assert_eq!(out.outline(), ["c0.i1.a0 completed"]);
    assert_eq!(out.events[0], "run of 2, 1 ended");
    assert_eq!(out.end.state, RunState::Complete);
}

#[tokio::test]
async fn another_run_never_finds_trials_of_an_earlier_one() {
    let mut bench = bench();
    start_and_die(&bench).await;
    for node in bench.nodes.values() {
        node.client().delete(ID).await.unwrap();
        // If it had ended before, it is forgotten already.
        let _ = node
            .client()
            .status_after(ID, TrialState::Running, TEST_TIMEOUT)
            .await;
    }
    bench.options.run_id = "s".parse().unwrap();
    let out = bench.run().await;
    assert_eq!(out.outline(), ["c0.i0.a0 completed", "c0.i1.a0 completed"]);
    assert!(
        bench.nodes["client-0"]
            .calls()
            .contains(&"PUT /v1/trials/s-c0.i0.a0".to_owned())
    );
}

#[tokio::test]
async fn a_later_trial_that_a_lost_client_left_at_its_server_is_ended() {
    let bench = bench();
    // The first trial was measured, and the client that knew of it is another by now.
    let server = bench.nodes["server-0"].client();
    server.prepare(ID, &request(&bench, Side::Server)).await.unwrap();
    server.finish(ID).await.unwrap();
    server
        .status_after(ID, TrialState::Running, TEST_TIMEOUT)
        .await
        .unwrap();
    let later = request(&bench, Side::Server);
    server.prepare("r-c0.i1.a0", &later).await.unwrap();
    let out = bench.run().await;
    assert_eq!(out.outline(), ["c0.i0.a0 completed", "c0.i1.a0 completed"]);
}

#[tokio::test]
async fn a_trial_of_another_run_is_left_alone() {
    let bench = bench();
    let server = bench.nodes["server-0"].client();
    let other = request(&bench, Side::Server);
    server.prepare("other-c0.i1.a0", &other).await.unwrap();
    let out = bench.run().await;
    assert_eq!(
        out.outline(),
        ["c0.i0.a0 server-0 Internal", "c0.i1.a0 server-0 Internal"]
    );
    assert_eq!(bench.nodes["server-0"].trials(), ["other-c0.i1.a0"]);
}
