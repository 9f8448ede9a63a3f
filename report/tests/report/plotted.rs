//! Pictures: which there are, what they say and that nothing lies outside of them.
//!
//! `PERFRUN_PLOTS=DIR cargo test -p perfrun-report plotted` writes them, to be looked at.

use perfrun_report::plots;

use crate::fixtures::run;

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
    let plots = plots(&run(spec).results());
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
}

#[test]
fn small_transfers_have_no_rate_to_plot() {
    assert!(plotted("small", "\n  workload: {bandwidth: {sizes: [1, 1Ki]}}\n").is_empty());
}
