//! What holds for every document, measurement and status, however it came about.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};

use perfrun_api::{
    cluster::{JsonBytesLeft, PART_BYTES, read_trials, trial_line, trials_to_parts},
    planning::{CELLS_MAX, NODES_MAX, TRIALS_MAX, cells, draft},
    spec::{PerfRunSpec, PerfRunStatus},
};
use perfrun_conductor::{client::status_of, fuzzing::record_of};
use perfrun_contract::{
    distribution::Distribution,
    histogram::{Histogram, recorder},
    measure::merged,
    metric::Metric,
    node::{Info, Measured, Outcome, Resources, Sample, Transfer, TrialState, TrialStatus},
    plan::Cell,
    record::TrialRecord,
    role::Role,
};
use perfrun_test_kit::records;
use proptest::{
    collection::{btree_map, vec},
    num::f64::{ANY, NORMAL, POSITIVE, ZERO},
    option::of,
    prelude::*,
    sample::{Index, select, subsequence},
};
use serde_json::{Value, json};

/// Cases of each property, which take a second together.
fn cases() -> ProptestConfig {
    ProptestConfig {
        cases: 64,
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

/// Some of a list, in its order.
fn some(of: &'static [&'static str]) -> impl Strategy<Value = Vec<&'static str>> {
    subsequence(of.to_vec(), 1..=of.len())
}

fn sizes(least: u32) -> impl Strategy<Value = Vec<String>> {
    vec(least..1_000, 1..40).prop_map(|sizes| sizes.iter().map(ToString::to_string).collect())
}

fn workload() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(json!({"ping": {}})),
        vec(1..100_u32, 1..20).prop_map(|counts| json!({"substreams": {"counts": counts}})),
        (
            sizes(0),
            vec(1..100_u32, 1..20),
            some(&["upload", "download", "both"])
        )
            .prop_map(|(sizes, streams, directions)| {
                json!({"bandwidth": {"sizes": sizes, "streams": streams, "directions": directions}})
            }),
        vec(1..256_u32, 1..16)
            .prop_map(|in_flight| json!({"handshakes": {"count": 20, "inFlight": in_flight}})),
        vec((1..100_u32, 1..300_u32), 1..16).prop_map(|loads| {
            let load = |(connections, streams): (u32, u32)| {
                json!({"connections": connections, "streamsPerConnection": streams})
            };
            let loads: Vec<Value> = loads.into_iter().map(load).collect();
            json!({"echo": {"loads": loads}})
        }),
        (some(&["serial", "serialAck", "stream", "broadcast"]), sizes(8))
            .prop_map(|(modes, sizes)| json!({"messages": {"modes": modes, "sizes": sizes, "count": 10}})),
        (some(&["direct", "relayed"]), sizes(1))
            .prop_map(|(paths, sizes)| json!({"relay": {"paths": paths, "sizes": sizes}})),
        vec(1..10_000_u32, 1..16).prop_map(|sinks| json!({"relayStress": {"sinks": sinks}})),
    ]
}

fn spec() -> impl Strategy<Value = PerfRunSpec> {
    let matrix = (
        some(&["libp2p", "litep2p", "raw", "commonware", "go-libp2p"]),
        some(&["libp2p", "litep2p", "raw"]),
        some(&["tcp", "tcp-tls", "ws", "quic-v1", "webrtc-direct", "memory"]),
        some(&["none", "lan", "wan"]),
        any::<bool>(),
    );
    let repeated = (1..=30_u32, 0..=5_u32, of(any::<u32>()));
    let topology = (1..=100_u32, 1..=100_u32, 1..=16_u32);
    (workload(), matrix, repeated, topology).prop_map(
        |(workload, (clients, servers, transports, networks, raw), (iterations, warmup, seed), nodes)| {
            let (servers_of_each, clients_of_each, peers) = nodes;
            let spec = json!({
                "workload": workload,
                "matrix": {
                    "clients": clients, "servers": servers, "transports": transports, "networks": networks,
                    "rawReference": raw,
                },
                "iterations": iterations,
                "warmup": warmup,
                "seed": seed,
                "topology": {
                    "servers": servers_of_each, "clients": clients_of_each, "peersPerClient": peers,
                },
            });
            serde_json::from_value(spec).unwrap()
        },
    )
}

/// Any number that a program can write down, and those that it cannot.
fn number() -> impl Strategy<Value = f64> {
    prop_oneof![3 => POSITIVE | NORMAL | ZERO, 1 => ANY]
}

/// A time that somebody may have measured, and others.
fn time() -> impl Strategy<Value = f64> {
    prop_oneof![9 => 0.0..1e6, 1 => number()]
}

fn count() -> impl Strategy<Value = u64> {
    prop_oneof![9 => 0..1_u64 << 53, 1 => any::<u64>()]
}

