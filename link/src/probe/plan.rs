//! How a link is probed: enough datagrams to judge it, few enough not to fill it.

use std::num::NonZeroU64;
use std::time::Duration;

use crate::impairment::Impairment;

/// Bytes around a payload on the wire: Ethernet, IPv4 and UDP. With IPv6 it is 20 more, which the server sees.
pub const HEADER_BYTES: u64 = 14 + 20 + 8;

/// Bytes of an echo, and of its answer.
pub const DATAGRAM_BYTES: u64 = 44;

/// How long echoes are sent.
const ECHO_TIME: Duration = Duration::from_secs(1);
/// Timers of tokio are not finer.
const TICK: Duration = Duration::from_millis(1);
/// Echoes in a tick, if the link can carry them.
const ECHOES_PER_TICK_MAX: u64 = 4;
/// The share of the link that echoes may take, so that they measure its delay and not its queue.
const ECHO_SHARE: u64 = 4;

/// How long the link is filled.
const FILL_TIME: Duration = Duration::from_millis(500);
/// Bytes of a datagram that fills.
const FILL_PAYLOAD: u64 = 1400;
/// How much more than the rate is sent.
const FILL_EXCESS: f64 = 1.15;
/// Above this, sending is the limit, not the link.
const FILL_MAX_BITS_PER_SECOND: u64 = 2_000_000_000;

/// What is sent, and when.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// How often echoes are asked for.
    pub echo_interval: Duration,
    /// How many each time.
    pub echoes_at_once: u32,
    /// How many altogether.
    pub echoes: u32,
    /// The link's rate, if it is to be measured.
    pub fill: Option<Fill>,
    /// How long the last answer may take.
    pub patience: Duration,
}

/// How a link is filled.
#[derive(Clone, Debug, PartialEq)]
pub struct Fill {
    /// Sent per second, in whole Ethernet frames.
    pub bits_per_second: u64,
    /// For how long.
    pub duration: Duration,
    /// Bytes of each datagram.
    pub payload_bytes: usize,
}

impl Plan {
    /// For a link that should be impaired like this: towards the server, and towards the client.
    pub fn of(forward: &Impairment, backward: &Impairment) -> Self {
        let bits = (DATAGRAM_BYTES + HEADER_BYTES) * 8;
        let rates = [forward, backward].map(|way| way.rate_bits_per_second.map_or(u64::MAX, NonZeroU64::get));
        let budget = rates[0].min(rates[1]) / ECHO_SHARE;
        let per_tick = (u128::from(budget) * TICK.as_nanos() / u128::from(bits) / 1_000_000_000)
            .min(ECHOES_PER_TICK_MAX.into()) as u32;
        // Below one in a tick, one in as many ticks as it takes.
        let echo_interval = if per_tick == 0 {
            let nanoseconds = bits * 1_000_000_000 / budget.max(1);
            Duration::from_nanos(nanoseconds).max(TICK)
        } else {
            TICK
        };
        let times = (ECHO_TIME.as_nanos() / echo_interval.as_nanos()).max(1) as u32;
        let farthest = |way: &Impairment| {
            way.delay
                + way
                    .jitter
                    .as_ref()
                    .map_or(Duration::ZERO, |jitter| 4 * jitter.amount)
        };
        Self {
            echo_interval,
            echoes_at_once: per_tick.max(1),
            echoes: times * per_tick.max(1),
            fill: forward
                .rate_bits_per_second
                .and_then(|rate| Fill::of(rate.get(), forward)),
            patience: farthest(forward) + farthest(backward) + Duration::from_millis(500),
        }
    }
}

impl Fill {
    fn of(bits_per_second: u64, forward: &Impairment) -> Option<Self> {
        if bits_per_second > FILL_MAX_BITS_PER_SECOND {
            return None;
        }
        // What is lost before the link's queue does not fill it.
        let lost = forward
            .loss
            .as_ref()
            .and_then(|loss| loss.ratio())
            .unwrap_or_default()
            .min(0.5);
        Some(Self {
            bits_per_second: (bits_per_second as f64 * FILL_EXCESS / (1.0 - lost)).round() as u64,
            duration: FILL_TIME,
            payload_bytes: FILL_PAYLOAD as usize,
        })
    }

    /// How many datagrams are due after some time.
    pub fn due(&self, elapsed: Duration) -> u64 {
        let bits = u128::from(self.bits_per_second) * elapsed.min(self.duration).as_nanos() / 1_000_000_000;
        // The first at once.
        (bits / (u128::from(FILL_PAYLOAD + HEADER_BYTES) * 8)) as u64 + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::impairment::Loss;
    use crate::ratio::Ratio;

    fn rate(bits_per_second: u64) -> Impairment {
        Impairment {
            rate_bits_per_second: NonZeroU64::new(bits_per_second),
            ..Impairment::default()
        }
    }

    #[test]
    fn echoes_leave_most_of_the_link_free() {
        let plan = Plan::of(&Impairment::default(), &Impairment::default());
        assert_eq!((plan.echoes, plan.echoes_at_once, plan.fill), (4000, 4, None));
        for bits_per_second in [64_000, 1_000_000, 10_000_000, 1_000_000_000] {
            for (forward, backward) in [
                (rate(bits_per_second), rate(u64::MAX)),
                (rate(u64::MAX), rate(bits_per_second)),
            ] {
                let plan = Plan::of(&forward, &backward);
                let bits = f64::from(plan.echoes_at_once) * (DATAGRAM_BYTES as f64 + 42.0) * 8.0;
                let used = bits / plan.echo_interval.as_secs_f64();
                assert!(
                    used <= bits_per_second as f64 / 3.9,
                    "{bits_per_second}: {plan:?}"
                );
                assert!(plan.echoes >= 10);
            }
        }
    }

    #[test]
    fn a_link_is_filled_with_more_than_it_carries() {
        let lossy = Impairment {
            loss: Some(Loss::Random {
                ratio: Ratio::from_percent(20.0).unwrap(),
                correlation: Ratio::ZERO,
            }),
            ..rate(100_000_000)
        };
        let fill = Plan::of(&lossy, &Impairment::default()).fill.unwrap();
        assert_eq!(fill.bits_per_second, 143_750_000);
        assert_eq!(fill.due(Duration::ZERO), 1);
        assert_eq!(fill.due(Duration::from_secs(9)), 143_750_000 / 2 / (1442 * 8) + 1);
        // Not what cannot be sent.
        assert_eq!(Plan::of(&rate(10_000_000_000), &Impairment::default()).fill, None);
    }
}
