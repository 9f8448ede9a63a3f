//! Whose turn it is: which run may start now, and which one goes next.

use std::{collections::BTreeSet, sync::Arc};

use k8s_openapi::api::core::v1::Pod;
use kube::{
    Resource, ResourceExt,
    runtime::reflector::{ObjectRef, Store},
};
use perfrun_api::spec::{PerfRun, PerfRunStatus};
use tokio::sync::mpsc::UnboundedSender;

use crate::{
    build::RunIdentity,
    policy::Policy,
    run::{
        conditions::{has_ended, is_provisioning, is_running},
        ledger::{Claim, Entries, Ledger},
        pods::{self, NodePod},
        turn::{self, Contender, Limits, Standing},
        watched::WatchedRun,
    },
};

/// The turns of all runs.
pub(crate) struct Turns {
    ledger: Ledger,
    /// What documents may request.
    pub(crate) policy: Policy,
    max_active: usize,
    /// Runs, as the watch shows them.
    pub(crate) runs: Store<WatchedRun>,
    pods: Store<Pod>,
    /// Wakes one run.
    wake: UnboundedSender<ObjectRef<WatchedRun>>,
}

impl Turns {
    /// No run has had a turn yet. At most `max_active` runs have one at the same time.
    pub(crate) fn new(
        policy: Policy,
        max_active: usize,
        runs: Store<WatchedRun>,
        pods: Store<Pod>,
        wake: UnboundedSender<ObjectRef<WatchedRun>>,
    ) -> Self {
        Self {
            ledger: Ledger::default(),
            policy,
            max_active,
            runs,
            pods,
            wake,
        }
    }

    /// Wakes one run.
    pub(crate) fn waker(&self) -> UnboundedSender<ObjectRef<WatchedRun>> {
        self.wake.clone()
    }

    /// The turn of a run, unless another run prevents it. A run that has objects keeps its turn without
    /// asking.
    pub(crate) fn claim(
        &self,
        run: &PerfRun,
        status: &PerfRunStatus,
        pods: &[NodePod],
    ) -> Result<Option<Claim<'_>>, String> {
        let needs_none = run.spec.suspend || run.spec.cancel || run.meta().deletion_timestamp.is_some();
        if needs_none || has_ended(status) {
            return Ok(None);
        }
        let uid = run.uid().unwrap_or_default();
        if is_running(status) || are_in_use(pods) {
            self.ledger.begin(&uid, &run.namespace().unwrap_or_default());
        }
        let claim = self.ledger.claim(&uid, |ledger| {
            if ledger.standing(&uid) == Some(Standing::Active) {
                return Ok(());
            }
            let runs = self.runs.state();
            let this = contender(run, &uid, Standing::Waiting, ledger);
            turn::may_begin(&this, &self.contenders(&runs, ledger), self.limits())
        })?;
        Ok(Some(claim))
    }

    /// The run has an object: from its first one on, it is in the way of others, and another of them goes
    /// first.
    pub(crate) fn begin(&self, run: &RunIdentity) {
        if self.ledger.begin(&run.uid, &run.namespace) {
            self.wake_first();
        }
    }

    /// Whether the run has objects.
    pub(crate) fn is_active(&self, uid: &str) -> bool {
        self.ledger.is_active(uid)
    }

    /// The end of the run has been written, and another run may start. The watch may not show it yet.
    pub(crate) fn end(&self, uid: &str) {
        self.ledger.end(uid);
        self.wake_first();
    }

    /// Whether the watch still has to show the end of a run. `ended` is whether it shows it.
    pub(crate) fn is_stale(&self, uid: &str, ended: bool) -> bool {
        if ended {
            self.ledger.end_is_visible(uid);
        }
        !ended && self.ledger.has_ended(uid)
    }

    /// The run no longer exists.
    pub(crate) fn remove(&self, uid: &str) {
        self.ledger.end_is_visible(uid);
    }

    /// Ends the turn of a run, so that another run may start.
    pub(crate) fn stand_back(&self, uid: &str) {
        if self.ledger.stand_back(uid) {
            self.wake_first();
        }
    }

    /// UIDs of all runs that have had a turn, except these.
    pub(crate) fn others_than(&self, uids: &BTreeSet<String>) -> Vec<String> {
        self.ledger.others_than(uids)
    }

    /// Wakes the waiting run that goes first. It wakes the next one when it begins. Passes over all waiting
    /// runs would delay the first.
    pub(crate) fn wake_first(&self) {
        if let Some(run) = self.first() {
            // Nobody listens when the operator ends.
            let _ = self.wake.send(run);
        }
    }

    /// The waiting run that goes first. `None` if no run waits.
    fn first(&self) -> Option<ObjectRef<WatchedRun>> {
        let runs = self.runs.state();
        let contenders = self.ledger.read(|ledger| self.contenders(&runs, ledger));
        let first = turn::first(&contenders, self.limits())?;
        Some(ObjectRef::new(first.name).within(first.namespace))
    }

    fn limits(&self) -> Limits<'_> {
        Limits {
            max_active: self.max_active,
            policy: &self.policy,
        }
    }

    /// The runs that are in the way of others.
    fn contenders<'a>(&self, runs: &'a [Arc<WatchedRun>], ledger: &Entries) -> Vec<Contender<'a>> {
        let contenders = runs.iter().filter_map(|run| {
            let run = run.readable()?;
            let uid = run.meta().uid.as_deref()?;
            let standing = standing(run, ledger.standing(uid), || self.has_pods(run))?;
            Some(contender(run, uid, standing, ledger))
        });
        contenders.collect()
    }

    fn has_pods(&self, run: &PerfRun) -> bool {
        RunIdentity::of(run).is_some_and(|identity| are_in_use(&pods::of_run(&identity, &self.pods)))
    }
}

/// How a run stands in the way of others. `None` if it does not: it has ended, is suspended or is being
/// deleted, or the API server refuses its objects. `known` is what this process knows of the run.
fn standing(run: &PerfRun, known: Option<Standing>, has_pods: impl FnOnce() -> bool) -> Option<Standing> {
    let status = run.status.as_ref();
    if run.meta().deletion_timestamp.is_some() || status.is_some_and(has_ended) {
        return None;
    }
    match known {
        Some(Standing::Ended) => None,
        Some(known) => Some(known),
        None if status.is_some_and(is_running) => Some(Standing::Active),
        None if status.is_some_and(is_provisioning) => has_pods().then_some(Standing::Active),
        None if run.spec.suspend => None,
        None => Some(Standing::Waiting),
    }
}

/// Whether the run has pods that are not just being removed.
fn are_in_use(pods: &[NodePod]) -> bool {
    pods.iter().any(|pod| !pod.deleting)
}

fn contender<'a>(run: &'a PerfRun, uid: &'a str, standing: Standing, ledger: &Entries) -> Contender<'a> {
    let namespace = run.meta().namespace.as_deref().unwrap_or_default();
    let created = run.meta().creation_timestamp.as_ref();
    Contender {
        created: created.map_or(i64::MAX, |time| time.0.as_second()),
        last_turn: ledger.last_turn(namespace),
        namespace,
        name: run.meta().name.as_deref().unwrap_or_default(),
        uid,
        exclusive: run.spec.topology.exclusive,
        standing,
    }
}
