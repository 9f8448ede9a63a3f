//! What a link does to packets in one direction: the parameters, and the rules that they must keep.
//!
//! Terms and meaning are those of tc-netem(8), so that parameters from elsewhere can be used as they are.
//! Both backends follow the order in which `net/sched/sch_netem.c` decides: duplicate, lose, corrupt, queue
//! limit, reorder, delay, rate.

mod words;

use std::{
    num::{NonZeroU32, NonZeroU64},
    time::Duration,
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::{Display, EnumIter, EnumString};
use thiserror::Error;

use crate::ratio::Ratio;

/// The longest delay. A longer one, more than a round trip to the moon, is a mistake of a unit, and packets
/// are held in memory.
pub const DELAY_MAX: Duration = Duration::from_secs(60);

/// The largest jitter: netem keeps it in 32 bits of nanoseconds.
pub const JITTER_MAX: Duration = Duration::from_secs(2);

/// The lowest rate: netem counts whole bytes per second, and 0 means no limit.
pub const RATE_MIN_BITS_PER_SECOND: u64 = 8_000;

/// The bits of a full Ethernet frame, as the rate counts them: 1500 bytes and the link header, without
/// preamble and checksum.
const FULL_FRAME_BITS: u64 = 1514 * 8;

/// The rate in bits per second that queues and TCP windows are sized for if a link has none. More than one
/// core forwards.
pub const UNLIMITED_BITS_PER_SECOND: u64 = 10_000_000_000;

/// The shortest time that a default queue holds at the link's rate, like the buffers of home routers.
const QUEUE_MIN: Duration = Duration::from_millis(50);

/// The fewest packets that a default queue holds. A burst of a congestion window must fit on the slowest
/// link.
const QUEUE_MIN_PACKETS: u64 = 100;

/// At this rate a 64 KiB super-packet leaves within a millisecond, nearly as smoothly as its packets would.
const SMOOTH_BITS_PER_SECOND: u64 = 65_536 * 8 * 1_000;

/// What happens to packets in one direction. The default does nothing.
#[serde_with_macros::skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Impairment {
    /// How much later each packet arrives, one way. Milliseconds in JSON.
    #[serde(
        rename = "delayMs",
        with = "milliseconds",
        skip_serializing_if = "Duration::is_zero"
    )]
    #[schemars(with = "f64")]
    pub delay: Duration,
    /// How the delay varies from packet to packet. Packets overtake each other, unless there is a rate.
    pub jitter: Option<Jitter>,
    /// Which packets are lost.
    pub loss: Option<Loss>,
    /// Packets that arrive twice. Copies can be lost, corrupted and delayed on their own.
    pub duplicate: Option<Chance>,
    /// Packets in which one bit is wrong. The receiver discards most of them because of their checksum.
    pub corrupt: Option<Chance>,
    /// Packets that skip the delay and so overtake others.
    pub reorder: Option<Reorder>,
    /// The rate in bits per second, decimal. It counts whole Ethernet frames without preamble and checksum,
    /// as netem does.
    pub rate_bits_per_second: Option<NonZeroU64>,
    /// The number of packets that the link holds, in flight and queued; more are dropped. By default what
    /// fits the rate and the delay, see [`Impairment::limit_packets`] and [`Impairment::longest_wait`].
    pub limit_packets: Option<NonZeroU32>,
}

/// How delays spread around [`Impairment::delay`].
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Jitter {
    /// The half width of a uniform distribution, the standard deviation of a normal one, and the scale of the
    /// others. Milliseconds in JSON.
    #[serde(rename = "amountMs", with = "milliseconds")]
    #[schemars(with = "f64")]
    pub amount: Duration,
    /// The shape of the distribution.
    #[serde(default)]
    pub distribution: JitterDistribution,
    /// How much a delay resembles the previous one. netem's correlation also narrows the distribution.
    #[serde(default, skip_serializing_if = "Ratio::is_zero")]
    pub correlation: Ratio,
}

/// The distributions that come with tc.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    Deserialize,
    Display,
    EnumIter,
    EnumString,
    Eq,
    Hash,
    JsonSchema,
    PartialEq,
    Serialize,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum JitterDistribution {
    /// All values from `delay - amount` to `delay + amount` are equally likely; the standard deviation is
    /// amount / √3.
    #[default]
    Uniform,
    /// A normal distribution, cut off at four standard deviations.
    Normal,
    /// A Pareto distribution with shape 3: a few packets are very late.
    Pareto,
    /// One part normal, three parts Pareto.
    ParetoNormal,
}

