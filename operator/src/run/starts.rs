//! How often pods of nodes have started in this process, which pods that no longer exist do not show: when a
//! node gets its next pod, and under which incarnation.

use std::{collections::BTreeMap, time::Duration};

use jiff::Timestamp;
use perfrun_api::{cluster::condition::Reason, planning::NODES_MAX, pod::PodState};
use tokio::time::Instant;

use crate::{names::INCARNATIONS_MAX, pods::NodePod, process::clock::elapsed};

/// How many pods in a row may end without having been ready. After that, another is unlikely to start.
const NEVER_READY_MAX: u32 = 5;

/// The longest pause before a node gets another pod, if its last one has been ready.
const LOSS_PAUSE_MAX: Duration = Duration::from_secs(10);

/// How long a loss makes the next pause longer.
const LOSS_COUNTS_FOR: Duration = Duration::from_secs(600);

/// How many nodes of a run are remembered because of pods that others have created: all that a plan may have,
/// and the one that keeps results. Anyone who may create pods can label them with other nodes.
const NODES_KNOWN_MAX: usize = NODES_MAX as usize + 1;

/// When a node gets its next pod.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum NextStart {
    /// Now, under this incarnation.
    Now(u32),
    /// After this pause.
    In(Duration),
    /// Another pod is unlikely to start.
    Never,
}

/// The starts of a run's nodes, by their names.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Starts(BTreeMap<String, NodeStarts>);

/// The starts of a node.
#[derive(Clone, Debug, PartialEq)]
struct NodeStarts {
    /// The incarnation of the pod that was created last.
    latest: u32,
    /// When that pod was created, by the clock of this process. Of a pod that another operator has created,
    /// the API server says it.
    since: Instant,
    /// Whether the watch has shown that pod.
    is_shown: bool,
    /// Whether that pod has been ready.
    was_ready: bool,
    /// Whether it has ended, or no longer exists.
    has_ended: bool,
    /// How many pods have ended.
    ended: u32,
    /// How many of them because the node exited.
    crashed: u32,
    /// How many of them in a row were never ready.
    never_ready: u32,
    /// When pods that had been ready have ended.
    losses: Vec<Instant>,
}

impl Starts {
    /// Notes the pods of a run that the watch shows now. `time` is the time of day.
    pub(crate) fn observe(&mut self, pods: &[NodePod], time: Timestamp, now: Instant) {
        let mut by_node = BTreeMap::<_, Vec<_>>::new();
        for pod in pods {
            by_node.entry(pod.node.as_str()).or_default().push(pod);
        }
        for (node, pods) in &by_node {
            let Some(newest) = pods.iter().max_by_key(|pod| pod.incarnation) else {
                continue;
            };
            let age = newest.created.map(|created| elapsed(created, time));
            let since = age.and_then(|age| now.checked_sub(age)).unwrap_or(now);
            let has_room = self.0.len() < NODES_KNOWN_MAX;
            match self.0.get_mut(*node) {
                Some(starts) if starts.latest < newest.incarnation => {
                    starts.note_ended(now);
                    starts.note_created(newest.incarnation, since);
                }
                Some(_) => {}
                // Another operator has created them.
                None if has_room => {
                    let before = pods.iter().filter(|pod| pod.incarnation < newest.incarnation);
                    let before: Vec<_> = before.collect();
                    let crashed = before.iter().filter(|pod| has_crashed(&pod.state)).count();
                    let starts = NodeStarts {
                        crashed: u32::try_from(crashed).unwrap_or(u32::MAX),
                        ..NodeStarts::new(newest.incarnation, since, before.len())
                    };
                    self.0.insert((*node).to_owned(), starts);
                }
                None => {}
            }
        }
        for (node, starts) in &mut self.0 {
            let latest = starts.latest;
            let mut pods = by_node.get(node.as_str()).into_iter().flatten();
            let pod = pods.find(|pod| pod.incarnation == latest);
            starts.is_shown |= pod.is_some();
            match pod.map(|pod| &pod.state) {
                Some(PodState::Ready(_)) => {
                    starts.was_ready = true;
                    starts.never_ready = 0;
                }
                Some(PodState::Starting | PodState::Stuck(_)) => {}
                Some(state @ PodState::Gone(_)) => {
                    let is_new = !starts.has_ended;
                    starts.crashed += u32::from(is_new && has_crashed(state));
                    starts.note_ended(now);
                }
                None if starts.is_awaited() => {}
                None => starts.note_ended(now),
            }
        }
    }

    /// Notes that this process has created a pod. The watch shows it later.
    pub(crate) fn note_created(&mut self, node: &str, incarnation: u32, now: Instant) {
        match self.0.get_mut(node) {
            Some(starts) if starts.latest < incarnation => {
                starts.note_ended(now);
                starts.note_created(incarnation, now);
            }
            Some(_) => {}
            None => {
                self.0
                    .insert(node.to_owned(), NodeStarts::new(incarnation, now, 0));
            }
        }
    }

    /// Notes that the latest pod of a node no longer exists, though the watch has never shown it.
    pub(crate) fn note_vanished(&mut self, node: &str, now: Instant) {
        if let Some(starts) = self.0.get_mut(node) {
            starts.note_ended(now);
        }
    }

