//! The time of day, which tests replace.

use std::sync::Arc;

use jiff::Timestamp;

/// Returns the time of day.
pub(crate) type TimeSource = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// The clock of this machine.
pub(crate) fn system() -> TimeSource {
    Arc::new(Timestamp::now)
}
