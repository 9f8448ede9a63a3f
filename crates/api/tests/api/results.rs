//! Results as JSON.

use std::collections::BTreeMap;

use jiff::Timestamp;
use perfrun_api::{
    cluster::{
        JsonBytesLeft, PART_BYTES, RECORD_BYTES, TRIALS_KEY, Unreadable, read_trials, results_from_parts,
        results_to_parts, trial_line, trials_to_parts,
    },
    planning,
    results::{Results, SCHEMA_VERSION, schema},
};
use perfrun_contract::{
    compare::{self, Comparison, Finding, Judged, JudgedExpectation, NoFinding, Ratio},
    distribution::Distribution,
    histogram::{Histogram, recorder},
    metric::Metric,
    node::{CONTRACT, EchoSample, Info, Measured, Plateau, Reason, Resources, Sample, Transfer, UdpBuffers},
    plan::Plan,
    quantity::ByteSize,
    record::{Flag, NodeRecord, TrialFailure, TrialRecord},
    role::Role,
    run::{Environment, Isolation, NodeProgram, Phase, RunState},
    summary::SummaryRow,
    tally::{Conclusion, EndReason},
};
use perfrun_test_kit::records::failed;
use serde_json::json;

use crate::fixtures::spec;

/// Results with every optional part.
fn results() -> Results {
    let spec = spec(
        "workload: {bandwidth: {sizes: [1Ki, 1500], directions: [upload, both]}}\n\
         stacks: [{name: next, stack: litep2p, image: example/node:next, env: {RUST_LOG: info}}]\n\
         matrix: {clients: [libp2p, next], transports: [tcp-tls, quic-v1], exclude: [{server: litep2p, transport: quic-v1}], \
         include: [{client: raw, server: libp2p, transport: tcp}]}\n\
         timeouts: {trial: 1500us}\n\
         template: {client: {resources: {limits: {cpu: 2}}, tolerations: [{operator: Exists}]}}\n\
         cleanup: {ttlSecondsAfterSuccess: 60}\n\
         iterations: 1",
    );
    let plan = planning::plan(&spec).unwrap();
    let (trials, summary) = (records(&plan), vec![row(&plan.cells[0].id)]);
    Results {
        schema_version: SCHEMA_VERSION,
        name: "everything".into(),
        started: "2026-02-03T04:05:06.789Z".parse().unwrap(),
        ended: Timestamp::UNIX_EPOCH,
        paused_seconds: Some(3.5),
        state: RunState::Interrupted,
        reason: Some("stopped by the user".into()),
        conclusion: Some(Conclusion {
            phase: Phase::Cancelled,
            reason: EndReason::Cancelled,
            message: "stopped by the user; 1 of 24 trials completed".into(),
        }),
        spec,
        plan,
        environment: Environment {
            perfrun: "0.1.0".into(),
            isolation: Isolation::Namespaces,
            nodes: BTreeMap::from([("client-0".into(), node())]),
            programs: vec![NodeProgram {
                variant: Some("next".into()),
                path: "/opt/next/perfrun-node".into(),
            }],
        },
        trials,
        summary,
        judged: Some(judged()),
    }
}

fn measured() -> Measured {
    let mut open = recorder();
    open.record_n(1_234_567, 9).unwrap();
    Measured {
        started_nanoseconds: Some(u64::MAX),
        bytes_sent: 1,
        bytes_received: 2,
        connections: 3,
        streams: 4,
        failures: 5,
        errors: BTreeMap::from([(Reason::Timeout, 3), (Reason::OpenFailed, 2)]),
        seconds: 0.1 + 0.2, // no short decimal
        upload: Some(Transfer {
            bytes: 6,
            seconds: 0.7,
            bytes_after_first: Some(8),
            first_to_last_seconds: Some(0.9),
        }),
        download: Some(Transfer::default()),
        refused: BTreeMap::from([("circuit: RESOURCE_LIMIT_EXCEEDED (201)".into(), 2)]),
        most_circuits: 3,
        histograms: BTreeMap::from([(Distribution::Open, Histogram::from(&open))]),
        plateau: Some(Plateau {
            ramp_seconds: 0.3,
            ..Plateau::default()
        }),
        udp_buffers: Some(UdpBuffers {
            wanted_bytes: 12,
            receive_bytes: 13,
            send_bytes: 14,
        }),
        congestion_control: Some("reno".into()),
        resources: Resources {
            allocated_peak_bytes: Some(9),
            cpu_cycles: Some(10),
            throttled_seconds: Some(0.5),
            tcp_retransmits: Some(7),
            interface_received_bytes: Some(8),
            ..Resources::default()
        },
        samples: vec![Sample {
            at_seconds: 1.0,
            operations: 2,
            allocated_bytes: Some(11),
            echo: Some(EchoSample {
                round_trip_p99_seconds: Some(0.2),
                ..EchoSample::default()
            }),
            errors: BTreeMap::from([(Reason::Timeout, 1)]),
            ..Sample::default()
        }],
    }
}

