//! Whether a measured link is the one that was asked for.
//!
//! | quantity | tolerance |
//! |---|---|
//! | median of round trips | the larger of 0.3 ms and 1 %, around what the emulator's own rules give for the same datagrams |
//! | jitter: how much longer one round trip of a hundred takes than the median | half of what the emulator's own rules give at the least, if that is 2 ms less than that; nothing is too much |
//! | loss, each way | the 99 % interval of the binomial distribution; of simulated runs where packets share their fate |
//! | rate | 3 %, around what the emulator's own rules give for the same datagrams; not judged if less was offered |

use std::fmt;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::Display;

use super::plan::{DATAGRAM_BYTES, HEADER_BYTES, Plan};
use super::{Delivery, Measurement, RoundTrip};
use crate::emulation::{DueQueue, LinkState, Nanos, Packet, Random};
use crate::impairment::{Impairment, Loss};
use crate::ratio::Ratio;

const ROUND_TRIP_TOLERANCE: Duration = Duration::from_micros(300);
const ROUND_TRIP_TOLERANCE_RATIO: f64 = 0.01;
const RATE_TOLERANCE_RATIO: f64 = 0.03;
/// Jitter that is less than this cannot be told from what a busy machine does.
const SPREAD_TOLERANCE: Duration = Duration::from_millis(2);
/// One round trip of a hundred varies so much, above all among few, that no link that is right is this far below.
const SPREAD_TOLERANCE_RATIO: f64 = 0.5;
/// Of a link that is right, one in a hundred may be judged wrong.
const CONFIDENCE: f64 = 0.99;

/// A clock that begins at 0 would make the link busy from before the beginning.
const BEGIN: Nanos = 1_000_000_000;
/// What the excess with which links are filled makes up for.
const LITTLE_LOSS: f64 = 0.05;
/// So many datagrams that one of them is not seen in the rate.
const MANY_DATAGRAMS: u64 = 200;
/// What is less likely than this changes no interval.
const NEGLIGIBLE: f64 = 1e-15;

/// Runs that show how far medians spread.
const ROUND_TRIP_RUNS: u64 = 30;
/// Runs that show how far rates spread where delays vary, or losses come together: both leave gaps.
const RATE_RUNS: u64 = 30;
/// Runs that show how far losses spread where there is no formula. Both ends of the interval must be among them.
const LOSS_RUNS: u64 = 1000;

/// What was found out about each quantity.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Verdict {
    /// All of them.
    pub findings: Vec<Finding>,
}

/// One quantity, measured and expected.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// Which.
    pub quantity: Quantity,
    /// What it was, in the quantity's unit.
    pub measured: f64,
    /// What it should be at least.
    pub least: f64,
    /// What it should be at most.
    pub most: f64,
    /// Whether it was.
    pub judgement: Judgement,
}

/// What is judged.
#[derive(Clone, Copy, Debug, Deserialize, Display, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Quantity {
    /// Milliseconds.
    #[strum(to_string = "median round trip (ms)")]
    RoundTripMedian,
    /// Milliseconds that one round trip of a hundred takes longer than the median.
    #[strum(to_string = "spread of round trips (ms)")]
    RoundTripSpread,
    /// Datagrams towards the server.
    #[strum(to_string = "datagrams lost on the way there")]
    LossForward,
    /// Datagrams towards the client.
    #[strum(to_string = "datagrams lost on the way back")]
    LossBackward,
    /// Megabits per second towards the server.
    #[strum(to_string = "rate on the way there (Mbit/s)")]
    RateForward,
    /// Megabits per second towards the client; [`judge`] knows of no direction, so whoever swapped the roles says so.
    #[strum(to_string = "rate on the way back (Mbit/s)")]
    RateBackward,
}

/// What is to be thought of it.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Judgement {
    /// As asked for.
    Within,
    /// Not.
    Outside,
    /// Nothing to judge: the link was not full, or nothing arrived in the other direction.
    NotJudged,
}

