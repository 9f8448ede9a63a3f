//! The documents that `perfrun validate` and `perfrun run` accept, and the messages with which they refuse
//! others.

use perfrun_api::{
    document::{Error, parse, parse_any},
    spec::{PerfRun, Placement},
};
use perfrun_contract::{
    matrix::{Negotiation, Transport},
    plan::Order,
    quantity::ByteSize,
    workload::BandwidthProtocol,
    workload::{Direction, Timing},
};
use serde::Deserialize;
use serde_json::Value;

use crate::fixtures::{run, spec, text};

/// An entry of `refused.yaml`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    name: String,
    document: Option<String>,
    spec: Option<String>,
    refused: String,
}

#[test]
fn a_seed_is_any_number_of_32_bits() {
    assert_eq!(
        spec("workload: {ping: {}}\nseed: 4294967295").seed,
        Some(u32::MAX)
    );
}

#[test]
fn a_spec_above_128_kib_is_refused_whatever_it_has() {
    for spec in [
        format!("workload: {{ping: {{}}}}\nstacks: [{}]", "{},".repeat(20_000)),
        format!("workload: {{ping: {{}}}}\nnote: {}", "x".repeat(128 << 10)),
    ] {
        let refused = parse(&text(&spec)).unwrap_err().to_string();
        assert!(
            refused.ends_with(
                "\n  - spec: is larger than 128 KiB as JSON, where each value counts 8 bytes or more"
            ),
            "{refused}"
        );
    }
}

