//! Wilcoxon's signed-rank test of paired differences, and what follows from it: Hodges and Lehmann's estimate
//! of their location, with its interval.
//!
//! If the order within each pair is random, and nothing but the order tells the two sides of a pair apart,
//! every pattern of signs is equally likely. The test is then exact for any noise, drift included: it is a
//! randomisation test (Fisher, *The Design of Experiments*, 1935).
//!
//! Sources: Wilcoxon, *Individual Comparisons by Ranking Methods*, Biometrics 1 (1945). Hodges and Lehmann,
//! *Estimates of Location Based on Rank Tests*, Ann. Math. Statist. 34 (1963). Pratt, *Remarks on Zeros and
//! Ties in the Wilcoxon Signed Rank Procedures*, J. Amer. Statist. Assoc. 54 (1959). Hollander, Wolfe and
//! Chicken, *Nonparametric Statistical Methods*, 3rd ed. (2014), chapter 3.

use statrs::distribution::{ContinuousCDF, Normal};

/// Above this number of pairs, sums of ranks are taken for normal.
const EXACT_MAX: usize = 100;

/// The sum of the ranks of positive differences, among all sums that other signs would give.
#[derive(Debug)]
pub(crate) struct SignedRank {
    /// Twice the ranks of all differences that are not zero: ties share the mean of their ranks.
    ranks: Vec<usize>,
    /// Twice the sum of the ranks of positive ones.
    sum: usize,
}

impl SignedRank {
    /// Ranks differences by their size. Zeros take the lowest ranks, and have no sign (Pratt). Infinite ones
    /// are ties.
    pub(crate) fn of(differences: impl IntoIterator<Item = f64>) -> Self {
        let mut sorted: Vec<f64> = differences.into_iter().collect();
        sorted.sort_unstable_by(|a, b| a.abs().total_cmp(&b.abs()));
        let (mut ranks, mut sum, mut below) = (Vec::with_capacity(sorted.len()), 0, 0);
        for ties in sorted.chunk_by(|a, b| a.abs().total_cmp(&b.abs()).is_eq()) {
            // Twice the mean of the ranks below + 1 … below + ties.
            let rank = 2 * below + ties.len() + 1;
            below += ties.len();
            if ties[0] != 0.0 {
                ranks.extend(ties.iter().map(|_| rank));
                sum += rank * ties.iter().filter(|difference| **difference > 0.0).count();
            }
        }
        Self { ranks, sum }
    }

    /// The probability of this sum or a smaller one, of differences around zero.
    pub(crate) fn at_most(&self) -> f64 {
        self.tails().0
    }

    /// The probability of a sum that is at least as far from the middle, of differences around zero.
    pub(crate) fn two_sided(&self) -> f64 {
        let (at_most, at_least) = self.tails();
        (2.0 * at_most.min(at_least)).min(1.0)
    }

    fn tails(&self) -> (f64, f64) {
        if self.ranks.len() > EXACT_MAX {
            let (sum, total) = (self.sum as f64, self.ranks.iter().sum::<usize>() as f64);
            let variance = self
                .ranks
                .iter()
                .map(|rank| (rank * rank) as f64 / 4.0)
                .sum::<f64>();
            // Half of the step between two sums, which is 2 here.
            let normal = |distance: f64| standard_normal().cdf((distance + 1.0) / variance.sqrt());
            return (normal(sum - total / 2.0), normal(total / 2.0 - sum));
        }
        // Without a tie all of them are even, and half as many sums are possible.
        let unit = if self.ranks.iter().all(|rank| rank.is_multiple_of(2)) {
            2
        } else {
            1
        };
        let sums = distribution(self.ranks.iter().map(|rank| rank / unit));
        let sum = self.sum / unit;
        (sums[..=sum].iter().sum(), sums[sum..].iter().sum())
    }
}

