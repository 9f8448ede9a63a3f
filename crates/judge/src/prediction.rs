//! Where the next of some values lies.

use statrs::distribution::{ContinuousCDF, StudentsT};

use crate::{hypothesis_tests::POWER_QUANTILE, signed_rank::mean};

/// Where one more value lies, if all are independent and from one normal distribution, of which nothing else
/// is known: (value − mean) / (s √(1 + 1/k)) of k values with the standard deviation s has Student's
/// distribution with k − 1 degrees of freedom. Source: Meeker, Hahn and Escobar, *Statistical Intervals*, 2nd
/// ed. (2017), section 4.8.
#[derive(Debug)]
pub(crate) struct Prediction {
    pub(crate) mean: f64,
    /// s √(1 + 1/k).
    spread: f64,
    student: StudentsT,
}

impl Prediction {
    /// `None` for fewer than two values: they do not vary.
    pub(crate) fn of(values: &[f64]) -> Option<Self> {
        let count = values.len() as f64;
        let student = StudentsT::new(0.0, 1.0, count - 1.0).ok()?;
        let mean = mean(values.iter().copied());
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        Some(Self {
            mean,
            spread: (squares / (count - 1.0) * (1.0 + 1.0 / count)).sqrt(),
            student,
        })
    }

    /// The probability of a value that is at least as far from the mean.
    pub(crate) fn two_sided(&self, value: f64) -> f64 {
        let distance = (value - self.mean).abs();
        match (distance, self.spread) {
            (0.0, _) => 1.0,
            (_, 0.0) => 0.0,
            (f64::INFINITY, _) => 0.0,
            (distance, spread) => (2.0 * self.student.sf(distance / spread)).min(1.0),
        }
    }

    /// The distance from the mean that a value exceeds with probability `alpha`.
    pub(crate) fn half_width(&self, alpha: f64) -> f64 {
        self.spread * self.student.inverse_cdf(1.0 - alpha / 2.0)
    }

    /// The smallest change, as a share, that is found in four of five runs at this level.
    pub(crate) fn detectable(&self, alpha: f64) -> f64 {
        (self.half_width(alpha) + POWER_QUANTILE * self.spread).exp_m1()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_and_probabilities_are_those_of_r() {
        // predict(lm(log(x) ~ 1), interval = "prediction"), and 2 * pt(-abs(t), k - 1).
        struct Case {
            values: &'static [f64],
            interval: [f64; 3],
            probabilities: [(f64, f64); 4],
        }
        let cases = [
            Case {
                values: &[4.71e9, 4.66e9, 4.80e9, 4.52e9, 4.77e9],
                interval: [
                    4_690_951_848.157_118,
                    4_364_787_366.988_413,
                    5_041_489_399.496_582,
                ],
                probabilities: [
                    (4.2e9, 0.013_062_635_429),
                    (4.4e9, 0.069_177_900_564),
                    (4.69e9, 0.994_136_391_959),
                    (5.2e9, 0.016_551_005_245),
                ],
            },
            Case {
                values: &[
                    0.0121, 0.0118, 0.0130, 0.0125, 0.0119, 0.0127, 0.0122, 0.0124, 0.0120, 0.0126,
                ],
                interval: [0.012_314_604_635, 0.011_436_936_642, 0.013_259_624_678],
                probabilities: [
                    (0.0110, 0.007_229_634_701),
                    (0.0123, 0.971_830_494_245),
                    (0.0134, 0.029_485_064_081),
                    (0.0150, 0.000_193_915_610),
                ],
            },
        ];
        for case in cases {
            let logarithms: Vec<f64> = case.values.iter().map(|value| value.ln()).collect();
            let prediction = Prediction::of(&logarithms).unwrap();
            let half = prediction.half_width(0.05);
            let found = [0.0, -half, half].map(|distance| (prediction.mean + distance).exp());
            for (found, expected) in found.into_iter().zip(case.interval) {
                assert!((found / expected - 1.0).abs() < 1e-9, "{found} {expected}");
            }
            for (value, expected) in case.probabilities {
                let found = prediction.two_sided(value.ln());
                assert!((found - expected).abs() < 1e-10, "{value}: {found} {expected}");
            }
        }
    }

    #[test]
    fn a_value_is_outside_of_the_interval_if_its_probability_is_less() {
        let prediction = Prediction::of(&[0.1, 0.2, 0.4, 0.15, 0.3]).unwrap();
        for alpha in [0.5, 0.05, 0.003] {
            let end = prediction.mean + prediction.half_width(alpha);
            assert!((prediction.two_sided(end) - alpha).abs() < 1e-9, "{alpha}");
        }
    }

    #[test]
    fn values_without_spread_and_infinite_ones_have_a_probability() {
        assert!(Prediction::of(&[]).is_none());
        assert!(Prediction::of(&[1.0]).is_none());
        let constant = Prediction::of(&[1.0; 5]).unwrap();
        assert_eq!([1.0, 1.5].map(|value| constant.two_sided(value)), [1.0, 0.0]);
        let varied = Prediction::of(&[1.0, 1.1, 0.9, 1.0, 1.2]).unwrap();
        assert_eq!(varied.two_sided(f64::NEG_INFINITY), 0.0);
    }
}