fn node() -> Info {
    Info {
        contract: CONTRACT,
        instance: None,
        version: "0.1.0".into(),
        stacks: BTreeMap::from([("libp2p".into(), "0.57.1".into())]),
        capabilities: BTreeMap::new(),
        profile: "release".into(),
        program_sha256: None,
        commit: None,
        label: None,
        compiler: None,
        target_features: None,
        allocator: None,
        listen_ip: "fd00::1".parse().unwrap(),
        clock: None,
        boot_id: None,
        host: "here".into(),
        kernel: "6.1.0".into(),
        cpu: "some CPU".into(),
        cpus: 2,
        governor: Some("performance".into()),
        hypervisor: None,
        smt: None,
        mitigations: None,
        mtu_bytes: None,
        congestion_control: Some("cubic".into()),
        cpu_limit: Some(1.5),
        memory_limit_bytes: Some(1 << 30),
        socket_buffer_limits_bytes: Some([212_992, 212_992]),
        tcp_window_limits_bytes: None,
    }
}

/// A trial that completed, and one that failed.
fn records(plan: &Plan) -> Vec<TrialRecord> {
    let complete = TrialRecord {
        trial: plan.trials[0].clone(),
        attempt: 1,
        failure: None,
        metrics: BTreeMap::from([(Metric::UploadGoodput, 1.5e9), (Metric::CpuSecondsPerGiB, 0.25)]),
        flags: vec![Flag::LateStart, Flag::DebugBuild],
        at_seconds: 1.0,
        start_skew_seconds: Some(0.0001),
        clock_uncertainty_seconds: Some(0.00005),
        start_lateness_seconds: Some(-0.0001),
        overhead_seconds: 0.01,
        session: 0,
        disturbance: None,
        standstill: None,
        links: None,
        merged_samples: Some(2),
        nodes: BTreeMap::from([(
            "client-0".into(),
            NodeRecord {
                role: Role::Client,
                measured: measured(),
                link: None,
            },
        )]),
    };
    let mut failed = failed(&plan.trials[1].id, Reason::NodeLost);
    failed.failure.as_mut().unwrap().node = Some("server-0".into());
    failed.at_seconds = 2.0;
    vec![complete, failed]
}

fn row(cell: &str) -> SummaryRow {
    SummaryRow {
        cell: cell.to_owned(),
        metric: Metric::UploadGoodput,
        unit: Metric::UploadGoodput.unit(),
        count: 6,
        median: 1.5e9,
        mean: 1.6e9,
        ci95_low: Some(1.4e9),
        ci95_high: Some(1.7e9),
        min: 1.3e9,
        max: 2e9,
        share_of_raw: Some(0.5),
        share_of_raw_low: Some(0.4),
        share_of_raw_high: Some(0.6),
        flags: BTreeMap::from([(Flag::Throttled, 2)]),
    }
}

fn comparison() -> Comparison {
    Comparison {
        baseline: "a".into(),
        candidate: "b".into(),
        metric: Metric::UploadGoodput,
        pairs: 20,
        excluded_pairs: 1,
        failed: [0, 1],
        tolerance: 0.05,
        medians: Some([1.5e9, 1.4e9]),
        ratio: Some(Ratio {
            value: 0.93,
            low: Some(0.9),
            high: None,
        }),
        p_adjusted: Some(0.01),
        finding: Finding::NotComparable,
        reason: Some(NoFinding::ControlDiffers),
        detectable_difference: Some(0.06),
        pairs_needed: Some(30),
    }
}

fn judged() -> Judged {
    let comparison = comparison();
    Judged {
        not_needed: None,
        controls: vec![Comparison {
            candidate: "c".into(),
            finding: Finding::Worse,
            reason: None,
            ..comparison.clone()
        }],
        comparisons: vec![comparison],
        overall: vec![],
        expectations: vec![JudgedExpectation {
            index: 0,
            cell: "b".into(),
            verdict: compare::Verdict::Fail,
            evidence: "−7 %".into(),
        }],
        verdict: Some(compare::Verdict::Fail),
    }
}

