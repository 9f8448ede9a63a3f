//! The driver: one pass over one run, stage by stage.
//!
//! | stage | does | reaches the API server |
//! |---|---|---|
//! | [`observe`] | collects what is known of the run | no |
//! | [`decide`] | decides what to do, and where the run stands | no |
//! | [`apply`] | creates and deletes objects, commands the conductor | yes |
//! | [`publish`] | writes the status and its events | yes |
//!
//! Every pass applies once and writes the status once. The status is written even if applying failed:
//! whatever the API server answers becomes a condition, and with the condition the time that the run may take
//! begins.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use error_reporter::Report;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Client, Resource, ResourceExt,
    runtime::{
        controller::Action,
        events::Recorder,
        reflector::{ObjectRef, Store},
    },
};
use perfrun_api::spec::PerfRun;
use strum::IntoStaticStr;
use thiserror::Error;
use tokio::sync::mpsc;

use crate::{
    access::Access,
    apply::{self, apply},
    build::Site,
    clock::TimeSource,
    conduct::Conductors,
    decide::{after_failure, decide},
    fence::Term,
    ledger::Ledger,
    metrics::Metrics,
    observe::{self, observe},
    plans::Plans,
    policy::Policy,
    publish::{self, Published, publish, report_unreadable},
    stage::Stage,
    status,
    token::TokenKey,
    watched::WatchedRun,
};

/// Pause after a pass that failed.
const RETRY: Duration = Duration::from_secs(2);

/// Pause after a status was written by somebody else. The watch usually wakes the run sooner.
const CONFLICT_RETRY: Duration = Duration::from_secs(1);

/// What all passes share.
pub(crate) struct Context {
    /// Changes nothing after the term.
    pub(crate) client: Client,
    pub(crate) term: Term,
    pub(crate) clock: TimeSource,
    /// How nodes are reached.
    pub(crate) access: Access,
    /// The key that tokens of runs are derived from.
    pub(crate) key: TokenKey,
    pub(crate) site: Site,
    /// The namespace of operators' pods.
    pub(crate) operators: String,
    pub(crate) max_concurrent_runs: usize,
    /// What documents may request.
    pub(crate) policy: Policy,
    /// Most bytes of a run's compressed records before samples are merged.
    pub(crate) result_bytes: u64,
    pub(crate) plans: Plans,
    pub(crate) conductors: Conductors,
    pub(crate) ledger: Ledger,
    pub(crate) recorder: Recorder,
    pub(crate) metrics: Arc<Metrics>,
    /// Pods of runs, as the watch shows them.
    pub(crate) pods: Store<Pod>,
    /// Runs, as the watch shows them.
    pub(crate) runs: Store<WatchedRun>,
    /// Wakes one run.
    pub(crate) wake: mpsc::UnboundedSender<ObjectRef<WatchedRun>>,
}

