//! Plans of runs: each made once, and kept while somebody needs it.
//!
//! A run that waits may wait for days, beside a thousand others. Of its plan only the outline is kept, which its status
//! tells, and the plan is made again when the run may begin. Of a run that has ended nothing is kept, and nothing is planned.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use perfrun_api::{planning::plan, spec::PerfRun};
use perfrun_contract::plan::Plan;

use crate::{decide::Need, observe::Trouble};

/// What the status of a run says of its plan.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Outline {
    /// Trials, warm-up included.
    pub trials: usize,
    /// Cells.
    pub cells: usize,
    /// Nodes.
    pub nodes: usize,
    /// Cells that cannot be measured.
    pub skipped: usize,
    /// Why the first of those cannot be measured.
    pub first_skipped: Option<String>,
    /// Networks; 0, if links are left as they are.
    pub networks: usize,
}

impl From<&Plan> for Outline {
    fn from(plan: &Plan) -> Self {
        Self {
            trials: plan.trials.len(),
            cells: plan.cells.len(),
            nodes: plan.nodes.len(),
            skipped: plan.skipped.len(),
            first_skipped: plan.skipped.first().map(|skipped| skipped.reason.clone()),
            networks: plan.networks.len(),
        }
    }
}

/// What a run comes to, as far as a pass needs it.
#[derive(Clone, Debug)]
pub enum Planned {
    /// It has ended: no plan is needed.
    Over,
    /// It cannot be run, and why.
    Refused(String),
    /// It may not begin yet, and why.
    Held(Outline, Trouble),
    /// It is active, or may be.
    Whole(Outline, Arc<Plan>),
}

impl Planned {
    /// The outline, if there is a plan.
    pub fn outline(&self) -> Option<&Outline> {
        match self {
            Self::Over | Self::Refused(_) => None,
            Self::Held(outline, _) | Self::Whole(outline, _) => Some(outline),
        }
    }

    /// The plan, if it is needed.
    pub fn plan(&self) -> Option<&Arc<Plan>> {
        match self {
            Self::Whole(_, plan) => Some(plan),
            Self::Over | Self::Refused(_) | Self::Held(..) => None,
        }
    }
}

/// What is known of runs' plans, by their UIDs.
#[derive(Default)]
pub struct Plans(Mutex<HashMap<String, Known>>);

struct Known {
    generation: Option<i64>,
    /// Or why there is no plan.
    outline: Result<Outline, String>,
    /// Only of a run that is active, or may be.
    plan: Option<Arc<Plan>>,
}

/// All of a plan, or why there is none.
type Whole = Result<(Outline, Arc<Plan>), String>;

impl Plans {
    /// What a run comes to. Plans it only if this generation of it is not known well enough, and one run at a time: memory
    /// has to hold no more than one plan that is not needed.
    pub fn look(&self, uid: &str, run: &PerfRun, need: Need) -> Planned {
        let mut plans = self.lock();
        let generation = run.metadata.generation;
        let known = plans.remove(uid).filter(|known| known.generation == generation);
        let (planned, outline, plan) = match need {
            Need::Nothing => return Planned::Over,
            Need::Outline(why) => {
                let outline = known.map(|known| known.outline);
                let outline = outline.unwrap_or_else(|| whole(run).map(|(outline, _)| outline));
                let planned = match outline.clone() {
                    Ok(outline) => Planned::Held(outline, why),
                    Err(why) => Planned::Refused(why),
                };
                (planned, outline, None)
            }
            Need::Whole => match known.and_then(Known::whole).unwrap_or_else(|| whole(run)) {
                Ok((outline, plan)) => (
                    Planned::Whole(outline.clone(), plan.clone()),
                    Ok(outline),
                    Some(plan),
                ),
                Err(why) => (Planned::Refused(why.clone()), Err(why), None),
            },
        };
        let known = Known {
            generation,
            outline,
            plan,
        };
        plans.insert(uid.to_owned(), known);
        planned
    }

    /// Forgets a run that has ended, or is gone.
    pub fn forget(&self, uid: &str) {
        self.lock().remove(uid);
    }

    /// UIDs of runs that are known, and are not among these.
    pub fn others_than(&self, uids: &BTreeSet<String>) -> Vec<String> {
        let plans = self.lock();
        plans.keys().filter(|uid| !uids.contains(*uid)).cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Known>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    fn whole(self) -> Option<Whole> {
        match (self.outline, self.plan) {
            (Err(why), _) => Some(Err(why)),
            (Ok(outline), Some(plan)) => Some(Ok((outline, plan))),
            (Ok(_), None) => None,
        }
    }
}

fn whole(run: &PerfRun) -> Whole {
    let plan = plan(&run.spec).map_err(|error| error.to_string())?;
    Ok((Outline::from(&plan), Arc::new(plan)))
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
        Need::Outline(Trouble {
            reason: "Suspended",
            message: String::new(),
        })
    }

    fn plan_of(plans: &Plans, run: &PerfRun) -> Arc<Plan> {
        plans.look("a", run, Need::Whole).plan().unwrap().clone()
    }

    fn is_refused(planned: &Planned) -> bool {
        matches!(planned, Planned::Refused(why) if why.starts_with("nothing to run: "))
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
        let outline = plans.look("a", &run(1, "tcp"), held()).outline().cloned();
        assert_eq!(outline.as_ref().map(|outline| outline.cells), Some(2));
        assert!(plans.lock()["a"].plan.is_none());
        // Another document under a generation that is known: whoever looked at it again would refuse it.
        let again = plans.look("a", &run(1, "tcp-tls"), held());
        assert_eq!(again.outline().cloned(), outline);
        // It may begin, and is held again before it did.
        let plan = Arc::downgrade(&plan_of(&plans, &run(1, "tcp")));
        assert!(plan.upgrade().is_some());
        plans.look("a", &run(1, "tcp-tls"), held());
        assert!(plan.upgrade().is_none());
    }

    #[test]
    fn a_run_that_is_refused_is_not_planned_again() {
        let plans = Plans::default();
        assert!(is_refused(&plans.look("a", &run(1, "tcp-tls"), held())));
        assert!(is_refused(&plans.look("a", &run(1, "tcp"), Need::Whole)));
        assert!(is_refused(&plans.look("a", &run(1, "tcp"), held())));
        assert!(!is_refused(&plans.look("a", &run(2, "tcp"), held())));
    }

    #[test]
    fn a_run_that_has_ended_is_not_planned_and_nothing_of_it_is_kept() {
        let plans = Plans::default();
        plan_of(&plans, &run(1, "tcp"));
        let ended = plans.look("a", &run(1, "tcp-tls"), Need::Nothing);
        assert!(matches!(ended, Planned::Over));
        assert!(plans.lock().is_empty());
    }

    #[test]
    fn runs_that_are_gone_are_known_until_they_are_forgotten() {
        let plans = Plans::default();
        for uid in ["a", "b"] {
            plans.look(uid, &run(1, "tcp"), held());
        }
        assert_eq!(plans.others_than(&["b".to_owned()].into()), ["a"]);
        plans.forget("a");
        assert_eq!(plans.others_than(&BTreeSet::new()), ["b"]);
    }
}
