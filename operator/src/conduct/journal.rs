//! Keeps a run's records in parts in a [`PartStore`], which is ConfigMaps or the store of the run, while the
//! run is in progress. It does so in few and growing steps: the number of requests grows with the logarithm
//! of the run's duration, and not with its trials.
//!
//! Until a record is in a part it is in two other places, here and in its nodes, which forget a trial only
//! afterwards. Parts are created and never changed: of two operators that both believe to lead, neither
//! overwrites records of the other. A record that is kept twice counts once.

mod budget;
mod part_store;
mod reading;

use std::{
    collections::{BTreeMap, VecDeque},
    io,
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use backon::{ExponentialBuilder, Retryable};
use perfrun_api::{
    cluster::{Part, PartKind, condition::Reason, results_to_parts, trials_to_parts},
    results::Results,
};
use perfrun_conductor::{Durability, RecordSink};
use perfrun_contract::{
    compare::NotNeeded,
    node::HELD_TRIALS_MAX,
    record::{TrialFailure, TrialRecord},
};
use tokio::{
    sync::OwnedSemaphorePermit,
    task::spawn_blocking,
    time::{Instant, sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use self::{
    budget::{Budget, fit},
    part_store::{Error, PartStore},
    reading::Contents,
};
use super::{Job, Shared, Wake, totals::RecordTotals};
use crate::{
    api::events::{event, publish_event},
    build::RunIdentity,
    process::{metrics::Metrics, shared_memory_budget::SharedMemoryBudget},
};

/// Pause between two flushes at first. Later it is a share of the time since the journal was opened.
const FLUSH_PAUSE_MIN: Duration = Duration::from_secs(10);
const FLUSH_SHARE: u32 = 4;
/// Records with this much JSON are flushed regardless of the time: compressed, it about fills a ConfigMap.
const FLUSH_BYTES: usize = 4 << 20;
/// This number of records is flushed regardless of the time.
const FLUSH_RECORDS: usize = HELD_TRIALS_MAX / 4;
/// How long a flush may delay the measurements.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(10);
/// With this number of records that are not kept, no further trial begins: a node that holds
/// [`HELD_TRIALS_MAX`] trials refuses the next.
const UNKEPT_RECORDS_MAX: usize = HELD_TRIALS_MAX / 4 * 3;
/// Pause between two reports of progress at first. Later it is a share of the time since the journal was
/// opened.
const REPORT_PAUSE_MIN: Duration = Duration::from_secs(1);
const REPORT_SHARE: u32 = 20;
const REPORT_PAUSE_MAX: Duration = Duration::from_secs(30);
/// Pauses between attempts to reach the API server.
const RETRY_PAUSE_MIN: Duration = Duration::from_secs(1);
const RETRY_PAUSE_MAX: Duration = Duration::from_secs(15);
/// How long a run that is over waits for its records to be read, and one that is cancelled for its records to
/// be read or kept.
const READ_TIMEOUT: Duration = Duration::from_secs(60);
/// How long a run that is over waits for its results to be kept, which may have taken hours to measure.
const KEEP_TIMEOUT: Duration = Duration::from_secs(600);

/// The journal of a run.
pub(super) struct Journal {
    numbered: NumberedParts,
    shared: Arc<Shared>,
    wake: Wake,
    /// Cancelled with the run.
    cancel: CancellationToken,
    opened: Instant,
    /// All records, without what only the complete results need.
    records: Vec<TrialRecord>,
    totals: RecordTotals,
    /// Parts with records, in order.
    parts: Vec<String>,
    /// Records that are in no part, a line each, and their number. A flush leaves them here until it has
    /// compressed them, because a run that is cut off drops it at any moment.
    uncompressed: Arc<String>,
    uncompressed_records: usize,
    /// All records that are not, or not completely, kept.
    unkept: usize,
    /// Compressed records that are not, or not completely, kept.
    unwritten: VecDeque<UnwrittenParts>,
    budget: Budget,
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
        let numbered = NumberedParts {
            store: part_store::of(job),
            run: job.run.clone(),
            metrics: job.services.metrics.clone(),
            memory: job.services.memory.clone(),
            next: BTreeMap::new(),
        };
        let contents = read_in_time(&numbered, job, cancel).await?;
        if let Some((name, error)) = &contents.first_unreadable {
            report_unreadable(job, contents.unreadable, name, error).await;
        }
        let now = Instant::now();
        let budget = contents.budget(job.services.result_bytes);
        let mut totals = contents.totals;
        // What is not needed does not depend on where nodes are.
        let judged = perfrun_judge::judged(&job.plan, &contents.records, &BTreeMap::new());
        totals.leave_out(judged.and_then(|judged| judged.not_needed));
        shared.lock().progress = totals.progress();
        Ok(Self {
            numbered: NumberedParts {
                next: BTreeMap::from([(PartKind::Trials, contents.next)]),
                ..numbered
            },
            shared,
            wake: job.wake.clone(),
            cancel: cancel.clone(),
            opened: now,
            budget,
            records: contents.records,
            totals,
            parts: contents.names,
            uncompressed: Arc::default(),
            uncompressed_records: 0,
            unkept: 0,
            unwritten: VecDeque::new(),
            flushed: now,
            reported: now,
        })
    }

    /// What the records amount to.
    pub(super) fn totals(&self) -> &RecordTotals {
        &self.totals
    }

    /// Keeps all records and the results. Returns the names of all parts, in order, and why some are missing.
    /// Tries for [`KEEP_TIMEOUT`] unless they are refused, and for [`READ_TIMEOUT`] if the run is cancelled.
    pub(super) async fn close(mut self, results: Results) -> (Vec<String>, Result<(), Error>) {
        let kept = self.keep_all(results).await;
        (self.parts, kept)
    }

    async fn keep_all(&mut self, results: Results) -> Result<(), Error> {
        let cancel = self.cancel.clone();
        let retries = Some(Retries {
            since: Instant::now(),
            cancel: &cancel,
        });
        self.flush(retries).await?;
        let most = self.numbered.store.part_bytes();
        let parts = compressed(move || results_to_parts(results, most)).await;
        let mut results = UnwrittenParts::new(PartKind::Results, parts);
        self.numbered
            .put_all(&mut results, retries, &mut self.parts)
            .await
    }

    /// Of how many trials samples were merged, to stay within the budget.
    pub(super) fn merged_trials(&self) -> usize {
        let records = self.records.iter();
        records.filter(|record| record.merged_samples.is_some()).count()
    }

    /// Keeps all records. Without `retries` it tries once, for [`FLUSH_TIMEOUT`].
    async fn flush(&mut self, retries: Option<Retries<'_>>) -> Result<(), Error> {
        self.compress().await;
        self.write(retries).await
    }

    /// Compresses the records that are in no part.
    async fn compress(&mut self) {
        let (lines, most) = (self.uncompressed.clone(), self.numbered.store.part_bytes());
        let parts = compressed(move || trials_to_parts(&lines, most)).await;
        // From here on nothing waits until the parts are among those to write.
        self.uncompressed = Arc::default();
        self.uncompressed_records = 0;
        let bytes: usize = parts.iter().map(|(_, bytes)| bytes.len()).sum();
        self.budget.compressed += bytes as u64;
        self.unwritten
            .push_back(UnwrittenParts::new(PartKind::Trials, parts));
    }

    /// Keeps what is compressed.
    async fn write(&mut self, retries: Option<Retries<'_>>) -> Result<(), Error> {
        let write = async {
            while let Some(parts) = self.unwritten.front_mut() {
                self.numbered.put_all(parts, retries, &mut self.parts).await?;
                self.unwritten.pop_front();
            }
            Ok::<_, Error>(())
        };
        match retries {
            // A part whose answer is late is written again.
            None => timeout(FLUSH_TIMEOUT, write).await.unwrap_or(Err(Error::Late))?,
            Some(_) => write.await?,
        }
        self.unkept = 0;
        Ok(())
    }

    /// Whether it is time to keep records. That of a trial which lost a node is kept immediately, because the
    /// node no longer has it. Other failed trials wait like completed ones: their nodes still have them.
    fn is_flush_due(&self, record: &TrialRecord) -> bool {
        let has_lost_node = |failure: &TrialFailure| failure.reason.loses_node();
        record.failure.as_ref().is_some_and(has_lost_node)
            || self.uncompressed.len() >= FLUSH_BYTES
            || self.uncompressed_records >= FLUSH_RECORDS
            || self.flushed.elapsed() >= FLUSH_PAUSE_MIN.max(self.opened.elapsed() / FLUSH_SHARE)
    }

    /// Takes room for what is compressed and not kept. Returns whether all runs together have enough.
    fn take_room(&mut self) -> bool {
        let room = &self.numbered.memory;
        let mut unwritten = self.unwritten.iter_mut();
        unwritten.all(|parts| parts.take_room(room))
    }

    fn publish_progress(&mut self) {
        self.shared.lock().progress = self.totals.progress();
        let pause = (self.opened.elapsed() / REPORT_SHARE).clamp(REPORT_PAUSE_MIN, REPORT_PAUSE_MAX);
        if self.reported.elapsed() >= pause {
            self.reported = Instant::now();
            (self.wake)();
        }
    }
}

#[async_trait]
impl RecordSink for Journal {
    async fn record(&mut self, record: &TrialRecord) -> io::Result<Durability> {
        let counts = self.totals.trials().counts();
        let trials = counts.needed().saturating_sub(counts.ended());
        let (line, merged_samples) = fit(record, self.budget.share(self.uncompressed.len(), trials));
        self.budget.text += line.len() as u64;
        Arc::make_mut(&mut self.uncompressed).push_str(&line);
        self.uncompressed_records += 1;
        self.unkept += 1;
        self.totals.add(record);
        self.records.push(TrialRecord {
            merged_samples: merged_samples.or(record.merged_samples),
            ..record.brief()
        });
        self.publish_progress();
        if !self.is_flush_due(record) {
            return Ok(Durability::InMemory);
        }
        self.compress().await;
        // A store that does not answer for a while does not stop the measurements, as long as nodes and this
        // process have room.
        let is_full = self.unkept >= UNKEPT_RECORDS_MAX || !self.take_room();
        let cancel = self.cancel.clone();
        let retries = is_full.then(|| Retries {
            since: Instant::now(),
            cancel: &cancel,
        });
        let kept = self.write(retries).await;
        // Also after a failure: the next attempt may take as long.
        self.flushed = Instant::now();
        Ok(match kept {
            Ok(()) => Durability::CrashSafe,
            Err(error) if error.is_final() || retries.is_some() => {
                return Err(io::Error::other(error));
            }
            Err(error) => {
                let run = self.numbered.run.label();
                tracing::warn!(run, %error, "failed to keep records; their nodes still have them");
                Durability::InMemory
            }
        })
    }

    /// All records, without samples and histograms.
    fn records(&self) -> &[TrialRecord] {
        &self.records
    }

    fn leave_out(&mut self, not_needed: NotNeeded) {
        self.totals.leave_out(Some(not_needed));
        self.publish_progress();
    }
}

/// Compresses on a thread of its own: it takes longer than tasks may take.
async fn compressed(compress: impl FnOnce() -> Vec<Part> + Send + 'static) -> Vec<Part> {
    let parts = spawn_blocking(compress).await;
    parts.expect("compressing does not panic")
}

/// How long a failed write is repeated.
#[derive(Clone, Copy, Debug)]
struct Retries<'a> {
    since: Instant,
    /// Cancelled with the run.
    cancel: &'a CancellationToken,
}

impl Retries<'_> {
    fn are_over(self) -> bool {
        let limit = if self.cancel.is_cancelled() {
            READ_TIMEOUT
        } else {
            KEEP_TIMEOUT
        };
        self.since.elapsed() >= limit
    }
}

