//! The median, and its interval.

use statrs::distribution::{Binomial, Discrete};

/// The middle value, or the mean of the two middle values; of two infinite values that contradict each other,
/// zero. NaN without values.
pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        count => match f64::midpoint(sorted[(count - 1) / 2], sorted[count / 2]) {
            median if median.is_nan() => 0.0,
            median => median,
        },
    }
}

/// The interval of a distribution's median, of values from it in ascending order, whatever the distribution.
/// `None` if even the smallest and the largest value do not enclose it with this confidence: below six
/// values, at 95 %.
///
/// The number of values below the median is binomial with p = 1/2. So the order statistics d and n + 1 − d
/// enclose it with probability γ(d) = 1 − 2 P(B ≤ d − 1), which jumps from d to d + 1. The ends lie between
/// those of the two depths whose levels are next to the confidence, with the weights of Hettmansperger and
/// Sheather, *Confidence intervals based on interpolated order statistics*, Statistics & Probability Letters
/// 4 (1986), which hold closely for any smooth distribution. Values may be infinite, but not NaN.
pub(crate) fn median_interval(sorted: &[f64], confidence: f64) -> Option<(f64, f64)> {
    let (depth, weight) = interpolation(sorted.len(), confidence)?;
    let end = |outer: f64, inner: f64| {
        if weight == 0.0 {
            return outer;
        }
        // Rounding may leave the range of the two values if they are equal and near the largest number.
        ((1.0 - weight) * outer + weight * inner).clamp(outer.min(inner), outer.max(inner))
    };
    let upper = sorted.len() - depth;
    Some((
        end(sorted[depth - 1], sorted[depth]),
        end(sorted[upper], sorted[upper - 1]),
    ))
}

/// The largest depth whose level is at least the confidence, and the weight of the next one.
fn interpolation(count: usize, confidence: f64) -> Option<(usize, f64)> {
    let below = Binomial::new(0.5, count as u64).expect("a half is a probability");
    let mut level = 1.0;
    for depth in 0..=count {
        let next = level - 2.0 * below.pmf(depth as u64);
        if next < confidence {
            let share = (level - confidence) / (level - next);
            let (count, outer) = (count as f64, depth as f64);
            let weight = (count - outer) * share / (outer + (count - 2.0 * outer) * share);
            return (depth > 0).then_some((depth, weight));
        }
        level = next;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depths_and_weights_are_those_of_the_published_formula() {
        // γ(1) and γ(2) of six values are 62/64 and 50/64; of ten, γ(2) and γ(3) are 1002/1024 and 912/1024.
        for (count, depth, level, next) in [
            (6, 1, 62.0 / 64.0, 50.0 / 64.0),
            (10, 2, 1002.0 / 1024.0, 912.0 / 1024.0),
        ] {
            let share: f64 = (level - 0.95) / (level - next);
            let (n, d) = (f64::from(count), f64::from(depth));
            let weight = (n - d) * share / (d + (n - 2.0 * d) * share);
            let (found, found_weight) = interpolation(count as usize, 0.95).unwrap();
            assert_eq!(found, depth as usize);
            assert!(
                (found_weight - weight).abs() < 1e-12,
                "{count}: {found_weight} {weight}"
            );
        }
    }

    #[test]
    fn ends_lie_between_those_of_the_two_depths() {
        let values: Vec<f64> = (1..=10).map(f64::from).collect();
        let (low, high) = median_interval(&values, 0.95).unwrap();
        assert!(2.0 < low && low < 3.0, "{low}");
        assert!((low + high - 11.0).abs() < 1e-12, "{low} {high}");
    }

    #[test]
    fn fewer_than_six_values_have_no_interval() {
        for count in 0..6 {
            assert_eq!(median_interval(&vec![1.0; count], 0.95), None, "{count}");
        }
        assert_eq!(median_interval(&[1.0; 6], 0.95), Some((1.0, 1.0)));
    }

    #[test]
    fn large_and_infinite_values_have_an_interval() {
        assert_eq!(median_interval(&[f64::MAX; 7], 0.95), Some((f64::MAX, f64::MAX)));
        let mut values = vec![1.0; 19];
        values.push(f64::INFINITY);
        assert_eq!(median_interval(&values, 0.95), Some((1.0, 1.0)));
        let infinite = [1.0, 1.0, 1.0, 1.0, 1.0, f64::INFINITY];
        assert_eq!(median_interval(&infinite, 0.95), Some((1.0, f64::INFINITY)));
    }
}
