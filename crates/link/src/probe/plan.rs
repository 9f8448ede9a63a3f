//! How a link is probed: enough datagrams to judge it, few enough not to fill it.

use std::num::NonZeroU64;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::impairment::{Impairment, milliseconds};

/// Bytes around a payload on the wire: Ethernet, IPv4 and UDP. With IPv6 it is 20 more, which the server sees.
pub const HEADER_BYTES: u64 = 14 + 20 + 8;

/// Bytes of an echo, and of its answer.
pub const DATAGRAM_BYTES: u64 = 44;

/// Echoes that ends keep count of, which takes memory.
pub const ECHOES_MAX: u32 = 1 << 20;

/// How often an end is asked what it counted: on a link that loses nine of ten, one of a hundred askers gives up.
pub const QUESTIONS: u32 = 40;
/// Fewer echoes say nothing about a link that loses some.
const ECHOES_MIN: u32 = 10;

/// How long echoes are sent, if there is time.
const ECHO_TIME: Duration = Duration::from_secs(1);
/// Timers of tokio are not finer.
const TICK: Duration = Duration::from_millis(1);
/// Echoes in a tick, if the link can carry them.
const ECHOES_PER_TICK_MAX: u64 = 4;
/// As many, to tell a little loss from none.
const ECHOES_PER_TICK_LOSSY: u64 = 8;
/// Where so many are expected, none at all is beyond the interval of 99 %: e^-5.3 is half of the rest.
const LOSSES_THAT_TELL: f64 = 5.3;
/// The share of the link that echoes may take, so that they measure its delay and not its queue.
const ECHO_SHARE: u64 = 4;

/// The share of what a link can hold that echoes may be.
const ECHO_ROOM: u128 = 2;

/// How much later than the link allows an answer may come: a busy machine's turn.
const PATIENCE: Duration = Duration::from_millis(300);

/// The link is filled for so much of the time of echoes.
const FILL_TIME_SHARE: u32 = 2;
/// Time between fewer datagrams says too little of a slow link's rate.
const FILL_DATAGRAMS_MIN: u64 = 4;
/// Bytes of a datagram that fills.
const FILL_PAYLOAD: u64 = 1400;
/// With more, datagrams would be fragmented by most links.
const FILL_PAYLOAD_MAX: usize = 1472;
/// How much more than the rate is sent.
const FILL_EXCESS: f64 = 1.15;
/// Above this, sending is the limit, not the link: faster links, and those without a rate, are filled with so much.
const FILL_MAX_BITS_PER_SECOND: u64 = 2_000_000_000;

/// Up to this, filling is little work even for a machine that has both ends: it disturbs neither echoes that are on their way
/// nor the other direction.
const FILL_TOGETHER_MAX_BITS_PER_SECOND: u64 = 100_000_000;

/// Where no rate is set, a link is filled for so long: enough to see that the network is slower, too little to disturb others.
const AVAILABLE_TIME: Duration = Duration::from_millis(20);

/// How much later than those who measure back echoes may begin, and end.
const START_SLACK: Duration = Duration::from_millis(100);

/// The longest that any part of a probe may take. Answers over the slowest links that can be set come sooner.
const TIME_MAX: Duration = Duration::from_secs(300);

/// The most that a link is filled with: a machine that sends less would go on for as much longer.
const FILL_SANE_BITS_PER_SECOND: u64 = 100_000_000_000;

/// What is sent, and when.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Plan {
    /// How often echoes are asked for. Milliseconds in JSON.
    #[serde(rename = "echoIntervalMs", with = "milliseconds")]
    #[schemars(with = "f64")]
    pub echo_interval: Duration,
    /// How many each time.
    pub echoes_at_once: u32,
    /// How many altogether. None: only the rate is measured.
    pub echoes: u32,
    /// The link's rate, if it is to be measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fill: Option<Fill>,
    /// How long the last answer may take. Milliseconds in JSON.
    #[serde(rename = "patienceMs", with = "milliseconds")]
    #[schemars(with = "f64")]
    pub patience: Duration,
}

