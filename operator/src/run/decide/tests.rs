//! A run's life, decision by decision.

mod links;
mod starts;
mod store;
mod verdict;

use std::{
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
};

use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::runtime::events::Event;
use perfrun_api::{document, planning::plan, spec::StoredResults};
use perfrun_contract::{
    newer::NewerName,
    tally::{Conclusion, Counts, EndReason},
};

use super::*;
use crate::{
    conduct::MeasuredNetworks,
    run::{plans::Outline, status},
};

const DOCUMENT: &str = "
apiVersion: perfrun.io/v1alpha1
kind: PerfRun
metadata: {name: tcp}
spec:
  iterations: 2
  warmup: 0
  workload: {ping: {}}
  matrix: {clients: [libp2p], servers: [litep2p], rawReference: false}
  timeouts: {provision: 1m, run: 10m}
";

/// A run, its status so far, and a clock.
struct Life {
    spec: PerfRunSpec,
    plan: Arc<Plan>,
    status: PerfRunStatus,
    pods: Vec<NodePod>,
    deleting: bool,
    conductor: ConductorState,
    turn: Result<(), String>,
    own: OwnTimes,
    /// Whether the API server takes statuses.
    is_written: bool,
    now: Timestamp,
    instant: Instant,
    /// The events of the last reconciliation.
    events: Vec<Event>,
}

impl Life {
    fn new() -> Self {
        Self::of(DOCUMENT)
    }

    /// A run with an impaired network beside `none`.
    fn impaired() -> Self {
        Self::of(&DOCUMENT.replace("rawReference", "networks: [none, wan], rawReference"))
    }

    /// A run that compares two variants, and expects something of round trips.
    fn comparing(expect: &str) -> Self {
        let compares = format!(
            "  stacks: [{{name: main, stack: litep2p}}, {{name: pr, stack: litep2p}}]\n  \
             compare: [{{baseline: main, candidate: pr}}]\n  expect: {expect}\n"
        );
        let variants = "clients: [main], servers: [main]";
        Self::of(&(DOCUMENT.replace("clients: [libp2p], servers: [litep2p]", variants) + &compares))
    }

    fn of(document: &str) -> Self {
        let run = document::parse(document).unwrap().remove(0);
        Self {
            plan: Arc::new(plan(&run.spec).unwrap()),
            spec: run.spec,
            status: PerfRunStatus::default(),
            pods: vec![],
            deleting: false,
            conductor: ConductorState::None,
            turn: Ok(()),
            own: OwnTimes::default(),
            is_written: true,
            now: Timestamp::UNIX_EPOCH,
            instant: Instant::now(),
            events: vec![],
        }
    }

    /// Reconciles. Returns the decision, and keeps the new status if the API server takes it.
    fn reconcile(&mut self) -> Decision {
        self.reconcile_with(None)
    }

    /// Reconciles while the API server refuses pods.
    fn reconcile_with(&mut self, refusal: Option<Refusal>) -> Decision {
        let outline = Outline::of(&self.plan, &self.spec);
        self.own.starts.observe(&self.pods, self.now, self.instant);
        let planned = match need(&self.spec, &self.status, &self.conductor, self.turn.clone()) {
            Need::Nothing => Planned::NotNeeded,
            Need::Outline(cause) => Planned::Held(outline, cause),
            Need::Whole => Planned::Whole(outline, self.plan.clone()),
        };
        let inputs = Inputs {
            spec: &self.spec,
            status: &self.status,
            deleting: self.deleting,
            planned,
            pods: self.pods.clone(),
            conductor: self.conductor.clone(),
            lost_on: BTreeMap::new(),
            own: self.own.clone(),
            kept_pods: Duration::from_secs(3600),
            now: self.now,
            instant: self.instant,
        };
        let mut decision = decide(&inputs);
        if refusal.is_some() {
            decision = after_failure(decision, refusal, &inputs);
        }
        let outline = inputs.planned.outline();
        let next = status::next(&inputs, Some(1), &decision.stage);
        self.events = status::events(&self.status, &next, outline, &decision.stage);
        self.own
            .note_stage(&decision.stage, self.is_written, self.now, self.instant);
        if self.is_written {
            self.status = next;
        }
        decision
    }

