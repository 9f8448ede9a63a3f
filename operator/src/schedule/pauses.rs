//! Pauses of schedules after requests that failed, by the clock of this process.
//!
//! The API server may refuse a run or a status for ever, and anything may wake a schedule. So the status of a
//! schedule does not show when the next request is due.

use std::{collections::HashMap, sync::Arc, time::Duration};

use kube::core::ObjectMeta;
use parking_lot::Mutex;
use tokio::time::Instant;

/// The first pause. Each failure in a row doubles it.
const PAUSE_MIN: Duration = Duration::from_secs(2);

/// The longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(300);

/// Namespace and name of a schedule.
pub(super) type Key = (Option<String>, String);

/// The pauses of all schedules that have failed. Each of these schedules is reconciled again, also if it no
/// longer exists, and then leaves nothing here.
#[derive(Clone, Default)]
pub(crate) struct Pauses(Arc<Mutex<HashMap<Key, Pause>>>);

struct Pause {
    uid: Option<String>,
    generation: Option<i64>,
    length: Duration,
    end: Instant,
}

impl Pauses {
    /// What remains of the pause of a schedule. `None` if it may make requests.
    pub(super) fn remaining(&self, schedule: &ObjectMeta) -> Option<Duration> {
        let pauses = self.0.lock();
        let pause = pauses.get(&key(schedule)).filter(|pause| pause.is_of(schedule))?;
        let remaining = pause.end.saturating_duration_since(Instant::now());
        (!remaining.is_zero()).then_some(remaining)
    }

    /// Begins a pause after a failure, and returns its length.
    pub(super) fn begin(&self, schedule: &ObjectMeta) -> Duration {
        let mut pauses = self.0.lock();
        let before = pauses.get(&key(schedule)).filter(|pause| pause.is_of(schedule));
        let length = before.map_or(PAUSE_MIN, |pause| PAUSE_MAX.min(pause.length * 2));
        let pause = Pause {
            uid: schedule.uid.clone(),
            generation: schedule.generation,
            length,
            end: Instant::now() + length,
        };
        pauses.insert(key(schedule), pause);
        length
    }

    /// Ends the pause of a schedule: it makes no requests, none of them has failed, or it no longer exists.
    pub(super) fn forget(&self, schedule: &Key) {
        self.0.lock().remove(schedule);
    }
}

impl Pause {
    /// Whether it is of this schedule as it is now. A changed document may not be refused.
    fn is_of(&self, schedule: &ObjectMeta) -> bool {
        (&self.uid, self.generation) == (&schedule.uid, schedule.generation)
    }
}

pub(super) fn key(schedule: &ObjectMeta) -> Key {
    (
        schedule.namespace.clone(),
        schedule.name.clone().unwrap_or_default(),
    )
}
