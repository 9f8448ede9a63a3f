//! Whose turn it is: which run may start now, and which one comes next.

use std::{cell::LazyCell, collections::BTreeSet, sync::Arc, time::Duration};

use kube::{
    Resource, ResourceExt,
    core::ObjectMeta,
    runtime::reflector::{ObjectRef, Store},
};
use perfrun_api::spec::{PerfRun, PerfRunStatus, Timeouts};
use perfrun_contract::run::Phase;
use tokio::sync::mpsc::UnboundedSender;

use crate::{
    api::watched::{UnreadableRun, WatchedPod, WatchedRun},
    build::RunIdentity,
    pods::{NodePod, has_undeleted},
    policy::{ExclusivePer, Policy},
    run::{
        conditions::{has_ended, is_provisioning, is_running, phase},
        leftovers::{Leftovers, STOP_TIMEOUT, longest_turn},
        turn::{self, QueuedRun, TurnLimits, TurnState},
        turn_states::{Entries, Reservation, TurnStates},
    },
};

/// How long the watch may take to show the end of a run. A watch ends after five minutes at most, and the
/// next one shows what is there.
pub(crate) const END_SHOWN_TIMEOUT: Duration = Duration::from_secs(600);

/// The turns of all runs.
pub(crate) struct Turns {
    turn_states: TurnStates,
    leftovers: Leftovers,
    /// What documents may request.
    pub(crate) policy: Policy,
    max_active: usize,
    /// Runs, as the watch shows them.
    pub(crate) runs: Store<WatchedRun>,
    pods: Store<WatchedPod>,
    /// Wakes one run.
    wake: UnboundedSender<ObjectRef<WatchedRun>>,
}

impl Turns {
    /// Turns that no run has had yet. At most `max_active` runs have one at the same time.
    pub(crate) fn new(
        policy: Policy,
        max_active: usize,
        runs: Store<WatchedRun>,
        pods: Store<WatchedPod>,
        wake: UnboundedSender<ObjectRef<WatchedRun>>,
    ) -> Self {
        Self {
            turn_states: TurnStates::default(),
            leftovers: Leftovers::new(pods.clone()),
            policy,
            max_active,
            runs,
            pods,
            wake,
        }
    }

    /// The sender that wakes one run.
    pub(crate) fn waker(&self) -> UnboundedSender<ObjectRef<WatchedRun>> {
        self.wake.clone()
    }

