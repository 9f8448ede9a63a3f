//! Reading what an earlier conductor of a run has kept.
//!
//! Everybody who may write ConfigMaps may change the journal, and an author chooses the store. So nothing in
//! it may exhaust the operator: parts are read one group at a time, records one at a time, and only what
//! statistics need is kept.

use std::collections::{BTreeMap, BTreeSet};

use perfrun_api::{
    cluster::{JsonBytesLeft, PartKind, RESULTS_JSON_MAX, read_trials, trial_line},
    planning::TRIALS_MAX,
};
use perfrun_conductor::ATTEMPTS;
use perfrun_contract::{plan::Plan, record::TrialRecord, text};
use tokio::task::spawn_blocking;

use super::{super::totals::RecordTotals, Budget, Error, NumberedParts};
use crate::build::RunIdentity;

/// Parts with greater numbers are not the operator's: it writes less than one for each trial.
const NUMBER_MAX: u64 = 2 * TRIALS_MAX;
/// Most bytes of a group: of parts that were compressed together. The operator compresses 4 MiB and a record
/// of up to 16 MiB together, and gzip makes that smaller by a quarter at least.
const GROUP_BYTES: usize = 16 << 20;
/// Most bytes of all records as JSON, without what only the complete results need.
const BRIEF_BYTES: u64 = 128 << 20;
/// Most bytes of one such record: its message has at most 4000.
const BRIEF_RECORD_BYTES: u64 = 8 << 10;
/// Most bytes of such a record on average.
const BRIEF_AVERAGE_BYTES: u64 = 2 << 10;

/// Parts with records, by their numbers: the name of each, and the number of the one that it continues.
type Parts = BTreeMap<usize, (String, Option<usize>)>;

/// The records of a run in its parts.
pub(super) struct Contents {
    /// Names of the readable parts, in order.
    pub(super) names: Vec<String>,
    /// Records without what only the complete results need. Each is there once.
    pub(super) records: Vec<TrialRecord>,
    /// What the complete records amount to.
    pub(super) totals: RecordTotals,
    /// The number of the parts that cannot be read, and the name of the first of them with the reason.
    pub(super) unreadable: usize,
    pub(super) first_unreadable: Option<(String, String)>,
    /// The number after those of all parts.
    pub(super) next: usize,
    /// Bytes of the readable parts.
    pub(super) compressed: u64,
    /// The trials and numbers of the attempts in `records`.
    known_attempts: BTreeSet<(String, u32)>,
    bytes_left: JsonBytesLeft,
    brief_bytes: u64,
    brief_bytes_max: u64,
    records_max: usize,
}

impl NumberedParts {
    /// Reads the records of a run.
    pub(super) async fn read(&self, plan: &Plan) -> Result<Contents, Error> {
        let (listed, run) = (self.store.list().await?, self.run.clone());
        // Sorting a hundred thousand names takes longer than tasks may take.
        let sorted = spawn_blocking(move || {
            let parts = numbered(&run, listed);
            let next = parts.last_key_value().map_or(0, |(number, _)| number + 1);
            (next, groups(parts))
        });
        let (next, groups) = sorted.await.expect("sorting parts does not panic");
        let mut contents = Contents::new(plan, next);
        for names in groups {
            // A slow store keeps no other run waiting. Its answers have the bounds of those of nodes.
            let early = match self.store.is_prompt() {
                true => Some(self.memory.for_reading().await),
                false => None,
            };
            contents = match self.read_group(&names).await? {
                Err(why) => {
                    contents.leave_out(&names, &why);
                    contents
                }
                Ok(compressed) => {
                    let room = match early {
                        Some(early) => early,
                        None => self.memory.for_reading().await,
                    };
                    // Decompressing takes longer than tasks may take.
                    let read = spawn_blocking(move || {
                        contents.add(names, &compressed);
                        drop(room);
                        contents
                    });
                    read.await.expect("reading records does not panic")
                }
            };
        }
        Ok(contents)
    }

    /// The data of parts that were compressed together, or why there are none.
    async fn read_group(&self, names: &[String]) -> Result<Result<Vec<u8>, String>, Error> {
        let mut compressed = vec![];
        for name in names {
            let most = GROUP_BYTES - compressed.len();
            match self.store.get(name, most).await? {
                Err(why) => return Ok(Err(why)),
                Ok(bytes) if bytes.len() <= most => compressed.extend(bytes),
                Ok(_) => return Ok(Err("more belongs together than perfrun writes".to_owned())),
            }
        }
        Ok(Ok(compressed))
    }
}

/// The parts with records among all of the run.
fn numbered(run: &RunIdentity, all: Vec<(String, Option<String>)>) -> Parts {
    let number = |name: &str| PartKind::Trials.number(&run.name, &run.uid, name);
    let parts = all.into_iter().filter_map(|(name, previous)| {
        let continues = previous.and_then(|previous| number(&previous));
        let number = number(&name).filter(|number| *number as u64 <= NUMBER_MAX)?;
        Some((number, (name, continues)))
    });
    parts.collect()
}

