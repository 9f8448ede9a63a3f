//! A run's conductor as a task of this process.
//!
//! A task that is dropped, with its process or because leadership was lost, leaves its nodes as they are: whoever takes
//! over finds every trial there or in the journal, and goes on.

mod journal;
mod pods;
mod tally;

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::{Client, runtime::reflector::Store};
use perfrun_api::{
    plan::Plan,
    results::{Environment, Isolation, Results, RunState, SCHEMA_VERSION},
    spec::PerfRunSpec,
};
use perfrun_conductor::{Cause, Conductor, Event, Options, RunEnd, RunId};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use self::{journal::Journal, pods::PodNodes};
use crate::{
    access::Access,
    build::Identity,
    decide::{Outcome, Progress, Task},
};

/// Wakes the reconciler of a run.
pub type Wake = Arc<dyn Fn() + Send + Sync>;

/// All conductors of this process, by the UIDs of their runs. Dropping it drops them.
#[derive(Default)]
pub struct Tasks(Mutex<HashMap<String, Handle>>);

struct Handle {
    shared: Arc<Shared>,
    cancel: CancellationToken,
    task: JoinHandle<()>,
}

/// What a conductor's task tells the reconciler.
#[derive(Default)]
struct Shared {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    progress: Progress,
    outcome: Option<Box<Outcome>>,
    lost_on: BTreeMap<String, String>,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What it takes to conduct a run.
pub struct Job {
    /// The run.
    pub run: Identity,
    /// What is asked for.
    pub spec: PerfRunSpec,
    /// What that comes to.
    pub plan: Arc<Plan>,
    /// Since when trials have been run.
    pub since: Timestamp,
    /// Whether no more trials are to be run: only what there is is kept.
    pub conclude: bool,
    /// Token of the run's nodes.
    pub token: String,
    /// To the API server.
    pub client: Client,
    /// To the nodes.
    pub access: Access,
    /// Pods, as they are.
    pub pods: Store<Pod>,
    /// Wakes the run's reconciler.
    pub wake: Wake,
}

impl Tasks {
    /// The conductor of a run, if there is one, and the Kubernetes nodes that it lost nodes on.
    pub fn look(&self, uid: &str) -> (Task, BTreeMap<String, String>) {
        let tasks = self.lock();
        let Some(handle) = tasks.get(uid) else {
            return (Task::None, BTreeMap::new());
        };
        let state = handle.shared.state();
        let task = match &state.outcome {
            Some(outcome) => Task::Ended(outcome.clone()),
            // A task that panicked is begun again, like one whose process was killed.
            None if handle.task.is_finished() => Task::None,
            None => Task::Going(state.progress.clone()),
        };
        (task, state.lost_on.clone())
    }

    /// Begins to conduct a run.
    pub fn start(&self, job: Job) {
        let shared = Arc::new(Shared::default());
        let cancel = CancellationToken::new();
        let uid = job.run.uid.clone();
        let task = tokio::spawn(conduct(job, shared.clone(), cancel.clone()));
        self.lock().insert(uid, Handle { shared, cancel, task });
    }

    /// Stops a run's trials; what was measured is kept.
    pub fn cancel(&self, uid: &str) {
        if let Some(handle) = self.lock().get(uid) {
            handle.cancel.cancel();
        }
    }

    /// Forgets a run. Its nodes are left as they are.
    pub fn forget(&self, uid: &str) {
        self.lock().remove(uid);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Handle>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn conduct(job: Job, shared: Arc<Shared>, cancel: CancellationToken) {
    let Job {
        run,
        spec,
        plan,
        since,
        conclude,
        ..
    } = &job;
    let mut journal = Journal::open(job.client.clone(), run, plan, shared.clone(), job.wake.clone()).await;
    let nodes = PodNodes::new(&job, shared.clone());
    let ready = match *conclude {
        true => None,
        false => cancel.run_until_cancelled(nodes.clients()).await,
    };
    let end = match ready {
        None => RunEnd {
            state: RunState::Interrupted,
            cause: None,
            reason: None,
            nodes: BTreeMap::new(),
        },
        Some(Err(why)) => RunEnd {
            state: RunState::Failed,
            cause: Some(Cause::NodeNotReady),
            reason: Some(why),
            nodes: BTreeMap::new(),
        },
        Some(Ok(clients)) => {
            let elapsed = Timestamp::now().duration_since(*since);
            let conductor = Conductor {
                plan,
                options: Options {
                    // The same for every operator that conducts this run, so that each finds the others' trials.
                    run_id: run.uid.parse().unwrap_or_else(|_| RunId::random()),
                    already: journal.records().to_vec(),
                    elapsed: Duration::try_from(elapsed).unwrap_or_default(),
                    ..Options::new(spec.timeouts.clone())
                },
                sink: &mut journal,
                spares: &nodes,
                progress: &|event: Event<'_>| tell(&run.label(), event),
                cancel: cancel.clone(),
            };
            conductor.run(clients).await
        }
    };
    let outcome = conclude_with(&job, journal, end).await;
    tracing::info!(run = run.label(), state = %outcome.state, reason = outcome.reason, "run ended");
    shared.state().outcome = Some(Box::new(outcome));
    (job.wake)();
}

/// Keeps the results, and says how the run ended.
async fn conclude_with(job: &Job, journal: Journal, end: RunEnd) -> Outcome {
    let RunEnd {
        state,
        cause,
        reason,
        nodes,
    } = end;
    let trials = journal.records().to_vec();
    let results = Results {
        schema_version: SCHEMA_VERSION,
        name: job.run.name.clone(),
        started: job.since,
        ended: Timestamp::now(),
        state,
        reason: reason.clone(),
        spec: job.spec.clone(),
        plan: Plan::clone(&job.plan),
        environment: Environment {
            perfrun: env!("CARGO_PKG_VERSION").to_owned(),
            isolation: Isolation::Pods,
            programs: vec![],
            nodes,
        },
        summary: perfrun_report::summarize(&job.plan, &trials),
        trials: vec![],
    };
    let summary = results.summary.clone();
    let tally = journal.tally();
    let (progress, failures) = (tally.progress(), tally.failures());
    let first_failure = tally.first_failure();
    let kept = journal.close(results).await;
    let refused = kept
        .as_ref()
        .err()
        .map(|error| format!("the API server refuses the results: {error}"));
    Outcome {
        state: if refused.is_some() {
            RunState::Failed
        } else {
            state
        },
        cause: if refused.is_some() {
            Some(Cause::RecordNotKept)
        } else {
            cause
        },
        reason: refused.or(reason),
        progress,
        failures,
        first_failure,
        summary,
        results: kept.unwrap_or_default(),
    }
}

fn tell(run: &str, event: Event<'_>) {
    match event {
        Event::RunStarted { trials, ended } => tracing::info!(run, trials, ended, "run started"),
        Event::TrialEnded { record } => {
            let failure = record.failure.as_ref();
            let (reason, message) = failure.map(|f| (f.reason.as_ref(), f.message.as_str())).unzip();
            tracing::debug!(
                run,
                trial = record.trial.id,
                attempt = record.attempt,
                reason,
                message,
                "trial ended"
            );
        }
        Event::NodeReplaced { name } => tracing::warn!(run, node = name, "node replaced"),
        Event::LinksChecked { check } if !check.is_effective() => {
            tracing::warn!(run, network = check.network, "links are not as asked for");
        }
        Event::LinksChanging { .. }
        | Event::LinksChecked { .. }
        | Event::TrialStarted { .. }
        | Event::TrialProgress { .. } => {}
    }
}

#[cfg(test)]
pub mod tests {
    pub use super::tally::tests::record;
}
