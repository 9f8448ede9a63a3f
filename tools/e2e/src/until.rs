//! Waiting for a state of the cluster.

use std::time::Duration;

use anyhow::{Result, bail};
use tokio::time::{Instant, sleep};

const TICK: Duration = Duration::from_millis(200);

pub const fn seconds(number: u64) -> Duration {
    Duration::from_secs(number)
}

/// Polls until there is a value. Errors do not end the wait, since the API server may be unavailable, but the
/// last one is returned.
pub async fn until<T>(
    what: &str,
    limit: Duration,
    mut poll: impl AsyncFnMut() -> Result<Option<T>>,
) -> Result<T> {
    let start = Instant::now();
    loop {
        let polled = poll().await;
        if let Ok(Some(value)) = polled {
            return Ok(value);
        }
        if start.elapsed() >= limit {
            match polled {
                Err(error) => {
                    return Err(error.context(format!("timed out after {limit:?} waiting until {what}")));
                }
                Ok(_) => bail!("timed out after {limit:?} waiting until {what}"),
            }
        }
        sleep(TICK).await;
    }
}
