//! Proof that a link behaves as configured: how the link is measured from one peer to the other, and how the
//! result is judged.
//!
//! One peer is the server and replies, the other is the client and sends what a [`ProbePlan`] says. They
//! measure round trips, loss in each direction, and the rate towards the server. [`judge()`] compares that
//! with the impairments. To measure the rate towards the client, peers swap roles: see
//! [`ProbePlan::rate_back`] and [`judge_rate_back`].

mod judge;
mod plan;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::{
    judge::{Judgement, ProbeVerdict, Quantity, QuantityFinding, judge, judge_rate_back},
    plan::{DATAGRAM_BYTES, ECHOES_MAX, Fill, HEADER_BYTES, InvalidPlan, ProbePlan, QUERIES},
};

/// What a probe measured.
#[serde_with_macros::skip_serializing_none]
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Measurement {
    /// Round trips. Absent if no reply came back.
    pub round_trip: Option<RoundTrip>,
    /// Datagrams towards the server.
    pub forward: Delivery,
    /// Datagrams towards the client.
    pub backward: Delivery,
    /// The rate towards the server. Absent if the plan does not measure it.
    pub rate: Option<Rate>,
}

impl Measurement {
    /// Whether it counts no more datagrams than the plan sends. Judging takes time and memory for each.
    pub fn is_of(&self, plan: &ProbePlan) -> bool {
        let Delivery { sent: there, .. } = self.forward;
        let Delivery { sent: back, .. } = self.backward;
        there.max(back) <= plan.echoes
    }
}

/// Quantiles of round trips, in nanoseconds.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RoundTrip {
    /// The shortest round trip.
    pub min_ns: u64,
    /// The median.
    pub p50_ns: u64,
    /// The 99th percentile.
    pub p99_ns: u64,
}

/// Datagrams in one direction, each counted once.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Delivery {
    /// The number of datagrams sent.
    pub sent: u32,
    /// The number of datagrams that arrived.
    pub received: u32,
}

impl Delivery {
    /// The number of datagrams that never arrived.
    pub fn lost(&self) -> u32 {
        self.sent.saturating_sub(self.received)
    }
}

/// The rate of a link that was filled, in whole Ethernet frames as
/// [`crate::Impairment::rate_bits_per_second`] counts.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Rate {
    /// The rate at which datagrams were sent.
    pub offered_bits_per_second: u64,
    /// The rate at which datagrams arrived.
    pub received_bits_per_second: u64,
}

/// A link that carries more than is offered delivers at least this share of it.
const UNLIMITED_SHARE: f64 = 0.9;

impl Rate {
    /// Whether the link was the bottleneck. Otherwise nearly everything that was sent arrived, and the link
    /// carries that rate or more.
    pub fn is_limit(&self) -> bool {
        (self.received_bits_per_second as f64) < self.offered_bits_per_second as f64 * UNLIMITED_SHARE
    }
}

#[cfg(test)]
mod tests {
    use super::Rate;

    #[test]
    fn a_link_is_the_limit_if_less_than_nine_tenths_arrive() {
        let received = |received_bits_per_second| Rate {
            offered_bits_per_second: 1000,
            received_bits_per_second,
        };
        assert!(received(899).is_limit());
        assert!(!received(900).is_limit());
        // A sender that counts late is not a limit either.
        assert!(!received(1001).is_limit());
    }
}
