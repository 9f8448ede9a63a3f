//! What happens to a run now: a function of its document, of what was observed, and of the time.

use std::{collections::BTreeMap, time::Duration};

use jiff::Timestamp;
use perfrun_api::{
    cluster::condition::{self, Reason, Status, Type},
    pod::{Cause, PodState, store::STORE_NODE},
    spec::{PerfRunSpec, PerfRunStatus},
};
use perfrun_contract::{
    plan::{Plan, PlannedNode},
    role::Role,
    run::Phase,
    tally::EndReason,
};
use tokio::time::Instant;

use crate::{
    build::NewPod,
    conduct::{ConductorState, Progress, RunOutcome},
    pods::{NodePod, has_undeleted, live_pod, ready_pod},
    process::clock::elapsed,
    run::{
        conditions::{has_ended, since},
        plans::{Need, Planned},
        refusal::{REFUSALS, Refusal},
        stage::{Stage, last_progress},
        starts::NextStart,
        times::OwnTimes,
    },
};

/// How often a node may exit before all nodes have been ready. After that, another attempt is unlikely to
/// succeed.
const CRASHES_MAX: u32 = 3;

/// How many pods may keep results of one run. After that, another would be lost as well.
const STORE_STARTS_MAX: u32 = 10;

/// How often a run's conductor may panic in one process. After that, another attempt is unlikely to succeed.
const PANICS_MAX: u32 = 3;

/// Pause before an object that was not created is requested again. It doubles: the run waits as long as it
/// has waited.
const RETRY_PAUSE_MIN: Duration = Duration::from_secs(2);
const RETRY_PAUSE_MAX: Duration = Duration::from_secs(15);

/// Pause between reconciliations of a run whose `timeouts.run` is over while its conductor still keeps the
/// results.
const OVERTIME_PAUSE: Duration = Duration::from_secs(30);

/// What a decision depends on.
pub(crate) struct Inputs<'a> {
    pub(crate) spec: &'a PerfRunSpec,
    /// The status as the API server has it.
    pub(crate) status: &'a PerfRunStatus,
    /// Whether the run is being deleted, and waits for the finalizer of another program.
    pub(crate) deleting: bool,
    pub(crate) planned: Planned,
    pub(crate) pods: Vec<NodePod>,
    pub(crate) conductor: ConductorState,
    /// The Kubernetes nodes on which nodes of the run were lost, by node of the run.
    pub(crate) lost_on: BTreeMap<String, String>,
    /// What this process knows, and the status may lack.
    pub(crate) own: OwnTimes,
    /// How long pods of a failed run stay, if its document requests that.
    pub(crate) kept_pods: Duration,
    pub(crate) now: Timestamp,
    /// Now as well, by a clock that nobody sets.
    pub(crate) instant: Instant,
}

impl Inputs<'_> {
    /// Since when trials have been in progress.
    pub(crate) fn running_since(&self) -> Option<Timestamp> {
        since(self.status, Type::Running, Status::True).or(self.own.running_since)
    }

    /// The end of a run that stands back, see [`OwnTimes::stood_back`].
    pub(crate) fn stood_back(&self) -> Option<&Stage> {
        self.own.stood_back(self.instant)
    }

    /// The time that is left of `timeouts.run`.
    fn run_time_left(&self) -> Duration {
        let begun = self.running_since().unwrap_or(self.now);
        Duration::from(self.spec.timeouts.run).saturating_sub(elapsed(begun, self.now))
    }

    /// How long nodes have been starting. If the status does not show it, pods do, even to another operator.
    fn time_provisioning(&self) -> Duration {
        let since = |is| since(self.status, Type::Provisioned, is);
        if since(Status::True).is_some() {
            return Duration::ZERO;
        }
        if let Some(begun) = since(Status::False) {
            return elapsed(begun, self.now);
        }
        let pods = self.pods.iter().filter(|pod| !pod.deleting);
        let ages = pods.filter_map(|pod| Some(elapsed(pod.created?, self.now)));
        let own = self.own.provisioning_since.map(|begun| self.instant - begun);
        ages.chain(own).max().unwrap_or_default()
    }

    /// The time that is left of `timeouts.provision`.
    fn provision_time_left(&self) -> Duration {
        Duration::from(self.spec.timeouts.provision).saturating_sub(self.time_provisioning())
    }
}

