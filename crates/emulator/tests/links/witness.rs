//! How late this machine is, whatever is measured on it.
//!
//! The tests hold links to tenths of a millisecond. On a machine whose CPUs others also use, threads wake up
//! later than that, and a wrong result then says nothing about the link: such a measurement is void.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use crate::traffic::go_first;

const PERIOD: Duration = Duration::from_millis(2);

/// The number of threads that must wake up for a round trip: the emulator for the packet and for its clock,
/// the peer, and the receiver.
const WAITS: u32 = 4;

/// How late a sleeping thread woke up, each time.
pub(crate) struct Lateness(Vec<Duration>);

/// Measures while a thread does nothing but sleep; returns both results.
pub(crate) fn beside<T>(measure: impl FnOnce() -> T) -> (T, Lateness) {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let witness = scope.spawn(|| {
            go_first();
            let mut late = Vec::new();
            while !is_over.load(Ordering::Relaxed) {
                let begin = Instant::now();
                thread::sleep(PERIOD);
                late.push(begin.elapsed().saturating_sub(PERIOD));
            }
            late.sort_unstable();
            Lateness(late)
        });
        let measured = measure();
        is_over.store(true, Ordering::Relaxed);
        (measured, witness.join().unwrap())
    })
}

impl Lateness {
    fn quantile(&self, share: f64) -> Duration {
        let last = self.0.len().saturating_sub(1);
        let at = (last as f64 * share) as usize;
        self.0.get(at).copied().unwrap_or_default()
    }

    fn mean(&self) -> Duration {
        let count = u32::try_from(self.0.len()).unwrap_or(u32::MAX);
        self.0.iter().sum::<Duration>() / count.max(1)
    }

    /// Whether the machine allows medians of round trips to be held to `tolerance` milliseconds, or whether
    /// they are off by more than lateness explains.
    pub(crate) fn allows_median(&self, tolerance: f64, off: f64) -> Result<(), String> {
        self.allows(self.quantile(0.5), WAITS, (tolerance, off), "at the median")
    }

    /// Like [`Self::allows_median`], for averages.
    pub(crate) fn allows_mean(&self, tolerance: f64, off: f64) -> Result<(), String> {
        self.allows(self.mean(), WAITS, (tolerance, off), "on average")
    }

    /// Like [`Self::allows_median`], for what the slowest `share` of round trips decides: one late wake-up of
    /// a round trip is enough.
    pub(crate) fn allows_slowest(&self, share: f64, tolerance: f64, off: f64) -> Result<(), String> {
        let late = self.quantile(1.0 - share / f64::from(WAITS));
        self.allows(late, 1, (tolerance, off), "in the worst moments")
    }

    fn allows(
        &self,
        late: Duration,
        waits: u32,
        (tolerance, off): (f64, f64),
        at: &str,
    ) -> Result<(), String> {
        let late = milliseconds(late);
        // A result that is off by more than the worst moments explain is wrong on any machine.
        let worst = milliseconds(self.quantile(0.99)).max(late);
        let most = tolerance + worst * f64::from(WAITS);
        if late * f64::from(waits) <= tolerance || off > most {
            return Ok(());
        }
        Err(format!(
            "this machine woke threads {late:.3} ms late {at} meanwhile: too late to hold a link to {tolerance} ms"
        ))
    }
}

fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}
