//! netem's random decisions, which can depend on the previous ones.

use std::time::Duration;

use rand::{Rng, SeedableRng, rngs::Xoshiro256PlusPlus};

use super::Nanos;
use crate::{
    distribution,
    impairment::{Chance, Jitter, JitterDistribution, Loss},
    ratio::Ratio,
};

/// A source of random numbers. The same seed gives the same fate to the same packets.
#[derive(Clone, Debug)]
pub struct Random(Xoshiro256PlusPlus);

impl Random {
    /// Starts the sequence of this seed.
    pub fn new(seed: u64) -> Self {
        Self(Xoshiro256PlusPlus::seed_from_u64(seed))
    }

    pub(super) fn next_u32(&mut self) -> u32 {
        self.0.next_u32()
    }
}

/// Draws that resemble the previous one (`get_crandom`).
#[derive(Clone, Debug)]
struct Correlated {
    rho: u32,
    last: u32,
}

impl Correlated {
    fn new(correlation: Ratio, random: &mut Random) -> Self {
        Self {
            rho: correlation.to_scaled(),
            last: random.next_u32(),
        }
    }

    fn draw(&mut self, random: &mut Random) -> u32 {
        let value = random.next_u32();
        if self.rho == 0 {
            return value;
        }
        let rho = u64::from(self.rho) + 1;
        // Both products fit: each factor has at most 33 bits and their weights add up to 2^32.
        let mixed = (u64::from(value) * ((1 << 32) - rho) + u64::from(self.last) * rho) >> 32;
        self.last = u32::try_from(mixed).expect("a weighted mean is not above both values");
        self.last
    }
}

/// Decides whether what a [`Chance`] describes happens, packet by packet.
#[derive(Clone, Debug)]
pub(super) struct ChanceState {
    threshold: u32,
    draws: Correlated,
}

impl ChanceState {
    pub(super) fn new(ratio: Ratio, correlation: Ratio, random: &mut Random) -> Self {
        Self {
            threshold: ratio.to_scaled(),
            draws: Correlated::new(correlation, random),
        }
    }

    pub(super) fn of(chance: &Chance, random: &mut Random) -> Self {
        Self::new(chance.ratio, chance.correlation, random)
    }

    pub(super) fn happens(&mut self, random: &mut Random) -> bool {
        // If the result is certain, nothing is drawn, as in the kernel.
        self.threshold > 0 && self.threshold >= self.draws.draw(random)
    }
}

/// Decides which packets are lost (`loss_event`).
#[derive(Clone, Debug)]
pub(super) enum Losses {
    Random(ChanceState),
    GilbertElliott {
        bad: bool,
        enter_bad: u32,
        leave_bad: u32,
        loss_in_bad: u32,
        loss_in_good: u32,
    },
}

impl Losses {
    pub(super) fn new(loss: &Loss, random: &mut Random) -> Self {
        match loss {
            Loss::Random { ratio, correlation } => {
                Self::Random(ChanceState::new(*ratio, *correlation, random))
            }
            Loss::GilbertElliott {
                enter_bad,
                leave_bad,
                loss_in_bad,
                loss_in_good,
            } => Self::GilbertElliott {
                bad: false,
                enter_bad: enter_bad.to_scaled(),
                leave_bad: leave_bad.to_scaled(),
                loss_in_bad: loss_in_bad.to_scaled(),
                loss_in_good: loss_in_good.to_scaled(),
            },
        }
    }

    pub(super) fn next(&mut self, random: &mut Random) -> bool {
        match self {
            Self::Random(chance) => chance.happens(random),
            Self::GilbertElliott {
                bad,
                enter_bad,
                leave_bad,
                loss_in_bad,
                loss_in_good,
            } => {
                // The state changes after the packet, which is decided by the state before.
                let (leave, loss) = if *bad {
                    (*leave_bad, *loss_in_bad)
                } else {
                    (*enter_bad, *loss_in_good)
                };
                if random.next_u32() < leave {
                    *bad = !*bad;
                }
                // `<` would miss only the threshold of 100 %.
                loss == u32::MAX || random.next_u32() < loss
            }
        }
    }
}

/// Delays that vary (`tabledist`).
#[derive(Clone, Debug)]
pub(super) struct Delays {
    mean: i64,
    spread: Option<Spread>,
}

#[derive(Clone, Debug)]
struct Spread {
    amount: i64,
    draws: Correlated,
    /// `None` for a uniform distribution, which is computed to the nanosecond.
    table: Option<Box<[i16]>>,
}

