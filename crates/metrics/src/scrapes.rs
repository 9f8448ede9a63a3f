//! Who reads a page, and whether they have seen its last values: what is not scraped is lost.

use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::{
    sync::Notify,
    time::{Instant, timeout_at},
};

/// The longest time that an ending program waits for a scraper to come back: what Prometheus leaves
/// between two scrapes by default, a minute, and a little more.
pub const WAIT_MAX: Duration = Duration::from_secs(65);

/// A scraper that comes every second may be late by more than that on a busy machine.
const WAIT_MIN: Duration = Duration::from_secs(5);

/// How long a page is kept for further readers: a second, less what a scraper that comes each second may be
/// early.
const PAGE_AGE_MAX: Duration = Duration::from_millis(900);

/// When a page was read, and when its values changed.
#[derive(Debug)]
pub struct Scrapes {
    times: Mutex<ScrapeTimes>,
    scraped: Notify,
    /// The last page, and when it was made.
    page: tokio::sync::Mutex<Option<(Instant, Arc<str>)>>,
}

#[derive(Clone, Copy, Debug)]
struct ScrapeTimes {
    changed: Instant,
    /// When a scraper last came, for a page that it had in time or not.
    came: Option<Instant>,
    /// The longest time between two scrapes.
    interval: Option<Duration>,
    /// When the newest page was made that a scraper had in time.
    read: Option<Instant>,
}

impl Default for Scrapes {
    fn default() -> Self {
        Self {
            times: Mutex::new(ScrapeTimes {
                changed: Instant::now(),
                came: None,
                interval: None,
                read: None,
            }),
            scraped: Notify::new(),
            page: tokio::sync::Mutex::default(),
        }
    }
}

impl Scrapes {
    /// Notes that values have changed, for the last time as far as is known.
    pub fn note_change(&self) {
        self.times.lock().changed = Instant::now();
    }

    /// The page, for a scraper that reads it now, and gives up after `patience`. `make` makes it about once a
    /// second at most, however often it is read, and again after values have [changed](Self::note_change).
    ///
    /// A scraper that has given up has not read the page: it throws away what still arrives.
    pub async fn read<F: Future<Output = String>>(
        &self,
        patience: Option<Duration>,
        make: impl FnOnce() -> F,
    ) -> Arc<str> {
        let came = self.note_arrival();
        let (made, page) = self.page(make).await;
        if patience.is_none_or(|patience| came.elapsed() < patience) {
            let mut times = self.times.lock();
            times.read = times.read.max(Some(made));
            drop(times);
            self.scraped.notify_waiters();
        }
        page
    }

    /// Whether a scraper has read a page that was made after this time.
    pub fn was_read_after(&self, then: Instant) -> bool {
        self.times.lock().read.is_some_and(|made| made > then)
    }

    /// The page, and when it was made.
    async fn page<F: Future<Output = String>>(&self, make: impl FnOnce() -> F) -> (Instant, Arc<str>) {
        let mut kept = self.page.lock().await;
        let changed = self.times.lock().changed;
        if let Some((made, page)) = &*kept
            && *made > changed
            && made.elapsed() < PAGE_AGE_MAX
        {
            return (*made, page.clone());
        }
        let now = Instant::now();
        let page: Arc<str> = make().await.into();
        *kept = Some((now, page.clone()));
        (now, page)
    }

    /// Notes that a scraper has come. Those who wait learn that it is not gone, even if it gives up.
    fn note_arrival(&self) -> Instant {
        let now = Instant::now();
        let mut times = self.times.lock();
        if let Some(last) = times.came.replace(now) {
            let since = now - last;
            times.interval = Some(times.interval.map_or(since, |longest| longest.max(since)));
        }
        drop(times);
        self.scraped.notify_waiters();
        now
    }

