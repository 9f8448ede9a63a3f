//! Pictures: which there are, what they say and that nothing lies outside of them.
//!
//! `PERFRUN_PLOTS=DIR cargo test -p perfrun-report plotted` writes them and their pages, to be looked at.

use std::{fs, path::Path};

use perfrun_contract::{matrix::Transport, metric::Metric, node::Reason, record::Flag};
use perfrun_report::{html, plots};

use perfrun_test_kit::results::run;

use crate::rendered::COMPARED;

const SWEEP: &str = "
  workload:
    bandwidth:
      protocol: litep2p-perf
      sizes: [1Ki, 2Ki, 4Ki, 8Ki, 16Ki, 32Ki, 64Ki, 128Ki, 256Ki, 512Ki, 1Mi, 2Mi, 4Mi, 8Mi, 16Mi, 32Mi, 64Mi,
        128Mi, 256Mi, 512Mi, 1Gi]
  matrix: {transports: [tcp, quic-v1]}
";

/// The names of the plots of a run, after looking over them.
fn plotted(folder: &str, spec: &str) -> Vec<&'static str> {
    let results = run(spec)
        .flagged("i3", Flag::Disturbed)
        .failing("c1.i5", Reason::Timeout, "not done")
        .results();
    let plots = plots(&results.reported_run());
    let wanted = std::env::var_os("PERFRUN_PLOTS").map(|all| Path::new(&all).join(folder));
    let write = |name: &str, text: &str| {
        if let Some(folder) = &wanted {
            fs::create_dir_all(folder).unwrap();
            fs::write(folder.join(name), text).unwrap();
        }
    };
    write("report.html", &html(&results.reported_run()));
    for (name, svg) in &plots {
        write(name, svg);
        assert!(svg.contains("role=\"img\"><title>quickstart: "), "{name}");
        let height = attributes(svg, "viewBox").next().unwrap();
        let height: i32 = height.split(' ').next_back().unwrap().parse().unwrap();
        let inside = |name: &str, size: i32| {
            let outside: Vec<String> = attributes(svg, name)
                .filter(|v| v.parse::<i32>().is_ok_and(|v| v < 0 || v > size))
                .collect();
            assert_eq!(outside, [""; 0], "{name}");
        };
        for (name, size) in [("x", 960), ("y", height), ("cx", 960), ("cy", height)] {
            inside(name, size);
        }
        let smallest = attributes(svg, "font-size")
            .map(|size| size.parse::<f64>().unwrap())
            .fold(99.0, f64::min);
        assert!(smallest >= 12.0, "{name}: {smallest}");
    }
    plots.into_iter().map(|(name, _)| name).collect()
}

/// The plot with this name.
fn plot<'a>(plots: &'a [(&str, String)], name: &str) -> &'a str {
    let (_, svg) = plots.iter().find(|(known, _)| *known == name).unwrap();
    svg
}

fn attributes<'a>(svg: &'a str, name: &str) -> impl Iterator<Item = String> + use<'a> {
    let start = format!(" {name}=\"");
    let values: Vec<String> = svg
        .split(&start)
        .skip(1)
        .filter_map(|rest| rest.split('"').next())
        .map(str::to_owned)
        .collect();
    values.into_iter()
}

#[test]
fn a_comparison_has_a_forest() {
    assert_eq!(
        plotted("compared", COMPARED),
        ["differences.svg", "comparison.svg", "trials.svg"]
    );
}

#[test]
fn a_sweep_has_lines_and_bars() {
    assert_eq!(
        plotted("sweep", SWEEP),
        ["size-sweep.svg", "comparison.svg", "trials.svg"]
    );
}

#[test]
fn one_size_has_bars_only() {
    let spec = "\n  workload: {bandwidth: {sizes: [64Mi]}}\n  matrix: {transports: [tcp, quic-v1]}\n";
    assert_eq!(plotted("one-size", spec), ["comparison.svg", "trials.svg"]);
}

#[test]
fn parallel_streams_and_long_names_have_room() {
    let spec = "
  workload: {bandwidth: {sizes: [1Mi, 16Mi], streams: [1, 8], directions: [upload, both]}}
  matrix:
    clients: [libp2p, litep2p-with-a-very-long-name-of-a-var.1]
    servers: [libp2p, litep2p-with-a-very-long-name-of-a-var.1]
    transports: [tcp, tcp-tls]
  stacks: [{name: litep2p-with-a-very-long-name-of-a-var.1, stack: litep2p}]
  iterations: 5
";
    assert_eq!(
        plotted("long-names", spec),
        ["size-sweep.svg", "comparison.svg", "trials.svg"]
    );
}

