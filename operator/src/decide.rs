//! What is to be done with a run now: a function of what is asked for, what is there, and the time.

use std::{collections::BTreeMap, time::Duration};

use jiff::{SignedDuration, Timestamp};
use perfrun_api::{
    cluster::condition,
    spec::{PerfRunSpec, PerfRunStatus},
};
use perfrun_contract::{
    node::Role,
    plan::{Plan, PlannedNode},
    run::Phase,
    summary::SummaryRow,
    tally::{Counts, Verdict},
};

use crate::{
    links::Links,
    observe::{NodePod, PodState, Trouble},
    plans::Planned,
    refusal::{REFUSED, UNSUPPORTED},
    status,
};

/// So often a node may end before all nodes were ready once; then it will not do better the next time.
const STARTS_MAX: u32 = 3;

/// Between two attempts to create a pod that the API server refuses: a quota may be raised, a namespace be relabelled.
const REFUSED_PAUSE: Duration = Duration::from_secs(5);

/// What is known when it is decided.
pub struct Facts<'a> {
    /// What is asked for.
    pub spec: &'a PerfRunSpec,
    /// What was said of the run before.
    pub status: &'a PerfRunStatus,
    /// What it comes to, as far as it is needed.
    pub planned: &'a Planned,
    /// Its pods.
    pub pods: &'a [NodePod],
    /// Its conductor in this process.
    pub task: Task,
    /// The Kubernetes nodes that nodes of the run were lost on.
    pub lost_on: &'a BTreeMap<String, String>,
    /// Now.
    pub now: Timestamp,
}

/// A run's conductor in this process.
#[derive(Clone, Debug, PartialEq)]
pub enum Task {
    /// There is none.
    None,
    /// It drives the nodes.
    Going(Progress),
    /// It has ended, and kept the results.
    Ended(Box<Outcome>),
}

/// How far a run's trials are.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Progress {
    /// Trials.
    pub counts: Counts,
    /// What is known of the links; nothing, if nobody here has looked yet.
    pub links: Links,
}

/// How a run's conductor ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// How the run ended.
    pub verdict: Verdict,
    /// How far it came.
    pub progress: Progress,
    /// Statistics.
    pub summary: Vec<SummaryRow>,
    /// Names of the ConfigMaps with the results.
    pub results: Vec<String>,
}

/// What is to be done, and what is to be said.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// Where the run stands.
    pub stage: Stage,
    /// Pods to create; before the first, what they need is made.
    pub create: Vec<NewPod>,
    /// Whether no pods are to be left.
    pub delete_pods: bool,
    /// What its conductor is to do.
    pub command: Command,
    /// Whether the run itself is to go.
    pub delete_run: bool,
    /// When to look again, if nothing changes.
    pub wake: Option<Duration>,
}

/// Where a run stands.
#[derive(Clone, Debug, PartialEq)]
pub enum Stage {
    /// It cannot be run as it is written.
    Rejected(Trouble),
    /// It may not begin yet.
    Held(Trouble),
    /// Its nodes are being started.
    Provisioning {
        /// Nodes that are ready.
        ready: usize,
        /// What keeps others from being so.
        trouble: Option<Trouble>,
    },
    /// Trials are being run.
    Running(Progress),
    /// It has ended.
    Ended {
        /// For programs: the reason of the condition Complete.
        reason: &'static str,
        /// For people.
        message: String,
        /// What came out, if its conductor was ever there.
        outcome: Option<Box<Outcome>>,
    },
    /// It had ended before.
    Over,
}

/// A pod to create.
#[derive(Clone, Debug, PartialEq)]
pub struct NewPod {
    /// The node that it is to be.
    pub node: PlannedNode,
    /// How many pods were this node before.
    pub incarnation: u32,
    /// The Kubernetes node that the one before was lost on, better not to be used.
    pub avoid: Option<String>,
}

/// What a run's conductor is to do.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Command {
    /// Go on.
    None,
    /// Begin, or take over.
    Start,
    /// Keep the results as they are.
    Conclude,
    /// Stop, and keep the results.
    Cancel,
    /// Not be there any more.
    Drop,
}

impl Decision {
    fn say(stage: Stage) -> Self {
        Self {
            stage,
            create: vec![],
            delete_pods: false,
            command: Command::None,
            delete_run: false,
            wake: None,
        }
    }

    /// Whether the run ends with it.
    pub fn ends(&self) -> bool {
        matches!(self.stage, Stage::Ended { .. })
    }

    fn end(reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            delete_pods: true,
            command: Command::Drop,
            ..Self::say(Stage::Ended {
                reason,
                message: message.into(),
                outcome: None,
            })
        }
    }
}

/// How much of its plan a run needs now.
#[derive(Clone, Debug, PartialEq)]
pub enum Need {
    /// It has ended.
    Nothing,
    /// It may not begin yet, and why: only its status tells of the plan.
    Outline(Trouble),
    /// It is active, or may be.
    Whole,
}

