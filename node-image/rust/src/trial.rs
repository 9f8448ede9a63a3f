//! A trial of a controlled node: its state, and the task that runs it.

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use perfrun_contract::{
    distribution::Distribution,
    matrix::Stack,
    node::{Failure, Measured, Outcome, Reason, Resources, Side, TrialRequest, TrialState, TrialStatus},
};
use serde::Serialize;
use tokio::sync::{oneshot, watch};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use crate::{
    clock,
    metrics::{Metrics, TrialMetrics},
    observer::{Observations, Observer},
    output_lines,
    sampler::Sampling,
    workload::{self, Client, Failed, Listening, Measurements, Server, Setup, failure},
};

/// How long the hosts of a client may take to close after a failure, which may mean that its peer no longer
/// answers.
const CLOSE_AFTER_FAILURE_TIMEOUT: Duration = Duration::from_secs(2);

/// One trial.
pub(crate) struct RunningTrial {
    id: String,
    pub(crate) request: TrialRequest,
    pub(crate) observer: Arc<Observer>,
    progress: watch::Sender<Progress>,
    start: watch::Sender<Option<u64>>,
    finish: CancellationToken,
    pub(crate) cancel: CancellationToken,
    /// The time that the request allows.
    timeout: TrialTimeout,
    /// Start of a client's workload, by the node's clock and by the runtime's.
    begun: OnceLock<(u64, Instant)>,
    /// Duration of the workload, if it completed.
    took: OnceLock<Duration>,
    /// Whether the outcome was collected.
    collected: AtomicBool,
}

/// The record that is written to standard output when a trial ends.
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

/// How long a trial may take.
#[derive(Clone, Copy)]
struct TrialTimeout {
    limit: Duration,
    begun: Instant,
}

impl TrialTimeout {
    fn exceeded(self) -> String {
        format!("not completed after {:?}", self.limit)
    }

    /// Turns a failure at `now` into a timeout if the time is up. After its process or machine was suspended,
    /// a trial may find that its connections are broken before it finds that its time is up.
    fn classify_failure(self, Failed(original): Failed, now: Instant) -> Failed {
        Failed(if now.saturating_duration_since(self.begun) < self.limit {
            original
        } else {
            failure(
                Reason::Timeout,
                format!("{}: {}", self.exceeded(), original.message),
            )
        })
    }
}

impl RunningTrial {
    pub(crate) fn new(id: String, stack: Stack, request: TrialRequest, metrics: &Metrics) -> Self {
        let labelled = metrics.trial(stack, request.transport, &request.labels);
        let observer = Arc::new(Observer::new(labelled, Sampling::from(&request.parameters)));
        let progress = Progress {
            state: TrialState::Preparing,
            addresses: vec![],
            outcome: None,
        };
        let limit = Duration::try_from_secs_f64(request.timeout_seconds).unwrap_or(Duration::MAX);
        Self {
            id,
            request,
            timeout: TrialTimeout {
                limit,
                begun: Instant::now(),
            },
            observer,
            progress: watch::Sender::new(progress),
            start: watch::Sender::new(None),
            finish: CancellationToken::new(),
            cancel: CancellationToken::new(),
            begun: OnceLock::new(),
            took: OnceLock::new(),
            collected: AtomicBool::new(false),
        }
    }