impl Delays {
    pub(super) fn new(delay: Duration, jitter: Option<&Jitter>, random: &mut Random) -> Self {
        let nanoseconds =
            |duration: Duration| i64::try_from(duration.as_nanos()).expect("delays are checked to be short");
        let spread = jitter
            .filter(|jitter| !jitter.amount.is_zero())
            .map(|jitter| Spread {
                amount: nanoseconds(jitter.amount),
                draws: Correlated::new(jitter.correlation, random),
                table: (jitter.distribution != JitterDistribution::Uniform)
                    .then(|| distribution::table(jitter.distribution).into_boxed_slice()),
            });
        Self {
            mean: nanoseconds(delay),
            spread,
        }
    }

    /// A delay, not below 0: nothing arrives before it is sent.
    pub(super) fn next(&mut self, random: &mut Random) -> Nanos {
        let Some(Spread { amount, draws, table }) = &mut self.spread else {
            return self.mean.unsigned_abs();
        };
        let draw = draws.draw(random);
        let deviation = match table {
            None => i64::from(draw) % (2 * *amount) - *amount,
            Some(table) => {
                let entry = table[draw as usize % table.len()];
                *amount * i64::from(entry) / i64::from(distribution::SCALE)
            }
        };
        u64::try_from(self.mean + deviation).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRAWS: usize = 200_000;

    fn percent(percent: f64) -> Ratio {
        Ratio::from_percent(percent).unwrap()
    }

    /// Half the width of the interval that contains a binomial count, except once in ten thousand times.
    fn tolerance(ratio: f64, draws: usize) -> f64 {
        3.9 * (ratio * (1.0 - ratio) / draws as f64).sqrt()
    }

    fn random_losses(ratio: Ratio, correlation: Ratio) -> Losses {
        Losses::new(&Loss::Random { ratio, correlation }, &mut Random::new(5))
    }

    fn share(losses: &mut Losses) -> f64 {
        let mut random = Random::new(7);
        let lost = (0..DRAWS).filter(|_| losses.next(&mut random)).count();
        lost as f64 / DRAWS as f64
    }

    #[test]
    fn random_loss_is_the_share_that_was_set() {
        for ratio in [0.001, 0.01, 0.05, 0.5] {
            let share = share(&mut random_losses(Ratio::new(ratio).unwrap(), Ratio::ZERO));
            assert!(
                (share - ratio).abs() < tolerance(ratio, DRAWS),
                "{ratio}: {share}"
            );
        }
        assert_eq!(share(&mut random_losses(Ratio::ZERO, Ratio::ZERO)), 0.0);
        assert_eq!(share(&mut random_losses(Ratio::ONE, Ratio::ZERO)), 1.0);
    }

    #[test]
    fn lengths_of_bad_times_are_geometric() {
        let mut random = Random::new(11);
        let bursts = Loss::GilbertElliott {
            enter_bad: percent(1.0),
            leave_bad: percent(25.0),
            loss_in_bad: Ratio::ONE,
            loss_in_good: Ratio::ZERO,
        };
        let mut losses = Losses::new(&bursts, &mut random);
        let mut runs = Vec::new();
        let mut run = 0u32;
        for _ in 0..DRAWS {
            if losses.next(&mut random) {
                run += 1;
            } else if run > 0 {
                runs.push(run);
                run = 0;
            }
        }
        let lost: u32 = runs.iter().sum();
        let ratio = f64::from(lost) / DRAWS as f64;
        // The packets of one bad state share their fate, which multiplies the variance by (2 - p - r) / (p +
        // r) ≈ 6.7.
        let expected = 0.01 / 0.26;
        assert!(
            (ratio - expected).abs() < tolerance(expected, DRAWS) * 6.7f64.sqrt(),
            "{ratio}"
        );
        let mean = f64::from(lost) / runs.len() as f64;
        let sd_of_mean = (0.75f64 / 0.0625 / runs.len() as f64).sqrt();
        assert!((mean - 4.0).abs() < 3.9 * sd_of_mean, "{mean}");
        let single = runs.iter().filter(|run| **run == 1).count() as f64 / runs.len() as f64;
        assert!((single - 0.25).abs() < tolerance(0.25, runs.len()), "{single}");
    }

    #[test]
    fn good_times_can_lose_and_bad_times_can_deliver() {
        let loss = Loss::GilbertElliott {
            enter_bad: percent(10.0),
            leave_bad: percent(30.0),
            loss_in_bad: percent(40.0),
            loss_in_good: percent(1.0),
        };
        let share = share(&mut Losses::new(&loss, &mut Random::new(1)));
        let expected = loss.ratio().unwrap();
        assert!(
            (share - expected).abs() < 2.0 * tolerance(expected, DRAWS),
            "{share} {expected}"
        );
    }

    fn delays(jitter: Option<Jitter>) -> Vec<f64> {
        let mut random = Random::new(3);
        let mut delays = Delays::new(Duration::from_millis(50), jitter.as_ref(), &mut random);
        (0..DRAWS)
            .map(|_| delays.next(&mut random) as f64 / 1e6)
            .collect()
    }

    fn jitter(distribution: JitterDistribution, correlation: Ratio) -> Option<Jitter> {
        Some(Jitter {
            amount: Duration::from_millis(10),
            distribution,
            correlation,
        })
    }

    fn mean(values: &[f64]) -> f64 {
        values.iter().sum::<f64>() / values.len() as f64
    }

    fn deviation(values: &[f64]) -> f64 {
        let mean = mean(values);
        mean_of(values.iter().map(|value| (value - mean).powi(2)), values.len()).sqrt()
    }

    fn mean_of(values: impl Iterator<Item = f64>, count: usize) -> f64 {
        values.sum::<f64>() / count as f64
    }

    #[test]
    fn delays_spread_like_their_distribution() {
        assert!(delays(None).iter().all(|delay| *delay == 50.0));
        let uniform = delays(jitter(JitterDistribution::Uniform, Ratio::ZERO));
        assert!(uniform.iter().all(|delay| (40.0..60.0).contains(delay)));
        assert!((deviation(&uniform) - 10.0 / 3f64.sqrt()).abs() < 0.05);
        let normal = delays(jitter(JitterDistribution::Normal, Ratio::ZERO));
        assert!((mean(&normal) - 50.0).abs() < 0.1);
        assert!((deviation(&normal) - 10.0).abs() < 0.1);
        let mut pareto = delays(jitter(JitterDistribution::Pareto, Ratio::ZERO));
        pareto.sort_by(f64::total_cmp);
        // The smallest delay is 10 · (1 - 1.5) · 4/3 below the mean, the largest is cut off at four jitters.
        assert!((pareto[0] - 43.333).abs() < 0.01, "{}", pareto[0]);
        assert!((pareto[DRAWS - 1] - 90.0).abs() < 0.1);
    }

    #[test]
    fn correlated_delays_resemble_the_last_one() {
        let correlation = |values: &[f64]| {
            let (mean, deviation) = (mean(values), deviation(values));
            let pairs = values.windows(2).map(|pair| (pair[0] - mean) * (pair[1] - mean));
            mean_of(pairs, values.len() - 1) / deviation.powi(2)
        };
        let alone = correlation(&delays(jitter(JitterDistribution::Uniform, Ratio::ZERO)));
        assert!(alone.abs() < 0.01, "{alone}");
        // Uniform delays are the draws themselves, which are a first-order autoregression.
        let mut random = Random::new(5);
        let mut draws = Correlated::new(percent(25.0), &mut random);
        let values: Vec<_> = (0..DRAWS).map(|_| f64::from(draws.draw(&mut random))).collect();
        let resembling = correlation(&values);
        assert!((resembling - 0.25).abs() < 0.01, "{resembling}");
    }

    #[test]
    fn a_correlated_chance_begins_at_a_random_value() {
        // If they all started at 0, all of these would lose their first packet.
        let first = |seed| {
            let mut random = Random::new(seed);
            let mut chance = ChanceState::new(percent(1.0), percent(99.0), &mut random);
            chance.happens(&mut random)
        };
        let lost = (0..1000).filter(|seed| first(*seed)).count();
        assert!(lost < 50, "{lost}");
    }

    #[test]
    fn one_seed_gives_one_fate() {
        let fate = |seed| {
            let mut random = Random::new(seed);
            let mut losses = Losses::Random(ChanceState::new(percent(50.0), Ratio::ZERO, &mut random));
            (0..64).map(|_| losses.next(&mut random)).collect::<Vec<_>>()
        };
        assert_eq!(fate(1), fate(1));
        assert_ne!(fate(1), fate(2));
    }
}
