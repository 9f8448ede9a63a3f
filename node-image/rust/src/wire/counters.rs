//! What is counted while a trial runs.

use std::{
    array,
    collections::BTreeMap,
    future::Future,
    sync::atomic::{AtomicU64, Ordering},
};

use perfrun_contract::node::Reason;
use tokio_util::sync::CancellationToken;

use crate::latencies::Latencies;

/// What the streams of a trial share while it runs. All counters are atomics, so that the data path never
/// waits for a reader.
#[derive(Debug, Default)]
pub struct Counters {
    /// Payload bytes handed to the stack.
    pub sent: AtomicU64,
    /// Payload bytes taken from the stack.
    pub received: AtomicU64,
    /// Connections established.
    pub connections: AtomicU64,
    /// Streams opened or accepted; at a relay, circuits.
    pub streams: AtomicU64,
    /// What [`OPERATIONS`](perfrun_contract::metrics::node::OPERATIONS) counts.
    pub operations: AtomicU64,
    /// What [`FAILURES`](perfrun_contract::metrics::node::FAILURES) counts.
    pub failures: AtomicU64,
    /// [`Self::failures`] by reason, in the order of [`Reason::ALL`].
    pub errors: [AtomicU64; Reason::ALL.len()],
    /// Open circuits of a relay.
    pub circuits: AtomicU64,
    /// Streams of an echo that have started and not ended.
    pub active: AtomicU64,
    /// Streams of an echo with a recent round trip.
    pub echoing: Echoing,
    /// Round trips of an echo.
    pub(crate) round_trips: Latencies,
    /// Cancelled when a server waits no longer for streams that only have to end.
    pub(crate) over: CancellationToken,
}

/// What [`Counters`] have counted until a moment, or between two moments.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) sent: u64,
    pub(crate) received: u64,
    pub(crate) connections: u64,
    pub(crate) streams: u64,
    pub(crate) operations: u64,
    pub(crate) failures: u64,
    errors: [u64; Reason::ALL.len()],
}

impl Counts {
    /// What was counted since an earlier moment.
    pub(crate) fn since(&self, then: &Self) -> Self {
        Self {
            sent: self.sent - then.sent,
            received: self.received - then.received,
            connections: self.connections - then.connections,
            streams: self.streams - then.streams,
            operations: self.operations - then.operations,
            failures: self.failures - then.failures,
            errors: array::from_fn(|reason| self.errors[reason] - then.errors[reason]),
        }
    }

    /// The failures by reason.
    pub(crate) fn errors(&self) -> BTreeMap<Reason, u64> {
        let counted = Reason::ALL.into_iter().zip(self.errors);
        counted.filter(|(_, count)| *count > 0).collect()
    }
}

impl Counters {
    /// What has been counted so far.
    pub(crate) fn counts(&self) -> Counts {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counts {
            sent: count(&self.sent),
            received: count(&self.received),
            connections: count(&self.connections),
            streams: count(&self.streams),
            operations: count(&self.operations),
            failures: count(&self.failures),
            errors: self.errors.each_ref().map(count),
        }
    }

    /// Adds to one of the counters.
    pub fn add(counter: &AtomicU64, n: u64) {
        counter.fetch_add(n, Ordering::Relaxed);
    }

    /// Counts a failure.
    pub fn count_failure(&self, reason: Reason) {
        Self::add(&self.failures, 1);
        let counters = Reason::ALL.into_iter().zip(&self.errors);
        for (_, counter) in counters.filter(|(counted, _)| *counted == reason) {
            Self::add(counter, 1);
        }
    }

    /// Waits for the end of a stream on which nothing else is due. `None` if the server waits no longer: the
    /// end is lost, which is counted as a failure and takes nothing from what was exchanged.
    pub(crate) async fn await_end<T>(&self, end: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            end = end => Some(end),
            () = self.over.cancelled() => {
                self.count_failure(Reason::Timeout);
                None
            }
        }
    }
}

/// Counts the streams that were active in the current window, each once. The upper half of the number is the
/// window, the lower half the count.
#[derive(Debug)]
pub struct Echoing(AtomicU64);

impl Default for Echoing {
    fn default() -> Self {
        // Streams start with window 0, so the first window is 1.
        Self(AtomicU64::new(1 << 32))
    }
}

impl Echoing {
    /// Counts a stream as active. `last` is the window in which that stream was last counted, 0 at first.
    pub fn count(&self, last: &mut u32) {
        let window = |state: u64| (state >> 32) as u32;
        if window(self.0.load(Ordering::Relaxed)) != *last {
            *last = window(self.0.fetch_add(1, Ordering::Relaxed));
        }
    }

    /// Returns the count and starts the next window. Only one task may call this.
    pub fn take(&self) -> u64 {
        let window = self.0.load(Ordering::Relaxed) >> 32;
        self.0.swap((window + 1) << 32, Ordering::Relaxed) & u64::from(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_counts_once_in_a_window() {
        let echoing = Echoing::default();
        let mut streams = [0; 3];
        assert_eq!(echoing.take(), 0);
        for (round, busy) in [3, 1, 0, 2].into_iter().enumerate() {
            for _ in 0..=round {
                streams[..busy].iter_mut().for_each(|last| echoing.count(last));
            }
            assert_eq!(echoing.take(), busy as u64, "window {round}");
        }
    }
}
