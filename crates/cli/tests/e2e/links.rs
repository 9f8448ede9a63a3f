//! Runs over links with delay and loss.

use std::fs;

use perfrun_api::results::Results;
use perfrun_contract::{
    metric::Metric,
    node::Reason,
    record::{LinkCheck, TrialRecord},
    run::RunState,
};
use perfrun_link::ActiveBackend;
use rustix::process::Signal;
use serde_json::json;

use crate::{
    document::{self, Document},
    perfrun::{Ended, Mode, Running, Scratch, by_attempt, children, eventually, results, send},
};
use perfrun_test_kit::{Need, skip};

/// The document's pings on these networks, of which it has three of its own. They are so long that the
/// hundredth part of a round trip, which links may be off, is more than what a busy machine adds.
fn on(document: Document, networks: &[&str]) -> Document {
    document
        .with(
            "matrix",
            json!({ "clients": ["raw"], "servers": ["raw"], "transports": ["tcp"], "networks": networks }),
        )
        .with(
            "networks",
            json!([
                { "name": "far", "delay": "100ms" },
                { "name": "there", "delay": "100ms", "direction": "toServer" },
                { "name": "lossy", "delay": "100ms", "loss": "1%", "direction": "toServer" },
            ]),
        )
}

/// Whether links can be impaired here; says so if not.
pub(crate) fn is_impaired(ended: &Ended) -> bool {
    let refusal = ended
        .stderr
        .lines()
        .find(|line| line.contains("links cannot be impaired here"));
    if let Some(refusal) = refusal {
        skip(Need::Links, "links with delay", refusal);
    }
    refusal.is_none()
}

pub(crate) fn checks(results: &Results) -> Vec<&LinkCheck> {
    results
        .trials
        .iter()
        .filter_map(|record| record.links.as_ref())
        .collect()
}

/// The median round trip of a cell's only trial, in milliseconds.
pub(crate) fn round_trip(results: &Results, cell: &str) -> f64 {
    let index = results
        .plan
        .cells
        .iter()
        .position(|known| known.id == cell)
        .unwrap();
    let record = results
        .trials
        .iter()
        .find(|record| record.trial.cell == index)
        .unwrap();
    assert_eq!(record.failure, None);
    record.metrics[&Metric::RoundTripP50] * 1e3
}

#[test]
fn round_trips_take_the_delay_of_the_network_and_results_show_it() {
    if !Mode::available().any(|mode| mode == Mode::Namespaces) {
        return;
    }
    let scratch = Scratch::alone();
    let pings = document::run("links").with("workload", json!({ "ping": { "count": 10 } }));
    let perfrun = scratch.start(Mode::Namespaces, &on(pings, &["none", "there", "far", "lossy"]));
    let belongings = perfrun.belongings();
    let ended = perfrun.ended();
    belongings.vanish();
    if !is_impaired(&ended) {
        return;
    }
    let ended = ended.expect(0);
    let results = results(&scratch.only_run());
    assert_eq!(results.state, RunState::Complete);
    let windows = results.plan.tcp_window_bytes().map(|most| [most, most]);
    for (name, node) in &results.environment.nodes {
        assert_eq!(node.tcp_window_limits_bytes, windows, "{name}");
    }
    // Each way 100 ms, and one way; the links themselves take some hundredths.
    for (cell, least, most) in [
        ("raw.raw.tcp.ping-10", 0.0, 10.0),
        ("raw.raw.tcp.ping-10.there", 100.0, 110.0),
        ("raw.raw.tcp.ping-10.far", 200.0, 210.0),
    ] {
        let milliseconds = round_trip(&results, cell);
        assert!(
            (least..most).contains(&milliseconds),
            "{cell}: {milliseconds} ms; {ended}"
        );
    }
    let checks = checks(&results);
    let networks: Vec<&str> = checks.iter().map(|check| check.network.as_str()).collect();
    assert_eq!(networks, ["none", "there", "far", "lossy"]);
    for check in &checks {
        assert!(check.is_effective(), "{check:?}");
        assert_eq!(check.legs.len(), 1);
    }
    let lost = &checks[3].legs[0].measured;
    assert!(lost.forward.lost() > 0, "lossy is towards the server: {lost:?}");
    assert_eq!(lost.backward.lost(), 0, "{lost:?}");
    let there = &results.trials[1].nodes;
    assert!(matches!(
        there["client-0"].link.as_ref().unwrap().backend,
        ActiveBackend::Kernel | ActiveBackend::Userspace
    ));
    assert_eq!(
        there["server-0"].link, None,
        "it leaves what servers send as it is"
    );
    assert!(results.trials[2].nodes["server-0"].link.is_some());
    assert!(ended.stdout.contains("Links: what a probe measured"), "{ended}");
    assert!(ended.stdout.contains("as configured"), "{ended}");
}

