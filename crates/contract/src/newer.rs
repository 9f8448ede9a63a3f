//! Names that a newer version of perfrun has added to a list: of a metric, a flag, a phase, a reason, a unit,
//! a distribution, a verdict or the finding of a comparison.
//!
//! After a rollback, this version finds them in statuses and records. It does not know what they mean, and
//! carries them from where it reads to where it writes. Documents and calls of nodes are read strictly: a
//! name that nobody knows is a mistake there.
//!
//! Names are never freed. So those of objects and those of records are counted apart: an editor of ConfigMaps
//! with records takes no room away from the statuses of runs.

use std::{
    borrow::Cow,
    cell::Cell,
    collections::{BTreeMap, BTreeSet},
    fmt::{self, Display, Formatter},
    sync::Mutex,
};

use serde::{
    Deserialize, Deserializer,
    de::{DeserializeOwned, Error, IntoDeserializer, value},
};

/// Most bytes of a name.
const LENGTH_MAX: usize = 64;
/// Most names that a process keeps of objects, and most that it keeps of records.
const NAMES_MAX: usize = 512;

/// What this thread reads.
#[derive(Clone, Copy)]
enum Source {
    /// Statuses of objects, which only operators and administrators write.
    Objects,
    Records,
    Nodes,
}

thread_local! {
    static SOURCE: Cell<Source> = const { Cell::new(Source::Objects) };
}

impl Source {
    /// The names that are kept of it.
    fn names(self) -> Option<&'static Mutex<BTreeSet<&'static str>>> {
        static OF_OBJECTS: Mutex<BTreeSet<&str>> = Mutex::new(BTreeSet::new());
        static OF_RECORDS: Mutex<BTreeSet<&str>> = Mutex::new(BTreeSet::new());
        match self {
            Self::Objects => Some(&OF_OBJECTS),
            Self::Records => Some(&OF_RECORDS),
            Self::Nodes => None,
        }
    }

    fn read<T>(self, read: impl FnOnce() -> T) -> T {
        /// Also after a panic.
        struct Restore(Source);
        impl Drop for Restore {
            fn drop(&mut self) {
                SOURCE.set(self.0);
            }
        }
        let _restore = Restore(SOURCE.replace(self));
        read()
    }
}

/// Reads records of trials. Their names have room of their own.
pub fn of_records<T>(read: impl FnOnce() -> T) -> T {
    Source::Records.read(read)
}

/// Reads answers of nodes. A name that this version does not know is an error there, and is not kept.
pub fn of_nodes<T>(read: impl FnOnce() -> T) -> T {
    Source::Nodes.read(read)
}

/// A name of a newer version.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct NewerName(&'static str);

impl NewerName {
    /// The name; `None` if it is none: empty, long, or not made of ASCII letters and digits. Also `None` in
    /// an answer of a node, and if there have been more than some hundreds.
    pub fn new(name: &str) -> Option<Self> {
        let is_name =
            (1..=LENGTH_MAX).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_alphanumeric());
        if !is_name {
            return None;
        }
        let mut names = SOURCE.get().names()?.lock().ok()?;
        if let Some(known) = names.get(name) {
            return Some(Self(known));
        }
        let is_room = names.len() < NAMES_MAX;
        is_room.then(|| {
            let name = name.to_owned().leak();
            names.insert(name);
            Self(name)
        })
    }
}

impl AsRef<str> for NewerName {
    fn as_ref(&self) -> &str {
        self.0
    }
}

impl Display for NewerName {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl From<NewerName> for &'static str {
    fn from(name: NewerName) -> Self {
        name.0
    }
}

impl From<&NewerName> for &'static str {
    fn from(name: &NewerName) -> Self {
        name.0
    }
}

/// Lets a list of names carry names of a newer version, in its variant `Newer`. Derived, `Serialize` would
/// write the variant.
macro_rules! carry {
    ($list:ty) => {
        impl From<$crate::newer::NewerName> for $list {
            fn from(name: $crate::newer::NewerName) -> Self {
                Self::Newer(name)
            }
        }

        impl serde::Serialize for $list {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_ref())
            }
        }
    };
}

pub(crate) use carry;

/// A name of this version or of a newer one.
#[derive(Eq, Ord, PartialEq, PartialOrd)]
struct Carried<T>(T);

