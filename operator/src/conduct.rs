//! A run's conductor as a task of this process.
//!
//! A task that is dropped, with its process or because leadership was lost, leaves its nodes as they are. The
//! operator that takes over finds every trial at the nodes or in the journal, and resumes the run.

mod job;
mod journal;
mod measured_networks;
mod outcome;
mod pods;
mod totals;

use std::{
    any::Any,
    collections::{BTreeMap, HashMap},
    panic::AssertUnwindSafe,
    sync::Arc,
};

use futures::FutureExt;
use parking_lot::Mutex;
use perfrun_api::{
    results::{Results, SCHEMA_VERSION},
    spec::StoredResults,
};
use perfrun_conductor::{Conductor, Event, RecordSink, RunEnd, RunId, RunOptions, client::Epoch};
use perfrun_contract::{
    compare::NotNeeded,
    node::Reason,
    plan::Plan,
    run::{Environment, Isolation, RunState},
    tally::{Conclusion, EndReason, Tally},
};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

pub(crate) use self::{
    job::{Job, Wake},
    measured_networks::{MeasuredNetworks, NOT_EFFECTIVE},
    outcome::{ConductorState, RunOutcome},
    totals::Progress,
};
use self::{journal::Journal, pods::PodNodes};
use crate::build::RunIdentity;

/// All conductors of this process, by the UIDs of their runs. Dropping it stops them.
#[derive(Default)]
pub(crate) struct Conductors(Mutex<HashMap<String, Handle>>);

struct Handle {
    shared: Arc<Shared>,
    cancel: CancellationToken,
    task: JoinHandle<()>,
    /// How often earlier tasks of the run panicked.
    earlier_panics: u32,
}

/// What the task of a conductor and the reconciler of its run share.
pub(crate) type Shared = Mutex<SharedState>;

#[derive(Default)]
pub(crate) struct SharedState {
    progress: Progress,
    end: Option<TaskEnd>,
    /// The Kubernetes nodes on which nodes were lost, by node.
    lost_on: BTreeMap<String, String>,
    /// Why the API server did not create the run's missing pods. `None` if it did.
    refused: Option<String>,
    /// Why nodes get no other pod, by node.
    given_up: BTreeMap<String, String>,
}

/// How a task ended.
enum TaskEnd {
    Outcome(Box<RunOutcome>),
    /// It panicked with this message.
    Panic(String),
}

impl Conductors {
    /// The state of a run's conductor, and the Kubernetes nodes on which it lost nodes.
    pub(crate) fn state(&self, uid: &str) -> (ConductorState, BTreeMap<String, String>) {
        let handles = self.0.lock();
        let Some(handle) = handles.get(uid) else {
            return (ConductorState::None, BTreeMap::new());
        };
        let shared = handle.shared.lock();
        let state = match &shared.end {
            None => ConductorState::Running(shared.progress.clone()),
            Some(TaskEnd::Outcome(outcome)) => ConductorState::Ended(outcome.clone()),
            Some(TaskEnd::Panic(message)) => ConductorState::Panicked {
                times: handle.earlier_panics + 1,
                message: message.clone(),
            },
        };
        (state, shared.lost_on.clone())
    }

    /// Starts to conduct a run, or resumes it after a panic.
    pub(crate) fn start(&self, job: Job) {
        let run = job.run.clone();
        let wake = job.wake.clone();
        self.spawn(&run, job.progress.clone(), wake, |shared, cancel| {
            conduct(job, shared, cancel)
        });
    }