#[test]
fn results_survive_json() {
    let results = results();
    let text = serde_json::to_string(&results).unwrap();
    assert_eq!(serde_json::from_str::<Results>(&text).unwrap(), results);
}

#[test]
fn results_that_only_name_flags_are_read() {
    let mut document = serde_json::to_value(results()).unwrap();
    assert_eq!(document["summary"][0]["flags"], json!({"Throttled": 2}));
    document["summary"][0]["flags"] = json!(["Throttled", "Retried"]);
    let read: Results = serde_json::from_value(document).unwrap();
    let flags = BTreeMap::from([(Flag::Throttled, 1), (Flag::Retried, 1)]);
    assert_eq!(read.summary[0].flags, flags);
}

#[test]
fn real_results_fit_the_committed_schema() {
    let validator = jsonschema::draft202012::new(&schema()).unwrap();
    let document = serde_json::to_value(results()).unwrap();
    let errors: Vec<String> = validator
        .iter_errors(&document)
        .map(|error| format!("{}: {error}", error.instance_path()))
        .collect();
    assert_eq!(errors, [""; 0]);
}

#[test]
fn results_of_another_version_or_without_trials_do_not_fit() {
    let validator = jsonschema::draft202012::new(&schema()).unwrap();
    for (path, value) in [
        ("/schemaVersion", json!(SCHEMA_VERSION + 1)),
        ("/trials", json!(null)),
        ("/plan/cells/0/parameters/workload", json!("dance")),
        ("/spec/workload/bandwidth/sizes/0", json!(1.5)),
    ] {
        let mut document = serde_json::to_value(results()).unwrap();
        *document.pointer_mut(path).unwrap() = value;
        assert!(!validator.is_valid(&document), "{path}");
    }
}

#[test]
fn the_spec_inside_results_can_be_run_again() {
    let results = results();
    let document = json!({
        "apiVersion": "perfrun.io/v1alpha1",
        "kind": "PerfRun",
        "metadata": {"name": results.name},
        "spec": results.spec,
    });
    let again = perfrun_api::document::parse(&document.to_string()).unwrap();
    assert_eq!(again[0].spec, results.spec);
    assert_eq!(planning::plan(&again[0].spec), Ok(results.plan));
}

#[test]
fn histograms_survive_their_text() {
    let mut recorded = recorder();
    for value in [0, 1, 999, 1_000_000, 123_456_789, 3_600_000_000_000] {
        recorded.record(value).unwrap();
    }
    let text = serde_json::to_string(&Histogram::from(&recorded)).unwrap();
    let read: Histogram = serde_json::from_str(&text).unwrap();
    assert_eq!(read.decode().unwrap(), recorded);
    assert_eq!(Histogram::from(&recorder()).decode().unwrap().len(), 0);
}

#[test]
fn merged_histograms_are_those_of_all_values() {
    let recorded = |values: &[u64]| {
        let mut all = recorder();
        for value in values {
            all.record(*value).unwrap();
        }
        all
    };
    let (small, large) = ([1_000, 2_000, 3_000], [5_000_000, 60_000_000_000]);
    let mut merged = recorder();
    for part in [&small[..], &large[..]] {
        merged
            .add(Histogram::from(&recorded(part)).decode().unwrap())
            .unwrap();
    }
    assert_eq!(merged, recorded(&[&small[..], &large[..]].concat()));
}

#[test]
fn text_that_is_not_a_histogram_is_refused() {
    for text in ["", "%", "AAAA", "HISTFAAAAAA="] {
        let histogram: Histogram = serde_json::from_value(json!(text)).unwrap();
        assert!(
            histogram
                .decode()
                .unwrap_err()
                .to_string()
                .starts_with("unable to read a histogram: ")
        );
    }
}

#[test]
fn sizes_survive_json_as_text_and_are_read_as_numbers_too() {
    for (bytes, text) in [
        (0, "0"),
        (1023, "1023"),
        (1 << 20, "1Mi"),
        (1_000_000, "1M"),
        (u64::MAX, "18446744073709551615"),
    ] {
        let json = serde_json::to_value(ByteSize(bytes)).unwrap();
        assert_eq!(json, json!(text));
        assert_eq!(serde_json::from_value::<ByteSize>(json).unwrap(), ByteSize(bytes));
        assert_eq!(
            serde_json::from_value::<ByteSize>(json!(bytes)).unwrap(),
            ByteSize(bytes)
        );
    }
    assert!(serde_json::from_value::<ByteSize>(json!(-1)).is_err());
    assert!(serde_json::from_value::<ByteSize>(json!(1.5)).is_err());
}

