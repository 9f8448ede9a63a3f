//! Reading JSON of others within a bound of memory.
//!
//! A byte of JSON may become a hundred bytes in memory: `{}` may be a large struct, and a map with one value
//! has room for eleven. So each value counts, while it is read, as much as it may take at most, whatever its
//! type is.

use std::{
    cell::Cell,
    fmt,
    io::{self, BufReader, Read},
    mem,
};

use serde::{
    Deserialize, Deserializer,
    de::{
        DeserializeOwned, DeserializeSeed, EnumAccess, Error, MapAccess, SeqAccess, VariantAccess, Visitor,
    },
};

/// What results may take, so that a process that holds them stays below 256 MiB.
const RESULTS_MEMORY_MAX: u64 = 220 << 20;
/// Most bytes of text without a value that counts: a text takes memory before its end is known.
const UNCOUNTED_BYTES: u64 = 16 << 20;

/// What a struct or a map counts at least, in bytes.
pub const STRUCT_BYTES: u64 = 400;
/// Each value of a map: a node of its B-tree may be half empty.
const ENTRY_BYTES: u64 = 96;
/// Each item of a list, which may have just grown.
const ITEM_BYTES: u64 = 16;
/// A list, or a text beside its characters.
const TEXT_BYTES: u64 = 40;
/// The first node of a map is made for eleven values, although it has one: this number counts beside that one
/// and the share of a half-empty node.
const SPARE_VALUES: u64 = 9;
/// A spare value counts as many structs as the first value of its map has, up to this number.
const SPARE_STRUCTS: u64 = 2;

const REFUSED: &str = "it takes more memory than it may";

/// How much memory values may still take. What is read with a clone counts only there.
#[derive(Clone, Debug)]
pub struct MemoryBudget {
    /// In bytes; `None` when something would have taken more.
    left: Cell<Option<u64>>,
    /// How many structs and maps were read.
    structs: Cell<u64>,
    /// Bytes of text since something counted.
    uncounted: Cell<u64>,
}

impl MemoryBudget {
    fn of(bytes: u64) -> Self {
        Self {
            left: Cell::new(Some(bytes)),
            structs: Cell::new(0),
            uncounted: Cell::new(0),
        }
    }

    /// What results from anywhere may take: 220 MiB.
    pub fn of_results() -> Self {
        Self::of(RESULTS_MEMORY_MAX)
    }

    /// As much as the machine has: for results of somebody whom the user trusts.
    pub fn unlimited() -> Self {
        Self::of(u64::MAX)
    }

    /// Whether something would have taken more than was left. Nothing more is read then.
    pub fn is_exceeded(&self) -> bool {
        self.left.get().is_none()
    }

    /// Counts bytes. Returns whether they were left.
    pub fn take(&self, bytes: u64) -> bool {
        let left = self.left.get().and_then(|left| left.checked_sub(bytes));
        self.left.set(left);
        left.is_some()
    }

    /// Bytes that counted, and are free again.
    pub fn give_back(&self, bytes: u64) {
        self.left
            .set(self.left.get().map(|left| left.saturating_add(bytes)));
    }

    /// Reads a value, and nothing behind it but blanks.
    pub fn read<T: DeserializeOwned>(&self, json: impl Read) -> serde_json::Result<T> {
        let text = Text {
            inner: json,
            memory: self,
        };
        let mut deserializer = serde_json::Deserializer::from_reader(BufReader::with_capacity(1 << 16, text));
        let value = Deserialize::deserialize(self.counted(&mut deserializer))?;
        deserializer.end()?;
        Ok(value)
    }

    /// A part of a parser, whose values count here.
    fn counted<T>(&self, inner: T) -> Counted<'_, T> {
        Counted { inner, memory: self }
    }

    fn count<E: Error>(&self, bytes: u64) -> Result<(), E> {
        self.uncounted.set(0);
        match self.take(bytes) {
            true => Ok(()),
            false => Err(E::custom(REFUSED)),
        }
    }
}

/// Text to parse.
struct Text<'m, R> {
    inner: R,
    memory: &'m MemoryBudget,
}

impl<R: Read> Read for Text<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        let uncounted = self.memory.uncounted.get() + read as u64;
        self.memory.uncounted.set(uncounted);
        if uncounted > UNCOUNTED_BYTES {
            self.memory.left.set(None);
            return Err(io::Error::other(REFUSED));
        }
        Ok(read)
    }
}

/// A part of a parser that counts what it hands out.
struct Counted<'m, T> {
    inner: T,
    memory: &'m MemoryBudget,
}

impl<'m, T> Counted<'m, T> {
    fn values<V>(&self, visitor: V, is_struct: bool) -> Values<'m, V> {
        Values {
            visitor,
            memory: self.memory,
            is_struct,
        }
    }
}

