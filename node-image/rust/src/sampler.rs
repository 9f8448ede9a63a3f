//! Samples of a running trial at intervals, taken outside of the data path.

use std::{
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use perfrun_contract::{
    histogram::{Recorder, recorder},
    node::{EchoSample, Sample},
    parameters::Parameters,
};
use tokio::task::JoinHandle;

use crate::{
    allocator,
    metrics::TrialMetrics,
    process::{self, InterfaceBytes},
    wire::{Counters, Counts},
};

/// How samples of a trial are taken.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sampling {
    /// The first interval. It doubles whenever `most` samples are kept, so that a long trial does not fill
    /// memory.
    interval: Duration,
    /// The most samples to keep.
    most: usize,
    /// Whether the workload is an echo.
    echo: bool,
    /// Whether to read the counters of interfaces: a relay does not count its payload.
    interfaces: bool,
}

impl Default for Sampling {
    fn default() -> Self {
        Self {
            interval: Duration::from_millis(100),
            most: 128,
            echo: false,
            interfaces: false,
        }
    }
}

impl From<&Parameters> for Sampling {
    fn from(parameters: &Parameters) -> Self {
        match parameters.sample_interval_seconds() {
            Some(seconds) => Self {
                interval: Duration::from_secs_f64(seconds),
                // A sample per second for an hour.
                most: 4096,
                echo: true,
                interfaces: false,
            },
            None => Self {
                interfaces: parameters.is_relayed(),
                ..Self::default()
            },
        }
    }
}

/// A running sampler, which stops when dropped.
pub(crate) struct Sampler {
    shared: Arc<Mutex<Series>>,
    task: JoinHandle<()>,
}

impl Sampler {
    /// Samples `counters` from a reading on, and adds the differences to the Prometheus metrics.
    pub(crate) fn start(
        from: Reading,
        counters: Arc<Counters>,
        metrics: TrialMetrics,
        sampling: Sampling,
    ) -> Self {
        let shared = Arc::new(Mutex::new(Series::new(from, counters.clone(), metrics, sampling)));
        let series = shared.clone();
        let task = tokio::spawn(async move {
            let mut ticks = tokio::time::interval(sampling.interval);
            ticks.tick().await;
            loop {
                ticks.tick().await;
                // Read under the lock, so that readings are in order.
                let mut series = series.lock();
                if series.ended {
                    return;
                }
                series.add(Reading::now(&counters));
            }
        });
        Self { shared, task }
    }

    /// Ends sampling with a last reading.
    pub(crate) fn finish(&self, counters: &Counters) -> Sampled {
        self.task.abort();
        let mut series = self.shared.lock();
        series.ended = true;
        let last = Reading::now(counters);
        series.add(last);
        Sampled {
            last,
            samples: std::mem::take(&mut series.samples),
            rss_peak: series.rss_peak,
            allocated_peak: series.allocated_peak,
            round_trips: series.round_trips.take(),
        }
    }
}

/// The result of sampling.
pub(crate) struct Sampled {
    /// The last reading.
    pub(crate) last: Reading,
    /// The samples up to it.
    pub(crate) samples: Vec<Sample>,
    /// The most resident memory in any reading, in bytes.
    pub(crate) rss_peak: u64,
    /// The most allocated memory in any reading, in bytes.
    pub(crate) allocated_peak: Option<u64>,
    /// All round trips of an echo. `None` for other workloads.
    pub(crate) round_trips: Option<Recorder>,
}

impl Drop for Sampler {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// All counters at a moment.
#[derive(Clone, Copy)]
pub(crate) struct Reading {
    pub(crate) at: Instant,
    pub(crate) counts: Counts,
    circuits: u64,
    active: u64,
    cpu: f64,
    rss: u64,
    allocated: Option<u64>,
}

impl Reading {
    pub(crate) fn now(counters: &Counters) -> Self {
        Self {
            at: Instant::now(),
            counts: counters.counts(),
            circuits: counters.circuits.load(Ordering::Relaxed),
            active: counters.active.load(Ordering::Relaxed),
            cpu: process::cpu(),
            rss: process::resident(),
            allocated: allocator::allocated(),
        }
    }
}

struct Series {
    counters: Arc<Counters>,
    sampling: Sampling,
    begun: Instant,
    /// The reading at the end of the last sample.
    kept: Reading,
    /// What was already added to the metrics.
    passed: Counts,
    /// Bytes of interfaces at the end of the last sample.
    carried: Option<InterfaceBytes>,
    interval: Duration,
    samples: Vec<Sample>,
    rss_peak: u64,
    allocated_peak: Option<u64>,
    round_trips: Option<Recorder>,
    ended: bool,
    metrics: TrialMetrics,
}

impl Series {
    fn new(first: Reading, counters: Arc<Counters>, metrics: TrialMetrics, sampling: Sampling) -> Self {
        Self {
            counters,
            sampling,
            begun: first.at,
            kept: first,
            passed: first.counts,
            carried: interfaces(sampling),
            interval: sampling.interval,
            samples: vec![],
            rss_peak: first.rss,
            // Without the first reading: hosts of the last trial may still be closing.
            allocated_peak: None,
            round_trips: sampling.echo.then(recorder),
            ended: false,
            metrics,
        }
    }