fn transfer() -> impl Strategy<Value = Transfer> {
    (count(), time(), of(count()), of(time())).prop_map(
        |(bytes, seconds, bytes_after_first, first_to_last_seconds)| Transfer {
            bytes,
            seconds,
            bytes_after_first,
            first_to_last_seconds,
        },
    )
}

fn histogram() -> impl Strategy<Value = Histogram> {
    vec((any::<u64>(), 1..1000_u64), 0..20).prop_map(|values| {
        let mut recorder = recorder();
        for (value, times) in values {
            recorder.record_n(value, times).unwrap();
        }
        Histogram::from(&recorder)
    })
}

fn measured() -> impl Strategy<Value = Measured> {
    let sample =
        (time(), time(), count()).prop_map(|(at_seconds, interval_seconds, bytes_received)| Sample {
            at_seconds,
            interval_seconds,
            bytes_received,
            ..Sample::default()
        });
    let distribution = select(vec![
        Distribution::RoundTrip,
        Distribution::OneWay,
        Distribution::HandshakeEstablished,
        Distribution::Transfer,
    ]);
    (
        (
            of(any::<u64>()),
            count(),
            count(),
            time(),
            of(transfer()),
            of(transfer()),
        ),
        (time(), time(), count(), of(count())),
        btree_map(distribution, histogram(), 0..3),
        vec(sample, 0..4),
    )
        .prop_map(
            |((started, sent, received, seconds, upload, download), cpu, histograms, samples)| {
                let (cpu_user_seconds, cpu_system_seconds, rss_peak_bytes, cpu_cycles) = cpu;
                Measured {
                    started_nanoseconds: started,
                    bytes_sent: sent,
                    bytes_received: received,
                    seconds,
                    upload,
                    download,
                    histograms,
                    samples,
                    resources: Resources {
                        cpu_user_seconds,
                        cpu_system_seconds,
                        rss_peak_bytes,
                        cpu_cycles,
                        ..Resources::default()
                    },
                    ..Measured::default()
                }
            },
        )
}

fn cell(workload: Value) -> Cell {
    let spec = json!({"workload": workload, "matrix": {"clients": ["libp2p"], "servers": ["libp2p"]}});
    let cells = cells(&serde_json::from_value(spec).unwrap()).unwrap();
    cells.into_iter().next().unwrap()
}

fn records() -> impl Strategy<Value = Vec<TrialRecord>> {
    let record = |(number, values): (u32, Vec<(Metric, f64)>)| TrialRecord {
        metrics: values.into_iter().collect(),
        ..records::completed(&format!("c0.i{number}"))
    };
    let metric = select(vec![
        Metric::UploadGoodput,
        Metric::RoundTripP50,
        Metric::ConnectSeconds,
    ]);
    vec(
        (any::<u32>(), vec((metric, POSITIVE | NORMAL | ZERO), 0..3)).prop_map(record),
        1..20,
    )
}