    /// Runs a task that conducts a run. The run is woken when the task ends, even if it panics.
    pub(crate) fn spawn<T>(
        &self,
        run: &RunIdentity,
        progress: Progress,
        wake: Wake,
        conduct: impl FnOnce(Arc<Shared>, CancellationToken) -> T,
    ) where
        T: Future<Output = RunOutcome> + Send + 'static,
    {
        let mut handles = self.0.lock();
        let (earlier_panics, lost_on) = match handles.remove(&run.uid) {
            Some(handle) => {
                let mut shared = handle.shared.lock();
                let panicked = matches!(shared.end, Some(TaskEnd::Panic(_)));
                let lost_on = std::mem::take(&mut shared.lost_on);
                (handle.earlier_panics + u32::from(panicked), lost_on)
            }
            None => (0, BTreeMap::new()),
        };
        let shared = Arc::new(Mutex::new(SharedState {
            progress,
            lost_on,
            ..SharedState::default()
        }));
        let cancel = CancellationToken::new();
        let conducted = AssertUnwindSafe(conduct(shared.clone(), cancel.clone())).catch_unwind();
        let (ended, label) = (shared.clone(), run.label());
        let task = tokio::spawn(async move {
            let end = match conducted.await {
                Ok(outcome) => TaskEnd::Outcome(Box::new(outcome)),
                Err(panic) => {
                    let message = panic_message(&*panic);
                    tracing::error!(run = label, message, "the conductor panicked");
                    TaskEnd::Panic(message)
                }
            };
            ended.lock().end = Some(end);
            wake();
        });
        let handle = Handle {
            shared,
            cancel,
            task,
            earlier_panics,
        };
        handles.insert(run.uid.clone(), handle);
    }

    /// Stops a run's trials. The results so far are kept.
    pub(crate) fn cancel(&self, uid: &str) {
        if let Some(handle) = self.0.lock().get(uid) {
            handle.cancel.cancel();
        }
    }

    /// Sets why the run lacks pods, for a conductor that waits for them: why the API server did not create
    /// them, and why nodes get no other pod.
    pub(crate) fn set_missing(&self, uid: &str, refused: Option<String>, given_up: BTreeMap<String, String>) {
        if let Some(handle) = self.0.lock().get(uid) {
            let mut shared = handle.shared.lock();
            (shared.refused, shared.given_up) = (refused, given_up);
        }
    }

