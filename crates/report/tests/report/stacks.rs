//! Comparisons of two stacks.

use perfrun_api::results::Results;
use perfrun_contract::{matrix::Stack, metric::Metric};
use perfrun_judge::judged;
use perfrun_report::markdown;
use perfrun_test_kit::results::run;

use crate::rendered::{COMPARED, shown};

#[test]
fn a_comparison_of_two_stacks_names_both() {
    let results = run(&COMPARED.replace("{name: pr, stack: litep2p}", "{name: pr, stack: libp2p}"))
        .changed("pr.pr.tcp.upload", Metric::UploadGoodput, 0.1)
        .results();
    let rendered = markdown(&results.reported_run());
    for words in [
        "Not as expected: upload over tcp (upload-64Mi), pr → pr against main → main, ",
        "\nBaseline main → main, candidate pr → pr; medians of the pairs that count, baseline → candidate; ",
        "| upload-64Mi, tcp | uploadGoodput | ",
    ] {
        assert!(rendered.contains(words), "{words:?} is not in: {rendered}");
    }
}

#[test]
fn a_candidate_with_the_name_of_its_side_is_not_named_twice() {
    const SPEC: &str = "
  workload: {bandwidth: {sizes: [64Mi]}}
  stacks: [{name: base, stack: STACK}, {name: candidate, stack: STACK}]
  matrix: {clients: [base], servers: [base], transports: [tcp], rawReference: false}
  compare: [{baseline: base, candidate: candidate}]
  iterations: 20
";
    for stack in ["libp2p", "raw"] {
        let drawn = markdown(&run(&SPEC.replace("STACK", stack)).results().reported_run());
        assert!(
            drawn.contains("\nMedians of the pairs that count, baseline → candidate; "),
            "{drawn}"
        );
    }
}

/// Results on a terminal of a hundred columns, which have one table there.
fn one_table(results: &Results) -> String {
    let rendered = shown(results, 100);
    assert!(
        rendered.lines().all(|line| line.chars().count() <= 100),
        "{rendered}"
    );
    assert_eq!(
        rendered.lines().filter(|line| line.starts_with('─')).count(),
        1,
        "{rendered}"
    );
    rendered
}

#[test]
fn a_comparison_of_two_stacks_is_one_table_of_a_hundred_columns() {
    let results = run("
  workload: {bandwidth: {sizes: [64Mi]}}
  stacks: [{name: rust-libp2p, stack: libp2p}, {name: rust-litep2p, stack: litep2p}]
  matrix: {clients: [rust-libp2p], servers: [rust-libp2p], transports: [tcp], rawReference: false}
  compare: [{baseline: rust-libp2p, candidate: rust-litep2p}]
  iterations: 20
")
    .results();
    let rendered = one_table(&results);
    let both = "Comparisons: baseline rust-libp2p → rust-libp2p, candidate rust-litep2p → rust-litep2p; ";
    assert!(rendered.contains(both), "{rendered}");
}

#[test]
fn all_pairs_of_three_stacks_are_one_table_of_a_hundred_columns() {
    let results = run("
  workload: {bandwidth: {sizes: [64Mi]}}
  matrix: {clients: [libp2p, litep2p, go-libp2p], servers: [libp2p, litep2p, go-libp2p], transports: [tcp, quic-v1]}
  iterations: 6
")
    .results();
    let rendered = one_table(&results);
    let rows: Vec<&str> = rendered.lines().filter(|line| line.contains(" MiB  ")).collect();
    assert_eq!(rows.len(), 2 * 2 * (3 * 3 + 1), "{rendered}");
    assert!(
        rows.iter().all(|row| row.ends_with(']')),
        "each has its interval: {rendered}"
    );
}

#[test]
fn a_comparison_with_the_stream_layer_of_commonware_is_marked() {
    let rendered = |stacks: &str| {
        let spec = COMPARED.replace("{name: main, stack: litep2p}, {name: pr, stack: litep2p}", stacks);
        let slower = run(&spec).changed("pr.pr.tcp.upload", Metric::UploadGoodput, 0.01);
        markdown(&slower.results().reported_run())
    };
    let rendered = [
        rendered("{name: main, stack: commonware}, {name: pr, stack: libp2p}"),
        rendered("{name: main, stack: libp2p}, {name: pr, stack: commonware}"),
    ];
    let words = "pr → pr against main → main (commonware: its stream layer), ";
    for rendered in rendered {
        assert!(
            rendered.contains(&format!(
                "Not as expected: upload over tcp (upload-64Mi), {words}"
            )),
            "{rendered}"
        );
    }
}

#[test]
fn memory_of_different_languages_is_compared_only_if_the_document_expects_it() {
    let results = |candidate: &str, rest: &str| {
        run(&format!(
            "
  workload:
    echo: {{loads: [{{connections: 2, streamsPerConnection: 50}}], duration: 20s}}
  stacks: [{{name: main, stack: litep2p}}, {{name: pr, stack: {candidate}}}]
  matrix: {{clients: [main], servers: [main], rawReference: false}}
  compare: [{{baseline: main, candidate: pr}}]
{rest}"
        ))
        .results()
    };
    let metrics = |results: &Results| -> Vec<Metric> {
        let judged = judged(&results.plan, &results.trials, &results.environment.nodes).unwrap();
        let comparisons = judged.comparisons.iter();
        comparisons.map(|comparison| comparison.metric).collect()
    };
    let both = [Metric::RoundTripP50, Metric::CpuSecondsPerOperation];
    assert_eq!(metrics(&results("go-libp2p", "")), both);
    let mut of_rust = results("libp2p", "");
    assert_eq!(
        metrics(&of_rust),
        [&both[..], &[Metric::ClientAllocatedPerStream]].concat()
    );
    for cell in &mut of_rust.plan.cells {
        if cell.client.0 == "pr" {
            cell.client_stack = Stack::External;
        }
    }
    assert_eq!(metrics(&of_rust), both);
    let expected = "  expect: [{metric: clientAllocatedPerStream, maxRegression: 10%}]\n";
    assert_eq!(
        metrics(&results("go-libp2p", expected)),
        [Metric::ClientAllocatedPerStream]
    );
}
