//! What reconciliations of runs share.

use std::{collections::BTreeSet, sync::Arc};

use tokio::sync::SetOnce;

use crate::{
    conduct::Conductors,
    run::{plans::Plans, times::Times, turns::Turns},
    services::Services,
};

/// What reconciliations of runs share.
pub(crate) struct Context {
    pub(crate) services: Arc<Services>,
    pub(crate) turns: Turns,
    pub(crate) plans: Plans,
    pub(crate) times: Times,
    pub(crate) conductors: Conductors,
    /// Set when all runs have been listed. Pods are listed after them, because two lists take more memory at
    /// the same time.
    pub(crate) are_runs_listed: SetOnce<()>,
    /// Set when all runs and their pods have been listed. The caches of the watches wake only one of the
    /// tasks that wait for them.
    pub(crate) are_pods_listed: SetOnce<()>,
}

impl Context {
    /// Forgets a run whose end was written, and ends its turn. Remembers the end before another run is woken,
    /// because the watch may not show it yet. `keeps_pods` is whether its pods stay.
    pub(crate) fn note_end(&self, uid: &str, keeps_pods: bool) {
        self.plans.forget(uid);
        self.times.remove(uid);
        self.conductors.forget(uid);
        self.turns.note_end(uid, keeps_pods);
    }

    /// Ends the conductor and the turn of a run whose end nobody can write. The end is kept, to be written
    /// later.
    pub(crate) fn note_stood_back(&self, uid: &str) {
        self.conductors.forget(uid);
        self.turns.note_stood_back(uid);
    }

    /// Ends the turn of a run that has ended before, is being deleted, or cannot be read. Forgets all of it
    /// but its failures, and which names of pods have been used. `keeps_pods` is whether it has ended and its
    /// pods stay.
    pub(crate) fn forget(&self, uid: &str, keeps_pods: bool) {
        self.plans.forget(uid);
        self.times.forget(uid);
        self.conductors.forget(uid);
        self.turns.give_up_turn(uid, keeps_pods);
    }

    /// Forgets all of a run that no longer exists.
    pub(crate) fn remove(&self, uid: &str) {
        self.forget(uid, false);
        self.times.remove(uid);
        self.turns.remove(uid);
    }

    /// Removes runs that no longer exist, given the UIDs of all that do.
    pub(crate) fn remove_all_except(&self, existing: &BTreeSet<String>) {
        let others = [
            self.plans.uids_except(existing),
            self.times.uids_except(existing),
            self.turns.uids_except(existing),
        ];
        for uid in BTreeSet::from_iter(others.into_iter().flatten()) {
            self.remove(&uid);
        }
    }

    /// Ends the conductor and the turn of a run, so that another run may start.
    pub(crate) fn give_up_turn(&self, uid: &str) {
        self.conductors.forget(uid);
        self.turns.give_up_turn(uid, false);
    }
}
