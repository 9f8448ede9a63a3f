//! Step 1 of a reconciliation: what is known of a run, from the watched objects and from this process. Makes
//! no request.

use kube::Resource;
use perfrun_api::spec::{PerfRun, PerfRunStatus};
use thiserror::Error;
use tokio::time::Instant;

use crate::{
    build::RunIdentity,
    pods,
    run::{
        conditions::{has_ended, is_running},
        context::Context,
        decide::{self, Inputs},
        plans::{self, Need, Planned},
        stage::Stage,
        turn_states::Reservation,
    },
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
    /// The turn of a run that may start now. Other runs wait while the reconciliation holds it.
    _reservation: Option<Reservation<'a>>,
}

/// Observes a run. `status` is the run's, or the default if it has none.
pub(crate) fn observe<'a>(
    run: &'a PerfRun,
    status: &'a PerfRunStatus,
    context: &'a Context,
) -> Result<Observed<'a>, Error> {
    let identity = RunIdentity::of(run).ok_or(Error::Anonymous)?;
    let uid = &identity.uid;
    if context.turns.is_stale(uid, has_ended(status)) {
        return Err(Error::Stale);
    }
    let deleting = run.meta().deletion_timestamp.is_some();
    let pods = pods::of_run(&identity, &context.services.pods);
    let (conductor, lost_on) = context.conductors.state(uid);
    let (turn, reservation) = match context.turns.reserve(run, status, &pods) {
        Ok(reservation) => (Ok(()), reservation),
        Err(why) => (Err(why), None),
    };
    let (now, instant) = ((context.services.clock)(), Instant::now());
    let own = context.times.observe(uid, &pods, now, instant);
    let need = match own.stood_back(instant).and_then(Stage::end) {
        _ if deleting => Need::Nothing,
        Some(end) if !has_ended(status) => Need::Outline(end),
        _ => decide::need(&run.spec, status, &conductor, turn),
    };
    let planned = context.plans.plan(uid, run, need);
    // A stricter policy or operator costs no measurements: it does not apply to runs whose trials have begun.
    let refusal = planned
        .outline()
        .filter(|_| !is_running(status))
        .and_then(|outline| {
            let policy = &context.turns.policy;
            let not_allowed = || {
                let (nodes, capabilities) = (outline.nodes, &outline.capabilities);
                policy.refusal(
                    &run.spec,
                    nodes,
                    capabilities,
                    &context.services.operator_namespace,
                )
            };
            let infeasible = outline.infeasible.clone().map(plans::invalid);
            infeasible.or_else(not_allowed)
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
        own,
        kept_pods: context.services.pod_defaults.kept_pods,
        now,
        instant,
    };
    Ok(Observed {
        identity,
        inputs,
        _reservation: reservation,
    })
}
