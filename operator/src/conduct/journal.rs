//! Keeps a run's records in ConfigMaps while the run is in progress, in few and growing steps: the number of
//! requests to the API server grows with the logarithm of the run's duration, and not with its trials.
//!
//! Until a record is in a ConfigMap it is in two other places, here and in its nodes, which forget a trial
//! only afterwards. ConfigMaps are created and never changed: of two operators that both believe to lead,
//! neither overwrites records of the other. A record that is kept twice counts once.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use backon::{ExponentialBuilder, Retryable};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, ResourceExt,
    api::{ListParams, PostParams},
};
use perfrun_api::{
    cluster::{MANAGER, Part, RUN_LABEL, TRIALS_KEY, results_to_parts, trials_from_parts, trials_to_parts},
    results::Results,
};
use perfrun_conductor::{Kept, Sink};
use perfrun_contract::{compare::Spared, record::TrialRecord};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::{Job, Shared, Wake, account::RunningAccount};
use crate::{
    build::{RunIdentity, part},
    names,
    publish::record,
    refusal::{CallError, within_timeout},
    status,
};

/// Pause between two flushes at first. Later it is a share of the time since the journal was opened.
const FLUSH_FIRST: Duration = Duration::from_secs(10);
const FLUSH_SHARE: u32 = 4;
/// Records with this much JSON are flushed regardless of the time: compressed, it about fills a ConfigMap.
const FLUSH_BYTES: usize = 4 << 20;
/// This number of records is flushed regardless of the time: nodes hold four times as many at most.
const FLUSH_RECORDS: usize = 256;
/// With this number of records that are not kept, no further trial begins: a node that holds 1024 trials
/// refuses the next.
const PENDING_MAX: usize = 768;
/// Pause between two reports of progress at first. Later it is a share of the time since the journal was
/// opened.
const REPORT_FIRST: Duration = Duration::from_secs(1);
const REPORT_SHARE: u32 = 20;
const REPORT_LAST: Duration = Duration::from_secs(30);
/// Pauses between attempts to reach the API server.
const RETRY_FIRST: Duration = Duration::from_secs(1);
const RETRY_LAST: Duration = Duration::from_secs(15);
/// How long a run that is over, or is cancelled, waits for its records to be read.
const READ_WITHIN: Duration = Duration::from_secs(60);
/// How long a run that is over waits for its results to be kept, which may have taken hours to measure.
const KEEP_WITHIN: Duration = Duration::from_secs(600);

/// The journal of a run.
pub(super) struct Journal {
    shelf: Shelf,
    shared: Arc<Shared>,
    wake: Wake,
    opened: Instant,
    /// All records, without what only the complete results need.
    records: Vec<TrialRecord>,
    account: RunningAccount,
    /// ConfigMaps with records, in order.
    parts: Vec<String>,
    /// Records that are in no ConfigMap.
    pending: Vec<TrialRecord>,
    pending_bytes: usize,
    flushed: Instant,
    reported: Instant,
}

impl Journal {
    /// Opens the journal of a run as the previous conductor left it. Waits for the API server until the run
    /// is over or is cancelled. The error says why the journal could not be read.
    ///
    /// A part that cannot be read is left out, with an event: another version or a person changed it. Its
    /// trials are measured again, which costs less than the run, and no number of the results depends on it.
    pub(super) async fn open(
        job: &Job,
        shared: Arc<Shared>,
        cancel: &CancellationToken,
    ) -> Result<Self, String> {
        let shelf = Shelf {
            api: Api::namespaced(job.client.clone(), &job.run.namespace),
            run: job.run.clone(),
            next: BTreeMap::new(),
        };
        let contents = read_in_time(&shelf, job, cancel).await?;
        for (name, error) in &contents.unreadable {
            report_unreadable(job, name, error).await;
        }
        let now = Instant::now();
        let mut account = RunningAccount::new(&job.plan);
        contents.records.iter().for_each(|record| account.add(record));
        // What is not needed does not depend on where nodes are.
        let judged = perfrun_report::judged(&job.plan, &contents.records, &BTreeMap::new());
        account.spare(judged.and_then(|judged| judged.spared));
        shared.lock().progress = account.progress();
        Ok(Self {
            shelf: Shelf {
                next: BTreeMap::from([("trials", contents.next)]),
                ..shelf
            },
            shared,
            wake: job.wake.clone(),
            opened: now,
            records: contents.records.iter().map(TrialRecord::brief).collect(),
            account,
            parts: contents.names,
            pending: vec![],
            pending_bytes: 0,
            flushed: now,
            reported: now,
        })
    }

