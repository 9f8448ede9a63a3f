//! `perfrun run --metrics-listen`, scraped by a real Prometheus.

use std::{net::TcpListener, path::Path, time::Duration};

use perfrun_test_kit::dashboards::{
    Dashboard, Prometheus, Scope, agrees_with, all, all_have_data, keep_picture, now,
    stays_when_targets_are_gone, without_intervals,
};
use perfrun_test_kit::{Need, skip};
use rustix::process::Signal;
use serde_json::json;
use tokio::runtime::Runtime;

use crate::{
    document::{self, Document},
    links::is_impaired,
    perfrun::{Mode, Running, Scratch, entries, eventually, results},
};

/// Runs that together measure all that there is. Each takes six seconds or more on any machine, so that it is
/// scraped several times: a rate needs two samples.
fn documents() -> [Document; 7] {
    let libp2p = json!({ "clients": ["libp2p"], "servers": ["libp2p"], "rawReference": false });
    let far = json!({ "clients": ["libp2p"], "servers": ["litep2p"], "networks": ["far"] });
    let of = |name, workload| {
        let document = document::run(name).with("workload", workload);
        document
            .with("matrix", libp2p.clone())
            .with("iterations", json!(6))
    };
    let transfers = json!({ "bandwidth": { "duration": "1s", "directions": ["upload", "download"] } });
    [
        of("transfers", transfers).with("matrix", far).with(
            "networks",
            json!([{ "name": "far", "delay": "50ms", "rate": "100Mbit" }]),
        ),
        of("handshakes", json!({ "handshakes": { "duration": "1s" } })),
        // New nodes in each iteration would count from 0 again.
        of("pings", json!({ "ping": { "count": 50, "interval": "10ms" } }))
            .with(
                "stacks",
                json!([{ "name": "main", "stack": "libp2p" }, { "name": "pr", "stack": "libp2p" }]),
            )
            .with(
                "matrix",
                json!({ "clients": ["main"], "servers": ["main"], "rawReference": false }),
            )
            .with("compare", json!([{ "baseline": "main", "candidate": "pr" }]))
            .with("expect", json!([{ "metric": "roundTripP50", "max": "1s" }]))
            .with("renew", json!("never"))
            .with("iterations", json!(10)),
        of(
            "substreams",
            json!({ "substreams": { "counts": [100], "mode": "paced", "rate": 100 } }),
        ),
        of(
            "echoes",
            json!({ "echo": {
                "loads": [{ "connections": 2, "streamsPerConnection": 5 }], "connectionInterval": "50ms",
                "streamInterval": "10ms", "pause": "50ms", "duration": "3s", "sampleInterval": "100ms",
            } }),
        ),
        of(
            "messages",
            json!({ "messages": { "modes": ["stream", "broadcast"], "sizes": [64], "duration": "1s" } }),
        ),
        // One sink more than the relay takes, so that it has something to refuse.
        of(
            "stressed",
            json!({ "relayStress": {
                "sinks": [4], "sinksPerSource": 4, "sinkInterval": "10ms", "plateau": "2s", "transferBytes": "100k",
                "limits": { "circuits": 3 },
            } }),
        ),
    ]
}

#[test]
fn every_query_of_the_dashboards_of_runs_agrees_with_results_of_local_runs() {
    if let Some(obstacle) = Prometheus::obstacle() {
        return skip(Need::Prometheus, "all of it", obstacle);
    }
    if !Mode::available().any(|mode| mode == Mode::Namespaces) {
        return;
    }
    let runtime = Runtime::new().unwrap();
    let address = free_address();
    let prometheus = runtime.block_on(Prometheus::start(&scraping(&address))).unwrap();
    // One of the runs measures links.
    let scratch = Scratch::alone();
    let from = now();
    let command = scratch.command(Mode::Namespaces, &documents()[0], &["--metrics-listen", &address]);
    let all_of_them: String = documents().iter().map(Document::text).collect();
    scratch.write("document.yaml", &all_of_them);
    let ended = Running::start(command).ended();
    if !is_impaired(&ended) {
        return;
    }
    // It has waited until the last metrics were scraped, unless they had been before.
    // A machine that other tests keep busy leaves what is expected inconclusive.
    assert!(matches!(ended.code(), Some(0 | 4)), "{ended}");
    let to = now();
    let folders = entries(&scratch.results());
    assert_eq!(folders.len(), documents().len(), "{folders:?}");
    let mut comparisons = vec![];
    for folder in folders {
        let results = results(&folder);
        runtime.block_on(async {
            agrees_with(&prometheus, &results, &scope(&results.name, "", from, to))
                .await
                .unwrap();
        });
        comparisons.extend(results.judged.into_iter().flat_map(|judged| judged.comparisons));
    }
    // It has no operator, and limits nobody's CPU.
    let dashboards: Vec<_> = all()
        .unwrap()
        .into_iter()
        .filter(|it| it.uid != "perfrun-operator")
        .collect();
    let scopes = scopes(from, to);
    let mut without = vec![(
        "Time throttled by CPU limits",
        "nobody limits the CPU of local nodes",
    )];
    without.extend(without_intervals(&comparisons));
    runtime.block_on(async {
        let asked = all_have_data(&prometheus, &dashboards, &scopes, &without)
            .await
            .unwrap();
        assert!(asked > 40, "only {asked} queries have data");
        // perfrun is gone. When its last samples are older than Prometheus looks back, only the time shown
        // has them.
        for scope in &scopes {
            stays_when_targets_are_gone(&prometheus, &dashboards, scope, to + 600.0, "Succeeded")
                .await
                .unwrap();
        }
    });
    keep_pictures(&runtime, &prometheus, &dashboards, &scratch.results());
}

