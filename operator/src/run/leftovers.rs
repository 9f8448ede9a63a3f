//! Pods that runs have left behind. While they stop, they use CPU time and links, so that an exclusive run
//! waits for them.
//!
//! Only pods count that a run had when it gave up its turn, or that this process had created just before. If
//! labels and owners of pods counted, anybody who may create pods could keep the exclusive runs of other
//! namespaces waiting.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use kube::{ResourceExt, runtime::reflector::Store};
use parking_lot::Mutex;
use perfrun_api::{pod::PodState, spec::Timeouts};
use tokio::time::Instant;

use crate::{api::watched::WatchedPod, build::pod::STOP_TIMEOUT_SECONDS};

/// How long pods may take to stop. Those on a Kubernetes node that is lost never do.
pub(crate) const STOP_TIMEOUT: Duration = Duration::from_secs(STOP_TIMEOUT_SECONDS.cast_unsigned() + 20);

/// How long the watch may take to show a pod that this process has created.
const SHOWN_TIMEOUT: Duration = Duration::from_secs(10);

/// The pods that runs have left behind.
pub(crate) struct Leftovers {
    /// Pods, as the watch shows them.
    pods: Store<WatchedPod>,
    /// When this operator began to lead. It does not know what runs have left behind before.
    begun: Instant,
    known: Mutex<Known>,
}

/// What is known of runs, by their UIDs.
#[derive(Default)]
struct Known {
    left: BTreeMap<String, LeftPods>,
    /// How long the turn of a run may last.
    longest_turns: BTreeMap<String, Duration>,
    /// The pods that this process has created last.
    created: BTreeMap<String, Vec<CreatedPod>>,
}

impl Known {
    /// Forgets what runs have left behind that no longer counts.
    fn forget_over(&mut self, now: Instant) {
        self.left
            .retain(|_, left| now < left.stopping_until.max(left.living_until));
    }
}

/// A pod that the watch may not show yet.
struct CreatedPod {
    namespace: String,
    name: String,
    awaited_until: Instant,
}

impl CreatedPod {
    fn is(&self, pod: &WatchedPod) -> bool {
        let WatchedPod { metadata, .. } = pod;
        metadata.name.as_ref() == Some(&self.name) && metadata.namespace.as_ref() == Some(&self.namespace)
    }

    fn is_in(&self, pods: &[Arc<WatchedPod>]) -> bool {
        pods.iter().any(|pod| self.is(pod))
    }
}

/// What a run has left behind.
struct LeftPods {
    /// UIDs of its pods.
    pods: BTreeSet<String>,
    /// Pods of the run that the watch did not show yet when the run gave up its turn.
    unseen: Vec<CreatedPod>,
    /// Until when pods count that are being deleted.
    stopping_until: Instant,
    /// Until when pods count that nobody has deleted.
    living_until: Instant,
}

impl LeftPods {
    fn counts(&self, pod: &WatchedPod, now: Instant) -> bool {
        let uid = pod.metadata.uid.as_ref();
        let is_own = uid.is_some_and(|uid| self.pods.contains(uid));
        if !is_own && !self.unseen.iter().any(|created| created.is(pod)) {
            return false;
        }
        if is_stopping(pod) {
            return now < self.stopping_until;
        }
        now < self.living_until && !matches!(pod.state, PodState::Gone(_))
    }
}

/// How long the turn of a run may last.
pub(crate) fn longest_turn(timeouts: &Timeouts) -> Duration {
    Duration::from(timeouts.provision).saturating_add(timeouts.run.into())
}

fn is_stopping(pod: &WatchedPod) -> bool {
    pod.metadata.deletion_timestamp.is_some()
}

impl Leftovers {
    /// Leftovers of runs, none of which has left anything behind yet.
    pub(crate) fn new(pods: Store<WatchedPod>) -> Self {
        Self {
            pods,
            begun: Instant::now(),
            known: Mutex::default(),
        }
    }

    /// Notes how long the turn of a run may last.
    pub(crate) fn note_turn(&self, uid: &str, timeouts: &Timeouts) {
        let longest = longest_turn(timeouts);
        self.known.lock().longest_turns.insert(uid.to_owned(), longest);
    }

