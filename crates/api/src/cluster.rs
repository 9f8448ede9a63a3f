//! A run in a cluster: labels, conditions, and the ConfigMaps with its results.
//!
//! Complete results are too large for one object. They are stored in several ConfigMaps, in the order of
//! `status.results`. Each has one of two keys of binary data:
//!
//! - [`TRIALS_KEY`]: trial records, one JSON document per line, gzip. Written while the run is in progress.
//! - [`RESULTS_KEY`]: a [`Results`] document without its trials, gzip. Written when the run ends.
//!
//! The values of a key, concatenated in order, are a gzip stream that `zcat` reads.

use std::{
    collections::BTreeMap,
    io::{self, Read, Write},
};

use flate2::{Compression, read::MultiGzDecoder, write::GzEncoder};
use perfrun_contract::record::TrialRecord;
use thiserror::Error;

use crate::results::Results;

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
/// Label of the two pods of a twin, a node of a candidate and the node of its baseline: the name of the
/// baseline's node.
pub const TWIN_LABEL: &str = "perfrun.io/twin";
/// Label of the creator of an object: [`MANAGER`].
pub const MANAGED_BY_LABEL: &str = "app.kubernetes.io/managed-by";
/// Field manager of the operator, and the value of [`MANAGED_BY_LABEL`].
pub const MANAGER: &str = "perfrun-operator";

/// Key of trial records in a ConfigMap.
pub const TRIALS_KEY: &str = "trials.jsonl.gz";
/// Key of the results without their trials.
pub const RESULTS_KEY: &str = "results.json.gz";
/// Most bytes of one part: a ConfigMap holds 1 MiB, including metadata.
pub const PART_BYTES: usize = 900 << 10;

/// Types of conditions, in the order in which they become true.
pub mod condition {
    /// Unknown: not checked yet. False: the document cannot be run; the message gives the cause. True: it can
    /// be run. Of a schedule: no run can be created, or runs are created when they are due.
    pub const ACCEPTED: &str = "Accepted";
    /// Unknown: the run waits to be started; the reason names what it waits for. False: pods are starting, or
    /// failed to. True: all pods have been ready.
    pub const PROVISIONED: &str = "Provisioned";
    /// Unknown: no trial has started. True: trials are in progress. False: they have ended.
    pub const RUNNING: &str = "Running";
    /// Only of runs that impair links. Unknown: no link has been measured. True: the last measurement of each
    /// measured network agreed with its configuration. False: one did not, or links cannot be impaired here;
    /// the message gives the network and the cause.
    pub const LINKS_VERIFIED: &str = "LinksVerified";
    /// Only of runs that compare or expect something. Unknown: the run is in progress, or its trials do not
    /// tell; the reason says why. True: all that is expected is proved to hold. False: some of it does not
    /// hold; the message has the evidence of the first.
    pub const VERDICT: &str = "Verdict";
    /// Only of schedules. Unknown: no run has been due. False: the last run that was due was not created; the
    /// reason says why. True: it was created.
    pub const SCHEDULED: &str = "Scheduled";
    /// False: the run is in progress. True: it has ended and will not change; the reason states how it ended.
    pub const COMPLETE: &str = "Complete";
}

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
    #[error("unable to read {key}: it was written by another version of perfrun")]
    Parse {
        /// Key of the part.
        key: &'static str,
        /// Cause of the failure.
        source: serde_json::Error,
    },
}

/// The results in one ConfigMap: a key and its value.
pub type Part = (&'static str, Vec<u8>);

/// Trial records as parts to store. Each part can be read alone, so that a missing one affects no other.
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

/// Results as parts to store, without their trials.
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

/// Trial records from the parts of a run, in the order of the parts. Parts with other keys are ignored.
pub fn trials_from_parts<'a>(
    parts: impl IntoIterator<Item = &'a Part>,
) -> Result<Vec<TrialRecord>, Unreadable> {
    let text = text(TRIALS_KEY, parts)?;
    text.lines().map(|line| parse(TRIALS_KEY, line)).collect()
}

/// Complete results from the parts of a run that has ended; `None` if there are no results.
pub fn results_from_parts(kept: &[Part]) -> Result<Option<Results>, Unreadable> {
    let head = text(RESULTS_KEY, kept)?;
    if head.is_empty() {
        return Ok(None);
    }
    let mut results: Results = parse(RESULTS_KEY, &head)?;
    // A record is stored twice if an operator was killed before its status listed the ConfigMap.
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