    /// Waits until a scraper has read a page that was made after its values changed, at most this long. Does
    /// not wait if no scraper ever came, or if it has not come back for twice its usual time.
    pub async fn wait_until_read(&self, most: Duration) {
        let end = Instant::now() + most;
        loop {
            let next = self.scraped.notified();
            let ScrapeTimes {
                changed,
                came,
                interval,
                read,
            } = *self.times.lock();
            let Some(came) = came.filter(|_| read.is_none_or(|made| made <= changed)) else {
                return;
            };
            let expected = interval.map_or(end, |interval| came + (2 * interval).max(WAIT_MIN));
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
            scrapes.read(None, make).await.to_string()
        };
        advance(INTERVAL).await;
        assert_eq!(read().await, "0");
        advance(PAGE_AGE_MAX / 2).await;
        assert_eq!(read().await, "0");
        scrapes.note_change();
        advance(PAGE_AGE_MAX / 2).await;
        assert_eq!(read().await, "1");
        assert_eq!(read().await, "1");
        advance(PAGE_AGE_MAX).await;
        assert_eq!(read().await, "2");
    }

    async fn scrape(scrapes: &Scrapes) {
        scrapes.read(None, || async { String::new() }).await;
    }

    /// How long it waits, if the page is read once more after `next`.
    async fn waits(scrapes: Scrapes, next: Option<Duration>) -> Duration {
        let begun = Instant::now();
        let scrape = async {
            sleep(next.unwrap_or(2 * WAIT_MAX)).await;
            scrape(&scrapes).await;
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = scrapes.wait_until_read(WAIT_MAX) => begun.elapsed(),
            () = scrape => unreachable!("it is pending"),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_scraper_the_end_waits_for_no_scrape() {
        let scrapes = Scrapes::default();
        scrapes.note_change();
        assert_eq!(waits(scrapes, None).await, Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn a_value_that_was_scraped_needs_no_other_scrape() {
        let scrapes = Scrapes::default();
        scrapes.note_change();
        advance(INTERVAL).await;
        scrape(&scrapes).await;
        assert_eq!(waits(scrapes, None).await, Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn the_scrape_after_the_last_change_is_waited_for() {
        let scrapes = Scrapes::default();
        scrape(&scrapes).await;
        advance(INTERVAL).await;
        scrape(&scrapes).await;
        advance(INTERVAL / 3).await;
        scrapes.note_change();
        assert_eq!(waits(scrapes, Some(INTERVAL * 2 / 3)).await, INTERVAL * 2 / 3);
    }

    #[tokio::test(start_paused = true)]
    async fn a_missing_scraper_is_waited_for_little_longer_than_its_interval() {
        let scrapes = Scrapes::default();
        scrape(&scrapes).await;
        advance(INTERVAL).await;
        scrape(&scrapes).await;
        scrapes.note_change();
        assert_eq!(waits(scrapes, None).await, 2 * INTERVAL);
    }

    #[tokio::test(start_paused = true)]
    async fn after_one_scrape_the_interval_is_unknown_and_the_next_is_waited_for() {
        let (scraped_once, long_ago) = (Scrapes::default(), Scrapes::default());
        scrape(&scraped_once).await;
        scraped_once.note_change();
        assert_eq!(waits(scraped_once, None).await, WAIT_MAX);
        scrape(&long_ago).await;
        long_ago.note_change();
        assert_eq!(waits(long_ago, Some(INTERVAL)).await, INTERVAL);
    }

    /// How long a scraper waits for its page.
    const GIVES_UP: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn a_scrape_that_was_given_up_does_not_count_and_the_next_is_waited_for() {
        let scrapes = Scrapes::default();
        let read_made_in = async |takes| {
            let make = || async move {
                sleep(takes).await;
                String::new()
            };
            scrapes.read(Some(GIVES_UP), make).await;
        };
        scrape(&scrapes).await;
        advance(INTERVAL).await;
        scrapes.note_change();
        let changed = Instant::now();
        let scrapes_twice = async {
            sleep(INTERVAL / 3).await;
            read_made_in(2 * GIVES_UP).await;
            assert!(!scrapes.was_read_after(changed));
            sleep(INTERVAL - 2 * GIVES_UP).await;
            read_made_in(GIVES_UP / 2).await;
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = scrapes.wait_until_read(WAIT_MAX) => {}
            () = scrapes_twice => unreachable!("it is pending"),
        }
        assert!(scrapes.was_read_after(changed));
        assert_eq!(changed.elapsed(), INTERVAL / 3 + INTERVAL + GIVES_UP / 2);
    }
}
