//! The load of workload `substreams`.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    Parameters, Use,
    bounds::{count, duration, ensure},
    facts::Workload,
};
use crate::{
    distribution::Distribution,
    matrix::{Negotiation, Protocol},
    metric::Metric,
    workload::OpenMode,
};

pub(super) const USES: &[Use] = &[
    ("`substreams`, burst", |count| {
        opened(count, OpenMode::Burst, Negotiation::V1)
    }),
    ("`substreams`, paced", |count| {
        opened(count, OpenMode::Paced, Negotiation::V1)
    }),
    ("`substreams`, v1lazy", |count| {
        opened(count, OpenMode::Burst, Negotiation::V1Lazy)
    }),
];

fn opened(count: u32, mode: OpenMode, negotiation: Negotiation) -> Parameters {
    Parameters::Substreams(Substreams {
        count,
        mode,
        rate: (mode == OpenMode::Paced).then_some(1),
        negotiation,
    })
}

/// Many substreams opened on one connection.
#[serde_with_macros::skip_serializing_none]
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Substreams {
    /// Substreams of each connection.
    pub count: u32,
    /// How they are requested.
    pub mode: OpenMode,
    /// Requests per second, for [`OpenMode::Paced`].
    pub rate: Option<u32>,
    /// How the protocol is negotiated.
    pub negotiation: Negotiation,
}

impl Workload for Substreams {
    fn in_short(&self) -> String {
        format!("open-{}", self.count)
    }

    fn protocol(&self) -> Protocol {
        Protocol::Litep2pPerf
    }

    fn check(&self) -> Result<(), String> {
        count("count", self.count)?;
        ensure(self.rate != Some(0), || {
            "rate must be at least 1 substream per second".into()
        })
    }

    fn own_metrics(&self) -> Vec<Metric> {
        let others = [Metric::OpenMeanCompat, Metric::OpensPerSecond, Metric::Failures];
        [&Metric::OPEN[..], &others].concat()
    }

    fn speeds(&self) -> Vec<Metric> {
        // Of a burst, the rate is that of its slowest substream: it varies too much.
        vec![Metric::OpenP50]
    }

    fn costs(&self) -> Vec<Metric> {
        vec![Metric::CpuSecondsPerOperation]
    }

    fn negotiation(&self) -> Negotiation {
        self.negotiation
    }

    fn streams(&self) -> u32 {
        self.count
    }

    fn burst(&self) -> u32 {
        match self.mode {
            OpenMode::Burst => self.count,
            OpenMode::Paced => 1,
        }
    }

    fn duration(&self) -> Duration {
        match (self.mode, self.rate) {
            (OpenMode::Paced, Some(rate)) => duration(f64::from(self.count) / f64::from(rate)),
            _ => Duration::ZERO,
        }
    }

    fn pause(&self) -> Duration {
        self.rate
            .map_or(Duration::ZERO, |rate| duration(f64::from(rate).recip()))
    }

    fn is_about_streams(&self) -> bool {
        true
    }

    fn operation(&self) -> Option<Distribution> {
        Some(Distribution::Open)
    }
}
