//! Reports of relays.

use insta::assert_snapshot;
use perfrun_contract::record::Flag;
use perfrun_report::markdown;
use perfrun_test_kit::results::run;

use crate::rendered::shown;

#[test]
fn a_report_of_transfers_through_a_relay_equals_its_snapshot() {
    let results = run("
  workload: {relay: {sizes: [100M]}}
  matrix: {clients: [libp2p, litep2p], servers: [libp2p], transports: [tcp, quic-v1]}
  iterations: 6
")
    .flagged("libp2p.libp2p.tcp.direct-100M/", Flag::LateStart)
    .flagged("raw.raw.tcp.relayed-100M/", Flag::Throttled)
    .results();
    assert_snapshot!("relay.md", markdown(&results.reported_run()));
    assert_snapshot!("relay.txt", shown(&results, 120));
}

#[test]
fn a_report_of_a_relay_under_stress_equals_its_snapshot() {
    let results = run("
  workload: {relayStress: {sinks: [100, 500, 1000], sinkInterval: 100ms, plateau: 20s}}
  matrix: {clients: [libp2p], servers: [libp2p]}
  iterations: 1
")
    .results();
    let rendered = shown(&results, 120);
    let found = "Saturation over tcp: libp2p → libp2p may be saturated by 500 sinks";
    assert_eq!(rendered.matches(found).count(), 1, "{rendered}");
    assert_snapshot!("stress.txt", rendered);
}

#[test]
fn six_trials_can_tell_that_a_relay_is_saturated() {
    let results = run("
  workload: {relayStress: {sinks: [100, 500, 1000], sinkInterval: 100ms, plateau: 20s}}
  matrix: {clients: [libp2p], servers: [libp2p]}
  iterations: 6
")
    .results();
    let rendered = markdown(&results.reported_run());
    assert!(rendered.contains(" is saturated by 500 sinks"), "{rendered}");
}

#[test]
fn a_relay_that_carries_more_at_each_level_is_not_called_saturated() {
    let results = run("
  workload: {relayStress: {sinks: [50, 100], sinksPerSource: 50}}
  matrix: {clients: [libp2p], servers: [libp2p]}
  iterations: 1
")
    .results();
    let rendered = markdown(&results.reported_run());
    let found = "Saturation over tcp: libp2p → libp2p shows no sign of it";
    assert!(rendered.contains(found), "{rendered}");
    assert!(!rendered.contains(" saturated by "), "{rendered}");
}
