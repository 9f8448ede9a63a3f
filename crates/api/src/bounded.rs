//! Reading JSON of others, of which only a part may be kept.

use std::{cell::Cell, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{DeserializeSeed, Error, IgnoredAny, MapAccess, SeqAccess, Visitor},
};
use serde_json::{Map, Value};

/// What a spec may have. Long ones have a few KiB.
pub const SPEC_BYTES: usize = 128 << 10;

/// What a value counts at least: `{}` and `0` take more memory than their text.
const BYTES_MIN: usize = 8;

/// What a value counts, in bytes: its texts, and eight of each value that is shorter.
pub fn size(value: &Value) -> usize {
    let bytes = match value {
        Value::String(text) => text.len(),
        Value::Array(items) => BYTES_MIN + items.iter().map(size).sum::<usize>(),
        Value::Object(fields) => {
            let fields = fields.iter();
            BYTES_MIN
                + fields
                    .map(|(name, value)| name.len().max(BYTES_MIN) + size(value))
                    .sum::<usize>()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => BYTES_MIN,
    };
    bytes.max(BYTES_MIN)
}

/// Any value of JSON that counts at most this number of bytes by [`size`]. `None` stands for a larger one,
/// which is read to its end, so that what follows it can be read, and is not kept.
#[derive(Clone, Debug)]
pub struct Bounded<const MOST: usize>(pub Option<Value>);

impl<const MOST: usize> Bounded<MOST> {
    /// Why a larger value is refused.
    pub fn refusal() -> String {
        format!(
            "is larger than {} KiB as JSON, where each value counts {BYTES_MIN} bytes or more",
            MOST >> 10
        )
    }
}

impl<const MOST: usize> Default for Bounded<MOST> {
    fn default() -> Self {
        Self(Some(Value::Null))
    }
}

impl<'de, const MOST: usize> Deserialize<'de> for Bounded<MOST> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let left = Cell::new(Some(MOST));
        let value = BoundedReader { left: &left }.deserialize(deserializer)?;
        Ok(Self(left.get().map(|_| value)))
    }
}

/// Reads a value or what is in it, or skips it if nothing is left.
#[derive(Clone, Copy)]
struct BoundedReader<'l> {
    /// Bytes that the value may still have.
    left: &'l Cell<Option<usize>>,
}

impl BoundedReader<'_> {
    fn count(self, bytes: usize) {
        let left = self.left.get();
        let left = left.and_then(|left| left.checked_sub(bytes.max(BYTES_MIN)));
        self.left.set(left);
    }

    /// A value of this number of bytes, if they are left.
    fn keep<E>(self, bytes: usize, value: impl Into<Value>) -> Result<Value, E> {
        self.count(bytes);
        Ok(self.left.get().map_or(Value::Null, |_| value.into()))
    }
}

impl<'de> DeserializeSeed<'de> for BoundedReader<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for BoundedReader<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value of JSON")
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        self.keep(BYTES_MIN, value)
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        self.keep(BYTES_MIN, value)
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        self.keep(BYTES_MIN, value)
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        self.keep(BYTES_MIN, value)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Value, E> {
        self.keep(text.len(), text)
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        self.keep(BYTES_MIN, Value::Null)
    }

    fn visit_none<E: Error>(self) -> Result<Value, E> {
        self.visit_unit()
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        self.deserialize(deserializer)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut kept = vec![];
        self.count(BYTES_MIN);
        while self.left.get().is_some() {
            match items.next_element_seed(self)? {
                Some(item) => kept.push(item),
                None => return Ok(Value::Array(kept)),
            }
        }
        drop(kept);
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Value::Null)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut kept = Map::new();
        self.count(BYTES_MIN);
        while self.left.get().is_some() {
            let Some(name) = entries.next_key::<String>()? else {
                return Ok(Value::Object(kept));
            };
            self.count(name.len());
            kept.insert(name, entries.next_value_seed(self)?);
        }
        drop(kept);
        while entries.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Value::Null)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A value of at most 100 bytes in a text with something behind it.
    fn read(value: &Value) -> Option<Value> {
        let text = json!([value, "behind"]).to_string();
        let (Bounded(read), behind): (Bounded<100>, String) = serde_json::from_str(&text).unwrap();
        assert_eq!(behind, "behind");
        read
    }

    #[test]
    fn a_value_within_its_bound_is_read_as_it_is() {
        for value in [
            json!(null),
            json!("é".repeat(50)),
            json!({"a": [true, -1, 0.5, {"b": null}], "c": "text"}),
        ] {
            assert!(size(&value) <= 100);
            assert_eq!(read(&value), Some(value));
        }
    }

    #[test]
    fn a_larger_value_is_read_to_its_end_and_not_kept() {
        let long = "x".repeat(101);
        for value in [
            json!(long),
            json!({(long.as_str()): 1, "b": [{"c": 2}]}),
            json!([[{"a": long}, [1]], {"b": "text"}]),
            json!({"a": {"b": [long, 1]}, "c": {}}),
        ] {
            assert_eq!(read(&value), None, "{value}");
            assert!(size(&value) > 100, "{value}");
        }
    }

    #[test]
    fn a_value_counts_eight_bytes_however_short_it_is() {
        assert!(read(&json!(vec![0; 11])).is_some());
        assert_eq!(read(&json!(vec![0; 12])), None);
        assert!(read(&json!({"a": 0, "b": 0, "c": 0, "d": 0, "e": 0})).is_some());
        assert_eq!(read(&json!(vec![json!({}); 12])), None);
    }
}