/// Groups parts whose data were compressed together. Another operator may have created parts between those
/// of a group. If two parts continue the same one, the operator of the group has written one part twice,
/// because it did not get the answer to the first write, and has continued the second.
fn groups(parts: Parts) -> Vec<Vec<String>> {
    let mut groups: Vec<Vec<String>> = vec![];
    // The group of each part, and the number of those before it there.
    let mut positions: BTreeMap<usize, (usize, usize)> = BTreeMap::new();
    for (number, (name, continues)) in parts {
        let begun = continues.and_then(|previous| positions.get(&previous));
        let (group, before) = begun.map_or((groups.len(), 0), |(group, before)| (*group, before + 1));
        if group == groups.len() {
            groups.push(vec![]);
        }
        groups[group].truncate(before);
        groups[group].push(name);
        positions.insert(number, (group, before));
    }
    groups
}

impl Contents {
    fn new(plan: &Plan, next: usize) -> Self {
        let records_max = plan.trials.len() * ATTEMPTS as usize;
        Self {
            names: vec![],
            records: vec![],
            totals: RecordTotals::new(plan),
            unreadable: 0,
            first_unreadable: None,
            next,
            compressed: 0,
            known_attempts: BTreeSet::new(),
            bytes_left: JsonBytesLeft::default(),
            brief_bytes: 0,
            // All records of a run with few trials may be longer than the average.
            brief_bytes_max: BRIEF_BYTES.min(records_max as u64 * BRIEF_AVERAGE_BYTES + (1 << 20)),
            records_max,
        }
    }

    /// What is used of a budget of this many bytes.
    pub(super) fn budget(&self, most: u64) -> Budget {
        Budget {
            most,
            compressed: self.compressed,
            text: RESULTS_JSON_MAX - self.bytes_left.0,
        }
    }

    /// Adds the records in parts whose data were compressed together: all of them or, if one cannot be
    /// read, none. A record in several parts counts once.
    fn add(&mut self, names: Vec<String>, compressed: &[u8]) {
        let (mut fresh, mut attempts, mut totals) = (vec![], BTreeSet::new(), self.totals.continued());
        let (mut bytes, mut refused) = (self.brief_bytes, None);
        let room = self.records_max - self.records.len();
        let read = read_trials(compressed, &mut self.bytes_left, |mut record| {
            let key = (record.trial.id.clone(), record.attempt);
            if refused.is_some() || self.known_attempts.contains(&key) || !attempts.insert(key) {
                return;
            }
            if let Some(failure) = &mut record.failure {
                failure.message = text::message(&failure.message);
            }
            let brief = record.brief();
            let length = trial_line(&brief).len() as u64;
            bytes += length;
            if length > BRIEF_RECORD_BYTES {
                refused = Some("a record has more text than perfrun writes");
            } else if bytes > self.brief_bytes_max || fresh.len() >= room {
                refused = Some("there are more records than trials of the run");
            }
            totals.add(&record);
            fresh.push(brief);
        });
        match (read, refused) {
            (Err(error), _) => self.leave_out(&names, &error_reporter::Report::new(error).to_string()),
            (Ok(()), Some(why)) => self.leave_out(&names, why),
            (Ok(()), None) => {
                self.names.extend(names);
                self.totals.join(&fresh, totals);
                self.records.append(&mut fresh);
                self.known_attempts.extend(attempts);
                self.compressed += compressed.len() as u64;
                self.brief_bytes = bytes;
            }
        }
    }

    /// Notes parts that are left out. The reason is cut: that of a record which is not one may contain all of
    /// it.
    fn leave_out(&mut self, names: &[String], why: &str) {
        self.unreadable += names.len();
        if self.first_unreadable.is_none() {
            let first = names.first().map(|name| (name.clone(), text::message(why)));
            self.first_unreadable = first;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc, thread, time::Duration};

    use perfrun_api::cluster::trials_to_parts;

    use super::*;

    #[test]
    fn parts_of_two_operators_are_distinguished() {
        let continued = [None, None, Some(0), Some(1), Some(2), Some(9)];
        let parts = continued.into_iter().enumerate();
        let parts = parts.map(|(number, continues)| (number, (number.to_string(), continues)));
        let groups = groups(parts.collect());
        assert_eq!(groups, [vec!["0", "2", "4"], vec!["1", "3"], vec!["5"]]);
    }

    #[test]
    fn a_part_that_was_written_twice_counts_once() {
        let continued = [None, Some(0), Some(0), Some(2)].into_iter().enumerate();
        let parts = continued.map(|(number, continues)| (number, (number.to_string(), continues)));
        assert_eq!(groups(parts.collect()), [vec!["0", "2", "3"]]);
    }

    #[test]
    fn four_hundred_thousand_parts_are_grouped_and_each_is_read_once() {
        let parts: Parts = (0..400_000)
            .map(|number| (number, (String::new(), None)))
            .collect();
        let (done, grouped) = mpsc::channel();
        thread::spawn(move || done.send(groups(parts).len()));
        // If all earlier groups were read for each part, 80,000 million would be read.
        assert_eq!(grouped.recv_timeout(Duration::from_secs(60)), Ok(400_000));
    }

    #[test]
    fn the_reason_why_parts_cannot_be_read_is_short_however_many_there_are() {
        let mut contents = Contents::new(&Plan::default(), 0);
        let line = format!("{{\"trial\":\"{}\"}}\n", "x".repeat(1 << 20));
        for name in ["first", "second"] {
            let (_, compressed) = trials_to_parts(&line, usize::MAX).remove(0);
            contents.add(vec![name.to_owned()], &compressed);
        }
        assert_eq!(contents.unreadable, 2);
        let (name, why) = contents.first_unreadable.unwrap();
        assert_eq!((name.as_str(), why.chars().count()), ("first", text::MESSAGE_MAX));
    }
}
