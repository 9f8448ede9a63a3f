//! Stage 3 of a pass: does what was decided, except for the status.
//!
//! Objects of a run are created and never changed, so that a pass that saw old objects cannot overwrite newer
//! ones.

use std::{borrow::Cow, fmt::Debug, sync::Arc};

use error_reporter::Report;
use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{DeleteParams, PostParams, Preconditions},
    core::NamespaceResourceScope,
    runtime::reflector::ObjectRef,
};
use perfrun_api::{
    cluster::{MANAGER, condition::Reason},
    pod::store::STORE_NODE,
    spec::PerfRun,
};
use perfrun_contract::plan::Plan;
use serde::{Serialize, de::DeserializeOwned};
use strum::IntoStaticStr;
use thiserror::Error;

use crate::{
    build::{self, RunIdentity},
    conduct::Job,
    controller::Context,
    decide::{ConductorCommand, Decision, NewPod, last_progress},
    names,
    observe::{Observed, pod::NodePod},
    refusal::{CallError, Refusal, refusal, within_timeout},
    stage::Trouble,
    watched::WatchedRun,
};

/// How many pods of a run are deleted at the same time.
const DELETIONS_AT_ONCE: usize = 16;

/// Why a decision was not carried out.
#[derive(Debug, Error, IntoStaticStr)]
pub(crate) enum Error {
    #[error("failed to create {kind} {name:?}")]
    Create {
        kind: Cow<'static, str>,
        name: String,
        source: CallError,
    },
    #[error(
        "{kind} {name:?} exists and does not belong to this {owner}: delete it, or give the {owner} another name"
    )]
    NameConflict {
        kind: Cow<'static, str>,
        name: String,
        owner: &'static str,
    },
    #[error("failed to delete the run's pods")]
    DeletePods(#[source] CallError),
    #[error("failed to delete the run")]
    DeleteRun(#[source] CallError),
}

impl Error {
    /// A bounded value for metric labels, e.g. `Create`.
    pub(crate) fn category(&self) -> &'static str {
        self.into()
    }

    /// What the error means for a run in this namespace. `None` if no object was refused.
    pub(crate) fn refusal(&self, namespace: &str, plan: Option<&Plan>) -> Option<Refusal> {
        let impairs = plan.is_some_and(|plan| !plan.networks.is_empty());
        match self {
            Self::Create { kind, source, .. } => Some(refusal(source, kind, namespace, impairs)),
            Self::NameConflict { .. } => {
                let trouble = Trouble::new(Reason::NameConflict, self.to_string());
                Some(Refusal::Final(trouble))
            }
            Self::DeletePods(_) | Self::DeleteRun(_) => None,
        }
    }
}

/// Carries out a decision. Commands to the conductor are given even if an object cannot be created.
pub(crate) async fn apply(
    run: &PerfRun,
    observed: &Observed<'_>,
    decision: &Decision,
    context: &Context,
) -> Result<(), Error> {
    let Decision {
        stage: _,
        create,
        create_store,
        delete_pods,
        delete_store,
        command,
        delete_run,
        wake: _,
    } = decision;
    let identity = &observed.identity;
    let mut applied = Ok(());
    if let Some(plan) = observed.inputs.planned.plan() {
        applied = create_objects(run, identity, plan, create, *create_store, context).await;
        let refused = applied.as_ref().err();
        let refused = refused.map(|error: &Error| Report::new(error).to_string());
        context.conductors.set_refused(&identity.uid, refused);
        match command {
            ConductorCommand::None => {}
            ConductorCommand::Cancel => context.conductors.cancel(&identity.uid),
            ConductorCommand::Start => context.conductors.start(job(run, observed, plan, false, context)),
            ConductorCommand::Conclude => context.conductors.start(job(run, observed, plan, true, context)),
        }
    }
    if *delete_pods || *delete_store {
        let pods = observed.inputs.pods.iter();
        let pods: Vec<_> = pods
            .filter(|pod| *delete_pods || pod.node == STORE_NODE)
            .collect();
        applied = applied.and(delete_all(identity, &pods, context).await);
    }
    if *delete_run {
        let deleted = remove_run(
            &identity.namespace,
            &identity.name,
            &identity.uid,
            &context.client,
        )
        .await;
        applied = applied.and(deleted);
    }
    applied
}

/// Creates pods and what they need. Pods come last: they mount the token, and the policy has to protect them
/// from the first moment.
async fn create_objects(
    run: &PerfRun,
    identity: &RunIdentity,
    plan: &Plan,
    pods: &[NewPod],
    store: Option<u32>,
    context: &Context,
) -> Result<(), Error> {
    if pods.iter().any(|pod| pod.incarnation == 0) {
        let name = names::token(&identity.name, &identity.uid);
        let secret = build::secret::secret(identity, name, context.key.token(&identity.uid));
        // The owner of a Secret that exists is not checked: the operator may create Secrets, and not read
        // them. Nodes refuse a conductor that has another token than theirs.
        create(identity, secret, Existing::IsFine, context).await?;
        let operators = (!context.access.is_proxy()).then_some(context.operators.as_str());
        let policy = build::policy::policy(identity, operators);
        create(identity, policy, Existing::MustBeOurs, context).await?;
    }
    for new in pods {
        let pod = build::pod::pod(identity, &run.spec, plan, new, &context.site);
        create(identity, pod, Existing::MustBeOurs, context).await?;
    }
    if let Some((incarnation, store)) = store.zip(run.spec.store()) {
        if incarnation == 0 {
            let name = names::store_token(&identity.name, &identity.uid);
            let secret = build::secret::secret(identity, name, context.key.store_token(&identity.uid));
            create(identity, secret, Existing::IsFine, context).await?;
        }
        let settings = &run.spec.template.server;
        let pod = build::store::pod(identity, store, settings, incarnation, &context.site);
        create(identity, pod, Existing::MustBeOurs, context).await?;
    }
    Ok(())
}