fn status() -> impl Strategy<Value = PerfRunStatus> {
    let word = "[A-Za-z][a-z0-9]{0,8}";
    let condition = (word, select(vec!["True", "False", "Unknown"]), "\\PC{0,40}", 0..4_000_000_000_i64)
        .prop_map(|(kind, status, message, at)| {
            let at = jiff::Timestamp::from_second(at).unwrap();
            json!({"type": kind, "status": status, "reason": kind, "message": message, "lastTransitionTime": at})
        });
    let row =
        (word, vec(NORMAL | ZERO, 4), of(NORMAL), any::<u32>()).prop_map(|(cell, numbers, share, count)| {
            json!({
                "cell": cell, "metric": "uploadGoodput", "unit": "bitsPerSecond", "count": count,
                "median": numbers[0], "mean": numbers[1], "min": numbers[2], "max": numbers[3],
                "shareOfRaw": share, "flags": {"Retried": 1},
            })
        });
    let phase = of(select(vec![
        "Pending",
        "Provisioning",
        "Running",
        "Succeeded",
        "Failed",
        "Cancelled",
    ]));
    (
        of(any::<i64>()),
        phase,
        vec(any::<u32>(), 5),
        vec(row, 0..4),
        vec(word, 0..4),
        vec(condition, 0..4),
    )
        .prop_map(|(generation, phase, trials, summary, results, conditions)| {
            let status = json!({
                "observedGeneration": generation, "phase": phase, "summary": summary, "results": results,
                "conditions": conditions,
                "trials": {
                    "total": trials[0], "completed": trials[1], "failed": trials[2], "skipped": trials[3],
                    "notNeeded": trials[4], "progress": "1/2",
                },
            });
            serde_json::from_value(status).unwrap()
        })
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn a_plan_is_bounded_and_always_the_same_and_no_id_appears_twice(spec in spec()) {
        let planned = draft(&spec);
        prop_assert_eq!(&planned, &draft(&spec));
        let Ok(plan) = planned else { return Ok(()) };
        prop_assert!(plan.cells.len() as u64 <= CELLS_MAX);
        prop_assert!(plan.nodes.len() as u64 <= NODES_MAX);
        prop_assert!(plan.trials.len() as u64 <= TRIALS_MAX);
        let cells: BTreeSet<&str> = plan.cells.iter().map(|cell| cell.id.as_str()).collect();
        let nodes: BTreeSet<&str> = plan.nodes.iter().map(|node| node.name.as_str()).collect();
        let trials: BTreeSet<&str> = plan.trials.iter().map(|trial| trial.id.as_str()).collect();
        prop_assert_eq!(
            (cells.len(), nodes.len(), trials.len()),
            (plan.cells.len(), plan.nodes.len(), plan.trials.len())
        );
        for cell in &plan.cells {
            prop_assert!(cell.nodes().all(|name| nodes.contains(name.as_str())), "{}", cell.id);
        }
        let iterations = plan.trials.len() / plan.cells.len().max(1);
        prop_assert_eq!(iterations * plan.cells.len(), plan.trials.len());
    }

    #[test]
    fn a_record_reads_back_and_has_finite_numbers_only(
        measured in vec(measured(), 2),
        workload in select(vec![
            json!({"ping": {}}),
            json!({"bandwidth": {"sizes": ["1Ki", "1Gi"]}}),
            json!({"handshakes": {}}),
            json!({"messages": {}}),
        ]),
    ) {
        let cell = cell(workload);
        let mut outcomes = vec![];
        let nodes = [(&cell.clients[0], Role::Client), (&cell.servers[0], Role::Server)];
        for ((name, role), measured) in nodes.into_iter().zip(measured) {
            let status = TrialStatus {
                state: TrialState::Finished,
                addresses: vec![],
                bytes_sent: 0,
                bytes_received: 0,
                outcome: Some(Outcome { failure: None, measured, served: None }),
            };
            // JSON has null for what is not finite, and is refused, as are numbers beyond the bounds.
            let Ok(status) = status_of(&serde_json::to_vec(&status).unwrap()) else { return Ok(()) };
            outcomes.push((name.clone(), role, status.outcome.unwrap()));
        }
        let info: Info = records::info("here");
        let record = record_of(&records::trial("c0.i0"), &cell, outcomes, &info);
        let text = serde_json::to_string(&record).unwrap();
        prop_assert!(!text.contains("null"), "{}", text);
        let again: TrialRecord = serde_json::from_str(&text).unwrap();
        prop_assert_eq!(again, record);
    }

    #[test]
    fn histograms_merge_in_any_order(
        (texts, shuffled) in vec(histogram(), 1..6).prop_flat_map(|texts| {
            (Just(texts.clone()), Just(texts).prop_shuffle())
        })
    ) {
        let merge = |texts: Vec<Histogram>| {
            let nodes: Vec<Measured> = texts
                .into_iter()
                .map(|text| Measured {
                    histograms: BTreeMap::from([(Distribution::RoundTrip, text)]),
                    ..Measured::default()
                })
                .collect();
            merged(&nodes, Distribution::RoundTrip)
        };
        let values: u64 = texts.iter().map(|text| text.decode().unwrap().len()).sum();
        let all = merge(texts);
        prop_assert_eq!(all.as_ref().map_or(0, |all| all.len()), values);
        prop_assert_eq!(all, merge(shuffled));
    }

    #[test]
    fn a_status_is_the_same_after_it_was_kept(status in status()) {
        let text = serde_json::to_string(&status).unwrap();
        prop_assert_eq!(serde_json::from_str::<PerfRunStatus>(&text).unwrap(), status);
    }

    #[test]
    fn a_journal_that_is_cut_has_no_other_records(records in records(), cut in any::<Index>()) {
        let lines: String = records.iter().map(trial_line).collect();
        let parts = trials_to_parts(&lines, PART_BYTES).into_iter();
        let mut bytes: Vec<u8> = parts.flat_map(|(_, bytes)| bytes).collect();
        let read = |bytes: &[u8]| {
            let mut read = vec![];
            let all = read_trials(bytes, &mut JsonBytesLeft::default(), |record| read.push(record));
            (read, all)
        };
        let (all, end) = read(&bytes);
        prop_assert!(end.is_ok());
        prop_assert_eq!(&all, &records);
        bytes.truncate(cut.index(bytes.len()));
        let (some, _) = read(&bytes);
        prop_assert!(records.starts_with(&some), "{:?}", some);
    }
}
