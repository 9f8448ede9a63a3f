//! Byte sizes as Kubernetes writes them: `1500`, `64Ki`, `1Gi`, `10M`.

use std::{fmt, str::FromStr};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use thiserror::Error;

/// A number of bytes.
///
/// Reads Kubernetes quantities without a fraction (`1024`, `1Ki`, `5M`); writes the largest binary suffix that loses
/// nothing (`1Ki`, `1500`).
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
        let (suffix, factor) = SUFFIXES
            .iter()
            .filter(|(name, _)| name.ends_with('i'))
            .find(|(_, factor)| self.0 >= *factor && self.0.is_multiple_of(*factor))
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
            ("5M", 5_000_000, "5000000"),
            ("2k", 2000, "2000"),
        ] {
            let size: ByteSize = text.parse().unwrap();
            assert_eq!((size.0, size.to_string().as_str()), (bytes, written), "{text}");
        }
    }

    #[test]
    fn nonsense_is_refused_with_an_example() {
        for text in ["", "Ki", "1.5Gi", "-1", "1 Ki", "1KiB", "99999999999Pi"] {
            let error = text.parse::<ByteSize>().unwrap_err().to_string();
            assert!(error.contains("64Ki"), "{error}");
        }
    }
}
