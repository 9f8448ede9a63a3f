//! Step 3 of a reconciliation: does what was decided, except for the status.
//!
//! Objects of a run are created and never changed, so that a reconciliation that saw old objects cannot
//! overwrite newer ones.

use std::{fmt::Debug, sync::Arc, time::Duration};

use error_reporter::Report;
use futures::future::join_all;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Resource, ResourceExt, api::DeleteParams, core::NamespaceResourceScope, runtime::reflector::ObjectRef,
};
use perfrun_api::{pod::store::STORE_NODE, spec::PerfRun};
use perfrun_contract::plan::Plan;
use serde::{Serialize, de::DeserializeOwned};
use tokio::time::Instant;

use crate::{
    api::{
        objects::{Error, Existing, create_object, delete, exists, remove_run},
        watched::WatchedRun,
    },
    build::{self, NewPod, RunIdentity},
    conduct::Job,
    names,
    pods::NodePod,
    run::{
        context::Context,
        decide::{ConductorCommand, Decision},
        observe::Observed,
        stage::last_progress,
    },
    services::Services,
};

/// Most pods of a run that are deleted at the same time.
const DELETIONS_MAX: usize = 16;

/// How long one reconciliation may begin to create objects, or to delete them. A run with many pods must not
/// keep its status from being written, nor occupy one of the few reconciliations at a time, because the API
/// server is slow.
const BEGIN_TIMEOUT: Duration = Duration::from_secs(10);

/// How much of a decision was carried out.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Applied {
    All,
    /// The time of the reconciliation was over, or a pod has vanished. The next one carries out the rest.
    Partly,
}

/// Carries out a decision. Commands to the conductor are given even if an object cannot be created.
pub(crate) async fn apply(
    run: &PerfRun,
    observed: &Observed<'_>,
    decision: &Decision,
    context: &Context,
) -> Result<Applied, Error> {
    let Decision {
        stage: _,
        create,
        create_store,
        given_up,
        delete,
        delete_pods,
        delete_store,
        command,
        delete_run,
        wake: _,
    } = decision;
    let identity = &observed.identity;
    let mut applied = Ok(Applied::All);
    if let Some(plan) = observed.inputs.planned.plan() {
        applied = create_objects(run, identity, plan, create, *create_store, context).await;
        let refused = applied.as_ref().err();
        let refused = refused.map(|error: &Error| Report::new(error).to_string());
        let given_up = given_up.iter();
        let given_up = given_up.map(|(node, why)| (node.clone(), why.message.clone()));
        let given_up = given_up.collect();
        context.conductors.set_missing(&identity.uid, refused, given_up);
        match command {
            ConductorCommand::None => {}
            ConductorCommand::Cancel => context.conductors.cancel(&identity.uid),
            ConductorCommand::Start => context.conductors.start(job(run, observed, plan, false, context)),
            ConductorCommand::Conclude => context.conductors.start(job(run, observed, plan, true, context)),
        }
    }
    let is_due =
        |pod: &&NodePod| *delete_pods || *delete_store && pod.node == STORE_NODE || delete.contains(&pod.uid);
    let pods: Vec<_> = observed.inputs.pods.iter().filter(is_due).collect();
    if !pods.is_empty() {
        let deleted = delete_all(identity, &pods, context).await;
        applied = applied.and_then(|created| deleted.map(|deleted| created.max(deleted)));
    }
    if *delete_run {
        let RunIdentity {
            namespace, name, uid, ..
        } = identity;
        let deleted = remove_run(namespace, name, uid, &context.services.client).await;
        applied = applied.and_then(|applied| deleted.map(|()| applied));
    }
    applied
}

