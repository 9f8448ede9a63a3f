//! Ratios: the share of packets that something happens to, or a correlation.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// A number from 0 to 1: a probability, or a correlation. In JSON a plain number, 0.01 for one in a hundred.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema, PartialEq, PartialOrd, Serialize)]
#[serde(try_from = "f64", into = "f64")]
pub struct Ratio(f64);

/// A number that is not from 0 to 1.
#[derive(Clone, Copy, Debug, Error, PartialEq)]
#[error("unable to use {0} as a ratio: it must be from 0 to 1, where 0.01 is one per cent")]
pub struct InvalidRatio(f64);

impl Ratio {
    /// The ratio 0.
    pub const ZERO: Self = Self(0.0);
    /// The ratio 1.
    pub const ONE: Self = Self(1.0);

    /// Accepts a number from 0 to 1.
    pub fn new(value: f64) -> Result<Self, InvalidRatio> {
        // NaN is not in any range.
        (0.0..=1.0)
            .contains(&value)
            .then_some(Self(value))
            .ok_or(InvalidRatio(value))
    }

    /// Accepts a number from 0 to 100.
    pub fn from_percent(percent: f64) -> Result<Self, InvalidRatio> {
        Self::new(percent / 100.0)
    }

    /// The number, from 0 to 1.
    pub fn get(self) -> f64 {
        self.0
    }

    /// Whether the ratio is 0.
    pub fn is_zero(&self) -> bool {
        self.0 == 0.0
    }

    /// The ratio in the scale of `struct tc_netem_*`: 0 is 0, and 1 is [`u32::MAX`].
    pub fn to_scaled(self) -> u32 {
        (self.0 * f64::from(u32::MAX)).round() as u32
    }
}

impl TryFrom<f64> for Ratio {
    type Error = InvalidRatio;

    fn try_from(value: f64) -> Result<Self, InvalidRatio> {
        Self::new(value)
    }
}

impl From<Ratio> for f64 {
    fn from(ratio: Ratio) -> Self {
        ratio.0
    }
}

impl fmt::Display for Ratio {
    /// Formats the ratio in per cent.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} %", self.0 * 100.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_shares_are_ratios() {
        for value in [-0.001, 1.001, f64::NAN, f64::INFINITY] {
            assert!(Ratio::new(value).is_err(), "{value}");
        }
        assert_eq!(Ratio::from_percent(100.0), Ok(Ratio::ONE));
    }

    #[test]
    fn ratios_are_scaled_as_the_kernel_scales_them() {
        // `tc qdisc add … netem loss 1%` sends 42949673.
        assert_eq!(Ratio::from_percent(1.0).unwrap().to_scaled(), 42_949_673);
        assert_eq!(Ratio::ONE.to_scaled(), u32::MAX);
        assert_eq!(Ratio::ZERO.to_scaled(), 0);
    }
}
