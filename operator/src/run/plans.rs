//! Plans of runs. Each is made once, and kept only while it is needed.
//!
//! A run may wait for days beside a thousand others. Only the outline of its plan is kept, for its status;
//! the plan is made again when the run may start. A run that has ended is not planned.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use parking_lot::Mutex;
use perfrun_api::{
    cluster::condition::Reason,
    planning,
    pod::Cause,
    spec::{PerfRun, PerfRunSpec},
};
use perfrun_contract::plan::Plan;

use crate::{build, run::verdict::Expected};

/// The size of a plan, for the status of its run.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Outline {
    /// The number of trials, warm-up included.
    pub(crate) trials: usize,
    /// Whether interim checks of the run may leave some of them out.
    pub(crate) may_end_early: bool,
    pub(crate) cells: usize,
    pub(crate) nodes: usize,
    /// The number of cells that cannot be measured.
    pub(crate) skipped: usize,
    /// Why the first skipped cell cannot be measured. `None` if no cell is skipped.
    pub(crate) first_skipped: Option<String>,
    /// The number of networks. 0 if the run does not impair links.
    pub(crate) networks: usize,
    /// The capabilities of its link agents.
    pub(crate) capabilities: Vec<&'static str>,
    /// What the run expects. `None` if it neither compares nor expects anything.
    pub(crate) expected: Option<Vec<Expected>>,
    /// Why the run cannot succeed. `None` if nothing is known against it.
    pub(crate) infeasible: Option<String>,
}

impl Outline {
    pub(crate) fn of(plan: &Plan, spec: &PerfRunSpec) -> Self {
        Self {
            trials: plan.trials.len(),
            may_end_early: plan.judging.interim_checks.len() > 1,
            cells: plan.cells.len(),
            nodes: plan.nodes.len(),
            skipped: plan.skipped.len(),
            first_skipped: plan.skipped.first().map(|skipped| skipped.reason.clone()),
            networks: plan.networks.len(),
            capabilities: build::pod::link::capabilities(plan, spec.template.link.real_time),
            expected: Expected::of(&plan.judging),
            infeasible: planning::check(spec, plan).err().map(|error| error.to_string()),
        }
    }
}

/// How much of its plan a run needs now.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Need {
    /// The run has ended or is being deleted.
    Nothing,
    /// The run may not start yet, for this reason. Its status shows the size of the plan.
    Outline(Cause),
    /// The run is active, or may start.
    Whole,
}

/// As much of a run's plan as a reconciliation needs.
#[derive(Clone, Debug)]
pub(crate) enum Planned {
    /// The run has ended or is being deleted: no plan is needed.
    NotNeeded,
    /// The run cannot be planned or is not allowed, for this reason.
    Refused(Cause),
    /// The run may not start yet, for this reason.
    Held(Outline, Cause),
    /// The run is active, or may start.
    Whole(Outline, Arc<Plan>),
}

impl Planned {
    /// The outline of the plan. `None` if the run has no plan.
    pub(crate) fn outline(&self) -> Option<&Outline> {
        match self {
            Self::NotNeeded | Self::Refused(_) => None,
            Self::Held(outline, _) | Self::Whole(outline, _) => Some(outline),
        }
    }

    /// The plan. `None` if the reconciliation needs none.
    pub(crate) fn plan(&self) -> Option<&Arc<Plan>> {
        match self {
            Self::Whole(_, plan) => Some(plan),
            Self::NotNeeded | Self::Refused(_) | Self::Held(..) => None,
        }
    }
}

/// Plans by the UIDs of their runs.
#[derive(Default)]
pub(crate) struct Plans(Mutex<HashMap<String, Entry>>);

struct Entry {
    /// The generation of the run that was planned.
    generation: Option<i64>,
    /// The error says why the run cannot be planned.
    outline: Result<Outline, String>,
    /// `None` if the run may not start yet.
    plan: Option<Arc<Plan>>,
}

/// A plan, or why the run cannot be planned.
type Draft = Result<(Outline, Arc<Plan>), String>;

