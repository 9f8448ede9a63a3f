//! The node's monotonic clock, and waiting for a moment of it.

use std::{
    sync::LazyLock,
    time::{Duration, Instant},
};

/// The zero of this node's clock: the first time that anybody asks. Wall clocks step, so no time of ours is of one.
static ZERO: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Nanoseconds of the node's clock now.
pub fn now() -> u64 {
    nanoseconds(Instant::now())
}

/// A moment in nanoseconds of the node's clock; moments before its zero are 0.
pub fn nanoseconds(at: Instant) -> u64 {
    u64::try_from(at.saturating_duration_since(*ZERO).as_nanos()).unwrap_or(u64::MAX)
}

/// Waits until the node's clock shows `nanoseconds`; returns at once if it did.
///
/// Timers of the async runtime tick in milliseconds, rounded up, so the last stretch is slept through on this very thread:
/// another one would have to wake this one, and on a busy machine each wakes late. Others of the runtime go on meanwhile;
/// one of several threads is what it needs.
pub async fn wait_until(nanoseconds: u64) {
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
