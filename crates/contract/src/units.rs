//! Numbers as people in this field write them: the unit that suits, and three significant digits, or as many
//! as an interval resolves.

use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;
use strum::Display;

use crate::newer::{self, NewerName};

/// Units of metrics.
#[derive(Clone, Copy, Debug, Deserialize, Display, Eq, JsonSchema, PartialEq)]
#[serde(rename_all = "camelCase")]
pub enum Unit {
    /// Decimal bits per second.
    #[strum(serialize = "bit/s")]
    BitsPerSecond,
    /// Seconds.
    #[strum(serialize = "s")]
    Seconds,
    /// Things per second.
    #[strum(serialize = "1/s")]
    PerSecond,
    /// Bytes.
    #[strum(serialize = "B")]
    Bytes,
    /// A part of a whole; 1 is all of it.
    #[strum(serialize = "1")]
    Share,
    /// A number.
    #[strum(serialize = "")]
    Count,
    /// A unit of a newer version, which this version carries.
    #[schemars(skip)]
    #[serde(skip_deserializing)]
    #[strum(transparent)]
    Newer(NewerName),
}

/// The name in documents. People see the symbol.
impl AsRef<str> for Unit {
    fn as_ref(&self) -> &str {
        match self {
            Self::BitsPerSecond => "bitsPerSecond",
            Self::Seconds => "seconds",
            Self::PerSecond => "perSecond",
            Self::Bytes => "bytes",
            Self::Share => "share",
            Self::Count => "count",
            Self::Newer(name) => name.as_ref(),
        }
    }
}

newer::carry!(Unit);

/// A unit with a prefix, chosen once for a value and used for its interval as well.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scale {
    /// How much of the unit itself one of it is.
    pub factor: f64,
    /// What is written after the number.
    pub name: &'static str,
    /// Decimals of each number. `None` for three significant digits.
    decimals: Option<usize>,
}

const fn scale(factor: f64, name: &'static str) -> Scale {
    Scale {
        factor,
        name,
        decimals: None,
    }
}

/// Shares are written as percentages.
pub const PERCENT: Scale = scale(0.01, "%");
/// Seconds without a prefix, for columns whose values must be comparable at a glance.
pub const SECONDS: Scale = scale(1.0, "s");

const BITS_PER_SECOND: &[Scale] = &[
    scale(1.0, "bit/s"),
    scale(1e3, "kbit/s"),
    scale(1e6, "Mbit/s"),
    scale(1e9, "Gbit/s"),
    scale(1e12, "Tbit/s"),
];
const TIMES: &[Scale] = &[scale(1e-9, "ns"), scale(1e-6, "µs"), scale(1e-3, "ms"), SECONDS];
const RATES: &[Scale] = &[scale(1.0, "/s"), scale(1e3, "k/s"), scale(1e6, "M/s")];
const BYTES: &[Scale] = &[
    scale(1.0, "B"),
    scale(1024.0, "KiB"),
    scale(1_048_576.0, "MiB"),
    scale(1_073_741_824.0, "GiB"),
    scale(1_099_511_627_776.0, "TiB"),
];
/// Only for values that a document gives in decimal units.
const DECIMAL_BYTES: &[Scale] = &[
    scale(1e12, "TB"),
    scale(1e9, "GB"),
    scale(1e6, "MB"),
    scale(1e3, "kB"),
];

impl Scale {
    /// The largest unit in which a value is at least 1 as it will be written; for small ones the smallest
    /// unit.
    pub fn of(unit: Unit, value: f64) -> Self {
        let newer;
        let scales = match unit {
            Unit::BitsPerSecond => BITS_PER_SECOND,
            Unit::Seconds => TIMES,
            Unit::PerSecond => RATES,
            Unit::Bytes => BYTES,
            Unit::Share => &[PERCENT],
            Unit::Count => &[scale(1.0, "")],
            Unit::Newer(name) => {
                newer = [scale(1.0, name.into())];
                &newer
            }
        };
        let reached = |scale: &&Self| rounded(value.abs() / scale.factor) >= 1.0;
        // Zero has no natural unit; the plain one reads best.
        let plain = || if unit == Unit::Seconds { SECONDS } else { scales[0] };
        match scales.iter().rev().find(reached) {
            Some(scale) => *scale,
            None if value == 0.0 => plain(),
            None => scales[0],
        }
    }

    /// This unit with the decimals that suit a value and its interval: as many as give the interval's width
    /// two significant digits, and the value at least two. If only rounding makes the ends differ, three
    /// significant digits of each number.
    #[must_use]
    pub fn resolving(self, value: f64, (low, high): (f64, f64)) -> Self {
        let width = high - low;
        let resolved = width > value.abs() * ROUNDING && width.is_finite();
        let decimals = || [width, value].map(|amount| decimals(amount / self.factor));
        Self {
            decimals: resolved.then(|| decimals().into_iter().max()).flatten(),
            ..self
        }
    }