#[test]
fn each_leg_of_a_relay_has_the_delay_of_its_network() {
    if !Mode::available().any(|mode| mode == Mode::Namespaces) {
        return;
    }
    let scratch = Scratch::alone();
    let far = json!({
        "name": "far",
        "delay": "100ms",
        "relay": { "client": { "delay": "100ms" }, "server": { "delay": "50ms" } },
    });
    let matrix =
        json!({ "clients": ["libp2p"], "servers": ["libp2p"], "networks": ["far"], "rawReference": false });
    let document = document::run("legs")
        .with("workload", json!({ "relay": { "sizes": ["100k"], "pings": 2 } }))
        .with("matrix", matrix)
        .with("networks", json!([far]));
    let ended = scratch.run(Mode::Namespaces, &document, &[]);
    if !is_impaired(&ended) {
        return;
    }
    let ended = ended.expect(0);
    let results = results(&scratch.only_run());
    // Between sink and source 100 ms each way; between sink and relay 100, between relay and source 50.
    for (path, metric, milliseconds) in [
        ("direct", Metric::RoundTripP50, 200.0),
        ("relayed", Metric::RelayRoundTripP50, 200.0),
        ("relayed", Metric::RoundTripP50, 300.0),
    ] {
        let mut records = results.trials.iter();
        let of = |record: &&TrialRecord| results.plan.cells[record.trial.cell].id.contains(path);
        let found = records.find(of).unwrap().metrics[&metric] * 1e3;
        let expected = milliseconds..milliseconds + 50.0;
        assert!(expected.contains(&found), "{path}, {metric}: {found} ms; {ended}");
    }
    assert_eq!(checks(&results)[0].legs.len(), 3);
}

#[test]
fn loopback_has_no_links_to_impair() {
    let scratch = Scratch::new();
    let ended = scratch
        .run(Mode::Loopback, &on(document::run("loopback"), &["lat10"]), &[])
        .expect(1);
    assert!(ended.stderr.contains("run it without --loopback"), "{ended}");
    assert!(!scratch.results().exists(), "nothing was begun");
}

#[test]
fn an_unavailable_backend_is_reported_with_its_reason_before_any_trial() {
    if !Mode::available().any(|mode| mode == Mode::Namespaces) {
        return;
    }
    let scratch = Scratch::alone();
    let document = on(document::run("kernel"), &["far"]).with(
        "networks",
        json!([{ "name": "far", "delay": "100ms", "backend": "kernel" }]),
    );
    let ended = scratch.run(Mode::Namespaces, &document, &[]);
    if ended.code() == Some(0) {
        return skip(Need::NoNetem, "a kernel without netem", "this one has it");
    }
    let ended = ended.expect(1);
    for words in ["network far on client-0: ", "failed: "] {
        assert!(ended.stderr.contains(words), "{ended}");
    }
    let results = results(&scratch.only_run());
    assert!(results.trials.is_empty());
    assert_eq!(results.state, RunState::Failed);
}

/// The process that impairs what this node sends.
fn link_agent(perfrun: &Running, ip: &str) -> Option<u32> {
    children(perfrun.pid()).into_iter().find(|pid| {
        let cmdline = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let arguments: Vec<&[u8]> = cmdline.split(|&byte| byte == 0).collect();
        arguments.contains(&b"link-agent".as_slice()) && arguments.contains(&ip.as_bytes())
    })
}

#[test]
fn a_node_whose_link_agent_is_killed_is_replaced_and_its_trial_run_again() {
    if !Mode::available().any(|mode| mode == Mode::Namespaces) {
        return;
    }
    let scratch = Scratch::alone();
    let pings = document::run("mortal")
        .with("workload", json!({ "ping": { "count": 15 } }))
        .with("iterations", json!(2));
    let document = on(pings, &["there"]).with("timeouts", json!({ "trial": "10s" }));
    let perfrun = scratch.start(Mode::Namespaces, &document);
    let agent = eventually("there is a link agent, or the run has ended", || {
        link_agent(&perfrun, "10.99.0.2")
            .map(Some)
            .or_else(|| perfrun.has_ended().then_some(None))
    });
    let Some(agent) = agent else {
        is_impaired(&perfrun.ended());
        return;
    };
    perfrun.client_in_a_trial(None);
    send(agent, Signal::KILL);
    let ended = perfrun.ended().expect(0);
    assert!(
        ended.stderr.contains("its link agent: signal: 9 (SIGKILL)"),
        "{ended}"
    );
    let results = results(&scratch.only_run());
    let records = by_attempt(&results);
    let failure = records[&("c0.i0", 0)].failure.as_ref().unwrap();
    assert_eq!(
        (failure.node.as_deref(), failure.reason),
        (Some("client-0"), Reason::NodeLost)
    );
    assert!(records[&("c0.i0", 0)].metrics.is_empty());
    let again = records[&("c0.i0", 1)];
    assert_eq!(again.failure, None);
    assert!(
        again.links.as_ref().unwrap().is_effective(),
        "links are set and measured again"
    );
    assert_eq!(records[&("c0.i1", 0)].failure, None);
}
