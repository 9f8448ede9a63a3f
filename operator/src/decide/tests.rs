//! A run's life, decision by decision.

use std::{
    collections::BTreeSet,
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::runtime::events::{Event, EventType};
use perfrun_api::{document, planning::plan};
use perfrun_contract::{
    compare::{self, Comparison, Gate, Judged, Why, Word},
    node::Reason,
    record::{LinkCheck, Metric, TrialRecord},
    tally::{Counts, EndReason, Verdict},
};
use perfrun_test_kit::records::{completed, failed};

use super::*;
use crate::{
    plans::Outline,
    refusal::{POD_REFUSED, UNSUPPORTED},
};

const DOCUMENT: &str = "
apiVersion: perfrun.io/v1alpha1
kind: PerfRun
metadata: {name: tcp}
spec:
  iterations: 2
  warmup: 0
  workload: {ping: {}}
  matrix: {clients: [libp2p], servers: [litep2p], rawBaseline: false}
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
    now: Timestamp,
    /// The events of the last pass.
    events: Vec<Event>,
}

impl Life {
    fn new() -> Self {
        Self::of(DOCUMENT)
    }

    /// A run with an impaired network beside `none`.
    fn impaired() -> Self {
        Self::of(&DOCUMENT.replace("rawBaseline", "networks: [none, wan], rawBaseline"))
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
            now: Timestamp::UNIX_EPOCH,
            events: vec![],
        }
    }

    /// One pass. Returns the decision, and keeps the new status.
    fn pass(&mut self) -> Decision {
        self.pass_with(None)
    }

    /// One pass in which the API server refuses pods.
    fn pass_with(&mut self, refusal: Option<Refusal>) -> Decision {
        let outline = Outline::from(&*self.plan);
        let planned = match need(&self.spec, &self.status, &self.conductor, self.turn.clone()) {
            Need::Nothing => Planned::Over,
            Need::Outline(trouble) => Planned::Held(outline, trouble),
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
            recheck: None,
            now: self.now,
        };
        let mut decision = decide(&inputs);
        if refusal.is_some() {
            decision = after_failure(decision, refusal, &inputs);
        }
        let outline = inputs.planned.outline();
        let next = status::next(&self.status, Some(1), outline, &decision.stage, self.now);
        self.events = status::events(&self.status, &next, outline, &decision.stage);
        self.status = next;
        decision
    }

    fn later(&mut self, seconds: i64) -> &mut Self {
        self.now += SignedDuration::from_secs(seconds);
        self
    }

    /// Creates the pods of a decision, in this state.
    fn create(&mut self, decision: &Decision, state: &PodState) {
        self.pods.extend(decision.create.iter().map(|new| NodePod {
            name: format!("{}-{}", new.node.name, new.incarnation),
            node: new.node.name.clone(),
            incarnation: new.incarnation,
            deleting: false,
            state: state.clone(),
        }));
    }

    fn running() -> Self {
        Self::new().started()
    }

    fn started(self) -> Self {
        let mut life = self;
        let first = life.pass();
        life.create(&first, &ready());
        assert_eq!(life.pass().command, ConductorCommand::Start);
        life.conductor = ConductorState::Running(Progress::default());
        life
    }

    /// Status, reason and message of the condition LinksVerified.
    fn links(&self) -> (&str, &str, &str) {
        self.parts(condition::LINKS_VERIFIED)
    }

    /// Status, reason and message of the condition Verdict.
    fn verdict(&self) -> (&str, &str, &str) {
        self.parts(condition::VERDICT)
    }

    /// Status, reason and message of a condition.
    fn parts(&self, type_: &str) -> (&str, &str, &str) {
        let condition = self.condition(type_);
        (&condition.status, &condition.reason, &condition.message)
    }

    /// The reasons of the events of the last pass.
    fn reasons(&self) -> Vec<&str> {
        self.events.iter().map(|event| event.reason.as_str()).collect()
    }

    fn condition(&self, type_: &str) -> &Condition {
        self.status
            .conditions
            .iter()
            .find(|condition| condition.type_ == type_)
            .unwrap()
    }

    /// The phase, and the reason of the condition Complete.
    fn end(&self) -> (Phase, &str) {
        (
            self.status.phase.unwrap(),
            &self.condition(condition::COMPLETE).reason,
        )
    }
}

