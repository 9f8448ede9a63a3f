//! Reading what an earlier conductor of a run has kept.
//!
//! Everybody who may write ConfigMaps may change the journal, so that nothing in it may exhaust the operator:
//! ConfigMaps are read one document at a time, records one at a time, and only what statistics need is kept.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    ResourceExt,
    api::{ListParams, PartialObjectMeta},
};
use perfrun_api::cluster::{
    Allowance, CONTINUES_ANNOTATION, RESULTS_BYTES, RUN_LABEL, TRIALS_KEY, read_trials, trial_line,
};
use perfrun_contract::record::TrialRecord;
use tokio::task::spawn_blocking;

use super::{Budget, Shelf};
use crate::{
    names,
    refusal::{CallError, within_timeout},
};

/// How many ConfigMaps one request lists.
const PAGE: u32 = 500;
/// Most ConfigMaps of a run that are read. Of a run within its budget there are a few hundred.
const PARTS_MAX: usize = 4096;
/// Most bytes of what was compressed together. The operator compresses some MiB together.
const DOCUMENT_BYTES: usize = 32 << 20;
/// Most bytes of all records as JSON, without what only the complete results need.
const BRIEF_BYTES: u64 = 128 << 20;
/// Most attempts at a trial.
const ATTEMPTS: usize = 2;

/// The records of a run in its ConfigMaps.
pub(super) struct Contents {
    /// Names of the readable ConfigMaps, in order.
    pub(super) names: Vec<String>,
    /// Records without what only the complete results need. Each is there once.
    pub(super) records: Vec<TrialRecord>,
    /// Names of the other ConfigMaps, and why each cannot be read.
    pub(super) unreadable: Vec<(String, String)>,
    /// The number after all of these.
    pub(super) next: usize,
    /// Bytes of the readable ConfigMaps.
    pub(super) compressed: u64,
    seen: BTreeSet<(String, u32)>,
    allowance: Allowance,
    brief_bytes: u64,
    records_max: usize,
}

impl Shelf {
    /// Reads the records of a run with this number of trials.
    pub(super) async fn read(&self, trials: usize) -> Result<Contents, CallError> {
        let parts = self.parts().await?;
        let mut contents = Contents::new(trials, &parts);
        let documents = documents(parts.into_values());
        let mut count = 0;
        for names in documents {
            count += names.len();
            if count > PARTS_MAX {
                contents.leave_out(names, "the run has more ConfigMaps than perfrun writes");
                continue;
            }
            contents = match self.document(&names).await? {
                Err(why) => {
                    contents.leave_out(names, &why);
                    contents
                }
                Ok(compressed) => {
                    // Decompressing takes longer than tasks may take.
                    let read = spawn_blocking(move || {
                        contents.add(names, &compressed);
                        contents
                    });
                    read.await.expect("reading records does not panic")
                }
            };
        }
        Ok(contents)
    }

    /// The ConfigMaps of records by their numbers: the name of each, and of the one that it continues.
    async fn parts(&self) -> Result<BTreeMap<usize, (String, Option<String>)>, CallError> {
        let mut parts = BTreeMap::new();
        let selector = format!("{RUN_LABEL}={}", self.run.name);
        let mut params = ListParams::default().labels(&selector).limit(PAGE);
        loop {
            let page = within_timeout(self.api.list_metadata(&params)).await?;
            parts.extend(page.items.iter().filter_map(|object| self.part(object)));
            params.continue_token = page.metadata.continue_.filter(|token| !token.is_empty());
            if params.continue_token.is_none() {
                return Ok(parts);
            }
        }
    }

    fn part(&self, object: &PartialObjectMeta<ConfigMap>) -> Option<(usize, (String, Option<String>))> {
        let name = object.name_any();
        let mut owners = object.owner_references().iter();
        let is_own = owners.any(|owner| owner.uid == self.run.uid);
        let number = names::part_number(&self.run.name, &self.run.uid, "trials", &name)?;
        let continues = object.annotations().get(CONTINUES_ANNOTATION).cloned();
        is_own.then_some((number, (name, continues)))
    }

