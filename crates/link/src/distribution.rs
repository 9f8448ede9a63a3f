//! Tables of delays, as netem takes them.
//!
//! netem does not compute distributions. It draws an entry of a table of 4096 quantiles, in units of the
//! jitter. iproute2 makes tc's tables with `netem/normal.c`, `pareto.c` and `paretonormal.c`. This module
//! computes the same tables from their formulas, so that both backends draw from one table and need no file
//! of tc.

use crate::impairment::JitterDistribution;

/// The number of entries of a table.
pub const SIZE: usize = 4096;

/// The entry that stands for one jitter (`NETEM_DIST_SCALE`).
pub(crate) const SCALE: i32 = 8192;

/// The quantiles of a distribution around 0, ascending, in 1/8192 of the jitter.
pub fn table(distribution: JitterDistribution) -> Vec<i16> {
    let values: Vec<f64> = match distribution {
        JitterDistribution::Uniform => (0..SIZE)
            .map(|i| (2.0 * i as f64 + 1.0) / SIZE as f64 - 1.0)
            .collect(),
        JitterDistribution::Normal => normal_quantiles(),
        JitterDistribution::Pareto => pareto_quantiles(),
        JitterDistribution::ParetoNormal => normal_quantiles()
            .into_iter()
            .zip(pareto_quantiles())
            // The Pareto part is cut off as in its own table.
            .map(|(normal, pareto)| (normal + 3.0 * pareto.min(LARGEST)) / 4.0)
            .collect(),
    };
    // `as` saturates at the largest entry, as iproute2 does.
    values
        .into_iter()
        .map(|value| (value * f64::from(SCALE)).round() as i16)
        .collect()
}

/// The largest entry, in jitters.
const LARGEST: f64 = i16::MAX as f64 / SCALE as f64;

/// iproute2 records, at each of 16384 steps of the distribution function, the last value that rounds to the
/// step, and keeps every fourth.
fn normal_quantiles() -> Vec<f64> {
    const STEP: f64 = 1e-4;
    let density = |x: f64| (-x * x / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt();
    let (mut x, mut below) = (-8.0, 0.0);
    (0..SIZE)
        .map(|i| {
            let wanted = (4.0 * i as f64 + 0.5) / 16_384.0;
            loop {
                // The error of the trapezoids over the whole range is about 1e-10.
                let next = below + STEP * (density(x) + density(x + STEP)) / 2.0;
                if next >= wanted {
                    return x + STEP * (wanted - below) / (next - below);
                }
                (x, below) = (x + STEP, next);
            }
        })
        .collect()
}

/// Shape 3, shifted to mean 0 and stretched by 4/3; iproute2 begins with the smallest value.
fn pareto_quantiles() -> Vec<f64> {
    (0..SIZE)
        .map(|i| {
            let above = 1.0 - i as f64 / SIZE as f64;
            (above.powf(-1.0 / 3.0) - 1.5) * 4.0 / 3.0
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use strum::IntoEnumIterator;

    use super::*;

    fn mean_and_deviation(distribution: JitterDistribution) -> (f64, f64) {
        let values: Vec<_> = table(distribution)
            .into_iter()
            .map(|entry| f64::from(entry) / f64::from(SCALE))
            .collect();
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / values.len() as f64;
        (mean, variance.sqrt())
    }

    #[test]
    fn tables_have_the_moments_of_their_distributions() {
        let (mean, deviation) = mean_and_deviation(JitterDistribution::Uniform);
        assert!(mean.abs() < 1e-3 && (deviation - 1.0 / 3f64.sqrt()).abs() < 1e-3);
        let (mean, deviation) = mean_and_deviation(JitterDistribution::Normal);
        assert!(
            mean.abs() < 1e-2 && (deviation - 1.0).abs() < 1e-2,
            "{mean} {deviation}"
        );
        // Without the cut at four jitters they would be 0 and √(3/4) · 4/3 = 1.15: the tail is most of the
        // deviation.
        let (mean, deviation) = mean_and_deviation(JitterDistribution::Pareto);
        assert!(
            (-0.04..-0.03).contains(&mean) && (0.81..0.83).contains(&deviation),
            "{mean} {deviation}"
        );
    }

    #[test]
    fn tables_ascend() {
        for distribution in JitterDistribution::iter() {
            let table = table(distribution);
            assert_eq!(table.len(), SIZE);
            assert!(table.is_sorted(), "{distribution}");
        }
    }

    /// Where tc is installed, its files are the reference.
    #[test]
    fn tables_are_those_of_tc() {
        for distribution in [
            JitterDistribution::Normal,
            JitterDistribution::Pareto,
            JitterDistribution::ParetoNormal,
        ] {
            let files = ["/usr/lib/tc", "/usr/share/tc", "/usr/lib/x86_64-linux-gnu/tc"];
            let Some(text) = files
                .iter()
                .find_map(|folder| fs::read_to_string(format!("{folder}/{distribution}.dist")).ok())
            else {
                perfrun_test_kit::skip(
                    perfrun_test_kit::Need::Programs,
                    &distribution.to_string(),
                    "iproute2's tables are not installed",
                );
                continue;
            };
            let theirs: Vec<i32> = text
                .lines()
                .filter(|line| !line.starts_with('#'))
                .flat_map(str::split_whitespace)
                .map(|number| number.parse().unwrap())
                .collect();
            assert_eq!(theirs.len(), SIZE);
            let furthest = table(distribution)
                .into_iter()
                .zip(theirs)
                .map(|(ours, theirs)| (i32::from(ours) - theirs).abs())
                .max();
            // iproute2 walks along the values in steps of 0.4 units.
            assert!(furthest <= Some(1), "{distribution}: {furthest:?}");
        }
    }
}