    fn later(&mut self, seconds: i64) -> &mut Self {
        self.now += SignedDuration::from_secs(seconds);
        self.instant += Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
        self
    }

    /// Creates the pods of a decision, in this state.
    fn create(&mut self, decision: &Decision, state: &PodState) {
        self.pods.extend(decision.create.iter().map(|new| NodePod {
            name: format!("{}-{}", new.node.name, new.incarnation),
            uid: format!("uid-of-{}-{}", new.node.name, new.incarnation),
            node: new.node.name.clone(),
            incarnation: new.incarnation,
            created: Some(self.now),
            deleting: false,
            state: state.clone(),
            foreign_containers: vec![],
        }));
    }

    fn running() -> Self {
        Self::new().started()
    }

    fn started(self) -> Self {
        let mut life = self;
        let first = life.reconcile();
        life.create(&first, &ready());
        assert_eq!(life.reconcile().command, ConductorCommand::Start);
        life.conductor = ConductorState::Running(Progress::default());
        life
    }

    /// Status, reason and message of the condition LinksVerified.
    fn links(&self) -> (&str, &str, &str) {
        self.values(Type::LinksVerified)
    }

    /// Status, reason and message of the condition Verdict.
    fn verdict(&self) -> (&str, &str, &str) {
        self.values(Type::Verdict)
    }

    /// Status, reason and message of a condition.
    fn values(&self, type_: Type) -> (&str, &str, &str) {
        let condition = self.condition(type_);
        (&condition.status, &condition.reason, &condition.message)
    }

    /// The reasons of the events of the last reconciliation.
    fn reasons(&self) -> Vec<&str> {
        self.events.iter().map(|event| event.reason.as_str()).collect()
    }

    fn condition(&self, type_: Type) -> &Condition {
        condition::find(&self.status.conditions, type_).unwrap()
    }

    /// The phase, and the reason of the condition Complete.
    fn end(&self) -> (Phase, &str) {
        (self.status.phase.unwrap(), &self.condition(Type::Complete).reason)
    }
}

fn ready() -> PodState {
    PodState::Ready(IpAddr::V4(Ipv4Addr::LOCALHOST))
}

fn gone() -> PodState {
    PodState::Gone(Cause {
        reason: Reason::NodeCrashed,
        message: "the node ended with exit code 1".to_owned(),
    })
}

fn going(completed: usize, failed: usize) -> Progress {
    Progress {
        counts: Counts {
            planned: 2,
            completed,
            failed,
            not_needed: 0,
        },
        measured_networks: MeasuredNetworks::default(),
    }
}

/// A conductor that has ended like this, with this many trials completed and failed.
fn outcome(reason: EndReason, completed: usize, failed: usize) -> ConductorState {
    let phase = match reason {
        EndReason::Succeeded => Phase::Succeeded,
        EndReason::Cancelled => Phase::Cancelled,
        _ => Phase::Failed,
    };
    ConductorState::Ended(Box::new(RunOutcome {
        conclusion: Conclusion {
            phase,
            reason,
            message: format!("it ended as {reason}"),
        },
        progress: going(completed, failed),
        summary: vec![],
        judged: None,
        merged: None,
        results: vec!["tcp-results-0".to_owned()],
        stored: None,
    }))
}

fn names(new: &[NewPod]) -> Vec<String> {
    new.iter()
        .map(|pod| format!("{}-{}", pod.node.name, pod.incarnation))
        .collect()
}