/// Where differences lie.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Location {
    /// The median of the means of all pairs of differences (Walsh averages), each with itself included.
    pub estimate: f64,
    /// The values around which the test would not reject the differences. `None` if there are too few for
    /// this level.
    pub interval: Option<(f64, f64)>,
}

impl Location {
    /// The location of these differences, with an interval that misses with probability `alpha`. Differences
    /// may be infinite: some infinite ones leave the estimate finite. `None` without differences.
    pub fn of(differences: &[f64], alpha: f64) -> Option<Self> {
        let pairs = differences.len() * (differences.len() + 1) / 2;
        let mut averages = Vec::with_capacity(pairs);
        for (place, one) in differences.iter().enumerate() {
            averages.extend(differences[place..].iter().map(|other| mean([*one, *other])));
        }
        let count = averages.len();
        if count == 0 {
            return None;
        }
        let (below, &mut upper, above) = averages.select_nth_unstable_by(count / 2, f64::total_cmp);
        let largest_below = below.iter().copied().max_by(f64::total_cmp);
        let estimate = match largest_below.filter(|_| count.is_multiple_of(2)) {
            Some(lower) => mean([lower, upper]),
            None => upper,
        };
        let interval = depth(differences.len(), alpha).map(|depth| {
            let (_, &mut low, _) = below.select_nth_unstable_by(depth - 1, f64::total_cmp);
            let from_middle = count - depth - count / 2;
            let high = match from_middle.checked_sub(1) {
                Some(place) => *above.select_nth_unstable_by(place, f64::total_cmp).1,
                None => upper,
            };
            (low, high)
        });
        Some(Self { estimate, interval })
    }
}

/// The mean; of two infinite values that contradict each other, zero.
pub(crate) fn mean(values: impl IntoIterator<Item = f64, IntoIter: ExactSizeIterator>) -> f64 {
    let values = values.into_iter();
    let count = values.len() as f64;
    let sum: f64 = values.sum();
    if sum.is_nan() { 0.0 } else { sum / count }
}

/// The rank, from either end, of the Walsh averages that are the ends of the interval: the largest k with
/// P(V ≤ k − 1) ≤ alpha / 2. `None` if there is none: 2 / 2^count is more than alpha.
fn depth(count: usize, alpha: f64) -> Option<usize> {
    if count > EXACT_MAX {
        let count = count as f64;
        let middle = count * (count + 1.0) / 4.0;
        let spread = (middle * (2.0 * count + 1.0) / 6.0).sqrt();
        return Some((middle + spread * quantile(alpha / 2.0) + 0.5).floor() as usize)
            .filter(|depth| *depth > 0);
    }
    let mut up_to = 0.0;
    let sums = distribution(1..=count);
    let depth = sums
        .iter()
        .take_while(|probability| {
            up_to += **probability;
            up_to <= alpha / 2.0
        })
        .count();
    Some(depth).filter(|depth| *depth > 0)
}

/// The probabilities of the sums 0, 1, 2 … of positive ranks, if each rank is positive with probability ½.
fn distribution(ranks: impl IntoIterator<Item = usize>) -> Vec<f64> {
    let mut sums = vec![1.0];
    for rank in ranks {
        let mut next = vec![0.0; sums.len() + rank];
        for start in [0, rank] {
            for (to, from) in next[start..].iter_mut().zip(&sums) {
                *to += from / 2.0;
            }
        }
        sums = next;
    }
    sums
}

/// The value below which a standard normal variable lies with this probability.
pub(crate) fn quantile(probability: f64) -> f64 {
    standard_normal().inverse_cdf(probability)
}

