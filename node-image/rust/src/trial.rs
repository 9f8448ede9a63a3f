//! Trials of a controlled node: their states, and the tasks behind them.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use perfrun_contract::node::{
    Distribution, Failure, Measured, Outcome, Reason, Resources, Side, TrialRequest, TrialState, TrialStatus,
};
use serde::Serialize;
use tokio::sync::{oneshot, watch};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use crate::{
    clock,
    metrics::{Metrics, TrialMetrics},
    probe::{Probe, Seen},
    record, request,
    sampler::{self, Sampling},
    workload::{self, Client, Failed, Findings, Listening, Setup, failure},
};

/// Records a node keeps until somebody drops them.
const MOST_RECORDS: usize = 1024;
/// How long the hosts of a client may take to close after a failure: its peer may be the reason, and not answer.
const CLOSE_AFTER_FAILURE: Duration = Duration::from_secs(2);

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
    /// The request makes no sense.
    #[error("unable to run this trial: {0}")]
    Invalid(String),
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
    /// What the request allows, from now on.
    time: Allowance,
    /// When a client's workload began, in the node's clock and in the runtime's.
    begun: OnceLock<(u64, Instant)>,
    /// How long it took, if it completed.
    took: OnceLock<Duration>,
    /// Whether somebody has seen the outcome.
    collected: AtomicBool,
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
        request::check(&request).map_err(Refusal::Invalid)?;
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
            download: None,
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

    /// Whether there is an outcome that nobody has seen.
    pub fn has_uncollected(&self) -> bool {
        self.lock()
            .values()
            .any(|trial| !trial.collected.load(Ordering::Relaxed))
    }

    /// Whether the node was told to stop.
    pub fn is_stopping(&self) -> bool {
        self.stopping.is_cancelled()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Arc<Trial>>> {
        self.trials.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The time that a trial may take.
#[derive(Clone, Copy)]
struct Allowance {
    whole: Duration,
    begun: Instant,
}

impl Allowance {
    fn exceeded(self) -> String {
        format!("not done after {:?}", self.whole)
    }

    /// What a failure is called that is noticed `now`. A process that stood still, or its machine, finds that its
    /// connections broke meanwhile, perhaps before it finds that its time is up.
    fn judge(self, Failed(noticed): Failed, now: Instant) -> Failed {
        Failed(if now.saturating_duration_since(self.begun) < self.whole {
            noticed
        } else {
            failure(
                Reason::Timeout,
                format!("{}: {}", self.exceeded(), noticed.message),
            )
        })
    }
}

impl Trial {
    fn new(id: String, request: TrialRequest, metrics: &Metrics) -> Self {
        let labelled = metrics.trial(request.stack, request.transport, &request.labels);
        let probe = Arc::new(Probe::new(labelled, Sampling::from(&request.parameters)));
        let progress = Progress {
            state: TrialState::Preparing,
            addresses: vec![],
            outcome: None,
        };
        let whole = Duration::try_from_secs_f64(request.timeout_seconds).unwrap_or(Duration::MAX);
        Self {
            id,
            request,
            time: Allowance {
                whole,
                begun: Instant::now(),
            },
            probe,
            progress: watch::Sender::new(progress),
            start: watch::Sender::new(None),
            finish: CancellationToken::new(),
            cancel: CancellationToken::new(),
            begun: OnceLock::new(),
            took: OnceLock::new(),
            collected: AtomicBool::new(false),
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
        let (bytes_sent, bytes_received) = match &outcome {
            Some(Outcome { measured, .. }) => (measured.bytes_sent, measured.bytes_received),
            None => (
                counters.sent.load(Ordering::Relaxed),
                counters.received.load(Ordering::Relaxed),
            ),
        };
        TrialStatus {
            state,
            addresses,
            bytes_sent,
            bytes_received,
            outcome,
        }
    }

    /// Its outcome was handed over.
    pub fn collected(&self) {
        self.collected.store(true, Ordering::Relaxed);
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
        let side = self.clone();
        let (cut, is_cut) = oneshot::channel();
        // A task of its own, so that a panic in a stack ends this trial and not the node.
        let mut task = tokio::spawn(async move {
            let mut findings = Findings::default();
            let mut served = None;
            // Of both sides the server still has to end.
            let is_both = matches!(side.request.side, Side::Both { .. });
            let completed = || side.took.get().is_some() && !is_both;
            let ran = side.run_side(setup, &mut findings, &mut served);
            let ended = unless_cut(ran, is_cut, completed).await;
            (ended.err().map(|Failed(failure)| failure), findings, served)
        });
        let ended = tokio::select! {
            ended = &mut task => ended,
            cut_short = self.cut_short(stopping) => {
                self.probe.finish();
                // If nobody hears it, the task has just ended by itself.
                let _ = cut.send(cut_short);
                task.await
            }
        };
        let panicked = |panic| (Some(failure(Reason::Internal, panic)), Findings::default(), None);
        let (failure, findings, served) = ended.unwrap_or_else(panicked);
        self.end(failure, &findings, served).await;
    }

    /// Waits for what ends a trial from outside.
    async fn cut_short(&self, stopping: CancellationToken) -> Failure {
        tokio::select! {
            () = tokio::time::sleep(self.time.whole) => failure(Reason::Timeout, self.time.exceeded()),
            () = self.cancel.cancelled() => failure(Reason::Cancelled, "cancelled on request"),
            () = stopping.cancelled() => failure(Reason::Stopped, "the node was told to stop"),
        }
    }

    async fn end(&self, failure: Option<Failure>, findings: &Findings, served: Option<Served>) {
        let measured = self.measured(findings);
        let served = served.map(Served::measured);
        // After all that it counts: who scrapes from now on has seen everything.
        self.probe
            .metrics
            .ended(failure.as_ref().map(|failure| failure.reason));
        let outcome = Outcome {
            failure,
            measured,
            served,
        };
        let record = serde_json::to_string(&Record {
            r#type: "trial",
            id: &self.id,
            request: &self.request,
            outcome: &outcome,
        });
        self.progress.send_modify(|progress| {
            progress.state = TrialState::Finished;
            progress.outcome = Some(outcome);
        });
        // Last, and on a thread: a full pipe that nobody reads must hold up neither a trial nor the next.
        if let Ok(record) = record {
            let _ = tokio::task::spawn_blocking(move || record::write_line(&record)).await;
        }
    }

    /// Runs this node's side; `served` is for what a server finds that is beside the client.
    async fn run_side(
        &self,
        setup: Setup,
        findings: &mut Findings,
        served: &mut Option<Served>,
    ) -> Result<(), Failed> {
        let judge = |failed| self.time.judge(failed, Instant::now());
        match &self.request.side {
            Side::Server | Side::Source { .. } | Side::Relay => {
                let ready = |addresses| {
                    self.progress.send_modify(|progress| {
                        progress.state = TrialState::Ready;
                        progress.addresses = addresses;
                    });
                };
                let finish = self.finish.cancelled();
                let listening = match &self.request.side {
                    Side::Source { relay, peers } => Listening::Behind { relay, peers: *peers },
                    Side::Relay => {
                        let served = workload::serve_relay(&setup, ready, finish, findings).await;
                        return served.map_err(judge);
                    }
                    _ => Listening::Here,
                };
                let served = workload::serve(&setup, listening, ready, finish, findings).await;
                served.map_err(judge)
            }
            Side::Client { servers, peers } => self.run_client(setup, servers, *peers, findings).await,
            Side::Both { peers } => {
                let sampling = Sampling::from(&self.request.parameters);
                // The client's metrics are those of this node.
                let probe = Arc::new(Probe::new(TrialMetrics::default(), sampling));
                let served = served.insert(Served {
                    probe: probe.clone(),
                    findings: Findings::default(),
                });
                let server = Setup {
                    probe,
                    ..setup.clone()
                };
                let (listening, addresses) = oneshot::channel();
                let done = CancellationToken::new();
                let finish = done.clone().cancelled_owned();
                // A task of its own: polled inside the client's it would share its core.
                let serve = AbortOnDropHandle::new(tokio::spawn(async move {
                    let mut findings = Findings::default();
                    let ready = |addresses| {
                        let _ = listening.send(addresses);
                    };
                    let ended = workload::serve(&server, Listening::Here, ready, finish, &mut findings).await;
                    (ended, findings)
                }));
                // Nothing: the server says why there are no addresses.
                let ran = match addresses.await {
                    Ok(addresses) => self.run_client(setup, &addresses, *peers, findings).await,
                    Err(_) => Ok(()),
                };
                done.cancel();
                let (ended, found) = serve
                    .await
                    .map_err(|panic| Failed(failure(Reason::Internal, panic)))?;
                served.findings = found;
                let failures = [ran.err(), ended.map_err(judge).err()];
                let root = failures.into_iter().flatten();
                root.min_by_key(|Failed(failure)| failure.reason.remoteness())
                    .map_or(Ok(()), Err)
            }
        }
    }

    async fn run_client(
        &self,
        setup: Setup,
        servers: &[String],
        peers: u32,
        findings: &mut Findings,
    ) -> Result<(), Failed> {
        let judge = |failed| self.time.judge(failed, Instant::now());
        let mut client = Client::prepare(setup, servers, peers, findings)
            .await
            .map_err(judge)?;
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
        let begun = Instant::now();
        // Both are set once: a trial runs once.
        let _ = self.begun.set((clock::nanoseconds(begun), begun));
        let ran = client.run().await.map_err(judge).map(|took| {
            let _ = self.took.set(took);
        });
        self.probe.finish();
        if ran.is_ok() {
            client.close().await;
        } else {
            // What does not close in time is dropped.
            let _ = tokio::time::timeout(CLOSE_AFTER_FAILURE, client.close()).await;
        }
        ran
    }

    /// What was counted, found and used.
    fn measured(&self, findings: &Findings) -> Measured {
        let begun = self.begun.get();
        let measured = measured(&self.probe, findings);
        let until_the_failure = || Some(self.probe.finish().totals.at.saturating_duration_since(begun?.1));
        let took = self.took.get().copied().or_else(until_the_failure);
        Measured {
            started_nanoseconds: begun.map(|(nanoseconds, _)| *nanoseconds),
            seconds: took.unwrap_or_default().as_secs_f64(),
            ..measured
        }
    }
}

/// What a probe saw and a side found.
fn measured(probe: &Probe, findings: &Findings) -> Measured {
    let Seen {
        totals,
        resources,
        samples,
        round_trips,
    } = probe.finish();
    let echoed = round_trips.iter().map(|all| (&Distribution::RoundTrip, all));
    let recorders = || findings.recorders.iter().chain(echoed.clone());
    for (distribution, recorder) in recorders() {
        probe.metrics.observe(*distribution, recorder);
    }
    Measured {
        bytes_sent: totals.sent,
        bytes_received: totals.received,
        connections: totals.connections,
        streams: totals.streams,
        failures: totals.failures,
        errors: sampler::errors(&totals.errors, &Default::default()),
        upload: findings.upload,
        download: findings.download,
        refused: findings.refused.clone(),
        most_circuits: findings.most_circuits,
        histograms: recorders()
            .filter(|(_, recorder)| !recorder.is_empty())
            .map(|(name, recorder)| (*name, recorder.into()))
            .collect(),
        plateau: findings.plateau,
        resources,
        samples,
        ..Measured::default()
    }
}

/// A server in its client's process.
struct Served {
    probe: Arc<Probe>,
    findings: Findings,
}

impl Served {
    /// What it counted and found. What the process used is the client's to tell: half of it would be a guess, and all of it
    /// twice as much as there was.
    fn measured(self) -> Measured {
        let mut measured = measured(&self.probe, &self.findings);
        measured.resources = Resources::default();
        for sample in &mut measured.samples {
            (sample.cpu_seconds, sample.rss_bytes, sample.allocated_bytes) = (0.0, 0, None);
        }
        measured
    }
}

/// Runs a side of a trial until it ends or is cut short; then it is dropped, with its hosts. If it was only closing
/// them, it has completed.
async fn unless_cut(
    side: impl Future<Output = Result<(), Failed>>,
    is_cut: oneshot::Receiver<Failure>,
    completed: impl FnOnce() -> bool,
) -> Result<(), Failed> {
    tokio::select! {
        biased;
        ended = side => ended,
        Ok(cut_short) = is_cut => if completed() { Ok(()) } else { Err(Failed(cut_short)) },
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use super::*;

    async fn reason(
        side: impl Future<Output = Result<(), Failed>>,
        cut: Option<Reason>,
        completed: bool,
    ) -> Option<Reason> {
        let (sender, is_cut) = oneshot::channel();
        // Otherwise nobody will ever cut it, as after a trial that ended by itself.
        if let Some(reason) = cut {
            sender.send(failure(reason, "cut short")).unwrap();
        }
        let ended = unless_cut(side, is_cut, || completed).await;
        ended.err().map(|Failed(failure)| failure.reason)
    }

    #[tokio::test]
    async fn a_trial_that_was_only_closing_when_it_was_cut_short_has_completed() {
        for cut in [Reason::Timeout, Reason::Cancelled, Reason::Stopped] {
            assert_eq!(reason(pending(), Some(cut), true).await, None);
            assert_eq!(reason(pending(), Some(cut), false).await, Some(cut));
        }
    }

    #[test]
    fn what_is_noticed_after_the_time_is_up_is_a_timeout() {
        let begun = Instant::now();
        let whole = Duration::from_secs(2);
        let judged = |after| {
            let broken = Failed(failure(Reason::StreamFailed, "broken"));
            let Failed(failure) = Allowance { whole, begun }.judge(broken, begun + after);
            (failure.reason, failure.message)
        };
        let early = judged(whole - Duration::from_nanos(1));
        assert_eq!(early, (Reason::StreamFailed, "broken".into()));
        assert_eq!(
            judged(whole),
            (Reason::Timeout, "not done after 2s: broken".into())
        );
    }

    #[tokio::test]
    async fn a_trial_that_ended_by_itself_says_how() {
        let broken = || ready(Err(Failed(failure(Reason::StreamFailed, "broken"))));
        for cut in [None, Some(Reason::Timeout)] {
            assert_eq!(reason(ready(Ok(())), cut, true).await, None);
            assert_eq!(reason(broken(), cut, false).await, Some(Reason::StreamFailed));
        }
    }
}