#[test]
fn a_run_goes_from_pods_to_trials_to_its_end() {
    let mut life = Life::new();
    let first = life.reconcile();
    assert_eq!(names(&first.create), ["server-0-0", "client-0-0"]);
    assert_eq!(life.status.phase, Some(Phase::Provisioning));
    life.create(&first, &PodState::Starting);
    assert_eq!(life.later(3).reconcile().create, []);

    life.pods[0].state = ready();
    assert_eq!(life.reconcile().command, ConductorCommand::None);
    assert_eq!(
        life.condition(Type::Provisioned).message,
        "1 of 2 nodes are ready"
    );
    life.pods[1].state = ready();
    assert_eq!(life.reconcile().command, ConductorCommand::Start);

    life.conductor = ConductorState::Running(going(1, 0));
    life.later(5).reconcile();
    assert_eq!(life.status.trials.progress, "1/2");
    life.conductor = outcome(EndReason::Succeeded, 2, 0);
    let last = life.later(5).reconcile();
    assert!(!last.delete_pods, "not before the status shows the end");
    assert_eq!(life.end(), (Phase::Succeeded, "Succeeded"));
    assert_eq!(life.status.results, ["tcp-results-0"]);
    assert_eq!(life.status.completion_time.as_ref().unwrap().0, life.now);
    assert!(life.reconcile().delete_pods);
}

#[test]
fn trials_that_are_not_needed_do_not_count_in_the_progress() {
    let mut life = Life::running();
    let mut progress = going(1, 0);
    progress.counts.not_needed = 1;
    life.conductor = ConductorState::Running(progress);
    life.reconcile();
    let trials = &life.status.trials;
    assert_eq!((trials.total, trials.not_needed), (2, 1));
    assert_eq!(trials.progress, "1/1");
}

#[test]
fn a_run_that_has_ended_needs_no_action() {
    let mut life = Life::running();
    life.conductor = outcome(EndReason::Succeeded, 2, 0);
    life.reconcile();
    life.pods.clear();
    life.conductor = ConductorState::None;
    let before = life.status.clone();
    let after = life.later(3600).reconcile();
    assert_eq!(after, Decision::new(Stage::Unchanged));
    assert_eq!(life.status, before);
}

#[test]
fn trials_that_failed_make_the_run_fail_with_their_reason() {
    let mut life = Life::running();
    life.conductor = outcome(EndReason::TrialTimeout, 1, 1);
    life.reconcile();
    assert_eq!(life.end(), (Phase::Failed, "TrialTimeout"));
    assert_eq!(life.condition(Type::Complete).message, "it ended as TrialTimeout");
}

#[test]
fn merged_samples_are_reported_in_the_status_of_a_run() {
    let mut life = Life::running();
    let ConductorState::Ended(mut ended) = outcome(EndReason::Succeeded, 2, 0) else {
        unreachable!("it has ended")
    };
    ended.merged = Some("samples of 2 trials are merged".to_owned());
    life.conductor = ConductorState::Ended(ended);
    life.reconcile();
    let merged = condition::find(&life.status.conditions, Type::SamplesMerged).unwrap();
    assert_eq!(
        (merged.status.as_str(), merged.reason.as_str()),
        ("True", "ResultsTooLarge")
    );
    assert_eq!(merged.message, "samples of 2 trials are merged");
    assert!(life.events.iter().any(|event| event.reason == "ResultsTooLarge"));
}

#[test]
fn a_lost_node_is_replaced_while_trials_are_in_progress() {
    let mut life = Life::running();
    life.pods[1].state = gone();
    let decision = life.reconcile();
    assert_eq!(names(&decision.create), ["client-0-1"]);
    assert_eq!(life.status.phase, Some(Phase::Running));
}

#[test]
fn a_node_that_ends_at_every_start_ends_the_run() {
    let mut life = Life::new();
    for _ in 0..CRASHES_MAX {
        let decision = life.later(8).reconcile();
        life.create(&decision, &ready());
        life.pods.last_mut().unwrap().state = gone();
    }
    life.reconcile();
    assert_eq!(life.end(), (Phase::Failed, "NodeCrashed"));
    let message = &life.condition(Type::Complete).message;
    assert!(message.ends_with("(tried 3 times)"), "{message}");
}