/// Parts that were compressed together and are not kept yet.
struct UnwrittenParts {
    kind: PartKind,
    parts: VecDeque<Part>,
    /// The part before these.
    previous: Option<String>,
    /// The room that they take in memory, which all runs share.
    room: Option<OwnedSemaphorePermit>,
}

impl UnwrittenParts {
    fn new(kind: PartKind, parts: Vec<Part>) -> Self {
        Self {
            kind,
            parts: parts.into(),
            previous: None,
            room: None,
        }
    }

    /// Takes room for the parts until they are kept. Returns whether there is enough.
    fn take_room(&mut self, all: &SharedMemoryBudget) -> bool {
        if self.room.is_none() {
            let bytes = self.parts.iter().map(|(_, bytes)| bytes.len()).sum();
            self.room = all.for_unwritten(bytes);
        }
        self.room.is_some()
    }
}

/// The parts of a run in a store, each under the next free number.
struct NumberedParts {
    store: Box<dyn PartStore>,
    run: RunIdentity,
    metrics: Arc<Metrics>,
    memory: SharedMemoryBudget,
    /// The next number of a part of each kind.
    next: BTreeMap<PartKind, usize>,
}

impl NumberedParts {
    /// Keeps these parts, and adds their names.
    async fn put_all(
        &mut self,
        unwritten: &mut UnwrittenParts,
        retries: Option<Retries<'_>>,
        names: &mut Vec<String>,
    ) -> Result<(), Error> {
        while let Some(part) = unwritten.parts.front() {
            let name = self.put(unwritten, part, retries).await?;
            names.push(name.clone());
            unwritten.previous = Some(name);
            unwritten.parts.pop_front();
        }
        Ok(())
    }