/// What to do, and where the run stands.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Decision {
    pub(crate) stage: Stage,
    /// Pods to create. The objects that pods need are created before the first incarnations.
    pub(crate) create: Vec<NewPod>,
    /// The incarnation of the pod that keeps results, to create after the others.
    pub(crate) create_store: Option<u32>,
    /// Why nodes get no other pod, by node.
    pub(crate) given_up: BTreeMap<String, Cause>,
    /// UIDs of pods to delete, even if others stay.
    pub(crate) delete: Vec<String>,
    pub(crate) delete_pods: bool,
    /// Whether to delete the pods that keep results, even if others stay.
    pub(crate) delete_store: bool,
    pub(crate) command: ConductorCommand,
    pub(crate) delete_run: bool,
    /// When to decide again if nothing changes.
    pub(crate) wake: Option<Duration>,
}

/// What a run's conductor has to do.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum ConductorCommand {
    /// Continue.
    None,
    /// Start, or resume what another process began.
    Start,
    /// Run no trials; keep the results that the journal has.
    Conclude,
    /// Stop the trials, and keep the results.
    Cancel,
}

impl Decision {
    fn new(stage: Stage) -> Self {
        Self {
            stage,
            create: vec![],
            create_store: None,
            given_up: BTreeMap::new(),
            delete: vec![],
            delete_pods: false,
            delete_store: false,
            command: ConductorCommand::None,
            delete_run: false,
            wake: None,
        }
    }

    /// The run needs no pods in this stage.
    fn without_pods(stage: Stage, inputs: &Inputs<'_>) -> Self {
        Self {
            delete_pods: has_undeleted(&inputs.pods),
            ..Self::new(stage)
        }
    }

    /// The decision with the pods that the run lacks, and without those that others have replaced.
    fn with_pods(self, missing: Missing, inputs: &Inputs<'_>) -> Self {
        Self {
            create: missing.create,
            create_store: missing.create_store,
            given_up: missing.given_up,
            delete: replaced_pods(&inputs.pods),
            wake: self.wake.into_iter().chain(missing.due).min(),
            ..self
        }
    }

    /// The end of the run. Its pods are deleted once the status shows it, see [`clean_up`]: until then
    /// another reconciliation would take them for lost.
    fn end(reason: impl Into<Reason>, message: impl Into<String>) -> Self {
        Self::new(Stage::Ending {
            reason: reason.into(),
            message: message.into(),
            outcome: None,
        })
    }
}

/// Decides how much of its plan a run needs. `turn` says whether the run may start beside the others, or what
/// it waits for.
pub(crate) fn need(
    spec: &PerfRunSpec,
    status: &PerfRunStatus,
    conductor: &ConductorState,
    turn: Result<(), String>,
) -> Need {
    let has_begun =
        *conductor != ConductorState::None || since(status, Type::Running, Status::True).is_some();
    let held = |reason, message| Need::Outline(Cause { reason, message });
    match turn {
        _ if has_ended(status) => Need::Nothing,
        _ if has_begun || spec.cancel => Need::Whole,
        _ if spec.suspend => held(Reason::Suspended, "set spec.suspend to false to start".to_owned()),
        Err(why) => held(Reason::WaitingForOtherRuns, why),
        Ok(()) => Need::Whole,
    }
}

/// Decides what happens to a run, and where it stands.
pub(crate) fn decide(inputs: &Inputs<'_>) -> Decision {
    let spec = inputs.spec;
    if inputs.deleting {
        return Decision::without_pods(Stage::Unchanged, inputs);
    }
    let plan = match (&inputs.planned, inputs.stood_back()) {
        (Planned::NotNeeded, _) => return clean_up(inputs),
        (_, Some(end)) => return Decision::without_pods(end.clone(), inputs),
        (Planned::Refused(why), None) => return Decision::new(Stage::Rejected(why.clone())),
        (Planned::Held(_, cause), None) => {
            return Decision::without_pods(Stage::Held(cause.clone()), inputs);
        }
        (Planned::Whole(_, plan), None) => plan,
    };
    match &inputs.conductor {
        ConductorState::Ended(outcome) => finish(outcome),
        ConductorState::Running(progress) => {
            let decision = Decision {
                command: if spec.cancel {
                    ConductorCommand::Cancel
                } else {
                    ConductorCommand::None
                },
                // The conductor ends in time. If it does not wake the run, this pause does.
                wake: Some(inputs.run_time_left().max(OVERTIME_PAUSE)),
                ..Decision::new(Stage::Running(progress.clone()))
            };
            decision.with_pods(Missing::of(plan, inputs), inputs)
        }
        ConductorState::Panicked { times, message } if *times >= PANICS_MAX => Decision::end(
            EndReason::Internal,
            format!("the conductor panicked {times} times, which is a fault of perfrun: {message}"),
        ),
        ConductorState::Panicked { .. } | ConductorState::None => match inputs.running_since() {
            Some(_) if spec.cancel => Decision {
                create_store: Missing::default().due_incarnation_of_store(inputs),
                command: ConductorCommand::Conclude,
                wake: Some(OVERTIME_PAUSE),
                ..Decision::new(Stage::Running(last_progress(inputs.status)))
            },
            Some(_) => resume(plan, inputs),
            None if spec.cancel => Decision::end(EndReason::Cancelled, "cancelled before it started"),
            None => provision(plan, inputs),
        },
    }
}