/// Decides how much of its plan a run needs; `turn` says whether it may begin beside the other runs, or what it waits for.
pub fn need(spec: &PerfRunSpec, status: &PerfRunStatus, task: &Task, turn: Result<(), String>) -> Need {
    let has_begun = *task != Task::None || status::since(status, condition::RUNNING, "True").is_some();
    let held = |reason, message| Need::Outline(Trouble { reason, message });
    match turn {
        _ if status::has_ended(status) => Need::Nothing,
        _ if has_begun || spec.cancel => Need::Whole,
        _ if spec.suspend => held("Suspended", "set spec.suspend to false to begin".to_owned()),
        Err(why) => held("WaitingForOtherRuns", why),
        Ok(()) => Need::Whole,
    }
}

/// Decides.
pub fn decide(facts: &Facts<'_>) -> Decision {
    let Facts {
        spec, status, task, ..
    } = facts;
    let plan = match facts.planned {
        Planned::Over => return over(facts),
        Planned::Refused(why) => {
            return Decision::say(Stage::Rejected(Trouble {
                reason: "Invalid",
                message: why.clone(),
            }));
        }
        Planned::Held(_, trouble) => {
            return Decision {
                delete_pods: any_to_delete(facts.pods),
                ..Decision::say(Stage::Held(trouble.clone()))
            };
        }
        Planned::Whole(_, plan) => plan,
    };
    let running_since = status::since(status, condition::RUNNING, "True");
    match task {
        Task::Ended(outcome) => ended(outcome, facts),
        Task::Going(progress) => Decision {
            command: if spec.cancel {
                Command::Cancel
            } else {
                Command::None
            },
            create: missing(plan, facts),
            ..Decision::say(Stage::Running(progress.clone()))
        },
        Task::None => match running_since {
            Some(_) if spec.cancel => Decision {
                command: Command::Conclude,
                ..Decision::say(Stage::Running(counted(status)))
            },
            Some(since) => take_over(plan, facts, since),
            None if spec.cancel => Decision::end("Cancelled", "cancelled before it began"),
            None => begin(plan, facts),
        },
    }
}

/// What becomes of a decision whose pods the API server refuses.
pub fn refused(decision: Decision, trouble: Trouble, facts: &Facts<'_>) -> Decision {
    let again = |stage| Decision {
        wake: Some(
            decision
                .wake
                .map_or(REFUSED_PAUSE, |wake| wake.min(REFUSED_PAUSE)),
        ),
        ..Decision::say(stage)
    };
    match decision.stage {
        // Waiting would not help: the same pods would be refused for the same rights.
        Stage::Provisioning { .. } if trouble.reason == UNSUPPORTED => {
            failed(facts, UNSUPPORTED, trouble.message)
        }
        Stage::Provisioning { ready, .. } => again(Stage::Provisioning {
            ready,
            trouble: Some(trouble),
        }),
        // The conductor waits for the pod, and says so in the end.
        stage => again(stage),
    }
}

/// A run that has ended needs nothing, but perhaps to be cleaned up.
fn over(facts: &Facts<'_>) -> Decision {
    let Facts { spec, status, .. } = facts;
    let cleanup = &spec.cleanup;
    let failed = status.phase == Some(Phase::Failed);
    let ttl = if status.phase == Some(Phase::Succeeded) {
        cleanup.ttl_seconds_after_success
    } else {
        cleanup.ttl_seconds_after_failure
    };
    let left = ttl.map(|ttl| {
        let ended = status.completion_time.as_ref().map_or(facts.now, |time| time.0);
        Duration::from_secs(ttl.into()).saturating_sub(elapsed(ended, facts.now))
    });
    Decision {
        delete_pods: !(failed && cleanup.keep_pods_on_failure) && any_to_delete(facts.pods),
        command: Command::Drop,
        delete_run: left.is_some_and(|left| left.is_zero()),
        wake: left,
        ..Decision::say(Stage::Over)
    }
}

/// The conductor's end is the run's.
fn ended(outcome: &Outcome, facts: &Facts<'_>) -> Decision {
    let Verdict {
        phase,
        reason,
        message,
    } = &outcome.verdict;
    let keep = facts.spec.cleanup.keep_pods_on_failure && *phase == Phase::Failed;
    Decision {
        delete_pods: !keep,
        command: Command::Drop,
        ..Decision::say(Stage::Ended {
            reason: reason.into(),
            message: message.clone(),
            outcome: Some(Box::new(outcome.clone())),
        })
    }
}

/// Trials have been run, and whoever ran them is gone.
fn take_over(plan: &Plan, facts: &Facts<'_>, since: Timestamp) -> Decision {
    let limit = Duration::from(facts.spec.timeouts.run);
    let left = limit.saturating_sub(elapsed(since, facts.now));
    let all_ready = ready(plan, facts.pods) == plan.nodes.len();
    Decision {
        create: missing(plan, facts),
        command: match (all_ready, left.is_zero()) {
            (true, false) => Command::Start,
            (_, true) => Command::Conclude,
            (false, false) => Command::None,
        },
        wake: Some(left),
        ..Decision::say(Stage::Running(counted(facts.status)))
    }
}