impl<'de, T: DeserializeOwned + From<NewerName>> Deserialize<'de> for Carried<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = Cow::<str>::deserialize(deserializer)?;
        let known = T::deserialize(IntoDeserializer::<value::Error>::into_deserializer(&*name));
        let newer = |error| NewerName::new(&name).map(T::from).ok_or(error);
        known.or_else(newer).map(Self).map_err(D::Error::custom)
    }
}

/// Reads a name of any version.
pub fn name<'de, T, D>(deserializer: D) -> Result<T, D::Error>
where
    T: DeserializeOwned + From<NewerName>,
    D: Deserializer<'de>,
{
    Carried::deserialize(deserializer).map(|Carried(name)| name)
}

/// Reads a name of any version, if there is one.
pub fn optional<'de, T, D>(deserializer: D) -> Result<Option<T>, D::Error>
where
    T: DeserializeOwned + From<NewerName>,
    D: Deserializer<'de>,
{
    let name = Option::<Carried<T>>::deserialize(deserializer)?;
    Ok(name.map(|Carried(name)| name))
}

/// Reads names of any version.
pub(crate) fn list<'de, T, D>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    T: DeserializeOwned + From<NewerName>,
    D: Deserializer<'de>,
{
    let names = Vec::<Carried<T>>::deserialize(deserializer)?;
    Ok(names.into_iter().map(|Carried(name)| name).collect())
}

/// Reads values by names of any version.
pub(crate) fn map<'de, K, V, D>(deserializer: D) -> Result<BTreeMap<K, V>, D::Error>
where
    K: DeserializeOwned + From<NewerName> + Ord,
    V: Deserialize<'de>,
    D: Deserializer<'de>,
{
    let values = BTreeMap::<Carried<K>, V>::deserialize(deserializer)?;
    Ok(values
        .into_iter()
        .map(|(Carried(name), value)| (name, value))
        .collect())
}

#[cfg(test)]
mod tests {
    use schemars::JsonSchema;
    use serde::Serialize;
    use serde_json::json;

    use super::*;
    use crate::{
        compare::{self, Finding, Judged, NoFinding},
        distribution::Distribution,
        histogram::{Histogram, recorder},
        metric::Metric,
        node::{Measured, Reason, Sample},
        record::{Flag, TrialRecord},
        run::Phase,
        summary::SummaryRow,
        tally::{Conclusion, EndReason},
        units::{self, Unit},
    };

    #[test]
    fn only_text_with_the_form_of_a_name_is_a_newer_name() {
        let name = NewerName::new("jitterP50").unwrap();
        assert_eq!(NewerName::new("jitterP50"), Some(name));
        assert_eq!(
            (name.as_ref(), name.to_string()),
            ("jitterP50", "jitterP50".to_owned())
        );
        for not_a_name in ["", "two words", "\u{1b}[2J", &"x".repeat(LENGTH_MAX + 1)] {
            assert_eq!(NewerName::new(not_a_name), None, "{not_a_name}");
        }
    }

    #[test]
    fn names_of_records_leave_room_for_names_of_objects() {
        let names = (0..2 * NAMES_MAX).map(|i| format!("recorded{i}"));
        let kept = of_records(|| names.filter_map(|name| NewerName::new(&name)).count());
        assert_eq!(kept, NAMES_MAX);
        assert!(NewerName::new("Hibernating").is_some());
    }

    #[test]
    fn names_in_answers_of_nodes_are_not_kept() {
        let read = || serde_json::from_value::<Carried<Reason>>(json!("Overheated")).is_ok();
        assert!(read() && !of_nodes(read) && read());
        assert!(of_nodes(|| serde_json::from_value::<Carried<Reason>>(json!(
            "Timeout"
        ))
        .is_ok()));
    }

    #[test]
    fn a_record_of_a_newer_version_is_read_and_written_unchanged() {
        let mut measured = serde_json::to_value(Measured::default()).unwrap();
        measured["errors"] = json!({"Overheated": 1, "Timeout": 2});
        let histogram = Histogram::from(&recorder());
        measured["histograms"] = json!({"jitter": histogram, "roundTrip": histogram});
        measured["samples"] = json!([Sample::default()]);
        measured["samples"][0]["errors"] = json!({"Overheated": 1});
        let written = json!({
            "trial": {"id": "c0.i0", "cell": 0, "iteration": 0, "warmup": false},
            "attempt": 0,
            "failure": {"reason": "Overheated", "message": "too hot"},
            "metrics": {"jitterP50": 0.25, "openP50": 0.5},
            "flags": ["Overheated", "Retried"],
            "atSeconds": 0.0,
            "overheadSeconds": 0.0,
            "session": 0,
            "nodes": {"client-0": {"role": "client", "measured": measured}},
        });
        let record: TrialRecord = serde_json::from_value(written.clone()).unwrap();
        let newer = Metric::Newer(NewerName::new("jitterP50").unwrap());
        assert_eq!(record.metrics[&newer], 0.25);
        assert_eq!(
            (newer.as_ref(), newer.to_string(), <&str>::from(newer)),
            ("jitterP50", "jitterP50".to_owned(), "jitterP50")
        );
        assert!(matches!(record.flags[..], [Flag::Newer(_), Flag::Retried]));
        let reason = record.failure.as_ref().unwrap().reason;
        assert_eq!(
            (reason.as_ref(), <&str>::from(reason)),
            ("Overheated", "Overheated")
        );
        assert_eq!(serde_json::to_value(record).unwrap(), written);
    }