    /// Reserves the turn of a run, unless another run prevents it. A run whose trials are in progress always
    /// keeps its turn. One that another operator has begun, as its pods show, keeps it unless that operator
    /// has let others begin.
    pub(crate) fn reserve(
        &self,
        run: &PerfRun,
        status: &PerfRunStatus,
        pods: &[NodePod],
    ) -> Result<Option<Reservation<'_>>, String> {
        let uid = run.uid().unwrap_or_default();
        let namespace = run.namespace().unwrap_or_default();
        let deleting = run.meta().deletion_timestamp.is_some();
        let is_over = has_ended(status) || self.turn_states.has_stood_back(&uid);
        // Of a run that this operator has begun, it knows whether it still has a turn.
        let is_begun = !is_over && has_undeleted(pods) && !self.is_reconciled(&uid);
        if is_begun {
            // Others wait for its pods if it does not continue.
            self.leftovers.note_turn(&uid, &run.spec.timeouts);
            self.leftovers.add(&uid, None);
        }
        if is_running(status) && !is_over && !deleting {
            self.turn_states.note_begun(&uid, &namespace);
        }
        if run.spec.suspend || run.spec.cancel || deleting || is_over {
            self.turn_states.note_reconciled(&uid);
            return Ok(None);
        }
        let reservation = self.turn_states.reserve(&uid, |entries| {
            if entries.turn_state(&uid) == Some(TurnState::Active) {
                return Ok(());
            }
            let runs = self.runs.state();
            let exclusive = run.spec.topology.exclusive;
            let this = queued_run(run.meta(), exclusive, &uid, TurnState::Waiting, entries);
            let others = self.queued_runs(&runs, entries);
            if is_begun {
                return turn::may_continue(&this, &others, self.limits());
            }
            turn::may_begin(&this, &others, self.limits())?;
            self.check_leftovers(run)
        })?;
        if is_begun {
            self.turn_states.note_begun(&uid, &namespace);
        }
        self.leftovers.note_turn(&uid, &run.spec.timeouts);
        Ok(Some(reservation))
    }

    fn is_reconciled(&self, uid: &str) -> bool {
        self.turn_states.read(|entries| entries.is_reconciled(uid))
    }

    /// Checks that no pods of earlier runs disturb a run.
    fn check_leftovers(&self, run: &PerfRun) -> Result<(), String> {
        let per_namespace = self.policy.exclusive_per == ExclusivePer::Namespace;
        let namespace = run.meta().namespace.as_deref().filter(|_| per_namespace);
        if run.spec.topology.exclusive && self.leftovers.are_in(namespace) {
            return Err("pods of an earlier run are still stopping".to_owned());
        }
        Ok(())
    }

    /// Notes that the run has an object, so that it keeps others waiting. After its first one, wakes the run
    /// that comes first now.
    pub(crate) fn note_begun(&self, run: &RunIdentity) {
        if self.turn_states.note_begun(&run.uid, &run.namespace) {
            self.wake_first();
        }
    }

    /// Notes that this process has created a pod of the run under this name.
    pub(crate) fn note_created(&self, run: &RunIdentity, name: String) {
        self.leftovers.note_created(&run.uid, &run.namespace, name);
    }

    /// Whether the run has objects.
    pub(crate) fn is_active(&self, uid: &str) -> bool {
        self.turn_states.is_active(uid)
    }

    /// Ends the turn of a run whose end was written, and wakes another run. Remembers the end, because the
    /// watch may not show it yet. `keeps_pods` is whether its pods stay: they do nothing.
    pub(crate) fn note_end(&self, uid: &str, keeps_pods: bool) {
        let living = if keeps_pods { Duration::ZERO } else { STOP_TIMEOUT };
        self.leave_pods(uid, Some(living));
        self.turn_states.note_end(uid);
        self.wake_first();
    }

    /// Ends the turn of a run whose end nobody can write, and wakes another run.
    pub(crate) fn note_stood_back(&self, uid: &str) {
        self.leave_pods(uid, Some(STOP_TIMEOUT));
        if self.turn_states.note_stood_back(uid) {
            self.wake_first();
        }
    }

    /// Whether the watch still has to show the end of a run. Otherwise, the end is forgotten. `shows_end` is
    /// whether the watch shows it.
    pub(crate) fn is_stale(&self, uid: &str, shows_end: bool) -> bool {
        let ended_for = self.turn_states.ended_for(uid);
        let is_stale = !shows_end && ended_for.is_some_and(|time| time < END_SHOWN_TIMEOUT);
        if !is_stale {
            self.turn_states.forget_end(uid);
        }
        is_stale
    }

    /// Gives the watch more time to show the end of a run, which is still written.
    pub(crate) fn renew_end(&self, uid: &str) {
        self.turn_states.note_end(uid);
    }

    /// Whether the watch has not shown the end of a run in time. If the API server does not show it either,
    /// somebody has overwritten it, and the run continues from what is written.
    pub(crate) fn is_end_overdue(&self, uid: &str) -> bool {
        let ended_for = self.turn_states.ended_for(uid);
        ended_for.is_some_and(|time| time >= END_SHOWN_TIMEOUT)
    }

    /// Notes that a run which cannot be read needs no turn. If another operator has begun it, its pods count
    /// as left behind, because its nodes may still measure. How long its turn may last is not known, except
    /// by default.
    pub(crate) fn leave_unreadable(&self, run: &UnreadableRun) {
        let uid = run.metadata.uid.as_deref().unwrap_or_default();
        if shows_nodes(run) && !self.is_reconciled(uid) {
            let longest = longest_turn(&Timeouts::default());
            self.leftovers.add(uid, Some(longest));
        }
        self.turn_states.note_reconciled(uid);
    }

    /// Forgets the turn of a run that no longer exists, and notes the pods that it leaves behind.
    pub(crate) fn remove(&self, uid: &str) {
        if !self.is_reconciled(uid) {
            // Another operator may have begun it.
            self.leftovers.add(uid, None);
        }
        self.turn_states.remove(uid);
        self.leftovers.remove_run(uid);
    }

    /// Forgets a pod that no longer exists. If it was the last that a run had left behind, wakes a waiting
    /// run.
    pub(crate) fn remove_pod(&self, pod: &WatchedPod) {
        if self
            .leftovers
            .remove_pod(pod.metadata.uid.as_deref().unwrap_or_default())
        {
            self.wake_first();
        }
    }

    /// Notes the pods that a run leaves behind if it has a turn, which it is about to give up. See
    /// [`Leftovers::add`].
    fn leave_pods(&self, uid: &str, living: Option<Duration>) {
        if self.is_active(uid) {
            self.leftovers.add(uid, living);
        }
    }

    /// Ends the turn of a run, so that another run may start. `keeps_pods` is whether the run has ended and
    /// its pods stay: they do nothing.
    pub(crate) fn give_up_turn(&self, uid: &str, keeps_pods: bool) {
        self.leave_pods(uid, keeps_pods.then_some(Duration::ZERO));
        if self.turn_states.give_up_turn(uid) {
            self.wake_first();
        }
    }

    /// UIDs of all runs that are known, except these.
    pub(crate) fn uids_except(&self, uids: &BTreeSet<String>) -> Vec<String> {
        self.turn_states.uids_except(uids)
    }

    /// Wakes the waiting run that comes first. It wakes the next one when it begins. Reconciling all waiting
    /// runs would delay the first.
    pub(crate) fn wake_first(&self) {
        if let Some(run) = self.first_waiting() {
            // Nobody listens when the operator ends.
            let _ = self.wake.send(run);
        }
    }

    /// The waiting run that comes first. `None` if no run waits.
    fn first_waiting(&self) -> Option<ObjectRef<WatchedRun>> {
        let runs = self.runs.state();
        let queued_runs = self.turn_states.read(|entries| self.queued_runs(&runs, entries));
        let first = turn::first_waiting(&queued_runs, self.limits())?;
        Some(ObjectRef::new(first.name).within(first.namespace))
    }

    fn limits(&self) -> TurnLimits<'_> {
        TurnLimits {
            max_active: self.max_active,
            policy: &self.policy,
        }
    }

    /// The runs that have a turn or wait for one.
    fn queued_runs<'a>(&self, runs: &'a [Arc<WatchedRun>], entries: &Entries) -> Vec<QueuedRun<'a>> {
        let owners = LazyCell::new(|| self.owners_of_pods());
        let queued_runs = runs.iter().filter_map(|run| {
            let meta = run.meta();
            let uid = meta.uid.as_deref()?;
            let (known, is_reconciled) = (entries.turn_state(uid), entries.is_reconciled(uid));
            let has_pods = || owners.contains(&(run.namespace().unwrap_or_default(), uid.to_owned()));
            let (exclusive, turn_state) = match &**run {
                WatchedRun::Readable(run, _) => {
                    let turn_state = turn_state(run, known, is_reconciled, has_pods)?;
                    (run.spec.topology.exclusive, turn_state)
                }
                // Until its own reconciliation notes the pods that it leaves.
                WatchedRun::Unreadable(_) if known == Some(TurnState::Active) => (false, TurnState::Active),
                WatchedRun::Unreadable(run) if shows_nodes(run) && !is_reconciled && has_pods() => {
                    (false, TurnState::Active)
                }
                WatchedRun::Unreadable(_) => return None,
            };
            Some(queued_run(meta, exclusive, uid, turn_state, entries))
        });
        queued_runs.collect()
    }

    /// Namespaces and UIDs of the owners of all pods that are not being deleted.
    fn owners_of_pods(&self) -> BTreeSet<(String, String)> {
        let pods = self.pods.state();
        let undeleted = pods
            .iter()
            .filter(|pod| pod.metadata.deletion_timestamp.is_none());
        let owners = undeleted.flat_map(|pod| {
            let namespace = pod.namespace().unwrap_or_default();
            let owners = pod.owner_references().iter();
            owners.map(move |owner| (namespace.clone(), owner.uid.clone()))
        });
        owners.collect()
    }
}

