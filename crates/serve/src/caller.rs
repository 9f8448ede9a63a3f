//! Who has a connection, and who has to give up one.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use parking_lot::Mutex;
use tokio::sync::SetOnce;

/// The peer of a connection. Each request has it as an extension.
#[derive(Clone, Debug, Default)]
pub(crate) struct Caller(Arc<State>);

#[derive(Debug, Default)]
struct State {
    is_trusted: AtomicBool,
    /// Set by the first request.
    called: SetOnce<()>,
    /// Set when another connection takes the slot of this one.
    replaced: SetOnce<()>,
}

impl Caller {
    /// Keeps the slot of the connection from strangers from now on: its peer has proved that it may call.
    pub(crate) fn trust(&self) {
        self.0.is_trusted.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_trusted(&self) -> bool {
        self.0.is_trusted.load(Ordering::Relaxed)
    }

    /// Notes a request.
    pub(crate) fn note_request(&self) {
        // Only the first one counts.
        let _ = self.0.called.set(());
    }

    /// Waits for the first request.
    pub(crate) async fn wait_for_request(&self) {
        self.0.called.wait().await;
    }

    /// Waits until the connection has lost its slot.
    pub(crate) async fn wait_until_replaced(&self) {
        self.0.replaced.wait().await;
    }
}

/// Slots for connections, the oldest first.
pub(crate) struct ConnectionSlots {
    most: usize,
    taken: Mutex<Vec<Caller>>,
}

/// A taken slot, until it is dropped.
pub(crate) struct ConnectionSlot {
    slots: Arc<ConnectionSlots>,
    pub(crate) caller: Caller,
}

impl ConnectionSlots {
    pub(crate) fn new(most: usize) -> Arc<Self> {
        let taken = Mutex::default();
        Arc::new(Self { most, taken })
    }

    /// Takes a slot. If there is none, the oldest connection of a stranger loses its own: silent strangers,
    /// however many, keep no caller out. `None` if all connections are those of trusted callers.
    pub(crate) fn take(self: &Arc<Self>) -> Option<ConnectionSlot> {
        let mut taken = self.taken.lock();
        if taken.len() >= self.most {
            let oldest = taken.iter().position(|caller| !caller.is_trusted())?;
            let _ = taken.remove(oldest).0.replaced.set(());
        }
        let caller = Caller::default();
        taken.push(caller.clone());
        let slots = self.clone();
        Some(ConnectionSlot { slots, caller })
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let is_other = |other: &Caller| !Arc::ptr_eq(&other.0, &self.caller.0);
        self.slots.taken.lock().retain(is_other);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn has_lost(slot: &ConnectionSlot) -> bool {
        slot.caller.0.replaced.get().is_some()
    }

    #[test]
    fn the_oldest_stranger_loses_its_slot_and_trusted_callers_keep_theirs() {
        let slots = ConnectionSlots::new(3);
        let take = || slots.take().expect("there is a stranger");
        let (trusted, first, second) = (take(), take(), take());
        trusted.caller.trust();
        let third = take();
        assert!(has_lost(&first) && !has_lost(&second) && !has_lost(&trusted));
        drop(first);
        drop(third);
        let fourth = take();
        assert!(!has_lost(&second), "there was a free slot");
        second.caller.trust();
        fourth.caller.trust();
        assert!(slots.take().is_none());
        drop(fourth);
        assert!(slots.take().is_some());
    }
}