    /// Keeps a part under the next free number. Returns its name.
    async fn put(
        &mut self,
        unwritten: &UnwrittenParts,
        part: &Part,
        retries: Option<Retries<'_>>,
    ) -> Result<String, Error> {
        let kind = unwritten.kind;
        let number = self.next.entry(kind).or_default();
        loop {
            let name = kind.name(&self.run.name, &self.run.uid, *number);
            let attempt = || self.store.put(&name, part, unwritten.previous.as_deref());
            let is_new = match retries {
                None => attempt().await,
                Some(retries) => {
                    attempt
                        .retry(backoff())
                        .when(|error| !error.is_final() && !retries.are_over())
                        .notify(|error, _| tracing::warn!(name, %error, "failed to keep results"))
                        .await
                }
            }?;
            *number += 1;
            if is_new {
                self.metrics.count_kept_bytes(part.1.len());
                return Ok(name);
            }
            // An earlier write that timed out, or another operator, made it.
            tracing::debug!(
                run = self.run.label(),
                name,
                "the part exists; using the next number"
            );
        }
    }
}

/// Reads a run's records, until the run is over or some time after it was cancelled.
async fn read_in_time(
    numbered: &NumberedParts,
    job: &Job,
    cancel: &CancellationToken,
) -> Result<Contents, String> {
    let over = async {
        let cancelled = async {
            cancel.cancelled().await;
            sleep(READ_TIMEOUT).await;
        };
        tokio::select! {
            () = sleep(job.time_left().max(READ_TIMEOUT)) => {}
            () = cancelled => {}
        }
    };
    let mut last = None;
    let read = (|| numbered.read(&job.plan))
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
            let error = last.unwrap_or_else(|| "nobody answered".to_owned());
            Err(format!(
                "the records of the run could not be read in time: {error}"
            ))
        }
    }
}

/// Pauses that double up to [`RETRY_PAUSE_MAX`], without a limit of their number.
fn backoff() -> ExponentialBuilder {
    ExponentialBuilder::default()
        .with_min_delay(RETRY_PAUSE_MIN)
        .with_max_delay(RETRY_PAUSE_MAX)
        .without_max_times()
}

async fn report_unreadable(job: &Job, count: usize, name: &str, error: &str) {
    tracing::warn!(
        run = job.run.label(),
        count,
        name,
        error,
        "parts of the journal cannot be read"
    );
    let message = format!(
        "the results leave out {count} of the run's parts, and their trials are measured again; the first is {name}: \
         {error}"
    );
    let event = event(false, Reason::RecordsUnreadable, &message, "Resume");
    publish_event(&event, &job.reference, &job.services.recorder).await;
}

#[cfg(test)]
mod tests;
