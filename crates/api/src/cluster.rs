//! What a run looks like in a cluster: labels, conditions, and the ConfigMaps that keep its results.
//!
//! Complete results are too large for one object, so they are kept in several, in the order that `status.results` names
//! them. Each has one of two keys of binary data:
//!
//! - [`TRIALS_KEY`]: trial records, one JSON document a line, gzip. Written while the run goes on.
//! - [`RESULTS_KEY`]: a [`Results`] document without its trials, gzip. Written when the run ends.
//!
//! The values of a key, concatenated in order, are one gzip stream: `zcat` reads them, too.

use std::{
    collections::BTreeMap,
    io::{self, Read, Write},
};

use flate2::{Compression, read::MultiGzDecoder, write::GzEncoder};
use perfrun_contract::record::TrialRecord;
use thiserror::Error;

use crate::results::Results;

/// Label of everything that belongs to a run: its name.
pub const RUN_LABEL: &str = "perfrun.io/run";
/// Label of a pod: the name that the plan has for its node.
pub const NODE_LABEL: &str = "perfrun.io/node";
/// Label of a pod: `server` or `client`.
pub const ROLE_LABEL: &str = "perfrun.io/role";
/// Label of a pod: 0 for the first pod of a node, 1 for the one that replaced it, and so on.
pub const INCARNATION_LABEL: &str = "perfrun.io/incarnation";
/// Label that says what made an object: [`MANAGER`].
pub const MANAGED_BY_LABEL: &str = "app.kubernetes.io/managed-by";
/// Field manager of the operator, and the value of [`MANAGED_BY_LABEL`].
pub const MANAGER: &str = "perfrun-operator";

/// Key of trial records in a ConfigMap.
pub const TRIALS_KEY: &str = "trials.jsonl.gz";
/// Key of the results without their trials.
pub const RESULTS_KEY: &str = "results.json.gz";
/// Most bytes of one part: a ConfigMap holds 1 MiB, metadata included.
pub const PART_BYTES: usize = 900 << 10;

/// Types of conditions, in the order in which they become true.
pub mod condition {
    /// Unknown: not looked at yet. False: the document cannot be run, the message says why. True: it can.
    pub const ACCEPTED: &str = "Accepted";
    /// Unknown: waits to be started, the reason says for what. False: pods are being started, or could not be. True:
    /// all of them were ready.
    pub const PROVISIONED: &str = "Provisioned";
    /// Unknown: not begun. True: trials are being run. False: no longer.
    pub const RUNNING: &str = "Running";
    /// Only of runs that impair links. Unknown: no link was measured yet. True: every network that was measured was as asked
    /// for the last time. False: one was not, or links cannot be impaired here; the message says which, and why.
    pub const LINKS_VERIFIED: &str = "LinksVerified";
    /// False: the run goes on. True: it has ended and nothing will change any more; the reason says how it ended.
    pub const COMPLETE: &str = "Complete";
}

/// Why kept results cannot be read.
#[derive(Debug, Error)]
pub enum Unreadable {
    /// A part is missing or damaged.
    #[error("failed to decompress {key}: a part is missing or damaged")]
    Decompress {
        /// Which key.
        key: &'static str,
        /// Why.
        source: io::Error,
    },
    /// Written by another version.
    #[error("unable to read {key}: it was written by another version of perfrun")]
    Parse {
        /// Which key.
        key: &'static str,
        /// Why.
        source: serde_json::Error,
    },
}

/// One ConfigMap's worth of results: a key and its value.
pub type Part = (&'static str, Vec<u8>);

/// Trial records as parts to keep. Each can be read without the others, so that one that was not written takes no other
/// with it.
pub fn trials_to_parts(records: &[TrialRecord]) -> Vec<Part> {
    if records.is_empty() {
        return vec![];
    }
    let lines = records
        .iter()
        .map(|record| json(record) + "\n")
        .collect::<String>();
    let compressed = compress(&lines);
    if compressed.len() <= PART_BYTES || records.len() == 1 {
        return vec![(TRIALS_KEY, compressed)];
    }
    let (first, second) = records.split_at(records.len() / 2);
    [trials_to_parts(first), trials_to_parts(second)].concat()
}

/// Results as parts to keep, without their trials.
pub fn results_to_parts(results: Results) -> Vec<Part> {
    let head = Results {
        trials: vec![],
        ..results
    };
    compress(&json(&head))
        .chunks(PART_BYTES)
        .map(|chunk| (RESULTS_KEY, chunk.to_vec()))
        .collect()
}

/// Trial records from the parts of a run, in the order of the parts. Other parts are passed over.
pub fn trials_from_parts<'a>(
    parts: impl IntoIterator<Item = &'a Part>,
) -> Result<Vec<TrialRecord>, Unreadable> {
    let text = text(TRIALS_KEY, parts)?;
    text.lines().map(|line| parse(TRIALS_KEY, line)).collect()
}

/// Complete results from the parts of a run that has ended; `None` if no results were kept.
pub fn results_from_parts(kept: &[Part]) -> Result<Option<Results>, Unreadable> {
    let head = text(RESULTS_KEY, kept)?;
    if head.is_empty() {
        return Ok(None);
    }
    let mut results: Results = parse(RESULTS_KEY, &head)?;
    // A record is kept twice when an operator was killed between keeping and remembering that it did.
    let mut records = BTreeMap::new();
    for (order, record) in trials_from_parts(kept)?.into_iter().enumerate() {
        records
            .entry((record.trial.id.clone(), record.attempt))
            .or_insert((order, record));
    }
    let mut records: Vec<_> = records.into_values().collect();
    records.sort_by_key(|(order, _)| *order);
    results.trials = records.into_iter().map(|(_, record)| record).collect();
    Ok(Some(results))
}

fn json(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).expect("results have text keys only, so that they are always JSON")
}

fn parse<T: serde::de::DeserializeOwned>(key: &'static str, text: &str) -> Result<T, Unreadable> {
    serde_json::from_str(text).map_err(|source| Unreadable::Parse { key, source })
}

fn compress(text: &str) -> Vec<u8> {
    let mut encoder = GzEncoder::new(vec![], Compression::default());
    let compressed = encoder.write_all(text.as_bytes()).and_then(|()| encoder.finish());
    compressed.expect("memory takes all that is written to it")
}

fn text<'a>(key: &'static str, parts: impl IntoIterator<Item = &'a Part>) -> Result<String, Unreadable> {
    let compressed: Vec<u8> = parts
        .into_iter()
        .filter(|(name, _)| *name == key)
        .flat_map(|(_, bytes)| bytes)
        .copied()
        .collect();
    let mut text = String::new();
    if !compressed.is_empty() {
        MultiGzDecoder::new(compressed.as_slice())
            .read_to_string(&mut text)
            .map_err(|source| Unreadable::Decompress { key, source })?;
    }
    Ok(text)
}
