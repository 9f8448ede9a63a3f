//! Pictures: which there are, what they say and that nothing lies outside of them.
//!
//! `PERFRUN_PLOTS=DIR cargo test -p perfrun-report plotted` writes them, to be looked at.

use perfrun_report::plots;

use crate::{drawn::COMPARED, fixtures::run};

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
    let plots = plots(&run(spec).results().account());
    for (name, svg) in &plots {
        if let Some(all) = std::env::var_os("PERFRUN_PLOTS") {
            let folder = std::path::Path::new(&all).join(folder);
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join(name), svg).unwrap();
        }
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
        ["differences.svg", "comparison.svg"]
    );
}

#[test]
fn a_sweep_has_lines_and_bars() {
    assert_eq!(plotted("sweep", SWEEP), ["size-sweep.svg", "comparison.svg"]);
}

#[test]
fn one_size_has_bars_only() {
    let spec = "\n  workload: {bandwidth: {sizes: [64Mi]}}\n  matrix: {transports: [tcp, quic-v1]}\n";
    assert_eq!(plotted("one-size", spec), ["comparison.svg"]);
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
    assert_eq!(plotted("long-names", spec), ["size-sweep.svg", "comparison.svg"]);
}

#[test]
fn other_workloads() {
    let matrix = "\n  matrix: {transports: [tcp, quic-v1]}\n";
    let of = |name: &str, workload: &str| plotted(name, &format!("\n  workload: {{{workload}}}{matrix}"));
    assert_eq!(
        of("substreams", "substreams: {counts: [1, 32, 64, 100, 128, 256]}"),
        ["substreams.svg"]
    );
    let handshakes = of("handshakes", "handshakes: {count: 200, inFlight: [1, 16]}");
    assert_eq!(handshakes, ["handshakes.svg", "handshake-rate.svg"]);
    assert_eq!(of("ping", "ping: {}"), ["ping.svg"]);
    let echo = of("echo", "echo: {loads: [{preset: scenario-2}]}");
    assert_eq!(echo, ["echo-payload.svg", "echo-cpu.svg", "echo-memory.svg"]);
    assert_eq!(of("relay", "relay: {sizes: [100M]}"), ["relay.svg"]);
    let messages = "messages: {modes: [serial, stream], sizes: [64, 1Ki, 16Ki], count: 10}";
    assert_eq!(of("messages", messages), ["messages.svg"]);
    assert!(of("messages-of-one-size", "messages: {sizes: [64], count: 10}").is_empty());
    let stress = of("stress", "relayStress: {sinks: [100, 500, 1000]}");
    assert_eq!(stress, ["relay-stress-goodput.svg", "relay-stress-cpu.svg"]);
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
fn what_is_drawn_over_time_is_what_was_sampled() {
    let results = run("
  workload: {echo: {loads: [{connections: 100, streamsPerConnection: 100}]}}
  matrix: {clients: [libp2p], servers: [libp2p], transports: [tcp], rawBaseline: false}
")
    .results();
    let plots = plots(&results.account());
    let (_, svg) = plots.iter().find(|(name, _)| *name == "echo-memory.svg").unwrap();
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
        let is_near = |(drawn, expected): (&f64, &f64)| (drawn - expected).abs() <= pixel;
        values.len() == expected.len() && values.iter().zip(&expected).all(is_near)
    };
    assert!(
        attributes(svg, "points").any(|points| is_drawn(&points)),
        "{expected:?}: {svg}"
    );
}

#[test]
fn small_transfers_have_no_rate_to_plot() {
    assert!(plotted("small", "\n  workload: {bandwidth: {sizes: [1, 1Ki]}}\n").is_empty());
}