    /// Whether a pod was created that the watch does not show yet.
    pub(crate) fn is_awaited(&self, node: &str, incarnation: u32) -> bool {
        let starts = self.0.get(node);
        starts.is_some_and(|starts| starts.latest == incarnation && starts.is_awaited())
    }

    /// When a node without a live pod gets one. The incarnation may be of a pod that the watch does not show
    /// yet.
    pub(crate) fn next(&self, node: &str, now: Instant) -> NextStart {
        let incarnation = self.next_incarnation(node);
        let Some(starts) = self.0.get(node) else {
            return NextStart::Now(incarnation);
        };
        if starts.is_awaited() {
            return NextStart::Now(incarnation);
        }
        if starts.never_ready >= NEVER_READY_MAX || incarnation > INCARNATIONS_MAX {
            return NextStart::Never;
        }
        let left = starts.pause(now).saturating_sub(now - starts.since);
        if left.is_zero() {
            NextStart::Now(incarnation)
        } else {
            NextStart::In(left)
        }
    }

    /// The next incarnation of a node. No name of a pod is used twice, even if the pod no longer exists.
    pub(crate) fn next_incarnation(&self, node: &str) -> u32 {
        self.0.get(node).map_or(0, |starts| {
            let has_ended = u32::from(!starts.is_awaited());
            starts.latest.saturating_add(has_ended)
        })
    }

    /// How many pods of a node have ended.
    pub(crate) fn ended_pod_count(&self, node: &str) -> u32 {
        self.0.get(node).map_or(0, |starts| starts.ended)
    }

    /// How many pods of a node have ended because the node exited.
    pub(crate) fn crash_count(&self, node: &str) -> u32 {
        self.0.get(node).map_or(0, |starts| starts.crashed)
    }

    /// Resets the failures of all nodes, and notes that their pods have ended: they are deleted, for example
    /// because the run is suspended. That is not their fault.
    pub(crate) fn reset_failures(&mut self) {
        for starts in self.0.values_mut() {
            starts.has_ended = true;
            (starts.ended, starts.crashed, starts.never_ready) = (0, 0, 0);
            starts.losses.clear();
        }
    }
}

impl NodeStarts {
    /// A node that has this pod, and had others `before`.
    fn new(latest: u32, since: Instant, before: usize) -> Self {
        let ended = u32::try_from(before).unwrap_or(u32::MAX);
        Self {
            latest,
            since,
            is_shown: false,
            was_ready: false,
            has_ended: false,
            ended,
            crashed: 0,
            never_ready: ended,
            losses: vec![],
        }
    }

    /// Notes another pod of the node.
    fn note_created(&mut self, incarnation: u32, since: Instant) {
        (self.latest, self.since) = (incarnation, since);
        (self.is_shown, self.was_ready, self.has_ended) = (false, false, false);
    }

    /// Whether the watch still has to show the latest pod.
    fn is_awaited(&self) -> bool {
        !self.is_shown && !self.has_ended
    }

    /// Counts the latest pod as ended, if it was not before. It may have ended a while ago.
    fn note_ended(&mut self, now: Instant) {
        if self.has_ended {
            return;
        }
        self.has_ended = true;
        self.ended += 1;
        if self.was_ready {
            self.losses.retain(|at| now - *at < LOSS_COUNTS_FOR);
            self.losses.push(now);
        } else {
            self.never_ready += 1;
        }
    }

    /// The pause between the latest pod and the next. The first loss of a node is made good immediately.
    fn pause(&self, now: Instant) -> Duration {
        let growing = |exponent| Duration::from_secs(2_u64.saturating_pow(exponent) - 1);
        if !self.was_ready {
            // Less than `NEVER_READY_MAX`, so that the pause is short.
            return growing(self.never_ready);
        }
        let losses = self.losses.iter();
        let losses = losses.filter(|at| now - **at < LOSS_COUNTS_FOR).count();
        let losses = u32::try_from(losses).unwrap_or(u32::MAX);
        growing(losses.saturating_sub(1)).min(LOSS_PAUSE_MAX)
    }
}

fn has_crashed(state: &PodState) -> bool {
    matches!(state, PodState::Gone(cause) if cause.reason == Reason::NodeCrashed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_that_no_plan_has_are_not_remembered_without_end() {
        let (time, now) = (Timestamp::UNIX_EPOCH, Instant::now());
        let pod = |number: usize| NodePod {
            name: format!("pod-{number}"),
            uid: format!("uid-of-{number}"),
            node: format!("node-{number}"),
            incarnation: 7,
            created: Some(time),
            deleting: false,
            state: PodState::Starting,
            foreign_containers: vec![],
        };
        let mut starts = Starts::default();
        for number in 0..2 * NODES_KNOWN_MAX {
            starts.observe(&[pod(number)], time, now);
        }
        assert_eq!(starts.0.len(), NODES_KNOWN_MAX);
        starts.note_created("server-0", 0, now);
        assert!(
            starts.is_awaited("server-0", 0),
            "a node of the run is remembered"
        );
    }
}
