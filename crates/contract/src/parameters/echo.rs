//! The load of workload `echo`.

use std::ops::RangeInclusive;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::bounds::{count, ensure, is_time};
use crate::{limits::ECHO_LINE_MAX, matrix::Identity, quantity::ByteSize};

/// Shortest and longest time between two samples, in seconds.
const SAMPLING: RangeInclusive<f64> = 0.01..=3600.0;

/// Paced echo on many streams.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Echo {
    /// Connections of each client.
    pub connections: u32,
    /// Streams of each connection.
    pub streams_per_connection: u32,
    /// Time between the starts of two connections, in seconds.
    pub connection_interval_seconds: f64,
    /// Time between the starts of two streams on one connection, in seconds.
    pub stream_interval_seconds: f64,
    /// Bytes of a line, including the line feed.
    pub message_bytes: ByteSize,
    /// Pause of a stream after each round trip, in seconds.
    pub pause_seconds: f64,
    /// Longest time that a round trip may take, in seconds.
    pub deadline_seconds: f64,
    /// Duration of the whole load, including the ramp, in seconds.
    pub duration_seconds: f64,
    /// The keys of all peers.
    #[serde(default)]
    pub identity: Identity,
    /// Time between two samples, in seconds.
    pub sample_interval_seconds: f64,
}

impl Echo {
    /// Streams of all connections of a client.
    pub fn streams(&self) -> u64 {
        u64::from(self.connections) * u64::from(self.streams_per_connection)
    }

    /// Time until the last stream starts if nothing takes any time, in seconds.
    pub fn ramp_seconds(&self) -> f64 {
        let gaps = |count: u32| f64::from(count.saturating_sub(1));
        gaps(self.connections) * self.connection_interval_seconds
            + gaps(self.streams_per_connection) * self.stream_interval_seconds
    }

    /// Round trips per second of a client if all of its streams echo and a round trip takes no time.
    pub fn nominal_rate(&self) -> f64 {
        self.streams() as f64 / self.pause_seconds
    }

    pub(super) fn check(&self) -> Result<(), String> {
        count("connections", self.connections)?;
        count("streamsPerConnection", self.streams_per_connection)?;
        ensure((2..=ECHO_LINE_MAX.0).contains(&self.message_bytes.0), || {
            format!("messageBytes must be 2 to {ECHO_LINE_MAX}")
        })?;
        for (name, seconds) in [
            ("durationSeconds", self.duration_seconds),
            ("pauseSeconds", self.pause_seconds),
            ("deadlineSeconds", self.deadline_seconds),
        ] {
            ensure(is_time(seconds), || {
                format!("{name} must be more than 0 and at most a year")
            })?;
        }
        ensure(self.pause_seconds < self.deadline_seconds, || {
            "pauseSeconds must be less than deadlineSeconds".into()
        })?;
        for (name, seconds) in [
            ("connectionIntervalSeconds", self.connection_interval_seconds),
            ("streamIntervalSeconds", self.stream_interval_seconds),
        ] {
            // For thousands of streams together, this must still be a valid time.
            ensure((0.0..=3600.0).contains(&seconds), || {
                format!("{name} must be 0 to 3600")
            })?;
        }
        ensure(SAMPLING.contains(&self.sample_interval_seconds), || {
            format!(
                "sampleIntervalSeconds must be {} to {}",
                SAMPLING.start(),
                SAMPLING.end()
            )
        })
    }
}