    /// Adds a reading. Keeps a sample when the interval is over and at the end, so that no byte is lost.
    fn add(&mut self, now: Reading) {
        self.rss_peak = self.rss_peak.max(now.rss);
        self.allocated_peak = self.allocated_peak.max(now.allocated);
        self.metrics.add(&now.counts.since(&self.passed));
        self.passed = now.counts;
        // Half an interval of slack: ticks are not exact.
        if !self.ended && now.at - self.kept.at + self.sampling.interval / 2 < self.interval {
            return;
        }
        let echo = self.echo(&now);
        let carried = interfaces(self.sampling);
        let since = carried.zip(self.carried).and_then(|(now, then)| now.since(then));
        self.samples.push(Sample {
            echo,
            interface_received_bytes: since.map(|bytes| bytes.received),
            interface_sent_bytes: since.map(|bytes| bytes.sent),
            ..sample(self.begun, &self.kept, &now)
        });
        // A moment after the last interval becomes part of it: a rate over almost no time is meaningless.
        if now.at - self.kept.at < self.interval / 2
            && let [.., before, last] = self.samples.as_slice()
        {
            let both = Sample::merged(&[before.clone(), last.clone()]);
            self.samples.truncate(self.samples.len() - 2);
            self.samples.push(both);
        }
        (self.kept, self.carried) = (now, carried);
        if self.samples.len() == self.sampling.most {
            self.samples = self.samples.chunks(2).map(Sample::merged).collect();
            self.interval *= 2;
        }
    }

    /// The echo since the last sample.
    fn echo(&mut self, now: &Reading) -> Option<EchoSample> {
        let all = self.round_trips.as_mut()?;
        let recent = self.counters.round_trips.take();
        all.add(&recent)
            .expect("a recorder that resizes takes every value");
        let echoing_streams = self.counters.echoing.take();
        self.metrics.set_echoing(echoing_streams);
        let quantile = |quantile| {
            let nanoseconds = (!recent.is_empty()).then(|| recent.value_at_quantile(quantile));
            nanoseconds.map(|nanoseconds| nanoseconds as f64 / 1e9)
        };
        Some(EchoSample {
            active_streams: now.active,
            echoing_streams,
            round_trip_p50_seconds: quantile(0.5),
            round_trip_p99_seconds: quantile(0.99),
        })
    }
}

fn interfaces(sampling: Sampling) -> Option<InterfaceBytes> {
    sampling.interfaces.then(process::interfaces).flatten()
}

fn sample(begun: Instant, before: &Reading, now: &Reading) -> Sample {
    let counted = now.counts.since(&before.counts);
    Sample {
        at_seconds: (now.at - begun).as_secs_f64(),
        interval_seconds: (now.at - before.at).as_secs_f64(),
        bytes_sent: counted.sent,
        bytes_received: counted.received,
        operations: counted.operations,
        cpu_seconds: now.cpu - before.cpu,
        rss_bytes: now.rss,
        circuits: now.circuits,
        allocated_bytes: now.allocated,
        echo: None,
        interface_received_bytes: None,
        interface_sent_bytes: None,
        errors: counted.errors(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(first: &Reading, tick: u32, sent: u64) -> Reading {
        let mut counts = first.counts;
        counts.sent = sent;
        Reading {
            at: first.at + Sampling::default().interval * tick,
            counts,
            ..*first
        }
    }

    #[test]
    fn a_long_trial_keeps_few_samples_and_loses_no_byte() {
        let first = Reading::now(&Counters::default());
        let sampling = Sampling::default();
        let mut series = Series::new(first, Arc::default(), TrialMetrics::default(), sampling);
        for tick in 1..=10_000 {
            series.ended = tick == 10_000;
            series.add(reading(&first, tick, u64::from(tick) * 7));
        }
        assert!(series.samples.len() <= sampling.most);
        assert_eq!(series.samples.iter().map(|s| s.bytes_sent).sum::<u64>(), 70_000);
        let seconds: f64 = series.samples.iter().map(|s| s.interval_seconds).sum();
        assert!((seconds - 1000.0).abs() < 1e-6, "{seconds}");
    }
}