fn ready() -> PodState {
    PodState::Ready(IpAddr::V4(Ipv4Addr::LOCALHOST))
}

fn gone() -> PodState {
    PodState::Gone(Trouble {
        reason: "NodeCrashed",
        message: "the node ended with exit code 1".to_owned(),
    })
}

fn going(completed: usize, failed: usize) -> Progress {
    Progress {
        counts: Counts {
            planned: 2,
            completed,
            failed,
            spared: 0,
        },
        links: Links::default(),
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
        verdict: Verdict {
            phase,
            reason,
            message: format!("it ended as {reason}"),
        },
        progress: going(completed, failed),
        summary: vec![],
        judged: None,
        results: vec!["tcp-results-0".to_owned()],
    }))
}

fn names(new: &[NewPod]) -> Vec<String> {
    new.iter()
        .map(|pod| format!("{}-{}", pod.node.name, pod.incarnation))
        .collect()
}

#[test]
fn a_run_passes_from_pods_to_trials_to_its_end() {
    let mut life = Life::new();
    let first = life.pass();
    assert_eq!(names(&first.create), ["server-0-0", "client-0-0"]);
    assert_eq!(life.status.phase, Some(Phase::Provisioning));
    life.create(&first, &PodState::Starting);
    assert_eq!(life.later(3).pass().create, []);

    life.pods[0].state = ready();
    assert_eq!(life.pass().command, ConductorCommand::None);
    assert_eq!(
        life.condition(condition::PROVISIONED).message,
        "1 of 2 nodes are ready"
    );
    life.pods[1].state = ready();
    assert_eq!(life.pass().command, ConductorCommand::Start);

    life.conductor = ConductorState::Running(going(1, 0));
    life.later(5).pass();
    assert_eq!(life.status.trials.progress, "1/2");
    life.conductor = outcome(EndReason::Succeeded, 2, 0);
    let last = life.later(5).pass();
    assert!(!last.delete_pods, "not before the status shows the end");
    assert_eq!(life.end(), (Phase::Succeeded, "Succeeded"));
    assert_eq!(life.status.results, ["tcp-results-0"]);
    assert_eq!(life.status.completion_time.as_ref().unwrap().0, life.now);
    assert!(life.pass().delete_pods);
}

#[test]
fn trials_that_are_not_needed_are_no_part_of_the_progress() {
    let mut life = Life::running();
    let mut progress = going(1, 0);
    progress.counts.spared = 1;
    life.conductor = ConductorState::Running(progress);
    life.pass();
    let trials = &life.status.trials;
    assert_eq!((trials.total, trials.spared), (2, 1));
    assert_eq!(trials.progress, "1/1");
}

#[test]
fn a_run_that_has_ended_needs_nothing() {
    let mut life = Life::running();
    life.conductor = outcome(EndReason::Succeeded, 2, 0);
    life.pass();
    life.pods.clear();
    life.conductor = ConductorState::None;
    let before = life.status.clone();
    let after = life.later(3600).pass();
    assert_eq!(after, Decision::new(Stage::Over));
    assert_eq!(life.status, before);
}

#[test]
fn trials_that_failed_make_the_run_fail_with_their_reason() {
    let mut life = Life::running();
    life.conductor = outcome(EndReason::TrialTimeout, 1, 1);
    life.pass();
    assert_eq!(life.end(), (Phase::Failed, "TrialTimeout"));
    assert_eq!(
        life.condition(condition::COMPLETE).message,
        "it ended as TrialTimeout"
    );
}