/// What an existing object of the same name means.
pub(crate) enum Existing {
    IsFine,
    MustBeOurs,
}

async fn create<K>(run: &RunIdentity, object: K, existing: Existing, context: &Context) -> Result<(), Error>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
        + Clone
        + Debug
        + DeserializeOwned
        + Serialize,
{
    create_object(object, "run", &run.uid, existing, &context.client).await?;
    // From its first object on, the run is in the way of others, and another of them goes first.
    if context.ledger.begin(&run.uid, &run.namespace) {
        context.wake_first();
    }
    Ok(())
}

/// Creates an object of an owner with this UID. `owner` is what the owner is for people.
pub(crate) async fn create_object<K>(
    object: K,
    owner: &'static str,
    uid: &str,
    existing: Existing,
    client: &Client,
) -> Result<(), Error>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
        + Clone
        + Debug
        + DeserializeOwned
        + Serialize,
{
    let api: Api<K> = Api::namespaced(client.clone(), &object.namespace().unwrap_or_default());
    let (kind, name) = (K::kind(&()), object.name_any());
    let params = PostParams {
        field_manager: Some(MANAGER.to_owned()),
        ..PostParams::default()
    };
    let result = match within_timeout(api.create(&params, &object)).await {
        Ok(_) => Ok(()),
        Err(error) if error.answer().is_some_and(|answer| answer.is_already_exists()) => match existing {
            Existing::IsFine => Ok(()),
            Existing::MustBeOurs => match within_timeout(api.get_metadata(&name)).await {
                Ok(found) if found.owner_references().iter().any(|owner| owner.uid == uid) => Ok(()),
                Ok(_) => return Err(Error::NameConflict { kind, name, owner }),
                Err(error) => Err(error),
            },
        },
        Err(error) => Err(error),
    };
    result.map_err(|source| Error::Create { kind, name, source })
}

/// Deletes pods of the run one by one: a pod of another owner stays, whatever its labels are.
async fn delete_all(run: &RunIdentity, pods: &[&NodePod], context: &Context) -> Result<(), Error> {
    let api: Api<Pod> = Api::namespaced(context.client.clone(), &run.namespace);
    let mut deletions = vec![];
    for pod in pods.iter().filter(|pod| !pod.deleting) {
        deletions.push(delete(&api, &pod.name, &pod.uid, DeleteParams::default()));
    }
    let mut deletions = stream::iter(deletions).buffer_unordered(DELETIONS_AT_ONCE);
    let mut all = Ok(());
    while let Some(deleted) = deletions.next().await {
        all = all.and(deleted);
    }
    all.map_err(Error::DeletePods)
}

/// Deletes the object with this name and UID, if it still exists.
pub(crate) async fn delete<K>(
    api: &Api<K>,
    name: &str,
    uid: &str,
    params: DeleteParams,
) -> Result<(), CallError>
where
    K: Clone + Debug + DeserializeOwned,
{
    let params = params.preconditions(Preconditions {
        uid: Some(uid.to_owned()),
        resource_version: None,
    });
    match within_timeout(api.delete(name, &params)).await {
        Ok(_) => Ok(()),
        // It is gone, or another one has its name.
        Err(error)
            if error
                .answer()
                .is_some_and(|answer| matches!(answer.code, 404 | 409)) =>
        {
            Ok(())
        }
        Err(error) => Err(error),
    }
}

/// Deletes a run. A run of the same name with another UID stays.
pub(crate) async fn remove_run(namespace: &str, name: &str, uid: &str, client: &Client) -> Result<(), Error> {
    let api: Api<PerfRun> = Api::namespaced(client.clone(), namespace);
    let deleted = delete(&api, name, uid, DeleteParams::background()).await;
    deleted.map_err(Error::DeleteRun)
}

fn job(run: &PerfRun, observed: &Observed<'_>, plan: &Arc<Plan>, conclude: bool, context: &Context) -> Job {
    let Observed { identity, inputs, .. } = observed;
    let wake = context.wake.clone();
    let object = ObjectRef::<WatchedRun>::new(&identity.name).within(&identity.namespace);
    Job {
        run: identity.clone(),
        spec: run.spec.clone(),
        plan: plan.clone(),
        since: inputs.running_since().unwrap_or(inputs.now),
        progress: last_progress(inputs.status),
        conclude,
        token: context.key.token(&identity.uid),
        store_token: context.key.store_token(&identity.uid),
        client: context.client.clone(),
        term: context.term.clone(),
        clock: context.clock.clone(),
        access: context.access.clone(),
        pods: context.pods.clone(),
        result_bytes: context.result_bytes,
        image: context.site.image.clone(),
        pull_secrets: context.site.pull_secrets.clone(),
        metrics: context.metrics.clone(),
        recorder: context.recorder.clone(),
        reference: run.object_ref(&()),
        // Nobody listens when the operator ends.
        wake: Arc::new(move || drop(wake.send(object.clone()))),
    }
}