impl Plans {
    /// Plans a run, unless this generation of it has been planned before. Plans one run at a time, so that
    /// memory never holds more than one plan that is not kept.
    pub(crate) fn plan(&self, uid: &str, run: &PerfRun, need: Need) -> Planned {
        let mut plans = self.0.lock();
        let generation = run.metadata.generation;
        let entry = plans.remove(uid).filter(|entry| entry.generation == generation);
        let (planned, outline, plan) = match need {
            Need::Nothing => return Planned::NotNeeded,
            Need::Outline(why) => {
                let outline = entry.map(|entry| entry.outline);
                let outline = outline.unwrap_or_else(|| draft(run).map(|(outline, _)| outline));
                let planned = match outline.clone() {
                    Ok(outline) => Planned::Held(outline, why),
                    Err(why) => refused(why),
                };
                (planned, outline, None)
            }
            Need::Whole => match entry.and_then(Entry::into_draft).unwrap_or_else(|| draft(run)) {
                Ok((outline, plan)) => (
                    Planned::Whole(outline.clone(), plan.clone()),
                    Ok(outline),
                    Some(plan),
                ),
                Err(why) => (refused(why.clone()), Err(why), None),
            },
        };
        let entry = Entry {
            generation,
            outline,
            plan,
        };
        plans.insert(uid.to_owned(), entry);
        planned
    }

    /// Forgets a run that has ended or no longer exists.
    pub(crate) fn forget(&self, uid: &str) {
        self.0.lock().remove(uid);
    }

    /// UIDs of all planned runs, except these.
    pub(crate) fn uids_except(&self, uids: &BTreeSet<String>) -> Vec<String> {
        let plans = self.0.lock();
        plans.keys().filter(|uid| !uids.contains(*uid)).cloned().collect()
    }
}

impl Entry {
    fn into_draft(self) -> Option<Draft> {
        match (self.outline, self.plan) {
            (Err(why), _) => Some(Err(why)),
            (Ok(outline), Some(plan)) => Some(Ok((outline, plan))),
            (Ok(_), None) => None,
        }
    }
}

fn draft(run: &PerfRun) -> Draft {
    let spec = PerfRunSpec {
        seed: seed_of(run),
        ..run.spec.clone()
    };
    let plan = planning::draft(&spec).map_err(|error| error.to_string())?;
    Ok((Outline::of(&plan, &spec), Arc::new(plan)))
}

fn refused(why: String) -> Planned {
    Planned::Refused(invalid(why))
}

/// The cause of a run whose document cannot be run.
pub(crate) fn invalid(why: String) -> Cause {
    Cause::new(Reason::Invalid, why)
}

/// The seed of a run: its document's, or its own.
pub(crate) fn seed_of(run: &PerfRun) -> Option<u32> {
    run.spec
        .seed
        .or_else(|| run.metadata.uid.as_deref().map(seed_of_uid))
}

