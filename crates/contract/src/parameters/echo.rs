//! The load of workload `echo`.

use std::{ops::RangeInclusive, time::Duration};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::{AsRefStr, VariantNames};

use super::{
    Parameters, Use,
    bounds::{count, duration, ensure, is_time},
    facts::{FILES_BESIDES, FILES_OF_HOST, Workload},
};
use crate::{
    distribution::Distribution,
    limits::ECHO_LINE_MAX,
    matrix::{Identity, Protocol},
    metric::Metric,
    quantity::ByteSize,
};

pub(super) const USES: &[Use] = &[
    ("`echo`", |streams| of_streams(streams, 1, Identity::Ed25519)),
    ("`echo`, 100 connections", |streams| {
        of_streams(streams, 100, Identity::Ed25519)
    }),
    ("`echo`, rsa2048", |streams| {
        of_streams(streams, 1, Identity::Rsa2048)
    }),
];

fn of_streams(streams_per_connection: u32, connections: u32, identity: Identity) -> Parameters {
    Parameters::Echo(Echo {
        connections,
        streams_per_connection,
        connection_interval_seconds: 1.0,
        stream_interval_seconds: 0.1,
        message_bytes: ByteSize(1024),
        pace: Pace::Pause(0.5),
        deadline_seconds: 5.0,
        duration_seconds: 300.0,
        identity,
        sample_interval_seconds: 1.0,
    })
}

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
    /// When a stream sends its next line.
    #[serde(flatten)]
    pub pace: Pace,
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

/// When a stream of an echo sends its next line.
#[derive(AsRefStr, Clone, Copy, Debug, Deserialize, JsonSchema, PartialEq, Serialize, VariantNames)]
#[serde(try_from = "PaceFields", into = "PaceFields")]
#[strum(serialize_all = "camelCase")]
pub enum Pace {
    /// This time after each answer, in seconds.
    Pause(f64),
    /// At fixed times with this time between them, in seconds. A stream that still waits for an answer sends
    /// its line as soon as it has it.
    Period(f64),
}

/// A pace in JSON. Each has a field of its own, so that a node that knows only one of them refuses the other.
#[serde_with_macros::skip_serializing_none]
#[derive(Deserialize, JsonSchema, Serialize)]
#[serde(rename_all = "camelCase")]
struct PaceFields {
    /// Pause of a stream after each round trip, in seconds. Either this or `periodSeconds` is set.
    pause_seconds: Option<f64>,
    /// Time between the moments at which lines of a stream are due, in seconds. The streams of a client share
    /// each period evenly: the lines of stream `i` of `n` are due at `i/n` of each period since the start of
    /// the load, where `i` is `streamIndex × connections + connectionIndex`, from 0 on. A stream that still
    /// waits for an answer sends its next line immediately after the answer. The round trip of a late line
    /// counts from when the line was due, except for what a timer added, at most 2 ms. Late lines are sent
    /// one by one. No line is skipped, and no line is sent after the end.
    period_seconds: Option<f64>,
}

impl TryFrom<PaceFields> for Pace {
    type Error = &'static str;

    fn try_from(fields: PaceFields) -> Result<Self, Self::Error> {
        match (fields.pause_seconds, fields.period_seconds) {
            (Some(seconds), None) => Ok(Self::Pause(seconds)),
            (None, Some(seconds)) => Ok(Self::Period(seconds)),
            _ => Err("an echo must have either pauseSeconds or periodSeconds"),
        }
    }
}

impl From<Pace> for PaceFields {
    fn from(pace: Pace) -> Self {
        let (pause_seconds, period_seconds) = match pace {
            Pace::Pause(seconds) => (Some(seconds), None),
            Pace::Period(seconds) => (None, Some(seconds)),
        };
        Self {
            pause_seconds,
            period_seconds,
        }
    }
}

impl Pace {
    /// The time between two lines of a stream if a round trip takes no time, in seconds.
    pub fn seconds(self) -> f64 {
        match self {
            Self::Pause(seconds) | Self::Period(seconds) => seconds,
        }
    }
}

impl Echo {
    /// Streams of all connections of a client.
    pub fn streams(&self) -> u64 {
        u64::from(self.connections) * u64::from(self.streams_per_connection)
    }

    /// Longest time until all streams have sent a line if nothing takes any time, in seconds.
    pub fn ramp_seconds(&self) -> f64 {
        let gaps = |count: u32| f64::from(count.saturating_sub(1));
        let first_line = match self.pace {
            Pace::Pause(_) => 0.0,
            Pace::Period(seconds) => seconds,
        };
        gaps(self.connections) * self.connection_interval_seconds
            + gaps(self.streams_per_connection) * self.stream_interval_seconds
            + first_line
    }

    /// Longest time that a round trip may take.
    pub fn deadline(&self) -> Duration {
        duration(self.deadline_seconds)
    }

    /// Round trips per second of a client if all of its streams echo and a round trip takes no time.
    pub fn nominal_rate(&self) -> f64 {
        self.streams() as f64 / self.pace.seconds()
    }
}

impl Workload for Echo {
    fn in_short(&self) -> String {
        let mut short = format!("echo-{}x{}", self.connections, self.streams_per_connection);
        if self.identity != Identity::Ed25519 {
            short += &format!("-{}", self.identity);
        }
        match self.pace {
            Pace::Pause(_) => short,
            Pace::Period(_) => short + "-period",
        }
    }