/// How a link is filled.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Fill {
    /// Sent per second, in whole Ethernet frames.
    pub bits_per_second: u64,
    /// For how long. Milliseconds in JSON.
    #[serde(rename = "durationMs", with = "milliseconds")]
    #[schemars(with = "f64")]
    pub duration: Duration,
    /// Bytes of each datagram.
    pub payload_bytes: usize,
}

/// A plan that cannot be carried out, or not in a time that anybody would wait.
#[derive(Clone, Copy, Debug, Error, PartialEq)]
pub enum BadPlan {
    /// Ends must count them.
    #[error("unable to send {0} echoes: ask for at most {ECHOES_MAX}")]
    TooManyEchoes(u32),
    /// Nothing would ever be sent.
    #[error("unable to send echoes without an interval between them, or none at once: set both")]
    NoPace,
    /// Longer than five minutes.
    #[error("unable to wait {0:?} for a part of the probe: plan at most {TIME_MAX:?}")]
    TooLong(Duration),
    /// More than any machine sends.
    #[error("unable to send {0} bit/s: ask for at most {FILL_SANE_BITS_PER_SECOND}")]
    TooFast(u64),
    /// Shorter ones are not told from others, longer ones do not fit.
    #[error(
        "unable to fill a link with datagrams of {0} bytes: use {DATAGRAM_BYTES} to {FILL_PAYLOAD_MAX} bytes"
    )]
    PayloadSize(usize),
}

impl Plan {
    /// For a link that should be impaired like this: towards the server, and towards the client.
    pub fn of(forward: &Impairment, backward: &Impairment) -> Self {
        Self::within(forward, backward, ECHO_TIME)
    }

    /// The same in less time, if many links are to be probed, and with that much less to judge by. Filling the link takes
    /// half as long as echoes do, and longer where it would take less than some datagrams.
    pub fn within(forward: &Impairment, backward: &Impairment, echo_time: Duration) -> Self {
        let bits = (DATAGRAM_BYTES + HEADER_BYTES) * 8;
        let rates = [forward, backward].map(|way| way.rate_bits_per_second.map_or(u64::MAX, NonZeroU64::get));
        let budget = rates[0].min(rates[1]) / ECHO_SHARE;
        // What is on its way is small and takes room like any other packet.
        let rooms = [forward, backward].map(|way| {
            let held = u128::from(way.limit_packets()) * u128::from(bits) / ECHO_ROOM;
            let per_second = (held * 1_000_000_000).checked_div(way.longest_way().as_nanos());
            per_second
                .and_then(|bits| u64::try_from(bits).ok())
                .unwrap_or(u64::MAX)
        });
        let budget = budget.min(rooms[0]).min(rooms[1]);
        let ticks = echo_time.as_secs_f64() / TICK.as_secs_f64();
        let ratios = [forward, backward].map(|way| way.loss.as_ref().and_then(|loss| loss.ratio()));
        let telling = ratios
            .into_iter()
            .flatten()
            .map(|ratio| (LOSSES_THAT_TELL / ratio / ticks).ceil() as u64);
        // In vain, if it takes more.
        let per_tick_max = telling
            .filter(|echoes| (ECHOES_PER_TICK_MAX..=ECHOES_PER_TICK_LOSSY).contains(echoes))
            .fold(ECHOES_PER_TICK_MAX, u64::max);
        let per_tick = (u128::from(budget) * TICK.as_nanos() / u128::from(bits) / 1_000_000_000)
            .min(per_tick_max.into()) as u32;
        // Below one in a tick, one in as many ticks as it takes.
        let echo_interval = if per_tick == 0 {
            let nanoseconds = (bits * 1_000_000_000).div_ceil(budget.max(1));
            Duration::from_nanos(nanoseconds).max(TICK)
        } else {
            TICK
        };
        let times = (echo_time.min(TIME_MAX).as_nanos() / echo_interval.as_nanos()).max(1) as u32;
        let times = times.max(ECHOES_MIN.div_ceil(per_tick.max(1)));
        Self {
            echo_interval,
            echoes_at_once: per_tick.max(1),
            echoes: (times * per_tick.max(1)).min(ECHOES_MAX),
            fill: forward
                .rate_bits_per_second
                .and_then(|rate| Fill::of(rate.get(), forward, echo_time / FILL_TIME_SHARE)),
            patience: forward.longest_way() + backward.longest_way() + PATIENCE,
        }
    }

