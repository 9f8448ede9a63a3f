//! A run in a cluster: labels, conditions, and the ConfigMaps with its results.
//!
//! Complete results are too large for one object. They are stored in several ConfigMaps, in the order of
//! `status.results`. Each has one of two keys of binary data:
//!
//! - [`TRIALS_KEY`]: trial records, one JSON document per line, gzip. Written while the run is in progress.
//! - [`RESULTS_KEY`]: a [`Results`] document without its trials, gzip. Written when the run ends.
//!
//! The values of a key, concatenated in order, are a gzip stream that `zcat` reads. What is compressed
//! together may be larger than a ConfigMap: each ConfigMap after the first of it has the annotation
//! [`CONTINUES_ANNOTATION`].
//!
//! With [`spec.results.store`](crate::store), the values are objects or files of the same names instead. Each
//! has all that was compressed together.
//!
//! Anyone who may write ConfigMaps may change results. So results are read within limits.

pub mod age;
pub mod condition;
mod location;
mod name;
mod part;

use std::{
    collections::BTreeMap,
    io::{self, BufRead, BufReader, Read, Write},
};

use flate2::{Compression, read::MultiGzDecoder, write::GzEncoder};
use perfrun_contract::{newer, record::TrialRecord};
use serde::de::DeserializeOwned;
use thiserror::Error;

pub use self::{
    name::{SUFFIX_MAX, object_name},
    part::PartKind,
};
use crate::{memory_budget::MemoryBudget, results::Results};

/// Label of all objects of a run: the name of the run.
pub const RUN_LABEL: &str = "perfrun.io/run";
/// Label of a run: the name of the schedule that created it.
pub const SCHEDULE_LABEL: &str = "perfrun.io/schedule";
/// Label of a pod: the name of its node in the plan.
pub const NODE_LABEL: &str = "perfrun.io/node";
/// Label of a pod: the role of its node.
pub const ROLE_LABEL: &str = "perfrun.io/role";
/// Label of a pod: 0 for the first pod of a node, 1 for its replacement, and so on.
pub const INCARNATION_LABEL: &str = "perfrun.io/incarnation";
/// Label of the pods of a pair of cells, which are a node of a candidate, the node of its baseline and that
/// of its control: the name of the baseline's node.
pub const CELL_PAIR_LABEL: &str = "perfrun.io/cell-pair";
/// Label of an object: the program that it belongs to.
pub const NAME_LABEL: &str = "app.kubernetes.io/name";
/// Label of the creator of an object: [`MANAGER`].
pub const MANAGED_BY_LABEL: &str = "app.kubernetes.io/managed-by";
/// Field manager of the operator, and the value of [`MANAGED_BY_LABEL`].
pub const MANAGER: &str = "perfrun-operator";

/// Key of trial records in a ConfigMap.
pub const TRIALS_KEY: &str = "trials.jsonl.gz";
/// Key of the results without their trials.
pub const RESULTS_KEY: &str = "results.json.gz";
/// Annotation of a ConfigMap: the name of the one whose compressed data it continues.
pub const CONTINUES_ANNOTATION: &str = "perfrun.io/continues";
/// Annotation of a ConfigMap with results: the [`SCHEMA_VERSION`](crate::results::SCHEMA_VERSION) of its
/// data.
pub const SCHEMA_ANNOTATION: &str = "perfrun.io/schema-version";
/// Most bytes of the part in a ConfigMap, which holds 1 MiB, including metadata.
pub const PART_BYTES: usize = 900 << 10;
/// Most bytes of one trial record as JSON. Records are made to fit.
pub const RECORD_BYTES: usize = 16 << 20;
/// Most bytes of the JSON of one run that a reader accepts, see [`JsonBytesLeft`].
pub const RESULTS_JSON_MAX: u64 = 1 << 30;

/// Why stored results cannot be read.
#[derive(Debug, Error)]
pub enum Unreadable {
    /// A part is missing or damaged.
    #[error("failed to decompress {key}: a part is missing or damaged")]
    Decompress {
        /// Key of the part.
        key: &'static str,
        /// Cause of the failure.
        source: io::Error,
    },
    /// The part was written by another version of perfrun.
    #[error("unable to read {key}: another version of perfrun wrote it, or it was edited")]
    Parse {
        /// Key of the part.
        key: &'static str,
        /// Cause of the failure.
        source: serde_json::Error,
    },
    /// The part has more than perfrun writes.
    #[error("{key} has {what}, which is more than perfrun writes")]
    TooLarge {
        /// Key of the part.
        key: &'static str,
        /// What it has.
        what: String,
    },
    /// A small part may become very large in memory.
    #[error(
        "these results would take more than 256 MiB of memory: add --large if you trust everyone who may write to their \
         namespace or store"
    )]
    TooMuchMemory,
}