#[test]
fn a_lost_node_is_replaced_while_trials_are_in_progress() {
    let mut life = Life::running();
    life.pods[1].state = gone();
    let decision = life.pass();
    assert_eq!(names(&decision.create), ["client-0-1"]);
    assert_eq!(life.status.phase, Some(Phase::Running));
}

#[test]
fn a_node_that_ends_at_every_start_ends_the_run() {
    let mut life = Life::new();
    for _ in 0..STARTS_MAX {
        let decision = life.pass();
        life.create(&decision, &ready());
        life.pods.last_mut().unwrap().state = gone();
    }
    life.pass();
    assert_eq!(life.end(), (Phase::Failed, "NodeCrashed"));
}

#[test]
fn pods_that_fit_nowhere_are_reported_immediately_and_end_the_run_in_time() {
    let mut life = Life::new();
    let decision = life.pass();
    let stuck = PodState::Stuck(Trouble {
        reason: "Unschedulable",
        message: "no Kubernetes node takes pod server-0-0".to_owned(),
    });
    life.create(&decision, &stuck);
    let decision = life.later(1).pass();
    assert_eq!(life.condition(condition::PROVISIONED).reason, "Unschedulable");
    assert_eq!(decision.wake, Some(Duration::from_secs(59)));
    life.later(59).pass();
    assert_eq!(life.end(), (Phase::Failed, "Unschedulable"));
    assert_eq!(
        life.condition(condition::COMPLETE).message,
        "0 of 2 nodes were ready within timeouts.provision, 60s: no Kubernetes node takes pod server-0-0"
    );
}

#[test]
fn a_run_waits_for_its_turn_and_for_its_user() {
    let mut life = Life::new();
    life.turn = Err("ns/other is active".to_owned());
    assert_eq!(life.pass().create, []);
    assert_eq!(
        life.condition(condition::PROVISIONED).reason,
        "WaitingForOtherRuns"
    );
    assert_eq!(life.status.phase, Some(Phase::Pending));
    life.spec.suspend = true;
    life.pass();
    assert_eq!(life.condition(condition::PROVISIONED).reason, "Suspended");
    (life.spec.suspend, life.turn) = (false, Ok(()));
    // `timeouts.provision` starts now, and not when the run was first seen.
    assert_eq!(life.later(3600).pass().create.len(), 2);
}

#[test]
fn an_operator_that_takes_over_uses_the_existing_pods() {
    let mut life = Life::running();
    life.conductor = ConductorState::None;
    let decision = life.later(60).pass();
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
    assert_eq!(life.later(599).pass().command, ConductorCommand::None);
    assert_eq!(life.later(1).pass().command, ConductorCommand::Conclude);
}

#[test]
fn a_run_can_be_cancelled_at_any_time() {
    let mut life = Life::new();
    life.spec.cancel = true;
    assert!(life.pass().create.is_empty());
    assert_eq!(life.end(), (Phase::Cancelled, "Cancelled"));

    let mut life = Life::running();
    life.spec.cancel = true;
    assert_eq!(life.pass().command, ConductorCommand::Cancel);
    life.conductor = ConductorState::None;
    assert_eq!(life.pass().command, ConductorCommand::Conclude);
    life.conductor = outcome(EndReason::Cancelled, 1, 0);
    life.pass();
    assert_eq!(life.end(), (Phase::Cancelled, "Cancelled"));
    assert_eq!(
        life.condition(condition::COMPLETE).message,
        "it ended as Cancelled"
    );
}

#[test]
fn pods_of_a_failed_run_are_kept_if_the_run_says_so() {
    let mut life = Life::running();
    life.spec.cleanup.keep_pods_on_failure = true;
    life.conductor = outcome(EndReason::Internal, 0, 0);
    life.pass();
    assert!(!life.later(9).pass().delete_pods);
    life.spec.cleanup.keep_pods_on_failure = false;
    assert!(life.pass().delete_pods);
}