    /// Forgets a run. Its nodes are left as they are.
    pub(crate) fn forget(&self, uid: &str) {
        self.0.lock().remove(uid);
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("no message").to_owned()
}

async fn conduct(job: Job, shared: Arc<Shared>, cancel: CancellationToken) -> RunOutcome {
    let mut journal = match Journal::open(&job, shared.clone(), &cancel).await {
        Ok(journal) => journal,
        Err(why) => return outcome_without_records(&job, why),
    };
    let epoch = Epoch::new(job.services.term.epoch);
    let nodes = PodNodes::new(&job, epoch.clone(), shared);
    let handles = match job.conclude {
        true => None,
        false => cancel.run_until_cancelled(nodes.wait_for_handles()).await,
    };
    let end = match handles {
        None => RunEnd::without_nodes(RunState::Interrupted),
        Some(Err(why)) => RunEnd::failed(EndReason::NodeNotReady, why),
        Some(Ok(handles)) => {
            let run = job.run.label();
            let conductor = Conductor {
                plan: &job.plan,
                options: RunOptions {
                    // All operators that conduct this run use the same id, so that each finds the trials of
                    // the others.
                    run_id: job.run.uid.parse().unwrap_or_else(|_| RunId::random()),
                    elapsed: job.elapsed(),
                    ..RunOptions::new(job.spec.timeouts.durations())
                },
                sink: &mut journal,
                provider: &nodes,
                on_event: &|event: Event<'_>| log(&run, event),
                cancel: cancel.clone(),
            };
            let end = tokio::select! {
                biased;
                () = epoch.superseded() => None,
                end = conductor.run(handles) => Some(end),
            };
            let mut end = match end {
                Some(end) => end,
                None => end_if_leading(&job).await,
            };
            // A pod's own host name is the pod's name, which does not say which nodes share a machine.
            for (name, host) in nodes.kubernetes_nodes() {
                if let Some(info) = end.nodes.get_mut(&name) {
                    info.host = host;
                }
            }
            end
        }
    };
    let outcome = keep_results(&job, journal, end).await;
    let Conclusion { reason, message, .. } = &outcome.conclusion;
    tracing::info!(run = job.run.label(), %reason, message, "run ended");
    outcome
}

/// Ends a run of which a node knows a later conductor, if this operator leads. Then the node is wrong, and
/// the run cannot continue. Otherwise this operator is about to drop this task.
async fn end_if_leading(job: &Job) -> RunEnd {
    tracing::warn!(run = job.run.label(), "a node knows a later conductor");
    job.services.term.wait_for_renewal().await;
    let why = "a node answers that another operator has taken over, but this one leads: the lease may have been \
               restored from a backup, or the node's image is wrong; create the run again";
    RunEnd::failed(EndReason::NodeNotReady, why.to_owned())
}

/// The outcome of a run whose journal could not be opened.
fn outcome_without_records(job: &Job, why: String) -> RunOutcome {
    tracing::warn!(run = job.run.label(), why, "run ended without its records");
    let reason = Some(EndReason::RecordNotKept);
    RunOutcome {
        conclusion: Tally::of(&job.plan, []).conclusion(RunState::Failed, reason, Some(&why)),
        progress: job.progress.clone(),
        summary: vec![],
        judged: None,
        merged: None,
        results: vec![],
        stored: results_location(job),
    }
}

/// Keeps the results, and reports how the run ended.
async fn keep_results(job: &Job, journal: Journal, end: RunEnd) -> RunOutcome {
    let RunEnd {
        state,
        reason,
        message,
        nodes,
    } = end;
    let totals = journal.totals();
    let progress = totals.progress();
    let trials = totals.trials().clone();
    let conclusion = with_advice(trials.conclusion(state, reason, message.as_deref()), &trials);
    let judged = perfrun_judge::judged(&job.plan, journal.records(), &nodes);
    let results = Results {
        schema_version: SCHEMA_VERSION,
        name: job.run.name.clone(),
        started: job.since,
        ended: (job.services.clock)(),
        paused_seconds: None,
        state,
        reason: message,
        conclusion: Some(conclusion.clone()),
        spec: job.spec.clone(),
        plan: Plan::clone(&job.plan),
        environment: Environment {
            perfrun: env!("CARGO_PKG_VERSION").to_owned(),
            isolation: Isolation::Pods,
            programs: vec![],
            nodes,
        },
        summary: perfrun_judge::summarize(&job.plan, journal.records()),
        judged: judged.clone(),
        trials: vec![],
    };
    let summary = results.summary.clone();
    let merged = (journal.merged_trials() > 0).then(|| {
        let (trials, bytes) = (journal.merged_trials(), job.services.result_bytes);
        format!(
            "neighbouring samples of {trials} trials are merged: the results have about {bytes} bytes at most \
             (--max-result-bytes of the operator), and the operator keeps a limited amount of what nodes measure. \
             Metrics that come from samples are computed from all for which it had room"
        )
    });
    let (results, kept) = journal.close(results).await;
    let conclusion = match kept {
        Ok(()) => conclusion,
        Err(error) => {
            let why = format!("the results could not be kept: {error}");
            trials.conclusion(RunState::Failed, Some(EndReason::RecordNotKept), Some(&why))
        }
    };
    RunOutcome {
        conclusion,
        progress,
        summary,
        judged,
        merged,
        results,
        stored: results_location(job),
    }
}

/// A conclusion with what to do if no node has ever reached another.
fn with_advice(mut conclusion: Conclusion, trials: &Tally) -> Conclusion {
    if trials.counts().completed == 0 && trials.failures().keys().eq([&Reason::DialFailed]) {
        conclusion.message += "; no node reached another: if a NetworkPolicy denies egress, allow pods with the label perfrun.io/run to \
             reach each other on all TCP and UDP ports";
    }
    conclusion
}

/// Where the results are. `None` if they are ConfigMaps.
fn results_location(job: &Job) -> Option<StoredResults> {
    let RunIdentity {
        namespace, name, uid, ..
    } = &job.run;
    let pod_defaults = &job.services.pod_defaults;
    Some(StoredResults {
        location: job.spec.store()?.location(namespace, name, uid),
        image: pod_defaults.operator_image.clone(),
        pull_secrets: pod_defaults.pull_secrets.clone(),
    })
}

fn log(run: &str, event: Event<'_>) {
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
        Event::NotNeeded { not_needed } => {
            let NotNeeded {
                trials, iterations, ..
            } = not_needed;
            tracing::info!(run, trials, ?iterations, "trials are not needed");
        }
        Event::NodeReplaced { name } => tracing::warn!(run, node = name, "node replaced"),
        Event::LinksChecked { check } if !check.is_effective() => {
            tracing::warn!(run, network = check.network, "links are not as configured");
        }
        Event::LinksChanging { .. }
        | Event::LinksChecked { .. }
        | Event::TrialStarted { .. }
        | Event::TrialProgress { .. } => {}
    }
}

#[cfg(test)]
mod tests;