/// The state of a run's turn. `None` if the run needs none: it has ended, is suspended or is being deleted,
/// or the API server refuses its objects. `known` is what this process knows of the run.
///
/// A run that this process has not reconciled yet is about to continue. So it is active if it was starting
/// its nodes, although the watch may not show them. It is also active if it has pods, although its status may
/// not show that.
fn turn_state(
    run: &PerfRun,
    known: Option<TurnState>,
    is_reconciled: bool,
    has_pods: impl Fn() -> bool,
) -> Option<TurnState> {
    let status = run.status.as_ref();
    let is_provisioning = status.is_some_and(is_provisioning);
    match known {
        Some(TurnState::Ended | TurnState::StoodBack) => None,
        // Whatever the watch shows: its own reconciliation gives up the turn, and notes the pods that it
        // leaves.
        Some(known) => Some(known),
        None if run.meta().deletion_timestamp.is_some() || status.is_some_and(has_ended) => None,
        None if status.is_some_and(is_running) => Some(TurnState::Active),
        None if is_provisioning && !is_reconciled => Some(TurnState::Active),
        None if (is_provisioning || !is_reconciled) && has_pods() => Some(TurnState::Active),
        None if is_provisioning || run.spec.suspend => None,
        None => Some(TurnState::Waiting),
    }
}

/// Whether the status of a run that cannot be read shows that it has nodes. Only operators write statuses.
fn shows_nodes(run: &UnreadableRun) -> bool {
    matches!(phase(&run.conditions), Phase::Provisioning | Phase::Running)
}

fn queued_run<'a>(
    meta: &'a ObjectMeta,
    exclusive: bool,
    uid: &'a str,
    turn_state: TurnState,
    entries: &Entries,
) -> QueuedRun<'a> {
    let namespace = meta.namespace.as_deref().unwrap_or_default();
    let created = meta.creation_timestamp.as_ref();
    QueuedRun {
        created: created.map_or(i64::MAX, |time| time.0.as_second()),
        last_turn: entries.last_turn(namespace),
        namespace,
        name: meta.name.as_deref().unwrap_or_default(),
        uid,
        exclusive,
        turn_state,
    }
}
