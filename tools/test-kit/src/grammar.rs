//! Values that a JSON schema describes, each chosen by bytes: a fuzzer searches for bytes, and a hostile
//! tenant takes random ones. Lists, maps, texts and integers are often at a bound, or one above.

use std::{iter::repeat_n, mem, slice::Iter, sync::LazyLock};

use serde_json::{Map, Value};

/// The schema of the spec of a PerfRun.
pub static RUN: LazyLock<Value> =
    LazyLock::new(|| spec(include_str!("../../../crds/perfruns.perfrun.io.yaml")));

/// The schema of the spec of a PerfSchedule.
pub static SCHEDULE: LazyLock<Value> =
    LazyLock::new(|| spec(include_str!("../../../crds/perfschedules.perfrun.io.yaml")));

/// The schemas of what nodes read and answer, below `/$defs`.
pub static NODE: LazyLock<Value> = LazyLock::new(|| {
    serde_json::from_str(include_str!("../../../schema/node.schema.json")).expect("it is JSON")
});

/// Most bytes that choose a large spec: more than a document may have.
pub const SPEC_INPUT_MAX: usize = 256 << 10;

fn spec(crd: &str) -> Value {
    let mut crd: Value = serde_saphyr::from_str(crd).expect("it is YAML");
    crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"].take()
}

/// Bounds of what has none in its schema, and of what a bound in the code limits.
const LENGTHS: [usize; 4] = [64, 1024, 4097, 16_384];

/// Numbers around which something may change.
const INTEGERS: [i64; 9] = [0, 1, 2, -1, 20, 512, i32::MAX as i64, (1 << 53) - 1, i64::MAX];
const NUMBERS: [f64; 7] = [0.0, 0.5, 1.0, -1.0, 5e-324, 1e9, f64::MAX];

/// Texts that mean something to a field, and some that control a terminal or leave a folder.
const WORDS: [&str; 28] = [
    "a",
    "1",
    "64Ki",
    "1Gi",
    "2s",
    "10ms",
    "10%",
    "libp2p",
    "litep2p",
    "raw",
    "tcp",
    "quic-v1",
    "lan",
    "* * * * *",
    "30 2 31 2 *",
    "@daily",
    "Europe/Berlin",
    "uploadGoodput",
    "roundTrip",
    "transfer",
    "Timeout",
    "perfrun.io/run",
    "http://127.0.0.1:1",
    "/ip4/1.2.3.4/tcp/1",
    "../..",
    "é",
    "\u{1b}[31m",
    "a\0b",
];

/// A value that a schema describes, chosen by these bytes. Its JSON has about `most` bytes at most. Without
/// bytes it is empty, so that it changes nothing as an [`overlay`].
pub fn value(schema: &Value, bytes: &[u8], most: usize) -> Value {
    value_at("", schema, bytes, most)
}

/// Like [`value`], of the schema at a JSON pointer of another one, to which its references refer.
pub fn value_at(pointer: &str, root: &Value, bytes: &[u8], most: usize) -> Value {
    let mut choices = Choices {
        root,
        bytes: bytes.iter(),
        left: most,
        is_whole: false,
    };
    choices.value(root.pointer(pointer).unwrap_or(&Value::Null))
}

/// Puts fields over those of another value, and other values in its place.
pub fn overlay(base: &mut Value, over: Value) {
    match (base, over) {
        (Value::Object(base), Value::Object(over)) => {
            for (name, value) in over {
                overlay(base.entry(name).or_insert(Value::Null), value);
            }
        }
        (base, over) => *base = over,
    }
}

struct Choices<'a> {
    root: &'a Value,
    bytes: Iter<'a, u8>,
    /// Bytes that the value may still have.
    left: usize,
    /// Whether objects have all fields that they must have: those of lists and maps, over which nothing lies.
    is_whole: bool,
}

impl<'a> Choices<'a> {
    fn byte(&mut self) -> usize {
        self.bytes.next().copied().unwrap_or(0).into()
    }