/// Which packets are lost.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(
    tag = "model",
    rename_all = "camelCase",
    rename_all_fields = "camelCase",
    deny_unknown_fields
)]
pub enum Loss {
    /// Each packet is lost independently of the others.
    Random {
        /// The share of packets that is lost.
        ratio: Ratio,
        /// How much a draw resembles the previous one. netem's correlation also changes the share that is
        /// lost. For bursts, use [`Loss::GilbertElliott`], which keeps its configured share.
        #[serde(default, skip_serializing_if = "Ratio::is_zero")]
        correlation: Ratio,
    },
    /// A link that alternates between a good and a bad state; `loss gemodel` of tc.
    GilbertElliott {
        /// p: the probability that a packet in the good state is the last one in it.
        enter_bad: Ratio,
        /// r: the probability that a packet in the bad state is the last one in it. The bad state lasts 1/r
        /// packets on average.
        leave_bad: Ratio,
        /// 1-h: the share lost in the bad state.
        #[serde(default = "always")]
        loss_in_bad: Ratio,
        /// 1-k: the share lost in the good state.
        #[serde(default, skip_serializing_if = "Ratio::is_zero")]
        loss_in_good: Ratio,
    },
}

fn always() -> Ratio {
    Ratio::ONE
}

/// An event that happens to a share of packets.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Chance {
    /// The share of packets.
    pub ratio: Ratio,
    /// How much a draw resembles the previous one. netem's correlation also changes the share.
    #[serde(default, skip_serializing_if = "Ratio::is_zero")]
    pub correlation: Ratio,
}

/// Packets that skip the delay.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Reorder {
    /// The share of the packets that can skip the delay, see `gap`.
    pub ratio: Ratio,
    /// How much a draw resembles the previous one.
    #[serde(default, skip_serializing_if = "Ratio::is_zero")]
    pub correlation: Ratio,
    /// Only the `gap`-th packet after the last one that skipped the delay can skip it. 1: any packet can.
    #[serde(default = "every_packet")]
    pub gap: NonZeroU32,
}

fn every_packet() -> NonZeroU32 {
    NonZeroU32::MIN
}

/// Whether packets that the sender has merged (GSO, up to 64 KiB) pass the link as one.
///
/// A link that decides about packets, for instance loses some, must see the packets of the wire. Decisions
/// about merged packets come in bursts of 45, and made TCP 3.5 times faster at the same share of loss
/// (measured).
#[derive(Clone, Copy, Debug, Deserialize, Display, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[strum(serialize_all = "camelCase")]
pub enum Mode {
    /// Each packet of the wire passes on its own.
    PerPacket,
    /// Merged packets stay merged, which takes a fifth of the CPU time.
    SuperPackets,
}

/// A parameter that no link can have.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum InvalidImpairment {
    /// The delay is longer than [`DELAY_MAX`].
    #[error("a delay of {0:?} is too long: set at most {DELAY_MAX:?}")]
    DelayTooLong(Duration),
    /// The jitter is larger than [`JITTER_MAX`].
    #[error("a jitter of {0:?} is too large: set at most {JITTER_MAX:?}")]
    JitterTooLarge(Duration),
    /// The jitter is larger than the delay. Delays would be cut off at 0, and their mean would not be the
    /// delay.
    #[error(
        "a jitter of {jitter:?} would make packets arrive before they are sent: set a delay of at least as much (it is {delay:?})"
    )]
    JitterExceedsDelay {
        /// [`Jitter::amount`].
        jitter: Duration,
        /// [`Impairment::delay`].
        delay: Duration,
    },
    /// Packets are to skip a delay that is not set.
    #[error("packets overtake by skipping the delay, but no delay is set: set a delay, or remove reorder")]
    ReorderWithoutDelay,
    /// The rate is lower than [`RATE_MIN_BITS_PER_SECOND`].
    #[error("a rate of {0} bit/s is too low: set at least {RATE_MIN_BITS_PER_SECOND} (is the unit right?)")]
    RateTooLow(u64),
    /// The link could never be full.
    #[error(
        "a limit of {limit} packets cannot hold the packets in flight at this rate and delay: set at least {least}, or remove the limit"
    )]
    LimitTooLow {
        /// [`Impairment::limit_packets`].
        limit: u32,
        /// The number of full packets in flight.
        least: u64,
    },
}

