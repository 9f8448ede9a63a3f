//! The plan of a probe: enough datagrams to judge a link, few enough not to fill it.

use std::{num::NonZeroU64, time::Duration};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::impairment::{Impairment, milliseconds};

/// Bytes around a payload on the wire: Ethernet, IPv4 and UDP. IPv6 adds 20 more, which the server counts.
pub const HEADER_BYTES: u64 = 14 + 20 + 8;

/// Bytes of an echo request and of its reply.
pub const DATAGRAM_BYTES: u64 = 44;

/// The most echoes of one probe. Both ends keep a bit for each.
pub const ECHOES_MAX: u32 = 1 << 20;

/// For how many times its patience the client requests the server's counts, again and again. On a link that
/// loses 95 % of packets each way, about one client of twenty gives up.
pub const QUERIES: u32 = 40;

/// With fewer echoes, the loss of one says nothing about a link.
const ECHOES_MIN: u32 = 10;

/// How long echoes are sent, unless the caller sets another time.
const ECHO_TIME: Duration = Duration::from_secs(1);
/// The resolution of tokio's timers.
const TICK: Duration = Duration::from_millis(1);
const ECHO_BITS: u64 = (DATAGRAM_BYTES + HEADER_BYTES) * 8;
const ECHOES_PER_TICK_MAX: u64 = 4;
/// The limit where more echoes tell a small loss from none.
const ECHOES_PER_TICK_LOSSY: u64 = 8;
/// If this many losses are expected, losing none is outside the 99 % interval: e^-5.3 is 0.5 %.
const LOSSES_THAT_TELL: f64 = 5.3;
/// Echoes take at most a quarter of the rate, so that they measure the link's delay and not its queue.
const ECHO_SHARE: u64 = 4;
/// Echoes take at most half of the packets that a link can hold.
const ECHO_ROOM: u128 = 2;

/// How much later than the link allows a reply may come: a busy machine may take this long to schedule a
/// process.
const REPLY_SLACK: Duration = Duration::from_millis(300);

/// A link is filled for half of the time that echoes take.
const FILL_TIME_SHARE: u32 = 2;
/// The time between fewer datagrams says too little about the rate of a slow link.
const FILL_DATAGRAMS_MIN: u64 = 4;
const FILL_PAYLOAD: u64 = 1400;
/// Most links would fragment larger datagrams.
const FILL_PAYLOAD_MAX: usize = 1472;
/// How much more than its rate a link is offered.
const FILL_EXCESS: f64 = 1.15;
/// Above this rate sending is the bottleneck, not the link. Faster links and those without a rate are offered
/// this much.
const FILL_MAX_BITS_PER_SECOND: u64 = 2_000_000_000;

/// Up to this rate, filling is little work even for a machine that runs both ends. It disturbs neither echoes
/// in flight nor the other direction.
const FILL_TOGETHER_MAX_BITS_PER_SECOND: u64 = 100_000_000;

/// How long a link without a rate is filled: enough to see that the network is slower, too little to disturb
/// others.
const AVAILABLE_TIME: Duration = Duration::from_millis(20);

/// How much later than the reverse probe the echoes may start and end.
const START_SLACK: Duration = Duration::from_millis(100);

/// The longest that any part of a probe may take. Replies over the slowest links that can be set arrive
/// sooner.
const TIME_MAX: Duration = Duration::from_secs(300);

/// The highest rate that a plan may request. A machine that sends more slowly would take as much longer.
const FILL_REQUEST_MAX_BITS_PER_SECOND: u64 = 100_000_000_000;