impl Verdict {
    /// Whether nothing was found that is not as asked for.
    pub fn is_effective(&self) -> bool {
        self.outside().next().is_none()
    }

    /// What is not as asked for.
    pub fn outside(&self) -> impl Iterator<Item = &Finding> {
        self.findings
            .iter()
            .filter(|finding| finding.judgement == Judgement::Outside)
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            quantity,
            measured,
            least,
            most,
            judgement,
        } = self;
        let verdict = match judgement {
            Judgement::Within => "as asked for",
            Judgement::Outside => "not as asked for",
            Judgement::NotJudged => "not judged",
        };
        write!(
            f,
            "{quantity}: {measured:.3}, expected {least:.3} to {most:.3}: {verdict}"
        )
    }
}

/// Compares what was measured with the impairments towards the server and towards the client. `base` is the round trip
/// without them: next to nothing on one machine, and to be measured between machines.
pub fn judge(
    forward: &Impairment,
    backward: &Impairment,
    base: Duration,
    plan: &Plan,
    measured: &Measurement,
) -> Verdict {
    let mut findings = Vec::new();
    if let Some(round_trip) = measured.round_trip {
        let simulated = simulated_round_trips(forward, backward, plan);
        let (least, most) = ends(&simulated, |round_trip| round_trip.median);
        let range = (base + least, base + most);
        let tolerance = |expected: Duration| {
            expected
                .mul_f64(ROUND_TRIP_TOLERANCE_RATIO)
                .max(ROUND_TRIP_TOLERANCE)
        };
        let least = range.0.saturating_sub(tolerance(range.0));
        let most = range.1 + tolerance(range.1);
        let milliseconds = |time: Duration| time.as_secs_f64() * 1e3;
        findings.push(Finding::of(
            Quantity::RoundTripMedian,
            round_trip.p50_ns as f64 / 1e6,
            milliseconds(least),
            milliseconds(most),
        ));
        if forward.jitter.is_some() || backward.jitter.is_some() {
            findings.extend(spread_finding(&simulated, round_trip));
        }
    }
    // If only the rate is measured, nothing is said of the rest.
    if plan.echoes > 0 {
        // Nothing came back, of a link on which something should have.
        if plan.echoes > 0 && measured.round_trip.is_none() {
            let simulated = simulated_round_trips(forward, backward, plan);
            let (least, most) = ends(&simulated, |round_trip| round_trip.median);
            if most > Duration::ZERO || forward.loss.is_none() && backward.loss.is_none() {
                let milliseconds = |time: Duration| (base + time).as_secs_f64() * 1e3;
                findings.push(Finding {
                    quantity: Quantity::RoundTripMedian,
                    measured: 0.0,
                    least: milliseconds(least),
                    most: milliseconds(most),
                    judgement: Judgement::Outside,
                });
            }
        }
        for (quantity, impairment, delivery) in [
            (Quantity::LossForward, forward, measured.forward),
            (Quantity::LossBackward, backward, measured.backward),
        ] {
            findings.push(loss_finding(quantity, impairment, plan, delivery));
        }
    }
    if let (Some(asked), Some(rate)) = (forward.rate_bits_per_second, measured.rate) {
        let megabits = |bits: u64| bits as f64 / 1e6;
        let asked = megabits(asked.get());
        // What is corrupted takes its time on the link, and is then discarded.
        let arrives = 1.0 - forward.corrupt.as_ref().map_or(0.0, |chance| chance.ratio.get());
        let (least, most) = shares_of_rate(forward, plan);
        let mut finding = Finding::of(
            Quantity::RateForward,
            megabits(rate.received_bits_per_second),
            asked * arrives * least * (1.0 - RATE_TOLERANCE_RATIO),
            asked * most.max(1.0) * (1.0 + RATE_TOLERANCE_RATIO),
        );
        let offered_enough = megabits(rate.offered_bits_per_second) >= asked * (1.0 + RATE_TOLERANCE_RATIO);
        if !offered_enough && finding.measured < finding.least {
            finding.judgement = Judgement::NotJudged;
        }
        findings.push(finding);
    }
    Verdict { findings }
}

