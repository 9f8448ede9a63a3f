//! What the emulator's own rules do to the datagrams of a plan: when each arrives, and at which rate.

use std::time::Duration;

use crate::{
    fate::{DueQueue, ImpairedRoute, Nanos, Packet, Random},
    impairment::{Impairment, Loss},
    probe::{DATAGRAM_BYTES, HEADER_BYTES, ProbePlan},
};

/// The start of the simulated clock. With a clock that starts at 0 the link would count as busy from before
/// the start.
const BEGIN: Nanos = 1_000_000_000;
/// The excess with which links are filled makes up for this much loss.
const LITTLE_LOSS: f64 = 0.05;
/// With this many datagrams the loss of one does not show in the rate.
const MANY_DATAGRAMS: u64 = 200;

/// The number of runs that show how far medians spread.
const ROUND_TRIP_RUNS: u64 = 30;
/// The number of runs that show how far rates spread where delays vary or losses cluster: both leave gaps.
const RATE_RUNS: u64 = 30;

/// Quantiles of a simulated run with as many round trips as the plan has.
pub(super) struct Simulated {
    pub(super) median: Duration,
    /// How much longer than the median one round trip of a hundred takes.
    pub(super) spread: Duration,
}

pub(super) fn simulated_round_trips(
    forward: &Impairment,
    backward: &Impairment,
    plan: &ProbePlan,
) -> Vec<Simulated> {
    let runs = 0..ROUND_TRIP_RUNS;
    runs.filter_map(|run| simulated_round_trip(forward, backward, plan, run))
        .collect()
}

pub(super) fn simulated_round_trip(
    forward: &Impairment,
    backward: &Impairment,
    plan: &ProbePlan,
    run: u64,
) -> Option<Simulated> {
    let there = arrivals(forward, echoes(plan), 2 * run);
    // The server replies in the order in which echoes arrive.
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

/// The smallest and the largest value of a quantile over all runs.
pub(super) fn ends(
    simulated: &[Simulated],
    quantile: impl Fn(&Simulated) -> Duration,
) -> (Duration, Duration) {
    let quantiles = || simulated.iter().map(&quantile);
    (
        quantiles().min().unwrap_or_default(),
        quantiles().max().unwrap_or_default(),
    )
}

/// The smallest and the largest share of the rate that a link delivers while it is filled.
pub(super) fn shares_of_rate(impairment: &Impairment, plan: &ProbePlan) -> (f64, f64) {
    let (Some(rate), Some(fill)) = (impairment.rate_bits_per_second, &plan.fill) else {
        return (1.0, 1.0);
    };
    // More is sent than the link carries, so that a little loss leaves no gap.
    let leaves_gaps = match &impairment.loss {
        None => false,
        Some(Loss::Random { ratio, correlation }) => {
            ratio.get() > LITTLE_LOSS || !correlation.is_zero() || fill.due(fill.duration) < MANY_DATAGRAMS
        }
        Some(Loss::GilbertElliott { .. }) => true,
    };
    // Packets that overtake do not use up the rate.
    if impairment.jitter.is_none() && impairment.reorder.is_none() && !leaves_gaps {
        return (1.0, 1.0);
    }
    let packet = Packet {
        wire_bytes: fill.payload_bytes as u64 + HEADER_BYTES,
        packets: 1,
    };
    let bits = packet.wire_bytes as f64 * 8.0;
    let interval = bits * 1e9 / fill.bits_per_second as f64;
    let shares = (0..RATE_RUNS).filter_map(|seed| {
        let mut link = ImpairedRoute::new(impairment, Random::new(seed));
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
                link.release(packet);
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

/// The times at which echoes are sent, twice: as their identity, and as the times when they reach the link.
pub(super) fn echoes(plan: &ProbePlan) -> impl Iterator<Item = (Nanos, Nanos)> {
    let interval = plan.echo_interval.as_nanos() as Nanos;
    let at_once = u64::from(plan.echoes_at_once);
    (0..plan.echoes.into())
        .map(move |number: u64| BEGIN + number / at_once * interval)
        .map(|time| (time, time))
}

/// The datagrams that arrive, and when: each once, and only if no bit of it is corrupted.
pub(super) fn arrivals(
    impairment: &Impairment,
    datagrams: impl Iterator<Item = (Nanos, Nanos)>,
    seed: u64,
) -> impl Iterator<Item = (Nanos, Nanos)> {
    let packet = Packet {
        wire_bytes: DATAGRAM_BYTES + HEADER_BYTES,
        packets: 1,
    };
    let mut link = ImpairedRoute::new(impairment, Random::new(seed));
    datagrams.filter_map(move |(sent, time)| {
        let mut first: Option<Nanos> = None;
        for departure in link.decide(packet, time).into_iter().flatten() {
            // Echoes are too few to fill the link's queue, so they are not kept in it.
            link.release(packet);
            if departure.corrupt.is_none() {
                first = Some(first.map_or(departure.due, |first| first.min(departure.due)));
            }
        }
        first.map(|arrival| (sent, arrival))
    })
}
