//! Interval samples of a running trial, taken beside the data path.

use std::{
    sync::{Arc, Mutex, atomic::Ordering},
    time::{Duration, Instant},
};

use perfrun_api::node::Sample;
use tokio::task::JoinHandle;

use crate::{metrics::TrialMetrics, process, wire::Counters};

/// The first interval. It doubles whenever there are [`MOST`] samples, so a long trial does not fill memory.
const INTERVAL: Duration = Duration::from_millis(100);
/// Samples that are kept.
const MOST: usize = 128;

/// A running sampler; stops when dropped.
pub struct Sampler {
    shared: Arc<Mutex<Series>>,
    task: JoinHandle<()>,
}

impl Sampler {
    /// Samples `counters` from a reading on, and passes on to the Prometheus metrics what they count.
    pub fn start(from: Reading, counters: Arc<Counters>, metrics: TrialMetrics) -> Self {
        let shared = Arc::new(Mutex::new(Series::new(from, metrics)));
        let series = shared.clone();
        let task = tokio::spawn(async move {
            let mut ticks = tokio::time::interval(INTERVAL);
            ticks.tick().await;
            loop {
                ticks.tick().await;
                // Read under the lock, so that readings are in order.
                let mut series = series.lock().expect("no holder panics");
                if series.ended {
                    return;
                }
                series.add(Reading::now(&counters));
            }
        });
        Self { shared, task }
    }

    /// Ends sampling: the last reading, the samples up to it, and the most resident memory seen.
    pub fn finish(&self, counters: &Counters) -> (Reading, Vec<Sample>, u64) {
        self.task.abort();
        let mut series = self.shared.lock().expect("no holder panics");
        series.ended = true;
        let last = Reading::now(counters);
        series.add(last);
        (last, std::mem::take(&mut series.samples), series.peak)
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// All counters at a moment.
#[derive(Clone, Copy)]
pub struct Reading {
    pub at: Instant,
    /// [`Counters::sent`], and so on.
    pub sent: u64,
    pub received: u64,
    operations: u64,
    pub connections: u64,
    pub streams: u64,
    pub failures: u64,
    circuits: u64,
    cpu: f64,
    rss: u64,
}

impl Reading {
    /// Reads all.
    pub fn now(counters: &Counters) -> Self {
        Self {
            at: Instant::now(),
            sent: counters.sent.load(Ordering::Relaxed),
            received: counters.received.load(Ordering::Relaxed),
            operations: counters.operations.load(Ordering::Relaxed),
            connections: counters.connections.load(Ordering::Relaxed),
            streams: counters.streams.load(Ordering::Relaxed),
            failures: counters.failures.load(Ordering::Relaxed),
            circuits: counters.circuits.load(Ordering::Relaxed),
            cpu: process::cpu(),
            rss: process::resident(),
        }
    }
}

struct Series {
    begun: Instant,
    /// End of the last sample that was kept, and of the last reading passed to the metrics.
    kept: Reading,
    passed: Reading,
    interval: Duration,
    samples: Vec<Sample>,
    peak: u64,
    ended: bool,
    metrics: TrialMetrics,
}

impl Series {
    fn new(first: Reading, metrics: TrialMetrics) -> Self {
        Self {
            begun: first.at,
            kept: first,
            passed: first,
            interval: INTERVAL,
            samples: vec![],
            peak: first.rss,
            ended: false,
            metrics,
        }
    }

    /// Takes a reading; keeps a sample when the interval is over, or at the end, so that no byte is lost.
    fn add(&mut self, now: Reading) {
        self.peak = self.peak.max(now.rss);
        let before = self.passed;
        self.metrics.add(
            now.sent - before.sent,
            now.received - before.received,
            now.connections - before.connections,
            now.streams - before.streams,
            now.failures - before.failures,
        );
        self.passed = now;
        // Half an interval of slack: ticks are not exact.
        if !self.ended && now.at - self.kept.at + INTERVAL / 2 < self.interval {
            return;
        }
        self.samples.push(sample(self.begun, &self.kept, &now));
        self.kept = now;
        if self.samples.len() == MOST {
            self.samples = self.samples.chunks(2).map(merge).collect();
            self.interval *= 2;
        }
    }
}

fn sample(begun: Instant, before: &Reading, now: &Reading) -> Sample {
    Sample {
        at_seconds: (now.at - begun).as_secs_f64(),
        interval_seconds: (now.at - before.at).as_secs_f64(),
        bytes_sent: now.sent - before.sent,
        bytes_received: now.received - before.received,
        operations: now.operations - before.operations,
        cpu_seconds: now.cpu - before.cpu,
        rss_bytes: now.rss,
        circuits: now.circuits,
    }
}

/// Neighbouring samples as one.
fn merge(samples: &[Sample]) -> Sample {
    samples
        .iter()
        .copied()
        .reduce(|a, b| Sample {
            at_seconds: b.at_seconds,
            interval_seconds: a.interval_seconds + b.interval_seconds,
            bytes_sent: a.bytes_sent + b.bytes_sent,
            bytes_received: a.bytes_received + b.bytes_received,
            operations: a.operations + b.operations,
            cpu_seconds: a.cpu_seconds + b.cpu_seconds,
            rss_bytes: b.rss_bytes,
            circuits: b.circuits,
        })
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(first: &Reading, tick: u32, sent: u64) -> Reading {
        Reading {
            at: first.at + INTERVAL * tick,
            sent,
            ..*first
        }
    }

    #[test]
    fn a_long_trial_keeps_few_samples_and_loses_no_byte() {
        let first = Reading::now(&Counters::default());
        let mut series = Series::new(first, TrialMetrics::default());
        for tick in 1..=10_000 {
            series.ended = tick == 10_000;
            series.add(reading(&first, tick, u64::from(tick) * 7));
        }
        assert!(series.samples.len() <= MOST);
        assert_eq!(series.samples.iter().map(|s| s.bytes_sent).sum::<u64>(), 70_000);
        let seconds: f64 = series.samples.iter().map(|s| s.interval_seconds).sum();
        assert!((seconds - 1000.0).abs() < 1e-6, "{seconds}");
    }
}