/// The seed of a run that has none: another one for each run, and always the same for one run, also after
/// another operator took over. UIDs are random, and begin with eight hexadecimal digits.
fn seed_of_uid(uid: &str) -> u32 {
    let first = uid.split('-').next().unwrap_or_default();
    u32::from_str_radix(first, 16).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use perfrun_api::document;

    use super::*;

    /// A run of two cells, or of none that can be measured.
    fn run(generation: i64, transport: &str) -> PerfRun {
        let text = format!(
            "{{apiVersion: perfrun.io/v1alpha1, kind: PerfRun, metadata: {{name: a}}, spec: {{workload: {{ping: {{}}}}, \
             matrix: {{clients: [litep2p], servers: [litep2p], transports: [{transport}]}}}}}}"
        );
        let mut run = document::parse(&text).unwrap().remove(0);
        run.metadata.generation = Some(generation);
        run
    }

    fn held() -> Need {
        Need::Outline(Cause {
            reason: Reason::Suspended,
            message: String::new(),
        })
    }

    fn plan_of(plans: &Plans, run: &PerfRun) -> Arc<Plan> {
        plans.plan("a", run, Need::Whole).plan().unwrap().clone()
    }

    fn is_refused(planned: &Planned) -> bool {
        matches!(planned, Planned::Refused(why) if why.message.starts_with("nothing to run: "))
    }

    #[test]
    fn an_active_run_is_planned_once_per_generation() {
        let plans = Plans::default();
        let first = plan_of(&plans, &run(1, "tcp"));
        assert!(Arc::ptr_eq(&first, &plan_of(&plans, &run(1, "tcp"))));
        let next = plan_of(&plans, &run(2, "tcp"));
        assert!(!Arc::ptr_eq(&first, &next));
        assert!(Arc::ptr_eq(&next, &plan_of(&plans, &run(2, "tcp"))));
    }

    #[test]
    fn a_run_that_waits_is_planned_once_and_its_plan_is_not_kept() {
        let plans = Plans::default();
        let outline = plans.plan("a", &run(1, "tcp"), held()).outline().cloned();
        assert_eq!(outline.as_ref().map(|outline| outline.cells), Some(2));
        assert!(plans.0.lock()["a"].plan.is_none());
        // Another document under the same generation, which would be refused if it were planned.
        let again = plans.plan("a", &run(1, "tcp-tls"), held());
        assert_eq!(again.outline().cloned(), outline);
        // The run may start, and is held again before it did.
        let plan = Arc::downgrade(&plan_of(&plans, &run(1, "tcp")));
        assert!(plan.upgrade().is_some());
        plans.plan("a", &run(1, "tcp-tls"), held());
        assert!(plan.upgrade().is_none());
    }

    #[test]
    fn a_run_may_end_early_if_it_has_several_interim_checks() {
        let plans = Plans::default();
        let may_end_early = |uid, most| {
            let mut run = run(1, "tcp");
            run.spec.max_iterations = most;
            plans
                .plan(uid, &run, held())
                .outline()
                .map(|outline| outline.may_end_early)
        };
        assert_eq!(may_end_early("a", None), Some(false));
        assert_eq!(may_end_early("b", Some(40)), Some(true));
    }

    #[test]
    fn every_operator_gives_a_run_the_same_seed() {
        let seed = |run: &PerfRun| plan_of(&Plans::default(), run).seed;
        let mut run = run(1, "tcp");
        run.metadata.uid = Some("9f86d081-884c-4d63-a1b0-000000000001".to_owned());
        assert_eq!(seed(&run), Some(0x9f86_d081));
        run.spec.seed = Some(7);
        assert_eq!(seed(&run), Some(7), "its document says so");
    }

    #[test]
    fn a_run_that_is_refused_is_not_planned_again() {
        let plans = Plans::default();
        assert!(is_refused(&plans.plan("a", &run(1, "tcp-tls"), held())));
        assert!(is_refused(&plans.plan("a", &run(1, "tcp"), Need::Whole)));
        assert!(is_refused(&plans.plan("a", &run(1, "tcp"), held())));
        assert!(!is_refused(&plans.plan("a", &run(2, "tcp"), held())));
    }

    #[test]
    fn a_run_that_has_ended_is_not_planned_and_nothing_of_it_is_kept() {
        let plans = Plans::default();
        plan_of(&plans, &run(1, "tcp"));
        let ended = plans.plan("a", &run(1, "tcp-tls"), Need::Nothing);
        assert!(matches!(ended, Planned::NotNeeded));
        assert!(plans.0.lock().is_empty());
    }

    #[test]
    fn a_run_that_no_longer_exists_has_a_plan_until_it_is_forgotten() {
        let plans = Plans::default();
        for uid in ["a", "b"] {
            plans.plan(uid, &run(1, "tcp"), held());
        }
        assert_eq!(plans.uids_except(&["b".to_owned()].into()), ["a"]);
        plans.forget("a");
        assert_eq!(plans.uids_except(&BTreeSet::new()), ["b"]);
    }
}
