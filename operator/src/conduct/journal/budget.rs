//! How much of a run's records is kept. Beyond a budget, neighbouring samples are merged; metrics are never
//! left out.

use perfrun_api::cluster::{RECORD_BYTES, RESULTS_JSON_MAX, trial_line};
use perfrun_contract::{
    node::Sample,
    record::{NodeRecord, TrialRecord},
};

/// Most JSON of a run's records. Readers accept twice as much, because a record may be kept twice.
const TEXT_BYTES: u64 = RESULTS_JSON_MAX / 2;
/// Most JSON of a record whose samples can be merged. What such a record has at most is estimated.
const SHARE_BYTES: usize = RECORD_BYTES / 2;
/// How many times smaller gzip makes records with many samples at least: it makes them four to five times
/// smaller.
const RATIO: u64 = 4;

/// The budget of a run, and what is used of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Budget {
    /// Most bytes of compressed records.
    pub(super) most: u64,
    /// Bytes of the records that were compressed.
    pub(super) compressed: u64,
    /// Bytes of all records as JSON.
    pub(super) text: u64,
}

impl Budget {
    /// How much JSON the next record may have if all trials that need room get the same. `uncompressed` is
    /// the JSON that is not compressed yet; `trials` is the number of trials that need room, this one
    /// included.
    pub(super) fn share(&self, uncompressed: usize, trials: usize) -> usize {
        let compressed = self.most.saturating_sub(self.compressed).saturating_mul(RATIO);
        let left = compressed
            .saturating_sub(uncompressed as u64)
            .min(TEXT_BYTES.saturating_sub(self.text));
        let share = left / trials.max(1) as u64;
        usize::try_from(share).map_or(SHARE_BYTES, |share| share.min(SHARE_BYTES))
    }
}

/// A record as a line of about `share` bytes at most, as far as merging samples can achieve that. Also
/// returns how many samples each one stands for: `None` if this merged none, `u32::MAX` if it left out all.
pub(super) fn fit(record: &TrialRecord, share: usize) -> (String, Option<u32>) {
    let longest = record.nodes.values().map(|node| node.measured.samples.len());
    let longest = longest.max().unwrap_or(0);
    let samples: usize = record.nodes.values().map(sample_bytes).sum();
    // A record with very many samples is not serialized as it is.
    let whole = (samples <= share || longest <= 1).then(|| trial_line(record));
    let fitting = whole.filter(|line| line.len() <= share || longest <= 1);
    let (line, merged) = fitting.map_or_else(
        || {
            let base = trial_line(&merged(record, longest)).len();
            let step = match share.saturating_sub(base) {
                0 => longest,
                room => samples.div_ceil(room).clamp(2, longest),
            };
            let merged = merged(record, step);
            (trial_line(&merged), merged.merged_samples)
        },
        |line| (line, None),
    );
    if line.len() <= RECORD_BYTES {
        return (line, merged);
    }
    // Readers accept no larger record. Its metrics are what counts.
    let brief = TrialRecord {
        merged_samples: Some(u32::MAX),
        ..record.brief()
    };
    (trial_line(&brief), brief.merged_samples)
}

/// About how much JSON a node's samples have.
fn sample_bytes(node: &NodeRecord) -> usize {
    let samples = &node.measured.samples;
    let middle = samples.get(samples.len() / 2);
    let bytes = |sample| serde_json::to_string(sample).map_or(0, |json| json.len() + 1);
    middle.map_or(0, bytes) * samples.len()
}

/// The record with this number of neighbouring samples merged into each one.
fn merged(record: &TrialRecord, step: usize) -> TrialRecord {
    let nodes = record.nodes.iter().map(|(name, node)| {
        let mut node = node.clone();
        let samples = node.measured.samples.chunks(step).map(Sample::merged);
        node.measured.samples = samples.collect();
        (name.clone(), node)
    });
    // The conductor may have merged them before, because it had no room for all.
    let before = record.merged_samples.unwrap_or(1);
    TrialRecord {
        links: record.links.clone(),
        merged_samples: Some(before.saturating_mul(u32::try_from(step).unwrap_or(u32::MAX))),
        nodes: nodes.collect(),
        ..record.brief()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use perfrun_contract::{metric::Metric, node::Measured, role::Role};
    use perfrun_test_kit::records::completed;

    use super::*;

    fn with_samples(count: u32) -> TrialRecord {
        let sample = |second| Sample {
            at_seconds: f64::from(second),
            interval_seconds: 1.0,
            bytes_sent: 7,
            ..Sample::default()
        };
        let node = NodeRecord {
            role: Role::Client,
            measured: Measured {
                samples: (1..=count).map(sample).collect(),
                ..Measured::default()
            },
            link: None,
        };
        TrialRecord {
            metrics: BTreeMap::from([(Metric::RoundTripP50, 0.5)]),
            nodes: BTreeMap::from([("client-0".to_owned(), node)]),
            ..completed("c0.i0")
        }
    }

    fn read(line: &str) -> TrialRecord {
        serde_json::from_str(line).unwrap()
    }

    #[test]
    fn remaining_trials_share_the_remaining_budget() {
        let budget = |most, compressed| Budget {
            most,
            compressed,
            text: 0,
        };
        assert_eq!(budget(1000, 0).share(0, 4), 1000);
        assert_eq!(budget(1000, 500).share(0, 2), 1000);
        assert_eq!(budget(1000, 500).share(1000, 2), 500);
        assert_eq!(budget(1000, 2000).share(0, 2), 0);
        assert_eq!(budget(u64::MAX, 0).share(0, 0), SHARE_BYTES);
        let long = Budget {
            text: TEXT_BYTES - 100,
            ..budget(u64::MAX, 0)
        };
        assert_eq!(long.share(0, 1), 100);
    }

    #[test]
    fn a_record_that_fits_stays_as_it_is() {
        let record = with_samples(100);
        let (line, merged) = fit(&record, 1 << 20);
        assert_eq!((read(&line), merged), (record, None));
    }

    #[test]
    fn samples_of_a_record_that_does_not_fit_are_merged_and_nothing_is_lost() {
        let record = with_samples(1000);
        let whole = trial_line(&record).len();
        for share in [whole / 2, whole / 10, 0] {
            let (line, merged) = fit(&record, share);
            // One sample of a node is always left.
            assert!(
                line.len() <= share.max(1500) + share / 10,
                "{} of {share}",
                line.len()
            );
            let read = read(&line);
            assert_eq!(read.merged_samples, merged);
            assert_eq!(read.metrics, record.metrics);
            let samples = &read.nodes["client-0"].measured.samples;
            assert_eq!(samples.len(), 1000_usize.div_ceil(merged.unwrap() as usize));
            assert_eq!(samples.iter().map(|sample| sample.bytes_sent).sum::<u64>(), 7000);
            assert_eq!(samples.last().unwrap().at_seconds, 1000.0);
        }
    }

    #[test]
    fn a_record_without_samples_is_kept_beyond_any_budget() {
        let record = with_samples(0);
        assert_eq!(read(&fit(&record, 0).0), record);
    }

    #[test]
    fn a_record_that_no_reader_accepts_keeps_its_metrics() {
        let mut record = with_samples(1);
        let refused = &mut record.nodes.get_mut("client-0").unwrap().measured.refused;
        refused.insert("x".repeat(RECORD_BYTES), 1);
        let (line, merged) = fit(&record, SHARE_BYTES);
        let read = read(&line);
        assert_eq!((&read.metrics, read.nodes.len()), (&record.metrics, 0));
        assert!(merged.is_some());
    }
}
