//! Who reads a page, and whether they have seen its last values: what is not scraped is lost.

use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::{
    sync::Notify,
    time::{Instant, timeout_at},
};

/// The longest time that a program in its end waits for a scraper to come back: what Prometheus leaves
/// between two scrapes by default, a minute, and a little more.
pub const LONGEST_WAIT: Duration = Duration::from_secs(65);

/// A scraper that comes every second may be late by more than that on a busy machine.
const SHORTEST_WAIT: Duration = Duration::from_secs(5);

/// How long a page is kept for further readers: a second, less what a scraper that comes each second may be
/// early.
const KEPT: Duration = Duration::from_millis(900);

/// When a page was read, and when its values changed.
#[derive(Debug)]
pub struct Scrapes {
    seen: Mutex<Scraped>,
    scraped: Notify,
    /// The last page, and when it was made.
    page: tokio::sync::Mutex<Option<(Instant, Arc<str>)>>,
}

#[derive(Clone, Copy, Debug)]
struct Scraped {
    changed: Instant,
    scraped: Option<Instant>,
    /// The longest time between two scrapes.
    interval: Option<Duration>,
}

impl Default for Scrapes {
    fn default() -> Self {
        Self {
            seen: Mutex::new(Scraped {
                changed: Instant::now(),
                scraped: None,
                interval: None,
            }),
            scraped: Notify::new(),
            page: tokio::sync::Mutex::default(),
        }
    }
}

impl Scrapes {
    /// Values have changed for the last time, as far as is known.
    pub fn changed(&self) {
        self.seen.lock().changed = Instant::now();
    }

    /// The page, for a scraper that reads it now. `make` makes it about once a second at most, however often
    /// it is read, and again after values have [changed](Self::changed).
    pub async fn read<F: Future<Output = String>>(&self, make: impl FnOnce() -> F) -> Arc<str> {
        self.scraped();
        let mut kept = self.page.lock().await;
        let changed = self.seen.lock().changed;
        if let Some((made, page)) = &*kept
            && *made > changed
            && made.elapsed() < KEPT
        {
            return page.clone();
        }
        let now = Instant::now();
        let page: Arc<str> = make().await.into();
        *kept = Some((now, page.clone()));
        page
    }

    /// The page is read now; called before it is made.
    fn scraped(&self) {
        let now = Instant::now();
        let mut seen = self.seen.lock();
        if let Some(last) = seen.scraped.replace(now) {
            let since = now - last;
            seen.interval = Some(seen.interval.map_or(since, |longest| longest.max(since)));
        }
        drop(seen);
        self.scraped.notify_waiters();
    }

    /// Waits until the page was read after its values changed, or nobody will come in time: nobody ever did,
    /// a scraper that did has not come back for twice as long as it used to, or `most` is over.
    pub async fn seen(&self, most: Duration) {
        let end = Instant::now() + most;
        loop {
            let next = self.scraped.notified();
            let Scraped {
                changed,
                scraped,
                interval,
            } = *self.seen.lock();
            let Some(scraped) = scraped.filter(|scraped| *scraped <= changed) else {
                return;
            };
            let expected = interval.map_or(end, |interval| scraped + (2 * interval).max(SHORTEST_WAIT));
            if timeout_at(expected.min(end), next).await.is_err() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use tokio::time::{advance, sleep};

    use super::*;

    const INTERVAL: Duration = Duration::from_secs(15);

    #[tokio::test(start_paused = true)]
    async fn a_page_is_made_once_a_second_and_after_each_change() {
        let scrapes = Scrapes::default();
        let made = AtomicU32::new(0);
        let read = async || {
            let make = || async { made.fetch_add(1, Ordering::Relaxed).to_string() };
            scrapes.read(make).await.to_string()
        };
        advance(INTERVAL).await;
        assert_eq!(read().await, "0");
        advance(KEPT / 2).await;
        assert_eq!(read().await, "0");
        scrapes.changed();
        advance(KEPT / 2).await;
        assert_eq!(read().await, "1");
        assert_eq!(read().await, "1");
        advance(KEPT).await;
        assert_eq!(read().await, "2");
    }

    /// How long it waits, if the page is read once more after `next`.
    async fn waits(scrapes: Scrapes, next: Option<Duration>) -> Duration {
        let begun = Instant::now();
        let scrape = async {
            sleep(next.unwrap_or(2 * LONGEST_WAIT)).await;
            scrapes.scraped();
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = scrapes.seen(LONGEST_WAIT) => begun.elapsed(),
            () = scrape => unreachable!("it is pending"),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn where_nobody_scrapes_nobody_is_waited_for() {
        let scrapes = Scrapes::default();
        scrapes.changed();
        assert_eq!(waits(scrapes, None).await, Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_scraped_already_needs_no_other_scrape() {
        let scrapes = Scrapes::default();
        scrapes.changed();
        advance(INTERVAL).await;
        scrapes.scraped();
        assert_eq!(waits(scrapes, None).await, Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn the_scrape_after_the_last_change_is_waited_for() {
        let scrapes = Scrapes::default();
        scrapes.scraped();
        advance(INTERVAL).await;
        scrapes.scraped();
        advance(INTERVAL / 3).await;
        scrapes.changed();
        assert_eq!(waits(scrapes, Some(INTERVAL * 2 / 3)).await, INTERVAL * 2 / 3);
    }

    #[tokio::test(start_paused = true)]
    async fn a_scraper_that_is_gone_is_not_waited_for_much_longer_than_it_used_to_take() {
        let scrapes = Scrapes::default();
        scrapes.scraped();
        advance(INTERVAL).await;
        scrapes.scraped();
        scrapes.changed();
        assert_eq!(waits(scrapes, None).await, 2 * INTERVAL);
    }

    #[tokio::test(start_paused = true)]
    async fn of_one_scrape_nothing_is_learnt_and_the_next_is_waited_for() {
        let (scraped_once, long_ago) = (Scrapes::default(), Scrapes::default());
        scraped_once.scraped();
        scraped_once.changed();
        assert_eq!(waits(scraped_once, None).await, LONGEST_WAIT);
        long_ago.scraped();
        long_ago.changed();
        assert_eq!(waits(long_ago, Some(INTERVAL)).await, INTERVAL);
    }
}
