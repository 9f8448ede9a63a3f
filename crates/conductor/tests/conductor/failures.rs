//! Trials that fail, on nodes that stay.

use std::time::Duration;

use perfrun_contract::{
    matrix::{Identity, IpFamily, Protocol, TcpCongestion, Transport},
    node::{Reason, TrialState},
    parameters::{Amount, Bandwidth, Echo, Pace, Parameters},
    quantity::ByteSize,
    run::RunState,
    workload::Direction,
};
use tokio_util::sync::CancellationToken;

use crate::{
    bench::{Out, bench},
    node::Script,
};

fn failing(at: TrialState, reason: Reason) -> Script {
    Script {
        fails: Some((at, reason)),
        ..Script::default()
    }
}

#[tokio::test]
async fn a_client_that_fails_fails_the_trial_and_the_run_continues() {
    let script = Script {
        bytes: 7,
        ..failing(TrialState::Running, Reason::StreamFailed)
    };
    let out = bench().node("client-0", script).run().await;
    assert_eq!(out.end.state, RunState::Complete);
    assert_eq!(
        out.outline(),
        ["c0.i0.a0 client-0 StreamFailed", "c0.i1.a0 client-0 StreamFailed"]
    );
    let record = &out.records[0];
    assert_eq!(
        record.nodes["client-0"].measured.bytes_sent, 7,
        "what was measured until then is kept"
    );
    assert!(record.nodes.contains_key("server-0"), "of both ends");
    assert!(record.metrics.is_empty());
}

#[tokio::test]
async fn a_client_that_fails_ends_the_others_immediately() {
    let endless = Script {
        works_until: Some(CancellationToken::new()),
        ..Script::default()
    };
    let bench = bench()
        .node("client-0", failing(TrialState::Running, Reason::TooFewBytes))
        .node("client-1", endless)
        .trial_timeout(Duration::from_secs(600));
    let out = tokio::time::timeout(Duration::from_secs(60), bench.run())
        .await
        .expect("nobody waits for client-1");
    assert_eq!(out.outline()[0], "c0.i0.a0 client-0 TooFewBytes");
    assert_eq!(out.records[0].nodes.len(), 3);
}

#[tokio::test]
async fn a_server_that_fails_while_clients_work_ends_the_trial() {
    // It fails on its way to ready, and at the finish.
    let out = bench()
        .node("server-0", failing(TrialState::Ready, Reason::ListenFailed))
        .run()
        .await;
    assert_eq!(out.outline()[0], "c0.i0.a0 server-0 ListenFailed");
    let out = bench()
        .node("server-0", failing(TrialState::Finished, Reason::UnexpectedBytes))
        .run()
        .await;
    assert_eq!(out.outline()[0], "c0.i0.a0 server-0 UnexpectedBytes");
}

#[tokio::test]
async fn clients_are_not_prepared_when_a_server_cannot_listen() {
    let bench = bench().node("server-0", failing(TrialState::Ready, Reason::ListenFailed));
    bench.run().await;
    assert_eq!(bench.nodes["client-0"].calls(), Vec::<String>::new());
}

#[tokio::test]
async fn a_trial_that_takes_too_long_times_out_at_the_node() {
    // Its time begins before the client's, and ends after it: a client would find a broken stream, and not a
    // lack of time.
    let server = Script {
        prepares_for: Duration::from_millis(100),
        ..Script::default()
    };
    let client = Script {
        works_until: Some(CancellationToken::new()),
        ..Script::default()
    };
    let bench = bench()
        .node("server-0", server)
        .node("client-0", client)
        .trial_timeout(Duration::from_millis(200));
    let out = bench.run().await;
    assert_eq!(out.end.state, RunState::Complete);
    let in_time = ["c0.i0.a0 client-0 Timeout", "c0.i1.a0 client-0 Timeout"];
    assert_eq!(out.outline(), in_time);
}

#[tokio::test]
async fn a_timeout_before_the_time_of_the_trial_is_of_another_limit() {
    let other_limits = |out: &Out| -> Vec<bool> {
        let failures = out.records.iter().filter_map(|record| record.failure.as_ref());
        failures.map(|failure| failure.other_limit).collect()
    };
    for (reason, expected) in [(Reason::Timeout, true), (Reason::StreamFailed, false)] {
        let out = bench()
            .node("client-0", failing(TrialState::Running, reason))
            .trial_timeout(Duration::from_secs(600))
            .run()
            .await;
        assert_eq!(other_limits(&out), [expected; 2], "{reason}");
    }
    let endless = Script {
        works_until: Some(CancellationToken::new()),
        ..Script::default()
    };
    let out = bench()
        .node("client-0", endless)
        .trial_timeout(Duration::from_millis(100))
        .run()
        .await;
    assert_eq!(
        out.outline(),
        ["c0.i0.a0 client-0 Timeout", "c0.i1.a0 client-0 Timeout"]
    );
    assert_eq!(other_limits(&out), [false, false]);
}