    /// For what a link carries on which no rate is set, or one that is more than can be sent. Nothing where packets overtake one
    /// another: the time from the first to the last would be the jitter's.
    pub fn available(forward: &Impairment, backward: &Impairment) -> Option<Self> {
        let in_order = forward.jitter.is_none() && forward.reorder.is_none();
        in_order.then(|| Self {
            echoes: 0,
            fill: Some(Fill {
                bits_per_second: FILL_MAX_BITS_PER_SECOND,
                duration: AVAILABLE_TIME,
                payload_bytes: FILL_PAYLOAD as usize,
            }),
            ..Self::of(forward, backward)
        })
    }

    /// How long echoes are sent.
    fn echoing(&self) -> Duration {
        self.echo_interval
            .saturating_mul(self.echoes.div_ceil(self.echoes_at_once.max(1)))
    }

    /// How long it takes when hardly anything comes back.
    pub fn longest(&self) -> Duration {
        let fill = self.fill.as_ref().map_or(Duration::ZERO, |fill| fill.duration);
        // For the last echoes, and for each answer.
        let asking = self.patience.saturating_mul(QUESTIONS + 1);
        self.echoing().saturating_add(fill).saturating_add(asking)
    }

    /// Whether the link is filled behind the last echo, while answers still come: they share no rate, but the work.
    pub fn fills_early(&self) -> bool {
        self.fill
            .as_ref()
            .is_some_and(|fill| fill.bits_per_second <= FILL_TOGETHER_MAX_BITS_PER_SECOND)
    }

    /// When the other direction can be filled, after this one's beginning: behind the last answer, and without waiting for the
    /// end of this one. Nothing if only one of them is to be filled, or both would be too much work at once.
    pub fn fills_beside(&self, back: &Self, forward: &Impairment, base: Duration) -> Option<Duration> {
        let (there, other) = (self.fill.as_ref()?, back.fill.as_ref()?);
        let together = there.bits_per_second.saturating_add(other.bits_per_second);
        (together <= FILL_TOGETHER_MAX_BITS_PER_SECOND)
            .then(|| self.echoing() + base + forward.longest_way() + START_SLACK)
    }

    /// Looks for what cannot be carried out: plans come from other processes, too.
    pub fn check(&self) -> Result<(), BadPlan> {
        if self.echoes > ECHOES_MAX {
            return Err(BadPlan::TooManyEchoes(self.echoes));
        }
        if self.echoes > 0 {
            if self.echo_interval.is_zero() || self.echoes_at_once == 0 {
                return Err(BadPlan::NoPace);
            }
            not_too_long(self.echoing())?;
        }
        if let Some(fill) = &self.fill {
            not_too_long(fill.duration)?;
            if fill.bits_per_second > FILL_SANE_BITS_PER_SECOND {
                return Err(BadPlan::TooFast(fill.bits_per_second));
            }
            if !(DATAGRAM_BYTES as usize..=FILL_PAYLOAD_MAX).contains(&fill.payload_bytes) {
                return Err(BadPlan::PayloadSize(fill.payload_bytes));
            }
        }
        not_too_long(self.patience)
    }
}

fn not_too_long(time: Duration) -> Result<(), BadPlan> {
    if time > TIME_MAX {
        return Err(BadPlan::TooLong(time));
    }
    Ok(())
}

impl Fill {
    fn of(bits_per_second: u64, forward: &Impairment, time: Duration) -> Option<Self> {
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
        let bits_per_second = (bits_per_second as f64 * FILL_EXCESS / (1.0 - lost)).round() as u64;
        // The first is sent at once.
        let least_bits = (FILL_DATAGRAMS_MIN - 1) * (FILL_PAYLOAD + HEADER_BYTES) * 8;
        let least = Duration::from_nanos((least_bits * 1_000_000_000).div_ceil(bits_per_second));
        Some(Self {
            bits_per_second,
            duration: time.clamp(least, TIME_MAX),
            payload_bytes: FILL_PAYLOAD as usize,
        })
    }

