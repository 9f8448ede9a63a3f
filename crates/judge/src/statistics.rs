//! Order statistics of a few trials, without assumptions about their distribution.

use crate::median::{median, median_interval};

/// Below this number of values there is no interval.
pub const VALUES_MIN: u32 = 6;

/// The confidence of all intervals, as a fraction.
pub(crate) const CONFIDENCE: f64 = 0.95;

/// Summary of the trials of one measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Statistics {
    /// The number of values.
    pub count: usize,
    /// The middle value, or the mean of the two middle values.
    pub median: f64,
    /// The arithmetic mean.
    pub mean: f64,
    /// The smallest value.
    pub min: f64,
    /// The largest value.
    pub max: f64,
    /// The ends of the 95 % confidence interval of the median. `None` below six values.
    pub ci95: Option<(f64, f64)>,
}

impl Statistics {
    /// Statistics of the finite values. `None` without any.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut sorted: Vec<f64> = values.into_iter().filter(|value| value.is_finite()).collect();
        sorted.sort_by(f64::total_cmp);
        let (&min, &max) = (sorted.first()?, sorted.last()?);
        let count = sorted.len();
        let mean = sorted.iter().map(|value| value / count as f64).sum();
        let ci95 = median_interval(&sorted, CONFIDENCE);
        Some(Self {
            count,
            median: median(&sorted),
            mean,
            min,
            max,
            ci95,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::f64::consts::TAU;

    use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};

    use super::*;

    /// The interval of the median of the values 1 to `count`: its ends are ranks.
    fn interval_of_ranks(count: u32) -> (f64, f64) {
        Statistics::of((1..=count).map(f64::from)).unwrap().ci95.unwrap()
    }

    /// Le Boudec, *Performance Evaluation of Computer and Communication Systems* (2010), appendix A: the
    /// ranks that enclose the median with at least 95 %. The next ones do not, so the ends lie between them.
    #[test]
    fn ends_lie_between_the_ranks_of_the_published_table_and_the_next() {
        for (count, low, high) in [
            (6, 1, 6),
            (7, 1, 7),
            (8, 1, 8),
            (9, 2, 8),
            (10, 2, 9),
            (11, 2, 10),
            (12, 3, 10),
            (15, 4, 12),
            (20, 6, 15),
            (25, 8, 18),
            (30, 10, 21),
            (50, 18, 33),
            (70, 27, 44),
        ] {
            let (found_low, found_high) = interval_of_ranks(count);
            let within = |end: f64, rank: u32, next: u32| {
                (end - f64::from(rank)) / (f64::from(next) - f64::from(rank))
            };
            assert!(
                (0.0..1.0).contains(&within(found_low, low, low + 1)),
                "{count}: {found_low}"
            );
            assert!(
                (0.0..1.0).contains(&within(found_high, high, high - 1)),
                "{count}: {found_high}"
            );
        }
    }

    #[test]
    fn many_repetitions_agree_with_the_normal_approximation() {
        for count in [1000, 2000, 100_000] {
            let (low, _) = interval_of_ranks(count);
            let normal = (f64::from(count) + 1.0) / 2.0 - 0.98 * f64::from(count).sqrt();
            assert!((low - normal).abs() <= 0.5, "{count}: {low} {normal}");
        }
    }

    #[test]
    fn fewer_than_six_values_have_no_interval() {
        for count in 1..VALUES_MIN {
            let statistics = Statistics::of((1..=count).map(f64::from)).unwrap();
            assert_eq!(statistics.ci95, None, "{count}");
        }
        assert!(
            Statistics::of((1..=VALUES_MIN).map(f64::from))
                .unwrap()
                .ci95
                .is_some()
        );
    }

    #[test]
    fn intervals_cover_the_median_of_the_distribution_in_95_percent_of_runs() {
        const RUNS: u32 = 10_000;
        let mut random = StdRng::seed_from_u64(24);
        let mut uniform = || 1.0 - random.random::<f64>();
        let mut normal = || (-2.0 * uniform().ln()).sqrt() * (TAU * uniform()).cos();
        for count in 6..=20 {
            let (mut symmetric, mut skewed) = (0, 0);
            for _ in 0..RUNS {
                let values: Vec<f64> = (0..count).map(|_| normal()).collect();
                let covers = |values: Vec<f64>, median: f64| {
                    let (low, high) = Statistics::of(values).unwrap().ci95.unwrap();
                    u32::from(low <= median && median <= high)
                };
                // An exponential of the normal distribution is as skewed as times are.
                skewed += covers(values.iter().map(|value| value.exp()).collect(), 1.0);
                symmetric += covers(values, 0.0);
            }
            for covered in [symmetric, skewed] {
                let share = f64::from(covered) / f64::from(RUNS);
                assert!((0.935..=0.965).contains(&share), "{count} values: {share}");
            }
        }
    }

    #[test]
    fn statistics_of_ten_values_agree_with_a_calculation_by_hand() {
        let values = [9.0, 2.0, 40.0, 4.0, 5.0, 6.0, 7.0, 8.0, 3.0, 1.0];
        let statistics = Statistics::of(values).unwrap();
        let expected = Statistics {
            count: 10,
            median: 5.5,
            mean: 8.5,
            min: 1.0,
            max: 40.0,
            ci95: statistics.ci95,
        };
        assert_eq!(statistics, expected);
        // Levels 1002/1024 and 912/1024 of the 2nd and the 3rd: of the way between them, 0.65766.
        let (low, high) = statistics.ci95.unwrap();
        assert!(
            (low - 2.65766).abs() < 1e-5 && (high - 8.34234).abs() < 1e-5,
            "{low} {high}"
        );
    }

    #[test]
    fn values_that_are_not_numbers_do_not_count() {
        let statistics = Statistics::of([f64::NAN, 2.0, f64::INFINITY]).unwrap();
        assert_eq!(
            (statistics.count, statistics.median, statistics.max),
            (1, 2.0, 2.0)
        );
        assert_eq!(Statistics::of([f64::NAN]), None);
        assert_eq!(Statistics::of([]), None);
    }

    #[test]
    fn values_near_the_limits_do_not_overflow() {
        let statistics = Statistics::of([f64::MAX, f64::MAX]).unwrap();
        assert_eq!((statistics.median, statistics.mean), (f64::MAX, f64::MAX));
    }
}
