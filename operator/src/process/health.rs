//! Whether this process works, for the kubelet.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// How long the loop that acquires and renews the Lease may stand still. An attempt and the pause after it
/// take seven seconds at most.
const STANDSTILL_TIMEOUT: Duration = Duration::from_secs(60);

/// What `/livez` and `/readyz` report.
#[derive(Default)]
pub(crate) struct Health(Mutex<State>);

#[derive(Default)]
struct State {
    /// Whether the API server has answered.
    has_answer: bool,
    /// The last attempt of the loop. `None` before the first, for which requests to the API server may wait.
    last_attempt: Option<Instant>,
    /// Whether this operator leads, and does not know all runs and their pods yet.
    is_listing: bool,
}

impl Health {
    /// Notes that the API server has answered.
    pub(crate) fn note_answer(&self) {
        self.0.lock().has_answer = true;
    }

    /// Notes that the loop begins another attempt to acquire or renew the Lease.
    pub(crate) fn note_lease_attempt(&self) {
        self.0.lock().last_attempt = Some(Instant::now());
    }

    /// Sets whether this operator leads.
    pub(crate) fn set_leading(&self, leads: bool) {
        self.0.lock().is_listing = leads;
    }

    /// Notes that this operator knows all runs and their pods.
    pub(crate) fn note_listed(&self) {
        self.0.lock().is_listing = false;
    }

    /// An error if a restart would help, which says why.
    pub(crate) fn check_alive(&self) -> Result<(), &'static str> {
        match self.0.lock().last_attempt {
            Some(last_attempt) if last_attempt.elapsed() >= STANDSTILL_TIMEOUT => {
                Err("the loop that renews the lease has stopped")
            }
            _ => Ok(()),
        }
    }

    /// An error unless the operator works: it waits to lead, or leads and knows all runs and their pods.
    pub(crate) fn check_ready(&self) -> Result<(), &'static str> {
        match *self.0.lock() {
            State {
                has_answer: false, ..
            } => Err("the API server has not answered yet"),
            State { is_listing: true, .. } => Err("the runs and their pods could not be listed yet"),
            State { .. } => Ok(()),
        }
    }
}
