//! Waiting.

use std::{
    thread,
    time::{Duration, Instant},
};

pub(crate) const TEST_TIMEOUT: Duration = Duration::from_secs(20);

pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(
            begun.elapsed() < TEST_TIMEOUT,
            "not within {TEST_TIMEOUT:?}: {what}"
        );
        thread::sleep(Duration::from_millis(10));
    }
}

pub(crate) async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(TEST_TIMEOUT, future)
        .await
        .expect("it takes no longer than TEST_TIMEOUT")
}
