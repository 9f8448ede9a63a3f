//! The node's monotonic clock, and waiting for one of its moments.

use std::{
    sync::LazyLock,
    time::{Duration, Instant},
};

use rustix::time::{ClockId, clock_gettime};

/// A moment, and what the clock showed then: the kernel's monotonic time, which all nodes of a machine share.
/// Wall clocks step, so the node times nothing by one.
static READING: LazyLock<(Instant, u64)> = LazyLock::new(|| {
    // The reading that took the least time is the most exact.
    let readings = (0..10).map(|_| {
        let before = Instant::now();
        let time = Duration::try_from(clock_gettime(ClockId::Monotonic)).unwrap_or_default();
        let took = before.elapsed();
        (
            took,
            (
                before + took / 2,
                u64::try_from(time.as_nanos()).unwrap_or(u64::MAX),
            ),
        )
    });
    let best = readings.min_by_key(|(took, _)| *took);
    best.map_or_else(|| (Instant::now(), 0), |(_, reading)| reading)
});

/// Names the clock: nodes with the same name share it. It is that of the running kernel, and of the time
/// namespace.
pub(crate) fn name() -> Option<String> {
    let kernel = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    // Kernels without time namespaces have one clock.
    let namespace = std::fs::read_link("/proc/self/ns/time").unwrap_or_default();
    Some(
        format!("{} {}", kernel.trim(), namespace.display())
            .trim_end()
            .to_owned(),
    )
}

/// The current time of the node's clock, in nanoseconds.
pub(crate) fn now() -> u64 {
    nanoseconds(Instant::now())
}

/// A moment by the node's clock, in nanoseconds.
pub(crate) fn nanoseconds(at: Instant) -> u64 {
    let (moment, shown) = *READING;
    let between = |from: Instant, to: Instant| u64::try_from((to - from).as_nanos()).unwrap_or(u64::MAX);
    if at >= moment {
        shown.saturating_add(between(moment, at))
    } else {
        shown.saturating_sub(between(at, moment))
    }
}

/// Waits until the node's clock shows `nanoseconds`. Returns immediately if that is in the past.
///
/// Timers of the async runtime have a resolution of a millisecond and round up, so this thread sleeps through
/// the last few milliseconds itself. A second thread would have to wake this one, and on a busy machine each
/// of them wakes late. Other tasks continue on the runtime's other threads.
pub(crate) async fn wait_until(nanoseconds: u64) {
    const LAST_STRETCH: Duration = Duration::from_millis(5);
    let (moment, shown) = *READING;
    let at = moment + Duration::from_nanos(nanoseconds.saturating_sub(shown));
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

    #[test]
    fn the_clock_is_the_kernels() {
        let kernel = || {
            Duration::try_from(clock_gettime(ClockId::Monotonic))
                .unwrap()
                .as_nanos()
        };
        let slack = 1_000_000;
        let (before, shown, after) = (kernel(), u128::from(now()), kernel());
        assert!(
            (before - slack..after + slack).contains(&shown),
            "{before} {shown} {after}"
        );
        assert_eq!(name(), name());
    }
}
