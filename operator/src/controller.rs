//! One pass over one run, and what wakes it.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions},
    core::{DeserializeGuard, NamespaceResourceScope, error_boundary::InvalidObject},
    runtime::{
        controller::Action,
        events::Recorder,
        reflector::{ObjectRef, Store},
    },
};
use perfrun_api::{
    cluster::{MANAGER, RUN_LABEL},
    plan::Plan,
    spec::{PerfRun, PerfRunStatus},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::json;
use strum::IntoStaticStr;
use thiserror::Error;
use tokio::sync::mpsc;

use crate::{
    access::Access,
    build::{self, Identity, Site},
    conduct::{Job, Tasks},
    decide::{self, Command, Decision, Facts, NewPod, Stage, decide},
    metrics::Metrics,
    observe::{self, NodePod, Trouble},
    plans::Plans,
    refusal::refusal,
    status,
    token::TokenKey,
    turn::{self, Contender},
};

/// A run as it is watched: what does not parse must not stop the others.
pub type Guarded = DeserializeGuard<PerfRun>;

/// After an error of the API server.
const TRY_AGAIN: Duration = Duration::from_secs(2);

/// What all passes share.
pub struct Context {
    /// To the API server.
    pub client: Client,
    /// To nodes.
    pub access: Access,
    /// What tokens are derived from.
    pub key: TokenKey,
    /// What all pods are given.
    pub site: Site,
    /// Where operators' pods are, for the NetworkPolicy.
    pub operators: String,
    /// Runs that may be active together.
    pub max_concurrent_runs: usize,
    /// What runs come to.
    pub plans: Plans,
    /// Conductors.
    pub tasks: Tasks,
    /// Publishes events.
    pub recorder: Recorder,
    /// What is counted.
    pub metrics: Arc<Metrics>,
    /// Pods of runs, as they are.
    pub pods: Store<Pod>,
    /// Runs, as they are.
    pub runs: Store<Guarded>,
    /// Wakes a run's reconciler.
    pub wake: mpsc::UnboundedSender<ObjectRef<Guarded>>,
    /// Wakes those of all runs, since another may begin now.
    pub wake_all: mpsc::UnboundedSender<()>,
    /// UIDs of runs that have begun, before their status says so.
    pub begun: Begun,
}

/// UIDs of the runs that this process let begin.
pub type Begun = Mutex<BTreeSet<String>>;

/// Why a pass failed.
#[derive(Debug, Error, IntoStaticStr)]
pub enum Error {
    /// The object is not a PerfRun of this version; its author must act.
    #[error("unable to read the PerfRun")]
    InvalidRun(#[source] Box<InvalidObject>),
    /// The API server sent an object without a name, namespace or UID.
    #[error("the PerfRun has no name, namespace or UID")]
    Anonymous,
    /// The API server refused or never received an object of the run.
    #[error("failed to apply {kind} {name:?}")]
    Apply {
        /// Its kind.
        kind: String,
        /// Its name.
        name: String,
        /// Why.
        source: kube::Error,
    },
    /// Pods could not be deleted.
    #[error("failed to delete the run's pods")]
    DeletePods(#[source] kube::Error),
    /// The run could not be deleted after its time.
    #[error("failed to delete the run after its time to live")]
    DeleteRun(#[source] kube::Error),
    /// The status could not be written.
    #[error("failed to write the status")]
    Status(#[source] kube::Error),
}

impl Error {
    /// Bounded value for metric labels, e.g. `Apply`.
    pub fn category(&self) -> &'static str {
        self.into()
    }
}

/// One pass over one run.
pub async fn reconcile(guarded: Arc<Guarded>, context: Arc<Context>) -> Result<Action, Error> {
    let began = tokio::time::Instant::now();
    let result = match &guarded.0 {
        Ok(run) => pass(run, &context).await,
        Err(invalid) => reject(invalid, &context).await,
    };
    context
        .metrics
        .reconciled(began.elapsed(), result.as_ref().err().map(Error::category));
    result
}

/// What to do after a pass that failed.
pub fn after_error(run: Arc<Guarded>, error: &Error, _: Arc<Context>) -> Action {
    let cause = std::error::Error::source(error).map(ToString::to_string);
    tracing::warn!(run = run.name_any(), namespace = run.namespace(), %error, cause, "reconciling failed");
    match error {
        Error::InvalidRun(_) | Error::Anonymous => Action::await_change(),
        _ => Action::requeue(TRY_AGAIN),
    }
}

/// Only the lines that mention `context` reach beyond this process.
async fn pass(run: &PerfRun, context: &Context) -> Result<Action, Error> {
    let identity = Identity::of(run).ok_or(Error::Anonymous)?;
    if run.meta().deletion_timestamp.is_some() {
        context.forget(&identity.uid);
        return Ok(Action::await_change());
    }
    let previous = run.status.clone().unwrap_or_default();
    let (task, lost_on) = context.tasks.look(&identity.uid);
    let turn = context.turn(run, &identity, &previous);
    let need = decide::need(&run.spec, &previous, &task, turn);
    let planned = context.plans.look(&identity.uid, run, need);
    let now = Timestamp::now();
    let pods = context.observe(&identity);
    let facts = Facts {
        spec: &run.spec,
        status: &previous,
        planned: &planned,
        pods: &pods,
        task,
        lost_on: &lost_on,
        now,
    };
    let plan = planned.plan();
    let generation = run.meta().generation;
    let said =
        |decision: &Decision| status::next(&previous, generation, planned.outline(), &decision.stage, now);
    let mut decision = decide(&facts);
    let mut next = said(&decision);
    if !decision.ends()
        && let Some(trouble) = context.act(run, &identity, plan, &decision, &next).await?
    {
        tracing::warn!(
            run = identity.label(),
            reason = trouble.message,
            "the API server refuses a pod"
        );
        decision = decide::refused(decision, trouble, &facts);
        next = said(&decision);
    }
    if decision.delete_run {
        return context
            .delete(run, &identity)
            .await
            .map(|()| Action::await_change());
    }
    if context.publish(run, &identity, &previous, &next).await? == Written::No {
        return Ok(Action::await_change());
    }
    // Only now: before its status says so, another pass would take the pods of a run that has ended for lost.
    if decision.ends() {
        context.act(run, &identity, plan, &decision, &next).await?;
    }
    if status::has_ended(&next) {
        context.forget(&identity.uid);
    } else if matches!(decision.stage, Stage::Held(_)) {
        context.stand_back(&identity.uid);
    }
    Ok(decision.wake.map_or_else(Action::await_change, Action::requeue))
}

/// Says at the object that it cannot be read.
async fn reject(invalid: &InvalidObject, context: &Context) -> Result<Action, Error> {
    let metadata = &invalid.metadata;
    let (Some(name), Some(namespace)) = (&metadata.name, &metadata.namespace) else {
        return Err(Error::Anonymous);
    };
    let stage = Stage::Rejected(Trouble {
        reason: "Malformed",
        message: format!(
            "written for another version of perfrun, or by hand: {}",
            invalid.error
        ),
    });
    // The time is left out of the comparison: the object's own status cannot be read.
    let since = metadata
        .creation_timestamp
        .as_ref()
        .map_or(Timestamp::UNIX_EPOCH, |time| time.0);
    let status = status::next(
        &PerfRunStatus::default(),
        metadata.generation,
        None,
        &stage,
        since,
    );
    let api: Api<PerfRun> = Api::namespaced(context.client.clone(), namespace);
    write_status(&api, name, metadata.resource_version.as_deref(), &status).await?;
    Err(Error::InvalidRun(Box::new(invalid.clone())))
}

/// Whether a status was written.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Written {
    /// It was, or there was nothing to write.
    Yes,
    /// The run has changed since this version of it was read. The change wakes its reconciler.
    No,
}

/// Writes the status, unless the run is no longer at the resource version that the status was decided on.
async fn write_status(
    api: &Api<PerfRun>,
    name: &str,
    version: Option<&str>,
    status: &PerfRunStatus,
) -> Result<Written, Error> {
    let patch = json!({
        "apiVersion": PerfRun::api_version(&()),
        "kind": PerfRun::kind(&()),
        "metadata": { "resourceVersion": version },
        "status": status,
    });
    let params = PatchParams::apply(MANAGER).force();
    match api.patch_status(name, &params, &Patch::Apply(&patch)).await {
        Ok(_) => Ok(Written::Yes),
        Err(kube::Error::Api(status)) if status.is_conflict() => Ok(Written::No),
        // It was deleted meanwhile, or cannot be read: both are no news.
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(Written::Yes),
        Err(kube::Error::SerdeError(_)) => Ok(Written::Yes),
        Err(error) => Err(Error::Status(error)),
    }
}

impl Context {
    fn observe(&self, run: &Identity) -> Vec<NodePod> {
        self.pods
            .state()
            .iter()
            .filter(|pod| observe::is_of(pod, &run.namespace, &run.name, &run.uid))
            .filter_map(|pod| observe::look(pod))
            .collect()
    }

    /// Whether a run may begin beside the others; if so, others know at once.
    fn turn(&self, run: &PerfRun, identity: &Identity, status: &PerfRunStatus) -> Result<(), String> {
        if run.spec.suspend || run.spec.cancel || status::has_ended(status) {
            return Ok(());
        }
        let mut begun = self.begun();
        let (mut active, mut waiting) = (vec![], vec![]);
        for other in self.runs.state() {
            let Ok(other) = &other.0 else { continue };
            let status = other.status.clone().unwrap_or_default();
            if other.spec.suspend && !status::is_active(&status) || status::has_ended(&status) {
                continue;
            }
            let other = contender(other);
            if status::is_active(&status) || begun.contains(&other.uid) {
                active.push(other);
            } else {
                waiting.push(other);
            }
        }
        turn::may_begin(&contender(run), &active, &waiting, self.max_concurrent_runs)?;
        begun.insert(identity.uid.clone());
        Ok(())
    }

    /// Does what was decided, all but the status. Returns why the API server refuses a pod, if it does.
    async fn act(
        &self,
        run: &PerfRun,
        identity: &Identity,
        plan: Option<&Arc<Plan>>,
        decision: &Decision,
        next: &PerfRunStatus,
    ) -> Result<Option<Trouble>, Error> {
        let Decision {
            stage: _,
            create,
            delete_pods,
            command,
            delete_run: _,
            wake: _,
        } = decision;
        // Pods last: they mount the token, and must not be open to everybody for a moment.
        if create.iter().any(|pod| pod.incarnation == 0) {
            self.create_token(identity).await?;
            let operators = (!self.access.is_proxy()).then_some(self.operators.as_str());
            self.apply(identity, build::policy::policy(identity, operators))
                .await?;
        }
        let mut refused = None;
        if let Some(plan) = plan {
            for new in create {
                refused = self.create(run, identity, plan, new).await?;
                if refused.is_some() {
                    break;
                }
            }
        }
        match command {
            Command::None => {}
            Command::Cancel => self.tasks.cancel(&identity.uid),
            Command::Drop => self.tasks.forget(&identity.uid),
            Command::Start | Command::Conclude => {
                if let Some(plan) = plan {
                    self.tasks.start(self.job(
                        run,
                        identity,
                        plan.clone(),
                        next,
                        *command == Command::Conclude,
                    ));
                }
            }
        }
        if *delete_pods {
            let api: Api<Pod> = Api::namespaced(self.client.clone(), &identity.namespace);
            let ours = ListParams::default().labels(&format!("{RUN_LABEL}={}", identity.name));
            let deleted = api.delete_collection(&DeleteParams::default(), &ours).await;
            deleted.map_err(Error::DeletePods)?;
        }
        Ok(refused)
    }

    /// Creates a pod, or returns why the API server refuses it.
    async fn create(
        &self,
        run: &PerfRun,
        identity: &Identity,
        plan: &Plan,
        new: &NewPod,
    ) -> Result<Option<Trouble>, Error> {
        let pod = build::pod::pod(identity, &run.spec, plan, new, &self.site);
        match self.apply(identity, pod).await {
            Ok(()) => Ok(None),
            Err(error) => match &error {
                Error::Apply { source, .. } => {
                    let impairs = !plan.networks.is_empty();
                    refusal(source, &identity.namespace, impairs)
                        .map(Some)
                        .ok_or(error)
                }
                _ => Err(error),
            },
        }
    }

    fn job(
        &self,
        run: &PerfRun,
        identity: &Identity,
        plan: Arc<Plan>,
        next: &PerfRunStatus,
        conclude: bool,
    ) -> Job {
        let (wake, object) = (
            self.wake.clone(),
            ObjectRef::<Guarded>::new(&identity.name).within(&identity.namespace),
        );
        Job {
            run: identity.clone(),
            spec: run.spec.clone(),
            plan,
            since: status::since(next, perfrun_api::cluster::condition::RUNNING, "True")
                .unwrap_or_else(Timestamp::now),
            conclude,
            token: self.key.token(&identity.uid),
            client: self.client.clone(),
            access: self.access.clone(),
            pods: self.pods.clone(),
            // Nobody is left to wake when the operator ends.
            wake: Arc::new(move || drop(wake.send(object.clone()))),
        }
    }

    async fn apply<K>(&self, run: &Identity, object: K) -> Result<(), Error>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
            + Clone
            + std::fmt::Debug
            + DeserializeOwned
            + Serialize,
    {
        let api: Api<K> = Api::namespaced(self.client.clone(), &run.namespace);
        let name = object.name_any();
        let params = PatchParams::apply(MANAGER).force();
        let applied = api.patch(&name, &params, &Patch::Apply(&object)).await;
        applied.map(drop).map_err(|source| Error::Apply {
            kind: K::kind(&()).into_owned(),
            name,
            source,
        })
    }

    /// Created and never changed: the operator may create Secrets, and neither read nor change any.
    async fn create_token(&self, run: &Identity) -> Result<(), Error> {
        let api: Api<Secret> = Api::namespaced(self.client.clone(), &run.namespace);
        let secret = build::secret::secret(run, self.key.token(&run.uid));
        match api.create(&PostParams::default(), &secret).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(()),
            Err(source) => Err(Error::Apply {
                kind: "Secret".to_owned(),
                name: secret.name_any(),
                source,
            }),
        }
    }

    /// The one write of the status, and then the events that tell of it.
    async fn publish(
        &self,
        run: &PerfRun,
        identity: &Identity,
        previous: &PerfRunStatus,
        next: &PerfRunStatus,
    ) -> Result<Written, Error> {
        if previous == next {
            return Ok(Written::Yes);
        }
        let api: Api<PerfRun> = Api::namespaced(self.client.clone(), &identity.namespace);
        let version = run.metadata.resource_version.as_deref();
        if write_status(&api, &identity.name, version, next).await? == Written::No {
            tracing::debug!(run = identity.label(), "it has changed meanwhile");
            return Ok(Written::No);
        }
        for event in status::events(previous, next) {
            if let Err(error) = self.recorder.publish(&event, &run.object_ref(&())).await {
                tracing::debug!(run = identity.label(), %error, "failed to publish an event");
            }
        }
        Ok(Written::Yes)
    }

    async fn delete(&self, run: &PerfRun, identity: &Identity) -> Result<(), Error> {
        let api: Api<PerfRun> = Api::namespaced(self.client.clone(), &identity.namespace);
        let this = DeleteParams::background().preconditions(Preconditions {
            uid: run.uid(),
            resource_version: None,
        });
        match api.delete(&identity.name, &this).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
            Err(error) => Err(Error::DeleteRun(error)),
        }
    }

    fn begun(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.begun.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A run has ended, or is gone.
    pub fn forget(&self, uid: &str) {
        self.plans.forget(uid);
        self.stand_back(uid);
    }

    /// Forgets runs that are gone, given the UIDs of all that there are.
    pub fn forget_others(&self, there: &BTreeSet<String>) {
        for uid in self.plans.others_than(there) {
            self.forget(&uid);
        }
    }

    /// A run is not active any more: others may begin.
    fn stand_back(&self, uid: &str) {
        self.tasks.forget(uid);
        if self.begun().remove(uid) {
            // Nobody is left to wake when the operator ends.
            let _ = self.wake_all.send(());
        }
    }
}

fn contender(run: &PerfRun) -> Contender {
    Contender {
        created: run
            .creation_timestamp()
            .map_or(i64::MAX, |time| time.0.as_second()),
        name: format!("{}/{}", run.namespace().unwrap_or_default(), run.name_any()),
        uid: run.uid().unwrap_or_default(),
        exclusive: run.spec.topology.exclusive,
    }
}

#[cfg(test)]
mod tests;