/// The decision after the API server did not carry out all of a decision. `refusal` says why an object of the
/// run was not created; `None` if something else failed.
pub(crate) fn after_failure(decision: Decision, refusal: Option<Refusal>, inputs: &Inputs<'_>) -> Decision {
    let pause = inputs.time_provisioning().clamp(RETRY_PAUSE_MIN, RETRY_PAUSE_MAX);
    match (decision.stage, refusal) {
        (Stage::Provisioning { .. }, Some(Refusal::Final(cause))) => {
            Decision::end(cause.reason, cause.message)
        }
        (Stage::Provisioning { ready, .. }, Some(Refusal::Temporary(Some(cause)))) => Decision {
            wake: Some(pause.min(inputs.provision_time_left())),
            ..Decision::new(Stage::Provisioning {
                ready,
                cause: Some(cause),
            })
        },
        // A conductor that waits for the pod gives up in time.
        (stage, _) => Decision {
            wake: Some(decision.wake.map_or(pause, |wake| wake.min(pause))),
            ..Decision::new(stage)
        },
    }
}

/// Whether the pods of a run that has ended stay for some time. How a run ended in a phase of a newer version
/// is not known, so whatever may be kept is.
pub(crate) fn keeps_pods(spec: &PerfRunSpec, status: &PerfRunStatus) -> bool {
    let has_failed = matches!(status.phase, Some(Phase::Failed | Phase::Newer(_)));
    spec.cleanup.keep_pods_on_failure && has_failed
}

/// Cleans up a run that has ended: it needs nothing else.
fn clean_up(inputs: &Inputs<'_>) -> Decision {
    let Inputs { spec, status, .. } = inputs;
    let cleanup = &spec.cleanup;
    let ttl = match status.phase {
        Some(Phase::Succeeded) => cleanup.ttl_seconds_after_success,
        Some(Phase::Newer(_)) => None,
        _ => cleanup.ttl_seconds_after_failure,
    };
    let ended = status.completion_time.as_ref().map_or(inputs.now, |time| time.0);
    let left_of = |time: Duration| time.saturating_sub(elapsed(ended, inputs.now));
    let left = ttl.map(|ttl| left_of(Duration::from_secs(ttl.into())));
    let has_pods = has_undeleted(&inputs.pods);
    let kept = keeps_pods(spec, status).then(|| left_of(inputs.kept_pods));
    let kept = kept.filter(|left| has_pods && !left.is_zero());
    Decision {
        delete_pods: has_pods && kept.is_none(),
        // Pods that keep results mount the author's Secret, and show nothing about a failed node.
        delete_store: inputs
            .pods
            .iter()
            .any(|pod| pod.node == STORE_NODE && !pod.deleting),
        delete_run: left.is_some_and(|left| left.is_zero()),
        wake: left.into_iter().chain(kept).min(),
        ..Decision::new(Stage::Unchanged)
    }
}

/// Ends the run as its conductor has ended.
fn finish(outcome: &RunOutcome) -> Decision {
    let conclusion = &outcome.conclusion;
    Decision::new(Stage::Ending {
        reason: conclusion.reason.into(),
        message: conclusion.message.clone(),
        outcome: Some(Box::new(outcome.clone())),
    })
}