impl Finding {
    fn of(quantity: Quantity, measured: f64, least: f64, most: f64) -> Self {
        let judgement = if (least..=most).contains(&measured) {
            Judgement::Within
        } else {
            Judgement::Outside
        };
        Self {
            quantity,
            measured,
            least,
            most,
            judgement,
        }
    }
}

fn loss_finding(quantity: Quantity, impairment: &Impairment, plan: &Plan, delivery: Delivery) -> Finding {
    let (least, most) = loss_interval(impairment, plan, delivery.sent);
    let mut finding = Finding::of(quantity, delivery.lost().into(), least.into(), most.into());
    if delivery.sent == 0 {
        finding.judgement = Judgement::NotJudged;
    }
    finding
}

/// How many of so many datagrams are lost on a link like this, 99 times of 100.
fn loss_interval(impairment: &Impairment, plan: &Plan, sent: u32) -> (u32, u32) {
    let alone = impairment.duplicate.is_none() && impairment.corrupt.is_none();
    match &impairment.loss {
        None if alone => (0, 0),
        Some(Loss::Random { ratio, correlation }) if alone && correlation.is_zero() => {
            binomial_interval(sent, ratio.get())
        }
        Some(Loss::GilbertElliott {
            enter_bad,
            leave_bad,
            loss_in_bad,
            loss_in_good,
        }) if alone => {
            let chain = [*enter_bad, *leave_bad, *loss_in_bad, *loss_in_good].map(Ratio::get);
            bursts_interval(sent, chain)
        }
        _ => {
            let mut counts: Vec<_> = (0..LOSS_RUNS)
                .map(|seed| {
                    sent - arrivals(impairment, echoes(plan).take(sent as usize), seed).count() as u32
                })
                .collect();
            counts.sort_unstable();
            let beyond = (LOSS_RUNS as f64 * (1.0 - CONFIDENCE) / 2.0) as usize;
            (counts[beyond], counts[counts.len() - 1 - beyond])
        }
    }
}

/// The counts that are neither among the least likely low ones nor among the least likely high ones.
fn binomial_interval(draws: u32, ratio: f64) -> (u32, u32) {
    if ratio <= 0.0 || ratio >= 1.0 {
        let certain = if ratio >= 1.0 { draws } else { 0 };
        return (certain, certain);
    }
    let beyond = (1.0 - CONFIDENCE) / 2.0;
    // Logarithms, since the chance of no loss at all in 50000 draws is no number of 64 bits.
    let mut logarithm = f64::from(draws) * (1.0 - ratio).ln();
    let odds = (ratio / (1.0 - ratio)).ln();
    let (mut below, mut least) = (0.0, None);
    for count in 0..=draws {
        let up_to = below + logarithm.exp();
        if least.is_none() && up_to > beyond {
            least = Some(count);
        }
        if up_to >= 1.0 - beyond {
            return (least.unwrap_or(count), count);
        }
        below = up_to;
        logarithm += (f64::from(draws - count) / f64::from(count + 1)).ln() + odds;
    }
    (least.unwrap_or(draws), draws)
}