#[test]
fn pods_that_fit_nowhere_are_reported_immediately_and_end_the_run_in_time() {
    let mut life = Life::new();
    let decision = life.reconcile();
    let stuck = PodState::Stuck(Cause {
        reason: Reason::Unschedulable,
        message: "no Kubernetes node takes pod server-0-0".to_owned(),
    });
    life.create(&decision, &stuck);
    let decision = life.later(1).reconcile();
    assert_eq!(life.condition(Type::Provisioned).reason, "Unschedulable");
    assert_eq!(decision.wake, Some(Duration::from_secs(59)));
    life.later(59).reconcile();
    assert_eq!(life.end(), (Phase::Failed, "Unschedulable"));
    assert_eq!(
        life.condition(Type::Complete).message,
        "0 of 2 nodes were ready within timeouts.provision, 60s: no Kubernetes node takes pod server-0-0"
    );
}

#[test]
fn a_run_whose_status_nobody_can_write_ends_in_time_and_then_loses_its_pods() {
    let mut life = Life::new();
    life.is_written = false;
    let first = life.reconcile();
    life.create(&first, &PodState::Starting);
    assert!(matches!(
        life.later(59).reconcile().stage,
        Stage::Provisioning { .. }
    ));
    let end = life.later(1).reconcile();
    assert!(matches!(end.stage, Stage::Ending { .. }), "{end:?}");
    // It is as if the pods had become ready too late.
    life.pods.iter_mut().for_each(|pod| pod.state = gone());
    assert!(!life.later(299).reconcile().delete_pods);
    let last = life.later(1).reconcile();
    assert!(last.delete_pods && last.create.is_empty(), "{last:?}");
    let Stage::Ending { reason, .. } = last.stage else {
        panic!("{last:?}")
    };
    assert_eq!(reason, Reason::NodeCrashed, "the end that was decided last");
    life.is_written = true;
    life.pods.clear();
    life.later(3600).reconcile();
    assert_eq!(life.end(), (Phase::Failed, "NodeCrashed"));
}

#[test]
fn a_run_is_given_its_time_from_its_first_pod_if_no_status_shows_it() {
    let mut life = Life::new();
    let first = life.reconcile();
    life.create(&first, &PodState::Starting);
    // Another operator, which no status tells anything.
    (life.status, life.own) = Default::default();
    assert_eq!(life.later(50).reconcile().wake, Some(Duration::from_secs(10)));
}

#[test]
fn trials_whose_status_nobody_can_write_have_their_time() {
    let mut life = Life::new();
    let first = life.reconcile();
    life.create(&first, &ready());
    life.is_written = false;
    assert_eq!(life.reconcile().command, ConductorCommand::Start);
    // The conductor has panicked, and the status does not show that trials are in progress.
    life.conductor = ConductorState::Panicked {
        times: 1,
        message: String::new(),
    };
    assert_eq!(life.later(599).reconcile().command, ConductorCommand::Start);
    assert_eq!(life.later(1).reconcile().command, ConductorCommand::Conclude);
}

#[test]
fn a_run_waits_for_its_turn_and_for_its_user() {
    let mut life = Life::new();
    life.turn = Err("ns/other is active".to_owned());
    assert_eq!(life.reconcile().create, []);
    assert_eq!(life.condition(Type::Provisioned).reason, "WaitingForOtherRuns");
    assert_eq!(life.status.phase, Some(Phase::Pending));
    life.spec.suspend = true;
    life.reconcile();
    assert_eq!(life.condition(Type::Provisioned).reason, "Suspended");
    (life.spec.suspend, life.turn) = (false, Ok(()));
    // `timeouts.provision` starts now, and not when the run was first seen.
    assert_eq!(life.later(3600).reconcile().create.len(), 2);
}

#[test]
fn an_operator_that_takes_over_uses_the_existing_pods() {
    let mut life = Life::running();
    life.conductor = ConductorState::None;
    let decision = life.later(60).reconcile();
    assert_eq!(
        (decision.command, decision.create.len()),
        (ConductorCommand::Start, 0)
    );
    assert_eq!(life.status.phase, Some(Phase::Running));
}

#[test]
fn a_run_that_cannot_be_resumed_ends_in_time() {
    let mut life = Life::running();
    life.conductor = ConductorState::None;
    life.pods[0].state = PodState::Starting;
    assert_eq!(life.later(599).reconcile().command, ConductorCommand::None);
    assert_eq!(life.later(1).reconcile().command, ConductorCommand::Conclude);
}