/// What a probe sends, and when.
#[serde_with_macros::skip_serializing_none]
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ProbePlan {
    /// The interval between two groups of echoes. Milliseconds in JSON.
    #[serde(rename = "echoIntervalMs", with = "milliseconds")]
    #[schemars(with = "f64")]
    pub echo_interval: Duration,
    /// The number of echoes sent together.
    pub echoes_at_once: u32,
    /// The total number of echoes. 0: only the rate is measured.
    pub echoes: u32,
    /// How the link is filled to measure its rate. Absent if the rate is not measured.
    pub fill: Option<Fill>,
    /// How long the last reply may take. Milliseconds in JSON.
    #[serde(rename = "patienceMs", with = "milliseconds")]
    #[schemars(with = "f64")]
    pub patience: Duration,
}

/// How a link is filled.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Fill {
    /// The rate that is offered, in bits per second of whole Ethernet frames.
    pub bits_per_second: u64,
    /// How long the link is filled. Milliseconds in JSON.
    #[serde(rename = "durationMs", with = "milliseconds")]
    #[schemars(with = "f64")]
    pub duration: Duration,
    /// Payload bytes of each datagram.
    pub payload_bytes: usize,
}

/// Why a plan cannot be carried out, or would take too long.
#[derive(Clone, Copy, Debug, Error, PartialEq)]
pub enum InvalidPlan {
    /// More echoes than the ends can count.
    #[error("unable to send {0} echoes: request at most {ECHOES_MAX}")]
    TooManyEchoes(u32),
    /// A plan with echoes that never sends one.
    #[error("unable to send echoes with an interval of zero, or in groups of zero: set both")]
    NoPace,
    /// A part of the probe takes longer than five minutes.
    #[error("unable to wait {0:?} for a part of the probe: plan at most {TIME_MAX:?}")]
    TooLong(Duration),
    /// A rate that no machine reaches.
    #[error("unable to send {0} bit/s: request at most {FILL_REQUEST_MAX_BITS_PER_SECOND}")]
    TooFast(u64),
    /// Datagrams too short to carry the fields of the probe, or too long for a frame.
    #[error(
        "unable to fill a link with datagrams of {0} bytes: use {DATAGRAM_BYTES} to {FILL_PAYLOAD_MAX} bytes"
    )]
    PayloadSize(usize),
}

impl ProbePlan {
    /// Plans a probe of a link with these impairments towards the server and towards the client.
    pub fn new(forward: &Impairment, backward: &Impairment) -> Self {
        Self::with_echo_time(forward, backward, ECHO_TIME)
    }

    /// Plans a probe that sends echoes for `echo_time`: less time means that many links can be probed, with
    /// that much less to judge each by. Filling the link takes half as long as the echoes, and longer on
    /// links where that would be only a few datagrams.
    pub fn with_echo_time(forward: &Impairment, backward: &Impairment, echo_time: Duration) -> Self {
        let budget = echo_budget(forward).min(echo_budget(backward));
        let (echo_interval, echoes_at_once) =
            echo_pace(budget, echoes_per_tick_max([forward, backward], echo_time));
        let groups = (echo_time.min(TIME_MAX).as_nanos() / echo_interval.as_nanos()).max(1) as u32;
        let groups = groups.max(ECHOES_MIN.div_ceil(echoes_at_once));
        Self {
            echo_interval,
            echoes_at_once,
            echoes: (groups * echoes_at_once).min(ECHOES_MAX),
            fill: forward
                .rate_bits_per_second
                .and_then(|rate| Fill::new(rate.get(), forward, echo_time / FILL_TIME_SHARE)),
            patience: forward.longest_transit() + backward.longest_transit() + REPLY_SLACK,
        }
    }

    /// Plans the measurement of the rate towards the client: the peers swap roles, and the link is only
    /// filled. Judge the result by [`judge_rate_back`](super::judge_rate_back).
    pub fn rate_back(forward: &Impairment, backward: &Impairment, echo_time: Duration) -> Self {
        Self {
            echoes: 0,
            ..Self::with_echo_time(backward, forward, echo_time)
        }
    }