/// The same for a link that is good or bad for a while and begins good: exact, by adding up the chances of all counts
/// datagram by datagram.
fn bursts_interval(draws: u32, [enter_bad, leave_bad, loss_in_bad, loss_in_good]: [f64; 4]) -> (u32, u32) {
    // Chances to have lost so many and to be good, or bad.
    let mut chances = vec![(0.0, 0.0); draws as usize + 1];
    chances[0] = (1.0, 0.0);
    // Counts beyond what is at all likely stay away from the work.
    let mut reached = 0;
    for _ in 0..draws {
        reached = (reached + 1).min(draws as usize);
        let (mut lost_good, mut lost_bad) = (0.0, 0.0);
        for (good, bad) in &mut chances[..=reached] {
            let kept = (*good * (1.0 - loss_in_good), *bad * (1.0 - loss_in_bad));
            let now = (kept.0 + lost_good, kept.1 + lost_bad);
            (lost_good, lost_bad) = (*good * loss_in_good, *bad * loss_in_bad);
            // The state changes after the packet.
            *good = now.0 * (1.0 - enter_bad) + now.1 * leave_bad;
            *bad = now.1 * (1.0 - leave_bad) + now.0 * enter_bad;
        }
        while reached > 0 && chances[reached].0 + chances[reached].1 < NEGLIGIBLE {
            reached -= 1;
        }
    }
    let beyond = (1.0 - CONFIDENCE) / 2.0;
    let (mut below, mut least) = (0.0, None);
    for (count, (good, bad)) in (0..=draws).zip(&chances) {
        below += good + bad;
        if least.is_none() && below > beyond {
            least = Some(count);
        }
        if below >= 1.0 - beyond {
            return (least.unwrap_or(count), count);
        }
    }
    (least.unwrap_or(draws), draws)
}

/// The least and the greatest share of the rate that a link delivers while it is filled.
fn shares_of_rate(impairment: &Impairment, plan: &Plan) -> (f64, f64) {
    let (Some(rate), Some(fill)) = (impairment.rate_bits_per_second, &plan.fill) else {
        return (1.0, 1.0);
    };
    // Some more than the link carries is sent, so that a little loss leaves no gap.
    let leaves_gaps = match &impairment.loss {
        None => false,
        Some(Loss::Random { ratio, correlation }) => {
            ratio.get() > LITTLE_LOSS || !correlation.is_zero() || fill.due(fill.duration) < MANY_DATAGRAMS
        }
        Some(Loss::GilbertElliott { .. }) => true,
    };
    if impairment.jitter.is_none() && !leaves_gaps {
        return (1.0, 1.0);
    }
    let packet = Packet {
        wire_bytes: fill.payload_bytes as u64 + HEADER_BYTES,
        packets: 1,
    };
    let bits = packet.wire_bytes as f64 * 8.0;
    let interval = bits * 1e9 / fill.bits_per_second as f64;
    let shares = (0..RATE_RUNS).filter_map(|seed| {
        let mut link = LinkState::new(impairment, Random::new(seed));
        let mut waiting = DueQueue::default();
        let (mut count, mut first, mut last) = (0_u64, None, 0);
        let mut arrived = |due: Nanos| {
            count += 1;
            first.get_or_insert(due);
            last = due;
        };
        for number in 0..fill.due(fill.duration) {
            let now = BEGIN + (number as f64 * interval) as Nanos;
            while let Some((due, ())) = waiting.pop_due(now) {
                link.released(packet);
                arrived(due);
            }
            for departure in link.decide(packet, now).into_iter().flatten() {
                waiting.push(departure.due, ());
            }
        }
        while let Some((due, ())) = waiting.pop_due(Nanos::MAX) {
            arrived(due);
        }
        let nanoseconds = last - first?;
        (nanoseconds > 0).then(|| (count - 1) as f64 * bits * 1e9 / nanoseconds as f64 / rate.get() as f64)
    });
    let ends = shares.fold(None, |ends: Option<(f64, f64)>, share| {
        Some(ends.map_or((share, share), |(low, high)| (low.min(share), high.max(share))))
    });
    ends.unwrap_or((1.0, 1.0))
}

/// What as many round trips as the plan has come to.
struct Simulated {
    median: Duration,
    /// How much longer one of a hundred takes.
    spread: Duration,
}

/// Some times over.
fn simulated_round_trips(forward: &Impairment, backward: &Impairment, plan: &Plan) -> Vec<Simulated> {
    let runs = 0..ROUND_TRIP_RUNS;
    runs.filter_map(|run| simulated_round_trip(forward, backward, plan, run))
        .collect()
}

