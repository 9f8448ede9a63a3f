//! What this process has done to runs that the watched objects may not show yet.

use std::collections::{BTreeMap, BTreeSet};

use parking_lot::Mutex;

use crate::turn::Standing;

/// Runs by UID, as this process has left them.
#[derive(Default)]
pub(crate) struct Ledger(Mutex<Entries>);

/// See [`Ledger`].
#[derive(Default)]
pub(crate) struct Entries(BTreeMap<String, Standing>);

impl Entries {
    /// How a run stands according to this process. `None` if only the run's status can tell.
    pub(crate) fn standing(&self, uid: &str) -> Option<Standing> {
        self.0.get(uid).copied()
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
        entries.0.entry(uid.to_owned()).or_insert(Standing::Starting);
        Ok(Claim {
            ledger: self,
            uid: uid.to_owned(),
        })
    }

    /// The run has objects: it keeps its turn.
    pub(crate) fn begin(&self, uid: &str) {
        self.0.lock().0.insert(uid.to_owned(), Standing::Active);
    }

    /// The run gives up its turn. Returns whether it had one.
    pub(crate) fn stand_back(&self, uid: &str) -> bool {
        let mut entries = self.0.lock();
        let active = entries.standing(uid) == Some(Standing::Active);
        if active {
            entries.0.remove(uid);
        }
        active
    }

    /// The end of the run has been written. Until the watch shows it, the run must not be started again.
    /// Returns whether the run had the turn.
    pub(crate) fn end(&self, uid: &str) -> bool {
        let before = self.0.lock().0.insert(uid.to_owned(), Standing::Ended);
        before == Some(Standing::Active)
    }

    /// Whether the end of the run has been written, though the watch may not show it.
    pub(crate) fn has_ended(&self, uid: &str) -> bool {
        self.0.lock().standing(uid) == Some(Standing::Ended)
    }

    /// The watch shows the end of the run.
    pub(crate) fn end_is_visible(&self, uid: &str) {
        let mut entries = self.0.lock();
        if entries.standing(uid) == Some(Standing::Ended) {
            entries.0.remove(uid);
        }
    }

    /// UIDs of all runs in the ledger, except these.
    pub(crate) fn others_than(&self, uids: &BTreeSet<String>) -> Vec<String> {
        let entries = self.0.lock();
        let others = entries.0.keys().filter(|uid| !uids.contains(*uid));
        others.cloned().collect()
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        let mut entries = self.ledger.0.lock();
        if entries.standing(&self.uid) == Some(Standing::Starting) {
            entries.0.remove(&self.uid);
        }
    }
}
