//! Bounds that several workloads have.

use std::time::Duration;

use crate::{
    limits::{CHUNK_MAX, STREAMS_MAX},
    quantity::ByteSize,
};

/// A year, in seconds. More is a mistake, and much more would overflow a clock.
pub(super) const SECONDS_MAX: f64 = 366.0 * 86_400.0;

/// Parameters also arrive over the network, unchecked: this must not panic.
pub(super) fn duration(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds.min(SECONDS_MAX)).unwrap_or_default()
}

pub(super) fn chunk(bytes: ByteSize) -> Result<(), String> {
    ensure((1..=CHUNK_MAX.0).contains(&bytes.0), || {
        format!("chunkBytes must be 1 to {CHUNK_MAX}")
    })
}

pub(super) fn count(name: &str, value: u32) -> Result<(), String> {
    ensure((1..=STREAMS_MAX).contains(&value), || {
        format!("{name} must be 1 to {STREAMS_MAX}, not {value}")
    })
}

pub(super) fn timed(seconds: f64) -> Result<(), String> {
    ensure(is_time(seconds), || {
        "amount.seconds must be more than 0 and at most a year".into()
    })
}

/// Whether a time in seconds is at least a nanosecond, less than which is 0 for a clock, and at most a year,
/// so that it overflows neither [`Duration`] nor a clock.
pub fn is_time(seconds: f64) -> bool {
    (1e-9..=SECONDS_MAX).contains(&seconds) && Duration::try_from_secs_f64(seconds).is_ok()
}

/// Fails with a message that says what must be true, if it is not.
pub fn ensure(right: bool, message: impl FnOnce() -> String) -> Result<(), String> {
    if right { Ok(()) } else { Err(message()) }
}
