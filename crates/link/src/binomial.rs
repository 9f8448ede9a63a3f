//! The binomial distribution: how many of a number of independent draws succeed.

/// The probabilities of 0, 1, 2 … successes in `draws` draws that each succeed with probability `ratio`,
/// between 0 and 1.
pub(crate) fn probabilities(draws: u32, ratio: f64) -> impl Iterator<Item = f64> {
    // In logarithms: the probability of no success in 50000 draws is below the smallest 64-bit float.
    let mut logarithm = f64::from(draws) * (1.0 - ratio).ln();
    let odds = (ratio / (1.0 - ratio)).ln();
    (0..=draws).map(move |count| {
        let probability = logarithm.exp();
        logarithm += (f64::from(draws - count) / (f64::from(count) + 1.0)).ln() + odds;
        probability
    })
}

/// The range of counts that leaves at most half of `1 - confidence` on either side, of the probabilities of
/// 0, 1, 2 …
pub(crate) fn interval(probabilities: impl IntoIterator<Item = f64>, confidence: f64) -> (u32, u32) {
    let beyond = (1.0 - confidence) / 2.0;
    let (mut up_to, mut least, mut last) = (0.0, None, 0);
    for (count, probability) in (0..).zip(probabilities) {
        up_to += probability;
        last = count;
        if least.is_none() && up_to > beyond {
            least = Some(count);
        }
        if up_to >= 1.0 - beyond {
            break;
        }
    }
    (least.unwrap_or(last), last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probabilities_are_binomial() {
        let probabilities: Vec<_> = probabilities(4, 0.5).collect();
        for (probability, expected) in probabilities.iter().zip([1.0, 4.0, 6.0, 4.0, 1.0]) {
            assert!((probability - expected / 16.0).abs() < 1e-12, "{probabilities:?}");
        }
    }

    #[test]
    fn intervals_are_those_of_the_published_quantiles() {
        // scipy.stats.binom.ppf([0.005, 0.995], n, p)
        for (draws, ratio, expected) in [
            (4000, 0.01, (25, 57)),
            (50_000, 0.05, (2375, 2626)),
            (1000, 0.001, (0, 4)),
        ] {
            assert_eq!(interval(probabilities(draws, ratio), 0.99), expected);
        }
    }
}
