//! The load of workload `bandwidth`.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    Amount, Parameters, Use,
    bounds::{chunk, count, ensure, timed},
    facts::Workload,
};
use crate::{
    matrix::{Negotiation, Protocol},
    metric::Metric,
    quantity::ByteSize,
    workload::{Direction, Timing},
};

pub(super) const USES: &[Use] = &[
    ("`bandwidth`, perf", |streams| {
        of_streams(streams, Protocol::Perf, Amount::Count(1))
    }),
    ("`bandwidth`, perf, download for a `duration`", |streams| {
        of_streams(streams, Protocol::Perf, Amount::Seconds(1.0))
    }),
    ("`bandwidth`, litep2p-perf", |streams| {
        of_streams(streams, Protocol::Litep2pPerf, Amount::Count(1))
    }),
];

fn of_streams(streams: u32, protocol: Protocol, amount: Amount) -> Parameters {
    Parameters::Bandwidth(Bandwidth {
        streams,
        ..Bandwidth::new(protocol, Direction::Download, amount)
    })
}

/// Bulk transfer.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Bandwidth {
    /// The protocol on the streams.
    pub protocol: Protocol,
    /// The direction of the payload.
    pub direction: Direction,
    /// How much each stream transfers, or for how long.
    pub amount: Amount,
    /// Parallel streams of each connection.
    pub streams: u32,
    /// Bytes of one write or read call.
    pub chunk_bytes: ByteSize,
    /// When an upload ends.
    pub timing: Timing,
    /// How the protocol is negotiated.
    pub negotiation: Negotiation,
}

impl Bandwidth {
    /// A transfer over one stream, in chunks of 1 KiB, with strict timing and negotiation `v1`.
    pub fn new(protocol: Protocol, direction: Direction, amount: Amount) -> Self {
        Self {
            protocol,
            direction,
            amount,
            streams: 1,
            chunk_bytes: ByteSize(1024),
            timing: Timing::Strict,
            negotiation: Negotiation::V1,
        }
    }
}

impl Workload for Bandwidth {
    fn in_short(&self) -> String {
        let short = format!("{}-{}", self.direction, self.amount.of_bytes());
        match self.streams {
            0..=1 => short,
            streams => format!("{short}-x{streams}"),
        }
    }

    fn protocol(&self) -> Protocol {
        self.protocol
    }

    fn check(&self) -> Result<(), String> {
        let protocol = self.protocol;
        ensure(matches!(protocol, Protocol::Perf | Protocol::Litep2pPerf), || {
            format!("{} carries no bulk transfer", protocol.as_ref())
        })?;
        count("streams", self.streams)?;
        chunk(self.chunk_bytes)?;
        if let Amount::Seconds(seconds) = self.amount {
            timed(seconds)?;
            ensure(protocol == Protocol::Perf, || {
                format!(
                    "{} announces its bytes: it cannot run for a time",
                    protocol.as_ref()
                )
            })?;
            ensure(self.direction != Direction::Both, || {
                "a transfer for a time must have one direction".into()
            })?;
        }
        Ok(())
    }

    fn own_metrics(&self) -> Vec<Metric> {
        let mut metrics = vec![Metric::ConnectSeconds, Metric::TotalSeconds];
        if self.direction != Direction::Download {
            metrics.extend([Metric::UploadGoodput, Metric::UploadSeconds]);
        }
        if self.direction != Direction::Upload {
            metrics.extend([Metric::DownloadGoodput, Metric::DownloadSeconds]);
        }
        metrics
    }

    fn speeds(&self) -> Vec<Metric> {
        match self.direction {
            Direction::Upload => vec![Metric::UploadGoodput],
            Direction::Download => vec![Metric::DownloadGoodput],
            Direction::Both => vec![Metric::UploadGoodput, Metric::DownloadGoodput],
        }
    }

    fn costs(&self) -> Vec<Metric> {
        vec![Metric::CpuSecondsPerGiB]
    }

    fn negotiation(&self) -> Negotiation {
        self.negotiation
    }

    fn streams(&self) -> u32 {
        self.streams
    }

    fn duration(&self) -> Duration {
        self.amount.duration().unwrap_or_default()
    }

    fn field_of_duration(&self) -> Option<&'static str> {
        self.amount.duration().map(|_| "bandwidth.duration")
    }

    /// The first answer to a download is what the server may send before an acknowledgement: one burst, which
    /// has no rate. What follows it takes a second round trip.
    fn round_trips_before_a_value(&self) -> u32 {
        match (self.direction, self.timing) {
            (Direction::Upload, _) | (_, Timing::Compat) => 1,
            (Direction::Download | Direction::Both, Timing::Strict) => 2,
        }
    }

    fn chunk_bytes(&self) -> ByteSize {
        self.chunk_bytes
    }

    fn transfer(&self) -> Option<(Direction, Amount, u32)> {
        Some((self.direction, self.amount, self.streams))
    }
}
