//! Waiting.

use std::time::Duration;

use anyhow::{Result, bail};
use tokio::time::{Instant, sleep};

const TICK: Duration = Duration::from_millis(200);

/// So many seconds.
pub const fn seconds(number: u64) -> Duration {
    Duration::from_secs(number)
}

/// Looks until there is something. An error is looked past, as the API server may be away, but told if it was the last.
pub async fn until<T>(
    what: &str,
    limit: Duration,
    mut look: impl AsyncFnMut() -> Result<Option<T>>,
) -> Result<T> {
    let start = Instant::now();
    loop {
        let seen = look().await;
        if let Ok(Some(seen)) = seen {
            return Ok(seen);
        }
        if start.elapsed() >= limit {
            match seen {
                Err(error) => return Err(error.context(format!("waited {limit:?} in vain until {what}"))),
                Ok(_) => bail!("waited {limit:?} in vain until {what}"),
            }
        }
        sleep(TICK).await;
    }
}
