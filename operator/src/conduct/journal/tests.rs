//! The journal against a scripted API server.

use std::io::Write;

use flate2::{Compression, write::GzEncoder};
use futures::FutureExt;
use http::Method;
use k8s_openapi::{ByteString, api::core::v1::ConfigMap};
use perfrun_api::{
    cluster::{
        CONTINUES_ANNOTATION, PART_BYTES, RESULTS_KEY, SCHEMA_ANNOTATION, TRIALS_KEY, results_from_parts,
        trial_line,
    },
    planning,
};
use perfrun_conductor::RunEnd;
use perfrun_contract::{
    metric::Metric,
    node::{Measured, Reason, Sample},
    plan::Trial,
    record::{LinkCheck, LinkRecord, NodeRecord, Standstill},
    role::Role,
    run::RunState,
    tally::{Conclusion, EndReason},
    text,
};
use perfrun_link::{ActiveBackend, Mode};
use perfrun_test_kit::records::completed;
use serde_json::json;

use super::*;
use crate::{
    conduct::{
        MeasuredNetworks, RunOutcome, keep_results,
        tests::{job, record, urgent},
    },
    test_server::{Answer, TestServer},
};

const CONFIG_MAPS: &str = "/configmaps";
const PATH: &str = "/api/v1/namespaces/bench/configmaps";

async fn open(job: &Job) -> Journal {
    let shared = Arc::default();
    Journal::open(job, shared, &CancellationToken::new())
        .await
        .unwrap()
}

async fn conclude(job: &Job, journal: Journal) -> RunOutcome {
    let end = RunEnd::without_nodes(RunState::Complete);
    keep_results(job, journal, end).await
}

/// The parts in ConfigMaps, in this order.
fn parts(server: &TestServer, names: &[String]) -> Vec<Part> {
    let parts = names.iter().map(|name| {
        let object = server.object(&format!("{PATH}/{name}")).unwrap();
        let object: ConfigMap = serde_json::from_value(object).unwrap();
        let (key, bytes) = object.binary_data.unwrap().pop_first().unwrap();
        let key = [TRIALS_KEY, RESULTS_KEY].into_iter().find(|known| **known == key);
        (key.unwrap(), bytes.0)
    });
    parts.collect()
}

/// Somebody replaces the data of the ConfigMap with the first records.
fn replace_records(server: &TestServer, lines: &str) {
    let mut encoder = GzEncoder::new(vec![], Compression::fast());
    encoder.write_all(lines.as_bytes()).unwrap();
    let bytes = ByteString(encoder.finish().unwrap());
    server.change(&format!("{PATH}/run-4a49a-trials-0"), |part| {
        part["binaryData"][TRIALS_KEY] = json!(bytes);
    });
}

/// A record that gzip hardly makes smaller than two ConfigMaps.
fn large(trial: &str) -> TrialRecord {
    let mut record = urgent(trial);
    let mut state = 1_u64;
    let words = std::iter::repeat_with(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        format!("{:08x}", state >> 32)
    });
    record.failure.as_mut().unwrap().message = words.take(PART_BYTES / 2).collect();
    record
}

fn trials(journal: &Journal) -> Vec<&str> {
    let records = journal.records().iter();
    records.map(|record| record.trial.id.as_str()).collect()
}

fn names(server: &TestServer) -> Vec<String> {
    let objects = server.objects(CONFIG_MAPS);
    let names = objects
        .iter()
        .map(|object| object["metadata"]["name"].as_str().unwrap());
    names.map(str::to_owned).collect()
}

