//! What happens in the intervals of a trial.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Reason;
use crate::newer;

/// What happened in one interval of a trial.
#[serde_with_macros::skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Sample {
    /// End of the interval, in seconds since the start (client) or since the first connection (server).
    pub at_seconds: f64,
    /// Length of the interval, in seconds. Those of a node are equal, except for the last: one that is longer
    /// and in which the node used no CPU shows that the node stood still.
    pub interval_seconds: f64,
    /// Payload bytes sent in it.
    pub bytes_sent: u64,
    /// Payload bytes received in it.
    pub bytes_received: u64,
    /// Operations completed in it.
    pub operations: u64,
    /// CPU time used in it, in seconds.
    pub cpu_seconds: f64,
    /// Resident memory at its end, in bytes.
    pub rss_bytes: u64,
    /// Circuits that were up at its end (relay).
    #[serde(default, skip_serializing_if = "super::is_zero")]
    pub circuits: u64,
    /// Bytes that the interfaces of the node's network namespace received in it, headers and all, loopback
    /// left out, where there is a relay.
    pub interface_received_bytes: Option<u64>,
    /// Bytes that these interfaces sent in it.
    pub interface_sent_bytes: Option<u64>,
    /// Memory that the program has allocated at its end, in bytes.
    pub allocated_bytes: Option<u64>,
    /// The activity on its streams, of an echo.
    pub echo: Option<EchoSample>,
    /// Operations that failed in it, by kind.
    #[serde(
        default,
        deserialize_with = "newer::map",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub errors: BTreeMap<Reason, u64>,
}

/// The activity on the streams of an echo in one interval.
#[serde_with_macros::skip_serializing_none]
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EchoSample {
    /// Streams that were begun and have not ended, at the end of the interval. At a client they are begun
    /// before they are open.
    pub active_streams: u64,
    /// Streams that completed a round trip in it.
    pub echoing_streams: u64,
    /// Median of these round trips, in seconds (client).
    pub round_trip_p50_seconds: Option<f64>,
    /// 99th percentile of these round trips, in seconds (client).
    pub round_trip_p99_seconds: Option<f64>,
}

impl Sample {
    /// Merges samples of neighbouring intervals into that of the whole interval.
    #[must_use]
    pub fn merged(samples: &[Self]) -> Self {
        samples
            .iter()
            .cloned()
            .reduce(|mut a, b| Self {
                at_seconds: b.at_seconds,
                interval_seconds: a.interval_seconds + b.interval_seconds,
                bytes_sent: a.bytes_sent.saturating_add(b.bytes_sent),
                bytes_received: a.bytes_received.saturating_add(b.bytes_received),
                operations: a.operations.saturating_add(b.operations),
                cpu_seconds: a.cpu_seconds + b.cpu_seconds,
                rss_bytes: b.rss_bytes,
                circuits: b.circuits,
                allocated_bytes: b.allocated_bytes,
                interface_received_bytes: sum(a.interface_received_bytes, b.interface_received_bytes),
                interface_sent_bytes: sum(a.interface_sent_bytes, b.interface_sent_bytes),
                echo: a.echo.zip(b.echo).map(|(a, b)| EchoSample {
                    active_streams: a.active_streams.max(b.active_streams),
                    // At least the larger number echoed in the whole interval. Of percentiles, the worse one
                    // counts.
                    echoing_streams: a.echoing_streams.max(b.echoing_streams),
                    round_trip_p50_seconds: worse(a.round_trip_p50_seconds, b.round_trip_p50_seconds),
                    round_trip_p99_seconds: worse(a.round_trip_p99_seconds, b.round_trip_p99_seconds),
                }),
                errors: {
                    for (reason, count) in b.errors {
                        let sum = a.errors.entry(reason).or_default();
                        *sum = sum.saturating_add(count);
                    }
                    a.errors
                },
            })
            .unwrap_or_default()
    }
}

fn sum(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    Some(a?.saturating_add(b?))
}

fn worse(a: Option<f64>, b: Option<f64>) -> Option<f64> {
    [a, b].into_iter().flatten().reduce(f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merged_samples_have_the_sum_of_interface_bytes_if_both_are_known() {
        let carried = |received, sent| Sample {
            interface_received_bytes: received,
            interface_sent_bytes: sent,
            ..Sample::default()
        };
        let both = Sample::merged(&[carried(Some(5), Some(7)), carried(Some(6), None)]);
        assert_eq!(both, carried(Some(11), None));
    }
}
