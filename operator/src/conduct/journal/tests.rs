//! The journal against a scripted API server.

use http::Method;
use perfrun_api::planning;
use perfrun_conductor::RunEnd;
use perfrun_contract::{
    node::Reason,
    record::Metric,
    run::RunState,
    tally::{EndReason, Verdict},
};
use perfrun_test_kit::records::completed;
use serde_json::json;

use super::*;
use crate::{
    conduct::{
        keep_results,
        tests::{job, record},
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

/// A record that is kept immediately, because its trial failed.
fn urgent(trial: &str) -> TrialRecord {
    record(trial, 0, Some(Reason::Timeout))
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
        Kept::InMemory
    );
    assert_eq!(journal.record(&urgent("b")).await.unwrap(), Kept::Safely);
    journal
        .record(&record("lost with its conductor", 0, None))
        .await
        .unwrap();

    let mut journal = open(&job).await;
    assert_eq!(trials(&journal), ["a", "b"]);
    journal.record(&urgent("c")).await.unwrap();
    let outcome = keep_results(&job, journal, RunEnd::without_nodes(RunState::Complete)).await;
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
async fn an_operator_that_takes_over_knows_what_is_not_needed() {
    let server = TestServer::new();
    let mut job = job(&server);
    let spec = json!({
        "workload": {"ping": {}},
        "stacks": [{"name": "main", "stack": "litep2p"}, {"name": "pr", "stack": "litep2p"}],
        "matrix": {"clients": ["main"], "servers": ["main"], "rawBaseline": false},
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
    assert_eq!(journal.account().progress().counts.spared, 0, "nobody has looked");
    journal.flush(Patience::None).await.unwrap();

    let journal = open(&job).await;
    assert_eq!(journal.account().progress().counts.spared, 14);
    let outcome = keep_results(&job, journal, RunEnd::without_nodes(RunState::Complete)).await;
    assert_eq!(outcome.verdict.reason, EndReason::Succeeded);
    assert_eq!(
        outcome.verdict.message,
        "14 trials were measured; 14 of 28 trials were not needed: decided after 7 of 14 rounds"
    );
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
async fn a_write_whose_answer_is_lost_loses_no_record_and_doubles_none() {
    let server = TestServer::new();
    let job = job(&server);
    let mut journal = open(&job).await;
    server.script_times(1, Method::POST, CONFIG_MAPS, Answer::DoSilently);
    assert_eq!(journal.record(&urgent("a")).await.unwrap(), Kept::InMemory);
    assert_eq!(journal.record(&urgent("b")).await.unwrap(), Kept::Safely);
    assert_eq!(names(&server).len(), 2);
    assert_eq!(trials(&open(&job).await), ["a", "b"]);
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
        assert_eq!(kept, Kept::InMemory, "{answer:?}");
    }
    server.script_times(20, Method::POST, CONFIG_MAPS, Answer::Refuse(503, "etcd is away"));
    let outcome = keep_results(&job, journal, RunEnd::without_nodes(RunState::Complete)).await;
    assert_eq!(outcome.verdict.reason, EndReason::TrialTimeout);
    assert_eq!(open(&job).await.records().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn results_that_cannot_be_kept_end_the_run_in_time() {
    let server = TestServer::new();
    let job = job(&server);
    let mut journal = open(&job).await;
    server.script(Method::POST, CONFIG_MAPS, Answer::Refuse(500, "no space"));
    journal.record(&urgent("a")).await.unwrap();
    let start = Instant::now();
    let outcome = keep_results(&job, journal, RunEnd::without_nodes(RunState::Complete)).await;
    let Verdict { reason, message, .. } = outcome.verdict;
    assert_eq!(reason, EndReason::RecordNotKept);
    assert!(
        message.contains("the API server answered 500: no space"),
        "{message}"
    );
    let took = start.elapsed();
    assert!(
        took >= KEEP_WITHIN && took < KEEP_WITHIN + RETRY_LAST * 2,
        "{took:?}"
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
    let outcome = keep_results(&job, journal, RunEnd::without_nodes(RunState::Complete)).await;
    let numbers = ["trials-0", "trials-2", "trials-3", "results-0"];
    assert_eq!(
        outcome.results,
        numbers.map(|number| format!("run-4a49a-{number}"))
    );
}

/// What such a record does to a journal is tested above: its part is left out and reported.
#[test]
fn a_record_with_a_value_of_a_newer_version_cannot_be_read() {
    let record = serde_json::to_value(urgent("a")).unwrap();
    serde_json::from_value::<TrialRecord>(record.clone()).unwrap();
    let failure = json!({"reason": "Frozen", "message": ""});
    for (field, value, unknown) in [
        ("flags", json!(["Overheated"]), "Overheated"),
        ("metrics", json!({"jitterP50": 1.0}), "jitterP50"),
        ("failure", failure, "Frozen"),
    ] {
        let mut newer = record.clone();
        newer[field] = value;
        let error = serde_json::from_value::<TrialRecord>(newer).unwrap_err();
        assert!(error.to_string().contains(unknown), "{error}");
    }
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
    assert_eq!(start.elapsed().as_secs(), READ_WITHIN.as_secs());
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
    for trial in 1..PENDING_MAX {
        let record = record(&trial.to_string(), 0, None);
        assert_eq!(journal.record(&record).await.unwrap(), Kept::InMemory);
    }
    assert_eq!(start.elapsed(), Duration::ZERO, "an outage does not delay them");
    let error = journal.record(&record("last", 0, None)).await.unwrap_err();
    assert!(error.to_string().contains("failed calling webhook"), "{error}");
    assert!(start.elapsed() >= KEEP_WITHIN);
}
