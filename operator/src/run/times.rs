//! When runs have entered their stages, by the clock of this process, and how often reconciling them has
//! failed in a row.
//!
//! The status of a run shows the same, unless nobody can write it. Then the run ends in its time all the
//! same, and lets others begin.

use std::{
    collections::{BTreeSet, HashMap},
    mem,
    time::Duration,
};

use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::{
    pods::NodePod,
    run::{stage::Stage, starts::Starts},
};

/// How long the end of a run may be unwritten before the run stands back.
const UNWRITTEN_MAX: Duration = Duration::from_secs(5 * 60);

/// Pause after a reconciliation that failed. It doubles with each further failure.
const RETRY_PAUSE_MIN: Duration = Duration::from_secs(2);
const RETRY_PAUSE_MAX: Duration = Duration::from_secs(60);

/// The times of runs, by their UIDs.
#[derive(Default)]
pub(crate) struct Times(Mutex<HashMap<String, OwnTimes>>);

/// What this process knows of a run, and its status may lack.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct OwnTimes {
    pub(crate) provisioning_since: Option<Instant>,
    /// Where the status lacks this time, all use it instead.
    pub(crate) running_since: Option<Timestamp>,
    /// The end of the run that could not be written, and since when.
    unwritten: Option<(Instant, Stage)>,
    /// How many reconciliations in a row have failed.
    failures: u32,
    /// How often pods of its nodes have started.
    pub(crate) starts: Starts,
}

impl OwnTimes {
    /// The end of a run that stands back: nobody could write it for [`UNWRITTEN_MAX`], so that the run gives
    /// up its pods and its turn without.
    pub(crate) fn stood_back(&self, now: Instant) -> Option<&Stage> {
        let (since, end) = self.unwritten.as_ref()?;
        (now - *since >= UNWRITTEN_MAX).then_some(end)
    }

    /// Notes the stage that a reconciliation has decided on, and whether the status shows it. `time` is the
    /// time of day.
    pub(crate) fn note_stage(&mut self, stage: &Stage, is_written: bool, time: Timestamp, now: Instant) {
        match stage {
            Stage::Provisioning { .. } => {
                self.provisioning_since.get_or_insert(now);
                self.running_since = None;
            }
            Stage::Running(_) => {
                self.running_since.get_or_insert(time);
            }
            Stage::Held(_) => self.forget(),
            Stage::Unchanged => {
                self.forget();
                self.starts = Starts::default();
            }
            Stage::Rejected(_) | Stage::Ending { .. } => {}
        }
        let since = self.unwritten.take().map_or(now, |(since, _)| since);
        let is_unwritten_end = stage.end().is_some() && !is_written;
        self.unwritten = is_unwritten_end.then(|| (since, stage.clone()));
    }

    /// Forgets all but the failures, and which names of pods have been used.
    fn forget(&mut self) {
        let mut starts = mem::take(&mut self.starts);
        starts.reset_failures();
        *self = Self {
            failures: self.failures,
            starts,
            ..Self::default()
        };
    }
}

impl Times {
    /// What is known of a run whose pods the watch shows now.
    pub(crate) fn observe(&self, uid: &str, pods: &[NodePod], time: Timestamp, now: Instant) -> OwnTimes {
        let mut times = self.0.lock();
        let own = times.entry(uid.to_owned()).or_default();
        own.starts.observe(pods, time, now);
        own.clone()
    }

    /// See [`OwnTimes::note_stage`].
    pub(crate) fn note_stage(
        &self,
        uid: &str,
        stage: &Stage,
        is_written: bool,
        time: Timestamp,
        now: Instant,
    ) {
        let mut times = self.0.lock();
        times
            .entry(uid.to_owned())
            .or_default()
            .note_stage(stage, is_written, time, now);
    }

    /// See [`Starts::note_created`].
    pub(crate) fn note_created(&self, uid: &str, node: &str, incarnation: u32) {
        let mut times = self.0.lock();
        let own = times.entry(uid.to_owned()).or_default();
        own.starts.note_created(node, incarnation, Instant::now());
    }

    /// See [`Starts::is_awaited`].
    pub(crate) fn is_awaited(&self, uid: &str, node: &str, incarnation: u32) -> bool {
        let times = self.0.lock();
        times
            .get(uid)
            .is_some_and(|own| own.starts.is_awaited(node, incarnation))
    }

    /// See [`Starts::note_vanished`].
    pub(crate) fn note_vanished(&self, uid: &str, node: &str) {
        if let Some(own) = self.0.lock().get_mut(uid) {
            own.starts.note_vanished(node, Instant::now());
        }
    }

    /// Resets the failures of a run after a reconciliation that succeeded.
    pub(crate) fn note_success(&self, uid: &str) {
        let mut times = self.0.lock();
        if let Some(own) = times.get_mut(uid) {
            own.failures = 0;
            if *own == OwnTimes::default() {
                times.remove(uid);
            }
        }
    }

    /// Counts a reconciliation of a run that failed.
    pub(crate) fn note_failure(&self, uid: &str) {
        let mut times = self.0.lock();
        let own = times.entry(uid.to_owned()).or_default();
        own.failures = own.failures.saturating_add(1);
    }

    /// The pause before the run is reconciled again after a failure.
    pub(crate) fn pause(&self, uid: &str) -> Duration {
        let failures = self.0.lock().get(uid).map_or(0, |own| own.failures);
        let doubled = 2_u32.saturating_pow(failures.saturating_sub(1));
        RETRY_PAUSE_MIN.saturating_mul(doubled).min(RETRY_PAUSE_MAX)
    }

    /// Forgets all of a run but its failures, and which names of its pods have been used.
    pub(crate) fn forget(&self, uid: &str) {
        if let Some(own) = self.0.lock().get_mut(uid) {
            own.forget();
        }
    }

    /// Forgets a run that has ended or no longer exists.
    pub(crate) fn remove(&self, uid: &str) {
        self.0.lock().remove(uid);
    }

    /// UIDs of all runs that are known, except these.
    pub(crate) fn uids_except(&self, uids: &BTreeSet<String>) -> Vec<String> {
        let times = self.0.lock();
        times.keys().filter(|uid| !uids.contains(*uid)).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_fails_is_reconciled_less_and_less_often() {
        let times = Times::default();
        let pause = || {
            times.note_failure("run");
            times.pause("run").as_secs()
        };
        let pauses: Vec<_> = (0..7).map(|_| pause()).collect();
        assert_eq!(pauses, [2, 4, 8, 16, 32, 60, 60]);
        times.note_success("run");
        assert_eq!(times.pause("run"), RETRY_PAUSE_MIN);
        assert!(times.0.lock().is_empty(), "nothing else is known of it");
    }
}
