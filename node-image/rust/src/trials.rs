//! The trials of a controlled node, of which one runs at a time.

use std::{collections::HashMap, net::IpAddr, sync::Arc, time::Duration};

use parking_lot::Mutex;
use perfrun_contract::node::{HELD_TRIALS_MAX, TrialRequest, TrialState};
use tokio_util::sync::CancellationToken;

use crate::{
    metrics::Metrics,
    request,
    trial::RunningTrial,
    workload::{Handover, Setup},
};

/// All trials of a node.
pub(crate) struct Trials {
    listen_ip: IpAddr,
    metrics: Arc<Metrics>,
    trials: Mutex<HashMap<String, Arc<RunningTrial>>>,
    stopping: CancellationToken,
}

/// Why a node refuses a trial.
#[derive(Debug, thiserror::Error, PartialEq)]
pub(crate) enum TrialRefusal {
    /// The request is not valid.
    #[error("unable to run this trial: {0}")]
    Invalid(String),
    /// The id belongs to another request.
    #[error("trial {0:?} exists with other parameters: use a new id")]
    Different(String),
    /// A trial is in progress: a second one would distort the numbers of both.
    #[error("the node is busy with trial {0:?}: wait for it, or cancel it by DELETE")]
    Busy(String),
    /// The conductor deletes no trials.
    #[error("the node holds {HELD_TRIALS_MAX} trials: delete those that were collected, by DELETE")]
    Full,
    /// The node is stopping.
    #[error("the node is stopping")]
    Stopping,
    /// Starting again would lose an outcome.
    #[error("the outcome of trial {0:?} was not collected: collect it, or forget it by DELETE")]
    Uncollected(String),
}

impl Trials {
    /// No trials. Servers will listen on `listen_ip`.
    pub(crate) fn new(listen_ip: IpAddr, metrics: Arc<Metrics>) -> Self {
        Self {
            listen_ip,
            metrics,
            trials: Mutex::default(),
            stopping: CancellationToken::new(),
        }
    }

    /// Accepts a trial. Returns `true` if it is new, and `false` if the node has it with the same request.
    pub(crate) fn put(&self, id: &str, request: TrialRequest) -> Result<bool, TrialRefusal> {
        let stack = request::check(&request).map_err(TrialRefusal::Invalid)?;
        let mut trials = self.trials.lock();
        if let Some(existing) = trials.get(id) {
            return if existing.request == request {
                Ok(false)
            } else {
                Err(TrialRefusal::Different(id.to_owned()))
            };
        }
        if self.stopping.is_cancelled() {
            return Err(TrialRefusal::Stopping);
        }
        if let Some((busy, _)) = trials.iter().find(|(_, trial)| !trial.is_finished()) {
            return Err(TrialRefusal::Busy(busy.clone()));
        }
        if trials.len() >= HELD_TRIALS_MAX {
            return Err(TrialRefusal::Full);
        }
        let trial = Arc::new(RunningTrial::new(id.to_owned(), stack, request, &self.metrics));
        let setup = Setup {
            stack,
            settings: trial.request.settings.clone(),
            transport: trial.request.transport,
            parameters: trial.request.parameters.clone(),
            listen: (self.listen_ip, 0),
            identity: None,
            max_streams: None,
            download: None,
            handover: Handover::default(),
            stack_metrics: self.metrics.stacks(),
            observer: trial.observer.clone(),
        };
        tokio::spawn(trial.clone().run(setup, self.stopping.clone()));
        trials.insert(id.to_owned(), trial);
        Ok(true)
    }

    /// A trial by its id.
    pub(crate) fn get(&self, id: &str) -> Option<Arc<RunningTrial>> {
        self.trials.lock().get(id).cloned()
    }

    /// Cancels a running trial, or forgets one that has ended. `false` if the trial does not exist.
    pub(crate) fn delete(&self, id: &str) -> bool {
        let mut trials = self.trials.lock();
        let Some(trial) = trials.get(id) else { return false };
        if trial.is_finished() {
            trials.remove(id);
        } else {
            trial.cancel.cancel();
        }
        true
    }

    /// Ends running trials, accepts no new ones, and waits until all have an outcome.
    pub(crate) async fn stop(&self) {
        self.stopping.cancel();
        let running: Vec<Arc<RunningTrial>> = self.trials.lock().values().cloned().collect();
        for trial in running {
            trial.status(Duration::MAX, TrialState::Running).await;
        }
    }

    /// Accepts no trials any more, unless one is in progress or has an outcome that was not collected.
    pub(crate) fn close(&self) -> Result<(), TrialRefusal> {
        let trials = self.trials.lock();
        for (id, trial) in &*trials {
            if !trial.is_finished() {
                return Err(TrialRefusal::Busy(id.clone()));
            }
            if !trial.is_collected() {
                return Err(TrialRefusal::Uncollected(id.clone()));
            }
        }
        self.stopping.cancel();
        Ok(())
    }

    /// Whether an outcome was not collected yet.
    pub(crate) fn has_uncollected(&self) -> bool {
        self.trials.lock().values().any(|trial| !trial.is_collected())
    }

    /// Whether the node is stopping.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.is_cancelled()
    }
}