/// Nothing was run yet.
fn begin(plan: &Plan, facts: &Facts<'_>) -> Decision {
    let Facts {
        spec,
        status,
        pods,
        now,
        ..
    } = facts;
    let ready = ready(plan, pods);
    if ready == plan.nodes.len() {
        return Decision {
            command: Command::Start,
            ..Decision::say(Stage::Running(Progress::default()))
        };
    }
    let trouble = trouble(plan, pods);
    let hopeless = pods
        .iter()
        .filter(|pod| pod.incarnation + 1 >= STARTS_MAX)
        .find_map(|pod| match &pod.state {
            PodState::Gone(trouble) if trouble.reason == "NodeCrashed" => Some(trouble),
            _ => None,
        });
    if let Some(Trouble { reason, message }) = hopeless {
        return failed(facts, reason, format!("{message} (tried {STARTS_MAX} times)"));
    }
    let limit = Duration::from(spec.timeouts.provision);
    let since = status::since(status, condition::PROVISIONED, "False").unwrap_or(*now);
    let left = limit.saturating_sub(elapsed(since, *now));
    if left.is_zero() {
        let trouble = trouble.or_else(|| last_refusal(status));
        let (reason, why) = trouble.map_or(("ProvisionTimeout", String::new()), |trouble| {
            (trouble.reason, format!(": {}", trouble.message))
        });
        let message = format!(
            "{ready} of {} nodes were ready within timeouts.provision, {limit:?}{why}",
            plan.nodes.len()
        );
        return failed(facts, reason, message);
    }
    Decision {
        create: missing(plan, facts),
        wake: Some(left),
        ..Decision::say(Stage::Provisioning { ready, trouble })
    }
}

/// What the status says of pods that the API server refused: there are none that could say it.
fn last_refusal(status: &PerfRunStatus) -> Option<Trouble> {
    let mut conditions = status.conditions.iter();
    let said = conditions.find(|said| said.type_ == condition::PROVISIONED && said.reason == REFUSED)?;
    Some(Trouble {
        reason: REFUSED,
        message: said.message.clone(),
    })
}

fn failed(facts: &Facts<'_>, reason: &'static str, message: String) -> Decision {
    Decision {
        delete_pods: !facts.spec.cleanup.keep_pods_on_failure,
        ..Decision::end(reason, message)
    }
}

/// The pod that is a node now: the latest that is alive.
pub fn alive<'a>(pods: &'a [NodePod], node: &str) -> Option<&'a NodePod> {
    pods.iter()
        .filter(|pod| pod.node == node && pod.is_alive())
        .max_by_key(|pod| pod.incarnation)
}

fn any_to_delete(pods: &[NodePod]) -> bool {
    pods.iter().any(|pod| !pod.deleting)
}

fn ready(plan: &Plan, pods: &[NodePod]) -> usize {
    let is_ready = |node: &&PlannedNode| {
        alive(pods, &node.name).is_some_and(|pod| matches!(pod.state, PodState::Ready(_)))
    };
    plan.nodes.iter().filter(is_ready).count()
}

/// The first thing that keeps a node from being ready.
fn trouble(plan: &Plan, pods: &[NodePod]) -> Option<Trouble> {
    plan.nodes.iter().find_map(|node| {
        match &pods
            .iter()
            .filter(|pod| pod.node == node.name)
            .max_by_key(|pod| pod.incarnation)?
            .state
        {
            PodState::Stuck(trouble) | PodState::Gone(trouble) => Some(trouble.clone()),
            PodState::Starting | PodState::Ready(_) => None,
        }
    })
}

/// Pods for the nodes that have none. Clients come last: they are to find the place that others leave, see
/// `build::pod`.
fn missing(plan: &Plan, facts: &Facts<'_>) -> Vec<NewPod> {
    let new = |node: &PlannedNode| {
        let before = facts.pods.iter().filter(|pod| pod.node == node.name);
        let last = before.max_by_key(|pod| pod.incarnation);
        NewPod {
            node: node.clone(),
            incarnation: last.map_or(0, |pod| pod.incarnation + 1),
            avoid: facts.lost_on.get(&node.name).cloned(),
        }
    };
    let mut missing: Vec<_> = plan
        .nodes
        .iter()
        .filter(|node| alive(facts.pods, &node.name).is_none())
        .map(new)
        .collect();
    missing.sort_by_key(|pod| pod.node.role == Role::Client);
    missing
}

/// What the status last said of trials.
fn counted(status: &PerfRunStatus) -> Progress {
    Progress {
        counts: status::counts(status),
        links: Links::default(),
    }
}

/// Clocks of API servers differ a little: a moment in the future has just been.
fn elapsed(since: Timestamp, now: Timestamp) -> Duration {
    now.duration_since(since).max(SignedDuration::ZERO).unsigned_abs()
}

#[cfg(test)]
mod tests;
