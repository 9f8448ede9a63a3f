//! Snapshots of reports, checked by eye when they change.

use std::{collections::BTreeMap, time::Duration};

use insta::assert_snapshot;
use perfrun_api::results::Results;
use perfrun_contract::{
    matrix::Transport,
    metric::Metric,
    network::NetworkImpairments,
    node::Reason,
    plan::Cell,
    record::{Flag, Leg, LinkCheck, LinkRecord, TrialRecord},
    role::Role,
    tally::EndReason,
};
use perfrun_judge::{judged, needs, summarize};
use perfrun_link::{
    ActiveBackend, Impairment, Scheduling,
    impairment::Mode,
    probe::{Delivery, Measurement, ProbePlan, Rate, RoundTrip, judge},
    state::{Lateness, Worker},
};
use perfrun_report::{
    TerminalOptions, echo_csv, html, markdown, samples_csv, select_cells, summary_csv, terminal,
};

use perfrun_test_kit::results::{ResultsBuilder, run};

pub(super) const QUICKSTART: &str = "
  workload:
    bandwidth: {sizes: [64Mi]}
  matrix: {clients: [libp2p, litep2p], servers: [libp2p, litep2p], transports: [tcp, quic-v1]}
";

pub(crate) const COMPARED: &str = "
  workload:
    bandwidth: {sizes: [64Mi]}
  stacks: [{name: main, stack: litep2p}, {name: pr, stack: litep2p}]
  matrix: {clients: [main], servers: [main], transports: [tcp, quic-v1], rawReference: false}
  compare: [{baseline: main, candidate: pr}]
  expect:
    - {metric: uploadGoodput, maxRegression: 10%}
    - {metric: downloadGoodput, maxRegression: 10%}
    - {metric: uploadGoodput, min: 1Gbit, where: {transport: tcp}}
  iterations: 20
";

fn form(width: usize) -> TerminalOptions {
    TerminalOptions {
        width,
        show_all_command: "perfrun report results/RUN --all".to_owned(),
        ..TerminalOptions::default()
    }
}

/// What a terminal of this width shows at the end of a run.
pub(crate) fn shown(results: &Results, width: usize) -> String {
    terminal(&results.reported_run(), &form(width))
}

#[test]
fn a_report_of_the_quickstart_equals_its_snapshots() {
    let results = run(QUICKSTART).results();
    assert_snapshot!("quickstart.md", markdown(&results.reported_run()));
    assert_snapshot!("quickstart.txt", shown(&results, 100));
    let all = TerminalOptions {
        shows_all: true,
        ending: vec!["results/RUN/report.html".to_owned(), "exit 0".to_owned()],
        ..form(100)
    };
    assert_snapshot!("quickstart-all.txt", terminal(&results.reported_run(), &all));
}

#[test]
fn a_report_names_the_congestion_control_of_each_transport() {
    let tuned =
        QUICKSTART.to_owned() + "  stacks: [{name: reno, stack: libp2p, settings: {tcpCongestion: reno}}]\n";
    let mut results = run(&tuned.replace("clients: [libp2p,", "clients: [libp2p, reno,")).results();
    for record in &mut results.trials {
        let cell = &results.plan.cells[record.trial.cell];
        for node in record.nodes.values_mut() {
            let of_client = node.role == Role::Client && cell.client.0 == "reno";
            node.measured.congestion_control = Some(match cell.transport {
                Transport::Tcp if of_client => "reno".into(),
                Transport::Tcp => "bbr".into(),
                _ => "cubic".into(),
            });
        }
    }
    let rendered = markdown(&results.reported_run());
    let first_table = rendered.find("| ").unwrap();
    let words = "Congestion control: tcp bbr (libp2p, litep2p, raw), reno (reno); quic-v1 cubic.";
    assert!(rendered[..first_table].contains(words), "{rendered}");
    assert!(
        rendered.contains("| Settings of stacks | reno: tcpCongestion reno |"),
        "{rendered}"
    );
}

/// A candidate that uploads slower, and costs more than the others show.
fn compared() -> ResultsBuilder {
    run(COMPARED)
        .name("compare")
        .changed("pr.pr.tcp.upload", Metric::UploadGoodput, 0.86)
        .changed("pr.pr.quic-v1.download", Metric::DownloadGoodput, 1.09)
        .changed("pr.pr.tcp.download", Metric::CpuSecondsPerGiB, 1.03)
}