#[test]
fn a_run_is_deleted_when_its_time_is_over() {
    let mut life = Life::running();
    life.spec.cleanup.ttl_seconds_after_success = Some(30);
    life.conductor = outcome(EndReason::Succeeded, 2, 0);
    life.pass();
    life.pods.clear();
    let decision = life.later(10).pass();
    assert_eq!(
        (decision.delete_run, decision.wake),
        (false, Some(Duration::from_secs(20)))
    );
    assert!(life.later(20).pass().delete_run);
}

#[test]
fn only_runs_that_impair_links_have_a_condition_about_them() {
    let life = Life::running();
    let types: Vec<_> = life.status.conditions.iter().map(|c| c.type_.as_str()).collect();
    assert_eq!(types, ["Accepted", "Provisioned", "Running", "Complete"]);
}

#[test]
fn links_are_verified_network_by_network() {
    let mut life = Life::impaired().started();
    assert_eq!(
        life.links(),
        ("Unknown", "NotMeasured", "no link has been measured yet")
    );
    let mut links = Links::default();
    links.add("none", &checked(None));
    let mut progress = Progress {
        links: links.clone(),
        ..Progress::default()
    };
    life.conductor = ConductorState::Running(progress.clone());
    life.pass();
    let message = "1 of 2 networks were measured and are as configured";
    assert_eq!(life.links(), ("True", "AsConfigured", message));
    assert_eq!(life.reasons(), ["AsConfigured"]);

    // Another operator takes over, and has not read the journal yet.
    life.conductor = ConductorState::None;
    life.pass();
    life.conductor = ConductorState::Running(Progress::default());
    life.pass();
    assert_eq!(life.links(), ("True", "AsConfigured", message));

    let wrong = "network wan, client-0 to server-0: median round trip (ms): 0.100, expected 59 to 61";
    links.add("wan", &checked(Some(wrong)));
    progress.links = links;
    life.conductor = ConductorState::Running(progress.clone());
    life.pass();
    assert_eq!(life.links(), ("False", "ImpairmentNotEffective", wrong));
    assert_eq!(life.events[0].type_, EventType::Warning);
    life.conductor = ConductorState::None;
    life.pass();
    assert_eq!(life.links(), ("False", "ImpairmentNotEffective", wrong));

    let ConductorState::Ended(mut outcome) = outcome(EndReason::ImpairmentNotEffective, 1, 1) else {
        panic!()
    };
    outcome.progress.links = progress.links;
    life.conductor = ConductorState::Ended(outcome);
    life.pass();
    assert_eq!(life.end(), (Phase::Failed, "ImpairmentNotEffective"));
    assert_eq!(life.links(), ("False", "ImpairmentNotEffective", wrong));
}

#[test]
fn a_run_whose_links_cannot_be_impaired_reports_it_in_both_conditions() {
    let mut life = Life::impaired().started();
    life.conductor = outcome(EndReason::ImpairmentUnsupported, 0, 0);
    life.pass();
    let message = "it ended as ImpairmentUnsupported";
    assert_eq!(life.links(), ("False", "ImpairmentUnsupported", message));
    assert_eq!(life.end(), (Phase::Failed, "ImpairmentUnsupported"));
}

#[test]
fn a_namespace_that_does_not_allow_link_agents_ends_the_run_immediately() {
    let mut life = Life::impaired();
    let trouble = Trouble::new(UNSUPPORTED, "label the namespace");
    life.pass_with(Some(Refusal::Final(trouble)));
    assert_eq!(life.end(), (Phase::Failed, "ImpairmentUnsupported"));
    assert_eq!(
        life.links(),
        ("False", "ImpairmentUnsupported", "label the namespace")
    );
}