/// Resumes a run whose trials were in progress, and whose conductor no longer exists.
fn resume(plan: &Plan, inputs: &Inputs<'_>) -> Decision {
    let left = inputs.run_time_left();
    let all_ready = count_ready(plan, &inputs.pods) == plan.nodes.len() && is_store_ready(inputs);
    let missing = Missing::of(plan, inputs);
    let is_hopeless = has_lost_store(inputs) || !missing.given_up.is_empty();
    let decision = Decision {
        command: match (all_ready, left.is_zero() || is_hopeless) {
            (true, false) => ConductorCommand::Start,
            (_, true) => ConductorCommand::Conclude,
            (false, false) => ConductorCommand::None,
        },
        wake: Some(if left.is_zero() { OVERTIME_PAUSE } else { left }),
        ..Decision::new(Stage::Running(last_progress(inputs.status)))
    };
    decision.with_pods(missing, inputs)
}

/// Starts the nodes of a run that has run no trial, or its trials once all nodes are ready.
fn provision(plan: &Plan, inputs: &Inputs<'_>) -> Decision {
    let pods = &inputs.pods;
    let ready = count_ready(plan, pods);
    if ready == plan.nodes.len() && is_store_ready(inputs) {
        return Decision {
            command: ConductorCommand::Start,
            wake: Some(inputs.run_time_left()),
            ..Decision::new(Stage::Running(Progress::default()))
        };
    }
    let missing = Missing::of(plan, inputs);
    if let Some((node, Cause { reason, message })) = unstartable_node(&missing, inputs) {
        let times = inputs.own.starts.ended_pod_count(node);
        return Decision::end(*reason, format!("{message} (tried {times} times)"));
    }
    let cause = first_cause(plan, inputs);
    let left = inputs.provision_time_left();
    if left.is_zero() {
        return provision_timeout(plan, ready, cause, inputs);
    }
    let decision = Decision {
        wake: Some(left),
        ..Decision::new(Stage::Provisioning { ready, cause })
    };
    decision.with_pods(missing, inputs)
}

/// The node that is unlikely to start, and why. `None` if all may.
fn unstartable_node<'a>(missing: &'a Missing, inputs: &'a Inputs<'_>) -> Option<(&'a str, &'a Cause)> {
    let tried = |pod: &&NodePod| inputs.own.starts.crash_count(&pod.node) >= CRASHES_MAX;
    let crashed = inputs.pods.iter().filter(tried).find_map(|pod| match &pod.state {
        PodState::Gone(cause) if cause.reason == Reason::NodeCrashed => Some((&*pod.node, cause)),
        _ => None,
    });
    let mut given_up = missing.given_up.iter();
    crashed.or_else(|| given_up.next().map(|(node, why)| (&**node, why)))
}

fn provision_timeout(plan: &Plan, ready: usize, cause: Option<Cause>, inputs: &Inputs<'_>) -> Decision {
    let cause = cause.or_else(|| last_refusal(inputs.status));
    let cause = cause.or_else(|| {
        // The kubelet reports a claim or a Secret that does not exist in events only.
        let why = "the pod that keeps results is not ready: `kubectl describe` shows its events";
        let waits_for_store = ready == plan.nodes.len() && !is_store_ready(inputs);
        waits_for_store.then(|| Cause::new(Reason::StoreNotReady, why))
    });
    let (reason, why) = cause.map_or((Reason::ProvisionTimeout, String::new()), |cause| {
        (cause.reason, format!(": {}", cause.message))
    });
    let (nodes, limit) = (plan.nodes.len(), Duration::from(inputs.spec.timeouts.provision));
    let message = format!("{ready} of {nodes} nodes were ready within timeouts.provision, {limit:?}{why}");
    Decision::end(reason, message)
}

/// The refusal in the status: an object that was not created cannot report it.
fn last_refusal(status: &PerfRunStatus) -> Option<Cause> {
    let provisioned = condition::find(&status.conditions, Type::Provisioned)?;
    let reason = REFUSALS
        .into_iter()
        .find(|reason| provisioned.reason == reason.as_ref())?;
    Some(Cause::new(reason, provisioned.message.clone()))
}

fn count_ready(plan: &Plan, pods: &[NodePod]) -> usize {
    let is_ready = |node: &&PlannedNode| ready_pod(pods, &node.name).is_some();
    plan.nodes.iter().filter(is_ready).count()
}