    /// Plans a measurement of what a link carries if it has no rate, or a rate above what can be sent. `None`
    /// if packets overtake each other: the time from the first to the last would be that of the jitter.
    pub fn of_available_rate(forward: &Impairment, backward: &Impairment) -> Option<Self> {
        let in_order = forward.jitter.is_none() && forward.reorder.is_none();
        in_order.then(|| Self {
            echoes: 0,
            fill: Some(Fill {
                bits_per_second: FILL_MAX_BITS_PER_SECOND,
                duration: AVAILABLE_TIME,
                payload_bytes: FILL_PAYLOAD as usize,
            }),
            ..Self::new(forward, backward)
        })
    }

    /// How long echoes are sent.
    fn echoing(&self) -> Duration {
        self.echo_interval
            .saturating_mul(self.echoes.div_ceil(self.echoes_at_once.max(1)))
    }

    /// How long the probe takes when hardly any datagram comes back.
    pub fn longest_duration(&self) -> Duration {
        let fill = self.fill.as_ref().map_or(Duration::ZERO, |fill| fill.duration);
        // The client waits once for the last echoes, and the other times for the counts.
        let waiting = self.patience.saturating_mul(QUERIES + 1);
        self.echoing().saturating_add(fill).saturating_add(waiting)
    }

    /// Whether the link is filled right after the last echo, while replies are still in flight. The two
    /// directions share no rate, but the machine does the work of both.
    pub fn is_filled_early(&self) -> bool {
        self.fill
            .as_ref()
            .is_some_and(|fill| fill.bits_per_second <= FILL_TOGETHER_MAX_BITS_PER_SECOND)
    }

    /// How long after the start of this probe the other direction can be filled: after the last reply,
    /// without waiting for this probe to end. `None` if only one direction is filled, or if filling both is
    /// too much work.
    pub fn backward_fill_delay(&self, back: &Self, forward: &Impairment, base: Duration) -> Option<Duration> {
        let (there, back) = (self.fill.as_ref()?, back.fill.as_ref()?);
        let together = there.bits_per_second.saturating_add(back.bits_per_second);
        (together <= FILL_TOGETHER_MAX_BITS_PER_SECOND)
            .then(|| self.echoing() + base + forward.longest_transit() + START_SLACK)
    }

    /// Rejects a plan that cannot be carried out: plans also come from other processes.
    pub fn check(&self) -> Result<(), InvalidPlan> {
        if self.echoes > ECHOES_MAX {
            return Err(InvalidPlan::TooManyEchoes(self.echoes));
        }
        if self.echoes > 0 {
            if self.echo_interval.is_zero() || self.echoes_at_once == 0 {
                return Err(InvalidPlan::NoPace);
            }
            check_time(self.echoing())?;
        }
        if let Some(fill) = &self.fill {
            check_time(fill.duration)?;
            if fill.bits_per_second > FILL_REQUEST_MAX_BITS_PER_SECOND {
                return Err(InvalidPlan::TooFast(fill.bits_per_second));
            }
            if !(DATAGRAM_BYTES as usize..=FILL_PAYLOAD_MAX).contains(&fill.payload_bytes) {
                return Err(InvalidPlan::PayloadSize(fill.payload_bytes));
            }
        }
        check_time(self.patience)
    }
}

/// The bits per second of echoes that one direction carries without a queue, and without filling what the
/// link holds.
fn echo_budget(direction: &Impairment) -> u64 {
    let rate = direction.rate_bits_per_second.map_or(u64::MAX, NonZeroU64::get);
    // A packet in flight counts towards the limit, whatever its size.
    let held = u128::from(direction.limit_packets()) * u128::from(ECHO_BITS) / ECHO_ROOM;
    let room = (held * 1_000_000_000)
        .checked_div(direction.longest_transit().as_nanos())
        .and_then(|bits| u64::try_from(bits).ok());
    (rate / ECHO_SHARE).min(room.unwrap_or(u64::MAX))
}

