//! Whether a measured link behaves as configured.
//!
//! | quantity | tolerance |
//! |---|---|
//! | median of round trips | the larger of 0.3 ms and 1 %, around what the emulator's own rules give for the same datagrams |
//! | jitter: how much longer one round trip of a hundred takes than the median | at least half of the smallest value that the emulator's own rules give, if that is 2 ms below it; no upper bound |
//! | loss, each way | the 99 % interval of the binomial distribution; of simulated runs where packets share their fate; not judged if loss is configured and the interval includes no loss at all |
//! | rate | 3 %, around what the emulator's own rules give for the same datagrams; not judged if less was offered |

mod losses;
mod simulated;
#[cfg(test)]
mod tests;

use std::{fmt, time::Duration};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::Display;

use self::{
    losses::loss_interval,
    simulated::{Simulated, ends, shares_of_rate, simulated_round_trips},
};
use super::{
    Delivery, Measurement, Rate, RoundTrip,
    plan::{DATAGRAM_BYTES, HEADER_BYTES, ProbePlan},
};
use crate::impairment::Impairment;

const ROUND_TRIP_TOLERANCE: Duration = Duration::from_micros(300);
const ROUND_TRIP_TOLERANCE_RATIO: f64 = 0.01;
const RATE_TOLERANCE_RATIO: f64 = 0.03;
/// A busy machine delays single packets by this much. Less jitter cannot be distinguished from that.
const SPREAD_TOLERANCE: Duration = Duration::from_millis(2);
/// The 99th percentile varies, most among few round trips. No correct link falls below half of the expected
/// value.
const SPREAD_TOLERANCE_RATIO: f64 = 0.5;

/// netem also corrupts bits of the Ethernet header. Those of the sender's address do not cause a loss.
const HARMFUL_BYTES_RATIO: f64 = 1.0 - 6.0 / (DATAGRAM_BYTES + HEADER_BYTES) as f64;

/// The findings about a measured link.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ProbeVerdict {
    /// One finding for each quantity that was measured.
    pub findings: Vec<QuantityFinding>,
}

/// One quantity, measured and expected.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct QuantityFinding {
    /// The quantity, which determines the unit.
    pub quantity: Quantity,
    /// The measured value, in the quantity's unit.
    pub measured: f64,
    /// The smallest value that a correct link gives.
    pub least: f64,
    /// The largest value that a correct link gives.
    pub most: f64,
    /// Whether the measured value is in that range.
    pub judgement: Judgement,
}

/// What is judged.
#[derive(Clone, Copy, Debug, Deserialize, Display, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Quantity {
    /// The median of the round trips, in milliseconds.
    #[strum(to_string = "median round trip (ms)")]
    RoundTripMedian,
    /// How many milliseconds longer than the median one round trip of a hundred takes.
    #[strum(to_string = "spread of round trips (ms)")]
    RoundTripSpread,
    /// The number of datagrams lost on the way to the server.
    #[strum(to_string = "datagrams lost on the way there")]
    LossForward,
    /// The number of datagrams lost on the way to the client.
    #[strum(to_string = "datagrams lost on the way back")]
    LossBackward,
    /// The rate towards the server, in megabits per second.
    #[strum(to_string = "rate on the way there (Mbit/s)")]
    RateForward,
    /// The rate towards the client, in megabits per second. See [`judge_rate_back`].
    #[strum(to_string = "rate on the way back (Mbit/s)")]
    RateBackward,
}

/// How a measured value compares with the expected range.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Judgement {
    /// The value is in the range.
    Within,
    /// The value is not in the range.
    Outside,
    /// The measurement does not allow a judgement: the link was not full, nothing arrived in the other
    /// direction, or there were too few datagrams to tell such a small loss from none.
    NotJudged,
}

impl Quantity {
    /// Whether it is a number of lost datagrams.
    pub fn is_loss(self) -> bool {
        matches!(self, Self::LossForward | Self::LossBackward)
    }
}

impl ProbeVerdict {
    /// Whether no finding is outside its range.
    pub fn is_effective(&self) -> bool {
        self.outside().next().is_none()
    }

    /// The findings that are outside their range.
    pub fn outside(&self) -> impl Iterator<Item = &QuantityFinding> {
        self.findings
            .iter()
            .filter(|finding| finding.judgement == Judgement::Outside)
    }
}

impl fmt::Display for QuantityFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            quantity,
            measured,
            least,
            most,
            judgement,
        } = self;
        let verdict = match judgement {
            Judgement::Within => "as configured",
            Judgement::Outside => "not as configured",
            Judgement::NotJudged => "not judged",
        };
        write!(
            f,
            "{quantity}: {measured:.3}, expected {least:.3} to {most:.3}: {verdict}"
        )
    }
}

/// Compares a measurement with the impairments towards the server and towards the client. `base` is the round
/// trip without impairments: next to nothing on one machine, and to be measured between machines.
pub fn judge(
    forward: &Impairment,
    backward: &Impairment,
    base: Duration,
    plan: &ProbePlan,
    measured: &Measurement,
) -> ProbeVerdict {
    let mut findings = Vec::new();
    // A plan without echoes says nothing about round trips and losses.
    if plan.echoes > 0 || measured.round_trip.is_some() {
        let simulated = simulated_round_trips(forward, backward, plan);
        match measured.round_trip {
            Some(round_trip) => {
                findings.push(median_finding(&simulated, base, round_trip));
                if forward.jitter.is_some() || backward.jitter.is_some() {
                    findings.extend(spread_finding(&simulated, round_trip));
                }
            }
            None => findings.extend(no_reply_finding(forward, backward, &simulated, base)),
        }
    }
    if plan.echoes > 0 {
        for (quantity, impairment, delivery) in [
            (Quantity::LossForward, forward, measured.forward),
            (Quantity::LossBackward, backward, measured.backward),
        ] {
            findings.push(loss_finding(quantity, impairment, plan, delivery));
        }
    }
    let rate = measured.rate;
    findings.extend(rate.and_then(|rate| rate_finding(Quantity::RateForward, forward, plan, rate)));
    ProbeVerdict { findings }
}