#[test]
fn other_workloads_have_plots_of_their_own() {
    let matrix = "\n  matrix: {transports: [tcp, quic-v1]}\n";
    let of = |name: &str, workload: &str| plotted(name, &format!("\n  workload: {{{workload}}}{matrix}"));
    assert_eq!(
        of("substreams", "substreams: {counts: [1, 32, 64, 100, 128, 256]}"),
        ["substreams.svg", "latencies.svg", "trials.svg"]
    );
    let handshakes = of("handshakes", "handshakes: {count: 200, inFlight: [1, 16]}");
    assert_eq!(
        handshakes,
        [
            "handshakes.svg",
            "handshake-rate.svg",
            "latencies.svg",
            "trials.svg"
        ]
    );
    assert_eq!(
        of("ping", "ping: {}"),
        ["ping.svg", "latencies.svg", "trials.svg"]
    );
    let echo = of("echo", "echo: {loads: [{preset: scenario-2}]}");
    assert_eq!(
        echo,
        [
            "echo-payload.svg",
            "echo-cpu.svg",
            "echo-memory.svg",
            "echo-transports-cpu.svg",
            "echo-transports-memory.svg",
            "latencies.svg",
            "trials.svg"
        ]
    );
    assert_eq!(of("relay", "relay: {sizes: [100M]}"), ["relay.svg", "trials.svg"]);
    let messages = "messages: {modes: [serial, stream], sizes: [64, 1Ki, 16Ki], count: 10}";
    assert_eq!(
        of("messages", messages),
        ["messages.svg", "latencies.svg", "trials.svg"]
    );
    assert_eq!(
        of("messages-of-one-size", "messages: {sizes: [64], count: 10}"),
        ["latencies.svg", "trials.svg"]
    );
    let stress = of("stress", "relayStress: {sinks: [100, 500, 1000]}");
    assert_eq!(
        stress,
        [
            "relay-stress-goodput.svg",
            "relay-stress-cpu.svg",
            "relay-stress-circuits-over-time.svg",
            "relay-stress-payload-over-time.svg",
            "relay-stress-cpu-over-time.svg",
            "trials.svg"
        ]
    );
}

/// The numbers in a list of points, two each.
fn pixels(points: &str) -> Vec<(f64, f64)> {
    let pair = |pair: &str| {
        let (x, y) = pair.split_once(',').unwrap();
        (x.parse().unwrap(), y.parse().unwrap())
    };
    points.split_whitespace().map(pair).collect()
}

