//! Order statistics of a few repetitions, without assumptions about their distribution.

use perfrun_link::binomial::probabilities;

/// Summary of the repetitions of one measurement.
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
    /// The ends of the 95 % confidence interval of the median. None below six values.
    pub ci95: Option<(f64, f64)>,
}

impl Statistics {
    /// Summarises the finite values. None if there is no finite value.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut sorted: Vec<f64> = values.into_iter().filter(|value| value.is_finite()).collect();
        sorted.sort_by(f64::total_cmp);
        let (&min, &max) = (sorted.first()?, sorted.last()?);
        let count = sorted.len();
        let median = f64::midpoint(sorted[(count - 1) / 2], sorted[count / 2]);
        let mean = sorted.iter().map(|value| value / count as f64).sum();
        let ci95 = median_interval_ranks(count).map(|(low, high)| (sorted[low - 1], sorted[high - 1]));
        Some(Self {
            count,
            median,
            mean,
            min,
            max,
            ci95,
        })
    }
}

/// Ranks (from 1) of the two order statistics that enclose the median of the distribution with at least 95 %
/// confidence, as close to each other as possible. None below six values, where even the smallest and the
/// largest do not.
///
/// The number of values below the median is binomial with p = 1/2, whatever the distribution. So the interval
/// between the order statistics j and n + 1 − j covers the median with probability 1 − 2 P(B ≤ j − 1):
/// exactly for continuous distributions, and at least with that for others. Sources: David and Nagaraja,
/// *Order Statistics*, 3rd ed. (2003), §7.1. Le Boudec, *Performance Evaluation of Computer and Communication
/// Systems* (2010), tabulates it in appendix A. Ten repetitions give the ranks 2 and 9, with 97.9 %.
pub(crate) fn median_interval_ranks(count: usize) -> Option<(usize, usize)> {
    let mut below = 0.0;
    let rank = probabilities(u32::try_from(count).ok()?, 0.5)
        .take(count)
        .take_while(|probability| {
            below += probability;
            1.0 - 2.0 * below >= CONFIDENCE
        })
        .count();
    (rank > 0).then(|| (rank, count + 1 - rank))
}

const CONFIDENCE: f64 = 0.95;

#[cfg(test)]
mod tests {
    use super::*;

    /// Exact: Pascal's triangle in integers.
    fn coverage(count: usize, low: usize) -> f64 {
        let mut row = vec![1u128];
        for _ in 0..count {
            let mut next = vec![1u128; row.len() + 1];
            for i in 1..row.len() {
                next[i] = row[i - 1] + row[i];
            }
            row = next;
        }
        let outside: u128 = 2 * row[..low].iter().sum::<u128>();
        1.0 - outside as f64 / (1u128 << count) as f64
    }

    #[test]
    fn ranks_are_those_of_the_published_table() {
        let table = [
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
        ];
        for (count, low, high) in table {
            assert_eq!(median_interval_ranks(count), Some((low, high)), "{count}");
        }
    }

    #[test]
    fn intervals_cover_95_percent_and_the_next_narrower_ones_do_not() {
        for count in 6..=100 {
            let (low, high) = median_interval_ranks(count).unwrap();
            assert_eq!(low + high, count + 1);
            assert!(coverage(count, low) >= 0.95, "{count}");
            assert!(coverage(count, low + 1) < 0.95, "{count}");
        }
    }

    #[test]
    fn many_repetitions_agree_with_the_normal_approximation() {
        for count in [1000, 2000, 100_000] {
            let (low, _) = median_interval_ranks(count).unwrap();
            let normal = count as f64 / 2.0 - 0.98 * (count as f64).sqrt();
            assert!((low as f64 - normal).abs() <= 1.5, "{count}: {low} {normal}");
        }
    }

    #[test]
    fn fewer_than_six_values_have_no_interval() {
        for count in 0..6 {
            assert_eq!(median_interval_ranks(count), None, "{count}");
        }
        let statistics = Statistics::of([5.0, 1.0, 3.0, 2.0, 4.0]).unwrap();
        assert_eq!((statistics.median, statistics.ci95), (3.0, None));
    }

    #[test]
    fn ten_values_by_hand() {
        let values = [9.0, 2.0, 40.0, 4.0, 5.0, 6.0, 7.0, 8.0, 3.0, 1.0];
        let expected = Statistics {
            count: 10,
            median: 5.5,
            mean: 8.5,
            min: 1.0,
            max: 40.0,
            ci95: Some((2.0, 9.0)),
        };
        assert_eq!(Statistics::of(values), Some(expected));
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
