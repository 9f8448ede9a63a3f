//! How many datagrams a correct link loses: by formula where there is one, otherwise by simulation.

use super::simulated::{arrivals, echoes};
use crate::{
    binomial,
    impairment::{Impairment, Loss},
    probe::ProbePlan,
    ratio::Ratio,
};

/// One correct link of a hundred may be judged wrong.
const CONFIDENCE: f64 = 0.99;
/// Probabilities below this change no interval.
const NEGLIGIBLE: f64 = 1e-15;
/// The number of simulated runs where there is no formula. Both ends of the interval must be among them.
const LOSS_RUNS: u64 = 1000;

/// The range of the number of datagrams that a correct link loses of `sent`, 99 times of 100.
pub(super) fn loss_interval(impairment: &Impairment, plan: &ProbePlan, sent: u32) -> (u32, u32) {
    let alone = impairment.duplicate.is_none() && impairment.corrupt.is_none();
    match &impairment.loss {
        None if alone => (0, 0),
        Some(Loss::Random { ratio, correlation }) if alone && correlation.is_zero() => {
            random_interval(sent, ratio.get())
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
        _ => simulated_interval(impairment, plan, sent),
    }
}

/// The interval where each datagram is lost independently of the others.
pub(super) fn random_interval(sent: u32, ratio: f64) -> (u32, u32) {
    if ratio >= 1.0 {
        return (sent, sent);
    }
    binomial::interval(binomial::probabilities(sent, ratio), CONFIDENCE)
}

/// The interval of a link that alternates between a good and a bad state and starts in the good one. Exact:
/// it adds up the probabilities of all counts, datagram by datagram.
pub(super) fn bursts_interval(
    sent: u32,
    [enter_bad, leave_bad, loss_in_bad, loss_in_good]: [f64; 4],
) -> (u32, u32) {
    // By count of losses: the probabilities of that count and the good state, and of that count and the bad
    // state.
    let mut chances = vec![(0.0, 0.0); sent as usize + 1];
    chances[0] = (1.0, 0.0);
    // Counts above `reached` are so unlikely that they are left out.
    let mut reached = 0;
    for _ in 0..sent {
        reached = (reached + 1).min(sent as usize);
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
    binomial::interval(chances.into_iter().map(|(good, bad)| good + bad), CONFIDENCE)
}

fn simulated_interval(impairment: &Impairment, plan: &ProbePlan, sent: u32) -> (u32, u32) {
    let mut counts: Vec<_> = (0..LOSS_RUNS)
        .map(|seed| sent - arrivals(impairment, echoes(plan).take(sent as usize), seed).count() as u32)
        .collect();
    counts.sort_unstable();
    let beyond = (LOSS_RUNS as f64 * (1.0 - CONFIDENCE) / 2.0) as usize;
    (counts[beyond], counts[counts.len() - 1 - beyond])
}