/// The results in a ConfigMap or in an object of a store: a key and its value.
pub type Part = (&'static str, Vec<u8>);

/// How much decompressed JSON a reader still accepts, in bytes: a small part may decompress to a thousand
/// times its size.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct JsonBytesLeft(pub u64);

impl Default for JsonBytesLeft {
    fn default() -> Self {
        Self(RESULTS_JSON_MAX)
    }
}

impl JsonBytesLeft {
    fn take(&mut self, key: &'static str, bytes: usize) -> Result<(), Unreadable> {
        let left = self.0.checked_sub(bytes as u64);
        self.0 = left.ok_or_else(|| Unreadable::TooLarge {
            key,
            what: format!(
                "more than the {} bytes that are left of a run's {RESULTS_JSON_MAX}",
                self.0
            ),
        })?;
        Ok(())
    }
}

/// A trial record as a line to store.
pub fn trial_line(record: &TrialRecord) -> String {
    json(record) + "\n"
}

/// Lines of trial records as parts to store, of at most this number of bytes. They are read together.
pub fn trials_to_parts(lines: &str, most: usize) -> Vec<Part> {
    parts(TRIALS_KEY, lines, most)
}

/// Results as parts to store, without their trials, of at most this number of bytes.
pub fn results_to_parts(results: Results, most: usize) -> Vec<Part> {
    let head = Results {
        trials: vec![],
        ..results
    };
    parts(RESULTS_KEY, &json(&head), most)
}

/// Reads trial records one by one, from the concatenated values of parts.
pub fn read_trials(
    compressed: &[u8],
    bytes_left: &mut JsonBytesLeft,
    mut each: impl FnMut(TrialRecord),
) -> Result<(), Unreadable> {
    read_lines(compressed, bytes_left, |line| {
        each(newer::of_records(|| parse(TRIALS_KEY, line))?);
        Ok(())
    })
}

fn read_lines(
    compressed: &[u8],
    bytes_left: &mut JsonBytesLeft,
    mut each: impl FnMut(&[u8]) -> Result<(), Unreadable>,
) -> Result<(), Unreadable> {
    let mut text = BufReader::new(MultiGzDecoder::new(compressed));
    let mut line = vec![];
    loop {
        line.clear();
        let most = RECORD_BYTES as u64 + 1;
        let read = text.by_ref().take(most).read_until(b'\n', &mut line);
        let read = read.map_err(|source| Unreadable::Decompress {
            key: TRIALS_KEY,
            source,
        })?;
        if read == 0 {
            return Ok(());
        }
        if read > RECORD_BYTES {
            return Err(Unreadable::TooLarge {
                key: TRIALS_KEY,
                what: format!("a record of more than {RECORD_BYTES} bytes"),
            });
        }
        bytes_left.take(TRIALS_KEY, read)?;
        each(&line)?;
    }
}

/// Complete results from the parts of a run that has ended, of the size that results from anywhere may have;
/// `None` if there are no results.
pub fn results_from_parts(kept: &[Part]) -> Result<Option<Results>, Unreadable> {
    results_within(kept, &MemoryBudget::of_results())
}

/// Complete results from the parts of a run that has ended; `None` if there are no results.
pub fn results_within(kept: &[Part], memory: &MemoryBudget) -> Result<Option<Results>, Unreadable> {
    let head = concatenated(RESULTS_KEY, kept);
    if head.is_empty() {
        return Ok(None);
    }
    let mut results: Results = counted(RESULTS_KEY, MultiGzDecoder::new(head.as_slice()), memory)?;
    // A record is stored twice if an operator was killed before its status listed the ConfigMap.
    let mut records = BTreeMap::new();
    let trials = concatenated(TRIALS_KEY, kept);
    // A run that ended before its first trial has no such part.
    if !trials.is_empty() {
        read_lines(&trials, &mut JsonBytesLeft::default(), |line| {
            let record: TrialRecord = newer::of_records(|| counted(TRIALS_KEY, line, memory))?;
            let order = records.len();
            records
                .entry((record.trial.id.clone(), record.attempt))
                .or_insert((order, record));
            Ok(())
        })?;
    }
    let mut records: Vec<_> = records.into_values().collect();
    records.sort_by_key(|(order, _)| *order);
    results.trials = records.into_iter().map(|(_, record)| record).collect();
    Ok(Some(results))
}

/// A value of a part. The memory that it takes counts.
fn counted<T: DeserializeOwned>(
    key: &'static str,
    text: impl Read,
    memory: &MemoryBudget,
) -> Result<T, Unreadable> {
    memory.read(text).map_err(|source| match memory.is_exceeded() {
        true => Unreadable::TooMuchMemory,
        false if source.is_io() => Unreadable::Decompress {
            key,
            source: source.into(),
        },
        false => Unreadable::Parse { key, source },
    })
}

fn json(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).expect("results have text keys only, so that they are always JSON")
}

fn parse<T: DeserializeOwned>(key: &'static str, text: &[u8]) -> Result<T, Unreadable> {
    serde_json::from_slice(text).map_err(|source| Unreadable::Parse { key, source })
}

fn parts(key: &'static str, text: &str, most: usize) -> Vec<Part> {
    if text.is_empty() {
        return vec![];
    }
    let mut encoder = GzEncoder::new(vec![], Compression::default());
    let compressed = encoder.write_all(text.as_bytes()).and_then(|()| encoder.finish());
    let compressed = compressed.expect("memory takes all that is written to it");
    compressed
        .chunks(most)
        .map(|chunk| (key, chunk.to_vec()))
        .collect()
}

fn concatenated(key: &'static str, parts: &[Part]) -> Vec<u8> {
    let of_key = parts.iter().filter(|(name, _)| *name == key);
    of_key.flat_map(|(_, bytes)| bytes).copied().collect()
}
