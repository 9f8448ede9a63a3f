//! Lists and maps of an answer, read within their bounds. An element of three bytes, such as `"",`, may take
//! tens of them in memory, so what a bound excludes is not read to its end.

use std::{
    collections::BTreeMap,
    fmt::{self, Formatter},
    marker::PhantomData,
};

use serde::{
    Deserialize, Deserializer,
    de::{Error, MapAccess, SeqAccess, Visitor},
};

use super::{ADDRESSES_MAX, KINDS_MAX, SAMPLES_MAX, STACKS_MAX};
use crate::node::Sample;

pub(crate) fn addresses<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    deserializer.deserialize_seq(AtMost::<Vec<String>>::new(ADDRESSES_MAX, "addresses"))
}

pub(crate) fn samples<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Sample>, D::Error> {
    deserializer.deserialize_seq(AtMost::<Vec<Sample>>::new(SAMPLES_MAX, "samples"))
}

pub(crate) fn refused<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<String, u64>, D::Error> {
    deserializer.deserialize_map(AtMost::<BTreeMap<String, u64>>::new(
        KINDS_MAX,
        "kinds of refusals",
    ))
}

/// Values by names of stacks.
pub(crate) fn stacks<'de, V, D>(deserializer: D) -> Result<BTreeMap<String, V>, D::Error>
where
    V: Deserialize<'de>,
    D: Deserializer<'de>,
{
    deserializer.deserialize_map(AtMost::<BTreeMap<String, V>>::new(STACKS_MAX, "stacks"))
}

/// Reads a `T` of at most this many elements.
struct AtMost<T> {
    most: usize,
    what: &'static str,
    kind: PhantomData<T>,
}

impl<T> AtMost<T> {
    fn new(most: usize, what: &'static str) -> Self {
        Self {
            most,
            what,
            kind: PhantomData,
        }
    }

    /// An error if there are more.
    fn check<E: Error>(&self, read: usize) -> Result<(), E> {
        match read > self.most {
            false => Ok(()),
            true => Err(E::custom(format_args!("more than {} {}", self.most, self.what))),
        }
    }

    fn expect(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "at most {} {}", self.most, self.what)
    }
}

impl<'de, T: Deserialize<'de>> Visitor<'de> for AtMost<Vec<T>> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.expect(f)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Vec<T>, A::Error> {
        let mut list = vec![];
        while let Some(element) = elements.next_element()? {
            list.push(element);
            self.check::<A::Error>(list.len())?;
        }
        Ok(list)
    }
}

impl<'de, V: Deserialize<'de>> Visitor<'de> for AtMost<BTreeMap<String, V>> {
    type Value = BTreeMap<String, V>;

    fn expecting(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.expect(f)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<BTreeMap<String, V>, A::Error> {
        let mut map = BTreeMap::new();
        while let Some((key, value)) = entries.next_entry()? {
            map.insert(key, value);
            self.check::<A::Error>(map.len())?;
        }
        Ok(map)
    }
}

#[cfg(test)]
mod tests {
    use serde::{Serialize, de::DeserializeOwned};
    use serde_json::json;

    use super::*;
    use crate::node::{Info, Measured, TrialStatus};

    /// Why an answer is refused that has these elements in a field, and then something that is not JSON.
    fn refusal<T: DeserializeOwned>(
        answer: &impl Serialize,
        field: &str,
        brackets: [&str; 2],
        elements: impl Iterator<Item = String>,
    ) -> String {
        let answer = serde_json::to_string(answer).unwrap();
        let elements: Vec<String> = elements.collect();
        let begin = answer.strip_suffix('}').unwrap();
        let [open, close] = brackets;
        let list = elements.join(",");
        let text = format!("{begin},\"{field}\":{open}{list},?{close}}}");
        serde_json::from_str::<T>(&text).err().unwrap().to_string()
    }

    #[test]
    fn a_list_beyond_its_bound_is_refused_before_it_is_read() {
        let status = json!({"bytesReceived": 0, "bytesSent": 0, "state": "ready"});
        let info = json!({
            "cpu": "abacus", "cpus": 1, "host": "here", "kernel": "6.1", "listenIp": "127.0.0.1",
            "profile": "release", "version": "1",
        });
        let sample = serde_json::to_string(&Sample::default()).unwrap();
        let measured = Measured::default();
        let list = ["[", "]"];
        let map = ["{", "}"];
        let addresses = (0..=ADDRESSES_MAX).map(|_| "\"\"".to_owned());
        let samples = (0..=SAMPLES_MAX).map(|_| sample.clone());
        let entries =
            |count: usize, value: &'static str| (0..=count).map(move |i| format!("\"{i}\":{value}"));
        for (why, words) in [
            (
                refusal::<TrialStatus>(&status, "addresses", list, addresses),
                "more than 16384 addresses",
            ),
            (
                refusal::<Measured>(&measured, "samples", list, samples),
                "more than 4097 samples",
            ),
            (
                refusal::<Measured>(&measured, "refused", map, entries(KINDS_MAX, "1")),
                "more than 64 kinds of refusals",
            ),
            (
                refusal::<Info>(&info, "stacks", map, entries(STACKS_MAX, "\"1\"")),
                "more than 16 stacks",
            ),
        ] {
            assert!(why.starts_with(words), "{why}");
        }
    }
}
