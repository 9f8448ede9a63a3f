//! How many datagrams a link that is right loses: by formula where there is one, else by simulated runs.

use super::simulated::{arrivals, echoes};
use crate::impairment::{Impairment, Loss};
use crate::probe::Plan;
use crate::ratio::Ratio;

/// Of a link that is right, one in a hundred may be judged wrong.
const CONFIDENCE: f64 = 0.99;
/// What is less likely than this changes no interval.
const NEGLIGIBLE: f64 = 1e-15;
/// Runs that show how far losses spread where there is no formula. Both ends of the interval must be among them.
const LOSS_RUNS: u64 = 1000;

/// How many of so many datagrams are lost on a link like this, 99 times of 100.
pub(super) fn loss_interval(impairment: &Impairment, plan: &Plan, sent: u32) -> (u32, u32) {
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
pub(super) fn binomial_interval(draws: u32, ratio: f64) -> (u32, u32) {
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
pub(super) fn bursts_interval(
    draws: u32,
    [enter_bad, leave_bad, loss_in_bad, loss_in_good]: [f64; 4],
) -> (u32, u32) {
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