#[test]
fn pods_that_are_refused_are_tried_again_until_it_takes_too_long() {
    let mut life = Life::new();
    let full = || {
        let trouble = Trouble::new(
            POD_REFUSED,
            "the API server refuses the run's Pod: exceeded quota",
        );
        Some(Refusal::Temporary(Some(trouble)))
    };
    assert_eq!(life.pass_with(full()).wake, Some(RETRY_FIRST));
    let provisioned = life.condition(condition::PROVISIONED);
    assert_eq!(
        (provisioned.status.as_str(), provisioned.reason.as_str()),
        ("False", POD_REFUSED)
    );
    let pauses: Vec<_> = [5, 5, 20, 29]
        .iter()
        .map(|seconds| life.later(*seconds).pass_with(full()).wake.unwrap().as_secs())
        .collect();
    assert_eq!(
        pauses,
        [5, 10, 15, 1],
        "longer each time, and never beyond the limit"
    );
    life.later(1).pass();
    assert_eq!(life.end(), (Phase::Failed, POD_REFUSED));
    let message = &life.condition(condition::COMPLETE).message;
    assert!(message.ends_with("exceeded quota"), "{message}");
}

#[test]
fn a_run_whose_new_pod_is_refused_continues_to_wait_for_it() {
    let mut life = Life::running();
    life.pods[1].state = gone();
    let trouble = Trouble::new(UNSUPPORTED, "label the namespace");
    let decision = life.pass_with(Some(Refusal::Final(trouble)));
    assert_eq!(
        (decision.command, decision.wake),
        (ConductorCommand::None, Some(RETRY_FIRST))
    );
    assert_eq!(life.status.phase, Some(Phase::Running));
}

/// A record with measured links, and why they were not as configured.
fn checked(wrong: Option<&str>) -> TrialRecord {
    let mut record = match wrong {
        Some(_) => failed("c0.i0", Reason::ImpairmentNotEffective),
        None => completed("c0.i0"),
    };
    record.links = Some(LinkCheck {
        network: "wan".to_owned(),
        set_seconds: 0.1,
        probe_seconds: 1.0,
        legs: vec![],
    });
    if let (Some(failure), Some(wrong)) = (&mut record.failure, wrong) {
        failure.message = wrong.to_owned();
    }
    record
}

#[test]
fn a_conductor_that_panics_is_resumed_but_not_forever() {
    let mut life = Life::running();
    let panicked = |times| ConductorState::Panicked {
        times,
        message: "index out of bounds".to_owned(),
    };
    for times in 1..PANICS_MAX {
        life.conductor = panicked(times);
        assert_eq!(life.pass().command, ConductorCommand::Start);
    }
    life.conductor = panicked(PANICS_MAX);
    life.pass();
    assert_eq!(life.end(), (Phase::Failed, "Internal"));
    let message = &life.condition(condition::COMPLETE).message;
    assert!(
        message.ends_with("panicked 3 times, which is a fault of perfrun: index out of bounds"),
        "{message}"
    );
}

#[test]
fn a_run_in_progress_is_looked_at_when_its_time_is_over() {
    let mut life = Life::running();
    assert_eq!(life.later(30).pass().wake, Some(Duration::from_secs(570)));
    assert_eq!(life.later(600).pass().wake, Some(OVERTIME_PAUSE));
}

#[test]
fn pods_of_a_run_that_is_being_deleted_are_deleted_at_any_time() {
    let mut life = Life::running();
    life.deleting = true;
    let before = life.status.clone();
    let decision = life.pass();
    assert!(decision.delete_pods && decision.create.is_empty());
    assert_eq!(life.status, before);
    life.pods.iter_mut().for_each(|pod| pod.deleting = true);
    assert!(!life.pass().delete_pods);
}

#[test]
fn times_of_conditions_stay_while_they_do() {
    let mut life = Life::running();
    let since = life.condition(condition::RUNNING).last_transition_time.clone();
    life.later(60).pass();
    assert_eq!(life.condition(condition::RUNNING).last_transition_time, since);
}

