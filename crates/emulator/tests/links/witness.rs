//! How late this machine is, whatever is measured on it.
//!
//! The tests hold links to tenths of a millisecond. On a machine whose CPUs others also use, threads wake up
//! later than that, and a wrong result then says nothing about the link: such a measurement is void.
//!
//! A machine that stands still for 15 ms is late once for a thread that sleeps, and late for all of the
//! packets of these 15 ms. So a witness is due at fixed times, as packets are, and late for each that it
//! missed. It stands on each CPU: a hypervisor can take one of them away while the others run.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::traffic::go_first;

const PERIOD: Duration = Duration::from_millis(2);

/// The number of threads that must wake up for a round trip: the emulator for the packet and for its clock,
/// the peer, and the receiver.
const WAITS: u32 = 4;

/// How late threads woke up that were due every [`PERIOD`], in ascending order, for each CPU.
pub(crate) struct Lateness(Vec<Vec<Duration>>);

/// Measures while threads, one on each CPU, do nothing but sleep; returns both results.
pub(crate) fn beside<T>(measure: impl FnOnce() -> T) -> (T, Lateness) {
    let is_over = Over(Arc::default());
    let witnesses: Vec<_> = cpus()
        .map(|cpu| {
            let is_over = Arc::clone(&is_over.0);
            thread::spawn(move || {
                sched_setaffinity(None, &cpu).unwrap();
                go_first();
                watch(&is_over)
            })
        })
        .collect();
    let measured = measure();
    drop(is_over);
    let late = witnesses.into_iter().map(|witness| witness.join().unwrap());
    (measured, Lateness(late.collect()))
}

/// Ends the witnesses, also if the measurement panics.
struct Over(Arc<AtomicBool>);

impl Drop for Over {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The CPUs that this process may use, one in each set.
fn cpus() -> impl Iterator<Item = CpuSet> {
    let usable = sched_getaffinity(None).unwrap();
    (0..CpuSet::MAX_CPU)
        .filter(move |cpu| usable.is_set(*cpu))
        .map(|cpu| {
            let mut one = CpuSet::new();
            one.set(cpu);
            one
        })
}

fn watch(is_over: &AtomicBool) -> Vec<Duration> {
    let mut late = Vec::new();
    let mut due = Instant::now() + PERIOD;
    while !is_over.load(Ordering::Relaxed) {
        thread::sleep(due.saturating_duration_since(Instant::now()));
        let missed = since(due, Instant::now());
        due += PERIOD * missed.len() as u32;
        late.extend(missed);
    }
    late.sort_unstable();
    late
}

/// How late a thread is that wakes up now, for each time at which it was due.
fn since(due: Instant, now: Instant) -> Vec<Duration> {
    let times = (0..).map(|number| due + PERIOD * number);
    times.map_while(|due| now.checked_duration_since(due)).collect()
}

#[test]
fn a_pause_counts_as_one_late_wake_up_for_each_period_that_it_lasts() {
    let due = Instant::now();
    let milliseconds = |late: [u64; 3]| late.map(Duration::from_millis);
    assert_eq!(
        since(due, due + Duration::from_millis(5)),
        milliseconds([5, 3, 1])
    );
    assert!(since(due + PERIOD, due).is_empty());
}

impl Lateness {
    /// The lateness of the CPU that is the latest: a round trip may wait on it.
    fn quantile(&self, share: f64) -> Duration {
        self.latest(|late| {
            let last = late.len().saturating_sub(1);
            let at = (last as f64 * share) as usize;
            late.get(at).copied().unwrap_or_default()
        })
    }

    /// Like [`Self::quantile`].
    fn mean(&self) -> Duration {
        self.latest(|late| {
            let count = u32::try_from(late.len()).unwrap_or(u32::MAX);
            late.iter().sum::<Duration>() / count.max(1)
        })
    }

    fn latest(&self, of: impl Fn(&[Duration]) -> Duration) -> Duration {
        self.0.iter().map(|late| of(late)).max().unwrap_or_default()
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