/// Creates pods and what they need. Pods come last: they mount the token, and the network policy has to
/// protect them from the first moment.
async fn create_objects(
    run: &PerfRun,
    identity: &RunIdentity,
    plan: &Plan,
    pods: &[NewPod],
    store: Option<u32>,
    context: &Context,
) -> Result<Applied, Error> {
    let deadline = Instant::now() + BEGIN_TIMEOUT;
    let mut applied = Applied::All;
    let Services {
        access,
        key,
        operator_namespace,
        pod_defaults,
        ..
    } = &*context.services;
    if pods.iter().any(|pod| pod.incarnation == 0) {
        let name = names::token(&identity.name, &identity.uid);
        let secret = build::secret::secret(identity, name, key.token(&identity.uid));
        // The owner of a Secret that exists is not checked: the operator may create Secrets, and not read
        // them. Nodes refuse a conductor that has another token than theirs.
        create(identity, secret, Existing::IsAccepted, context).await?;
        let operator_namespace = (!access.is_proxy()).then_some(operator_namespace.as_str());
        let network_policy = build::network_policy::network_policy(identity, operator_namespace);
        create(identity, network_policy, Existing::MustBelongToOwner, context).await?;
    }
    for (number, new) in pods.iter().enumerate() {
        // One is created however slow the API server is.
        if number > 0 && Instant::now() >= deadline {
            return Ok(Applied::Partly);
        }
        let pod = build::pod::pod(identity, &run.spec, plan, new, pod_defaults);
        let created = create_pod(identity, &new.node.name, new.incarnation, pod, context).await?;
        applied = applied.max(created);
    }
    if let Some((incarnation, store)) = store.zip(run.spec.store()) {
        if !pods.is_empty() && Instant::now() >= deadline {
            return Ok(Applied::Partly);
        }
        if incarnation == 0 {
            let name = names::store_token(&identity.name, &identity.uid);
            let secret = build::secret::secret(identity, name, key.store_token(&identity.uid));
            create(identity, secret, Existing::IsAccepted, context).await?;
        }
        let pod = build::store::pod(identity, &run.spec, store, incarnation, pod_defaults);
        let created = create_pod(identity, STORE_NODE, incarnation, pod, context).await?;
        applied = applied.max(created);
    }
    Ok(applied)
}

/// Creates a pod, unless this process has created it and the watch does not show it yet. If such a pod no
/// longer exists, the next reconciliation creates another: no name is used twice.
async fn create_pod(
    run: &RunIdentity,
    node: &str,
    incarnation: u32,
    pod: Pod,
    context: &Context,
) -> Result<Applied, Error> {
    let Context { services, times, .. } = context;
    if !times.is_awaited(&run.uid, node, incarnation) {
        let name = pod.name_any();
        create(run, pod, Existing::MustBelongToOwner, context).await?;
        context.turns.note_created(run, name);
        times.note_created(&run.uid, node, incarnation);
        return Ok(Applied::All);
    }
    if exists(&pod, &services.client).await? {
        return Ok(Applied::All);
    }
    times.note_vanished(&run.uid, node);
    Ok(Applied::Partly)
}

async fn create<K>(run: &RunIdentity, object: K, existing: Existing, context: &Context) -> Result<(), Error>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
        + Clone
        + Debug
        + DeserializeOwned
        + Serialize,
{
    create_object(object, "run", &run.uid, existing, &context.services.client).await?;
    context.turns.note_begun(run);
    Ok(())
}

/// Deletes pods of the run one by one: a pod of another owner stays, whatever its labels are.
async fn delete_all(run: &RunIdentity, pods: &[&NodePod], context: &Context) -> Result<Applied, Error> {
    let deadline = Instant::now() + BEGIN_TIMEOUT;
    let client = &context.services.client;
    let due: Vec<_> = pods.iter().filter(|pod| !pod.deleting).collect();
    let (mut applied, mut all) = (Applied::All, Ok(()));
    for some in due.chunks(DELETIONS_MAX) {
        if Instant::now() >= deadline {
            applied = Applied::Partly;
            break;
        }
        let mut deletions = vec![];
        for pod in some {
            let params = DeleteParams::default();
            deletions.push(delete::<Pod>(&run.namespace, &pod.name, &pod.uid, params, client));
        }
        for deleted in join_all(deletions).await {
            all = all.and(deleted);
        }
    }
    all.map(|()| applied).map_err(Error::DeletePods)
}

fn job(run: &PerfRun, observed: &Observed<'_>, plan: &Arc<Plan>, conclude: bool, context: &Context) -> Job {
    let Observed { identity, inputs, .. } = observed;
    let wake = context.turns.waker();
    let object = ObjectRef::<WatchedRun>::new(&identity.name).within(&identity.namespace);
    Job {
        services: context.services.clone(),
        run: identity.clone(),
        reference: run.object_ref(&()),
        spec: run.spec.clone(),
        plan: plan.clone(),
        since: inputs.running_since().unwrap_or(inputs.now),
        progress: last_progress(inputs.status),
        conclude,
        // Nobody listens when the operator ends.
        wake: Arc::new(move || drop(wake.send(object.clone()))),
    }
}