#[test]
fn ip_families_are_named_before_the_first_table() {
    let results = run("
  workload: {ping: {count: 10}}
  matrix: {clients: [libp2p], servers: [libp2p], transports: [tcp], ipFamilies: [IPv4, IPv6]}
  iterations: 6
")
    .results();
    for (rendered, table) in [
        (shown(&results, 100), "───"),
        (markdown(&results.reported_run()), "| --- "),
        (html(&results.reported_run()), "<table"),
    ] {
        let (before, _) = rendered.split_once(table).unwrap();
        let words = "Nodes spoke IPv4, and IPv6 where a transport is over IPv6.";
        assert!(before.contains(words), "{rendered}");
    }
}

#[test]
fn findings_come_first_in_a_report_and_last_on_a_terminal() {
    let results = compared().results();
    assert_snapshot!("compared.md", markdown(&results.reported_run()));
    let on_terminal = shown(&results, 100);
    assert_eq!(
        on_terminal.lines().last(),
        Some("Verdict: Fail · 1 of 6 expectations does not hold")
    );
    assert_snapshot!("compared.txt", on_terminal);
}

#[test]
fn trials_that_interim_checks_left_out_are_named_and_not_missing() {
    let longer = COMPARED.replace("iterations: 20", "iterations: 10\n  maxIterations: 40");
    let mut results = run(&longer)
        .changed("pr.pr.tcp.upload", Metric::UploadGoodput, 0.5)
        .results();
    let iterations = needs(&results.plan, &results.trials).iterations;
    results
        .trials
        .retain(|record| record.trial.warmup || record.trial.iteration < iterations[record.trial.cell]);
    results.summary = summarize(&results.plan, &results.trials);
    results.judged = judged(&results.plan, &results.trials, &results.environment.nodes);
    let not_needed = results.judged.as_ref().unwrap().not_needed.unwrap();
    assert_eq!(not_needed.iterations[0], 10);
    let rendered = markdown(&results.reported_run());
    assert!(rendered.contains(&format!("{not_needed}.")), "{rendered}");
    let needed = |most: u32| iterations.iter().map(move |needed| (*needed).min(most));
    let range = format!(
        "Each median outside of Comparisons is over {} to {} trials",
        needed(40).min().unwrap(),
        needed(40).max().unwrap()
    );
    assert!(rendered.contains(&range), "{range}: {rendered}");
    assert!(!rendered.contains("of 40 trials"), "{rendered}");
    assert_eq!(results.conclusion().reason, EndReason::Succeeded);

    select_cells(
        &mut results.plan,
        &mut results.trials,
        &mut results.summary,
        |cell| cell.client.0 == "pr",
    );
    results.judged = None;
    let rendered = markdown(&results.reported_run());
    assert!(
        rendered.contains("pr → pr") && !rendered.contains("main → main"),
        "{rendered}"
    );
    assert!(!rendered.contains("of 40 trials"), "{rendered}");
}

#[test]
fn selected_cells_keep_their_trials_and_their_raw_reference() {
    let mut results = run(QUICKSTART).results();
    let cell_of = |results: &Results, record: &TrialRecord| results.plan.cells[record.trial.cell].id.clone();
    let trials = results.trials.iter();
    let cells: BTreeMap<String, String> = trials
        .map(|record| (record.trial.id.clone(), cell_of(&results, record)))
        .collect();
    let whole = results.plan.cells.len();
    let is_wanted = |cell: &Cell| cell.transport == Transport::QuicV1 && cell.client.0 == "libp2p";
    select_cells(
        &mut results.plan,
        &mut results.trials,
        &mut results.summary,
        is_wanted,
    );
    // Two servers, and raw, each with uploads and downloads.
    assert_eq!((results.plan.cells.len(), whole), (6, 20));
    let is_kept = |cell: &Cell| is_wanted(cell) || cell.id.starts_with("raw.raw.quic-v1.");
    assert!(results.plan.cells.iter().all(is_kept), "{:?}", results.plan.cells);
    assert_eq!(results.trials.len(), results.plan.trials.len());
    for record in &results.trials {
        assert_eq!(cell_of(&results, record), cells[&record.trial.id]);
    }
    let rendered = markdown(&results.reported_run());
    assert!(rendered.contains("## Share of raw"), "{rendered}");
    assert!(
        !rendered.contains("| tcp |") && !rendered.contains("not run"),
        "{rendered}"
    );
}

#[test]
fn two_builds_of_one_version_are_distinguished() {
    let mut results = run(QUICKSTART).results();
    let client = results.environment.nodes.get_mut("client-0").unwrap();
    client.program_sha256 = Some("fedcba9876543210".repeat(4));
    client.label = Some("pr".to_owned());
    client.commit = Some("89abcde".to_owned());
    let report = markdown(&results.reported_run());
    let expected =
        "| Build | pr, commit 89abcde, sha256 fedcba987654 (client-0); sha256 0123456789ab (server-0) |";
    assert!(report.contains(expected), "{report}");
}

#[test]
fn a_report_of_a_sweep_shows_every_kind_of_trouble() {
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
    assert_snapshot!("troubled.md", markdown(&results.reported_run()));
    assert_snapshot!("troubled.txt", shown(&results, 100));
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
    let rendered = shown(&results, 100);
    assert!(
        rendered.lines().all(|line| line.chars().count() <= 100),
        "{rendered}"
    );
    assert_snapshot!("sweep.txt", rendered);
}

#[test]
fn a_report_of_the_latency_of_one_byte_equals_its_snapshot() {
    let results = run("
  workload:
    bandwidth: {sizes: [1], directions: [both]}
  iterations: 100
")
    .results();
    assert_snapshot!("latency.txt", shown(&results, 100));
}

#[test]
fn a_report_of_timed_parallel_streams_equals_its_snapshot() {
    let results = run("
  workload:
    bandwidth: {duration: 20s, streams: [1, 8]}
  matrix: {transports: [tcp-tls, quic-v1]}
  iterations: 5
")
    .results();
    assert_snapshot!("duration.txt", shown(&results, 100));
}

#[test]
fn a_report_of_substreams_equals_its_snapshot() {
    let results = run("
  workload:
    substreams: {counts: [1, 100, 256]}
  matrix: {transports: [tcp, quic-v1]}
")
    .results();
    assert_snapshot!("substreams.md", markdown(&results.reported_run()));
    assert_snapshot!("substreams.txt", shown(&results, 100));
}

#[test]
fn a_report_of_handshakes_equals_its_snapshot() {
    let results = run("
  workload:
    handshakes: {count: 1000, inFlight: [1, 16]}
  matrix: {transports: [tcp, quic-v1]}
")
    .flagged(
        "libp2p.litep2p.quic-v1.handshakes-1000-x16/",
        Flag::PartialFailures,
    )
    .results();
    assert_snapshot!("handshakes.md", markdown(&results.reported_run()));
    assert_snapshot!("handshakes.txt", shown(&results, 100));
}

#[test]
fn values_of_commonwares_stream_layer_are_marked() {
    for (workload, is_marked) in [
        ("bandwidth: {sizes: [64Mi]}", true),
        ("handshakes: {count: 10}", true),
        ("messages: {count: 10}", false),
    ] {
        let results = run(&format!(
            "
  workload:
    {workload}
  matrix: {{clients: [commonware], servers: [commonware]}}
"
        ))
        .results();
        let rendered = markdown(&results.reported_run());
        assert_eq!(rendered.contains("stream layer"), is_marked, "{rendered}");
    }
}

#[test]
fn a_report_of_pings_equals_its_snapshot() {
    let results = run("
  workload:
    ping: {count: 1000}
  matrix: {transports: [tcp, quic-v1]}
")
    .results();
    assert_snapshot!("ping.md", markdown(&results.reported_run()));
    assert_snapshot!("ping.txt", shown(&results, 80));
}

#[test]
fn a_report_of_an_echo_equals_its_snapshots() {
    let mut results = run("
  workload:
    echo:
      loads: [{connections: 2, streamsPerConnection: 50}]
      duration: 20s
  matrix: {transports: [tcp, quic-v1]}
")
    .flagged("litep2p.libp2p.tcp.echo-2x50/", Flag::BelowNominal)
    .results();
    assert_snapshot!("echo.md", markdown(&results.reported_run()));
    assert_snapshot!("echo.txt", shown(&results, 100));
    let files = echo_csv(&results.reported_run());
    assert_eq!(
        files.len(),
        results.plan.cells.len() * results.spec.iterations as usize * 2
    );
    let (name, first) = &files[0];
    assert_snapshot!("echo.csv", format!("{name}\n{first}"));
    let measured = results.trials.iter().find(|record| !record.trial.warmup);
    let again = TrialRecord {
        attempt: 1,
        ..measured.unwrap().clone()
    };
    results.trials.push(again);
    let count = echo_csv(&results.reported_run()).len();
    assert_eq!(count, files.len(), "a trial that was measured again counts once");
}

#[test]
fn a_report_of_messages_equals_its_snapshot() {
    let results = run("
  workload:
    messages: {modes: [serial, serialAck, stream], sizes: [64, 16Ki], count: 1280}
  matrix: {clients: [libp2p, litep2p], servers: [libp2p], transports: [tcp]}
  iterations: 6
")
    .results();
    assert_snapshot!("messages.md", markdown(&results.reported_run()));
    assert_snapshot!("messages.txt", shown(&results, 100));
}

#[test]
fn the_caption_of_an_echo_has_the_pace_of_its_lines() {
    let results = run("
  workload:
    echo:
      loads: [{connections: 2, streamsPerConnection: 50}]
      period: 250ms
      duration: 20s
")
    .results();
    let rendered = markdown(&results.reported_run());
    for words in [
        "every 250 ms on each stream, at fixed times, 20.0 s with the ramp",
        "as a share of one per period and stream",
        "counts from when it was due, except for what the timer added, at most 2 ms",
    ] {
        assert!(rendered.contains(words), "{rendered}");
    }
}

#[test]
fn webrtc_is_compared_with_quic_and_tcp_where_both_are_measured() {
    let spec = "
  workload: {echo: {loads: [{connections: 2, streamsPerConnection: 50}], duration: 20s}}
  networks: [{name: far, delay: 25ms}]
  matrix:
    clients: [libp2p]
    servers: [libp2p]
    transports: [tcp, quic-v1, webrtc-direct]
    networks: [none, far]
    rawReference: false
";
    let measured = |spec: &str| {
        run(spec)
            .changed(".far/", Metric::CpuSecondsPerOperation, 2.0)
            .changed("webrtc-direct.echo", Metric::CpuSecondsPerOperation, 3.0)
    };
    let rendered = |run: ResultsBuilder| markdown(&run.results().reported_run());
    let both = rendered(measured(spec));
    let row = |transport: &str| {
        format!(
            "| {transport} | 2 × 50 | libp2p → libp2p | 300 % [300, 300] | 100 % [100, 100] | 100 % [100, 100] |"
        )
    };
    for (other, words) in [("QUIC", "those over quic-v1"), ("TCP", "those over tcp")] {
        let (_, table) = both
            .split_once(&format!("\n## WebRTC against {other}\n"))
            .unwrap();
        let (table, _) = table.split_once("\n## ").unwrap();
        assert!(table.contains(words), "{table}");
        let rows: Vec<_> = table.lines().filter(|line| line.contains(" × ")).collect();
        assert_eq!(rows, [row("webrtc-direct"), row("webrtc-direct on far")]);
    }
    let alone = rendered(measured(&spec.replace("quic-v1, ", "")));
    assert!(alone.contains("| webrtc-direct | 2 × 50 |"), "{alone}");
    let failed = rendered(measured(spec).failing("webrtc-direct.echo", Reason::Timeout, "no answer"));
    for without in [alone, failed] {
        assert!(!without.contains("WebRTC against QUIC"), "{without}");
    }
}

/// Documents show tables with their captions, and `cargo xtask prose` checks documents.
#[test]
fn sentences_of_captions_are_no_longer_than_those_of_documents() {
    for workload in [
        "bandwidth: {sizes: [1Ki, 64Mi], streams: [1, 8]}",
        "bandwidth: {protocol: litep2p-perf, sizes: [1], directions: [both], timing: compat}",
        "substreams: {counts: [1, 100]}",
        "handshakes: {count: 100}",
        "ping: {}",
        "relay: {sizes: [100M]}",
        "relayStress: {sinks: [100, 500, 1000]}",
        "echo: {loads: [{preset: scenario-2}]}",
        "echo: {loads: [{preset: scenario-2}], period: 500ms}",
        "messages: {modes: [serial, serialAck, stream], sizes: [64], count: 10}",
    ] {
        let results = run(&format!("\n  workload: {{{workload}}}\n")).results();
        let rendered = markdown(&results.reported_run());
        let tables = rendered.split("\n## ").skip(1);
        let captions = tables.filter_map(|table| table.split("\n\n").nth(1));
        let captions: Vec<&str> = captions.filter(|text| !text.starts_with('|')).collect();
        assert!(!captions.is_empty(), "{rendered}");
        for sentence in captions.iter().flat_map(|caption| caption.split(". ")) {
            let words = sentence.split_whitespace();
            let count = words.filter(|word| word.contains(char::is_alphabetic)).count();
            assert!(count <= 40, "{count} words: {sentence}");
        }
    }
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
    let rendered = shown(&results, 100);
    assert!(
        rendered.lines().all(|line| line.chars().count() <= 100),
        "{rendered}"
    );
    assert_snapshot!("long-names.txt", rendered);
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
    assert_snapshot!("samples.csv", samples_csv(&results.reported_run()));
}

#[test]
fn the_summary_is_one_line_for_each_metric_of_a_cell() {
    let results = run("
  workload:
    messages: {modes: [serialAck], sizes: [64], count: 10}
  matrix: {clients: [libp2p], servers: [libp2p], rawReference: true}
  iterations: 6
")
    .results();
    assert_snapshot!("summary.csv", summary_csv(&results.reported_run()));
}

#[test]
fn a_run_that_has_not_ended_is_not_reported_as_cancelled() {
    let mut results = run(QUICKSTART).results();
    results.conclusion = Some(results.tally().in_progress());
    let rendered = markdown(&results.reported_run());
    assert!(
        rendered.contains("The run is in progress: ") && !rendered.contains("Cancelled"),
        "{rendered}"
    );
}

/// What a link agent reports. The client's end of the link is the later one.
fn late_link(role: Role, iteration: usize) -> LinkRecord {
    let late_by = match role {
        Role::Client => 40_000 + iteration as u64 * 1000,
        _ => 10,
    };
    LinkRecord {
        backend: ActiveBackend::Userspace,
        mode: Mode::SuperPackets,
        traffic: vec![],
        worker: Some(Worker {
            scheduling: Scheduling::RealTime,
            lateness: Lateness {
                frames: 2000,
                p50_ns: 5000,
                p99_ns: late_by,
                max_ns: 20 * late_by,
            },
            overflowed: 0,
            unmatched: 0,
            refused: 0,
            cpu_ns: 0,
        }),
    }
}

/// What the measurement of a network finds.
fn checked(impairments: &NetworkImpairments, iteration: usize) -> LinkCheck {
    let (there, back) = (&impairments.to_server, &impairments.to_client);
    let arrived = |way: &Impairment, available: u64| {
        let rate = way
            .rate_bits_per_second
            .map(|rate| rate.get() - iteration as u64 * 10_000);
        Some(Rate {
            offered_bits_per_second: rate.map_or(2_000_000_000, |rate| rate * 115 / 100),
            received_bits_per_second: rate.unwrap_or(available),
        })
    };
    let nanoseconds = 70_000 + iteration as u64 * 1000 + impairments.round_trip().as_nanos() as u64;
    let lost = if there.loss.is_some() { 4 } else { 0 };
    let measured = Measurement {
        round_trip: Some(RoundTrip {
            min_ns: nanoseconds,
            p50_ns: nanoseconds,
            p99_ns: nanoseconds,
        }),
        forward: Delivery {
            sent: 4000,
            received: 4000 - lost,
        },
        backward: Delivery {
            sent: 4000 - lost,
            received: 4000 - lost,
        },
        rate: arrived(there, 1_980_000_000 - iteration as u64 * 1_000_000),
    };
    let verdict = judge(
        there,
        back,
        Duration::ZERO,
        &ProbePlan::new(there, back),
        &measured,
    );
    LinkCheck {
        network: impairments.name.clone(),
        set_seconds: 0.002,
        probe_seconds: 2.5,
        legs: vec![Leg {
            client: "client-0".into(),
            server: "server-0".into(),
            base_round_trip_seconds: 0.00007,
            attempts: 1,
            measured,
            rate_to_client: arrived(
                back,
                if there.is_none() {
                    1_990_000_000
                } else {
                    941_000_000
                },
            ),
            findings: verdict.findings,
        }],
    }
}

/// A run on three networks, the links of which were measured in every iteration.
#[test]
fn a_report_of_several_networks_equals_its_snapshots() {
    let mut results = run("
  workload:
    bandwidth: {sizes: [100Mi], directions: [both]}
  matrix: {clients: [libp2p], servers: [libp2p], transports: [tcp, quic-v1], networks: [none, lat10, wan]}
  iterations: 6
  warmup: 0
")
    .failing(
        "wan/c8.i2",
        Reason::ImpairmentNotEffective,
        "network wan, client-0 to server-0: too slow",
    )
    .flagged("lat10/c6.i1", Flag::ImpairmentLate)
    .results();
    let plan = results.plan.clone();
    let mut network = "";
    for (iteration, record) in results.trials.iter_mut().enumerate() {
        let cell = &plan.cells[record.trial.cell];
        for node in record.nodes.values_mut().filter(|_| cell.network != "none") {
            node.link = Some(late_link(node.role, iteration));
        }
        if cell.network == network {
            continue;
        }
        network = &cell.network;
        let impairments = plan.network(network).unwrap();
        record.links = Some(checked(impairments, iteration));
    }
    assert_snapshot!("networks.md", markdown(&results.reported_run()));
    assert_snapshot!("networks.txt", shown(&results, 100));
    let line = perfrun_report::links_line(results.trials[4].links.as_ref().unwrap());
    assert!(
        line.starts_with("links: lat10, median round trip (ms) 10.07"),
        "{line}"
    );
}