    fn one<'t, T>(&mut self, of: &'t [T]) -> Option<&'t T> {
        let choice = self.byte();
        of.get(choice.checked_rem(of.len())?)
    }

    fn value(&mut self, schema: &'a Value) -> Value {
        if let Some(pointer) = schema["$ref"].as_str() {
            let schema = self.root.pointer(pointer.trim_start_matches('#'));
            return self.value(schema.unwrap_or(&Value::Null));
        }
        if let Some(only) = schema.get("const") {
            return only.clone();
        }
        if schema["x-kubernetes-int-or-string"] == true {
            return match self.byte() % 2 {
                0 => self.text(schema).into(),
                _ => self.integer(schema),
            };
        }
        for keyword in ["oneOf", "anyOf"] {
            if let Some(schema) = schema[keyword].as_array().and_then(|of| self.one(of)) {
                return self.value(schema);
            }
        }
        if let Some(word) = schema["enum"].as_array().and_then(|of| self.one(of)) {
            return word.clone();
        }
        let kind = match &schema["type"] {
            Value::Array(kinds) => self.one(kinds).unwrap_or(&Value::Null),
            kind => kind,
        };
        match kind.as_str() {
            Some("object") => self.object(schema),
            Some("array") => self.array(schema),
            Some("string") => self.text(schema).into(),
            Some("integer") => self.integer(schema),
            Some("number") => self.one(&NUMBERS).copied().into(),
            Some("boolean") => (self.byte() % 2 == 1).into(),
            _ => Value::Null,
        }
    }

    fn object(&mut self, schema: &'a Value) -> Value {
        let mut fields = Map::new();
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            let mut required = schema["required"].as_array().into_iter().flatten();
            let is_there = match required.any(|required| required == name) {
                true => self.is_whole || !self.byte().is_multiple_of(4),
                false => self.byte() % 4 == 1,
            };
            if is_there {
                self.spend(name.len());
                fields.insert(name.clone(), self.value(property));
            }
        }
        let entries = &schema["additionalProperties"];
        if entries.is_object() {
            let count = self.length(schema, "maxProperties");
            let entry = self.whole(entries);
            for number in 0..self.affordable(&entry, count) {
                let name = match number {
                    0 => self.one(&WORDS).copied().unwrap_or_default().to_owned(),
                    number => format!("key-{number}"),
                };
                fields.insert(name, entry.clone());
            }
        }
        fields.into()
    }

    fn whole(&mut self, schema: &'a Value) -> Value {
        let outer = mem::replace(&mut self.is_whole, true);
        let value = self.value(schema);
        self.is_whole = outer;
        value
    }

    /// Items are alike beyond the second.
    fn array(&mut self, schema: &'a Value) -> Value {
        let count = self.length(schema, "maxItems");
        let mut items: Vec<Value> = (0..count.min(2)).map(|_| self.whole(&schema["items"])).collect();
        if let Some(last) = items.last().cloned() {
            let more = self.affordable(&last, count - items.len());
            items.extend(repeat_n(last, more));
        }
        items.into()
    }

    fn text(&mut self, schema: &Value) -> String {
        let text = match self.byte() % 4 {
            1 => {
                let length = self.length(schema, "maxLength");
                "a".repeat(length.min(self.left))
            }
            _ => self.one(&WORDS).copied().unwrap_or_default().to_owned(),
        };
        self.spend(text.len());
        text
    }

    fn integer(&mut self, schema: &Value) -> Value {
        let bounds = ["minimum", "maximum"].map(|bound| schema[bound].as_i64());
        match (self.byte() % 8, bounds) {
            (1, [Some(least), _]) => least.into(),
            (2, [_, Some(most)]) => most.into(),
            (3, [_, Some(most)]) => most.saturating_add(1).into(),
            (4, _) => u64::MAX.into(),
            _ => self.one(&INTEGERS).copied().into(),
        }
    }

    /// How many entries or characters there are: few, the bound, or one above.
    fn length(&mut self, schema: &Value, bound: &str) -> usize {
        let choice = self.byte();
        let bound = schema[bound]
            .as_u64()
            .and_then(|bound| usize::try_from(bound).ok());
        let bound = bound.or_else(|| self.one(&LENGTHS).copied()).unwrap_or_default();
        match choice % 8 {
            6 => bound,
            7 => bound + 1,
            few => few.min(2),
        }
    }

    /// Counts values like this one, as many of them as there may be.
    fn affordable(&mut self, like: &Value, count: usize) -> usize {
        let bytes = like.to_string().len() + 8;
        let count = count.min(self.left / bytes);
        self.spend(count * bytes);
        count
    }

    fn spend(&mut self, bytes: usize) {
        self.left = self.left.saturating_sub(bytes);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn schema() -> Value {
        json!({
            "type": "object",
            "required": ["items"],
            "properties": {
                "items": {"type": "array", "maxItems": 3, "items": {"type": "string", "maxLength": 4}},
                "rest": {"type": "object", "additionalProperties": {"type": "boolean"}},
            },
        })
    }

    #[test]
    fn without_bytes_a_value_changes_nothing() {
        for schema in [&schema(), &*RUN, &*SCHEDULE] {
            assert_eq!(value(schema, &[], 1000), json!({}));
        }
        assert_eq!(value_at("/$defs/TrialStatus", &NODE, &[], 1000), json!({}));
    }

    #[test]
    fn lists_and_texts_are_at_their_bounds_or_one_above() {
        // A list one above its bound, whose texts are at theirs and one above. No map.
        let bytes = [1, 7, 1, 6, 1, 7];
        assert_eq!(
            value(&schema(), &bytes, 1000),
            json!({"items": ["aaaa", "aaaaa", "aaaaa", "aaaaa"]})
        );
    }

    #[test]
    fn a_value_has_about_as_many_bytes_as_it_may() {
        // A map of 16,385 entries.
        let bytes = [0, 1, 7, 3];
        for most in [100, 10_000] {
            assert!(value(&schema(), &bytes, most).to_string().len() < 3 * most);
        }
    }

    #[test]
    fn an_overlay_keeps_the_other_fields() {
        let mut base = json!({"a": {"b": 1, "c": 2}, "d": [3]});
        overlay(&mut base, json!({"a": {"c": {}}, "d": [], "e": null}));
        assert_eq!(base, json!({"a": {"b": 1, "c": {}}, "d": [], "e": null}));
    }
}
