//! Whether this process works, for the kubelet.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// How long the loop that acquires and renews the Lease may stand still. A turn takes seven seconds at most.
const STANDS_STILL: Duration = Duration::from_secs(60);

/// What `/livez` and `/readyz` report.
#[derive(Default)]
pub(crate) struct Health(Mutex<State>);

#[derive(Default)]
struct State {
    /// Whether the API server has answered.
    has_answer: bool,
    /// The last turn of the loop. `None` before the first, for which requests to the API server may wait.
    turned: Option<Instant>,
    /// Whether this operator leads, and does not know all runs yet.
    is_listing: bool,
}

impl Health {
    /// The API server has answered.
    pub(crate) fn answered(&self) {
        self.0.lock().has_answer = true;
    }

    /// The loop of the Lease begins another turn.
    pub(crate) fn turned(&self) {
        self.0.lock().turned = Some(Instant::now());
    }

    /// Whether this operator leads.
    pub(crate) fn lead(&self, leads: bool) {
        self.0.lock().is_listing = leads;
    }

    /// This operator knows all runs.
    pub(crate) fn listed(&self) {
        self.0.lock().is_listing = false;
    }

    /// Whether a restart would not help. The error says why it would.
    pub(crate) fn alive(&self) -> Result<(), &'static str> {
        match self.0.lock().turned {
            Some(turned) if turned.elapsed() >= STANDS_STILL => {
                Err("the loop that renews the lease has stopped")
            }
            _ => Ok(()),
        }
    }

    /// Whether the operator does what it is for: it waits to lead, or leads and knows all runs.
    pub(crate) fn ready(&self) -> Result<(), &'static str> {
        match *self.0.lock() {
            State {
                has_answer: false, ..
            } => Err("the API server has not answered yet"),
            State { is_listing: true, .. } => Err("the runs could not be listed yet"),
            State { .. } => Ok(()),
        }
    }
}