#[test]
fn every_fault_is_refused_with_a_message_that_names_it() {
    let cases: Vec<Case> = serde_saphyr::from_str(include_str!("refused.yaml")).unwrap();
    assert!(cases.len() > 100);
    let mut wrong = String::new();
    for case in cases {
        let document = case.document.unwrap_or_else(|| text(&case.spec.unwrap()));
        let said = match parse(&document) {
            Ok(_) => "nothing".to_owned(),
            Err(error) => error.to_string(),
        };
        // Only the first line of an expansion error, whose position depends on the YAML library.
        let (said, expected) = match case.name.as_str() {
            "an anchor that explodes" => (said.lines().next().unwrap(), case.refused.trim_end()),
            _ => (said.trim_end(), case.refused.trim_end()),
        };
        if said != expected {
            wrong += &format!("\n## {}\nexpected: {expected}\nsaid: {said}\n", case.name);
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn where_both_kinds_are_read_a_misspelt_kind_is_answered_with_the_nearest() {
    for (version, kind, actual) in [
        (
            "perfrun.io/v1alpha1",
            "PerfSchedules",
            "a PerfSchedules; did you mean PerfSchedule?",
        ),
        (
            "perfrun.io/v1alpha1",
            "PerfRum",
            "a PerfRum; did you mean PerfRun?",
        ),
        ("perfrun.io/v1alpha1", "Pod", "a Pod"),
        (
            "perfrun.io/v2",
            "PerfSchedule",
            "a PerfSchedule of perfrun.io/v2: write apiVersion: perfrun.io/v1alpha1 and kind: PerfSchedule",
        ),
        (
            "apps/v1",
            "Deployment",
            "a Deployment of apps/v1: write apiVersion: perfrun.io/v1alpha1 and kind: PerfRun or PerfSchedule",
        ),
    ] {
        let document = format!("apiVersion: {version}\nkind: {kind}\nmetadata: {{name: bad}}\n");
        assert_eq!(
            parse_any(&document).unwrap_err().to_string(),
            format!(
                "document 1 is neither a PerfRun nor a PerfSchedule of perfrun.io/v1alpha1: it is {actual}"
            )
        );
    }
}

#[test]
fn every_problem_is_named_with_its_path() {
    let broken = text("workload: {bandwidth: {sizes: [0], streams: [0]}}\niterations: 0");
    let Err(Error::Invalid { name, problems }) = parse(&broken) else {
        panic!("{broken}")
    };
    let paths: Vec<&str> = problems.iter().map(|problem| problem.path.as_str()).collect();
    assert_eq!(name, "perfrun/bad");
    assert_eq!(
        paths,
        [
            "spec.iterations",
            "spec.workload.bandwidth.sizes[0]",
            "spec.workload.bandwidth.streams[0]"
        ]
    );
}

#[test]
fn an_omitted_field_has_its_documented_default() {
    let spec = spec("workload: {bandwidth: {sizes: [1Ki]}}");
    let bandwidth = spec.workload.bandwidth.unwrap();
    assert_eq!(bandwidth.protocol, BandwidthProtocol::Perf);
    assert_eq!(bandwidth.directions, [Direction::Upload, Direction::Download]);
    assert_eq!(bandwidth.streams, [1]);
    assert_eq!(bandwidth.chunk_bytes, ByteSize(65536));
    assert_eq!(bandwidth.timing, Timing::Strict);
    assert_eq!(bandwidth.negotiation, Negotiation::V1);
    assert_eq!(spec.matrix.transports, [Transport::Tcp]);
    assert!(spec.matrix.raw_reference);
    assert_eq!(
        (spec.iterations, spec.warmup, spec.order),
        (10, 1, Order::Interleaved)
    );
    assert_eq!(spec.topology.placement, Placement::SpreadNodes);
    assert_eq!(std::time::Duration::from(spec.timeouts.provision).as_secs(), 300);
    assert_eq!(std::time::Duration::from(spec.timeouts.trial).as_secs(), 120);
    assert_eq!(std::time::Duration::from(spec.timeouts.run).as_secs(), 3600);
    assert!(!spec.suspend && !spec.cancel && !spec.cleanup.keep_pods_on_failure);
}

#[test]
fn an_omitted_field_of_a_list_entry_stays_omitted_when_written() {
    let written = "
workload: {ping: {}}
networks: [{name: far, delay: 1ms}]
stacks: [{name: last, stack: libp2p}, {name: next, stack: libp2p}]
matrix: {clients: [last], servers: [last]}
compare: [{baseline: last, candidate: next}]
";
    let fields: Value = serde_saphyr::from_str(written).unwrap();
    let again = serde_json::to_value(spec(written)).unwrap();
    for list in ["networks", "stacks", "compare"] {
        assert_eq!(again[list], fields[list]);
    }
}

#[test]
fn null_is_the_same_as_left_out() {
    assert_eq!(
        run(
            "workload: {bandwidth: {sizes: [1Ki], duration: null, chunkBytes: null}, ping: null}\niterations: null\nmatrix: null"
        ),
        run("workload: {bandwidth: {sizes: [1Ki]}}"),
    );
}

#[test]
fn sizes_are_numbers_or_quantities() {
    let spec = spec("workload: {bandwidth: {sizes: [1500, '1500', 1Ki, 1k, 1Pi]}}");
    let sizes: Vec<u64> = spec
        .workload
        .bandwidth
        .unwrap()
        .sizes
        .iter()
        .map(|size| size.0)
        .collect();
    assert_eq!(sizes, [1500, 1500, 1024, 1000, 1 << 50]);
}

#[test]
fn durations_are_written_as_in_go() {
    for (text, milliseconds) in [
        ("20s", 20_000.0),
        ("1m30s", 90_000.0),
        ("1.5s", 1500.0),
        ("20000us", 20.0),
        ("20000µs", 20.0),
        ("1h", 3_600_000.0),
    ] {
        let spec = spec(&format!("workload: {{bandwidth: {{duration: {text}}}}}"));
        let duration: std::time::Duration = spec.workload.bandwidth.unwrap().duration.unwrap().into();
        assert_eq!(duration.as_secs_f64() * 1000.0, milliseconds, "{text}");
    }
}

#[test]
fn a_stream_has_several_documents_and_may_have_empty_ones() {
    let named = |name: &str| text("workload: {ping: {}}").replace("name: bad", &format!("name: {name}"));
    let stream = format!("# a comment\n---\n{}---\n---\n{}", named("one"), named("two"));
    let names: Vec<Option<String>> = parse(&stream)
        .unwrap()
        .into_iter()
        .map(|run| run.metadata.name)
        .collect();
    assert_eq!(names, [Some("one".to_owned()), Some("two".to_owned())]);
}

#[test]
fn aliases_that_multiply_a_document_are_refused() {
    let (items, aliases) = (["x"; 5000].join(", "), ["*a"; 20].join(", "));
    let refused = parse(&format!("a: &a [{items}]\nb: [{aliases}]\n")).unwrap_err();
    assert!(matches!(refused, Error::Syntax(_)), "{refused}");
}

#[test]
fn json_is_yaml() {
    let run = run("workload: {ping: {}}");
    let json = serde_json::to_string_pretty(&run).unwrap();
    assert_eq!(parse(&json).unwrap(), [run]);
}

#[test]
fn an_accepted_document_is_accepted_after_it_was_written() {
    let spec = "
workload: {bandwidth: {duration: 20500us}}
stacks: [{name: next, stack: libp2p, image: a/b:c, env: {A: b}}]
matrix: {clients: [next], include: [{client: raw, server: raw, transport: quic-v1}], exclude: [{transport: tcp-tls}]}
template: {server: {resources: {limits: {cpu: 1, memory: 1Gi}}, tolerations: [{operator: Exists}]}}
cleanup: {ttlSecondsAfterSuccess: 5}
timeouts: {trial: 1500us}
";
    let run = run(spec);
    let yaml = serde_saphyr::to_string(&run).unwrap();
    let again: PerfRun = parse(&yaml).unwrap().remove(0);
    assert_eq!(again, run);
}
