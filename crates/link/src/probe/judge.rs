//! Whether a measured link is the one that was asked for.
//!
//! | quantity | tolerance |
//! |---|---|
//! | median of round trips | the larger of 0.3 ms and 1 %, around what the emulator's own rules give for the same datagrams |
//! | jitter: how much longer one round trip of a hundred takes than the median | half of what the emulator's own rules give at the least, if that is 2 ms less than that; nothing is too much |
//! | loss, each way | the 99 % interval of the binomial distribution; of simulated runs where packets share their fate; not judged if no loss at all is in it, though some was asked for |
//! | rate | 3 %, around what the emulator's own rules give for the same datagrams; not judged if less was offered |

mod losses;
mod simulated;
#[cfg(test)]
mod tests;

use std::fmt;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::Display;

use self::losses::loss_interval;
use self::simulated::{Simulated, ends, shares_of_rate, simulated_round_trips};
use super::plan::{DATAGRAM_BYTES, HEADER_BYTES, Plan};
use super::{Delivery, Measurement, RoundTrip};
use crate::impairment::Impairment;

const ROUND_TRIP_TOLERANCE: Duration = Duration::from_micros(300);
const ROUND_TRIP_TOLERANCE_RATIO: f64 = 0.01;
const RATE_TOLERANCE_RATIO: f64 = 0.03;
/// Jitter that is less than this cannot be told from what a busy machine does.
const SPREAD_TOLERANCE: Duration = Duration::from_millis(2);
/// One round trip of a hundred varies so much, above all among few, that no link that is right is this far below.
const SPREAD_TOLERANCE_RATIO: f64 = 0.5;

/// netem also makes bits of the Ethernet header wrong, of which those of the sender harm nobody.
const HARMFUL_BYTES_RATIO: f64 = 1.0 - 6.0 / (DATAGRAM_BYTES + HEADER_BYTES) as f64;

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
    /// Nothing to judge by: the link was not full, nothing arrived in the other direction, or too few datagrams were sent to
    /// tell so little loss from none.
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
        if measured.round_trip.is_none() {
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
    let (mut least, most) = loss_interval(impairment, plan, delivery.sent);
    if impairment.corrupt.is_some() {
        least = (f64::from(least) * HARMFUL_BYTES_RATIO).floor() as u32;
    }
    let mut finding = Finding::of(quantity, delivery.lost().into(), least.into(), most.into());
    // Of a loss that is asked for, too few to tell it from none.
    let could_be_none = least == 0 && most > 0 && finding.judgement == Judgement::Within;
    if delivery.sent == 0 || could_be_none {
        finding.judgement = Judgement::NotJudged;
    }
    finding
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