    /// The number alone.
    pub fn number(self, value: f64) -> String {
        let value = value / self.factor;
        match self.decimals {
            Some(decimals) if value.is_finite() => format!("{value:.decimals$}"),
            _ => digits(value),
        }
    }

    /// The number and the unit.
    pub fn text(self, value: f64) -> String {
        match self.name {
            "" => self.number(value),
            name => format!("{} {name}", self.number(value)),
        }
    }

    /// `[low, high]`, without the unit.
    pub fn interval(self, low: f64, high: f64) -> String {
        format!("[{}, {}]", self.number(low), self.number(high))
    }
}

/// Wider than what arithmetic makes of equal values, and narrower than what any clock resolves.
const ROUNDING: f64 = 1e-6;

/// The decimals that two significant digits take.
fn decimals(value: f64) -> usize {
    // As in `rounded`: 0.0999… is 0.10 with two digits.
    let text = format!("{value:.1e}");
    let magnitude = text
        .split_once('e')
        .and_then(|(_, magnitude)| magnitude.parse::<i32>().ok());
    magnitude.map_or(0, |magnitude| (1 - magnitude).clamp(0, 9)) as usize
}

/// A value in the unit that suits it.
pub fn text(unit: Unit, value: f64) -> String {
    match unit {
        Unit::Count if value.fract() == 0.0 => format!("{value:.0}"),
        _ if !value.is_finite() => "?".to_owned(),
        _ => Scale::of(unit, value).text(value),
    }
}

/// The change to this multiple, in percent: `+1.2` for 1.012.
pub fn change(ratio: f64) -> String {
    // A hyphen would break lines, and is too short beside digits.
    format!("{:+.1}", (ratio - 1.0) * 100.0).replace('-', "−")
}

/// A share as documents write it, in percent: two digits behind the point are exact.
pub fn percent(share: f64) -> String {
    format!("{} %", (share * 1e4).round() / 100.0)
}

/// A number of bytes that a document requests: exact, in the unit in which it is shortest.
pub fn size(bytes: u64) -> String {
    let divides = |scale: &&Scale| bytes >= scale.factor as u64 && bytes.is_multiple_of(scale.factor as u64);
    let exact = BYTES.iter().rev().chain(DECIMAL_BYTES).filter(divides);
    match exact.min_by_key(|scale| bytes / scale.factor as u64) {
        Some(scale) => format!("{} {}", bytes / scale.factor as u64, scale.name),
        None => format!("{bytes} B"),
    }
}

/// A time that may take hours, exact to the millisecond, e.g. `3 h 18 min`.
pub fn time(time: Duration) -> String {
    let seconds = time.as_secs();
    let [hours, minutes] = [(seconds / 3600, "h"), (seconds / 60 % 60, "min")]
        .map(|(number, unit)| (number > 0).then(|| format!("{number} {unit}")));
    let rest = (time.as_millis() % 60_000) as f64 / 1000.0;
    let is_all = hours.is_none() && minutes.is_none();
    let rest = (rest > 0.0 || is_all).then(|| format!("{rest} s"));
    let parts: Vec<String> = [hours, minutes, rest].into_iter().flatten().collect();
    parts.join(" ")
}

/// Three significant digits.
fn digits(value: f64) -> String {
    if !value.is_finite() {
        return "?".to_owned();
    }
    let value = rounded(value);
    if value == 0.0 {
        return "0".to_owned();
    }
    match 2 - value.abs().log10().floor() as i32 {
        decimals @ 0..=9 => format!("{value:.width$}", width = decimals as usize),
        -15..0 => format!("{value:.0}"),
        _ => format!("{value:.2e}"),
    }
}

