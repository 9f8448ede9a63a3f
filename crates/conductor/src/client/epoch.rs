//! The epoch of a conductor.

use tokio_util::sync::CancellationToken;

/// One of the conductors that take over from one another: a number that is larger than that of all before it,
/// and whether a node has refused a call because it knows a later conductor. Clones share what they know.
///
/// The owner of a conductor drops it when [`Epoch::superseded`] returns.
#[derive(Clone, Debug)]
pub struct Epoch {
    number: u64,
    superseded: CancellationToken,
}

impl Epoch {
    /// The epoch with this number, from 0 to 2⁶³ − 1.
    pub fn new(number: u64) -> Self {
        Self {
            number,
            superseded: CancellationToken::new(),
        }
    }

    /// Its number.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Waits until a node has refused a call, because a later conductor has called it.
    pub async fn superseded(&self) {
        self.superseded.cancelled().await;
    }

    pub(super) fn mark_superseded(&self) {
        self.superseded.cancel();
    }
}