fn standard_normal() -> Normal {
    Normal::standard()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By R 4.2: n, `qsignrank(c(0.025, 0.0125, 0.005), n)`, `psignrank(floor(0.6 * n * (n + 1) / 4), n)`.
    const R: [(usize, [usize; 3], f64); 50] = [
        (1, [0, 0, 0], 0.500_000_000_000),
        (2, [0, 0, 0], 0.250_000_000_000),
        (3, [0, 0, 0], 0.250_000_000_000),
        (4, [0, 0, 0], 0.312_500_000_000),
        (5, [0, 0, 0], 0.218_750_000_000),
        (6, [1, 0, 0], 0.218_750_000_000),
        (7, [3, 1, 0], 0.187_500_000_000),
        (8, [4, 3, 1], 0.156_250_000_000),
        (9, [6, 4, 2], 0.150_390_625_000),
        (10, [9, 6, 4], 0.137_695_312_500),
        (11, [11, 9, 6], 0.120_117_187_500),
        (12, [14, 11, 8], 0.116_699_218_750),
        (13, [18, 14, 10], 0.108_154_296_875),
        (14, [22, 18, 13], 0.096_862_792_969),
        (15, [26, 21, 16], 0.093_811_035_156),
        (16, [30, 26, 20], 0.079_528_808_594),
        (17, [35, 30, 24], 0.072_715_759_277),
        (18, [41, 35, 28], 0.070_758_819_580),
        (19, [47, 40, 33], 0.066_810_607_910),
        (20, [53, 46, 38], 0.061_546_325_684),
        (21, [59, 52, 43], 0.055_529_117_584),
        (22, [66, 58, 49], 0.049_205_303_192),
        (23, [74, 65, 55], 0.045_876_502_991),
        (24, [82, 73, 62], 0.044_686_615_467),
        (25, [90, 80, 69], 0.040_097_922_087),
        (26, [99, 88, 76], 0.037_574_514_747),
        (27, [108, 97, 84], 0.034_613_475_204),
        (28, [117, 106, 92], 0.031_406_972_557),
        (29, [127, 115, 101], 0.029_598_163_441),
        (30, [138, 125, 110], 0.027_460_814_454),
        (31, [148, 135, 119], 0.025_124_172_680),
        (32, [160, 145, 129], 0.023_770_600_557),
        (33, [171, 156, 139], 0.022_170_240_991),
        (34, [183, 168, 149], 0.020_412_406_477),
        (35, [196, 179, 160], 0.019_366_763_416),
        (36, [209, 192, 172], 0.017_415_381_371),
        (37, [222, 204, 183], 0.016_132_431_047),
        (38, [236, 217, 195], 0.015_356_434_033),
        (39, [250, 231, 208], 0.014_439_663_877),
        (40, [265, 245, 221], 0.013_426_360_283),
        (41, [280, 259, 234], 0.012_356_011_935),
        (42, [295, 274, 248], 0.011_262_687_933),
        (43, [311, 289, 262], 0.010_522_547_751),
        (44, [328, 304, 277], 0.010_058_182_746),
        (45, [344, 320, 292], 0.009_214_337_451),
        (46, [362, 337, 308], 0.008_635_091_084),
        (47, [379, 354, 323], 0.008_017_780_172),
        (48, [397, 371, 340], 0.007_380_591_775),
        (49, [416, 389, 356], 0.006_938_578_712),
        (50, [435, 407, 374], 0.006_465_974_334),
    ];

    /// All sums that signs can give, each as often as patterns of signs give it.
    fn at_most_by_enumeration(differences: &[f64]) -> f64 {
        let own = SignedRank::of(differences.iter().copied());
        let patterns = 1_usize << own.ranks.len();
        let sum = |pattern: usize| {
            let ranks = own.ranks.iter().enumerate();
            ranks
                .filter(|(place, _)| pattern >> place & 1 == 1)
                .map(|(_, rank)| rank)
                .sum::<usize>()
        };
        (0..patterns).filter(|pattern| sum(*pattern) <= own.sum).count() as f64 / patterns as f64
    }

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() <= 1e-10
    }

    #[test]
    fn quantiles_and_probabilities_are_those_of_r() {
        for (count, quantiles, probability) in R {
            for (quantile, alpha) in quantiles.into_iter().zip([0.05, 0.025, 0.01]) {
                let depth = depth(count, alpha).unwrap_or(0);
                assert_eq!(depth, quantile, "{count} {alpha}");
            }
            let up_to = (0.6 * (count * (count + 1)) as f64 / 4.0).floor() as usize;
            let sum: f64 = distribution(1..=count)[..=up_to].iter().sum();
            assert!(close(sum, probability), "{count}: {sum} {probability}");
        }
    }

    #[test]
    fn tests_estimates_and_intervals_are_those_of_r() {
        // wilcox.test(x, conf.int = TRUE, exact = TRUE): two-sided p and p of alternative = "less"; estimate
        // and interval. The first are Darwin's of maize, the second Hollander's and Wolfe's of depression.
        let data: [(&[f64], [f64; 2], [f64; 3]); 4] = [
            (
                &[
                    6.125, -8.375, 1.0, 2.0, 0.75, 2.875, 3.5, 5.125, 1.75, 3.625, 7.0, 3.0, 9.375, 7.5, -6.0,
                ],
                [0.041_259_765_6, 0.982_330_322_3],
                [3.125, 0.5, 5.1875],
            ),
            (
                &[-0.952, 0.147, -1.022, -0.43, -0.62, -0.59, -0.49, 0.08, -0.01],
                [0.039_062_5, 0.019_531_25],
                [-0.46, -0.786, -0.01],
            ),
            (
                &[0.3, -0.1, 0.7, 1.1, -0.4, 0.9, 1.3, 0.25, -0.05, 0.6, 0.85, 1.7],
                [0.012_207_031_3, 0.995_361_328_1],
                [0.6, 0.15, 1.0],
            ),
            (
                &[
                    -2.1, 3.4, -5.6, 7.8, -1.2, 0.4, -3.3, -4.7, -6.1, -8.2, 2.9, -0.7, -9.4, -1.9, -10.3,
                    -0.2, 5.1, -7.1, -2.6, -11.5,
                ],
                [0.032_768_249_5, 0.016_384_124_8],
                [-2.775, -5.4, -0.25],
            ),
        ];
        for (differences, probabilities, locations) in data {
            let test = SignedRank::of(differences.iter().copied());
            let location = Location::of(differences, 0.05).unwrap();
            let (low, high) = location.interval.unwrap();
            let found = [test.two_sided(), test.at_most(), location.estimate, low, high];
            let expected = probabilities.into_iter().chain(locations);
            let is_near = found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-9);
            assert!(is_near, "{found:?} {probabilities:?} {locations:?}");
        }
    }

    #[test]
    fn results_with_ties_and_zeros_equal_those_of_another_program() {
        let mut lines = include_str!("signed_rank/reference.csv")
            .lines()
            .skip(1)
            .peekable();
        assert!(lines.peek().is_some());
        for line in lines {
            let (differences, numbers) = line.split_once(',').unwrap();
            let parsed = |text: &str| text.parse::<f64>().unwrap();
            let differences: Vec<f64> = differences.split(' ').map(parsed).collect();
            let expected: Vec<Option<f64>> = numbers
                .split(',')
                .map(|number| Some(number).filter(|number| !number.is_empty()).map(parsed))
                .collect();
            let test = SignedRank::of(differences.iter().copied());
            let Location { estimate, interval } = Location::of(&differences, 0.05).unwrap();
            let found = [
                Some(test.at_most()),
                Some(test.two_sided()),
                Some(estimate),
                interval.map(|(low, _)| low),
                interval.map(|(_, high)| high),
            ];
            let is_near = |(a, b): (&Option<f64>, &Option<f64>)| match (a, b) {
                (Some(a), Some(b)) => close(*a, *b),
                (a, b) => a == b,
            };
            assert!(found.iter().zip(&expected).all(is_near), "{line}: {found:?}");
            assert_eq!(found.len(), expected.len(), "{line}");
        }
    }

    #[test]
    fn ties_zeros_and_infinite_differences_are_tested_exactly() {
        let infinite = f64::INFINITY;
        let cases: [&[f64]; 6] = [
            &[1.0, 1.0, 1.0, -1.0, 2.0, 2.0, -2.0, 3.0],
            &[0.0, 0.0, 1.0, 2.0, -2.0, 4.0, 5.0, -0.0],
            &[-infinite, -infinite, infinite, 1.0, 1.0, 0.0, 2.5, -3.0, 4.0],
            &[0.1; 12],
            &[
                -0.5, 0.5, -0.5, 0.5, 0.5, 0.5, 0.0, 1.0, 1.0, -1.0, 2.0, 3.0, 3.0, 5.0, 8.0, -13.0,
            ],
            &[0.0; 5],
        ];
        for differences in cases {
            let exact = at_most_by_enumeration(differences);
            let found = SignedRank::of(differences.iter().copied()).at_most();
            assert!(close(found, exact), "{differences:?}: {found} {exact}");
        }
        assert_eq!(SignedRank::of([0.0; 5]).two_sided(), 1.0);
        assert_eq!(SignedRank::of([]).two_sided(), 1.0);
    }

    #[test]
    fn zeros_take_the_lowest_ranks() {
        let test = SignedRank::of([0.0, 3.0, -0.0, -1.0, 1.0]);
        assert_eq!(test.ranks, [7, 7, 10], "twice 3.5, 3.5 and 5");
        assert_eq!(test.sum, 17);
    }

    #[test]
    fn many_differences_agree_with_the_exact_distribution() {
        for count in [101, 150, 300] {
            let exact = distribution(1..=count);
            for alpha in [0.05, 0.01] {
                let mut up_to = 0.0;
                let by_sums = exact.iter().take_while(|probability| {
                    up_to += **probability;
                    up_to <= alpha / 2.0
                });
                let (exact, normal) = (by_sums.count(), depth(count, alpha).unwrap());
                assert!(exact.abs_diff(normal) <= exact / 100, "{count}: {exact} {normal}");
            }
            // Two of five differences are negative.
            let differences = (1..=count).map(|rank| if rank % 5 < 2 { -1.0 } else { 1.0 } * rank as f64);
            let test = SignedRank::of(differences);
            let p = 2.0 * exact[test.sum / 2..].iter().sum::<f64>();
            let normal = test.two_sided();
            // A hundredth of the level at which findings are made.
            assert!((p - normal).abs() < 5e-4, "{count}: {p} {normal}");
        }
    }

    #[test]
    fn the_interval_has_the_values_that_the_test_does_not_reject() {
        let differences: Vec<f64> = (1_u32..=23).map(|i| f64::from(i * i % 29) * 0.37 - 4.0).collect();
        let (low, high) = Location::of(&differences, 0.05).unwrap().interval.unwrap();
        let rejects =
            |around: f64| SignedRank::of(differences.iter().map(|d| d - around)).two_sided() <= 0.05;
        assert!(rejects(low - 1e-6) && rejects(high + 1e-6));
        assert!(!rejects(low + 1e-6) && !rejects(high - 1e-6));
    }

    #[test]
    fn some_failures_leave_the_estimate_finite() {
        let mut differences = vec![0.01; 40];
        differences[..10].fill(f64::NEG_INFINITY);
        let location = Location::of(&differences, 0.05).unwrap();
        assert_eq!(location.estimate, 0.01);
        differences[..20].fill(f64::NEG_INFINITY);
        assert_eq!(
            Location::of(&differences, 0.05).unwrap().estimate,
            f64::NEG_INFINITY
        );
    }

    #[test]
    fn too_few_differences_have_no_interval() {
        assert_eq!(Location::of(&[], 0.05), None);
        for count in 1..6 {
            let location = Location::of(&vec![1.0; count], 0.05).unwrap();
            assert_eq!((location.estimate, location.interval), (1.0, None), "{count}");
        }
        let interval = Location::of(&[1.0; 6], 0.05).unwrap().interval;
        assert_eq!(interval, Some((1.0, 1.0)));
    }
}