fn simulated_round_trip(
    forward: &Impairment,
    backward: &Impairment,
    plan: &Plan,
    run: u64,
) -> Option<Simulated> {
    let there = arrivals(forward, echoes(plan), 2 * run);
    // The server answers in the order in which echoes come.
    let mut there: Vec<_> = there.collect();
    there.sort_unstable_by_key(|(_, arrival)| *arrival);
    let back = arrivals(backward, there.into_iter(), 2 * run + 1);
    let mut round_trips: Vec<_> = back.map(|(sent, arrival)| arrival - sent).collect();
    if round_trips.is_empty() {
        return None;
    }
    let last = round_trips.len() * 99 / 100;
    let middle = round_trips.len() / 2;
    let mut at = |index| Duration::from_nanos(*round_trips.select_nth_unstable(index).1);
    let median = at(middle);
    Some(Simulated {
        median,
        spread: at(last).saturating_sub(median),
    })
}

/// The least and the greatest of a figure.
fn ends(simulated: &[Simulated], figure: impl Fn(&Simulated) -> Duration) -> (Duration, Duration) {
    let figures = || simulated.iter().map(&figure);
    (
        figures().min().unwrap_or_default(),
        figures().max().unwrap_or_default(),
    )
}

/// Whether jitter does anything; nothing of jitter that is too little to tell.
fn spread_finding(simulated: &[Simulated], round_trip: RoundTrip) -> Option<Finding> {
    let (least, most) = ends(simulated, |round_trip| round_trip.spread);
    let tolerance = least.mul_f64(SPREAD_TOLERANCE_RATIO).max(SPREAD_TOLERANCE);
    let least = least.checked_sub(tolerance).filter(|least| !least.is_zero())?;
    let measured = round_trip.p99_ns.saturating_sub(round_trip.p50_ns) as f64 / 1e6;
    // A busy machine adds to it, which is nothing that jitter could be blamed for.
    let most = (most.as_secs_f64() * 1e3).max(measured);
    Some(Finding::of(
        Quantity::RoundTripSpread,
        measured,
        least.as_secs_f64() * 1e3,
        most,
    ))
}

/// When echoes are sent, twice: as what they are known by, and as when they come to the link.
fn echoes(plan: &Plan) -> impl Iterator<Item = (Nanos, Nanos)> {
    let interval = plan.echo_interval.as_nanos() as Nanos;
    let at_once = u64::from(plan.echoes_at_once);
    (0..plan.echoes.into())
        .map(move |number: u64| BEGIN + number / at_once * interval)
        .map(|time| (time, time))
}

