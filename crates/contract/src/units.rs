//! Numbers as people in this field write them: three significant digits and the unit that suits.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::Display;

/// Units of metrics.
#[derive(Clone, Copy, Debug, Deserialize, Display, Eq, JsonSchema, PartialEq, Serialize)]
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
}

/// A unit with a prefix, chosen once for a value and used for its interval as well.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scale {
    /// How much of the unit itself one of it is.
    pub factor: f64,
    /// What is written after the number.
    pub name: &'static str,
}

const NOTHING: Scale = Scale {
    factor: 1.0,
    name: "",
};
/// Shares are written as percentages.
pub const PERCENT: Scale = Scale {
    factor: 0.01,
    name: "%",
};
/// Seconds without a prefix, for columns whose values must be comparable at a glance.
pub const SECONDS: Scale = Scale {
    factor: 1.0,
    name: "s",
};

const BITS_PER_SECOND: &[Scale] = &[
    Scale {
        factor: 1.0,
        name: "bit/s",
    },
    Scale {
        factor: 1e3,
        name: "kbit/s",
    },
    Scale {
        factor: 1e6,
        name: "Mbit/s",
    },
    Scale {
        factor: 1e9,
        name: "Gbit/s",
    },
    Scale {
        factor: 1e12,
        name: "Tbit/s",
    },
];
const TIMES: &[Scale] = &[
    Scale {
        factor: 1e-9,
        name: "ns",
    },
    Scale {
        factor: 1e-6,
        name: "µs",
    },
    Scale {
        factor: 1e-3,
        name: "ms",
    },
    SECONDS,
];
const RATES: &[Scale] = &[
    Scale {
        factor: 1.0,
        name: "/s",
    },
    Scale {
        factor: 1e3,
        name: "k/s",
    },
    Scale {
        factor: 1e6,
        name: "M/s",
    },
];
const BYTES: &[Scale] = &[
    Scale {
        factor: 1.0,
        name: "B",
    },
    Scale {
        factor: 1024.0,
        name: "KiB",
    },
    Scale {
        factor: 1_048_576.0,
        name: "MiB",
    },
    Scale {
        factor: 1_073_741_824.0,
        name: "GiB",
    },
    Scale {
        factor: 1_099_511_627_776.0,
        name: "TiB",
    },
];

/// Only for values that a document gives in decimal units.
const DECIMAL_BYTES: &[Scale] = &[
    Scale {
        factor: 1e12,
        name: "TB",
    },
    Scale {
        factor: 1e9,
        name: "GB",
    },
    Scale {
        factor: 1e6,
        name: "MB",
    },
    Scale {
        factor: 1e3,
        name: "kB",
    },
];

impl Scale {
    /// The largest unit in which a value is at least 1 as it will be written; for small ones the smallest
    /// unit.
    pub fn of(unit: Unit, value: f64) -> Self {
        let scales = match unit {
            Unit::BitsPerSecond => BITS_PER_SECOND,
            Unit::Seconds => TIMES,
            Unit::PerSecond => RATES,
            Unit::Bytes => BYTES,
            Unit::Share => &[PERCENT],
            Unit::Count => &[NOTHING],
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

    /// The number alone.
    pub fn number(self, value: f64) -> String {
        digits(value / self.factor)
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

/// A value in the unit that suits it.
pub fn text(unit: Unit, value: f64) -> String {
    match unit {
        Unit::Count if value.fract() == 0.0 => format!("{value:.0}"),
        _ if !value.is_finite() => "?".to_owned(),
        _ => Scale::of(unit, value).text(value),
    }
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
    fn what_is_no_number_is_said() {
        assert_eq!(text(Unit::Seconds, f64::NAN), "?");
        assert_eq!(text(Unit::BitsPerSecond, f64::INFINITY), "?");
    }
}
