//! What happens to runs, and when, as any watcher of the API server sees it.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use anyhow::{Error, Result, ensure};
use futures::StreamExt;
use kube::{
    Api, ResourceExt,
    runtime::watcher::{self, Event, watcher},
};
use perfrun_api::spec::PerfRun;
use perfrun_contract::run::Phase;
use perfrun_e2e::run::{describe, has_ended, phase};
use tokio_util::task::AbortOnDropHandle;

/// The times of all runs. Clones share them.
#[derive(Clone)]
pub(super) struct RunTimes {
    state: Arc<Mutex<State>>,
    _watch: Arc<AbortOnDropHandle<()>>,
}

#[derive(Default)]
struct State {
    runs: BTreeMap<String, Times>,
    failure: Option<String>,
}

#[derive(Clone, Copy, Default)]
struct Times {
    /// The run has begun: its status says so.
    began: Option<Instant>,
    /// The request that made its last pod ready.
    ready: Option<Instant>,
    /// Its status says that all pods are ready.
    running: Option<Instant>,
    ended: Option<Instant>,
}

impl RunTimes {
    /// Watches runs from now on.
    pub(super) fn of(runs: Api<PerfRun>) -> Self {
        let state = Arc::new(Mutex::new(State::default()));
        let watched = state.clone();
        let watch = tokio::spawn(async move {
            let mut events = watcher(runs, watcher::Config::default()).boxed();
            while let Some(event) = events.next().await {
                match event {
                    Ok(Event::Apply(run)) => lock(&watched).note_status(&run),
                    Ok(_) => {}
                    Err(error) => lock(&watched).failure = Some(error.to_string()),
                }
            }
        });
        Self {
            state,
            _watch: Arc::new(AbortOnDropHandle::new(watch)),
        }
    }

    /// Notes that a pod of a run becomes ready by a request that is sent now.
    pub(super) fn note_ready(&self, run: &str, now: Instant) {
        lock(&self.state).runs.entry(run.to_owned()).or_default().ready = Some(now);
    }

    /// Notes why the benchmark cannot continue.
    pub(super) fn fail(&self, error: &Error) {
        lock(&self.state).failure = Some(format!("{error:#}"));
    }

    /// The failure, if there was one.
    pub(super) fn check(&self) -> Result<()> {
        let failure = lock(&self.state).failure.clone();
        ensure!(failure.is_none(), "{}", failure.unwrap_or_default());
        Ok(())
    }

    /// The number of runs that have ended.
    pub(super) fn ended(&self) -> usize {
        self.times().iter().filter(|times| times.ended.is_some()).count()
    }

    /// From each end of a run to the start of the run that takes its turn, in milliseconds, where `active`
    /// runs are active together.
    pub(super) fn delays_of_starts(&self, active: usize) -> Vec<f64> {
        let times = self.times();
        let sorted = |of: fn(&Times) -> Option<Instant>| {
            let mut all: Vec<_> = times.iter().filter_map(of).collect();
            all.sort();
            all
        };
        let (starts, ends) = (sorted(|times| times.began), sorted(|times| times.ended));
        let next = ends.iter().zip(starts.iter().skip(active));
        next.map(|(end, start)| milliseconds(*end, *start)).collect()
    }

    /// From the change that makes a run's last pod ready until the status says so, in milliseconds.
    pub(super) fn status_latencies(&self) -> Vec<f64> {
        let times = self.times();
        let latencies = times
            .iter()
            .filter_map(|times| Some(milliseconds(times.ready?, times.running?)));
        latencies.collect()
    }

    fn times(&self) -> Vec<Times> {
        lock(&self.state).runs.values().copied().collect()
    }
}

impl State {
    fn note_status(&mut self, run: &PerfRun) {
        let now = Some(Instant::now());
        let phase = phase(run);
        let times = self.runs.entry(run.name_any()).or_default();
        if phase.is_some_and(|phase| phase != Phase::Pending) {
            times.began = times.began.or(now);
        }
        if phase == Some(Phase::Running) {
            times.running = times.running.or(now);
        }
        if has_ended(run) {
            times.ended = times.ended.or(now);
            if phase != Some(Phase::Succeeded) {
                self.failure = Some(format!("{} ended as {}", run.name_any(), describe(run)));
            }
        }
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

fn milliseconds(from: Instant, to: Instant) -> f64 {
    to.saturating_duration_since(from).as_secs_f64() * 1e3
}
