//! Stage 1 of a pass: what is known of a run, from the watched objects and from this process. Makes no
//! request.

pub(crate) mod pod;

use std::sync::Arc;

use kube::{Resource, ResourceExt, runtime::reflector::ObjectRef};
use perfrun_api::spec::{PerfRun, PerfRunStatus};
use thiserror::Error;

use self::pod::NodePod;
use crate::{
    build::RunIdentity,
    controller::Context,
    decide::{self, Inputs},
    ledger::{Claim, Entries},
    plans::{self, Planned},
    status,
    turn::{self, Contender, Limits, Standing},
    watched::WatchedRun,
};

/// Why a run cannot be observed.
#[derive(Debug, Error)]
pub(crate) enum Error {
    #[error("the API server sent a PerfRun without a name, a namespace or a UID")]
    Anonymous,
    #[error("the watch still shows the run as in progress, though its end has been written")]
    Stale,
}

/// A run as it is now.
pub(crate) struct Observed<'a> {
    pub(crate) identity: RunIdentity,
    pub(crate) inputs: Inputs<'a>,
    /// The turn of a run that may start now. Other runs wait while the pass holds it.
    _claim: Option<Claim<'a>>,
}

/// Observes a run. `status` is the run's, or the default if it has none.
pub(crate) fn observe<'a>(
    run: &'a PerfRun,
    status: &'a PerfRunStatus,
    context: &'a Context,
) -> Result<Observed<'a>, Error> {
    let identity = RunIdentity::of(run).ok_or(Error::Anonymous)?;
    let uid = &identity.uid;
    if status::has_ended(status) {
        context.ledger.end_is_visible(uid);
    } else if context.ledger.has_ended(uid) {
        return Err(Error::Stale);
    }
    let deleting = run.meta().deletion_timestamp.is_some();
    let pods = pod::of_run(&identity, &context.pods);
    let (conductor, lost_on) = context.conductors.state(uid);
    let (turn, claim) = match turn(run, status, &pods, context) {
        Ok(claim) => (Ok(()), claim),
        Err(why) => (Err(why), None),
    };
    let need = if deleting {
        decide::Need::Nothing
    } else {
        decide::need(&run.spec, status, &conductor, turn)
    };
    let planned = context.plans.plan(uid, run, need);
    // A stricter policy or operator costs no measurements: it does not apply to runs whose trials have begun.
    let refusal = planned
        .outline()
        .filter(|_| !status::is_running(status))
        .and_then(|outline| {
            let policy = &context.policy;
            let not_allowed = || policy.refusal(&run.spec, &outline.capabilities, &context.operators);
            let hopeless = outline.hopeless.clone().map(plans::invalid);
            hopeless.or_else(not_allowed)
        });
    let planned = refusal.map_or(planned, Planned::Refused);
    let inputs = Inputs {
        spec: &run.spec,
        status,
        deleting,
        planned,
        pods,
        conductor,
        lost_on,
        now: (context.clock)(),
    };
    Ok(Observed {
        identity,
        inputs,
        _claim: claim,
    })
}

/// The waiting run that goes first, if there is one.
pub(crate) fn first(context: &Context) -> Option<ObjectRef<WatchedRun>> {
    let runs = context.runs.state();
    let runs = context.ledger.read(|ledger| contenders(&runs, ledger, context));
    let first = turn::first(&runs, limits(context))?;
    Some(ObjectRef::new(first.name).within(first.namespace))
}

/// The turn of a run, unless another run prevents it. A run that has objects keeps its turn without asking.
fn turn<'a>(
    run: &PerfRun,
    status: &PerfRunStatus,
    pods: &[NodePod],
    context: &'a Context,
) -> Result<Option<Claim<'a>>, String> {
    let needs_none = run.spec.suspend || run.spec.cancel || run.meta().deletion_timestamp.is_some();
    if needs_none || status::has_ended(status) {
        return Ok(None);
    }
    let uid = run.uid().unwrap_or_default();
    if status::is_running(status) || are_in_use(pods) {
        context.ledger.begin(&uid, &run.namespace().unwrap_or_default());
    }
    let claim = context.ledger.claim(&uid, |ledger| {
        if ledger.standing(&uid) == Some(Standing::Active) {
            return Ok(());
        }
        let runs = context.runs.state();
        let this = contender(run, &uid, Standing::Waiting, ledger);
        turn::may_begin(&this, &contenders(&runs, ledger, context), limits(context))
    })?;
    Ok(Some(claim))
}

fn limits(context: &Context) -> Limits<'_> {
    Limits {
        max_active: context.max_concurrent_runs,
        policy: &context.policy,
    }
}

/// The runs that are in the way of others.
fn contenders<'a>(runs: &'a [Arc<WatchedRun>], ledger: &Entries, context: &Context) -> Vec<Contender<'a>> {
    let contenders = runs.iter().filter_map(|run| {
        let run = run.readable()?;
        let uid = run.meta().uid.as_deref()?;
        let standing = standing(run, ledger.standing(uid), || has_pods(run, context))?;
        Some(contender(run, uid, standing, ledger))
    });
    contenders.collect()
}

/// How a run stands in the way of others. `None` if it does not: it has ended, is suspended or is being
/// deleted, or the API server refuses its objects. `known` is what this process knows of the run.
fn standing(run: &PerfRun, known: Option<Standing>, has_pods: impl FnOnce() -> bool) -> Option<Standing> {
    let status = run.status.as_ref();
    if run.meta().deletion_timestamp.is_some() || status.is_some_and(status::has_ended) {
        return None;
    }
    match known {
        Some(Standing::Ended) => None,
        Some(known) => Some(known),
        None if status.is_some_and(status::is_running) => Some(Standing::Active),
        None if status.is_some_and(status::is_provisioning) => has_pods().then_some(Standing::Active),
        None if run.spec.suspend => None,
        None => Some(Standing::Waiting),
    }
}

fn has_pods(run: &PerfRun, context: &Context) -> bool {
    RunIdentity::of(run).is_some_and(|identity| are_in_use(&pod::of_run(&identity, &context.pods)))
}

/// Whether the run has pods that are not just being removed.
fn are_in_use(pods: &[NodePod]) -> bool {
    pods.iter().any(|pod| !pod.deleting)
}

fn contender<'a>(run: &'a PerfRun, uid: &'a str, standing: Standing, ledger: &Entries) -> Contender<'a> {
    let namespace = run.meta().namespace.as_deref().unwrap_or_default();
    let created = run.meta().creation_timestamp.as_ref();
    Contender {
        created: created.map_or(i64::MAX, |time| time.0.as_second()),
        last_turn: ledger.last_turn(namespace),
        namespace,
        name: run.meta().name.as_deref().unwrap_or_default(),
        uid,
        exclusive: run.spec.topology.exclusive,
        standing,
    }
}
