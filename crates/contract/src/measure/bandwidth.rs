//! Bulk transfer: times and rates of each direction.

use super::{
    Measure, Metrics,
    ends::{Ends, after_first, bytes, longest, max, median, receiver_rate, sender_rate},
};
use crate::{
    distribution::Distribution,
    metric::Metric,
    node::BYTES_FOR_A_RATE_MIN,
    parameters::{Amount, Bandwidth},
    workload::{Direction, Timing},
};

impl Measure for Bandwidth {
    /// Times and rates of the directions in which bytes went, and the time to connect.
    fn metrics(&self, ends: &Ends<'_>) -> Metrics {
        // A timed transfer is long enough for a rate, however few bytes arrive.
        let least = match self.amount {
            Amount::Count(_) => BYTES_FOR_A_RATE_MIN,
            Amount::Seconds(_) => 1,
        };
        let mut metrics = Metrics::new();
        if self.direction != Direction::Download {
            let uploads = ends.uploads();
            metrics.extend(longest(&uploads).map(|seconds| (Metric::UploadSeconds, seconds)));
            let goodput = match self.timing {
                Timing::Strict => receiver_rate(&ends.arrivals(), least),
                Timing::Compat => sender_rate(&uploads),
            };
            metrics.extend(goodput.map(|rate| (Metric::UploadGoodput, rate)));
        }
        if self.direction != Direction::Upload {
            let downloads = ends.downloads();
            metrics.extend(longest(&downloads).map(|seconds| (Metric::DownloadSeconds, seconds)));
            let goodput = match self.timing {
                Timing::Strict => receiver_rate(&downloads, least),
                Timing::Compat => sender_rate(&downloads),
            };
            metrics.extend(goodput.map(|rate| (Metric::DownloadGoodput, rate)));
        }
        if let Some(connect) = ends.merged(Distribution::HandshakeEstablished) {
            metrics.insert(Metric::ConnectSeconds, median(&connect));
            metrics.insert(Metric::TotalSeconds, max(&connect) + ends.slowest());
        }
        metrics
    }

    /// Bytes that arrived in the measured directions.
    fn payload(&self, ends: &Ends<'_>) -> u64 {
        let (up, down) = (bytes(&ends.arrivals()), bytes(&ends.downloads()));
        match self.direction {
            Direction::Upload => up,
            Direction::Download => down,
            Direction::Both => up + down,
        }
    }

    /// What arrived of a timed transfer in one read has no rate, which is what the trial measures.
    fn mismatch(&self, ends: &Ends<'_>) -> Option<String> {
        let (Timing::Strict, Amount::Seconds(_)) = (self.timing, self.amount) else {
            return None;
        };
        let arrived = match self.direction {
            Direction::Upload => ends.arrivals(),
            Direction::Download => ends.downloads(),
            // Of a transfer for a time, no node accepts this.
            Direction::Both => return None,
        };
        (after_first(&arrived) == Some(0)).then(|| {
            format!(
                "{}: too little arrived within `duration` to measure a rate, {} bytes in one read: use a longer duration",
                self.direction,
                bytes(&arrived)
            )
        })
    }
}
