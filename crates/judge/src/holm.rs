//! Many tests of one run.

/// Items in their order, each with its probability corrected for their number: if all corrected values up to
/// α are taken as differences, the chance of any false one is at most α, however the tests depend on each
/// other. Source: Holm, *A Simple Sequentially Rejective Multiple Test Procedure*, Scand. J. Statist. 6
/// (1979).
pub(crate) fn adjust<T>(items: Vec<T>, probability: impl Fn(&T) -> f64) -> Vec<(T, f64)> {
    let probabilities: Vec<f64> = items.iter().map(probability).collect();
    let mut order: Vec<usize> = (0..probabilities.len()).collect();
    order.sort_by(|a, b| probabilities[*a].total_cmp(&probabilities[*b]));
    let mut adjusted = vec![1.0; probabilities.len()];
    let mut largest: f64 = 0.0;
    for (place, index) in order.into_iter().enumerate() {
        let tests_left = (probabilities.len() - place) as f64;
        largest = largest.max(probabilities[index] * tests_left).min(1.0);
        adjusted[index] = largest;
    }
    items.into_iter().zip(adjusted).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adjusted_probabilities_are_those_of_r() {
        // p.adjust(c(0.01, 0.02, 0.03, 0.04, 0.05), "holm") and p.adjust(c(0.4, 0.001, 0.3, 0.02), "holm")
        for (given, expected) in [
            (
                vec![0.01, 0.02, 0.03, 0.04, 0.05],
                vec![0.05, 0.08, 0.09, 0.09, 0.09],
            ),
            (vec![0.4, 0.001, 0.3, 0.02], vec![0.6, 0.004, 0.6, 0.06]),
            (vec![], vec![]),
        ] {
            let (items, adjusted): (Vec<f64>, Vec<f64>) = adjust(given.clone(), |p| *p).into_iter().unzip();
            let same = adjusted.iter().zip(&expected).all(|(a, b)| (a - b).abs() < 1e-12);
            assert!(
                same && items == given && adjusted.len() == expected.len(),
                "{adjusted:?} {expected:?}"
            );
        }
    }
}