impl Impairment {
    /// Rejects parameters that no link can have.
    pub fn check(&self) -> Result<(), InvalidImpairment> {
        if self.delay > DELAY_MAX {
            return Err(InvalidImpairment::DelayTooLong(self.delay));
        }
        if let Some(jitter) = &self.jitter {
            if jitter.amount > JITTER_MAX {
                return Err(InvalidImpairment::JitterTooLarge(jitter.amount));
            }
            if jitter.amount > self.delay {
                return Err(InvalidImpairment::JitterExceedsDelay {
                    jitter: jitter.amount,
                    delay: self.delay,
                });
            }
        }
        if self.reorder.is_some() && self.delay.is_zero() {
            return Err(InvalidImpairment::ReorderWithoutDelay);
        }
        if let Some(rate) = self.rate_bits_per_second {
            if rate.get() < RATE_MIN_BITS_PER_SECOND {
                return Err(InvalidImpairment::RateTooLow(rate.get()));
            }
            let least = full_frames(rate.get(), self.delay);
            if let Some(limit) = self.limit_packets
                && u64::from(limit.get()) < least
            {
                return Err(InvalidImpairment::LimitTooLow {
                    limit: limit.get(),
                    least,
                });
            }
        }
        Ok(())
    }

    /// Whether packets pass as if there were no impairment.
    pub fn is_none(&self) -> bool {
        let Self {
            delay,
            jitter,
            loss,
            duplicate,
            corrupt,
            reorder,
            rate_bits_per_second,
            limit_packets: _, // nothing is ever queued
        } = self;
        delay.is_zero()
            && jitter.is_none()
            && loss.is_none()
            && duplicate.is_none()
            && corrupt.is_none()
            && reorder.is_none()
            && rate_bits_per_second.is_none()
    }

    /// The number of packets that the link holds: the configured limit, otherwise the packets in flight and a
    /// queue of [`Impairment::longest_wait`], counted in full frames.
    ///
    /// A link without a rate counts as one of 10 Gbit/s. netem's own default of 1000 packets would silently
    /// turn 100 ms at 1 Gbit/s into 120 Mbit/s.
    pub fn limit_packets(&self) -> u32 {
        if let Some(limit) = self.limit_packets {
            return limit.get();
        }
        let rate = self
            .rate_bits_per_second
            .map_or(UNLIMITED_BITS_PER_SECOND, NonZeroU64::get);
        let held = full_frames(rate, self.longest_transit());
        let queue = full_frames(rate, self.queue()).max(QUEUE_MIN_PACKETS);
        u32::try_from(held + queue).unwrap_or(u32::MAX)
    }

    /// The longest time that a packet takes to the other end if it does not queue.
    pub fn longest_transit(&self) -> Duration {
        // Tables of distributions end at four times the amount.
        let jitter = self.jitter.as_ref().map(|jitter| 4 * jitter.amount);
        self.delay + jitter.unwrap_or_default()
    }

    /// The shortest time that a packet takes to the other end. Packets that overtake others skip the delay.
    pub fn shortest_transit(&self) -> Duration {
        if self.reorder.is_some() {
            return Duration::ZERO;
        }
        // Tables of distributions begin at four times the amount below the delay.
        let jitter = self.jitter.as_ref().map(|jitter| match jitter.distribution {
            JitterDistribution::Uniform => jitter.amount,
            JitterDistribution::Normal | JitterDistribution::Pareto | JitterDistribution::ParetoNormal => {
                4 * jitter.amount
            }
        });
        self.delay.saturating_sub(jitter.unwrap_or_default())
    }

    /// The longest time that a packet may queue. `None` without a rate, or with a limit in packets.
    /// Otherwise two delays (a round trip, if both directions are alike), but at least 50 ms and at least
    /// 100 full frames.
    pub fn longest_wait(&self) -> Option<Duration> {
        let rate = self
            .rate_bits_per_second
            .filter(|_| self.limit_packets.is_none())?;
        let least = QUEUE_MIN_PACKETS * FULL_FRAME_BITS * 1_000_000_000 / rate;
        Some(self.queue().max(Duration::from_nanos(least)))
    }

    fn queue(&self) -> Duration {
        (2 * self.delay).max(QUEUE_MIN)
    }

