//! The load of workload `relayStress`.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    Amount, Parameters, Use,
    bounds::{SECONDS_MAX, chunk, duration, ensure, is_time},
    facts::{FILES_BESIDES, Workload},
};
use crate::{
    matrix::Protocol,
    metric::Metric,
    quantity::ByteSize,
    workload::{Direction, RelayLimits},
};

pub(super) const USES: &[Use] = &[("`relayStress`", |_| {
    Parameters::RelayStress(RelayStress {
        sinks: 1,
        sources: 1,
        start_interval_seconds: 1.0,
        ramp_seconds: 0.0,
        plateau_seconds: 60.0,
        bytes: 1,
        chunk_bytes: ByteSize(1),
        limits: RelayLimits::default(),
    })
})];

/// Many sinks that fetch repeatedly through one relay.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RelayStress {
    /// Sinks of all client nodes.
    pub sinks: u32,
    /// Sources of all server nodes.
    pub sources: u32,
    /// Time between the starts of two sinks of a client node, in seconds.
    pub start_interval_seconds: f64,
    /// Time from the start of the first sink until all have started, in seconds.
    pub ramp_seconds: f64,
    /// Time for which all sinks then fetch, in seconds.
    pub plateau_seconds: f64,
    /// Bytes of a transfer.
    pub bytes: u64,
    /// Bytes of one write or read call.
    pub chunk_bytes: ByteSize,
    /// What the relay grants.
    pub limits: RelayLimits,
}

impl Workload for RelayStress {
    fn in_short(&self) -> String {
        format!("sinks-{}", self.sinks)
    }

    fn protocol(&self) -> Protocol {
        Protocol::TestData
    }

    fn check(&self) -> Result<(), String> {
        chunk(self.chunk_bytes)?;
        let Self { sinks, sources, .. } = self;
        ensure(*sources > 0 && sinks >= sources, || {
            format!("a stress test needs a source, and a sink for each source: it has {sources} and {sinks}")
        })?;
        let right = is_time(self.start_interval_seconds) && is_time(self.plateau_seconds);
        ensure(right && (0.0..SECONDS_MAX).contains(&self.ramp_seconds), || {
            "times of a stress test must be more than 0 and at most a year".into()
        })
    }

    fn own_metrics(&self) -> Vec<Metric> {
        let others = [
            Metric::DownloadGoodput,
            Metric::TransfersPerSecond,
            Metric::TransferP50,
            Metric::TransferP99,
            Metric::TransferMax,
            Metric::ConnectSeconds,
            Metric::RampLateness,
            Metric::Failures,
        ];
        [&Metric::OF_RELAYS[..], &others].concat()
    }

    fn speeds(&self) -> Vec<Metric> {
        vec![Metric::DownloadGoodput]
    }

    fn costs(&self) -> Vec<Metric> {
        vec![Metric::RelayCpuSecondsPerGiB]
    }

    fn streams(&self) -> u32 {
        // The connection of a source with its relay carries a stream for each of its sinks.
        self.sinks.div_ceil(self.sources.max(1))
    }

    fn is_relayed(&self) -> bool {
        true
    }

    fn duration(&self) -> Duration {
        duration(self.ramp_seconds + self.plateau_seconds)
    }

    fn field_of_duration(&self) -> Option<&'static str> {
        Some("relayStress.plateau")
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

    fn connects_before_start(&self) -> bool {
        false
    }

    fn sinks_and_sources(&self) -> Option<(u32, u32)> {
        Some((self.sinks, self.sources))
    }

    fn transfer(&self) -> Option<(Direction, Amount, u32)> {
        // Sinks cut their transfers off at the end.
        Some((Direction::Download, Amount::Seconds(0.0), 1))
    }

    fn may_be_cut_off(&self) -> bool {
        true
    }

    fn prepared_hosts(&self, _slots: usize) -> usize {
        0 // Sinks start one after the other.
    }

    fn client_files(&self, hosts: u64, _stream_is_connection: bool) -> u64 {
        hosts + FILES_BESIDES
    }

    fn relay_files(&self, stream_is_connection: bool) -> u64 {
        let onward = match stream_is_connection {
            true => self.sinks,
            false => self.sources,
        };
        u64::from(self.sinks) + u64::from(onward) + FILES_BESIDES
    }
}
