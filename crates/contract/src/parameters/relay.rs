//! The load of workload `relay`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Amount, Parameters, Use, bounds::chunk, facts::Workload};
use crate::{
    matrix::Protocol,
    metric::Metric,
    quantity::ByteSize,
    workload::{Direction, RelayLimits, RelayPath},
};

pub(super) const USES: &[Use] = &[
    ("`relay`, direct", |_| over(RelayPath::Direct)),
    ("`relay`, relayed", |_| over(RelayPath::Relayed)),
];

fn over(path: RelayPath) -> Parameters {
    Parameters::Relay(Relay {
        path,
        bytes: 1,
        chunk_bytes: ByteSize(1),
        pings: 0,
        limits: RelayLimits::default(),
    })
}

/// One transfer from a source to each sink.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Relay {
    /// How the sink reaches the source.
    pub path: RelayPath,
    /// Bytes of a transfer.
    pub bytes: u64,
    /// Bytes of one write or read call.
    pub chunk_bytes: ByteSize,
    /// Round trips to the relay, and to the source, before the transfer.
    pub pings: u32,
    /// What the relay grants.
    pub limits: RelayLimits,
}

impl Workload for Relay {
    fn in_short(&self) -> String {
        format!("{}-{}", self.path, ByteSize(self.bytes))
    }

    fn protocol(&self) -> Protocol {
        Protocol::TestData
    }

    fn check(&self) -> Result<(), String> {
        chunk(self.chunk_bytes)
    }

    fn own_metrics(&self) -> Vec<Metric> {
        let others = [
            Metric::DownloadGoodput,
            Metric::DownloadSeconds,
            Metric::RelayConnectSeconds,
            Metric::ConnectSeconds,
            Metric::OpenP50,
            Metric::FirstByteP50,
            Metric::RelayRoundTripP50,
            Metric::RoundTripP50,
        ];
        [&Metric::OF_RELAYS[..], &others].concat()
    }

    fn speeds(&self) -> Vec<Metric> {
        vec![Metric::DownloadGoodput]
    }

    fn costs(&self) -> Vec<Metric> {
        vec![match self.path {
            RelayPath::Direct => Metric::CpuSecondsPerGiB,
            RelayPath::Relayed => Metric::RelayCpuSecondsPerGiB,
        }]
    }

    fn is_relayed(&self) -> bool {
        self.path == RelayPath::Relayed
    }

    fn chunk_bytes(&self) -> ByteSize {
        self.chunk_bytes
    }

    fn served_bytes(&self) -> u64 {
        self.bytes
    }

    fn limits(&self) -> RelayLimits {
        self.limits
    }

    fn has_relayed_path(&self) -> bool {
        true
    }

    fn transfer(&self) -> Option<(Direction, Amount, u32)> {
        Some((Direction::Download, Amount::Count(self.bytes), 1))
    }
}