    /// Whether merged packets stay merged.
    pub fn mode(&self) -> Mode {
        let decides = self.jitter.is_some()
            || self.loss.is_some()
            || self.duplicate.is_some()
            || self.corrupt.is_some()
            || self.reorder.is_some()
            || self.limit_packets.is_some();
        let smooth = self
            .rate_bits_per_second
            .is_none_or(|rate| rate.get() >= SMOOTH_BITS_PER_SECOND);
        if decides || !smooth {
            Mode::PerPacket
        } else {
            Mode::SuperPackets
        }
    }
}

/// The number of full Ethernet frames sent in this time at this rate, rounded up.
fn full_frames(bits_per_second: u64, time: Duration) -> u64 {
    let bits = u128::from(bits_per_second) * time.as_nanos() / 1_000_000_000;
    u64::try_from(bits.div_ceil(u128::from(FULL_FRAME_BITS))).unwrap_or(u64::MAX)
}

impl Loss {
    /// The share of packets lost in the long run. `None` if netem's correlation leaves it open.
    pub fn ratio(&self) -> Option<f64> {
        match self {
            Self::Random { ratio, correlation } => correlation.is_zero().then(|| ratio.get()),
            Self::GilbertElliott {
                enter_bad,
                leave_bad,
                loss_in_bad,
                loss_in_good,
            } => {
                let (p, r) = (enter_bad.get(), leave_bad.get());
                // A link starts in the good state, and stays there if it cannot become bad.
                let bad = if p == 0.0 { 0.0 } else { p / (p + r) };
                Some(bad * loss_in_bad.get() + (1.0 - bad) * loss_in_good.get())
            }
        }
    }
}

