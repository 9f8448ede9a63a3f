//! Durations that many tasks count at the same time, without a lock.

use std::{
    array,
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use perfrun_contract::histogram::{Recorder, recorder};

/// Buckets of an octave, as a power of two. The width of each is less than 0.8 % of its value.
const BITS: u32 = 7;
/// The largest value, as a power of two: 2^43 ns are more than two hours.
const LARGEST: u32 = 43;
const BUCKETS: usize = ((LARGEST - BITS) as usize + 1) << BITS;

/// Counts of durations by size, which take 18.5 KiB for any number of durations.
pub(crate) struct Latencies(Box<[AtomicU32; BUCKETS]>);

impl Default for Latencies {
    fn default() -> Self {
        Self(Box::new(array::from_fn(|_| AtomicU32::new(0))))
    }
}

impl std::fmt::Debug for Latencies {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Latencies")
    }
}

impl Latencies {
    /// Counts a duration.
    pub(crate) fn record(&self, time: Duration) {
        let nanoseconds = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.0[bucket(nanoseconds)].fetch_add(1, Ordering::Relaxed);
    }

    /// The durations since the last call.
    pub(crate) fn take(&self) -> Recorder {
        let mut taken = recorder();
        for (bucket, count) in self.0.iter().enumerate() {
            if count.load(Ordering::Relaxed) > 0 {
                taken
                    .record_n(middle(bucket), count.swap(0, Ordering::Relaxed).into())
                    .expect("a recorder that resizes takes every value");
            }
        }
        taken
    }
}

/// All values of an octave have the same shift, which leaves a one and the number of the bucket within the
/// octave.
fn bucket(nanoseconds: u64) -> usize {
    let nanoseconds = nanoseconds.min((1 << LARGEST) - 1);
    let shift = (u64::BITS - nanoseconds.leading_zeros()).saturating_sub(BITS + 1);
    ((shift as usize) << BITS) + (nanoseconds >> shift) as usize
}

fn middle(bucket: usize) -> u64 {
    let shift = (bucket >> BITS).saturating_sub(1);
    let first = ((bucket - (shift << BITS)) as u64) << shift;
    first + (1 << shift) / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_duration_is_kept_within_a_hundredth() {
        let latencies = Latencies::default();
        let mut value = 1_u64;
        while value < 1 << LARGEST {
            for nanoseconds in [value, value + value / 3, value * 2 - 1] {
                latencies.record(Duration::from_nanos(nanoseconds));
                let taken = latencies.take();
                assert_eq!(taken.len(), 1);
                let error = taken.max().abs_diff(nanoseconds) as f64 / nanoseconds as f64;
                assert!(error < 0.01, "{nanoseconds}: {}", taken.max());
            }
            value *= 2;
        }
        assert!(latencies.take().is_empty());
        latencies.record(Duration::MAX);
        assert_eq!(latencies.take().len(), 1);
    }

    #[test]
    fn buckets_follow_each_other_without_a_gap() {
        let mut last = bucket(0);
        for nanoseconds in 1..100_000 {
            let next = bucket(nanoseconds);
            assert!(next == last || next == last + 1, "{nanoseconds}");
            last = next;
        }
    }
}