    /// The current status. Waits up to `wait` until the state is later than `after`.
    pub(crate) async fn status(&self, wait: Duration, after: TrialState) -> TrialStatus {
        let mut progress = self.progress.subscribe();
        let later = progress.wait_for(|progress| progress.state > after);
        // After a timeout, too, the current state is the answer.
        let _ = tokio::time::timeout(wait, later).await;
        let Progress {
            state,
            addresses,
            outcome,
        } = self.progress.borrow().clone();
        let counters = &self.observer.counters;
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

    /// Marks the outcome as collected.
    pub(crate) fn mark_collected(&self) {
        self.collected.store(true, Ordering::Relaxed);
    }

    /// Whether the outcome was collected.
    pub(crate) fn is_collected(&self) -> bool {
        self.collected.load(Ordering::Relaxed)
    }

    /// Starts a client when the node's clock shows this number of nanoseconds. Only the first call has an
    /// effect.
    pub(crate) fn start(&self, at_nanoseconds: u64) {
        self.start
            .send_if_modified(|start| start.is_none() && start.replace(at_nanoseconds).is_none());
    }

    /// Lets a server end: its clients are done.
    pub(crate) fn finish(&self) {
        self.finish.cancel();
    }

    /// Whether there is an outcome.
    pub(crate) fn is_finished(&self) -> bool {
        self.progress.borrow().state == TrialState::Finished
    }

    /// Runs the trial until it has an outcome.
    pub(crate) async fn run(self: Arc<Self>, setup: Setup, stopping: CancellationToken) {
        let side = self.clone();
        let (cut, is_cut) = oneshot::channel();
        // A task of its own, so that a panic in a stack ends this trial and not the node.
        let mut task = tokio::spawn(async move {
            let mut measurements = Measurements::default();
            let mut served = None;
            // With both sides in this process, the server still has to end.
            let is_both = matches!(side.request.side, Side::Both { .. });
            let completed = || side.took.get().is_some() && !is_both;
            let ran = side.run_side(setup, &mut measurements, &mut served);
            let ended = unless_cut(ran, is_cut, completed).await;
            (ended.err().map(|Failed(failure)| failure), measurements, served)
        });
        let ended = tokio::select! {
            ended = &mut task => ended,
            cut_short = self.cut_short(stopping) => {
                self.observer.finish();
                // Without a receiver, the task has just ended on its own.
                let _ = cut.send(cut_short);
                task.await
            }
        };
        let panicked = |panic| {
            (
                Some(failure(Reason::Internal, panic)),
                Measurements::default(),
                None,
            )
        };
        let (failure, measurements, served) = ended.unwrap_or_else(panicked);
        self.end(failure, &measurements, served).await;
    }

    /// Waits until the trial is ended from outside.
    async fn cut_short(&self, stopping: CancellationToken) -> Failure {
        tokio::select! {
            () = tokio::time::sleep(self.timeout.limit) => failure(Reason::Timeout, self.timeout.exceeded()),
            () = self.cancel.cancelled() => failure(Reason::Cancelled, "cancelled on request"),
            () = stopping.cancelled() => failure(Reason::Stopped, "the node was stopped"),
        }
    }

    async fn end(&self, failure: Option<Failure>, measurements: &Measurements, served: Option<Served>) {
        let measured = self.measured(measurements);
        let served = served.map(Served::measured);
        // After all counts, so that the next scrape includes everything.
        self.observer
            .metrics
            .count_end(failure.as_ref().map(|failure| failure.reason));
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
        // Last, and on a thread: a full pipe without a reader must not delay this trial or the next.
        if let Ok(record) = record {
            let _ = tokio::task::spawn_blocking(move || output_lines::write_line(&record)).await;
        }
    }

    /// Runs this node's side. `served` is for the measurements of a server in the client's process.
    async fn run_side(
        &self,
        setup: Setup,
        measurements: &mut Measurements,
        served: &mut Option<Served>,
    ) -> Result<(), Failed> {
        match &self.request.side {
            Side::Server => self.run_server(&setup, Listening::Here, measurements).await,
            Side::Source { relay, peers } => {
                let peers = *peers;
                self.run_server(&setup, Listening::Behind { relay, peers }, measurements)
                    .await
            }
            Side::Relay => self.run_relay(&setup, measurements).await,
            Side::Client {
                servers,
                peers,
                clocks,
            } => {
                self.run_client(setup, Server::all(servers, clocks), *peers, measurements)
                    .await
            }
            Side::Both { peers } => self.run_both(setup, *peers, measurements, served).await,
        }
    }

    async fn run_server(
        &self,
        setup: &Setup,
        listening: Listening<'_>,
        measurements: &mut Measurements,
    ) -> Result<(), Failed> {
        let ready = |addresses| self.set_listening(addresses);
        let served = workload::serve(setup, listening, ready, self.finish.cancelled(), measurements).await;
        served.map_err(|failed| self.classify_failure(failed))
    }

    async fn run_relay(&self, setup: &Setup, measurements: &mut Measurements) -> Result<(), Failed> {
        let ready = |addresses| self.set_listening(addresses);
        let relayed = workload::serve_relay(setup, ready, self.finish.cancelled(), measurements).await;
        relayed.map_err(|failed| self.classify_failure(failed))
    }

    fn set_listening(&self, addresses: Vec<String>) {
        self.progress.send_modify(|progress| {
            progress.state = TrialState::Ready;
            progress.addresses = addresses;
        });
    }

    /// Runs a client, and a server in the same process.
    async fn run_both(
        &self,
        setup: Setup,
        peers: u32,
        measurements: &mut Measurements,
        served: &mut Option<Served>,
    ) -> Result<(), Failed> {
        // The node's metrics are those of the client.
        let sampling = Sampling::from(&self.request.parameters);
        let observer = Arc::new(Observer::new(TrialMetrics::default(), sampling));
        let served = served.insert(Served {
            observer: observer.clone(),
            measurements: Measurements::default(),
        });
        let server = Setup {
            observer,
            ..setup.clone()
        };
        let (listening, addresses) = oneshot::channel();
        let done = CancellationToken::new();
        let finish = done.clone().cancelled_owned();
        // A task of its own: inside the client's task, both would share one core.
        let serve = AbortOnDropHandle::new(tokio::spawn(async move {
            let mut measurements = Measurements::default();
            let ready = |addresses| {
                let _ = listening.send(addresses);
            };
            let ended = workload::serve(&server, Listening::Here, ready, finish, &mut measurements).await;
            (ended, measurements)
        }));
        let ran = match addresses.await {
            Ok(addresses) => {
                self.run_client(setup, Server::all(&addresses, &[]), peers, measurements)
                    .await
            }
            // The server's failure says why there are no addresses.
            Err(_) => Ok(()),
        };
        done.cancel();
        let (ended, server_measurements) = serve
            .await
            .map_err(|panic| Failed(failure(Reason::Internal, panic)))?;
        served.measurements = server_measurements;
        let failures = [
            ran.err(),
            ended.map_err(|failed| self.classify_failure(failed)).err(),
        ];
        let root = failures
            .into_iter()
            .flatten()
            .min_by_key(|Failed(failure)| failure.reason.remoteness());
        root.map_or(Ok(()), Err)
    }

    fn classify_failure(&self, failed: Failed) -> Failed {
        self.timeout.classify_failure(failed, Instant::now())
    }

    async fn run_client(
        &self,
        setup: Setup,
        servers: Vec<Server>,
        peers: u32,
        measurements: &mut Measurements,
    ) -> Result<(), Failed> {
        let classify = |failed| self.classify_failure(failed);
        let mut client = Client::prepare(setup, servers, peers, measurements)
            .await
            .map_err(classify)?;
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
        self.observer.begin();
        let begun = Instant::now();
        // Both are set once: a trial runs once.
        let _ = self.begun.set((clock::nanoseconds(begun), begun));
        let ran = client.run().await.map_err(classify).map(|took| {
            let _ = self.took.set(took);
        });
        self.observer.finish();
        if ran.is_ok() {
            client.close().await;
        } else {
            // Hosts that do not close in time are dropped.
            let _ = tokio::time::timeout(CLOSE_AFTER_FAILURE_TIMEOUT, client.close()).await;
        }
        ran
    }

    /// The measurements of this node's side.
    fn measured(&self, measurements: &Measurements) -> Measured {
        let begun = self.begun.get();
        let measured = measured(&self.observer, measurements);
        let until_the_failure = || {
            Some(
                self.observer
                    .finish()
                    .totals
                    .at
                    .saturating_duration_since(begun?.1),
            )
        };
        let took = self.took.get().copied().or_else(until_the_failure);
        Measured {
            started_nanoseconds: begun.map(|(nanoseconds, _)| *nanoseconds),
            seconds: took.unwrap_or_default().as_secs_f64(),
            ..measured
        }
    }
}

/// What an observer counted and a side found.
fn measured(observer: &Observer, measurements: &Measurements) -> Measured {
    let Observations {
        totals,
        resources,
        samples,
        round_trips,
    } = observer.finish();
    let echoed = round_trips.iter().map(|all| (&Distribution::RoundTrip, all));
    let recorders = || measurements.recorders.iter().chain(echoed.clone());
    for (distribution, recorder) in recorders() {
        observer.metrics.observe(*distribution, recorder);
    }
    Measured {
        bytes_sent: totals.counts.sent,
        bytes_received: totals.counts.received,
        connections: totals.counts.connections,
        streams: totals.counts.streams,
        failures: totals.counts.failures,
        errors: totals.counts.errors(),
        upload: measurements.upload,
        download: measurements.download,
        refused: measurements.refused.clone(),
        most_circuits: measurements.most_circuits,
        histograms: recorders()
            .filter(|(_, recorder)| !recorder.is_empty())
            .map(|(name, recorder)| (*name, recorder.into()))
            .collect(),
        plateau: measurements.plateau,
        congestion_control: observer.congestion.get().cloned(),
        resources,
        samples,
        ..Measured::default()
    }
}

/// A server in its client's process.
struct Served {
    observer: Arc<Observer>,
    measurements: Measurements,
}

impl Served {
    /// The measurements of the server, without the usage of the process. The client reports that: half of it
    /// would be a guess, and all of it would count twice.
    fn measured(self) -> Measured {
        let mut measured = measured(&self.observer, &self.measurements);
        measured.resources = Resources::default();
        for sample in &mut measured.samples {
            (sample.cpu_seconds, sample.rss_bytes, sample.allocated_bytes) = (0.0, 0, None);
        }
        measured
    }
}

/// Runs a side of a trial until it ends or is cut short, which drops it and its hosts. A side that was only
/// closing its hosts has completed.
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
        // Otherwise the sender is dropped, as after a trial that ended on its own.
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
    fn a_failure_after_the_time_is_up_is_a_timeout() {
        let begun = Instant::now();
        let limit = Duration::from_secs(2);
        let judged = |after| {
            let broken = Failed(failure(Reason::StreamFailed, "broken"));
            let Failed(failure) = TrialTimeout { limit, begun }.classify_failure(broken, begun + after);
            (failure.reason, failure.message)
        };
        let early = judged(limit - Duration::from_nanos(1));
        assert_eq!(early, (Reason::StreamFailed, "broken".into()));
        assert_eq!(
            judged(limit),
            (Reason::Timeout, "not completed after 2s: broken".into())
        );
    }

    #[tokio::test]
    async fn a_trial_that_ended_on_its_own_keeps_its_result() {
        let broken = || ready(Err(Failed(failure(Reason::StreamFailed, "broken"))));
        for cut in [None, Some(Reason::Timeout)] {
            assert_eq!(reason(ready(Ok(())), cut, true).await, None);
            assert_eq!(reason(broken(), cut, false).await, Some(Reason::StreamFailed));
        }
    }
}