#[tokio::test(start_paused = true)]
async fn another_conductor_finds_the_records_and_adds_to_them() {
    let server = TestServer::new();
    let job = job(&server);
    let mut journal = open(&job).await;
    assert_eq!(
        journal.record(&record("a", 0, None)).await.unwrap(),
        Durability::InMemory
    );
    assert_eq!(journal.record(&urgent("b")).await.unwrap(), Durability::CrashSafe);
    journal
        .record(&record("lost with its conductor", 0, None))
        .await
        .unwrap();

    let mut journal = open(&job).await;
    assert_eq!(trials(&journal), ["a", "b"]);
    journal.record(&urgent("c")).await.unwrap();
    let outcome = conclude(&job, journal).await;
    assert_eq!(
        (outcome.progress.counts.completed, outcome.progress.counts.failed),
        (1, 2)
    );
    assert_eq!(
        outcome.results,
        ["run-4a49a-trials-0", "run-4a49a-trials-1", "run-4a49a-results-0"]
    );
    let changes = server.take_changes();
    assert!(
        changes.iter().all(|call| call.method == Method::POST),
        "nothing is changed: {changes:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn failed_trials_are_kept_together_with_others() {
    let server = TestServer::new();
    let mut journal = open(&job(&server)).await;
    for trial in ["a", "b", "c"] {
        let kept = journal.record(&record(trial, 0, Some(Reason::Timeout))).await;
        assert_eq!(kept.unwrap(), Durability::InMemory);
    }
    assert_eq!(names(&server), [""; 0]);
    assert_eq!(journal.record(&urgent("d")).await.unwrap(), Durability::CrashSafe);
    assert_eq!(names(&server), ["run-4a49a-trials-0"]);
}

#[tokio::test(start_paused = true)]
async fn an_operator_that_takes_over_knows_the_trials_not_needed() {
    let server = TestServer::new();
    let mut job = job(&server);
    let spec = json!({
        "workload": {"ping": {}},
        "stacks": [{"name": "main", "stack": "litep2p"}, {"name": "pr", "stack": "litep2p"}],
        "matrix": {"clients": ["main"], "servers": ["main"], "rawReference": false},
        "compare": [{"baseline": "main", "candidate": "pr"}],
        "expect": [{"metric": "failures", "max": "1"}],
        "iterations": 7, "maxIterations": 14, "warmup": 0,
    });
    job.spec = serde_json::from_value(spec).unwrap();
    job.plan = Arc::new(planning::plan(&job.spec).unwrap());
    let mut journal = open(&job).await;
    for trial in job.plan.trials.iter().filter(|trial| trial.iteration < 7) {
        let mut completed = completed(&trial.id);
        completed.metrics.insert(Metric::Failures, 0.0);
        journal.record(&completed).await.unwrap();
    }
    assert_eq!(
        journal.totals().progress().counts.not_needed,
        0,
        "before an interim check"
    );
    journal.flush(None).await.unwrap();

    let journal = open(&job).await;
    assert_eq!(journal.totals().progress().counts.not_needed, 14);
    let outcome = conclude(&job, journal).await;
    assert_eq!(outcome.conclusion.reason, EndReason::Succeeded);
    assert_eq!(
        outcome.conclusion.message,
        "14 trials were measured; 14 of 28 trials were not needed: those of comparisons that were settled after 7 of 14 iterations"
    );
}

#[tokio::test(start_paused = true)]
async fn an_operator_that_takes_over_knows_the_measured_networks() {
    let server = TestServer::new();
    let mut job = job(&server);
    job.spec.matrix.networks = vec!["none".to_owned(), "lan".to_owned()];
    job.plan = Arc::new(planning::plan(&job.spec).unwrap());
    let place = |trial: &&Trial| job.plan.cells[trial.cell].network == "lan";
    let mut record = urgent("a");
    record.trial = job.plan.trials.iter().find(place).unwrap().clone();
    record.links = Some(LinkCheck {
        network: "lan".to_owned(),
        set_seconds: 0.1,
        probe_seconds: 0.2,
        legs: vec![],
    });
    let node = NodeRecord {
        role: Role::Client,
        measured: Measured::default(),
        link: Some(LinkRecord {
            backend: ActiveBackend::Kernel,
            mode: Mode::PerPacket,
            traffic: vec![],
            worker: None,
        }),
    };
    record.nodes.insert("client-0".to_owned(), node);
    let mut journal = open(&job).await;
    journal.record(&record).await.unwrap();
    let networks = journal.totals().progress().measured_networks;
    assert_ne!(networks, MeasuredNetworks::default());
    assert_eq!(open(&job).await.totals().progress().measured_networks, networks);
}

#[tokio::test(start_paused = true)]
async fn an_existing_config_map_is_left_alone() {
    let server = TestServer::new();
    let other = json!({"metadata": {"name": "run-4a49a-trials-0"}, "data": {"of": "another"}});
    server.put(&format!("{PATH}/run-4a49a-trials-0"), other);
    let job = job(&server);
    let mut journal = open(&job).await;
    journal.record(&urgent("a")).await.unwrap();
    assert_eq!(names(&server), ["run-4a49a-trials-0", "run-4a49a-trials-1"]);
    let kept = server.object(&format!("{PATH}/run-4a49a-trials-0")).unwrap();
    assert_eq!(kept["data"]["of"], "another");
    assert_eq!(trials(&open(&job).await), ["a"]);
}

#[tokio::test(start_paused = true)]
async fn a_write_whose_answer_is_lost_neither_loses_nor_repeats_a_record() {
    let server = TestServer::new();
    let job = job(&server);
    let mut journal = open(&job).await;
    server.script_times(1, Method::POST, CONFIG_MAPS, Answer::DoSilently);
    assert_eq!(journal.record(&urgent("a")).await.unwrap(), Durability::InMemory);
    assert_eq!(journal.record(&urgent("b")).await.unwrap(), Durability::CrashSafe);
    assert_eq!(names(&server).len(), 3, "the first record is kept twice");
    assert_eq!(trials(&open(&job).await), ["a", "b"]);
}

#[tokio::test(start_paused = true)]
async fn a_record_whose_flush_was_cut_off_is_in_the_results() {
    let server = TestServer::new();
    let job = job(&server);
    let mut journal = open(&job).await;
    // A conductor that another has taken over from drops what it waits for.
    assert!(journal.record(&urgent("a")).now_or_never().is_none());
    let outcome = conclude(&job, journal).await;
    let results = results_from_parts(&parts(&server, &outcome.results))
        .unwrap()
        .unwrap();
    assert_eq!(results.trials, [urgent("a")]);
    assert_eq!(outcome.progress.counts.failed, 1);
}

#[tokio::test(start_paused = true)]
async fn an_outage_does_not_stop_the_measurements() {
    let server = TestServer::new();
    let mut job = job(&server);
    Arc::make_mut(&mut job.plan).trials.truncate(3);
    let mut journal = open(&job).await;
    for answer in [
        Answer::Refuse(500, "webhook"),
        Answer::Refuse(429, "slow down"),
        Answer::Silence,
    ] {
        server.script_times(1, Method::POST, CONFIG_MAPS, answer);
        let kept = journal.record(&urgent(&format!("{answer:?}"))).await.unwrap();
        assert_eq!(kept, Durability::InMemory, "{answer:?}");
    }
    server.script_times(20, Method::POST, CONFIG_MAPS, Answer::Refuse(503, "etcd is away"));
    let outcome = conclude(&job, journal).await;
    assert_eq!(outcome.conclusion.reason, EndReason::NodeLost);
    assert_eq!(open(&job).await.records().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn results_that_cannot_be_kept_end_the_run_in_time() {
    let server = TestServer::new();
    let job = job(&server);
    let mut journal = open(&job).await;
    journal.record(&urgent("kept")).await.unwrap();
    server.script(Method::POST, CONFIG_MAPS, Answer::Refuse(500, "no space"));
    journal.record(&urgent("a")).await.unwrap();
    let start = Instant::now();
    let outcome = conclude(&job, journal).await;
    let Conclusion { reason, message, .. } = &outcome.conclusion;
    assert_eq!(*reason, EndReason::RecordNotKept);
    assert!(
        message.contains("the API server answered 500: no space"),
        "{message}"
    );
    let took = start.elapsed();
    assert!(
        took >= KEEP_TIMEOUT && took < KEEP_TIMEOUT + RETRY_PAUSE_MAX * 2,
        "{took:?}"
    );
    assert_eq!(
        outcome.results,
        ["run-4a49a-trials-0"],
        "the records before are not lost"
    );
}

#[tokio::test(start_paused = true)]
async fn a_refused_record_ends_the_run_immediately() {
    let server = TestServer::new();
    let mut journal = open(&job(&server)).await;
    server.script(Method::POST, CONFIG_MAPS, Answer::Refuse(403, "exceeded quota"));
    let error = journal.record(&urgent("a")).await.unwrap_err();
    assert!(error.to_string().contains("exceeded quota"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_part_that_cannot_be_read_is_left_out_and_reported() {
    let server = TestServer::new();
    let job = job(&server);
    let mut journal = open(&job).await;
    for trial in ["a", "b", "c"] {
        journal.record(&urgent(trial)).await.unwrap();
    }
    server.change(&format!("{PATH}/run-4a49a-trials-1"), |part| {
        part["binaryData"][TRIALS_KEY] = "bm90IGd6aXA=".into();
    });
    let mut journal = open(&job).await;
    assert_eq!(trials(&journal), ["a", "c"]);
    assert_eq!(server.event_reasons(), ["RecordsUnreadable"]);
    journal.record(&urgent("b")).await.unwrap();
    let outcome = conclude(&job, journal).await;
    let numbers = ["trials-0", "trials-2", "trials-3", "results-0"];
    assert_eq!(
        outcome.results,
        numbers.map(|number| format!("run-4a49a-{number}"))
    );
}

#[tokio::test(start_paused = true)]
async fn a_record_that_is_larger_than_a_config_map_is_kept_and_read() {
    let server = TestServer::new();
    let job = job(&server);
    let mut journal = open(&job).await;
    let record = large("large");
    assert_eq!(journal.record(&record).await.unwrap(), Durability::CrashSafe);
    let names = names(&server);
    assert_eq!(
        names,
        ["trials-0", "trials-1", "trials-2"].map(|name| format!("run-4a49a-{name}"))
    );
    let continues = |name: &str| {
        let object = server.object(&format!("{PATH}/{name}")).unwrap();
        object["metadata"]["annotations"][CONTINUES_ANNOTATION].clone()
    };
    assert_eq!(
        [0, 1, 2].map(|number| continues(&names[number])),
        [json!(null), json!(names[0]), json!(names[1])]
    );

    let mut journal = open(&job).await;
    let failure = journal.records()[0].failure.as_ref().unwrap();
    assert_eq!(failure.message.chars().count(), text::MESSAGE_MAX);
    journal.record(&urgent("b")).await.unwrap();
    let outcome = conclude(&job, journal).await;
    let results = results_from_parts(&parts(&server, &outcome.results))
        .unwrap()
        .unwrap();
    assert_eq!(
        results.trials,
        [record, urgent("b")],
        "the results have all of it"
    );
}

#[tokio::test(start_paused = true)]
async fn a_record_whose_writing_was_interrupted_is_measured_again_and_others_are_read() {
    let server = TestServer::new();
    let job = job(&server);
    let mut journal = open(&job).await;
    journal.record(&urgent("a")).await.unwrap();
    journal.record(&large("b")).await.unwrap();
    journal.record(&urgent("c")).await.unwrap();
    server.remove(&format!("{PATH}/run-4a49a-trials-2"));
    assert_eq!(trials(&open(&job).await), ["a", "c"]);
    assert_eq!(server.event_reasons(), ["RecordsUnreadable"]);
}

#[tokio::test(start_paused = true)]
async fn a_record_of_which_a_part_was_not_written_is_completed_later() {
    let server = TestServer::new();
    let job = job(&server);
    let mut journal = open(&job).await;
    server.script_times(1, Method::POST, CONFIG_MAPS, Answer::DoSilently);
    assert_eq!(journal.record(&large("a")).await.unwrap(), Durability::InMemory);
    assert_eq!(journal.record(&urgent("b")).await.unwrap(), Durability::CrashSafe);
    let journal = open(&job).await;
    assert_eq!(trials(&journal), ["a", "b"]);
    let outcome = conclude(&job, journal).await;
    assert_eq!(
        outcome.results[0], "run-4a49a-trials-1",
        "the first is a part of nothing"
    );
    let results = results_from_parts(&parts(&server, &outcome.results))
        .unwrap()
        .unwrap();
    assert_eq!(results.trials, [large("a"), urgent("b")]);
}

#[tokio::test(start_paused = true)]
async fn records_with_impossible_values_are_left_out() {
    let standstill = Standstill {
        node: "x".repeat(8 << 10),
        seconds: 1.0,
    };
    let long = TrialRecord {
        standstill: Some(standstill),
        ..record("a", 0, None)
    };
    for (lines, why) in [
        (trial_line(&long), "a record has more text"),
        (" ".repeat(17 << 20), "a record of more than"),
        (
            "\n".to_owned(),
            "another version of perfrun wrote it, or it was edited",
        ),
        (
            (0..100)
                .map(|attempt| trial_line(&record("a", attempt, None)))
                .collect(),
            "more records than trials",
        ),
    ] {
        let server = TestServer::new();
        let job = job(&server);
        let mut journal = open(&job).await;
        journal.record(&urgent("a")).await.unwrap();
        journal.record(&urgent("b")).await.unwrap();
        replace_records(&server, &lines);
        assert_eq!(trials(&open(&job).await), ["b"], "{why}");
        let events = server.objects("/events");
        let note = events[0]["note"].as_str().unwrap();
        assert!(note.contains(why), "{note}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_config_map_with_a_number_that_no_operator_reaches_is_ignored() {
    let server = TestServer::new();
    let job = job(&server);
    open(&job).await.record(&urgent("a")).await.unwrap();
    let name = format!("run-4a49a-trials-{}", usize::MAX);
    let mut object = server.object(&format!("{PATH}/run-4a49a-trials-0")).unwrap();
    object["metadata"]["name"] = json!(name);
    server.put(&format!("{PATH}/{name}"), object);
    open(&job).await.record(&urgent("b")).await.unwrap();
    assert_eq!(trials(&open(&job).await), ["a", "b"]);
}

#[tokio::test(start_paused = true)]
async fn samples_beyond_the_budget_are_merged_and_the_outcome_reports_it() {
    let server = TestServer::new();
    let mut job = job(&server);
    Arc::make_mut(&mut job.services).result_bytes = 10_000;
    let mut record = record("a", 0, None);
    let node = NodeRecord {
        role: Role::Client,
        measured: Measured {
            samples: vec![Sample::default(); 1000],
            ..Measured::default()
        },
        link: None,
    };
    record.nodes.insert("client-0".to_owned(), node);
    record.metrics.insert(Metric::Failures, 0.0);
    let mut journal = open(&job).await;
    journal.record(&record).await.unwrap();
    journal.flush(None).await.unwrap();

    let journal = open(&job).await;
    assert_eq!(journal.records()[0].metrics, record.metrics);
    let outcome = conclude(&job, journal).await;
    let message = outcome.merged.unwrap();
    assert!(
        message.starts_with("neighbouring samples of 1 trials are merged") && message.contains("10000 bytes"),
        "{message}"
    );
    let results = results_from_parts(&parts(&server, &outcome.results))
        .unwrap()
        .unwrap();
    let samples = &results.trials[0].nodes["client-0"].measured.samples;
    assert!((1..20).contains(&samples.len()), "{}", samples.len());
    assert!(
        job.services
            .metrics
            .encode()
            .contains("perfrun_operator_results_kept_bytes_total")
    );
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_run_does_not_wait_long_for_its_results_to_be_kept() {
    let server = TestServer::new();
    let job = job(&server);
    let cancel = CancellationToken::new();
    let mut journal = Journal::open(&job, Arc::default(), &cancel).await.unwrap();
    server.script(Method::POST, CONFIG_MAPS, Answer::Refuse(500, "no space"));
    journal.record(&urgent("a")).await.unwrap();
    let cancelled = cancel.clone();
    tokio::spawn(async move {
        sleep(READ_TIMEOUT * 2).await;
        cancelled.cancel();
    });
    let start = Instant::now();
    let end = RunEnd::without_nodes(RunState::Complete);
    let outcome = keep_results(&job, journal, end).await;
    assert_eq!(outcome.conclusion.reason, EndReason::RecordNotKept);
    let took = start.elapsed();
    assert!(took >= READ_TIMEOUT * 2 && took < READ_TIMEOUT * 3, "{took:?}");
}

/// The line of a record of a newer version.
fn of_a_newer_version(trial: &str, change: impl FnOnce(&mut serde_json::Value)) -> String {
    let mut record = serde_json::to_value(record(trial, 0, None)).unwrap();
    record["metrics"] = json!({"jitterP50": 0.25});
    record["flags"] = json!(["Overheated"]);
    change(&mut record);
    format!("{record}\n")
}

#[tokio::test(start_paused = true)]
async fn a_journal_of_a_newer_version_is_continued_and_nothing_of_it_is_lost() {
    let server = TestServer::new();
    let job = job(&server);
    let mut journal = open(&job).await;
    journal.record(&urgent("a")).await.unwrap();
    let newer = of_a_newer_version("a", |record| record["temperature"] = json!(99));
    replace_records(&server, &newer);
    let before = server.object(&format!("{PATH}/run-4a49a-trials-0")).unwrap();

    let mut journal = open(&job).await;
    assert_eq!(trials(&journal), ["a"]);
    journal.record(&urgent("b")).await.unwrap();
    let outcome = conclude(&job, journal).await;
    assert!(server.event_reasons().is_empty());
    assert_eq!(
        server.object(&format!("{PATH}/run-4a49a-trials-0")).unwrap(),
        before
    );
    let results = results_from_parts(&parts(&server, &outcome.results))
        .unwrap()
        .unwrap();
    let record = serde_json::to_value(&results.trials[0]).unwrap();
    assert_eq!(
        (&record["metrics"]["jitterP50"], &record["flags"][0]),
        (&json!(0.25), &json!("Overheated"))
    );
    assert_eq!(results.trials.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn records_that_this_version_would_misread_are_measured_again() {
    let server = TestServer::new();
    let job = job(&server);
    open(&job).await.record(&urgent("a")).await.unwrap();
    server.change(&format!("{PATH}/run-4a49a-trials-0"), |part| {
        part["metadata"]["annotations"][SCHEMA_ANNOTATION] = json!("3");
    });
    assert!(trials(&open(&job).await).is_empty());
    let events = server.objects("/events");
    let note = events[0]["note"].as_str().unwrap();
    assert!(note.contains("schema version 3"), "{note}");
}

#[tokio::test(start_paused = true)]
async fn a_record_of_a_newer_version_that_cannot_be_read_is_measured_again() {
    let server = TestServer::new();
    let job = job(&server);
    let mut journal = open(&job).await;
    journal.record(&urgent("a")).await.unwrap();
    replace_records(
        &server,
        &of_a_newer_version("a", |record| {
            record["attempt"] = json!("first");
        }),
    );
    assert!(trials(&open(&job).await).is_empty());
    assert_eq!(server.event_reasons(), ["RecordsUnreadable"]);
}

#[tokio::test(start_paused = true)]
async fn a_journal_that_cannot_be_listed_is_waited_for_until_the_run_is_over() {
    for (code, expected) in [(500, 600..=601), (404, 0..=0)] {
        let server = TestServer::new();
        let job = job(&server);
        server.script(Method::GET, CONFIG_MAPS, Answer::Refuse(code, "no list"));
        let start = Instant::now();
        let opened = Journal::open(&job, Arc::default(), &CancellationToken::new()).await;
        let why = opened.err().unwrap();
        assert!(why.ends_with("no list"), "{why}");
        let took = start.elapsed().as_secs();
        assert!(expected.contains(&took), "{code}: {took} s");
    }
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_run_does_not_wait_long_for_its_journal() {
    let server = TestServer::new();
    let job = job(&server);
    server.script(Method::GET, CONFIG_MAPS, Answer::Silence);
    let cancel = CancellationToken::new();
    cancel.cancel();
    let start = Instant::now();
    assert!(Journal::open(&job, Arc::default(), &cancel).await.is_err());
    assert_eq!(start.elapsed().as_secs(), READ_TIMEOUT.as_secs());
}

#[tokio::test(start_paused = true)]
async fn parts_of_one_run_are_read_at_a_time() {
    let server = TestServer::new();
    let job = job(&server);
    open(&job).await.record(&urgent("a")).await.unwrap();
    let room = job.services.memory.for_reading().await;
    let opened = timeout(Duration::from_secs(1), open(&job)).await;
    assert!(opened.is_err(), "it did not wait for the other run");
    drop(room);
    assert_eq!(trials(&open(&job).await), ["a"]);
}

#[tokio::test(start_paused = true)]
async fn no_trial_begins_while_runs_together_hold_much_that_is_not_kept() {
    let server = TestServer::new();
    let job = job(&server);
    let mut journal = open(&job).await;
    let room = &job.services.memory;
    let others: Vec<_> = std::iter::from_fn(|| room.for_unwritten(1 << 10)).collect();
    let kept = journal.record(&urgent("kept")).await.unwrap();
    assert_eq!(
        kept,
        Durability::CrashSafe,
        "what is kept immediately needs no room"
    );
    server.script(Method::POST, CONFIG_MAPS, Answer::Refuse(500, "no space"));
    let start = Instant::now();
    let error = journal.record(&urgent("a")).await.unwrap_err();
    assert!(error.to_string().contains("no space"), "{error}");
    assert!(start.elapsed() >= KEEP_TIMEOUT);
    drop(others);
    assert_eq!(journal.record(&urgent("b")).await.unwrap(), Durability::InMemory);
}

#[tokio::test(start_paused = true)]
async fn no_trial_begins_when_nodes_are_about_to_be_full() {
    let server = TestServer::new();
    let mut journal = open(&job(&server)).await;
    server.script(
        Method::POST,
        CONFIG_MAPS,
        Answer::Refuse(500, "failed calling webhook"),
    );
    let start = Instant::now();
    for trial in 1..UNKEPT_RECORDS_MAX {
        let record = record(&trial.to_string(), 0, None);
        assert_eq!(journal.record(&record).await.unwrap(), Durability::InMemory);
    }
    assert_eq!(start.elapsed(), Duration::ZERO, "an outage does not delay them");
    let error = journal.record(&record("last", 0, None)).await.unwrap_err();
    assert!(error.to_string().contains("failed calling webhook"), "{error}");
    assert!(start.elapsed() >= KEEP_TIMEOUT);
}
