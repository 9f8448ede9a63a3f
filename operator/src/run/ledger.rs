//! What this process has done to runs that the watched objects may not show yet.

use std::collections::{BTreeMap, BTreeSet};

use parking_lot::Mutex;

use crate::run::turn::Standing;

/// Runs by UID, as this process has left them.
#[derive(Default)]
pub(crate) struct Ledger(Mutex<Entries>);

/// See [`Ledger`].
#[derive(Default)]
pub(crate) struct Entries {
    standings: BTreeMap<String, Standing>,
    /// The last turn of each namespace of which a run has begun.
    turns: BTreeMap<String, u64>,
    /// The number of turns so far.
    last: u64,
}

impl Entries {
    /// How a run stands according to this process. `None` if only the run's status can tell.
    pub(crate) fn standing(&self, uid: &str) -> Option<Standing> {
        self.standings.get(uid).copied()
    }

    /// The number of the turn in which a run of the namespace began last, in this process. 0 if none has.
    pub(crate) fn last_turn(&self, namespace: &str) -> u64 {
        self.turns.get(namespace).copied().unwrap_or(0)
    }
}

/// The turn of a run during one pass. The run keeps the turn only if [`Ledger::begin`] is called before the
/// claim is dropped.
pub(crate) struct Claim<'a> {
    ledger: &'a Ledger,
    uid: String,
}

impl Ledger {
    /// Claims the turn of a run unless `check` fails. No other run can claim a turn in the meantime.
    pub(crate) fn claim<E>(
        &self,
        uid: &str,
        check: impl FnOnce(&Entries) -> Result<(), E>,
    ) -> Result<Claim<'_>, E> {
        let mut entries = self.0.lock();
        check(&entries)?;
        entries
            .standings
            .entry(uid.to_owned())
            .or_insert(Standing::Starting);
        Ok(Claim {
            ledger: self,
            uid: uid.to_owned(),
        })
    }

    /// What is known of all runs.
    pub(crate) fn read<T>(&self, read: impl FnOnce(&Entries) -> T) -> T {
        read(&self.0.lock())
    }

    /// The run has objects: it keeps its turn, and is the last of its namespace that had one. Returns whether
    /// the run had no objects before.
    pub(crate) fn begin(&self, uid: &str, namespace: &str) -> bool {
        let mut entries = self.0.lock();
        let before = entries.standings.insert(uid.to_owned(), Standing::Active);
        let is_new = before != Some(Standing::Active);
        if is_new {
            entries.last += 1;
            let turn = entries.last;
            entries.turns.insert(namespace.to_owned(), turn);
        }
        is_new
    }

    /// Whether the run has objects.
    pub(crate) fn is_active(&self, uid: &str) -> bool {
        self.0.lock().standing(uid) == Some(Standing::Active)
    }

    /// The run gives up its turn. Returns whether it had one.
    pub(crate) fn stand_back(&self, uid: &str) -> bool {
        let mut entries = self.0.lock();
        let active = entries.standing(uid) == Some(Standing::Active);
        if active {
            entries.standings.remove(uid);
        }
        active
    }

    /// The end of the run has been written. Until the watch shows it, the run must not be started again.
    pub(crate) fn end(&self, uid: &str) {
        self.0.lock().standings.insert(uid.to_owned(), Standing::Ended);
    }

    /// Whether the end of the run has been written, though the watch may not show it.
    pub(crate) fn has_ended(&self, uid: &str) -> bool {
        self.0.lock().standing(uid) == Some(Standing::Ended)
    }

    /// The watch shows the end of the run.
    pub(crate) fn end_is_visible(&self, uid: &str) {
        let mut entries = self.0.lock();
        if entries.standing(uid) == Some(Standing::Ended) {
            entries.standings.remove(uid);
        }
    }

    /// UIDs of all runs in the ledger, except these.
    pub(crate) fn others_than(&self, uids: &BTreeSet<String>) -> Vec<String> {
        let entries = self.0.lock();
        let others = entries.standings.keys().filter(|uid| !uids.contains(*uid));
        others.cloned().collect()
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        let mut entries = self.ledger.0.lock();
        if entries.standing(&self.uid) == Some(Standing::Starting) {
            entries.standings.remove(&self.uid);
        }
    }
}