macro_rules! forward {
    ($($method:ident($($name:ident: $kind:ty),*);)*) => {$(
        fn $method<V: Visitor<'de>>(self, $($name: $kind,)* visitor: V) -> Result<V::Value, D::Error> {
            let values = self.values(visitor, false);
            self.inner.$method($($name,)* values)
        }
    )*};
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Counted<'_, D> {
    type Error = D::Error;

    forward! {
        deserialize_any();
        deserialize_bool();
        deserialize_i8();
        deserialize_i16();
        deserialize_i32();
        deserialize_i64();
        deserialize_u8();
        deserialize_u16();
        deserialize_u32();
        deserialize_u64();
        deserialize_f32();
        deserialize_f64();
        deserialize_char();
        deserialize_str();
        deserialize_string();
        deserialize_bytes();
        deserialize_byte_buf();
        deserialize_option();
        deserialize_unit();
        deserialize_unit_struct(name: &'static str);
        deserialize_newtype_struct(name: &'static str);
        deserialize_seq();
        deserialize_tuple(len: usize);
        deserialize_tuple_struct(name: &'static str, len: usize);
        deserialize_map();
        deserialize_enum(name: &'static str, variants: &'static [&'static str]);
        deserialize_identifier();
        deserialize_ignored_any();
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        let values = self.values(visitor, true);
        self.inner.deserialize_struct(name, fields, values)
    }
}

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for Counted<'_, S> {
    type Value = S::Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<S::Value, D::Error> {
        let counted = self.memory.counted(deserializer);
        self.inner.deserialize(counted)
    }
}

impl<'de, A: SeqAccess<'de>> SeqAccess<'de> for Counted<'_, A> {
    type Error = A::Error;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, A::Error> {
        let seed = self.memory.counted(seed);
        let item = self.inner.next_element_seed(seed)?;
        if item.is_some() {
            self.memory.count::<A::Error>(ITEM_BYTES)?;
        }
        Ok(item)
    }
}

impl<'de, 'm, A: EnumAccess<'de>> EnumAccess<'de> for Counted<'m, A> {
    type Error = A::Error;
    type Variant = Counted<'m, A::Variant>;

    fn variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<(S::Value, Self::Variant), A::Error> {
        let memory = self.memory;
        let (name, inner) = self.inner.variant_seed(seed)?;
        Ok((name, memory.counted(inner)))
    }
}

impl<'de, A: VariantAccess<'de>> VariantAccess<'de> for Counted<'_, A> {
    type Error = A::Error;

    fn unit_variant(self) -> Result<(), A::Error> {
        self.inner.unit_variant()
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, A::Error> {
        let seed = self.memory.counted(seed);
        self.inner.newtype_variant_seed(seed)
    }

    fn tuple_variant<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, A::Error> {
        let values = self.values(visitor, false);
        self.inner.tuple_variant(len, values)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, A::Error> {
        let values = self.values(visitor, true);
        self.inner.struct_variant(fields, values)
    }
}

/// Counts the values of a visitor.
struct Values<'m, V> {
    visitor: V,
    memory: &'m MemoryBudget,
    /// Whether the visitor is of a struct, whose fields were counted with it.
    is_struct: bool,
}

impl<V> Values<'_, V> {
    fn begin<E: Error>(&self) -> Result<(), E> {
        self.memory.structs.set(self.memory.structs.get() + 1);
        self.memory.count(STRUCT_BYTES)
    }
}

impl<'de, V: Visitor<'de>> Visitor<'de> for Values<'_, V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.visitor.expecting(f)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<V::Value, E> {
        self.visitor.visit_bool(value)
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<V::Value, E> {
        self.visitor.visit_i64(value)
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<V::Value, E> {
        self.visitor.visit_u64(value)
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<V::Value, E> {
        self.visitor.visit_f64(value)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<V::Value, E> {
        self.memory.count::<E>(TEXT_BYTES + text.len() as u64)?;
        self.visitor.visit_str(text)
    }

    fn visit_unit<E: Error>(self) -> Result<V::Value, E> {
        self.visitor.visit_unit()
    }

    fn visit_none<E: Error>(self) -> Result<V::Value, E> {
        self.visitor.visit_none()
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<V::Value, D::Error> {
        let counted = self.memory.counted(deserializer);
        self.visitor.visit_some(counted)
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, deserializer: D) -> Result<V::Value, D::Error> {
        let counted = self.memory.counted(deserializer);
        self.visitor.visit_newtype_struct(counted)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<V::Value, A::Error> {
        // A struct may be written as a list of its fields.
        if self.is_struct {
            self.begin::<A::Error>()?;
        } else {
            self.memory.count::<A::Error>(TEXT_BYTES)?;
        }
        let counted = self.memory.counted(items);
        self.visitor.visit_seq(counted)
    }

    fn visit_map<A: MapAccess<'de>>(self, inner: A) -> Result<V::Value, A::Error> {
        self.begin::<A::Error>()?;
        self.visitor.visit_map(Entries {
            inner,
            memory: self.memory,
            is_struct: self.is_struct,
            is_first: true,
        })
    }

    fn visit_enum<A: EnumAccess<'de>>(self, variant: A) -> Result<V::Value, A::Error> {
        let counted = self.memory.counted(variant);
        self.visitor.visit_enum(counted)
    }
}

/// Counts the values of a map.
struct Entries<'m, A> {
    inner: A,
    memory: &'m MemoryBudget,
    is_struct: bool,
    is_first: bool,
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Entries<'_, A> {
    type Error = A::Error;

    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, A::Error> {
        if self.is_struct {
            return self.inner.next_key_seed(seed);
        }
        let key = self.inner.next_key_seed(self.memory.counted(seed))?;
        if key.is_some() {
            self.memory.count::<A::Error>(ENTRY_BYTES)?;
        }
        Ok(key)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, A::Error> {
        let before = self.memory.structs.get();
        let value = self.inner.next_value_seed(self.memory.counted(seed))?;
        if mem::take(&mut self.is_first) && !self.is_struct {
            let inside = (self.memory.structs.get() - before).min(SPARE_STRUCTS);
            self.memory
                .count::<A::Error>(inside * SPARE_VALUES * STRUCT_BYTES)?;
        }
        Ok(value)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::{Value, json};

    use super::*;

    #[derive(Debug, Deserialize, PartialEq)]
    enum Kind {
        Plain,
        Sized { bytes: Option<u32> },
        Named(String),
    }

    #[derive(Debug, Deserialize, PartialEq)]
    #[serde(untagged)]
    enum Either {
        Number(f64),
        Kinds(Vec<Kind>),
    }

    #[derive(Debug, Deserialize, PartialEq)]
    struct Document {
        maps: BTreeMap<u32, BTreeMap<String, Either>>,
        #[serde(flatten)]
        rest: BTreeMap<String, Value>,
    }

    /// What a text counts in all.
    fn counts(text: &str) -> u64 {
        let memory = MemoryBudget::unlimited();
        memory.read::<Value>(text.as_bytes()).unwrap();
        u64::MAX - memory.left.get().unwrap()
    }

    #[test]
    fn a_document_is_read_alike_with_and_without_a_bound_of_memory() {
        let text = json!({
            "maps": {"7": {"a": 1, "b": ["Plain", {"Sized": {"bytes": null}}, {"Named": "x"}]}},
            "other": [true, -1, 0.5, {"deep": {}}],
        })
        .to_string();
        let memory = MemoryBudget::of_results();
        let read: Document = memory.read(text.as_bytes()).unwrap();
        assert_eq!(read, serde_json::from_str(&text).unwrap());
        for broken in [
            "{\"maps\": {}} {}",
            "{\"maps\": []}",
            "{",
            "{\"maps\": {\"x\": {}}}",
        ] {
            let error = memory.read::<Document>(broken.as_bytes()).unwrap_err();
            let without = serde_json::from_reader::<_, Document>(broken.as_bytes()).unwrap_err();
            assert_eq!(error.to_string(), without.to_string());
        }
        assert!(!memory.is_exceeded());
    }

    #[test]
    fn short_texts_count_as_much_as_what_they_become() {
        assert!(counts("{}") >= STRUCT_BYTES);
        assert!(counts("[[],[]]") >= 3 * size_of::<Vec<Value>>() as u64);
        assert!(counts("[\"\",\"\"]") >= 4 * size_of::<String>() as u64);
        // A node of the map has room for eleven.
        assert!(counts("{\"a\":{}}") >= 11 * STRUCT_BYTES);
    }

    #[test]
    fn a_document_that_takes_more_memory_than_is_left_is_refused() {
        let memory = MemoryBudget::of(2 * STRUCT_BYTES);
        assert!(memory.read::<Value>(&b"{}"[..]).is_ok());
        assert!(memory.read::<Value>(&b"[{}]"[..]).is_err() && memory.is_exceeded());
        assert!(memory.read::<Value>(&b"[]"[..]).is_err());
        let memory = MemoryBudget::of(STRUCT_BYTES);
        assert!(memory.read::<Value>(&b"{}"[..]).is_ok());
        memory.give_back(STRUCT_BYTES);
        assert!(memory.read::<Value>(&b"{}"[..]).is_ok());
    }

    #[test]
    fn a_text_without_end_ends_at_sixteen_mebibytes() {
        let memory = MemoryBudget::unlimited();
        let endless = b"\"".as_slice().chain(io::repeat(b'x'));
        assert!(memory.read::<Value>(endless).unwrap_err().is_io());
        assert!(memory.is_exceeded());
    }
}
