//! Keeps a run's records in ConfigMaps while it goes on, in few and growing steps: a run's requests to the API server
//! are to grow with the logarithm of its duration and not with its trials.
//!
//! Until a record is in a ConfigMap it is in two other places, here and in its nodes, which forget a trial only
//! afterwards.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client, ResourceExt,
    api::{ListParams, Patch, PatchParams},
};
use perfrun_api::{
    cluster::{MANAGER, Part, RUN_LABEL, TRIALS_KEY, results_to_parts, trials_from_parts, trials_to_parts},
    plan::Plan,
    results::{Results, TrialRecord},
};
use perfrun_conductor::{Kept, Sink};
use tokio::time::{Instant, sleep};

use super::{Shared, Wake, tally::Tally};
use crate::{
    build::{Identity, part},
    names,
};

/// Records are kept this long after the last time at first, and from then on after a quarter of the run's time.
const FLUSH_FIRST: Duration = Duration::from_secs(10);
const FLUSH_SHARE: u32 = 4;
/// So much JSON is kept at once, whatever the time: about what fills a ConfigMap, compressed.
const FLUSH_BYTES: usize = 4 << 20;
/// So many records are kept at once: nodes hold four times as many at most.
const FLUSH_RECORDS: usize = 256;
/// Progress is told this often at first, and from then on after a twentieth of the run's time.
const TELL_FIRST: Duration = Duration::from_secs(1);
const TELL_SHARE: u32 = 20;
const TELL_LAST: Duration = Duration::from_secs(30);
/// Between two attempts to reach the API server.
const PAUSE: Duration = Duration::from_secs(1);

/// The journal of a run.
pub struct Journal {
    api: Api<ConfigMap>,
    run: Identity,
    shared: Arc<Shared>,
    wake: Wake,
    opened: Instant,
    /// All records, without what only the complete results need.
    records: Vec<TrialRecord>,
    tally: Tally,
    /// ConfigMaps with records, in order.
    parts: Vec<String>,
    /// Records that are in none of them.
    pending: Vec<TrialRecord>,
    pending_bytes: usize,
    flushed: Instant,
    told: Instant,
}

impl Journal {
    /// Opens the journal of a run, as whoever conducted it before left it. Waits for an API server that does not answer.
    pub async fn open(client: Client, run: &Identity, plan: &Plan, shared: Arc<Shared>, wake: Wake) -> Self {
        let api: Api<ConfigMap> = Api::namespaced(client, &run.namespace);
        let (parts, records) = loop {
            match read(&api, run).await {
                Ok(read) => break read,
                Err(error) => tracing::warn!(run = run.label(), %error, "failed to read the journal"),
            }
            sleep(PAUSE).await;
        };
        let now = Instant::now();
        let mut tally = Tally::new(plan);
        records.iter().for_each(|record| tally.add(record));
        shared.state().progress = tally.progress();
        Self {
            api,
            run: run.clone(),
            shared,
            wake,
            opened: now,
            records: records.into_iter().map(brief).collect(),
            tally,
            parts,
            pending: vec![],
            pending_bytes: 0,
            flushed: now,
            told: now,
        }
    }

    /// All records, without samples and histograms.
    pub fn records(&self) -> &[TrialRecord] {
        &self.records
    }

    /// Trials by what became of them.
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// Keeps what is pending and the results; returns the names of all ConfigMaps, in order. Goes on while the API server
    /// is away, since they may have taken hours; an error says that it refuses them.
    pub async fn close(mut self, results: Results) -> Result<Vec<String>, kube::Error> {
        while let Err(error) = self.flush().await {
            self.pause_after(error).await?;
        }
        let mut names = self.parts.clone();
        for (number, content) in results_to_parts(results).into_iter().enumerate() {
            let name = names::part(&self.run.name, &self.run.uid, "results", number);
            while let Err(error) = self.write(&name, content.clone()).await {
                self.pause_after(error).await?;
            }
            names.push(name);
        }
        Ok(names)
    }