/// Compares the rate towards the client with its impairment. The measurement was taken by
/// [`ProbePlan::rate_back`], with the peers' roles swapped. `None` if no rate is configured or none was
/// measured.
pub fn judge_rate_back(
    backward: &Impairment,
    plan: &ProbePlan,
    measured: &Measurement,
) -> Option<QuantityFinding> {
    rate_finding(Quantity::RateBackward, backward, plan, measured.rate?)
}

impl QuantityFinding {
    /// Whether a machine that was busy explains the value: a longer round trip or a lower rate than a correct
    /// link gives.
    pub fn is_slow(&self) -> bool {
        match self.quantity {
            Quantity::RoundTripMedian => self.measured > self.most,
            Quantity::RateForward | Quantity::RateBackward => self.measured < self.least,
            Quantity::RoundTripSpread | Quantity::LossForward | Quantity::LossBackward => false,
        }
    }

    fn new(quantity: Quantity, measured: f64, least: f64, most: f64) -> Self {
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

fn median_finding(simulated: &[Simulated], base: Duration, round_trip: RoundTrip) -> QuantityFinding {
    let (least, most) = ends(simulated, |round_trip| round_trip.median);
    let tolerance = |expected: Duration| {
        expected
            .mul_f64(ROUND_TRIP_TOLERANCE_RATIO)
            .max(ROUND_TRIP_TOLERANCE)
    };
    let (least, most) = (base + least, base + most);
    QuantityFinding::new(
        Quantity::RoundTripMedian,
        round_trip.p50_ns as f64 / 1e6,
        milliseconds(least.saturating_sub(tolerance(least))),
        milliseconds(most + tolerance(most)),
    )
}

/// No reply came back. `None` if that can happen on a correct link.
fn no_reply_finding(
    forward: &Impairment,
    backward: &Impairment,
    simulated: &[Simulated],
    base: Duration,
) -> Option<QuantityFinding> {
    let (least, most) = ends(simulated, |round_trip| round_trip.median);
    let expected = most > Duration::ZERO || forward.loss.is_none() && backward.loss.is_none();
    expected.then(|| QuantityFinding {
        quantity: Quantity::RoundTripMedian,
        measured: 0.0,
        least: milliseconds(base + least),
        most: milliseconds(base + most),
        judgement: Judgement::Outside,
    })
}

/// Whether jitter has an effect. `None` if there is too little jitter to find one.
fn spread_finding(simulated: &[Simulated], round_trip: RoundTrip) -> Option<QuantityFinding> {
    let (least, most) = ends(simulated, |round_trip| round_trip.spread);
    let tolerance = least.mul_f64(SPREAD_TOLERANCE_RATIO).max(SPREAD_TOLERANCE);
    let least = least.checked_sub(tolerance).filter(|least| !least.is_zero())?;
    let measured = round_trip.p99_ns.saturating_sub(round_trip.p50_ns) as f64 / 1e6;
    // A busy machine adds to the spread, which is not the fault of the jitter.
    let most = milliseconds(most).max(measured);
    Some(QuantityFinding::new(
        Quantity::RoundTripSpread,
        measured,
        milliseconds(least),
        most,
    ))
}

fn loss_finding(
    quantity: Quantity,
    impairment: &Impairment,
    plan: &ProbePlan,
    delivery: Delivery,
) -> QuantityFinding {
    let (mut least, most) = loss_interval(impairment, plan, delivery.sent);
    if impairment.corrupt.is_some() {
        least = (f64::from(least) * HARMFUL_BYTES_RATIO).floor() as u32;
    }
    let mut finding = QuantityFinding::new(quantity, delivery.lost().into(), least.into(), most.into());
    // Loss is configured, and there were too few datagrams to tell it from none.
    let could_be_none = least == 0 && most > 0 && finding.judgement == Judgement::Within;
    if delivery.sent == 0 || could_be_none {
        finding.judgement = Judgement::NotJudged;
    }
    finding
}

/// `None` if no rate is configured.
fn rate_finding(
    quantity: Quantity,
    impairment: &Impairment,
    plan: &ProbePlan,
    measured: Rate,
) -> Option<QuantityFinding> {
    let megabits = |bits: u64| bits as f64 / 1e6;
    let configured = megabits(impairment.rate_bits_per_second?.get());
    // Corrupted packets take their time on the link, and are then discarded.
    let arrives = 1.0
        - impairment
            .corrupt
            .as_ref()
            .map_or(0.0, |chance| chance.ratio.get());
    let (least, most) = shares_of_rate(impairment, plan);
    let mut finding = QuantityFinding::new(
        quantity,
        megabits(measured.received_bits_per_second),
        configured * arrives * least * (1.0 - RATE_TOLERANCE_RATIO),
        configured * most.max(1.0) * (1.0 + RATE_TOLERANCE_RATIO),
    );
    let offered_enough =
        megabits(measured.offered_bits_per_second) >= configured * (1.0 + RATE_TOLERANCE_RATIO);
    if !offered_enough && finding.measured < finding.least {
        finding.judgement = Judgement::NotJudged;
    }
    Some(finding)
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