    /// What the records amount to.
    pub(super) fn account(&self) -> &RunningAccount {
        &self.account
    }

    /// Keeps the pending records and the results. Returns the names of all ConfigMaps, in order. Tries for
    /// [`KEEP_WITHIN`] unless the API server refuses them.
    pub(super) async fn close(mut self, results: Results) -> Result<Vec<String>, CallError> {
        self.flush(Patience::Long).await?;
        for content in results_to_parts(results) {
            let name = self.shelf.put("results", content, Patience::Long).await?;
            self.parts.push(name);
        }
        Ok(self.parts)
    }

    async fn flush(&mut self, patience: Patience) -> Result<(), CallError> {
        let mut written = vec![];
        for content in trials_to_parts(&self.pending) {
            written.push(self.shelf.put("trials", content, patience).await?);
        }
        self.parts.append(&mut written);
        self.pending.clear();
        self.pending_bytes = 0;
        Ok(())
    }

    /// Whether it is time to keep records. A failed trial is kept immediately, because lost nodes no longer
    /// have it.
    fn is_due(&self, record: &TrialRecord) -> bool {
        record.failure.is_some()
            || self.pending_bytes >= FLUSH_BYTES
            || self.pending.len() >= FLUSH_RECORDS
            || self.flushed.elapsed() >= FLUSH_FIRST.max(self.opened.elapsed() / FLUSH_SHARE)
    }

    fn publish_progress(&mut self) {
        self.shared.lock().progress = self.account.progress();
        let pause = (self.opened.elapsed() / REPORT_SHARE).clamp(REPORT_FIRST, REPORT_LAST);
        if self.reported.elapsed() >= pause {
            self.reported = Instant::now();
            (self.wake)();
        }
    }
}

#[async_trait]
impl Sink for Journal {
    async fn record(&mut self, record: &TrialRecord) -> io::Result<Kept> {
        self.pending_bytes += serde_json::to_vec(record)?.len();
        self.pending.push(record.clone());
        self.account.add(record);
        self.records.push(record.brief());
        self.publish_progress();
        if !self.is_due(record) {
            return Ok(Kept::InMemory);
        }
        self.flushed = Instant::now();
        // An API server that is away for a while does not stop the measurements.
        let patience = match self.pending.len() >= PENDING_MAX {
            true => Patience::Long,
            false => Patience::None,
        };
        Ok(match self.flush(patience).await {
            Ok(()) => Kept::Safely,
            Err(error) if error.is_final() || patience == Patience::Long => {
                return Err(io::Error::other(error));
            }
            Err(error) => {
                let run = self.shelf.run.label();
                tracing::warn!(run, %error, "failed to keep records; their nodes still have them");
                Kept::InMemory
            }
        })
    }

    /// All records, without samples and histograms.
    fn records(&self) -> &[TrialRecord] {
        &self.records
    }

    fn spare(&mut self, spared: Spared) {
        self.account.spare(Some(spared));
        self.publish_progress();
    }
}

/// Whether a failed write is repeated.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Patience {
    None,
    /// For [`KEEP_WITHIN`].
    Long,
}

/// The ConfigMaps of a run.
struct Shelf {
    api: Api<ConfigMap>,
    run: RunIdentity,
    /// The next number of a part, by what it is a part of.
    next: BTreeMap<&'static str, usize>,
}

/// The records of a run in its ConfigMaps.
struct Contents {
    /// Names of the readable ConfigMaps, in order.
    names: Vec<String>,
    records: Vec<TrialRecord>,
    /// Names of the other ConfigMaps, and why each cannot be read.
    unreadable: Vec<(String, String)>,
    /// The number after all of these.
    next: usize,
}

impl Shelf {
    /// Creates a ConfigMap under the next free number. Returns its name.
    async fn put(
        &mut self,
        of: &'static str,
        content: Part,
        patience: Patience,
    ) -> Result<String, CallError> {
        let number = self.next.entry(of).or_default();
        loop {
            let name = names::part(&self.run.name, &self.run.uid, of, *number);
            let object = part::part(&self.run, name.clone(), content.clone());
            let created = create(&self.api, &object, patience).await?;
            *number += 1;
            if created {
                return Ok(name);
            }
            // An earlier write that timed out, or another operator, made it.
            tracing::debug!(
                run = self.run.label(),
                name,
                "the ConfigMap exists; using the next number"
            );
        }
    }