#[test]
fn a_run_can_be_cancelled_at_any_time() {
    let mut life = Life::new();
    life.spec.cancel = true;
    assert!(life.reconcile().create.is_empty());
    assert_eq!(life.end(), (Phase::Cancelled, "Cancelled"));

    let mut life = Life::running();
    life.spec.cancel = true;
    assert_eq!(life.reconcile().command, ConductorCommand::Cancel);
    life.conductor = ConductorState::None;
    assert_eq!(life.reconcile().command, ConductorCommand::Conclude);
    life.conductor = outcome(EndReason::Cancelled, 1, 0);
    life.reconcile();
    assert_eq!(life.end(), (Phase::Cancelled, "Cancelled"));
    assert_eq!(life.condition(Type::Complete).message, "it ended as Cancelled");
}

#[test]
fn pods_of_a_failed_run_are_kept_if_the_spec_requests_it() {
    let mut life = Life::running();
    life.spec.cleanup.keep_pods_on_failure = true;
    life.conductor = outcome(EndReason::Internal, 0, 0);
    life.reconcile();
    let kept = life.later(9).reconcile();
    assert_eq!(
        (kept.delete_pods, kept.wake),
        (false, Some(Duration::from_secs(3591)))
    );
    assert!(life.later(3591).reconcile().delete_pods, "their time is over");
    life.later(-3600);
    life.spec.cleanup.keep_pods_on_failure = false;
    assert!(life.reconcile().delete_pods);
}

#[test]
fn a_run_is_deleted_when_its_time_is_over() {
    let mut life = Life::running();
    life.spec.cleanup.ttl_seconds_after_success = Some(30);
    life.conductor = outcome(EndReason::Succeeded, 2, 0);
    life.reconcile();
    life.pods.clear();
    let decision = life.later(10).reconcile();
    assert_eq!(
        (decision.delete_run, decision.wake),
        (false, Some(Duration::from_secs(20)))
    );
    assert!(life.later(20).reconcile().delete_run);
}

#[test]
fn a_cancelled_run_is_deleted_after_the_time_of_failed_ones() {
    let mut life = Life::running();
    life.spec.cleanup.ttl_seconds_after_success = Some(0);
    life.spec.cleanup.ttl_seconds_after_failure = Some(30);
    life.conductor = outcome(EndReason::Cancelled, 1, 0);
    life.reconcile();
    life.pods.clear();
    assert!(!life.later(10).reconcile().delete_run);
    assert!(life.later(20).reconcile().delete_run);
}

#[test]
fn a_run_that_ended_in_a_phase_of_a_newer_version_is_kept_with_its_pods() {
    let mut life = Life::running();
    let cleanup = &mut life.spec.cleanup;
    cleanup.keep_pods_on_failure = true;
    cleanup.ttl_seconds_after_success = Some(30);
    cleanup.ttl_seconds_after_failure = Some(30);
    life.conductor = outcome(EndReason::Internal, 0, 0);
    life.reconcile();
    life.status.phase = NewerName::new("Hibernating").map(Phase::Newer);
    let decision = life.later(60).reconcile();
    assert_eq!((decision.delete_run, decision.delete_pods), (false, false));
}

#[test]
fn pods_that_are_refused_are_requested_again_until_it_takes_too_long() {
    let mut life = Life::new();
    let full = || {
        let cause = Cause::new(
            Reason::PodRefused,
            "the API server refuses the run's Pod: exceeded quota",
        );
        Some(Refusal::Temporary(Some(cause)))
    };
    assert_eq!(life.reconcile_with(full()).wake, Some(RETRY_PAUSE_MIN));
    let provisioned = life.condition(Type::Provisioned);
    assert_eq!(
        (provisioned.status.as_str(), provisioned.reason.as_str()),
        ("False", "PodRefused")
    );
    let pauses: Vec<_> = [5, 5, 20, 29]
        .iter()
        .map(|seconds| {
            life.later(*seconds)
                .reconcile_with(full())
                .wake
                .unwrap()
                .as_secs()
        })
        .collect();
    assert_eq!(
        pauses,
        [5, 10, 15, 1],
        "longer each time, and never beyond the limit"
    );
    life.later(1).reconcile();
    assert_eq!(life.end(), (Phase::Failed, "PodRefused"));
    let message = &life.condition(Type::Complete).message;
    assert!(message.ends_with("exceeded quota"), "{message}");
}

