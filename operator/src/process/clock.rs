//! The time of day, which tests replace.

use std::{sync::Arc, time::Duration};

use jiff::{SignedDuration, Timestamp};

/// Returns the time of day.
pub(crate) type TimeSource = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// The clock of this machine.
pub(crate) fn system() -> TimeSource {
    Arc::new(Timestamp::now)
}

/// The time since a moment. Clocks of API servers differ a little, so that the moment may be in the future.
pub(crate) fn elapsed(since: Timestamp, now: Timestamp) -> Duration {
    now.duration_since(since).max(SignedDuration::ZERO).unsigned_abs()
}