#[test]
fn every_change_that_matters_is_one_event() {
    let mut life = Life::new();
    let mut reasons = vec![];
    let mut pass = |life: &mut Life| {
        let decision = life.pass();
        reasons.extend(life.reasons().into_iter().map(str::to_owned));
        decision
    };
    let first = pass(&mut life);
    life.create(&first, &PodState::Starting);
    pass(&mut life);
    life.pods.iter_mut().for_each(|pod| pod.state = ready());
    pass(&mut life);
    life.conductor = ConductorState::Running(Progress::default());
    pass(&mut life);
    life.conductor = outcome(EndReason::Succeeded, 2, 0);
    pass(&mut life);
    assert_eq!(reasons, ["Starting", "Ready", "Measuring", "Succeeded"]);
}

const EXPECT: &str = "[{metric: roundTripP50, maxRegression: 10%}, {metric: roundTripP50, max: 1us}]";

/// The end of a run that found this about its candidate, and about its expectations and their cells.
fn found(word: Word, why: Option<Why>, gates: &[(usize, &str, compare::Verdict)]) -> ConductorState {
    let ConductorState::Ended(mut ended) = outcome(EndReason::Succeeded, 2, 0) else {
        panic!()
    };
    ended.judged = Some(Judged {
        comparisons: vec![Comparison {
            why,
            ..comparison("pr", word)
        }],
        gates: gates
            .iter()
            .map(|&(expectation, cell, verdict)| Gate {
                expectation,
                cell: cell.to_owned(),
                verdict,
                evidence: format!("it is {verdict}"),
            })
            .collect(),
        verdict: gates
            .iter()
            .map(|(_, _, verdict)| *verdict)
            .max()
            .unwrap_or_default(),
        ..Judged::default()
    });
    ConductorState::Ended(ended)
}

fn comparison(candidate: &str, word: Word) -> Comparison {
    Comparison {
        baseline: "main".to_owned(),
        candidate: candidate.to_owned(),
        metric: Metric::RoundTripP50,
        pairs: 20,
        dropped: 0,
        failed: [0, 0],
        tolerance: 0.05,
        medians: None,
        ratio: None,
        p_adjusted: None,
        word,
        why: None,
        detectable: None,
        pairs_needed: None,
    }
}

#[test]
fn a_run_that_expects_nothing_has_no_verdict() {
    let mut life = Life::running();
    life.conductor = outcome(EndReason::Succeeded, 2, 0);
    life.pass();
    assert_eq!(life.status.verdict, None);
    let types = life
        .status
        .conditions
        .iter()
        .map(|condition| condition.type_.as_str());
    assert!(!types.into_iter().any(|type_| type_ == condition::VERDICT));
}

#[test]
fn the_verdict_is_open_until_the_run_has_ended_and_then_stays() {
    let mut life = Life::comparing(EXPECT);
    life.pass();
    assert_eq!(life.verdict(), ("Unknown", "InProgress", "the run has not ended"));
    assert_eq!(life.reasons(), ["Starting"]);
    life.pods.clear();
    let mut life = life.started();
    life.conductor = found(
        Word::Same,
        None,
        &[
            (0, "pr", compare::Verdict::Pass),
            (1, "main", compare::Verdict::Pass),
        ],
    );
    life.pass();
    assert_eq!(life.status.verdict, Some(compare::Verdict::Pass));
    assert_eq!(
        life.verdict(),
        ("True", "ExpectationsHold", "all expectations hold, 2 in number")
    );
    assert_eq!(life.status.comparisons, [comparison("pr", Word::Same)]);
    assert_eq!(life.reasons(), ["ExpectationsHold", "Succeeded"]);
    let ended = life.status.clone();
    // Another operator takes over, and knows nothing of the results.
    life.conductor = ConductorState::None;
    life.later(3600).pass();
    assert_eq!(life.status, ended);
}