/// The most echoes in a tick: more than usual if that tells the loss in one of the directions from none.
fn echoes_per_tick_max(directions: [&Impairment; 2], echo_time: Duration) -> u64 {
    let ticks = echo_time.as_secs_f64() / TICK.as_secs_f64();
    directions
        .into_iter()
        .filter_map(|direction| direction.loss.as_ref()?.ratio())
        .map(|ratio| (LOSSES_THAT_TELL / ratio / ticks).ceil() as u64)
        // A loss that needs still more echoes cannot be distinguished from none anyway.
        .filter(|echoes| (ECHOES_PER_TICK_MAX..=ECHOES_PER_TICK_LOSSY).contains(echoes))
        .fold(ECHOES_PER_TICK_MAX, u64::max)
}

/// The interval between groups of echoes and the size of a group, within this many bits per second.
fn echo_pace(bits_per_second: u64, per_tick_max: u64) -> (Duration, u32) {
    let per_tick = u128::from(bits_per_second) * TICK.as_nanos() / u128::from(ECHO_BITS) / 1_000_000_000;
    match per_tick.min(per_tick_max.into()) as u32 {
        0 => {
            let nanoseconds = (ECHO_BITS * 1_000_000_000).div_ceil(bits_per_second.max(1));
            (Duration::from_nanos(nanoseconds).max(TICK), 1)
        }
        per_tick => (TICK, per_tick),
    }
}

fn check_time(time: Duration) -> Result<(), InvalidPlan> {
    if time > TIME_MAX {
        return Err(InvalidPlan::TooLong(time));
    }
    Ok(())
}

impl Fill {
    /// Fills a link at this rate, whatever its own, beside echoes that are sent for `echo_time`.
    pub fn at(bits_per_second: u64, echo_time: Duration) -> Self {
        Self {
            bits_per_second,
            duration: echo_time / FILL_TIME_SHARE,
            payload_bytes: FILL_PAYLOAD as usize,
        }
    }

    /// `None` if the link is faster than what can be sent.
    fn new(bits_per_second: u64, forward: &Impairment, time: Duration) -> Option<Self> {
        if bits_per_second > FILL_MAX_BITS_PER_SECOND {
            return None;
        }
        // Packets that are lost before the link's queue do not fill it.
        let lost = forward
            .loss
            .as_ref()
            .and_then(|loss| loss.ratio())
            .unwrap_or_default()
            .min(0.5);
        let bits_per_second = (bits_per_second as f64 * FILL_EXCESS / (1.0 - lost)).round() as u64;
        // The first datagram leaves at time 0.
        let least_bits = (FILL_DATAGRAMS_MIN - 1) * (FILL_PAYLOAD + HEADER_BYTES) * 8;
        let least = Duration::from_nanos((least_bits * 1_000_000_000).div_ceil(bits_per_second));
        Some(Self {
            bits_per_second,
            duration: time.clamp(least, TIME_MAX),
            payload_bytes: FILL_PAYLOAD as usize,
        })
    }