    async fn pause_after(&self, error: kube::Error) -> Result<(), kube::Error> {
        tracing::warn!(run = self.run.label(), %error, "failed to keep results");
        if is_refusal(&error) {
            return Err(error);
        }
        sleep(PAUSE).await;
        Ok(())
    }

    async fn flush(&mut self) -> Result<(), kube::Error> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let mut written = vec![];
        for (number, content) in trials_to_parts(&self.pending).into_iter().enumerate() {
            let name = names::part(&self.run.name, &self.run.uid, "trials", self.parts.len() + number);
            self.write(&name, content).await?;
            written.push(name);
        }
        self.parts.append(&mut written);
        self.pending.clear();
        self.pending_bytes = 0;
        Ok(())
    }

    async fn write(&self, name: &str, content: Part) -> Result<(), kube::Error> {
        let object = part::part(&self.run, name.to_owned(), content);
        let params = PatchParams::apply(MANAGER).force();
        self.api
            .patch(name, &params, &Patch::Apply(&object))
            .await
            .map(drop)
    }

    /// Whether it is time to keep records. A failed trial is at once: nodes that were lost do not have it any more.
    fn is_due(&self, record: &TrialRecord) -> bool {
        record.failure.is_some()
            || self.pending_bytes >= FLUSH_BYTES
            || self.pending.len() >= FLUSH_RECORDS
            || self.flushed.elapsed() >= FLUSH_FIRST.max(self.opened.elapsed() / FLUSH_SHARE)
    }

    fn tell(&mut self) {
        self.shared.state().progress = self.tally.progress();
        let pause = (self.opened.elapsed() / TELL_SHARE).clamp(TELL_FIRST, TELL_LAST);
        if self.told.elapsed() >= pause {
            self.told = Instant::now();
            (self.wake)();
        }
    }
}

#[async_trait]
impl Sink for Journal {
    async fn record(&mut self, record: &TrialRecord) -> io::Result<Kept> {
        self.pending_bytes += serde_json::to_vec(record)?.len();
        self.pending.push(record.clone());
        self.tally.add(record);
        self.records.push(brief(record.clone()));
        self.tell();
        if !self.is_due(record) {
            return Ok(Kept::InMemory);
        }
        self.flushed = Instant::now();
        // An API server that is away for a while is no reason to stop measuring.
        Ok(match self.flush().await {
            Ok(()) => Kept::Safely,
            Err(error) if is_refusal(&error) => return Err(io::Error::other(error)),
            Err(error) => {
                tracing::warn!(run = self.run.label(), %error, "failed to keep records; they stay with their nodes");
                Kept::InMemory
            }
        })
    }
}

/// Whether the API server would say the same again: no right, no room, no namespace.
fn is_refusal(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if (400..500).contains(&status.code) && ![409, 429].contains(&status.code))
}

/// A record without samples and histograms.
fn brief(mut record: TrialRecord) -> TrialRecord {
    record.nodes.clear();
    record
}

/// The ConfigMaps of a run with records, in order, and the records.
async fn read(api: &Api<ConfigMap>, run: &Identity) -> anyhow::Result<(Vec<String>, Vec<TrialRecord>)> {
    let params = ListParams::default().labels(&format!("{RUN_LABEL}={}", run.name));
    let mut found: BTreeMap<String, Part> = BTreeMap::new();
    for mut object in api.list(&params).await? {
        let ours = object.owner_references().iter().any(|owner| owner.uid == run.uid);
        let bytes = object
            .binary_data
            .as_mut()
            .and_then(|data| data.remove(TRIALS_KEY));
        if let (true, Some(bytes)) = (ours, bytes) {
            found.insert(object.name_any(), (TRIALS_KEY, bytes.0));
        }
    }
    let (mut names, mut parts) = (vec![], vec![]);
    for number in 0..found.len() {
        let name = names::part(&run.name, &run.uid, "trials", number);
        if let Some(part) = found.remove(&name) {
            names.push(name);
            parts.push(part);
        }
    }
    let records = trials_from_parts(&parts)?;
    let mut seen = BTreeSet::new();
    let records = records
        .into_iter()
        .filter(|record| seen.insert((record.trial.id.clone(), record.attempt)));
    Ok((names, records.collect()))
}