/// The nearest number with three significant digits.
fn rounded(value: f64) -> f64 {
    // Decimal text is the one place where rounding to digits is exact; 9.995 and 999.6 must not become 1000
    // of a unit.
    format!("{value:.2e}")
        .parse()
        .ok()
        .filter(|rounded: &f64| rounded.is_finite())
        .unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_significant_digits_and_the_unit_that_suits() {
        for (unit, value, expected) in [
            (Unit::BitsPerSecond, 9.4149e9, "9.41 Gbit/s"),
            (Unit::BitsPerSecond, 41e9, "41.0 Gbit/s"),
            (Unit::BitsPerSecond, 812.34e6, "812 Mbit/s"),
            (Unit::BitsPerSecond, 999.6e6, "1.00 Gbit/s"),
            (Unit::BitsPerSecond, 999.4e6, "999 Mbit/s"),
            (Unit::BitsPerSecond, 0.5, "0.500 bit/s"),
            (Unit::BitsPerSecond, 1.5e16, "15000 Tbit/s"),
            (Unit::Seconds, 181.4e-6, "181 µs"),
            (Unit::Seconds, 1.2345e-3, "1.23 ms"),
            (Unit::Seconds, 12.0, "12.0 s"),
            (Unit::Seconds, 4e-9, "4.00 ns"),
            (Unit::Seconds, 0.0, "0 s"),
            (Unit::Seconds, 123_456.0, "123000 s"),
            (Unit::Bytes, 41.2 * 1_048_576.0, "41.2 MiB"),
            (Unit::Bytes, 1023.9 * 1024.0, "1.00 MiB"),
            (Unit::Bytes, 700.0, "700 B"),
            (Unit::PerSecond, 12_345.0, "12.3 k/s"),
            (Unit::PerSecond, 87.6, "87.6 /s"),
            (Unit::Share, 0.9876, "98.8 %"),
            (Unit::Share, 1.0, "100 %"),
            (Unit::Count, 3.0, "3"),
            (Unit::Count, 2.5, "2.50"),
            (Unit::Count, 12_345.0, "12345"),
        ] {
            assert_eq!(text(unit, value), expected, "{value}");
        }
    }

    #[test]
    fn an_interval_keeps_the_unit_of_its_value() {
        let scale = Scale::of(Unit::BitsPerSecond, 1.01e9);
        assert_eq!(scale.interval(0.987e9, 1.1234e9), "[0.987, 1.12]");
        assert_eq!(PERCENT.text(0.4137), "41.4 %");
        assert_eq!(PERCENT.text(1.0), "100 %");
    }

    #[test]
    fn an_interval_sets_the_digits_of_its_value() {
        for (unit, value, ends, expected) in [
            (
                Unit::Seconds,
                1.2031,
                (1.1978, 1.2071),
                "1.2031 s [1.1978, 1.2071]",
            ),
            (Unit::Seconds, 1.2031, (1.1908, 1.2171), "1.203 s [1.191, 1.217]"),
            (Unit::Share, 0.3712, (0.3188, 0.4393), "37 % [32, 44]"),
            (
                Unit::BitsPerSecond,
                20.04e9,
                (10.1e9, 25.6e9),
                "20 Gbit/s [10, 26]",
            ),
            (
                Unit::BitsPerSecond,
                5.104e9,
                (4.738e9, 5.421e9),
                "5.10 Gbit/s [4.74, 5.42]",
            ),
            (
                Unit::BitsPerSecond,
                812.3e6,
                (512e6, 1_234.5e6),
                "812 Mbit/s [512, 1234]",
            ),
            // The value has two digits, however wide its interval.
            (Unit::Seconds, 1.234e-3, (0.04e-3, 45.1e-3), "1.2 ms [0.0, 45.1]"),
            (Unit::Count, 0.7391, (0.7012, 0.7799), "0.739 [0.701, 0.780]"),
            (Unit::Count, 2.0, (1.95, 2.05), "2.00 [1.95, 2.05]"),
            (Unit::Share, 0.0, (-0.1, 0.1), "0.0 % [-10.0, 10.0]"),
            // Nothing to resolve.
            (Unit::Seconds, 1.2, (1.2, 1.2), "1.20 s [1.20, 1.20]"),
            (Unit::Seconds, 0.3, (0.1 + 0.2, 0.3), "300 ms [300, 300]"),
            (Unit::Seconds, 0.3, (0.3, 0.1 + 0.2), "300 ms [300, 300]"),
            (Unit::Seconds, 1.2, (1.2, f64::INFINITY), "1.20 s [1.20, ?]"),
        ] {
            let scale = Scale::of(unit, value).resolving(value, ends);
            let text = format!("{} {}", scale.text(value), scale.interval(ends.0, ends.1));
            assert_eq!(text, expected);
        }
    }

    #[test]
    fn sizes_are_exact() {
        for (bytes, expected) in [
            (0, "0 B"),
            (1, "1 B"),
            (1 << 10, "1 KiB"),
            (1500, "1500 B"),
            (1 << 30, "1 GiB"),
            (1025 << 10, "1025 KiB"),
            (1_000_000_000, "1 GB"),
            (64_000_000, "64 MB"),
        ] {
            assert_eq!(size(bytes), expected);
        }
    }

    #[test]
    fn a_time_has_the_units_that_it_needs() {
        for (milliseconds, text) in [
            (0, "0 s"),
            (2_500, "2.5 s"),
            (59_999, "59.999 s"),
            (60_000, "1 min"),
            (3_600_000, "1 h"),
            (3_630_001, "1 h 30.001 s"),
            (11_880_000, "3 h 18 min"),
            (360_000_000, "100 h"),
        ] {
            assert_eq!(time(Duration::from_millis(milliseconds)), text);
        }
    }

    #[test]
    fn nan_and_infinity_are_written_as_a_question_mark() {
        assert_eq!(text(Unit::Seconds, f64::NAN), "?");
        assert_eq!(text(Unit::BitsPerSecond, f64::INFINITY), "?");
    }
}