    /// The number of datagrams that are due after some time.
    pub fn due(&self, elapsed: Duration) -> u64 {
        let bits = u128::from(self.bits_per_second) * elapsed.min(self.duration).as_nanos() / 1_000_000_000;
        // The first one is due at time 0.
        (bits / (u128::from(self.payload_bytes as u64 + HEADER_BYTES) * 8)) as u64 + 1
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use super::*;
    use crate::{
        impairment::{Jitter, JitterDistribution, Loss},
        ratio::Ratio,
    };

    fn rate(bits_per_second: u64) -> Impairment {
        Impairment {
            rate_bits_per_second: NonZeroU64::new(bits_per_second),
            ..Impairment::default()
        }
    }

    #[test]
    fn echoes_leave_most_of_the_link_free() {
        let plan = ProbePlan::new(&Impairment::default(), &Impairment::default());
        assert_eq!((plan.echoes, plan.echoes_at_once, plan.fill), (4000, 4, None));
        for bits_per_second in [64_000, 1_000_000, 10_000_000, 1_000_000_000] {
            for (forward, backward) in [
                (rate(bits_per_second), rate(u64::MAX)),
                (rate(u64::MAX), rate(bits_per_second)),
            ] {
                let plan = ProbePlan::new(&forward, &backward);
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
        for (direction, milliseconds) in [
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
            let direction = Impairment {
                delay: Duration::from_millis(milliseconds),
                ..direction
            };
            assert_eq!(direction.check(), Ok(()));
            let none = Impairment::default();
            for plan in [
                ProbePlan::new(&direction, &none),
                ProbePlan::new(&none, &direction),
            ] {
                let at_once =
                    direction.delay.div_duration_f64(plan.echo_interval) * f64::from(plan.echoes_at_once);
                assert!(
                    at_once <= f64::from(direction.limit_packets()) / 2.0,
                    "{direction}: {plan:?}"
                );
                assert!(plan.echoes >= 50, "{direction}: {plan:?}");
            }
        }
    }

    #[test]
    fn a_small_loss_takes_more_echoes_if_they_can_show_it() {
        let echoes = |percent: f64| {
            let loss = Loss::Random {
                ratio: Ratio::from_percent(percent).unwrap(),
                correlation: Ratio::ZERO,
            };
            let lossy = Impairment {
                loss: Some(loss),
                ..Impairment::default()
            };
            ProbePlan::new(&Impairment::default(), &lossy).echoes
        };
        assert_eq!(
            [5.0, 0.2, 0.1, 0.07, 0.05, 0.0].map(echoes),
            [4000, 4000, 6000, 8000, 4000, 4000]
        );
    }

    #[test]
    fn a_shorter_plan_loads_a_link_no_more() {
        let limited = rate(10_000_000);
        let plan = ProbePlan::new(&limited, &Impairment::default());
        let short = ProbePlan::with_echo_time(&limited, &Impairment::default(), Duration::from_millis(200));
        assert_eq!(short.echoes * 5, plan.echoes);
        let fill = |plan: &ProbePlan| plan.fill.clone().unwrap().duration;
        assert_eq!((fill(&plan), fill(&short)).0, 5 * fill(&short));
        let pace = |plan: &ProbePlan| (plan.echo_interval, plan.echoes_at_once, plan.patience);
        assert_eq!(pace(&short), pace(&plan));
    }

    #[test]
    fn slow_links_are_filled_in_both_directions_at_the_same_time() {
        let far = |megabits: u64| Impairment {
            delay: Duration::from_millis(300),
            ..rate(megabits * 1_000_000)
        };
        let plan = |megabits: u64| ProbePlan::new(&far(megabits), &Impairment::default());
        let base = Duration::from_millis(20);
        let beside = |plan: &ProbePlan, back: &ProbePlan| plan.backward_fill_delay(back, &far(5), base);
        // All echoes, which take about a second, the last one's way, and slack.
        let echoing = plan(5).echo_interval * plan(5).echoes;
        assert!(echoing.abs_diff(Duration::from_secs(1)) < Duration::from_millis(5));
        let after = echoing + Duration::from_millis(20 + 300 + 100);
        assert_eq!(beside(&plan(5), &plan(50)), Some(after));
        assert_eq!(beside(&plan(5), &plan(100)), None);
        let none = ProbePlan::new(&Impairment::default(), &Impairment::default());
        assert_eq!((beside(&plan(5), &none), beside(&none, &plan(5))), (None, None));
        assert!(plan(5).is_filled_early() && !plan(100).is_filled_early() && !none.is_filled_early());
    }

    #[test]
    fn plans_travel_as_json() {
        for bits_per_second in [8_000, 64_000, 10_000_000] {
            let plan = ProbePlan::new(&rate(bits_per_second), &Impairment::default());
            let text = serde_json::to_string(&plan).unwrap();
            assert_eq!(serde_json::from_str::<ProbePlan>(&text).unwrap(), plan, "{text}");
            assert_eq!(plan.check(), Ok(()));
        }
        let none = ProbePlan::new(&Impairment::default(), &Impairment::default());
        let expected = r#"{"echoIntervalMs":1.0,"echoesAtOnce":4,"echoes":4000,"patienceMs":300.0}"#;
        assert_eq!(serde_json::to_string(&none).unwrap(), expected);
        assert_eq!(serde_json::from_str::<ProbePlan>(expected).unwrap(), none);
    }

    #[test]
    fn a_plan_that_cannot_be_carried_out_is_refused() {
        let plan = ProbePlan::new(&rate(10_000_000), &Impairment::default());
        let day = Duration::from_secs(86_400);
        let with_fill = |change: fn(&mut Fill)| {
            let mut plan = plan.clone();
            change(plan.fill.as_mut().unwrap());
            plan.check().unwrap_err()
        };
        let with = |change: fn(&mut ProbePlan)| {
            let mut plan = plan.clone();
            change(&mut plan);
            plan.check()
        };
        assert_eq!(
            with(|plan| plan.echoes = u32::MAX),
            Err(InvalidPlan::TooManyEchoes(u32::MAX))
        );
        assert_eq!(with(|plan| plan.echoes_at_once = 0), Err(InvalidPlan::NoPace));
        assert_eq!(
            with(|plan| plan.echo_interval = Duration::ZERO),
            Err(InvalidPlan::NoPace)
        );
        assert!(with(|plan| plan.echo_interval = Duration::from_secs(1)).is_err());
        assert_eq!(
            with(|plan| plan.patience = Duration::from_secs(86_400)),
            Err(InvalidPlan::TooLong(day))
        );
        assert_eq!(
            with_fill(|fill| fill.duration = Duration::from_secs(86_400)),
            InvalidPlan::TooLong(day)
        );
        assert_eq!(
            with_fill(|fill| fill.bits_per_second = u64::MAX),
            InvalidPlan::TooFast(u64::MAX)
        );
        assert_eq!(
            with_fill(|fill| fill.payload_bytes = 9000),
            InvalidPlan::PayloadSize(9000)
        );
        // Without echoes their pace is of no importance.
        let only_rate = |plan: &mut ProbePlan| (plan.echoes, plan.echo_interval) = (0, Duration::ZERO);
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
        let fill = ProbePlan::new(&lossy, &Impairment::default()).fill.unwrap();
        assert_eq!(fill.bits_per_second, 143_750_000);
        assert_eq!(fill.due(Duration::ZERO), 1);
        assert_eq!(fill.due(Duration::from_secs(9)), 143_750_000 / 2 / (1442 * 8) + 1);
        // Time between few datagrams says little, and of one nothing.
        for bits_per_second in [8_000, 64_000, 1_000_000] {
            let short = ProbePlan::with_echo_time(
                &rate(bits_per_second),
                &Impairment::default(),
                Duration::from_millis(10),
            );
            let fill = short.fill.unwrap();
            assert_eq!(fill.due(fill.duration), 4, "{fill:?}");
        }
        // Not what cannot be sent: that is only what is available.
        let fast = rate(10_000_000_000);
        assert_eq!(ProbePlan::new(&fast, &Impairment::default()).fill, None);
        let available = ProbePlan::of_available_rate(&fast, &Impairment::default()).unwrap();
        assert_eq!((available.echoes, available.check()), (0, Ok(())));
        let fill = available.fill.unwrap();
        // 2 Gbit/s for 20 ms.
        assert_eq!(fill.due(fill.duration), 2_000_000_000 / 50 / (1442 * 8) + 1);
        let jumbled = Impairment {
            jitter: Some(Jitter {
                amount: Duration::from_millis(1),
                distribution: JitterDistribution::Normal,
                correlation: Ratio::ZERO,
            }),
            ..Impairment::default()
        };
        assert_eq!(ProbePlan::of_available_rate(&jumbled, &fast), None);
        assert!(ProbePlan::of_available_rate(&fast, &jumbled).is_some());
    }
}
