//! The turns of runs as this process has left them. The watched objects may not show this yet.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::run::turn::TurnState;

/// The states of turns, by the UIDs of runs.
#[derive(Default)]
pub(crate) struct TurnStates(Mutex<Entries>);

/// See [`TurnStates`].
#[derive(Default)]
pub(crate) struct Entries {
    turn_states: BTreeMap<String, TurnState>,
    /// When the ends of runs were written.
    ended: BTreeMap<String, Instant>,
    /// The runs that this process has reconciled.
    reconciled: BTreeSet<String>,
    /// The last turn of each namespace of which a run has begun.
    last_turns: BTreeMap<String, u64>,
    /// The number of turns so far.
    turn_count: u64,
}

impl Entries {
    /// The state of a run's turn according to this process. `None` if only the run's status can tell.
    pub(crate) fn turn_state(&self, uid: &str) -> Option<TurnState> {
        self.turn_states.get(uid).copied()
    }

    /// Whether this process has reconciled the run.
    pub(crate) fn is_reconciled(&self, uid: &str) -> bool {
        self.reconciled.contains(uid)
    }

    /// The number of the turn in which a run of the namespace began last, in this process. 0 if none has.
    pub(crate) fn last_turn(&self, namespace: &str) -> u64 {
        self.last_turns.get(namespace).copied().unwrap_or(0)
    }
}

/// Holds the turn of a run during one reconciliation. The run keeps the turn only if
/// [`TurnStates::note_begun`] is called before the reservation is dropped.
pub(crate) struct Reservation<'a> {
    turn_states: &'a TurnStates,
    uid: String,
}

impl TurnStates {
    /// Reserves a turn for a run unless `check` fails. No other run can reserve a turn in the meantime, nor
    /// between the check and the note that the run is reconciled: from then on, only its turn says that it
    /// keeps others waiting.
    pub(crate) fn reserve<E>(
        &self,
        uid: &str,
        check: impl FnOnce(&Entries) -> Result<(), E>,
    ) -> Result<Reservation<'_>, E> {
        let mut entries = self.0.lock();
        let checked = check(&entries);
        entries.reconciled.insert(uid.to_owned());
        checked?;
        entries
            .turn_states
            .entry(uid.to_owned())
            .or_insert(TurnState::Starting);
        Ok(Reservation {
            turn_states: self,
            uid: uid.to_owned(),
        })
    }

    /// Notes that the run is reconciled, and needs no turn.
    pub(crate) fn note_reconciled(&self, uid: &str) {
        self.0.lock().reconciled.insert(uid.to_owned());
    }

    /// What is known of all runs.
    pub(crate) fn read<T>(&self, read: impl FnOnce(&Entries) -> T) -> T {
        read(&self.0.lock())
    }

    /// Gives a run that has objects its turn, as the last one of its namespace. Returns whether the run had
    /// no objects before.
    pub(crate) fn note_begun(&self, uid: &str, namespace: &str) -> bool {
        let mut entries = self.0.lock();
        let before = entries.turn_states.insert(uid.to_owned(), TurnState::Active);
        let is_new = before != Some(TurnState::Active);
        if is_new {
            entries.turn_count += 1;
            let turn = entries.turn_count;
            entries.last_turns.insert(namespace.to_owned(), turn);
        }
        is_new
    }

    /// Whether the run has objects.
    pub(crate) fn is_active(&self, uid: &str) -> bool {
        self.0.lock().turn_state(uid) == Some(TurnState::Active)
    }

    /// Ends the turn of a run. Returns whether it had one.
    pub(crate) fn give_up_turn(&self, uid: &str) -> bool {
        let mut entries = self.0.lock();
        let active = entries.turn_state(uid) == Some(TurnState::Active);
        if active {
            entries.turn_states.remove(uid);
        }
        active
    }

    /// Notes that the end of the run was written, so that the run does not restart before the watch shows it.
    pub(crate) fn note_end(&self, uid: &str) {
        let mut entries = self.0.lock();
        entries.turn_states.insert(uid.to_owned(), TurnState::Ended);
        entries.ended.insert(uid.to_owned(), Instant::now());
    }

    /// How long ago the end of the run was written, if the watch has not shown it yet.
    pub(crate) fn ended_for(&self, uid: &str) -> Option<Duration> {
        let entries = self.0.lock();
        let ended = entries.ended.get(uid)?;
        (entries.turn_state(uid) == Some(TurnState::Ended)).then(|| ended.elapsed())
    }

    /// Notes that the run stands back, because nobody can write its end. Returns whether it does only now.
    pub(crate) fn note_stood_back(&self, uid: &str) -> bool {
        let mut entries = self.0.lock();
        let before = entries.turn_states.insert(uid.to_owned(), TurnState::StoodBack);
        before != Some(TurnState::StoodBack)
    }

    /// Whether the run stands back.
    pub(crate) fn has_stood_back(&self, uid: &str) -> bool {
        self.0.lock().turn_state(uid) == Some(TurnState::StoodBack)
    }

    /// Forgets the end of the run, because it is shown, or somebody has overwritten it.
    pub(crate) fn forget_end(&self, uid: &str) {
        let mut entries = self.0.lock();
        entries.ended.remove(uid);
        if entries.turn_state(uid) == Some(TurnState::Ended) {
            entries.turn_states.remove(uid);
        }
    }

    /// Forgets a run that no longer exists.
    pub(crate) fn remove(&self, uid: &str) {
        let mut entries = self.0.lock();
        entries.reconciled.remove(uid);
        entries.ended.remove(uid);
        entries.turn_states.remove(uid);
    }

    /// UIDs of all runs that are known, except these.
    pub(crate) fn uids_except(&self, uids: &BTreeSet<String>) -> Vec<String> {
        let entries = self.0.lock();
        let known = entries.turn_states.keys().chain(&entries.reconciled);
        known.filter(|uid| !uids.contains(*uid)).cloned().collect()
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        let mut entries = self.turn_states.0.lock();
        if entries.turn_state(&self.uid) == Some(TurnState::Starting) {
            entries.turn_states.remove(&self.uid);
        }
    }
}