#[test]
fn durations_survive_json() {
    for (text, written) in [
        ("20s", "20s"),
        ("1m30s", "90s"),
        ("1500us", "1.5ms"),
        ("20us", "20µs"),
        ("1h", "3600s"),
    ] {
        let duration: kube::core::Duration = serde_json::from_value(json!(text)).unwrap();
        let json = serde_json::to_value(duration).unwrap();
        assert_eq!(json, json!(written));
        assert_eq!(
            serde_json::from_value::<kube::core::Duration>(json).unwrap(),
            duration
        );
    }
}

/// Reads lines that somebody has compressed.
fn read(lines: &str, bytes_left: u64) -> Result<Vec<TrialRecord>, Unreadable> {
    let parts = trials_to_parts(lines, PART_BYTES).into_iter();
    let compressed: Vec<u8> = parts.flat_map(|(_, bytes)| bytes).collect();
    let mut records = vec![];
    read_trials(&compressed, &mut JsonBytesLeft(bytes_left), |record| {
        records.push(record);
    })?;
    Ok(records)
}

#[test]
fn results_are_read_from_parts_and_a_record_that_is_there_twice_counts_once() {
    let results = results();
    let lines: Vec<_> = results.trials.iter().map(trial_line).collect();
    let mut parts = trials_to_parts(&lines.concat(), PART_BYTES);
    parts.extend(trials_to_parts(&lines[1], PART_BYTES));
    assert_eq!(results_from_parts(&parts).unwrap(), None, "the run has not ended");
    parts.extend(results_to_parts(results.clone(), PART_BYTES));
    assert_eq!(results_from_parts(&parts).unwrap(), Some(results));
}

#[test]
fn results_of_a_run_that_ended_before_its_first_trial_are_read() {
    let results = Results {
        trials: vec![],
        ..results()
    };
    let parts = results_to_parts(results.clone(), PART_BYTES);
    assert_eq!(results_from_parts(&parts).unwrap(), Some(results));
}

#[test]
fn results_of_a_cluster_that_would_fill_memory_are_refused() {
    let results = results();
    let lines = trial_line(&results.trials[0].brief()).repeat(1000);
    let records = trials_to_parts(&lines, PART_BYTES).remove(0);
    let mut parts = results_to_parts(results, PART_BYTES);
    parts.extend(std::iter::repeat_n(records, 250));
    let refused = results_from_parts(&parts).unwrap_err();
    assert!(matches!(refused, Unreadable::TooMuchMemory), "{refused}");
}

#[test]
fn no_part_is_larger_than_a_config_map() {
    let mut record = results().trials.remove(0);
    let text: String = (0..1 << 19)
        .map(|number: u32| format!("{:x}", number.wrapping_mul(0x9e37_79b1)))
        .collect();
    record.failure = Some(TrialFailure {
        node: None,
        reason: Reason::Internal,
        message: text,
        other_limit: false,
    });
    let parts = trials_to_parts(&trial_line(&record), PART_BYTES);
    assert!(
        parts.len() > 1
            && parts
                .iter()
                .all(|(key, part)| *key == TRIALS_KEY && part.len() <= PART_BYTES)
    );
    assert!(trials_to_parts("", PART_BYTES).is_empty());
}

#[test]
fn a_part_that_decompresses_to_very_much_is_refused_before_it_fills_memory() {
    let record = trial_line(&results().trials[0]);
    assert_eq!(read(&record.repeat(10), 1 << 20).unwrap().len(), 10);
    let long = " ".repeat(RECORD_BYTES + 1);
    for (lines, bytes_left) in [(record.repeat(10), record.len() as u64 * 9), (long, u64::MAX)] {
        let refused = read(&lines, bytes_left).unwrap_err();
        assert!(matches!(refused, Unreadable::TooLarge { .. }), "{refused}");
    }
    let refused = read(&"\n".repeat(1 << 20), u64::MAX).unwrap_err();
    assert!(matches!(refused, Unreadable::Parse { .. }), "{refused}");
}