/// Durations as milliseconds, the unit of links in JSON.
pub(crate) mod milliseconds {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(crate) fn serialize<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(duration.as_nanos() as f64 / 1e6)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        let milliseconds = f64::deserialize(deserializer)?;
        // Rounded to nanoseconds: otherwise 0.1 ms would not be read back as written.
        Duration::try_from_secs_f64((milliseconds * 1e6).round() / 1e9).map_err(|error| {
            Error::custom(format!("{milliseconds} is not a number of milliseconds: {error}"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delayed(milliseconds: u64) -> Impairment {
        Impairment {
            delay: Duration::from_millis(milliseconds),
            ..Impairment::default()
        }
    }

    fn jitter(milliseconds: u64) -> Option<Jitter> {
        Some(Jitter {
            amount: Duration::from_millis(milliseconds),
            distribution: JitterDistribution::Normal,
            correlation: Ratio::ZERO,
        })
    }

    fn rate(bits_per_second: u64) -> Option<NonZeroU64> {
        NonZeroU64::new(bits_per_second)
    }

    #[test]
    fn impossible_parameters_are_refused_and_the_error_names_a_remedy() {
        let cases = [
            (delayed(60_001), "set at most 60s"),
            (
                Impairment {
                    jitter: jitter(11),
                    ..delayed(10)
                },
                "set a delay of at least as much",
            ),
            (
                Impairment {
                    jitter: jitter(2_001),
                    ..delayed(9_000)
                },
                "set at most 2s",
            ),
            (
                Impairment {
                    reorder: Some(Reorder {
                        ratio: Ratio::ONE,
                        correlation: Ratio::ZERO,
                        gap: every_packet(),
                    }),
                    ..Impairment::default()
                },
                "set a delay, or remove reorder",
            ),
            (
                Impairment {
                    rate_bits_per_second: rate(100),
                    ..delayed(1)
                },
                "set at least 8000",
            ),
            (
                Impairment {
                    rate_bits_per_second: rate(1_000_000_000),
                    limit_packets: NonZeroU32::new(1000),
                    ..delayed(100)
                },
                "set at least 8257, or remove the limit",
            ),
        ];
        for (impairment, words) in cases {
            let problem = impairment.check().unwrap_err().to_string();
            assert!(problem.contains(words), "{problem}");
        }
        assert_eq!(
            Impairment {
                jitter: jitter(10),
                ..delayed(10)
            }
            .check(),
            Ok(())
        );
        assert_eq!(Impairment::default().check(), Ok(()));
    }

    #[test]
    fn a_default_limit_holds_the_packets_in_flight_and_a_queue() {
        let gigabit = Impairment {
            rate_bits_per_second: rate(1_000_000_000),
            ..delayed(100)
        };
        // 100 ms in flight, 200 ms queued, 12112 bits each.
        assert_eq!(gigabit.limit_packets(), 8257 + 16_513);
        let slow = Impairment {
            rate_bits_per_second: rate(1_000_000),
            ..delayed(10)
        };
        assert_eq!(slow.limit_packets(), 1 + 100);
        assert!(delayed(100).limit_packets() > 2 * 82_562);
        let chosen = Impairment {
            limit_packets: NonZeroU32::new(7),
            ..delayed(10)
        };
        assert_eq!(chosen.limit_packets(), 7);
    }

    #[test]
    fn no_packet_is_faster_than_the_shortest_transit() {
        let shortest = |link: &Impairment| link.shortest_transit().as_millis();
        assert_eq!(shortest(&delayed(50)), 50);
        let jittery = Impairment {
            jitter: jitter(10),
            ..delayed(50)
        };
        assert_eq!(shortest(&jittery), 10);
        let uniform = jitter(10).map(|jitter| Jitter {
            distribution: JitterDistribution::Uniform,
            ..jitter
        });
        let uniform = Impairment {
            jitter: uniform,
            ..delayed(50)
        };
        assert_eq!(shortest(&uniform), 40);
        let overtaking = Impairment {
            reorder: Some(Reorder {
                ratio: Ratio::ONE,
                correlation: Ratio::ZERO,
                gap: every_packet(),
            }),
            ..delayed(50)
        };
        assert_eq!(shortest(&overtaking), 0);
    }

    #[test]
    fn only_links_that_do_not_decide_about_packets_keep_super_packets() {
        assert_eq!(delayed(10).mode(), Mode::SuperPackets);
        let fast = Impairment {
            rate_bits_per_second: rate(1_000_000_000),
            ..delayed(10)
        };
        assert_eq!(fast.mode(), Mode::SuperPackets);
        let slow = Impairment {
            rate_bits_per_second: rate(100_000_000),
            ..delayed(10)
        };
        assert_eq!(slow.mode(), Mode::PerPacket);
        let chance = || {
            Some(Chance {
                ratio: Ratio::from_percent(1.0).unwrap(),
                correlation: Ratio::ZERO,
            })
        };
        let lossy = Loss::Random {
            ratio: Ratio::from_percent(0.1).unwrap(),
            correlation: Ratio::ZERO,
        };
        for deciding in [
            // If the limit counted merged packets, the queue would be many times as long.
            Impairment {
                limit_packets: NonZeroU32::new(1000),
                ..delayed(10)
            },
            Impairment {
                loss: Some(lossy),
                ..delayed(10)
            },
            Impairment {
                duplicate: chance(),
                ..delayed(10)
            },
            Impairment {
                corrupt: chance(),
                ..delayed(10)
            },
            Impairment {
                jitter: jitter(1),
                ..delayed(10)
            },
        ] {
            assert_eq!(deciding.mode(), Mode::PerPacket, "{deciding:?}");
        }
    }

    #[test]
    fn the_share_of_a_gilbert_elliott_link_is_that_of_its_states() {
        let ratio = |percent| Ratio::from_percent(percent).unwrap();
        let bursts = Loss::GilbertElliott {
            enter_bad: ratio(1.0),
            leave_bad: ratio(24.0),
            loss_in_bad: ratio(50.0),
            loss_in_good: ratio(0.1),
        };
        let expected = 0.04 * 0.5 + 0.96 * 0.001;
        assert!((bursts.ratio().unwrap() - expected).abs() < 1e-12);
    }

    #[test]
    fn json_has_units_in_its_names() {
        let text = r#"{
            "delayMs": 25.5,
            "jitter": {"amountMs": 0.1, "distribution": "normal"},
            "loss": {"model": "gilbertElliott", "enterBad": 0.01, "leaveBad": 0.25},
            "reorder": {"ratio": 0.25, "gap": 5},
            "rateBitsPerSecond": 20000000
        }"#;
        let impairment: Impairment = serde_json::from_str(text).unwrap();
        assert_eq!(impairment.delay, Duration::from_micros(25_500));
        assert_eq!(
            impairment.jitter.as_ref().unwrap().amount,
            Duration::from_micros(100)
        );
        assert_eq!(impairment.loss.as_ref().unwrap().ratio(), Some(0.01 / 0.26));
        let again = serde_json::to_string(&impairment).unwrap();
        assert_eq!(serde_json::from_str::<Impairment>(&again).unwrap(), impairment);
        for wrong in [
            r#"{"delay": 1}"#,
            r#"{"delayMs": -1}"#,
            r#"{"corrupt": {"ratio": 1.5}}"#,
        ] {
            assert!(serde_json::from_str::<Impairment>(wrong).is_err(), "{wrong}");
        }
    }
}
