//! Trials of a controlled node: their states, and the tasks behind them.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::Ordering},
    time::Duration,
};

use perfrun_api::node::{
    Measured, Outcome, Reason, Resources, Sample, Side, TrialRequest, TrialState, TrialStatus,
};
use serde::Serialize;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::{
    clock,
    metrics::Metrics,
    probe::Probe,
    record,
    workload::{self, Client, Failed, Findings, Setup, failure},
};

/// Records a node keeps until somebody drops them.
const MOST_RECORDS: usize = 1024;

/// All trials of a node.
pub struct Trials {
    listen_ip: IpAddr,
    metrics: Arc<Metrics>,
    trials: Mutex<HashMap<String, Arc<Trial>>>,
    stopping: CancellationToken,
}

/// Why a trial was not taken.
#[derive(Debug, thiserror::Error, PartialEq)]
pub enum Refusal {
    /// The id is known with another request.
    #[error("trial {0:?} exists with other parameters: use a new id")]
    Different(String),
    /// One trial at a time: two would disturb each other's numbers.
    #[error("the node is busy with trial {0:?}: wait for it, or cancel it by DELETE")]
    Busy(String),
    /// Nobody drops records.
    #[error("the node holds {MOST_RECORDS} trials: drop those that were collected, by DELETE")]
    Full,
    /// The node was told to stop.
    #[error("the node is stopping")]
    Stopping,
}

/// One trial.
pub struct Trial {
    id: String,
    request: TrialRequest,
    probe: Arc<Probe>,
    progress: watch::Sender<Progress>,
    start: watch::Sender<Option<u64>>,
    finish: CancellationToken,
    cancel: CancellationToken,
}

/// What is written to standard output when a trial ends.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Record<'a> {
    r#type: &'static str,
    id: &'a str,
    request: &'a TrialRequest,
    outcome: &'a Outcome,
}

#[derive(Clone)]
struct Progress {
    state: TrialState,
    addresses: Vec<String>,
    outcome: Option<Outcome>,
}

impl Trials {
    /// No trials yet; servers will listen on `listen_ip`.
    pub fn new(listen_ip: IpAddr, metrics: Arc<Metrics>) -> Self {
        Self {
            listen_ip,
            metrics,
            trials: Mutex::default(),
            stopping: CancellationToken::new(),
        }
    }

    /// Takes a trial; `true` if it is new, `false` if it was known with the same request.
    pub fn put(&self, id: &str, request: TrialRequest) -> Result<bool, Refusal> {
        let mut trials = self.lock();
        if let Some(known) = trials.get(id) {
            let same = known.request == request;
            return if same {
                Ok(false)
            } else {
                Err(Refusal::Different(id.to_owned()))
            };
        }
        if self.stopping.is_cancelled() {
            return Err(Refusal::Stopping);
        }
        if let Some((busy, _)) = trials.iter().find(|(_, trial)| !trial.is_finished()) {
            return Err(Refusal::Busy(busy.clone()));
        }
        if trials.len() >= MOST_RECORDS {
            return Err(Refusal::Full);
        }
        let trial = Arc::new(Trial::new(id.to_owned(), request, &self.metrics));
        let setup = Setup {
            stack: trial.request.stack,
            transport: trial.request.transport,
            parameters: trial.request.parameters.clone(),
            listen: (self.listen_ip, 0),
            identity: None,
            max_streams: None,
            stack_metrics: self.metrics.stacks(),
            probe: trial.probe.clone(),
        };
        tokio::spawn(trial.clone().run(setup, self.stopping.clone()));
        trials.insert(id.to_owned(), trial);
        Ok(true)
    }

    /// A trial by its id.
    pub fn get(&self, id: &str) -> Option<Arc<Trial>> {
        self.lock().get(id).cloned()
    }

    /// Cancels a trial that runs, forgets one that ended; `false` if there is none.
    pub fn delete(&self, id: &str) -> bool {
        let mut trials = self.lock();
        let Some(trial) = trials.get(id) else { return false };
        if trial.is_finished() {
            trials.remove(id);
        } else {
            trial.cancel.cancel();
        }
        true
    }