#[tokio::test]
async fn a_trial_that_nodes_do_not_time_out_is_ended_by_the_conductor() {
    let node = |works_until| Script {
        works_until,
        ignores_timeout: true,
        ..Script::default()
    };
    let mut bench = bench()
        .node("server-0", node(None))
        .node("client-0", node(Some(CancellationToken::new())))
        .trial_timeout(Duration::from_millis(100));
    bench.plan.trials.truncate(1);
    let out = bench.run().await;
    assert_eq!(out.outline(), ["c0.i0.a0 client-0 Timeout"]);
    assert_eq!(out.records[0].nodes.len(), 2);
}

#[tokio::test]
async fn a_refused_request_is_a_failure_with_the_message_of_the_node() {
    let script = Script {
        refuses: Some(http::StatusCode::BAD_REQUEST),
        ..Script::default()
    };
    let out = bench().node("client-0", script).run().await;
    let failure = out.records[0].failure.clone().unwrap();
    assert_eq!(failure.reason, Reason::Internal);
    assert_eq!(
        failure.message,
        "client-0: the node refused the call with status 400: as scripted"
    );
}

/// Without another node to replace it, a lost one would end the run.
#[tokio::test]
async fn a_node_that_is_full_or_has_a_conflict_fails_trials_and_is_not_lost() {
    for status in [http::StatusCode::INSUFFICIENT_STORAGE, http::StatusCode::CONFLICT] {
        let script = Script {
            refuses: Some(status),
            ..Script::default()
        };
        let out = bench().node("server-0", script).run().await;
        assert_eq!(
            out.outline(),
            ["c0.i0.a0 server-0 Internal", "c0.i1.a0 server-0 Internal"],
            "{status}"
        );
    }
}

#[tokio::test]
async fn ends_that_count_differently_fail_the_trial() {
    let mut bench = bench()
        .node(
            "server-0",
            Script {
                bytes: 99,
                ..Script::default()
            },
        )
        .node(
            "client-0",
            Script {
                bytes: 100,
                ..Script::default()
            },
        );
    bench.plan.cells[0].parameters = Parameters::Bandwidth(Bandwidth::new(
        Protocol::Perf,
        Direction::Upload,
        Amount::Count(100),
    ));
    let out = bench.run().await;
    assert_eq!(out.outline()[0], "c0.i0.a0 nobody CountMismatch");
}

#[tokio::test]
async fn numbers_that_no_node_can_measure_fail_the_trial_and_are_not_kept() {
    let script = Script {
        distorts: |status| {
            if let Some(outcome) = &mut status.outcome {
                outcome.measured.resources.cpu_user_seconds = 1e308;
                outcome.measured.bytes_received = u64::MAX;
            }
        },
        ..Script::default()
    };
    let out = bench().node("server-0", script).run().await;
    assert_eq!(out.end.state, RunState::Complete);
    assert_eq!(out.outline()[0], "c0.i0.a0 server-0 Internal");
    let record = &out.records[0];
    assert!(!record.nodes.contains_key("server-0"), "{:?}", record.nodes);
    let message = &record.failure.as_ref().unwrap().message;
    assert!(
        message.ends_with("a count: 18446744073709551615, and at most 9007199254740992 are allowed"),
        "{message}"
    );
}

/// Checks that a run ended before its first trial, for this reason.
fn check_refused(out: &Out, words: &str) {
    let message = out.end.message.as_ref();
    assert!(
        message.is_some_and(|message| message.contains(words)),
        "{:?}",
        out.end
    );
    assert_eq!(out.outline(), Vec::<String>::new());
}

#[tokio::test]
async fn a_node_that_would_ignore_a_setting_is_not_used() {
    let mut bench = bench();
    bench.plan.cells[0].client_settings.tcp_congestion = Some(TcpCongestion("bbr".into()));
    let out = bench.run().await;
    check_refused(&out, "client-0 does not know the setting tcpCongestion of");
    // On another transport, the setting has no effect.
    bench.plan.cells[0].transport = Transport::QuicV1;
    assert_eq!(bench.run().await.end.state, RunState::Complete);
}

#[tokio::test]
async fn a_node_without_an_address_of_the_planned_ip_family_is_not_used() {
    let mut bench = bench();
    bench.plan.nodes[0].ip_family = IpFamily::IPv6;
    let out = bench.run().await;
    check_refused(
        &out,
        "server-0 listens on 127.0.0.1, and its cells need IPv6: use a machine or a cluster that gives nodes an IPv6 \
         address, or set matrix.ipFamilies: [IPv4]",
    );
}

#[tokio::test]
async fn a_node_that_does_not_know_the_pace_of_an_echo_is_not_used() {
    let mut bench = bench();
    let echo = |pace| {
        Parameters::Echo(Echo {
            connections: 1,
            streams_per_connection: 1,
            connection_interval_seconds: 0.0,
            stream_interval_seconds: 0.0,
            message_bytes: ByteSize(64),
            pace,
            deadline_seconds: 1.0,
            duration_seconds: 0.1,
            identity: Identity::Ed25519,
            sample_interval_seconds: 0.1,
        })
    };
    bench.plan.cells[0].parameters = echo(Pace::Period(0.5));
    let out = bench.run().await;
    check_refused(&out, "does not know the period of an echo");
    // Every node knows the published pace.
    bench.plan.cells[0].parameters = echo(Pace::Pause(0.5));
    assert_eq!(bench.run().await.end.state, RunState::Complete);
}