#[test]
fn a_plot_over_time_shows_the_sampled_values() {
    let results = run("
  workload: {echo: {loads: [{connections: 100, streamsPerConnection: 100}]}}
  matrix: {clients: [libp2p], servers: [libp2p], transports: [tcp], rawReference: false}
")
    .results();
    let plots = plots(&results.reported_run());
    let svg = plot(&plots, "echo-memory.svg");
    // The first panel, of clients: labels of y end 8 pixels left of where x begins, at the height of their
    // values.
    let ticks: Vec<(f64, f64)> = svg
        .split("<text x=\"100\" y=\"")
        .skip(1)
        .map(|text| {
            let (y, text) = text.split_once('"').unwrap();
            let label = text.split(['>', '<']).nth(1).unwrap().trim();
            (y.parse().unwrap(), label.parse().unwrap())
        })
        .collect();
    let [(bottom, 0.0), (next, step), ..] = ticks[..] else {
        panic!("{ticks:?}")
    };
    let mib = |y: f64| (bottom - y) / (bottom - next) * step;
    let trial = results.trials.iter().find(|record| !record.trial.warmup).unwrap();
    let expected: Vec<f64> = trial.nodes["client-0"]
        .measured
        .samples
        .iter()
        .map(|sample| sample.allocated_bytes.unwrap() as f64 / 1_048_576.0)
        .collect();
    assert!(expected.windows(2).all(|pair| pair[0] < pair[1]), "{expected:?}");
    let pixel = mib(bottom - 1.0);
    let is_drawn = |points: &String| {
        let values: Vec<f64> = pixels(points).into_iter().map(|(_, y)| mib(y)).collect();
        let is_near = |(rendered, expected): (&f64, &f64)| (rendered - expected).abs() <= pixel;
        values.len() == expected.len() && values.iter().zip(&expected).all(is_near)
    };
    assert!(
        attributes(svg, "points").any(|points| is_drawn(&points)),
        "{expected:?}: {svg}"
    );
}

/// The colour and the points of each line of data and of the legend, in the order in which they are drawn.
fn lines(svg: &str) -> Vec<(String, Vec<(f64, f64)>)> {
    let line = |element: &str| {
        let (tag, _) = element.split_once('>')?;
        let tag = format!(" {tag}");
        if attributes(&tag, "stroke-width").next()? != "2" {
            return None;
        }
        let color = attributes(&tag, "stroke").next()?;
        Some((color, pixels(&attributes(&tag, "points").next()?)))
    };
    svg.split("<polyline ").skip(1).filter_map(line).collect()
}

#[test]
fn all_transports_of_an_echo_are_in_one_picture() {
    let spec = "
  workload: {echo: {loads: [{connections: 10, streamsPerConnection: 100}]}}
  matrix: {clients: [libp2p], servers: [libp2p], transports: [tcp, ws, quic-v1], rawReference: false}
";
    let mut results = run(spec).results();
    for record in &mut results.trials {
        let times = match results.plan.cells[record.trial.cell].transport {
            Transport::Tcp => 1,
            Transport::Ws => 2,
            _ => 3,
        };
        let nodes = record.nodes.values_mut();
        for sample in nodes.flat_map(|node| &mut node.measured.samples) {
            sample.allocated_bytes = sample.allocated_bytes.map(|bytes| bytes * times);
            sample.cpu_seconds *= times as f64;
        }
    }
    let plots = plots(&results.reported_run());
    for name in ["echo-transports-cpu.svg", "echo-transports-memory.svg"] {
        let svg = plot(&plots, name);
        let lines = lines(svg);
        // The legend, a panel of the client and one of the server.
        let [tcp, ws, quic, panels @ ..] = &lines[..] else {
            panic!("{name}: {lines:?}")
        };
        let colors = [&tcp.0, &ws.0, &quic.0];
        assert!(colors[0] != colors[1] && colors[1] != colors[2] && colors[0] != colors[2]);
        assert_eq!(panels.len(), 6, "{name}: {lines:?}");
        for panel in panels.chunks(3) {
            assert_eq!(panel.iter().map(|line| &line.0).collect::<Vec<_>>(), colors);
            let ends: Vec<f64> = panel.iter().map(|line| line.1.last().unwrap().1).collect();
            assert!(ends[0] > ends[1] && ends[1] > ends[2], "{name}: {ends:?}");
        }
        let named = |text: &str| svg.lines().filter(|line| line.trim() == text).count();
        assert_eq!(["tcp", "ws", "quic-v1"].map(named), [1, 1, 1], "{name}");
        assert_eq!(named("echo-10x100, client"), 1, "{name}");
    }
    let cpu = plot(&plots, "echo-transports-cpu.svg");
    assert!(cpu.contains("<title>quickstart: CPUs kept busy over time, by transport</title>"));
    let one = plotted("one-transport", &spec.replace("tcp, ws, quic-v1", "tcp"));
    assert!(
        !one.iter().any(|name| name.starts_with("echo-transports")),
        "{one:?}"
    );
}

#[test]
fn titles_of_panels_are_shown_whole_in_lines_that_fit() {
    let spec = "
  workload: {echo: {loads: [{connections: 100, streamsPerConnection: 100}], identity: rsa2048}}
  matrix:
    clients: [libp2p, a-variant-with-a-long-name]
    servers: [libp2p]
    transports: [tcp, ws]
    networks: [none, a-network-with-a-long-name]
    rawReference: false
  networks: [{name: a-network-with-a-long-name, delay: 1ms}]
  stacks: [{name: a-variant-with-a-long-name, stack: libp2p}]
";
    let plots = plots(&run(spec).results().reported_run());
    let svg = plot(&plots, "echo-transports-cpu.svg");
    let lines: Vec<&str> = svg.lines().map(str::trim).collect();
    // A panel has room for 47 of the widest letters.
    for (title, panels) in [
        ("libp2p → libp2p, echo-100x100-rsa2048, client", 1),
        ("libp2p → libp2p, echo-100x100-rsa2048 on", 2),
        ("a-variant-with-a-long-name → libp2p,", 4),
        ("echo-100x100-rsa2048, client", 1),
        ("echo-100x100-rsa2048 on", 2),
        ("a-network-with-a-long-name, client", 2),
        ("a-network-with-a-long-name, server", 2),
    ] {
        let shown = lines.iter().filter(|line| **line == title).count();
        assert_eq!(shown, panels, "{title}: {lines:?}");
    }
}

#[test]
fn a_stress_test_shows_how_circuits_come_up() {
    let spec = "
  workload: {relayStress: {sinks: [100]}}
  matrix: {clients: [libp2p], servers: [libp2p], rawReference: false}
";
    let plots = plots(&run(spec).results().reported_run());
    let svg = plot(&plots, "relay-stress-circuits-over-time.svg");
    assert!(
        svg.lines().any(|line| line.trim() == "tcp, sinks-100, relay"),
        "{svg}"
    );
    let lines = lines(svg);
    let [_legend, (_, circuits)] = &lines[..] else {
        panic!("{lines:?}")
    };
    // Half of them, then all. Further up is less.
    assert!(
        circuits.len() == 2 && circuits[0].1 > circuits[1].1,
        "{circuits:?}"
    );
    for (name, title) in [
        ("relay-stress-payload-over-time.svg", "tcp, sinks-100, client"),
        ("relay-stress-cpu-over-time.svg", "tcp, sinks-100, relay"),
    ] {
        assert!(plot(&plots, name).contains(title), "{name}");
    }
}

#[test]
fn small_transfers_have_times_instead_of_rates() {
    let spec = "\n  workload: {bandwidth: {sizes: [1, 1Ki]}}\n";
    assert_eq!(plotted("small", spec), ["trials.svg"]);
}

#[test]
fn a_transfer_of_some_seconds_has_a_course() {
    let spec = "\n  workload: {bandwidth: {duration: 6s}}\n  matrix: {transports: [tcp, quic-v1]}\n";
    assert_eq!(
        plotted("duration", spec),
        ["comparison.svg", "payload.svg", "trials.svg"]
    );
}

/// Three delays and two losses, of which one pair is missing, and a network that is not one of them.
const GRID: &str = "
  workload: {bandwidth: {duration: 6s, directions: [upload]}}
  matrix:
    clients: [libp2p, litep2p]
    servers: [libp2p]
    transports: [tcp, quic-v1]
    networks: [none, mid, far, lossy, mid-lossy, bursts]
  networks:
    - {name: mid, delay: 10ms}
    - {name: far, delay: 50ms}
    - {name: lossy, loss: 0.1%}
    - {name: mid-lossy, delay: 10ms, loss: 0.1%}
    - {name: bursts, delay: 5ms, bursts: {enter: 1%, leave: 20%}}
  iterations: 6
";

#[test]
fn networks_of_several_delays_and_losses_have_maps() {
    let names = plotted("grid", GRID);
    assert_eq!(
        names,
        ["comparison.svg", "delay-loss.svg", "payload.svg", "trials.svg"]
    );
    let results = run(GRID)
        .changed(".mid/", Metric::UploadGoodput, 0.5)
        .changed(".far/", Metric::UploadGoodput, 0.2)
        .changed(".lossy/", Metric::UploadGoodput, 0.4)
        .changed(".mid-lossy/", Metric::UploadGoodput, 0.1)
        .results();
    let plots = plots(&results.reported_run());
    let svg = plot(&plots, "delay-loss.svg");
    let count = |text: &str| svg.lines().filter(|line| line.trim() == text).count();
    // Of raw over TCP and QUIC, and of two pairs over each of them.
    assert_eq!((count("Loss each way"), count("Delay of a round trip")), (6, 6));
    assert_eq!(
        (count("0.1 %"), count("20.0 ms"), count("10.0 ms")),
        (6, 6, 0),
        "no bursts"
    );
    assert_eq!(count("100 %"), 6, "the network without delay and loss");
}

#[test]
fn networks_that_differ_in_one_thing_only_have_no_map() {
    let spec = GRID.replace("lossy, mid-lossy, ", "");
    assert_eq!(
        plotted("no-grid", &spec),
        ["comparison.svg", "payload.svg", "trials.svg"]
    );
}

#[test]
fn a_plot_shows_some_panels_and_how_many_it_leaves_out() {
    let spec = SWEEP.replace("tcp, quic-v1", "tcp, tcp-tls, ws, quic-v1");
    let plots = plots(&run(&spec).results().reported_run());
    let svg = plot(&plots, "trials.svg");
    let left_out = svg.lines().find(|line| line.contains("more panels are left out"));
    let number = left_out.and_then(|line| line.split_whitespace().next()?.parse::<usize>().ok());
    assert!(number.is_some_and(|number| number > 24), "{left_out:?}");
}
