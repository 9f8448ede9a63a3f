//! Quantities as people write them: byte sizes as in Kubernetes (`1500`, `64Ki`, `1Gi`, `10M`), shares
//! (`0.1%`) and bit rates (`100Mbit`) as in tc(8).

use std::{fmt, num::NonZeroU64, str::FromStr};

use perfrun_link::Ratio;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use thiserror::Error;

/// A number of bytes.
///
/// Reads Kubernetes quantities without a fraction (`1024`, `1Ki`, `5M`); writes the shortest form that loses
/// nothing (`1Ki`, `5M`, `1500`).
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct ByteSize(pub u64);

/// A text that is not a byte size.
#[derive(Debug, Error, Eq, PartialEq)]
#[error(
    "{0:?} is not a byte size: write a whole number with an optional suffix such as 1500, 64Ki, 10M or 1Gi"
)]
pub struct InvalidByteSize(String);

/// Suffixes with their factors; binary ones first, largest first, as `Display` tries them.
const SUFFIXES: [(&str, u64); 11] = [
    ("Pi", 1 << 50),
    ("Ti", 1 << 40),
    ("Gi", 1 << 30),
    ("Mi", 1 << 20),
    ("Ki", 1 << 10),
    ("P", 1_000_000_000_000_000),
    ("T", 1_000_000_000_000),
    ("G", 1_000_000_000),
    ("M", 1_000_000),
    ("k", 1_000),
    ("", 1),
];

impl FromStr for ByteSize {
    type Err = InvalidByteSize;

    fn from_str(text: &str) -> Result<Self, InvalidByteSize> {
        let invalid = || InvalidByteSize(text.to_owned());
        let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (number, suffix) = text.split_at(digits);
        let number: u64 = number.parse().map_err(|_| invalid())?;
        let (_, factor) = SUFFIXES
            .iter()
            .find(|(name, _)| *name == suffix)
            .ok_or_else(invalid)?;
        number.checked_mul(*factor).map(Self).ok_or_else(invalid)
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The shortest exact form; of two equally short ones, the binary one.
        let exact = SUFFIXES
            .iter()
            .filter(|(_, factor)| self.0 >= *factor && self.0.is_multiple_of(*factor));
        let (suffix, factor) = exact
            .min_by_key(|(_, factor)| self.0 / factor)
            .unwrap_or(&("", 1));
        write!(f, "{}{suffix}", self.0 / factor)
    }
}

impl Serialize for ByteSize {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ByteSize {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = ByteSize;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a byte size such as 1500, 64Ki, 10M or 1Gi")
            }

            fn visit_u64<E: de::Error>(self, bytes: u64) -> Result<ByteSize, E> {
                Ok(ByteSize(bytes))
            }

            fn visit_i64<E: de::Error>(self, bytes: i64) -> Result<ByteSize, E> {
                u64::try_from(bytes)
                    .map(ByteSize)
                    .map_err(|_| E::custom("a byte size cannot be negative"))
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<ByteSize, E> {
                text.parse().map_err(E::custom)
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

impl JsonSchema for ByteSize {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "ByteSize".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A whole number of bytes, with an optional suffix: 1500, 64Ki, 10M, 1Gi.",
            "x-kubernetes-int-or-string": true,
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "maxLength": 20,
            // Says to kube, which makes optional fields of this kind nullable, that it is not.
            "nullable": false,
        })
    }
}

/// A share from `0%` to `100%`.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct Percent(Ratio);

/// A text that is not a share.
#[derive(Debug, Error, Eq, PartialEq)]
#[error("{0:?} is not a percentage from 0% to 100%: write it as 1% or 0.25%")]
pub struct InvalidPercent(String);

impl Percent {
    /// From 0 to 1.
    pub fn ratio(self) -> Ratio {
        self.0
    }
}

impl FromStr for Percent {
    type Err = InvalidPercent;

    fn from_str(text: &str) -> Result<Self, InvalidPercent> {
        let number = text.strip_suffix('%').filter(|number| is_decimal(number));
        number
            .and_then(|number| Ratio::from_percent(number.parse().ok()?).ok())
            .map(Self)
            .ok_or_else(|| InvalidPercent(text.to_owned()))
    }
}

impl TryFrom<String> for Percent {
    type Error = InvalidPercent;

    fn try_from(text: String) -> Result<Self, InvalidPercent> {
        text.parse()
    }
}

impl From<Percent> for String {
    fn from(value: Percent) -> Self {
        value.to_string()
    }
}

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Hundredths come back as they were written: a share of 0.07 is 7.000000000000001 %.
        write!(f, "{}%", (self.0.get() * 1e11).round() / 1e9)
    }
}

impl JsonSchema for Percent {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Percent".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"description": "A share: 1%, 0.25%.", "type": "string", "maxLength": 16})
    }
}

/// Bits per second, decimal.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct BitRate(NonZeroU64);

