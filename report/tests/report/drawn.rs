//! Snapshots of reports, checked by eye when they change.

use insta::assert_snapshot;
use perfrun_api::{node::Reason, results::Flag};
use perfrun_report::{markdown, samples_csv, terminal};

use crate::fixtures::run;

const QUICKSTART: &str = "
  workload:
    bandwidth: {sizes: [64Mi]}
  matrix: {clients: [libp2p, litep2p], servers: [libp2p, litep2p], transports: [tcp, quic-v1]}
";

#[test]
fn quickstart() {
    let results = run(QUICKSTART).results();
    assert_snapshot!("quickstart.md", markdown(&results));
    assert_snapshot!("quickstart.txt", terminal(&results, 100));
}

#[test]
fn a_sweep_with_everything_that_can_go_wrong() {
    let results = run("
  workload:
    bandwidth: {protocol: litep2p-perf, sizes: [1Ki, 64Ki, 4Mi], directions: [both], timing: compat, chunkBytes: 1Ki}
  matrix: {clients: [libp2p, litep2p], servers: [libp2p, litep2p], transports: [tcp, tcp-tls]}
  iterations: 7
")
    .interrupted_after(120)
    .on_loopback()
    .debug_build()
    .failing("libp2p.litep2p.tcp.both-4Mi", Reason::TooFewBytes, "the peer closed | after *12* bytes\nof 4194304")
    .failing("litep2p.litep2p.tcp.both-64Ki/c10.i1", Reason::Timeout, "not done within 120 s")
    .failing("litep2p.litep2p.tcp.both-64Ki/c10.i3", Reason::Timeout, "not done within 120 s")
    .lost_once("litep2p.libp2p.tcp.both-64Ki/c7.i2")
    .flagged("raw.raw.tcp.both-4Mi/c2.i1", Flag::LateStart)
    .flagged("raw.raw.tcp.both-4Mi/c2.i4", Flag::Throttled)
    .results();
    assert_snapshot!("troubled.md", markdown(&results));
    assert_snapshot!("troubled.txt", terminal(&results, 100));
}

#[test]
fn the_published_sweep_fits_a_terminal() {
    let results = run("
  workload:
    bandwidth:
      protocol: litep2p-perf
      sizes: [1Ki, 2Ki, 4Ki, 8Ki, 16Ki, 32Ki, 64Ki, 128Ki, 256Ki, 512Ki, 1Mi, 2Mi, 4Mi, 8Mi, 16Mi, 32Mi, 64Mi,
        128Mi, 256Mi, 512Mi, 1Gi]
  iterations: 6
")
    .results();
    let drawn = terminal(&results, 100);
    assert!(drawn.lines().all(|line| line.chars().count() <= 100), "{drawn}");
    assert_snapshot!("sweep.txt", drawn);
}

#[test]
fn latency_of_one_byte_both_ways() {
    let results = run("
  workload:
    bandwidth: {sizes: [1], directions: [both]}
  iterations: 100
")
    .results();
    assert_snapshot!("latency.txt", terminal(&results, 100));
}

#[test]
fn a_duration_with_parallel_streams() {
    let results = run("
  workload:
    bandwidth: {duration: 20s, streams: [1, 8]}
  matrix: {transports: [tcp-tls, quic-v1]}
  iterations: 5
")
    .results();
    assert_snapshot!("duration.txt", terminal(&results, 100));
}

#[test]
fn substreams() {
    let results = run("
  workload:
    substreams: {counts: [1, 100, 256]}
  matrix: {transports: [tcp, quic-v1]}
")
    .results();
    assert_snapshot!("substreams.md", markdown(&results));
    assert_snapshot!("substreams.txt", terminal(&results, 100));
}

#[test]
fn handshakes() {
    let results = run("
  workload:
    handshakes: {count: 200, inFlight: [1, 16]}
  matrix: {transports: [tcp, quic-v1]}
")
    .flagged(
        "libp2p.litep2p.quic-v1.handshakes-200-x16/",
        Flag::PartialFailures,
    )
    .results();
    assert_snapshot!("handshakes.md", markdown(&results));
    assert_snapshot!("handshakes.txt", terminal(&results, 100));
}

#[test]
fn ping() {
    let results = run("
  workload:
    ping: {count: 1000}
  matrix: {transports: [tcp, quic-v1]}
")
    .results();
    assert_snapshot!("ping.md", markdown(&results));
    assert_snapshot!("ping.txt", terminal(&results, 80));
}

#[test]
fn long_names_are_wrapped() {
    let results = run("
  workload:
    bandwidth: {sizes: [64Mi], directions: [upload]}
  matrix:
    clients: [litep2p, litep2p-with-a-very-long-name-of-a-var.1]
    servers: [litep2p, litep2p-with-a-very-long-name-of-a-var.1]
  stacks:
    - {name: litep2p-with-a-very-long-name-of-a-var.1, stack: litep2p}
")
    .name("a-name-of-sixty-characters-that-some-generator-made-0123456x")
    .results();
    let drawn = terminal(&results, 100);
    assert!(drawn.lines().all(|line| line.chars().count() <= 100), "{drawn}");
    assert_snapshot!("long-names.txt", drawn);
}

#[test]
fn samples_are_one_line_for_each_interval_and_node() {
    let results = run("
  workload:
    bandwidth: {sizes: [64Mi], directions: [upload]}
  matrix: {clients: [libp2p], servers: [litep2p]}
  iterations: 1
")
    .results();
    assert_snapshot!("samples.csv", samples_csv(&results));
}