    async fn read(&self) -> Result<Contents, CallError> {
        let params = ListParams::default().labels(&format!("{RUN_LABEL}={}", self.run.name));
        let mut parts = BTreeMap::new();
        for mut object in within_timeout(self.api.list(&params)).await? {
            let is_own = object
                .owner_references()
                .iter()
                .any(|owner| owner.uid == self.run.uid);
            let data = object.binary_data.as_mut();
            let bytes = data.and_then(|data| data.remove(TRIALS_KEY));
            let name = object.name_any();
            let number = names::part_number(&self.run.name, &self.run.uid, "trials", &name);
            if let (true, Some(bytes), Some(number)) = (is_own, bytes, number) {
                parts.insert(number, (name, bytes.0));
            }
        }
        Ok(contents(parts))
    }
}

/// Reads parts, by their numbers. A record in several parts counts once.
fn contents(parts: BTreeMap<usize, (String, Vec<u8>)>) -> Contents {
    let mut contents = Contents {
        names: vec![],
        records: vec![],
        unreadable: vec![],
        next: parts.last_key_value().map_or(0, |(number, _)| number + 1),
    };
    let mut seen = BTreeSet::new();
    for (name, bytes) in parts.into_values() {
        match trials_from_parts([&(TRIALS_KEY, bytes)]) {
            Ok(records) => {
                contents.names.push(name);
                let is_new = |record: &TrialRecord| seen.insert((record.trial.id.clone(), record.attempt));
                contents.records.extend(records.into_iter().filter(is_new));
            }
            Err(error) => contents
                .unreadable
                .push((name, error_reporter::Report::new(error).to_string())),
        }
    }
    contents
}

/// Creates a ConfigMap. Returns `false` if there is one of this name.
async fn create(api: &Api<ConfigMap>, object: &ConfigMap, patience: Patience) -> Result<bool, CallError> {
    let params = PostParams {
        field_manager: Some(MANAGER.to_owned()),
        ..PostParams::default()
    };
    let attempt = || async {
        match within_timeout(api.create(&params, object)).await {
            Ok(_) => Ok(true),
            Err(error) if error.answer().is_some_and(|answer| answer.is_already_exists()) => Ok(false),
            Err(error) => Err(error),
        }
    };
    if patience == Patience::None {
        return attempt().await;
    }
    let started = Instant::now();
    attempt
        .retry(backoff())
        .when(|error| !error.is_final() && started.elapsed() < KEEP_WITHIN)
        .notify(|error, _| tracing::warn!(name = object.name_any(), %error, "failed to keep results"))
        .await
}

/// Reads a run's records, until the run is over or some time after it was cancelled.
async fn read_in_time(shelf: &Shelf, job: &Job, cancel: &CancellationToken) -> Result<Contents, String> {
    let over = async {
        let cancelled = async {
            cancel.cancelled().await;
            sleep(READ_WITHIN).await;
        };
        tokio::select! {
            () = sleep(job.left().max(READ_WITHIN)) => {}
            () = cancelled => {}
        }
    };
    let mut last = None;
    let read = (|| shelf.read())
        .retry(backoff())
        .when(|error| !error.is_final())
        .notify(|error, _| {
            tracing::warn!(run = job.run.label(), %error, "failed to read the journal");
            last = Some(error.to_string());
        });
    let read = tokio::select! {
        read = read => Some(read),
        () = over => None,
    };
    match read {
        Some(Ok(contents)) => Ok(contents),
        Some(Err(error)) => Err(format!("the records of the run could not be read: {error}")),
        None => {
            let error = last.unwrap_or_else(|| "the API server did not answer".to_owned());
            Err(format!(
                "the records of the run could not be read in time: {error}"
            ))
        }
    }
}

/// Pauses that double up to [`RETRY_LAST`], without a limit of their number.
fn backoff() -> ExponentialBuilder {
    ExponentialBuilder::default()
        .with_min_delay(RETRY_FIRST)
        .with_max_delay(RETRY_LAST)
        .without_max_times()
}

async fn report_unreadable(job: &Job, name: &str, error: &str) {
    tracing::warn!(
        run = job.run.label(),
        name,
        error,
        "a part of the journal cannot be read"
    );
    let message =
        format!("ConfigMap {name} is left out of the results, and its trials are measured again: {error}");
    let event = status::event(false, "RecordsUnreadable", &message, "Resume");
    record(&event, &job.reference, &job.recorder).await;
}

#[cfg(test)]
mod tests;