/// Draws each dashboard with a run of which it shows much.
fn keep_pictures(runtime: &Runtime, prometheus: &Prometheus, dashboards: &[Dashboard], folder: &Path) {
    const ALL: &str = ".*";
    let folders = entries(folder);
    let runs: Vec<_> = folders.iter().map(|folder| results(folder)).collect();
    for dashboard in dashboards {
        let (name, workload) = match dashboard.uid.as_str() {
            "perfrun-overview" => (ALL, ""),
            "perfrun-relay" => ("stressed", "relayStress"),
            _ => ("transfers", "bandwidth"),
        };
        let shown = runs.iter().filter(|run| name == ALL || run.name == name);
        let from = shown.clone().map(|run| run.started).min().unwrap();
        let to = shown.map(|run| run.ended).max().unwrap();
        // Prometheus has the last results a moment after the end.
        let scope = scope(
            name,
            workload,
            from.as_second() as f64,
            to.as_second() as f64 + 3.0,
        );
        let kept = runtime.block_on(keep_picture(prometheus, dashboard, &scope));
        kept.unwrap_or_else(|error| panic!("{}: {error:#}", dashboard.title));
    }
}

#[test]
fn a_run_that_was_stopped_is_cancelled_in_prometheus_although_it_is_gone() {
    if let Some(obstacle) = Prometheus::obstacle() {
        return skip(Need::Prometheus, "all of it", obstacle);
    }
    let runtime = Runtime::new().unwrap();
    let address = free_address();
    let prometheus = runtime.block_on(Prometheus::start(&scraping(&address))).unwrap();
    let from = now();
    let scratch = Scratch::new();
    let steady = document::steady("stopped", 500, 100);
    let command = scratch.command(Mode::Loopback, &steady, &["--metrics-listen", &address]);
    let mut perfrun = Running::start(command);
    perfrun.wait_for_output("[6/100]");
    // Prometheus takes its time to look at a target for the first time.
    eventually("the run is in Prometheus", || {
        runtime.block_on(prometheus.number("perfrun_run_info")).unwrap()
    });
    perfrun.signal(Signal::INT);
    let ended = perfrun.ended().expect(130);
    let to = now();
    let overview: Vec<_> = all()
        .unwrap()
        .into_iter()
        .filter(|it| it.uid == "perfrun-overview")
        .collect();
    let scope = scope("stopped", "ping", from, to);
    runtime
        .block_on(stays_when_targets_are_gone(
            &prometheus,
            &overview,
            &scope,
            to + 600.0,
            "Cancelled",
        ))
        .unwrap_or_else(|error| panic!("{error:#}\n{ended}"));
}

#[test]
fn a_run_serves_metrics_and_does_not_wait_for_a_scraper_that_never_came() {
    for mode in Mode::available() {
        let scratch = Scratch::new();
        let address = free_address();
        let steady = document::steady("steady", 300, 2);
        let command = scratch.command(mode, &steady, &["--metrics-listen", &address]);
        let begun = std::time::Instant::now();
        let ended = Running::start(command).ended().expect(0);
        assert!(!ended.stderr.contains("waiting"), "nobody has asked: {ended}");
        assert!(begun.elapsed() < Duration::from_secs(60));
    }
}

#[test]
fn an_address_that_is_taken_is_refused_before_anything_runs() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let scratch = Scratch::new();
    let ended = scratch.run(
        Mode::Loopback,
        &document::run("taken"),
        &["--metrics-listen", &address],
    );
    let ended = ended.expect(1);
    assert!(
        ended.stderr.contains(&address)
            && ended
                .stderr
                .contains("choose another address with --metrics-listen"),
        "{ended}"
    );
    assert_eq!(entries(&scratch.results()), Vec::<std::path::PathBuf>::new());
}

/// A configuration that has one target scraped every second.
fn scraping(address: &str) -> String {
    format!(
        "{{global: {{scrape_interval: 1s}}, scrape_configs: [{{job_name: perfrun, static_configs: [{{targets: ['{address}']}}]}}]}}"
    )
}

/// The choices on a dashboard for the run of each document.
fn scopes(from: f64, to: f64) -> [Scope<'static>; 7] {
    [
        ("transfers", "bandwidth"),
        ("handshakes", "handshakes"),
        ("pings", "ping"),
        ("substreams", "substreams"),
        ("echoes", "echo"),
        ("messages", "messages"),
        ("stressed", "relayStress"),
    ]
    .map(|(run, workload)| scope(run, workload, from, to))
}

fn scope<'a>(run: &'a str, workload: &'a str, from: f64, to: f64) -> Scope<'a> {
    Scope {
        run,
        workload,
        namespace: "local",
        from,
        to,
        interval: 1.0,
    }
}

pub(crate) fn free_address() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().to_string()
}