    /// How many datagrams are due after some time.
    pub fn due(&self, elapsed: Duration) -> u64 {
        let bits = u128::from(self.bits_per_second) * elapsed.min(self.duration).as_nanos() / 1_000_000_000;
        // The first at once.
        (bits / (u128::from(self.payload_bytes as u64 + HEADER_BYTES) * 8)) as u64 + 1
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use super::*;
    use crate::impairment::{Distribution, Jitter, Loss};
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
    fn links_have_room_for_their_echoes() {
        let queue = |packets| Impairment {
            limit_packets: NonZeroU32::new(packets),
            ..rate(10_000_000)
        };
        for (way, milliseconds) in [
            (rate(2_000_000), 300),
            (rate(10_000_000), 50),
            (rate(10_000_000), 100),
            (rate(15_000_000), 50),
            (queue(90), 100),
            (
                Impairment {
                    rate_bits_per_second: None,
                    ..queue(10)
                },
                100,
            ),
        ] {
            let way = Impairment {
                delay: Duration::from_millis(milliseconds),
                ..way
            };
            assert_eq!(way.check(), Ok(()));
            let none = Impairment::default();
            for plan in [Plan::of(&way, &none), Plan::of(&none, &way)] {
                let at_once = way.delay.div_duration_f64(plan.echo_interval) * f64::from(plan.echoes_at_once);
                assert!(at_once <= f64::from(way.limit_packets()) / 2.0, "{way}: {plan:?}");
                assert!(plan.echoes >= 50, "{way}: {plan:?}");
            }
        }
    }

    #[test]
    fn a_little_loss_takes_more_echoes_to_tell_if_they_do() {
        let echoes = |percent: f64| {
            let loss = Loss::Random {
                ratio: Ratio::from_percent(percent).unwrap(),
                correlation: Ratio::ZERO,
            };
            let lossy = Impairment {
                loss: Some(loss),
                ..Impairment::default()
            };
            Plan::of(&Impairment::default(), &lossy).echoes
        };
        assert_eq!(
            [5.0, 0.2, 0.1, 0.07, 0.05, 0.0].map(echoes),
            [4000, 4000, 6000, 8000, 4000, 4000]
        );
    }

    #[test]
    fn a_shorter_plan_is_as_gentle() {
        let limited = rate(10_000_000);
        let plan = Plan::of(&limited, &Impairment::default());
        let short = Plan::within(&limited, &Impairment::default(), Duration::from_millis(200));
        assert_eq!(short.echoes * 5, plan.echoes);
        let fill = |plan: &Plan| plan.fill.clone().unwrap().duration;
        assert_eq!((fill(&plan), fill(&short)).0, 5 * fill(&short));
        let pace = |plan: &Plan| (plan.echo_interval, plan.echoes_at_once, plan.patience);
        assert_eq!(pace(&short), pace(&plan));
    }

    #[test]
    fn slow_links_are_filled_both_ways_at_once() {
        let far = |megabits: u64| Impairment {
            delay: Duration::from_millis(300),
            ..rate(megabits * 1_000_000)
        };
        let plan = |megabits: u64| Plan::of(&far(megabits), &Impairment::default());
        let base = Duration::from_millis(20);
        let beside = |plan: &Plan, back: &Plan| plan.fills_beside(back, &far(5), base);
        // All echoes, which take about a second, the last one's way, and slack.
        let echoing = plan(5).echo_interval * plan(5).echoes;
        assert!(echoing.abs_diff(Duration::from_secs(1)) < Duration::from_millis(5));
        let after = echoing + Duration::from_millis(20 + 300 + 100);
        assert_eq!(beside(&plan(5), &plan(50)), Some(after));
        assert_eq!(beside(&plan(5), &plan(100)), None);
        let none = Plan::of(&Impairment::default(), &Impairment::default());
        assert_eq!((beside(&plan(5), &none), beside(&none, &plan(5))), (None, None));
        assert!(plan(5).fills_early() && !plan(100).fills_early() && !none.fills_early());
    }

    #[test]
    fn plans_travel_as_json() {
        for bits_per_second in [8_000, 64_000, 10_000_000] {
            let plan = Plan::of(&rate(bits_per_second), &Impairment::default());
            let text = serde_json::to_string(&plan).unwrap();
            assert_eq!(serde_json::from_str::<Plan>(&text).unwrap(), plan, "{text}");
            assert_eq!(plan.check(), Ok(()));
        }
        let none = Plan::of(&Impairment::default(), &Impairment::default());
        let expected = r#"{"echoIntervalMs":1.0,"echoesAtOnce":4,"echoes":4000,"patienceMs":300.0}"#;
        assert_eq!(serde_json::to_string(&none).unwrap(), expected);
        assert_eq!(serde_json::from_str::<Plan>(expected).unwrap(), none);
    }

    #[test]
    fn what_cannot_be_carried_out_is_refused() {
        let plan = Plan::of(&rate(10_000_000), &Impairment::default());
        let day = Duration::from_secs(86_400);
        let with_fill = |change: fn(&mut Fill)| {
            let mut plan = plan.clone();
            change(plan.fill.as_mut().unwrap());
            plan.check().unwrap_err()
        };
        let with = |change: fn(&mut Plan)| {
            let mut plan = plan.clone();
            change(&mut plan);
            plan.check()
        };
        assert_eq!(
            with(|plan| plan.echoes = u32::MAX),
            Err(BadPlan::TooManyEchoes(u32::MAX))
        );
        assert_eq!(with(|plan| plan.echoes_at_once = 0), Err(BadPlan::NoPace));
        assert_eq!(
            with(|plan| plan.echo_interval = Duration::ZERO),
            Err(BadPlan::NoPace)
        );
        assert!(with(|plan| plan.echo_interval = Duration::from_secs(1)).is_err());
        assert_eq!(
            with(|plan| plan.patience = Duration::from_secs(86_400)),
            Err(BadPlan::TooLong(day))
        );
        assert_eq!(
            with_fill(|fill| fill.duration = Duration::from_secs(86_400)),
            BadPlan::TooLong(day)
        );
        assert_eq!(
            with_fill(|fill| fill.bits_per_second = u64::MAX),
            BadPlan::TooFast(u64::MAX)
        );
        assert_eq!(
            with_fill(|fill| fill.payload_bytes = 9000),
            BadPlan::PayloadSize(9000)
        );
        // Without echoes their pace is of no importance.
        let only_rate = |plan: &mut Plan| (plan.echoes, plan.echo_interval) = (0, Duration::ZERO);
        assert_eq!(with(only_rate), Ok(()));
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
        // Time between few datagrams says little, and of one nothing.
        for bits_per_second in [8_000, 64_000, 1_000_000] {
            let short = Plan::within(
                &rate(bits_per_second),
                &Impairment::default(),
                Duration::from_millis(10),
            );
            let fill = short.fill.unwrap();
            assert_eq!(fill.due(fill.duration), 4, "{fill:?}");
        }
        // Not what cannot be sent: that is only what is available.
        let fast = rate(10_000_000_000);
        assert_eq!(Plan::of(&fast, &Impairment::default()).fill, None);
        let available = Plan::available(&fast, &Impairment::default()).unwrap();
        assert_eq!((available.echoes, available.check()), (0, Ok(())));
        let fill = available.fill.unwrap();
        // 2 Gbit/s for 20 ms.
        assert_eq!(fill.due(fill.duration), 2_000_000_000 / 50 / (1442 * 8) + 1);
        let jumbled = Impairment {
            jitter: Some(Jitter {
                amount: Duration::from_millis(1),
                distribution: Distribution::Normal,
                correlation: Ratio::ZERO,
            }),
            ..Impairment::default()
        };
        assert_eq!(Plan::available(&jumbled, &fast), None);
        assert!(Plan::available(&fast, &jumbled).is_some());
    }
}