/// A text that is not a bit rate.
#[derive(Debug, Error, Eq, PartialEq)]
#[error("{0:?} is not a bit rate: write it as 512kbit, 100Mbit or 1Gbit")]
pub struct InvalidBitRate(String);

/// Units of bit rates, largest first, as `Display` tries them.
const BIT_UNITS: [(&str, u64); 4] = [
    ("Gbit", 1_000_000_000),
    ("Mbit", 1_000_000),
    ("kbit", 1_000),
    ("bit", 1),
];

impl BitRate {
    /// Bits per second.
    pub fn bits_per_second(self) -> NonZeroU64 {
        self.0
    }
}

impl FromStr for BitRate {
    type Err = InvalidBitRate;

    fn from_str(text: &str) -> Result<Self, InvalidBitRate> {
        // `bit` ends all of them, and comes last.
        let scaled = BIT_UNITS.iter().find_map(|(unit, factor)| {
            let number = text.strip_suffix(unit).filter(|number| is_decimal(number))?;
            let bits = (number.parse::<f64>().ok()? * *factor as f64).round();
            (bits <= 1e15).then_some(bits as u64).and_then(NonZeroU64::new)
        });
        scaled.map(Self).ok_or_else(|| InvalidBitRate(text.to_owned()))
    }
}

impl TryFrom<String> for BitRate {
    type Error = InvalidBitRate;

    fn try_from(text: String) -> Result<Self, InvalidBitRate> {
        text.parse()
    }
}

impl From<BitRate> for String {
    fn from(value: BitRate) -> Self {
        value.to_string()
    }
}

impl fmt::Display for BitRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bits = self.0.get();
        let (unit, factor) = BIT_UNITS
            .iter()
            .find(|(_, factor)| bits >= *factor && bits.is_multiple_of(*factor))
            .unwrap_or(&("bit", 1));
        write!(f, "{}{unit}", bits / factor)
    }
}

impl JsonSchema for BitRate {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "BitRate".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "Bits per second, decimal: 512kbit, 100Mbit, 1Gbit.",
            "type": "string",
            "maxLength": 24,
        })
    }
}

/// Digits with at most one point among them. `parse` alone also reads `1e3`, `inf` and `-1`.
fn is_decimal(text: &str) -> bool {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    digits(whole) && digits(fraction)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_read_and_write_as_kubernetes_does() {
        for (text, bytes, written) in [
            ("0", 0, "0"),
            ("1", 1, "1"),
            ("1023", 1023, "1023"),
            ("1024", 1024, "1Ki"),
            ("64Ki", 65536, "64Ki"),
            ("1Gi", 1 << 30, "1Gi"),
            ("5M", 5_000_000, "5M"),
            ("2k", 2000, "2k"),
            ("1500", 1500, "1500"),
        ] {
            let size: ByteSize = text.parse().unwrap();
            assert_eq!((size.0, size.to_string().as_str()), (bytes, written), "{text}");
        }
    }

    #[test]
    fn a_text_that_is_no_size_is_refused_with_an_example() {
        for text in ["", "Ki", "1.5Gi", "-1", "1 Ki", "1KiB", "99999999999Pi"] {
            let error = text.parse::<ByteSize>().unwrap_err().to_string();
            assert!(error.contains("64Ki"), "{error}");
        }
    }

    #[test]
    fn shares_are_written_as_they_were_read() {
        for (text, ratio) in [
            ("0%", 0.0),
            ("7%", 0.07),
            ("0.1%", 0.001),
            ("100%", 1.0),
            ("12.5%", 0.125),
        ] {
            let percent: Percent = text.parse().unwrap();
            assert_eq!(percent.to_string(), text);
            assert!((percent.ratio().get() - ratio).abs() < 1e-12, "{text}");
        }
        for text in ["", "%", "1", "-1%", "101%", "1e1%", "inf%", ".5%", "1 %"] {
            let error = text.parse::<Percent>().unwrap_err().to_string();
            assert!(error.contains("0.25%"), "{error}");
        }
    }

    #[test]
    fn bit_rates_are_decimal() {
        for (text, bits, written) in [
            ("100Mbit", 100_000_000, "100Mbit"),
            ("1.5Gbit", 1_500_000_000, "1500Mbit"),
            ("56kbit", 56_000, "56kbit"),
            ("1234bit", 1234, "1234bit"),
        ] {
            let rate: BitRate = text.parse().unwrap();
            assert_eq!(
                (rate.bits_per_second().get(), rate.to_string().as_str()),
                (bits, written)
            );
        }
        for text in [
            "",
            "Mbit",
            "0Mbit",
            "100",
            "100Mb",
            "100MBit",
            "-1bit",
            "1e3bit",
            "9999999Gbit",
        ] {
            let error = text.parse::<BitRate>().unwrap_err().to_string();
            assert!(error.contains("100Mbit"), "{error}");
        }
    }
}