#[test]
fn a_run_whose_new_pod_is_refused_continues_to_wait_for_it() {
    let mut life = Life::running();
    life.pods[1].state = gone();
    let cause = Cause::new(EndReason::ImpairmentUnsupported, "label the namespace");
    let decision = life.reconcile_with(Some(Refusal::Final(cause)));
    assert_eq!(
        (decision.command, decision.wake),
        (ConductorCommand::None, Some(RETRY_PAUSE_MIN))
    );
    assert_eq!(life.status.phase, Some(Phase::Running));
}

#[test]
fn a_conductor_that_panics_is_resumed_a_limited_number_of_times() {
    let mut life = Life::running();
    let panicked = |times| ConductorState::Panicked {
        times,
        message: "index out of bounds".to_owned(),
    };
    for times in 1..PANICS_MAX {
        life.conductor = panicked(times);
        assert_eq!(life.reconcile().command, ConductorCommand::Start);
    }
    life.conductor = panicked(PANICS_MAX);
    life.reconcile();
    assert_eq!(life.end(), (Phase::Failed, "Internal"));
    let message = &life.condition(Type::Complete).message;
    assert!(
        message.ends_with("panicked 3 times, which is a fault of perfrun: index out of bounds"),
        "{message}"
    );
}

#[test]
fn a_run_in_progress_is_reconciled_when_its_time_is_over() {
    let mut life = Life::running();
    assert_eq!(life.later(30).reconcile().wake, Some(Duration::from_secs(570)));
    assert_eq!(life.later(600).reconcile().wake, Some(OVERTIME_PAUSE));
}

#[test]
fn pods_of_a_run_that_is_being_deleted_are_deleted_at_any_time() {
    let mut life = Life::running();
    life.deleting = true;
    let before = life.status.clone();
    let decision = life.reconcile();
    assert!(decision.delete_pods && decision.create.is_empty());
    assert_eq!(life.status, before);
    life.pods.iter_mut().for_each(|pod| pod.deleting = true);
    assert!(!life.reconcile().delete_pods);
}

#[test]
fn the_transition_time_of_a_condition_stays_while_its_status_does() {
    let mut life = Life::running();
    let since = life.condition(Type::Running).last_transition_time.clone();
    life.later(60).reconcile();
    assert_eq!(life.condition(Type::Running).last_transition_time, since);
}

#[test]
fn containers_of_others_in_the_pods_of_a_run_are_a_warning_that_stays() {
    let mut life = Life::new();
    let first = life.reconcile();
    life.create(&first, &PodState::Starting);
    life.pods[0].foreign_containers = vec!["istio-proxy".to_owned()];
    life.reconcile();
    assert_eq!(life.reasons(), ["ForeignContainers"]);
    let (status, _, message) = life.values(Type::ContainersInjected);
    assert!(
        status == "True" && message.contains("did not make: istio-proxy. "),
        "{message}"
    );
    life.pods[0].foreign_containers.clear();
    life.reconcile();
    assert!(life.reasons().is_empty());
    assert_eq!(life.values(Type::ContainersInjected).0, "True");
}

#[test]
fn every_change_that_matters_is_one_event() {
    let mut life = Life::new();
    let mut reasons = vec![];
    let mut reconcile = |life: &mut Life| {
        let decision = life.reconcile();
        reasons.extend(life.reasons().into_iter().map(str::to_owned));
        decision
    };
    let first = reconcile(&mut life);
    life.create(&first, &PodState::Starting);
    reconcile(&mut life);
    life.pods.iter_mut().for_each(|pod| pod.state = ready());
    reconcile(&mut life);
    life.conductor = ConductorState::Running(Progress::default());
    reconcile(&mut life);
    life.conductor = outcome(EndReason::Succeeded, 2, 0);
    reconcile(&mut life);
    assert_eq!(reasons, ["Starting", "Ready", "Measuring", "Succeeded"]);
}
