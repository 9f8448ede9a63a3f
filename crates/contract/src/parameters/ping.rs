//! The load of workload `ping`.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    Parameters, Use,
    bounds::{duration, ensure, is_time},
    facts::Workload,
    way::Way,
};
use crate::{distribution::Distribution, matrix::Protocol, metric::Metric};

pub(super) const USES: &[Use] = &[("`ping`", |_| {
    Parameters::Ping(Ping {
        count: 1,
        interval_seconds: 0.0,
    })
})];

/// Round trips on one stream.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Ping {
    /// Number of round trips.
    pub count: u32,
    /// Pause between two round trips, in seconds.
    pub interval_seconds: f64,
}

impl Workload for Ping {
    fn in_short(&self) -> String {
        format!("ping-{}", self.count)
    }

    fn protocol(&self) -> Protocol {
        Protocol::Ping
    }

    fn check(&self) -> Result<(), String> {
        ensure(
            self.interval_seconds == 0.0 || is_time(self.interval_seconds),
            || "intervalSeconds must be 0 or more, and at most a year".into(),
        )
    }

    fn own_metrics(&self) -> Vec<Metric> {
        [&Metric::ROUND_TRIP[..], &[Metric::Failures]].concat()
    }

    fn speeds(&self) -> Vec<Metric> {
        vec![Metric::RoundTripP50]
    }

    fn costs(&self) -> Vec<Metric> {
        vec![Metric::CpuSecondsPerOperation]
    }

    fn duration(&self) -> Duration {
        duration(f64::from(self.count) * self.interval_seconds)
    }

    fn pause(&self) -> Duration {
        duration(self.interval_seconds)
    }

    fn successive_round_trips(&self, _way: &Way) -> u64 {
        self.count.into()
    }

    /// Pauses are between the round trips.
    fn least_time(&self, way: &Way) -> Duration {
        self.scheduled_time() + way.time_of_round_trips(self.successive_round_trips(way))
    }

    fn operation(&self) -> Option<Distribution> {
        Some(Distribution::RoundTrip)
    }
}