    /// Notes that this process has created a pod of a run.
    pub(crate) fn note_created(&self, uid: &str, namespace: &str, name: String) {
        let now = Instant::now();
        let mut known = self.known.lock();
        let created = known.created.entry(uid.to_owned()).or_default();
        created.retain(|pod| now < pod.awaited_until);
        created.push(CreatedPod {
            namespace: namespace.to_owned(),
            name,
            awaited_until: now + SHOWN_TIMEOUT,
        });
    }

    /// Adds the pods of a run that gives up its turn. Those that nobody deletes count for `living`, and for
    /// as long as its turn might have lasted if that is `None`: a trial may still be in progress.
    pub(crate) fn add(&self, uid: &str, living: Option<Duration>) {
        let shown = self.pods.state();
        let is_own = |pod: &&Arc<WatchedPod>| pod.owner_references().iter().any(|owner| owner.uid == uid);
        let pods: BTreeSet<_> = shown.iter().filter(is_own).filter_map(|pod| pod.uid()).collect();
        let now = Instant::now();
        let mut known = self.known.lock();
        known.forget_over(now);
        let living = living.or_else(|| known.longest_turns.get(uid).copied());
        let mut unseen = known.created.remove(uid).unwrap_or_default();
        unseen.retain(|pod| now < pod.awaited_until && !pod.is_in(&shown));
        if !pods.is_empty() || !unseen.is_empty() {
            let left = LeftPods {
                pods,
                unseen,
                stopping_until: now + STOP_TIMEOUT,
                living_until: now + living.unwrap_or(STOP_TIMEOUT),
            };
            known.left.insert(uid.to_owned(), left);
        }
    }

    /// Whether pods of earlier runs are still there, in one namespace or in all.
    pub(crate) fn are_in(&self, namespace: Option<&str>) -> bool {
        let now = Instant::now();
        let is_new = now < self.begun + STOP_TIMEOUT;
        let mut known = self.known.lock();
        known.forget_over(now);
        if !is_new && known.left.is_empty() {
            return false;
        }
        let shown = self.pods.state();
        let is_near = |of: Option<&str>| namespace.is_none() || of == namespace;
        let counts = |pod: &Arc<WatchedPod>| {
            let is_known = || known.left.values().any(|left| left.counts(pod, now));
            is_near(pod.metadata.namespace.as_deref()) && (is_new && is_stopping(pod) || is_known())
        };
        let mut unseen = known.left.values().flat_map(|left| &left.unseen);
        let is_awaited = |pod: &CreatedPod| {
            is_near(Some(pod.namespace.as_str())) && now < pod.awaited_until && !pod.is_in(&shown)
        };
        shown.iter().any(counts) || unseen.any(is_awaited)
    }

    /// Forgets a pod that no longer exists. Returns whether it was the last that a run had left behind.
    pub(crate) fn remove_pod(&self, uid: &str) -> bool {
        let mut known = self.known.lock();
        known.forget_over(Instant::now());
        let before = known.left.len();
        known.left.retain(|_, left| {
            left.pods.remove(uid);
            !left.pods.is_empty() || !left.unseen.is_empty()
        });
        known.left.len() < before
    }

    /// Forgets a run that no longer exists, except the pods that it has left behind: they may still exist.
    pub(crate) fn remove_run(&self, uid: &str) {
        let mut known = self.known.lock();
        known.longest_turns.remove(uid);
        known.created.remove(uid);
    }
}

#[cfg(test)]
mod tests {
    use kube::runtime::{reflector, watcher};
    use serde_json::json;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn pods_whose_time_is_over_are_forgotten_at_each_call() {
        let calls: [fn(&Leftovers) -> bool; 2] = [
            |leftovers| leftovers.are_in(None),
            |leftovers| leftovers.remove_pod("uid-of-a-pod"),
        ];
        for call in calls {
            let (pods, mut writer) = reflector::store::<WatchedPod>();
            let owner =
                json!({"apiVersion": "perfrun.io/v1alpha1", "kind": "PerfRun", "name": "a", "uid": "a"});
            let pod = json!({"metadata": {"name": "a-pod", "namespace": "bench", "uid": "uid-of-a-pod",
                "ownerReferences": [owner]}});
            let pod = serde_json::from_value(pod).unwrap();
            writer.apply_watcher_event(&watcher::Event::Apply(pod));
            let leftovers = Leftovers::new(pods);
            leftovers.add("a", None);
            assert!(leftovers.are_in(None));
            tokio::time::advance(STOP_TIMEOUT).await;
            assert!(!call(&leftovers));
            assert!(leftovers.known.lock().left.is_empty());
        }
    }
}
