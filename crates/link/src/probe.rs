//! Proof that a link is what it was set to be: what is measured over the link itself, from one peer to the other, and what
//! to think of it.
//!
//! One peer answers, the other asks, as a [`Plan`] says: round trips, loss in each direction, and the rate that is available
//! towards the one that answers. [`judge()`] compares that with what was asked for. For the rate in the other direction,
//! peers swap roles.

mod judge;
mod plan;

pub use judge::{Finding, Judgement, Quantity, Verdict, judge};
pub use plan::{BadPlan, DATAGRAM_BYTES, ECHOES_MAX, Fill, HEADER_BYTES, Plan, QUESTIONS};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What was measured.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Measurement {
    /// There and back. Absent if nothing came back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub round_trip: Option<RoundTrip>,
    /// Towards the server.
    pub forward: Delivery,
    /// Towards the client.
    pub backward: Delivery,
    /// Towards the server, if it was to be measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<Rate>,
}

/// Quantiles of round trips, in nanoseconds.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RoundTrip {
    /// The shortest.
    pub min_ns: u64,
    /// Half took longer.
    pub p50_ns: u64,
    /// One of a hundred took longer.
    pub p99_ns: u64,
}

/// Datagrams in one direction, each counted once.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Delivery {
    /// Left one end.
    pub sent: u32,
    /// Came to the other.
    pub received: u32,
}

impl Delivery {
    /// Datagrams that never came.
    pub fn lost(&self) -> u32 {
        self.sent.saturating_sub(self.received)
    }
}

/// How fast a link was that was filled, counted in whole Ethernet frames as [`crate::Impairment::rate_bits_per_second`] is.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Rate {
    /// Was sent.
    pub offered_bits_per_second: u64,
    /// Arrived.
    pub received_bits_per_second: u64,
}

/// The least share of what was sent that arrives over a link that carries more.
const UNLIMITED_SHARE: f64 = 0.9;

impl Rate {
    /// Whether the link was the limit. Otherwise about as much arrived as could be sent, and the link carries that or more.
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
        // What the sender was late to count is no limit either.
        assert!(!received(1001).is_limit());
    }
}