    /// Ends what runs, takes nothing new, and waits until everything has an outcome.
    pub async fn stop(&self) {
        self.stopping.cancel();
        let running: Vec<Arc<Trial>> = self.lock().values().cloned().collect();
        for trial in running {
            trial.status(Duration::MAX, TrialState::Running).await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Arc<Trial>>> {
        self.trials.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Trial {
    fn new(id: String, request: TrialRequest, metrics: &Metrics) -> Self {
        let probe = Arc::new(Probe::new(metrics.trial(request.stack, request.transport)));
        let progress = Progress {
            state: TrialState::Preparing,
            addresses: vec![],
            outcome: None,
        };
        Self {
            id,
            request,
            probe,
            progress: watch::Sender::new(progress),
            start: watch::Sender::new(None),
            finish: CancellationToken::new(),
            cancel: CancellationToken::new(),
        }
    }

    /// What is known; waits up to `wait` until the state is later than `after`.
    pub async fn status(&self, wait: Duration, after: TrialState) -> TrialStatus {
        let mut progress = self.progress.subscribe();
        let later = progress.wait_for(|progress| progress.state > after);
        // Whether it came or not, the current state is the answer.
        let _ = tokio::time::timeout(wait, later).await;
        let Progress {
            state,
            addresses,
            outcome,
        } = self.progress.borrow().clone();
        let counters = &self.probe.counters;
        TrialStatus {
            state,
            addresses,
            bytes_sent: counters.sent.load(Ordering::Relaxed),
            bytes_received: counters.received.load(Ordering::Relaxed),
            outcome,
        }
    }

    /// A client begins when the node's clock shows so many nanoseconds. The first call counts.
    pub fn start(&self, at_nanoseconds: u64) {
        self.start
            .send_if_modified(|start| start.is_none() && start.replace(at_nanoseconds).is_none());
    }

    /// A server's clients are done.
    pub fn finish(&self) {
        self.finish.cancel();
    }

    fn is_finished(&self) -> bool {
        self.progress.borrow().state == TrialState::Finished
    }

    /// Runs the trial to its outcome, whatever happens in it.
    async fn run(self: Arc<Self>, setup: Setup, stopping: CancellationToken) {
        let timeout = Duration::try_from_secs_f64(self.request.timeout_seconds).unwrap_or(Duration::MAX);
        let side = self.clone();
        // A task of its own, so that a panic in a stack ends this trial and not the node.
        let mut task = tokio::spawn(async move { side.run_side(setup).await });
        let cut_short = tokio::select! {
            ended = &mut task => {
                let ended = ended.unwrap_or_else(|panic| Err(Failed(failure(Reason::Internal, panic))));
                return self.end(ended);
            }
            () = tokio::time::sleep(timeout) => failure(Reason::Timeout, format!("not done after {timeout:?}")),
            () = self.cancel.cancelled() => failure(Reason::Cancelled, "cancelled on request"),
            () = stopping.cancelled() => failure(Reason::Stopped, "the node was told to stop"),
        };
        task.abort();
        // Its hosts are gone, and so are their sockets, before anybody is told that it ended.
        let _ = task.await;
        self.end(Err(Failed(cut_short)));
    }

    fn end(&self, ended: Result<Measured, Failed>) {
        let (failure, measured) = match ended {
            Ok(measured) => (None, measured),
            Err(Failed(failure)) => (
                Some(failure),
                self.measured(Findings::default(), self.probe.finish()),
            ),
        };
        self.probe
            .metrics
            .ended(failure.as_ref().map(|failure| failure.reason));
        let outcome = Outcome { failure, measured };
        record::write(&Record {
            r#type: "trial",
            id: &self.id,
            request: &self.request,
            outcome: &outcome,
        });
        self.progress.send_modify(|progress| {
            progress.state = TrialState::Finished;
            progress.outcome = Some(outcome);
        });
    }

    async fn run_side(&self, setup: Setup) -> Result<Measured, Failed> {
        match &self.request.side {
            Side::Server => {
                let ready = |addresses| {
                    self.progress.send_modify(|progress| {
                        progress.state = TrialState::Ready;
                        progress.addresses = addresses;
                    });
                };
                let findings = workload::serve(&setup, ready, self.finish.cancelled()).await?;
                Ok(self.measured(findings, self.probe.finish()))
            }
            Side::Client { servers, peers } => {
                let mut client = Client::prepare(setup, servers, *peers).await?;
                self.progress
                    .send_modify(|progress| progress.state = TrialState::Ready);
                let mut start = self.start.subscribe();
                let at = start
                    .wait_for(Option::is_some)
                    .await
                    .map_or(None, |at| *at)
                    .unwrap_or_default();
                clock::wait_until(at).await;
                self.progress
                    .send_modify(|progress| progress.state = TrialState::Running);
                self.probe.begin();
                let begun = clock::now();
                let took = client.run().await?;
                let used = self.probe.finish();
                let measured = self.measured(client.close().await, used);
                Ok(Measured {
                    started_nanoseconds: Some(begun),
                    seconds: took.as_secs_f64(),
                    ..measured
                })
            }
        }
    }

    /// What was counted, found and used.
    fn measured(&self, findings: Findings, (resources, samples): (Resources, Vec<Sample>)) -> Measured {
        let counters = &self.probe.counters;
        for (distribution, recorder) in &findings.recorders {
            self.probe.metrics.observe(*distribution, recorder);
        }
        Measured {
            bytes_sent: counters.sent.load(Ordering::Relaxed),
            bytes_received: counters.received.load(Ordering::Relaxed),
            connections: counters.connections.load(Ordering::Relaxed),
            streams: counters.streams.load(Ordering::Relaxed),
            failures: counters.failures.load(Ordering::Relaxed),
            upload: findings.upload,
            download: findings.download,
            histograms: findings
                .recorders
                .iter()
                .map(|(name, recorder)| (*name, recorder.into()))
                .collect(),
            resources,
            samples,
            started_nanoseconds: None,
            seconds: 0.0,
        }
    }
}