/// Those of the datagrams that arrive, and when: each once, and only if no bit of it is wrong.
fn arrivals(
    impairment: &Impairment,
    datagrams: impl Iterator<Item = (Nanos, Nanos)>,
    seed: u64,
) -> impl Iterator<Item = (Nanos, Nanos)> {
    let packet = Packet {
        wire_bytes: DATAGRAM_BYTES + HEADER_BYTES,
        packets: 1,
    };
    let mut link = LinkState::new(impairment, Random::new(seed));
    datagrams.filter_map(move |(sent, time)| {
        let mut first: Option<Nanos> = None;
        for departure in link.decide(packet, time).into_iter().flatten() {
            // Echoes are too few to fill the link's queue, and so are not kept in it.
            link.released(packet);
            if departure.corrupt.is_none() {
                first = Some(first.map_or(departure.due, |first| first.min(departure.due)));
            }
        }
        first.map(|arrival| (sent, arrival))
    })
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;

    use super::super::Rate;
    use super::*;
    use crate::impairment::{Chance, Distribution, Jitter};

    fn percent(percent: f64) -> Ratio {
        Ratio::from_percent(percent).unwrap()
    }

    fn delay(milliseconds: u64) -> Impairment {
        Impairment {
            delay: Duration::from_millis(milliseconds),
            ..Impairment::default()
        }
    }

    fn lossy(ratio: f64) -> Impairment {
        let loss = Loss::Random {
            ratio: percent(ratio),
            correlation: Ratio::ZERO,
        };
        Impairment {
            loss: Some(loss),
            ..Impairment::default()
        }
    }

    fn measured(p50_ns: u64, lost_forward: u32) -> Measurement {
        Measurement {
            round_trip: Some(RoundTrip {
                min_ns: p50_ns,
                p50_ns,
                p99_ns: p50_ns,
            }),
            forward: Delivery {
                sent: 4000,
                received: 4000 - lost_forward,
            },
            backward: Delivery {
                sent: 4000 - lost_forward,
                received: 4000 - lost_forward,
            },
            rate: None,
        }
    }

    fn outside(forward: &Impairment, backward: &Impairment, measured: &Measurement) -> Vec<Quantity> {
        let plan = Plan::of(forward, backward);
        let verdict = judge(forward, backward, Duration::ZERO, &plan, measured);
        verdict.outside().map(|finding| finding.quantity).collect()
    }

    #[test]
    fn intervals_are_those_of_the_binomial_distribution() {
        // Of scipy.stats.binom.ppf([0.005, 0.995], n, p).
        assert_eq!(binomial_interval(4000, 0.01), (25, 57));
        assert_eq!(binomial_interval(50_000, 0.05), (2375, 2626));
        assert_eq!(binomial_interval(1000, 0.001), (0, 4));
        assert_eq!(binomial_interval(10, 0.0), (0, 0));
        assert_eq!(binomial_interval(10, 1.0), (10, 10));
    }

    #[test]
    fn a_round_trip_is_both_delays_within_its_tolerance() {
        let (there, back) = (delay(10), delay(15));
        assert_eq!(outside(&there, &back, &measured(25_000_000, 0)), []);
        assert_eq!(outside(&there, &back, &measured(25_290_000, 0)), []);
        assert_eq!(
            outside(&there, &back, &measured(25_400_000, 0)),
            [Quantity::RoundTripMedian]
        );
        assert_eq!(
            outside(&there, &back, &measured(10_100_000, 0)),
            [Quantity::RoundTripMedian]
        );
        assert_eq!(outside(&delay(100), &delay(100), &measured(201_900_000, 0)), []);
        // What lies between machines without any impairment is not the impairment's.
        let plan = Plan::of(&there, &back);
        let base = Duration::from_millis(2);
        assert!(judge(&there, &back, base, &plan, &measured(27_100_000, 0)).is_effective());
    }

    #[test]
    fn loss_that_is_missing_or_too_much_is_found() {
        assert_eq!(outside(&lossy(1.0), &delay(0), &measured(0, 40)), []);
        assert_eq!(
            outside(&lossy(1.0), &delay(0), &measured(0, 0)),
            [Quantity::LossForward]
        );
        assert_eq!(
            outside(&lossy(1.0), &delay(0), &measured(0, 80)),
            [Quantity::LossForward]
        );
        assert_eq!(
            outside(&delay(0), &delay(0), &measured(0, 1)),
            [Quantity::LossForward]
        );
    }

    #[test]
    fn intervals_of_bursts_are_exact() {
        // The same in good and in bad times is no burst.
        assert_eq!(bursts_interval(4000, [0.3, 0.2, 0.01, 0.01]), (25, 57));
        assert_eq!(bursts_interval(4000, [0.0, 0.5, 1.0, 0.01]), (25, 57));
        assert_eq!(bursts_interval(10, [1.0, 0.0, 1.0, 0.0]), (9, 9));
        // Against as many simulated links as it takes to find the ends to a few counts.
        let chain = [0.002, 0.2, 1.0, 0.0].map(|ratio| Ratio::new(ratio).unwrap());
        let [enter_bad, leave_bad, loss_in_bad, loss_in_good] = chain;
        let bursts = Impairment {
            loss: Some(Loss::GilbertElliott {
                enter_bad,
                leave_bad,
                loss_in_bad,
                loss_in_good,
            }),
            ..Impairment::default()
        };
        let plan = Plan::of(&bursts, &bursts);
        let (least, most) = bursts_interval(4000, chain.map(Ratio::get));
        let within = (0..4000).filter(|seed| {
            let lost = 4000 - arrivals(&bursts, echoes(&plan), *seed).count() as u32;
            (least..=most).contains(&lost)
        });
        // 99 % of 4000, within four standard deviations.
        let within = within.count();
        assert!(
            (3935..=3985).contains(&within),
            "{within} of 4000 in {least}..={most}"
        );
    }

    #[test]
    fn rates_of_links_with_jitter_are_judged_by_what_jitter_leaves_of_them() {
        let steady = Impairment {
            rate_bits_per_second: NonZeroU64::new(4_000_000),
            ..delay(100)
        };
        let jittery = Impairment {
            jitter: Some(Jitter {
                amount: Duration::from_millis(20),
                distribution: Distribution::Normal,
                correlation: Ratio::ZERO,
            }),
            ..steady.clone()
        };
        let of = |way: &Impairment| shares_of_rate(way, &Plan::of(way, way));
        assert_eq!(of(&steady), (1.0, 1.0));
        let (least, most) = of(&jittery);
        assert!((0.8..0.99).contains(&least) && most < 1.1, "{least} {most}");
    }

    #[test]
    fn bursts_have_a_wider_interval_than_single_losses() {
        let bursts = Impairment {
            loss: Some(Loss::GilbertElliott {
                enter_bad: percent(0.1),
                leave_bad: percent(10.0),
                loss_in_bad: Ratio::ONE,
                loss_in_good: Ratio::ZERO,
            }),
            ..Impairment::default()
        };
        let plan = Plan::of(&bursts, &bursts);
        let (least, most) = loss_interval(&bursts, &plan, 4000);
        let single = binomial_interval(4000, 0.001 / 0.101);
        assert!(least < single.0 && most > single.1, "{least} {most} {single:?}");
        assert_eq!(outside(&bursts, &delay(0), &measured(0, 40)), []);
        assert_eq!(
            outside(&bursts, &delay(0), &measured(0, 400)),
            [Quantity::LossForward]
        );
    }

    #[test]
    fn corruption_looks_like_loss() {
        let corrupt = Impairment {
            corrupt: Some(Chance {
                ratio: percent(10.0),
                correlation: Ratio::ZERO,
            }),
            ..delay(0)
        };
        assert_eq!(outside(&corrupt, &delay(0), &measured(0, 400)), []);
        assert_eq!(
            outside(&corrupt, &delay(0), &measured(0, 0)),
            [Quantity::LossForward]
        );
    }

    fn jittery(jitter: u64, impairment: Impairment) -> Impairment {
        Impairment {
            jitter: Some(Jitter {
                amount: Duration::from_millis(jitter),
                distribution: Distribution::Normal,
                correlation: Ratio::ZERO,
            }),
            ..impairment
        }
    }

    #[test]
    fn jitter_that_does_nothing_is_found() {
        let link = jittery(5, delay(50));
        let with = |p99_ns| Measurement {
            round_trip: Some(RoundTrip {
                min_ns: 50_000_000,
                p50_ns: 50_000_000,
                p99_ns,
            }),
            ..measured(0, 0)
        };
        let outside = |forward: &Impairment, p99_ns| outside(forward, &delay(0), &with(p99_ns));
        // 2.33 deviations.
        assert_eq!(outside(&link, 61_600_000), []);
        assert_eq!(outside(&link, 50_000_000), [Quantity::RoundTripSpread]);
        assert_eq!(outside(&link, 53_000_000), [Quantity::RoundTripSpread]);
        // The machine's, which jitter is not blamed for.
        assert_eq!(outside(&link, 200_000_000), []);
        // Too little to tell, and none.
        let hardly = Impairment {
            jitter: Some(Jitter {
                amount: Duration::from_micros(500),
                ..link.jitter.unwrap()
            }),
            ..delay(50)
        };
        assert_eq!(outside(&hardly, 50_000_000), []);
        assert_eq!(outside(&delay(50), 50_000_000), []);
    }

    /// Links like the presets wan, leo, mobile4g, mobile3g and satellite: jitter, delay and rate of both ways.
    #[test]
    fn jitter_as_it_should_be_is_never_found_missing() {
        for (jitter, milliseconds, megabits) in [
            (1, 25, [100, 100]),
            (2, 20, [15, 100]),
            (3, 30, [10, 40]),
            (10, 100, [1, 4]),
            (3, 300, [5, 50]),
        ] {
            let [forward, backward] = megabits.map(|megabits| Impairment {
                rate_bits_per_second: NonZeroU64::new(megabits * 1_000_000),
                ..jittery(jitter, delay(milliseconds))
            });
            // Few vary the most.
            let plan = Plan::within(&forward, &backward, Duration::from_millis(200));
            let simulated = simulated_round_trips(&forward, &backward, &plan);
            for run in 1000..1200 {
                let Simulated { median, spread } =
                    simulated_round_trip(&forward, &backward, &plan, run).unwrap();
                let nanoseconds = |time: Duration| time.as_nanos() as u64;
                let round_trip = RoundTrip {
                    min_ns: 0,
                    p50_ns: nanoseconds(median),
                    p99_ns: nanoseconds(median + spread),
                };
                let finding = spread_finding(&simulated, round_trip).expect("it is enough to tell");
                assert_eq!(finding.judgement, Judgement::Within, "{jitter} ms: {finding}");
            }
        }
    }

    #[test]
    fn skewed_jitter_moves_the_median() {
        let jittery = Impairment {
            jitter: Some(Jitter {
                amount: Duration::from_millis(20),
                distribution: Distribution::Pareto,
                correlation: Ratio::ZERO,
            }),
            ..delay(50)
        };
        // The median of the table is (2^(1/3) - 1.5) · 4/3 jitters away from the mean.
        let median = 50.0 + 20.0 * (2f64.powf(1.0 / 3.0) - 1.5) * 4.0 / 3.0;
        let spread = |p50_ns| Measurement {
            round_trip: Some(RoundTrip {
                min_ns: 0,
                p50_ns,
                p99_ns: p50_ns + 100_000_000,
            }),
            ..measured(0, 0)
        };
        assert_eq!(outside(&jittery, &delay(0), &spread((median * 1e6) as u64)), []);
        assert_eq!(
            outside(&jittery, &delay(0), &spread(50_000_000)),
            [Quantity::RoundTripMedian]
        );
    }

    #[test]
    fn a_rate_is_judged_if_enough_was_offered() {
        let slow = Impairment {
            rate_bits_per_second: NonZeroU64::new(100_000_000),
            ..delay(0)
        };
        let with = |offered, received| {
            let rate = Rate {
                offered_bits_per_second: offered,
                received_bits_per_second: received,
            };
            let measured = Measurement {
                rate: Some(rate),
                ..measured(0, 0)
            };
            let plan = Plan::of(&slow, &delay(0));
            let verdict = judge(&slow, &delay(0), Duration::ZERO, &plan, &measured);
            verdict
                .findings
                .iter()
                .find(|finding| finding.quantity == Quantity::RateForward)
                .unwrap()
                .judgement
        };
        assert_eq!(with(115_000_000, 98_000_000), Judgement::Within);
        assert_eq!(with(115_000_000, 115_000_000), Judgement::Outside);
        assert_eq!(with(115_000_000, 60_000_000), Judgement::Outside);
        assert_eq!(with(70_000_000, 60_000_000), Judgement::NotJudged);
    }

    #[test]
    fn findings_are_sentences() {
        let finding = Finding::of(Quantity::LossForward, 3.0, 25.0, 57.0);
        let expected = "datagrams lost on the way there: 3.000, expected 25.000 to 57.000: not as asked for";
        assert_eq!(finding.to_string(), expected);
    }
}
