//! Conductors that panic, what the ends of runs report, and fixtures.

use k8s_openapi::api::core::v1::ObjectReference;
use perfrun_api::spec::{PerfRun, PerfRunSpec};
use perfrun_conductor::{NodeProvider, ReplaceReason};
use perfrun_contract::record::TrialRecord;
use perfrun_test_kit::records::{completed, failed};
use tokio::time::Instant;

use super::*;
use crate::test_server::{TestServer, wake};

/// A conductor for the run, which panics or waits to be cancelled.
async fn state_after(conductors: &Conductors, fails: bool) -> ConductorState {
    let (wake, mut wakes) = wake();
    conductors.spawn(&identity(), Progress::default(), wake, |_, cancel| async move {
        assert!(!fails, "out of order");
        cancel.cancelled().await;
        panic!("cancelled")
    });
    if fails {
        wakes.recv().await.expect("a panic wakes the run");
    }
    conductors.state("uid-1").0
}

fn identity() -> RunIdentity {
    let mut run = PerfRun::new(
        "run",
        serde_json::from_str(r#"{"workload": {"ping": {}}}"#).unwrap(),
    );
    run.metadata.namespace = Some("bench".to_owned());
    run.metadata.uid = Some("uid-1".to_owned());
    RunIdentity::of(&run).unwrap()
}

#[tokio::test]
async fn a_conductor_that_panics_wakes_its_run_and_is_counted() {
    let conductors = Conductors::default();
    for times in 1..=3 {
        let message = "out of order".to_owned();
        assert_eq!(
            state_after(&conductors, true).await,
            ConductorState::Panicked { times, message }
        );
    }
    let resumed = state_after(&conductors, false).await;
    assert_eq!(resumed, ConductorState::Running(Progress::default()));
}

#[tokio::test]
async fn a_forgotten_conductor_does_not_wake_its_run() {
    let conductors = Conductors::default();
    let (wake, mut wakes) = wake();
    conductors.spawn(&identity(), Progress::default(), wake, |_, cancel| async move {
        cancel.cancelled().await;
        panic!("cancelled")
    });
    conductors.forget("uid-1");
    assert_eq!(wakes.recv().await, None);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_gets_no_other_pod_is_given_up_immediately() {
    let job = job(&TestServer::new());
    let shared = Arc::new(Shared::default());
    let why = "its pods do not start";
    shared
        .lock()
        .given_up
        .insert("client-0".to_owned(), why.to_owned());
    let nodes = PodNodes::new(&job, Epoch::new(7), shared);
    let begun = Instant::now();
    let replaced = nodes.replace("client-0", ReplaceReason::Lost).await;
    assert_eq!(replaced.err().as_deref(), Some(why));
    assert_eq!(begun.elapsed().as_secs(), 0);
}

/// The record of an attempt without any measurement. `reason` is why it failed.
pub(super) fn record(trial: &str, attempt: u32, reason: Option<Reason>) -> TrialRecord {
    let mut record = reason.map_or_else(|| completed("c0.i0"), |reason| failed("c0.i0", reason));
    record.trial.id = trial.to_owned();
    record.attempt = attempt;
    record
}

/// A record that is kept immediately, because a node of its trial was lost.
pub(super) fn urgent(trial: &str) -> TrialRecord {
    record(trial, 0, Some(Reason::NodeLost))
}

#[tokio::test(start_paused = true)]
async fn the_status_names_the_secrets_that_pull_the_image_of_readers() {
    let mut job = job(&TestServer::new());
    assert_eq!(results_location(&job), None, "results are in ConfigMaps");
    job.spec.results = serde_json::from_str(r#"{"store": {"volume": {"claim": "disk"}}}"#).unwrap();
    assert_eq!(results_location(&job).unwrap().pull_secrets, ["registry"]);
}

/// A job against a test server, of a run that has just started its trials and has ten minutes.
pub(super) fn job(server: &TestServer) -> Job {
    let spec = r#"{"workload": {"ping": {}}, "matrix": {"clients": ["libp2p"], "servers": ["libp2p"]},
        "timeouts": {"provision": "1m", "run": "10m"}}"#;
    let spec: PerfRunSpec = serde_json::from_str(spec).unwrap();
    let services = server.services();
    Job {
        run: identity(),
        plan: Arc::new(perfrun_api::planning::plan(&spec).unwrap()),
        spec,
        since: (services.clock)(),
        services: Arc::new(services),
        progress: Progress::default(),
        conclude: false,
        reference: ObjectReference {
            namespace: Some("bench".to_owned()),
            ..ObjectReference::default()
        },
        wake: Arc::new(|| {}),
    }
}

#[test]
fn a_run_in_which_no_node_reached_another_ends_with_advice() {
    let message = |records: &[TrialRecord]| {
        let plan = Plan::default();
        let trials = Tally::of(&plan, records);
        with_advice(trials.conclusion(RunState::Complete, None, None), &trials).message
    };
    let refused = || failed("c0.i0", Reason::DialFailed);
    assert!(message(&[refused()]).ends_with("reach each other on all TCP and UDP ports"));
    for other in [completed("c0.i1"), failed("c0.i1", Reason::Timeout)] {
        assert!(!message(&[refused(), other]).contains("egress"));
    }
}
