//! The limits that all stacks have in common.

use std::time::Duration;

use tokio::time::timeout;

/// How long opening a stream may take. With their different defaults (libp2p 10 s, litep2p 5 s), a burst of
/// opens on a slow link would fail on one stack only.
pub(crate) const OPEN_TIMEOUT: Duration = Duration::from_secs(30);

/// How long an unused connection is kept. Workloads may pause, and only they decide when a connection ends.
pub(crate) const IDLE_TIMEOUT: Duration = Duration::from_secs(3600);

/// How long a graceful close may take before what is left is dropped.
pub(crate) const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// A quarter more streams than requested: a stream counts until both sides have seen its end.
pub(crate) fn with_spare(streams: usize) -> usize {
    streams.saturating_add(streams / 4)
}

/// The result of an attempt that may take `limit`.
pub(crate) async fn within<T>(
    limit: Duration,
    attempt: impl Future<Output = Result<T, String>>,
) -> Result<T, String> {
    let ended = timeout(limit, attempt).await;
    ended.unwrap_or_else(|_| Err("timed out".to_owned()))
}