    /// The data of ConfigMaps that were compressed together, or why there are none.
    async fn document(&self, names: &[String]) -> Result<Result<Vec<u8>, String>, CallError> {
        let mut compressed = vec![];
        for name in names {
            // The operator has no right to get ConfigMaps.
            let params = ListParams::default().fields(&format!("metadata.name={name}"));
            let found = within_timeout(self.api.list(&params)).await?.items.pop();
            let data = found.and_then(|object| object.binary_data?.remove(TRIALS_KEY));
            let Some(bytes) = data else {
                return Ok(Err(format!("{name} has no {TRIALS_KEY}")));
            };
            compressed.extend(bytes.0);
            if compressed.len() > DOCUMENT_BYTES {
                return Ok(Err("more belongs together than perfrun writes".to_owned()));
            }
        }
        Ok(Ok(compressed))
    }
}

/// Groups ConfigMaps whose data were compressed together, given in the order of their numbers. Another operator
/// may have created ConfigMaps between those of a group.
fn documents(parts: impl Iterator<Item = (String, Option<String>)>) -> Vec<Vec<String>> {
    let mut documents: Vec<Vec<String>> = vec![];
    for (name, continues) in parts {
        let begun = continues.and_then(|previous| {
            let mut documents = documents.iter_mut();
            documents.find(|names| names.last() == Some(&previous))
        });
        match begun {
            Some(names) => names.push(name),
            None => documents.push(vec![name]),
        }
    }
    documents
}

impl Contents {
    fn new(trials: usize, parts: &BTreeMap<usize, (String, Option<String>)>) -> Self {
        Self {
            names: vec![],
            records: vec![],
            unreadable: vec![],
            next: parts
                .last_key_value()
                .map_or(0, |(number, _)| number.saturating_add(1)),
            compressed: 0,
            seen: BTreeSet::new(),
            allowance: Allowance::default(),
            brief_bytes: 0,
            records_max: trials * ATTEMPTS,
        }
    }

    /// What is used of a budget of this many bytes.
    pub(super) fn budget(&self, most: u64) -> Budget {
        Budget {
            most,
            compressed: self.compressed,
            text: RESULTS_BYTES - self.allowance.0,
        }
    }

    /// Adds the records in ConfigMaps whose data were compressed together: all of them or, if one cannot be
    /// read, none. A record in several ConfigMaps counts once.
    fn add(&mut self, names: Vec<String>, compressed: &[u8]) {
        let mut fresh = vec![];
        let (mut bytes, mut is_too_much) = (self.brief_bytes, false);
        let room = self.records_max - self.records.len();
        let read = read_trials(compressed, &mut self.allowance, |record| {
            let brief = record.brief();
            bytes += trial_line(&brief).len() as u64;
            is_too_much |= bytes > BRIEF_BYTES || fresh.len() >= room;
            let is_new = !self.seen.contains(&(brief.trial.id.clone(), brief.attempt));
            if is_new && !is_too_much {
                fresh.push(brief);
            }
        });
        match read {
            Err(error) => self.leave_out(names, &error_reporter::Report::new(error).to_string()),
            Ok(()) if is_too_much => self.leave_out(names, "there are more records than trials of the run"),
            Ok(()) => {
                self.names.extend(names);
                self.compressed += compressed.len() as u64;
                self.brief_bytes = bytes;
                let seen = &mut self.seen;
                fresh.retain(|record| seen.insert((record.trial.id.clone(), record.attempt)));
                self.records.append(&mut fresh);
            }
        }
    }

    fn leave_out(&mut self, names: Vec<String>, why: &str) {
        let unreadable = names.into_iter().map(|name| (name, why.to_owned()));
        self.unreadable.extend(unreadable);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_two_operators_are_told_apart() {
        let part = |name: &str, continues: &str| {
            let continues = (!continues.is_empty()).then(|| continues.to_owned());
            (name.to_owned(), continues)
        };
        let parts = [
            part("0", ""),
            part("1", ""),
            part("2", "0"),
            part("3", "1"),
            part("4", "2"),
            part("5", "of nothing"),
        ];
        let expected = [vec!["0", "2", "4"], vec!["1", "3"], vec!["5"]];
        assert_eq!(documents(parts.into_iter()), expected);
    }
}
