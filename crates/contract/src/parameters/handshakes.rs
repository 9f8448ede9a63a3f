//! The load of workload `handshakes`.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Amount, Parameters, Use, bounds::timed, facts::Workload, way::Way};
use crate::{distribution::Distribution, matrix::Protocol, metric::Metric};

pub(super) const USES: &[Use] = &[("`handshakes`", |_| {
    Parameters::Handshakes(Handshakes {
        amount: Amount::Count(1),
        in_flight: 1,
    })
})];

/// Most hosts to start before the trial.
///
/// Each handshake is that of a new peer. litep2p, on either side, notices later than its peer that a
/// connection is closed. Until then it refuses to dial the same identity again, or counts its connection as a
/// second one.
const PREPARED_HOSTS_MAX: u64 = 128;

/// New connections.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Handshakes {
    /// How many handshakes, or for how long.
    pub amount: Amount,
    /// Connections being set up at the same time.
    pub in_flight: u32,
}

impl Workload for Handshakes {
    fn in_short(&self) -> String {
        let short = format!("handshakes-{}", self.amount.of_items());
        match self.in_flight {
            0..=1 => short,
            in_flight => format!("{short}-x{in_flight}"),
        }
    }

    fn protocol(&self) -> Protocol {
        Protocol::Ping
    }

    fn check(&self) -> Result<(), String> {
        match self.amount {
            Amount::Count(_) => Ok(()),
            Amount::Seconds(seconds) => timed(seconds),
        }
    }

    fn own_metrics(&self) -> Vec<Metric> {
        vec![
            Metric::HandshakeTransportP50,
            Metric::HandshakeEstablishedP50,
            Metric::HandshakeEstablishedP99,
            Metric::HandshakeFirstByteP50,
            Metric::HandshakeFirstByteP99,
            Metric::HandshakesPerSecond,
            Metric::Failures,
        ]
    }

    fn speeds(&self) -> Vec<Metric> {
        vec![match self.in_flight {
            0..=1 => Metric::HandshakeFirstByteP50,
            _ => Metric::HandshakesPerSecond,
        }]
    }

    fn costs(&self) -> Vec<Metric> {
        vec![Metric::CpuSecondsPerOperation]
    }

    fn duration(&self) -> Duration {
        self.amount.duration().unwrap_or_default()
    }

    /// Each slot dials and waits for its first byte, again and again.
    fn successive_round_trips(&self, way: &Way) -> u64 {
        match self.amount {
            Amount::Count(count) => {
                let rounds = count.div_ceil(self.hosts(way.peers).max(1));
                rounds.saturating_mul(u64::from(way.dial_round_trips) + 1)
            }
            Amount::Seconds(_) => 0,
        }
    }

    fn connects_before_start(&self) -> bool {
        false
    }

    fn is_about_connecting(&self) -> bool {
        true
    }

    fn operation(&self) -> Option<Distribution> {
        Some(Distribution::HandshakeFirstByte)
    }

    fn hosts_of_peer(&self) -> u32 {
        self.in_flight
    }

    /// Further hosts start during the trial, which is in the rate and in the CPU time, but not in the time of
    /// any handshake.
    fn prepared_hosts(&self, slots: usize) -> usize {
        let handshakes = match self.amount {
            Amount::Count(count) => count,
            Amount::Seconds(_) => u64::MAX,
        };
        slots.max(handshakes.min(PREPARED_HOSTS_MAX) as usize)
    }
}