/// Why a pass failed, by stage.
#[derive(Debug, Error, IntoStaticStr)]
pub(crate) enum Error {
    #[error("failed to observe the run")]
    Observe(#[from] observe::Error),
    #[error("failed to publish the run's state")]
    Publish(#[from] publish::Error),
}

impl Error {
    /// A bounded value for metric labels, e.g. `Status`.
    fn category(&self) -> &'static str {
        match self {
            Self::Observe(_) => self.into(),
            Self::Publish(error) => error.category(),
        }
    }
}

/// One pass over one run.
pub(crate) async fn reconcile(watched: Arc<WatchedRun>, context: Arc<Context>) -> Result<Action, Error> {
    let began = tokio::time::Instant::now();
    let result = match &*watched {
        WatchedRun::Readable(run) => pass(run, &context).await,
        WatchedRun::Unreadable(run) => {
            context.metrics.failed("Unreadable");
            // Nobody knows what such a run would do, so that it is in nobody's way.
            context.forget(run.metadata.uid.as_deref().unwrap_or_default());
            let published = report_unreadable(run, &watched.object_ref(&()), &context).await;
            published
                .map(|published| after(published, None))
                .map_err(Error::from)
        }
    };
    context.metrics.reconciled(began.elapsed());
    if let Err(error) = &result {
        context.metrics.failed(error.category());
    }
    result
}

/// What to do after a pass that failed.
pub(crate) fn after_error(run: Arc<WatchedRun>, error: &Error, _: Arc<Context>) -> Action {
    let (name, namespace) = (run.name_any(), run.namespace());
    let error = Report::new(error);
    tracing::warn!(run = name, namespace, %error, "reconciling failed");
    Action::requeue(RETRY)
}

async fn pass(run: &PerfRun, context: &Context) -> Result<Action, Error> {
    let previous = run.status.clone().unwrap_or_default();
    let observed = match observe(run, &previous, context) {
        // The watch wakes the run when it is up to date.
        Err(observe::Error::Stale) => return Ok(Action::await_change()),
        observed => observed?,
    };
    let (identity, inputs) = (&observed.identity, &observed.inputs);
    let mut decision = decide(inputs);
    if let Err(error) = apply(run, &observed, &decision, context).await {
        context.metrics.failed(error.category());
        report(&error, &identity.label());
        let plan = inputs.planned.plan().map(AsRef::as_ref);
        let refusal = error.refusal(&identity.namespace, plan);
        decision = after_failure(decision, refusal, inputs);
    }
    let outline = inputs.planned.outline();
    let next = status::next(inputs, run.metadata.generation, &decision.stage);
    let events = status::events(&previous, &next, outline, &decision.stage);
    let Context { client, recorder, .. } = context;
    let published = publish(run, &previous, &next, &events, client, recorder).await?;
    if published == Published::Yes {
        if status::has_ended(&next) && !status::has_ended(&previous) {
            context.end(&identity.uid);
        } else if inputs.deleting || status::has_ended(&next) {
            context.forget(&identity.uid);
        } else if matches!(decision.stage, Stage::Held(_)) {
            context.stand_back(&identity.uid);
        }
    }
    let uid = identity.uid.clone();
    // The run gives back a turn that it could not use.
    drop(observed);
    let has_tried = matches!(decision.stage, Stage::Provisioning { .. });
    if published == Published::Yes && has_tried && !context.ledger.is_active(&uid) {
        // The API server refused the first object. Another run goes first now.
        context.wake_first();
    }
    Ok(after(published, decision.wake))
}

fn report(error: &apply::Error, run: &str) {
    let category = error.category();
    let error = Report::new(error);
    tracing::warn!(run, category, %error, "the decision was not carried out");
}

/// When the next pass is due.
pub(crate) fn after(published: Published, wake: Option<Duration>) -> Action {
    match (published, wake) {
        (Published::Conflict, _) => Action::requeue(CONFLICT_RETRY),
        (Published::Yes, Some(wake)) => Action::requeue(wake),
        (Published::Yes, None) => Action::await_change(),
    }
}

impl Context {
    /// The run has ended, and its status shows it. The watch may not: the ledger remembers it before another
    /// is woken.
    fn end(&self, uid: &str) {
        self.plans.forget(uid);
        self.conductors.forget(uid);
        self.ledger.end(uid);
        self.wake_first();
    }

    /// The run has ended before, is being deleted, or cannot be read.
    fn forget(&self, uid: &str) {
        self.plans.forget(uid);
        self.stand_back(uid);
    }

    /// The run no longer exists.
    pub(crate) fn remove(&self, uid: &str) {
        self.forget(uid);
        self.ledger.end_is_visible(uid);
    }

    /// Removes runs that no longer exist, given the UIDs of all that do.
    pub(crate) fn remove_others(&self, existing: &BTreeSet<String>) {
        let others = [
            self.plans.others_than(existing),
            self.ledger.others_than(existing),
        ];
        for uid in others.iter().flatten() {
            self.remove(uid);
        }
    }

    /// Ends the turn of a run, so that another run may start.
    fn stand_back(&self, uid: &str) {
        self.conductors.forget(uid);
        if self.ledger.stand_back(uid) {
            self.wake_first();
        }
    }

    /// Wakes the waiting run that goes first. It wakes the next one when it begins. Passes over all waiting
    /// runs would delay the first.
    pub(crate) fn wake_first(&self) {
        if let Some(run) = observe::first(self) {
            // Nobody listens when the operator ends.
            let _ = self.wake.send(run);
        }
    }
}

#[cfg(test)]
mod tests;