#[test]
fn each_expectation_that_does_not_hold_is_an_event() {
    let mut life = Life::comparing(EXPECT).started();
    life.conductor = found(
        Word::Slower,
        None,
        &[
            (0, "pr", compare::Verdict::Inconclusive),
            (1, "main", compare::Verdict::Fail),
            (1, "pr", compare::Verdict::Fail),
        ],
    );
    life.pass();
    assert_eq!(life.status.verdict, Some(compare::Verdict::Fail));
    let sentence = "roundTripP50 of main: it is Fail";
    assert_eq!(life.verdict(), ("False", "AboveMaximum", sentence));
    assert_eq!(life.reasons(), ["Succeeded", "AboveMaximum"]);
    let event = &life.events[1];
    assert_eq!(event.type_, EventType::Warning);
    assert_eq!(event.note, Some(format!("{sentence}; and 1 other cells")));
}

#[test]
fn many_expectations_that_do_not_hold_are_some_events_that_are_told_apart() {
    let expect = ["{metric: roundTripP50, max: 1us}"; 12].join(", ");
    let mut life = Life::comparing(&format!("[{expect}]")).started();
    let gates: Vec<_> = (0..12)
        .map(|index| (index, "pr", compare::Verdict::Fail))
        .collect();
    life.conductor = found(Word::Same, None, &gates);
    life.pass();
    let warnings: Vec<_> = life
        .events
        .iter()
        .filter(|event| event.type_ == EventType::Warning)
        .collect();
    assert_eq!(warnings.len(), 9);
    assert_eq!(
        warnings[8].note.as_deref(),
        Some("and 4 more expectations do not hold")
    );
    let actions: BTreeSet<_> = warnings.iter().map(|event| &event.action).collect();
    assert_eq!(actions.len(), 9, "the recorder would count them as one");
}

#[test]
fn a_verdict_that_is_open_at_the_end_has_its_cause_as_reason() {
    for (why, reason) in [
        (None, "NotPrecise"),
        (Some(Why::TooFewPairs), "TooFewPairs"),
        (Some(Why::TwinsApart), "TwinsApart"),
    ] {
        let mut life = Life::comparing(EXPECT).started();
        let gates = [
            (0, "pr", compare::Verdict::Inconclusive),
            (1, "pr", compare::Verdict::Pass),
        ];
        life.conductor = found(Word::Undecided, why, &gates);
        life.pass();
        assert_eq!(life.status.verdict, Some(compare::Verdict::Inconclusive));
        let sentence = "roundTripP50 of pr: it is Inconclusive";
        assert_eq!(life.verdict(), ("Unknown", reason, sentence));
    }
    let mut life = Life::comparing(EXPECT).started();
    life.conductor = outcome(EndReason::RecordNotKept, 0, 0);
    life.pass();
    assert_eq!(
        life.verdict(),
        ("Unknown", "NotMeasured", "the run ended without results")
    );
}

#[test]
fn comparisons_without_expectations_say_what_they_found() {
    let mut life = Life::comparing("[]").started();
    life.conductor = found(Word::Faster, None, &[]);
    life.pass();
    assert_eq!(life.status.verdict, None);
    assert_eq!(
        life.verdict(),
        ("Unknown", "NothingExpected", "comparisons: 1 Faster")
    );
}

#[test]
fn comparisons_that_are_not_the_same_stay_in_the_status_if_not_all_fit() {
    let mut life = Life::comparing("[]").started();
    let ConductorState::Ended(mut ended) = found(Word::Same, None, &[]) else {
        panic!()
    };
    let same = (0..70).map(|index| comparison(&format!("same-{index}"), Word::Same));
    let others = [Word::Slower, Word::Undecided].map(|word| comparison(word.as_ref(), word));
    ended.judged.as_mut().unwrap().comparisons = same.chain(others).collect();
    life.conductor = ConductorState::Ended(ended);
    life.pass();
    let rows: Vec<_> = life
        .status
        .comparisons
        .iter()
        .map(|row| row.candidate.as_str())
        .collect();
    assert_eq!(
        (rows.len(), &rows[..3]),
        (64, &["Slower", "Undecided", "same-0"][..])
    );
}
