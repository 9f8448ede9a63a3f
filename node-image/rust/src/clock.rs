//! The node's monotonic clock, and waiting for one of its moments.

use std::{
    sync::LazyLock,
    time::{Duration, Instant},
};

/// The zero of this node's clock: its first reading. Wall clocks step, so the node never uses one.
static ZERO: LazyLock<Instant> = LazyLock::new(Instant::now);

/// The current time of the node's clock, in nanoseconds.
pub(crate) fn now() -> u64 {
    nanoseconds(Instant::now())
}

/// A moment by the node's clock, in nanoseconds. Moments before its zero are 0.
pub(crate) fn nanoseconds(at: Instant) -> u64 {
    u64::try_from(at.saturating_duration_since(*ZERO).as_nanos()).unwrap_or(u64::MAX)
}

/// Waits until the node's clock shows `nanoseconds`. Returns immediately if that is in the past.
///
/// Timers of the async runtime have a resolution of a millisecond and round up, so this thread sleeps through
/// the last few milliseconds itself. A second thread would have to wake this one, and on a busy machine each
/// of them wakes late. Other tasks continue on the runtime's other threads.
pub(crate) async fn wait_until(nanoseconds: u64) {
    const LAST_STRETCH: Duration = Duration::from_millis(5);
    let at = *ZERO + Duration::from_nanos(nanoseconds);
    if let Some(early) = at.checked_sub(LAST_STRETCH) {
        tokio::time::sleep_until(early.into()).await;
    }
    let rest = at.saturating_duration_since(Instant::now());
    if !rest.is_zero() {
        tokio::task::block_in_place(|| std::thread::sleep(rest));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn waiting_ends_at_the_moment_not_before() {
        let at = now() + 20_000_000;
        wait_until(at).await;
        assert!(now() >= at);
        let past = now() - 1;
        wait_until(past).await;
    }
}