    fn protocol(&self) -> Protocol {
        Protocol::Echo
    }

    fn check(&self) -> Result<(), String> {
        count("connections", self.connections)?;
        count("streamsPerConnection", self.streams_per_connection)?;
        ensure((2..=ECHO_LINE_MAX.0).contains(&self.message_bytes.0), || {
            format!("messageBytes must be 2 to {ECHO_LINE_MAX}")
        })?;
        let paced = format!("{}Seconds", self.pace.as_ref());
        for (name, seconds) in [
            ("durationSeconds", self.duration_seconds),
            (paced.as_str(), self.pace.seconds()),
            ("deadlineSeconds", self.deadline_seconds),
        ] {
            ensure(is_time(seconds), || {
                format!("{name} must be more than 0 and at most a year")
            })?;
        }
        ensure(self.pace.seconds() < self.deadline_seconds, || {
            format!("{paced} must be less than deadlineSeconds")
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

    fn own_metrics(&self) -> Vec<Metric> {
        let others = [
            Metric::RoundTripsPerSecond,
            Metric::AchievedShare,
            Metric::EchoingStreams,
            Metric::RampSeconds,
            Metric::RampLateness,
            Metric::Failures,
        ];
        [&Metric::ROUND_TRIP[..], &others].concat()
    }

    fn speeds(&self) -> Vec<Metric> {
        vec![Metric::RoundTripP50]
    }

    fn costs(&self) -> Vec<Metric> {
        vec![Metric::CpuSecondsPerOperation, Metric::ClientAllocatedPerStream]
    }

    fn identity(&self) -> Identity {
        self.identity
    }

    fn streams(&self) -> u32 {
        self.streams_per_connection
    }

    fn burst(&self) -> u32 {
        match self.stream_interval_seconds > 0.0 {
            true => 1,
            false => self.streams_per_connection,
        }
    }

    fn duration(&self) -> Duration {
        duration(self.duration_seconds)
    }

    fn field_of_duration(&self) -> Option<&'static str> {
        Some("echo.duration")
    }

    fn sample_interval_seconds(&self) -> Option<f64> {
        Some(self.sample_interval_seconds)
    }

    fn connects_before_start(&self) -> bool {
        false
    }

    fn is_about_streams(&self) -> bool {
        true
    }

    fn has_own_peers(&self) -> bool {
        true
    }

    fn operation(&self) -> Option<Distribution> {
        Some(Distribution::RoundTrip)
    }

    /// Each connection is a peer.
    fn hosts_of_peer(&self) -> u32 {
        self.connections
    }

    fn hosts_of_server(&self) -> u32 {
        self.connections
    }

    fn client_files(&self, hosts: u64, stream_is_connection: bool) -> u64 {
        match stream_is_connection {
            true => self.streams() + FILES_BESIDES,
            false => FILES_OF_HOST * hosts,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// Parameters of an echo with these fields for its pace, and one that no version knows.
    fn read(pace: &Value) -> Result<Parameters, String> {
        let mut fields = json!({
            "workload": "echo", "connections": 1, "streamsPerConnection": 2, "connectionIntervalSeconds": 1,
            "streamIntervalSeconds": 0.1, "messageBytes": "1Ki", "deadlineSeconds": 5, "durationSeconds": 20,
            "sampleIntervalSeconds": 1, "colour": "blue",
        });
        let pace = pace.as_object().expect("fields").clone();
        fields.as_object_mut().expect("fields").extend(pace);
        serde_json::from_value(fields).map_err(|error| error.to_string())
    }

    #[test]
    fn each_pace_has_a_field_of_its_own() {
        for (fields, pace) in [
            (json!({"pauseSeconds": 2}), Pace::Pause(2.0)),
            (json!({"periodSeconds": 0.5}), Pace::Period(0.5)),
        ] {
            let parameters = read(&fields).unwrap();
            assert_eq!(parameters.pace(), Some(pace));
            let written = serde_json::to_value(&parameters).unwrap();
            assert_eq!(
                serde_json::from_value::<Parameters>(written.clone()).unwrap(),
                parameters
            );
            let has = |name: &str| written.get(name).and_then(Value::as_f64);
            let expected = PaceFields::from(pace);
            assert_eq!(
                (has("pauseSeconds"), has("periodSeconds")),
                (expected.pause_seconds, expected.period_seconds)
            );
        }
    }

    #[test]
    fn both_paces_and_no_pace_are_refused() {
        for fields in [
            json!({"pauseSeconds": 0.5, "periodSeconds": 0.5}),
            json!({"pauseSeconds": 0, "periodSeconds": 0.5}),
            json!({}),
        ] {
            let refused = read(&fields).unwrap_err();
            assert!(
                refused.contains("either pauseSeconds or periodSeconds"),
                "{refused}"
            );
        }
    }

    #[test]
    fn a_ramp_has_room_for_the_first_line_of_its_last_stream() {
        let ramp = |fields: Value| match read(&fields) {
            Ok(Parameters::Echo(load)) => load.ramp_seconds(),
            other => panic!("{other:?}"),
        };
        assert!((ramp(json!({"pauseSeconds": 0.5})) - 0.1).abs() < 1e-9);
        assert!((ramp(json!({"periodSeconds": 0.5})) - 0.6).abs() < 1e-9);
    }
}