    #[test]
    fn a_unit_of_a_newer_version_is_written_beside_the_number() {
        let written = json!({
            "cell": "c0", "metric": "power", "unit": "watts", "count": 1,
            "median": 1500.0, "mean": 1500.0, "min": 1500.0, "max": 1500.0,
        });
        let row: SummaryRow = serde_json::from_value(written.clone()).unwrap();
        assert_eq!(units::text(row.unit, row.median), "1500 watts");
        assert_eq!(serde_json::to_value(row).unwrap(), written);
    }

    #[test]
    fn a_conclusion_of_a_newer_version_is_read_and_written_unchanged() {
        let written = json!({"phase": "Hibernating", "reason": "Overheated", "message": "too hot"});
        let conclusion: Conclusion = serde_json::from_value(written.clone()).unwrap();
        assert_eq!(<&str>::from(conclusion.reason), "Overheated");
        assert_eq!(serde_json::to_value(conclusion).unwrap(), written);
    }

    #[test]
    fn findings_of_a_newer_version_are_read_and_written_unchanged() {
        let written = json!({
            "comparisons": [{
                "baseline": "a", "candidate": "b", "metric": "openP50", "pairs": 40, "excludedPairs": 0,
                "failed": [0, 0], "tolerance": 0.5, "finding": "Doubtful",
            }],
            "gates": [{"expectation": 0, "cell": "b", "verdict": "Doubtful", "evidence": "40 pairs"}],
            "verdict": "Doubtful",
        });
        let judged: Judged = serde_json::from_value(written.clone()).unwrap();
        assert_eq!(serde_json::to_value(judged).unwrap(), written);
    }

    #[test]
    fn every_reason_is_in_its_list() {
        fn check<T: JsonSchema + Display>(all: impl IntoIterator<Item = T>) {
            let schema = serde_json::Value::from(schemars::schema_for!(T));
            let names = schema["oneOf"].as_array().unwrap().iter();
            let names: Vec<_> = names.map(|name| name["const"].as_str().unwrap()).collect();
            let all: Vec<_> = all.into_iter().map(|reason| reason.to_string()).collect();
            assert_eq!(all, names);
        }
        check(Reason::ALL);
        check(EndReason::ALL.into_iter().chain([EndReason::InProgress]));
        check(NoFinding::ALL);
    }

    #[test]
    fn names_outside_of_records_must_be_known() {
        for name in ["jitterP50", "newer"] {
            let error = serde_json::from_value::<Metric>(json!(name))
                .unwrap_err()
                .to_string();
            assert!(
                error.starts_with(&format!(
                    "unknown variant `{name}`, expected one of `uploadGoodput`"
                )),
                "{error}"
            );
        }
    }

    #[test]
    fn known_names_are_written_as_they_are_read() {
        fn check<T: DeserializeOwned + JsonSchema + Serialize>() {
            let schema = serde_json::Value::from(schemars::schema_for!(T));
            let names = schema["oneOf"].as_array().unwrap().iter();
            let names: Vec<_> = names.map(|name| name["const"].clone()).collect();
            assert!(
                names.len() >= 3 && names.iter().all(serde_json::Value::is_string),
                "{schema}"
            );
            for name in names {
                let read: T = serde_json::from_value(name.clone()).unwrap();
                assert_eq!(serde_json::to_value(read).unwrap(), name);
            }
        }
        check::<Metric>();
        check::<Flag>();
        check::<Phase>();
        check::<Reason>();
        check::<EndReason>();
        check::<Distribution>();
        check::<Unit>();
        check::<NoFinding>();
        check::<Finding>();
        check::<compare::Verdict>();
    }
}