/// Whether the pod that keeps results is ready, if the run needs one.
fn is_store_ready(inputs: &Inputs<'_>) -> bool {
    inputs.spec.store().is_none() || ready_pod(&inputs.pods, STORE_NODE).is_some()
}

/// Why the first node without a ready pod has none, if its pod shows that.
fn first_cause(plan: &Plan, inputs: &Inputs<'_>) -> Option<Cause> {
    let nodes = plan.nodes.iter().map(|node| node.name.as_str());
    nodes
        .chain(inputs.spec.store().map(|_| STORE_NODE))
        .find_map(|node| match &latest_pod(&inputs.pods, node)?.state {
            PodState::Stuck(cause) | PodState::Gone(cause) => Some(cause.clone()),
            PodState::Starting | PodState::Ready(_) => None,
        })
}

/// The pod of a node that was created last.
fn latest_pod<'a>(pods: &'a [NodePod], node: &str) -> Option<&'a NodePod> {
    let of_node = pods.iter().filter(|pod| pod.node == node);
    of_node.max_by_key(|pod| pod.incarnation)
}

/// Whether the run lacks the pod that keeps results, and had too many.
fn has_lost_store(inputs: &Inputs<'_>) -> bool {
    inputs.spec.store().is_some()
        && live_pod(&inputs.pods, STORE_NODE).is_none()
        && inputs.own.starts.next_incarnation(STORE_NODE) >= STORE_STARTS_MAX
}

/// The pods that a run lacks.
#[derive(Default)]
struct Missing {
    /// Those to create now. Clients come last, because they are scheduled where the other nodes leave room,
    /// see `build::pod`.
    create: Vec<NewPod>,
    /// The incarnation of the pod that keeps results.
    create_store: Option<u32>,
    /// When the next pod is due.
    due: Option<Duration>,
    /// Why nodes get no other pod, by node.
    given_up: BTreeMap<String, Cause>,
}

impl Missing {
    fn of(plan: &Plan, inputs: &Inputs<'_>) -> Self {
        let mut missing = Self::default();
        for node in &plan.nodes {
            if let Some(incarnation) = missing.due_incarnation(&node.name, inputs) {
                missing.create.push(NewPod {
                    node: node.clone(),
                    incarnation,
                    avoid: inputs.lost_on.get(&node.name).cloned(),
                });
            }
        }
        missing.create.sort_by_key(|pod| pod.node.role == Role::Client);
        missing.create_store = missing.due_incarnation_of_store(inputs);
        missing
    }

    /// The incarnation to create now of the pod that keeps results.
    fn due_incarnation_of_store(&mut self, inputs: &Inputs<'_>) -> Option<u32> {
        let is_needed = inputs.spec.store().is_some() && !has_lost_store(inputs);
        is_needed
            .then(|| self.due_incarnation(STORE_NODE, inputs))
            .flatten()
    }

    /// The incarnation of a node to create now. `None` if it needs none now.
    fn due_incarnation(&mut self, node: &str, inputs: &Inputs<'_>) -> Option<u32> {
        if live_pod(&inputs.pods, node).is_some() {
            return None;
        }
        match inputs.own.starts.next(node, inputs.instant) {
            NextStart::Now(incarnation) => return Some(incarnation),
            NextStart::In(pause) => self.due = self.due.into_iter().chain([pause]).min(),
            NextStart::Never => {
                let why = match latest_pod(&inputs.pods, node).map(|pod| &pod.state) {
                    Some(PodState::Gone(cause)) => cause.clone(),
                    _ => Cause::new(
                        EndReason::NodeLost,
                        format!("the pods of node {node} no longer exist"),
                    ),
                };
                self.given_up.insert(node.to_owned(), why);
            }
        }
        None
    }
}

/// UIDs of the pods that have ended and that others have replaced. The last of each node stays, for its log.
fn replaced_pods(pods: &[NodePod]) -> Vec<String> {
    let is_last = |pod: &NodePod| {
        let mut ended = pods
            .iter()
            .filter(|other| other.node == pod.node && !other.is_alive());
        !ended.any(|other| other.incarnation > pod.incarnation)
    };
    let replaced = pods
        .iter()
        .filter(|pod| !pod.is_alive() && !pod.deleting && !is_last(pod));
    replaced.map(|pod| pod.uid.clone()).collect()
}

#[cfg(test)]
mod tests;
