//! Operations that failed, in reports.

use perfrun_api::results::Results;
use perfrun_contract::{
    metric::Metric,
    node::Reason,
    record::{Flag, TrialFailure},
    role::Role,
};
use perfrun_report::markdown;
use perfrun_test_kit::results::run;

#[test]
fn operations_that_failed_are_counted_by_side_and_reason() {
    let mut results = run("
  workload: {relayStress: {sinks: [1000]}}
  matrix: {clients: [libp2p], servers: [libp2p], rawReference: false}
  iterations: 2
")
    .results();
    assert!(!markdown(&results.reported_run()).contains("Failed operations"));
    for record in &mut results.trials {
        for node in record.nodes.values_mut() {
            node.measured.errors = match node.role {
                Role::Client => [(Reason::DialFailed, 75), (Reason::Refused, 34)].into(),
                Role::Server => [(Reason::StreamFailed, 1)].into(),
                Role::Relay => [(Reason::Refused, 34)].into(),
            };
        }
    }
    results.trials.last_mut().unwrap().failure = Some(TrialFailure {
        node: None,
        reason: Reason::Timeout,
        message: "not done".to_owned(),
        other_limit: false,
    });
    // Of one iteration: the other failed, and the warm-up does not count.
    let table = "\
## Failed operations

Counts over all measured trials of a cell that continued.

| Transport | Load | Stacks | Side | Reason | Times |
| --- | --- | --- | --- | --- | ---: |
| tcp | sinks-1000 | libp2p → libp2p | client | DialFailed | 75 |
| tcp | sinks-1000 | libp2p → libp2p | client | Refused | 34 |
| tcp | sinks-1000 | libp2p → libp2p | server | StreamFailed | 1 |
";
    let rendered = markdown(&results.reported_run());
    assert!(rendered.contains(table), "{rendered}");
}

#[test]
fn a_value_of_fewer_trials_says_which_failed_which_were_not_run_and_which_are_without_it() {
    let document = "
  workload: {bandwidth: {sizes: [1Mi], directions: [upload]}}
  matrix: {clients: [libp2p], servers: [libp2p], transports: [tcp], rawReference: false}
  iterations: 10
  warmup: 0
";
    let rendered = |results: &Results| markdown(&results.reported_run());
    let mut results = run(document).interrupted_after(9).results();
    let note = "Over 9 of 10 trials: 1 was not run.";
    assert!(rendered(&results).contains(note), "{}", rendered(&results));

    results.trials.truncate(8);
    results.trials[1].failure = Some(TrialFailure {
        node: None,
        reason: Reason::Timeout,
        message: "not done".to_owned(),
        other_limit: false,
    });
    results.trials[2].metrics.remove(&Metric::UploadGoodput);
    results.summary.clear();
    let note = "Over 6 of 10 trials: 1 failed, 2 were not run, 1 has no value of uploadGoodput.";
    assert!(rendered(&results).contains(note), "{}", rendered(&results));
    let others = "Over 7 of 10 trials: 1 failed, 2 were not run.";
    assert!(rendered(&results).contains(others), "{}", rendered(&results));

    results.trials.truncate(4);
    let few = "Over 2 of 10 trials: 1 failed, 6 were not run, 1 has no value of uploadGoodput; too few for an interval.";
    assert!(rendered(&results).contains(few), "{}", rendered(&results));
}

#[test]
fn a_run_that_was_stopped_before_its_first_trial_keeps_no_results() {
    let document = "
  workload: {bandwidth: {sizes: [1Mi], directions: [upload]}}
  matrix: {clients: [libp2p], servers: [libp2p], transports: [tcp], rawReference: false}
  iterations: 2
  warmup: 0
";
    let rendered =
        |trials: usize| markdown(&run(document).interrupted_after(trials).results().reported_run());
    let stopped = rendered(0);
    assert!(
        stopped.contains("0 of 2 trials completed.") && !stopped.contains("results are kept"),
        "{stopped}"
    );
    let stopped = rendered(1);
    assert!(
        stopped.contains("1 of 2 trials completed. Their results are kept."),
        "{stopped}"
    );
    assert!(
        stopped.contains("\nCancelled · 1 of 2 trials completed\n"),
        "{stopped}"
    );
}

#[test]
fn a_failed_trial_names_its_node_once_and_its_sentence_ends_once() {
    let mut results = run("
  workload: {ping: {}}
  matrix: {clients: [libp2p], servers: [libp2p], transports: [tcp], rawReference: false}
  iterations: 1
  warmup: 0
")
    .results();
    results.trials[0].failure = Some(TrialFailure {
        node: Some("client-0".to_owned()),
        reason: Reason::ImpairmentNotEffective,
        message: "client-0: is anybody there?".to_owned(),
        other_limit: false,
    });
    let rendered = markdown(&results.reported_run());
    assert!(rendered.contains("| client-0: is anybody there? |"), "{rendered}");
    let first = "1 of 1 trials failed; the first: client-0: is anybody there? Trials failed because";
    assert!(rendered.contains(first), "{rendered}");
}

#[test]
fn a_pause_before_a_run_was_resumed_is_not_time_that_it_took() {
    let mut results = run("
  workload: {ping: {}}
  matrix: {clients: [libp2p], servers: [libp2p], transports: [tcp], rawReference: false}
  iterations: 1
")
    .results();
    let rendered = markdown(&results.reported_run());
    assert!(rendered.contains("| Took | 74.5 s |"), "{rendered}");
    results.paused_seconds = Some(60.0);
    let rendered = markdown(&results.reported_run());
    let took = "| Took | 14.5 s in several sessions, without 60.0 s between them |";
    assert!(rendered.contains(took), "{rendered}");
}

#[test]
fn a_cell_that_was_measured_is_not_called_not_run() {
    let results = run("
  workload: {messages: {modes: [serialAck], sizes: [64], count: 10}}
  stacks: [{name: tuned, stack: libp2p, settings: {tcpCongestion: cubic}}]
  matrix: {clients: [libp2p, tuned], servers: [libp2p], transports: [tcp]}
  iterations: 2
")
    .results();
    let rendered = markdown(&results.reported_run());
    // A share of raw would compare controllers.
    assert!(rendered.contains("## Share of raw"), "{rendered}");
    assert!(!rendered.contains("not run"), "{rendered}");
}

#[test]
fn dials_that_webrtc_lost_are_counted_among_all() {
    let mut results = run("
  workload: {handshakes: {count: 10}}
  matrix: {clients: [libp2p], servers: [litep2p], transports: [webrtc-direct], rawReference: false}
  iterations: 1
")
    .results();
    for record in &mut results.trials {
        for node in record.nodes.values_mut().filter(|node| node.role == Role::Client) {
            node.measured.connections = 7;
            node.measured.errors = [(Reason::DialFailed, 3)].into();
        }
    }
    let rendered = markdown(&results.reported_run());
    assert!(
        rendered.contains("| libp2p → litep2p | client | DialFailed | 3¹ |"),
        "{rendered}"
    );
    assert!(rendered.contains("¹ Of 10 dials."), "{rendered}");
}

#[test]
fn ends_of_streams_that_were_lost_are_counted_among_all() {
    let mut results = run("
  workload: {handshakes: {count: 1000, inFlight: [64]}}
  matrix: {clients: [libp2p], servers: [libp2p], transports: [tcp, quic-v1], rawReference: false}
  iterations: 2
")
    .results();
    for record in &mut results.trials {
        for node in record.nodes.values_mut().filter(|node| node.role == Role::Server) {
            node.measured.streams = 1000;
            node.measured.errors = [(Reason::Timeout, 11)].into();
        }
    }
    let rendered = markdown(&results.reported_run());
    let row = "| libp2p → libp2p | server | Timeout | 22¹ |";
    assert_eq!(rendered.matches(row).count(), 2, "{rendered}");
    let note = "¹ Ends of streams that did not arrive, of 2000: nothing else was due on them.";
    assert!(rendered.contains(note), "{rendered}");
    assert_eq!(rendered.matches(&note[2..]).count(), 1, "{rendered}");
}

#[test]
fn ends_that_an_echo_lost_are_not_operations_that_failed() {
    let mut results = run("
  workload: {echo: {loads: [{connections: 10, streamsPerConnection: 100}], duration: 50s}}
  matrix: {clients: [libp2p], servers: [libp2p], transports: [quic-v1], rawReference: false}
  iterations: 1
")
    .flagged("libp2p", Flag::PartialFailures)
    .results();
    for record in &mut results.trials {
        for node in record.nodes.values_mut().filter(|node| node.role == Role::Server) {
            node.measured.streams = 1000;
            node.measured.failures = 20;
            node.measured.errors = [(Reason::Timeout, 20)].into();
        }
    }
    let rendered = markdown(&results.reported_run());
    let note = "1 of 1 trial: ends of streams did not arrive at a server; the numbers include these streams.";
    let of_all = "Ends of streams that did not arrive, of 1000: nothing else was due on them.";
    assert!(rendered.contains(note) && rendered.contains(of_all), "{rendered}");
    assert!(!rendered.contains("some operations failed"), "{rendered}");

    // Where a client failed as well, a line may have been late at the server.
    for record in &mut results.trials {
        for node in record.nodes.values_mut().filter(|node| node.role == Role::Client) {
            node.measured.failures = 1;
            node.measured.errors = [(Reason::Timeout, 1)].into();
        }
    }
    let rendered = markdown(&results.reported_run());
    let note = "1 of 1 trial: some operations failed; the numbers are of the others.";
    assert!(
        rendered.contains(note) && !rendered.contains(of_all),
        "{rendered}"
    );
}
